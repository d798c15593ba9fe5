"""Checkers as rewards: the judge's scores without a judge, as TRL and verl call them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tirjudge import Judge
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import RowError
from tirjudge_environments.adapters.checkers import CheckerReward, compute_score
from tirjudge_environments.adapters.dialogues import SandboxThread
from tirjudge_environments.checkers.file import Checker, CheckerFile, Measurement

WORDS = (
    "def check(response, prompt, n):\n    return None if '?' in response else len(response.split()) >= n\n"
)
COMMA = "def check(response, prompt):\n    return ',' in response\n"
CRITERIA: list[Any] = [
    "at least 2 words",
    {"text": "It has a comma.", "polarity": "negative", "weight": 2, "must_have": None},
]
TEXTS = ["a b", "a", "a, b", "a,", "a b?"]
FAST = {"capacity": 1, "preload": []}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    SandboxThread.close_all()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = []
    for name, rule, source in (("w", "at least {n:number} words", WORDS), ("c", "It has a comma.", COMMA)):
        one = Checker(name=name, rule=rule, source=source)
        found.append(one.model_copy(update={"measured": Measurement(digest=one.digest, admitted=True)}))
    path = tmp_path / "checkers.toml"
    path.write_text(CheckerFile(checkers=tuple(found), rules=("at least 2 words",)).text())
    return path


def test_a_reward_is_the_score_that_the_judges_criteria_give(file: Path) -> None:
    reward = CheckerReward(file, sandbox_options=FAST)
    logged: dict[str, float] = {}
    chat = [[{"role": "assistant", "content": text}] for text in TEXTS]
    prompts = [[{"role": "user", "content": "Write."}]] * len(TEXTS)
    found = reward(prompts, chat, criteria=[CRITERIA] * len(TEXTS), log_metric=logged.__setitem__)
    assert found == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0, None]
    assert logged == {"checkers/undecided": 0.2}
    with Judge(generator=ScriptedGenerator([]), checkers=str(file), audit=0.0, backend_options=FAST) as judge:
        scores = [
            judge.score("Write.", text, criteria=[CRITERIA[0], {**CRITERIA[1], "must_have": False}]).score
            for text in TEXTS[:4]
        ]
    assert found[:4] == pytest.approx(scores)


def test_a_must_have_that_fails_is_0_and_rows_without_criteria_have_the_rules_of_the_file(file: Path) -> None:
    reward = CheckerReward(file, sandbox_options=FAST)
    required = [{"text": "It has a comma.", "must_have": True}, "It is kind."]
    assert reward(["p", "p"], ["a", "a,"], criteria=[required, required]) == [0.0, None]
    assert reward(["p", "p"], ["a", "a b"]) == [0.0, 1.0]
    assert reward(["p"], ["a"], criteria=[np.array(["at least one words"])]) == [1.0]
    with pytest.raises(RowError, match="polarity"):
        reward(["p"], ["a"], criteria=[[{"text": "t", "polarity": "x"}]])


def test_verl_gets_a_score_or_an_error(file: Path) -> None:
    info = {"question": "Write.", "criteria": np.array(["at least 2 words"], dtype=object)}
    given = {"checkers": str(file)}
    assert compute_score("d", "a b", None, info, **given) == {"score": 1.0, "checkers_undecided": 0.0}
    with pytest.raises(ValueError, match="no checker decides"):
        compute_score("d", "a b?", None, info, **given)
    scored = compute_score("d", "a b?", None, info, **given, undecided_reward=0.5)
    assert scored == {"score": 0.5, "checkers_undecided": 1.0}


def said(content: Any, **fields: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": content, **fields}]


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (said(None), 0.0),
        (said(None, tool_calls=[{"id": "1", "function": {"name": "f", "arguments": "{}"}}]), 0.0),
        ([{"role": "assistant"}], 0.0),
        ([], 0.0),
        (said([{"type": "text", "text": "a"}]), 0.0),
        (said([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]), 1.0),
        ('[{"role": "assistant", "content": "a"}, {"role": "user", "content": "x"}]', 1.0),
        ('[{"role": "assistant", "content": "a"}]', 1.0),
        ('["a"]', 0.0),
        # As the judge reads it, without the thinking.
        ("<think>a b</think>a", 0.0),
    ],
)
@pytest.mark.parametrize("prompt", ["Write.", [{"role": "user", "content": "Write."}], '["Write."]'])
def test_a_completion_is_the_text_that_the_policy_wrote_whatever_it_reads_as(
    completion: Any, score: float, prompt: Any, file: Path
) -> None:
    """The rule is two words: no other text, and no transcript, may take the place of what was written."""
    assert CheckerReward(file, sandbox_options=FAST)([prompt], [completion]) == [score]


def test_a_message_without_content_has_no_words(file: Path) -> None:
    reward = CheckerReward(file, sandbox_options=FAST)
    assert reward(["p"] * 2, [said(None), "None"], criteria=[["at least one words"]] * 2) == [0.0, 1.0]


def test_content_that_is_no_text_is_an_error_that_names_the_row(file: Path) -> None:
    reward = CheckerReward(file, sandbox_options=FAST)
    with pytest.raises(RowError, match="completion of row 1"):
        reward(["p", "p"], ["a", said([{"type": "image_url"}])])


@pytest.mark.parametrize(
    ("criteria", "score"),
    [
        ("It has a comma.", 0.0),
        ('["at least 2 words", "It has a comma."]', 0.5),
        ('[{"text": "It has a comma.", "polarity": "negative", "must_have": null}]', 1.0),
        ({"text": "It has a comma.", "polarity": "negative"}, 1.0),
        ("", 1.0),
        (" ", 1.0),
        ([], 1.0),
        (None, 1.0),
        (float("nan"), 1.0),
        (np.array([]), 1.0),
    ],
)
def test_criteria_in_a_cell_are_read_as_rows_read_them(criteria: Any, score: float, file: Path) -> None:
    reward = CheckerReward(file, sandbox_options=FAST)
    assert reward(["p"], ["a b"], criteria=[criteria]) == [score]


EXECUTES = """
def check(response, prompt):
    try:
        exec(response)
    except Exception:
        pass
    return len(response) < 6
"""
TAKES_OVER = """
import builtins, json
print([True])
builtins.len = lambda given: 0
json.dumps = lambda given: "[true]"
"""


def test_a_completion_that_a_checker_executes_changes_no_other_reward(tmp_path: Path) -> None:
    one = Checker(name="e", rule="It is short.", source=EXECUTES)
    one = one.model_copy(update={"measured": Measurement(digest=one.digest, admitted=True)})
    path = tmp_path / "checkers.toml"
    path.write_text(CheckerFile(checkers=(one,), rules=(one.rule,)).text())
    texts = ["long enough", TAKES_OVER, "tiny", "much longer", "longer still", "ok", "also long", "x"]
    found = CheckerReward(path, sandbox_options=FAST)(["p"] * len(texts), texts)
    assert [*found[:1], *found[2:]] == [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    with Judge(generator=ScriptedGenerator([]), checkers=str(path), audit=0.0, backend_options=FAST) as judge:
        rows = [{"id": str(place), "prompt": "p", "response": text} for place, text in enumerate(texts)]
        judged = {one.episode.task.id: one.score for one in judge.batch(rows).judgments}
    assert [judged[str(place)] for place in range(len(texts)) if place != 1] == [*found[:1], *found[2:]]
