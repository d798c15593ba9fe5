"""A framework's configuration of a judge."""

from __future__ import annotations

from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.tasks import Columns


def test_a_copy_by_way_of_json_names_the_same_columns_and_no_others() -> None:
    settings = JudgeSettings(columns=Columns(prompt="question"), options={"order": "given"})
    copy = JudgeSettings.model_validate_json(settings.model_dump_json())
    assert copy == settings
    assert copy.columns.model_fields_set == {"prompt"}


def test_a_copy_with_another_judge_opens_that_one() -> None:
    pairs = JudgeSettings(judge="tir-pairwise")
    assert type(pairs.environment) is not type(pairs.model_copy(update={"judge": "j1-pav"}).environment)
