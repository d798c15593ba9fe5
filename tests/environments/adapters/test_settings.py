"""The judge settings that a framework's configuration carries."""

from __future__ import annotations

from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.tasks import Columns


def test_a_copy_through_json_names_exactly_the_same_columns() -> None:
    settings = JudgeSettings(columns=Columns(prompt="question"), options={"order": "given"})
    copy = JudgeSettings.model_validate_json(settings.model_dump_json())
    assert copy == settings
    assert copy.columns.model_fields_set == {"prompt"}


def test_a_copy_with_another_judge_opens_that_one() -> None:
    pairs = JudgeSettings(judge="tir-pairwise")
    assert type(pairs.environment) is not type(pairs.model_copy(update={"judge": "j1-pav"}).environment)
