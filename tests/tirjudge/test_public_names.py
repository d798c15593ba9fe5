"""The names that `import tirjudge` gives: their arguments and what `help` says about them."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

import tirjudge
from tirjudge import Judge, JudgeOptions


def shown(name: str) -> str:
    return " ".join(pydoc.plain(pydoc.render_doc(getattr(tirjudge, name))).replace("|", " ").split())


def test_a_judge_has_named_and_typed_options() -> None:
    parameters = inspect.signature(Judge).parameters
    assert not [one for one in parameters.values() if one.kind is one.VAR_KEYWORD or one.annotation is Any]
    assert [*parameters][:2] == ["model", "base_url"]
    assert parameters.keys() == {*JudgeOptions.model_fields, "sandbox", "api_key"}
    assert (parameters["samples"].annotation, parameters["samples"].default) == (int, 1)
    assert (parameters["truncate"].annotation, parameters["truncate"].default) == (int | None, None)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Judge", ["samples: int = 1", "score(self, prompt"]),
        ("Judgment", ["Candidates, best first: all"]),
        ("GeneratorFailed", ["could not answer", "raises it"]),
        ("CostReached", ["max_cost", "how much was spent"]),
    ],
)
def test_help_is_enough(name: str, texts: list[str]) -> None:
    assert [text for text in texts if text not in shown(name)] == []
    assert "Annotated" not in shown(name).partition("Methods defined")[0]
