"""Stored outputs of unknown origin: every row is scored, or refused in one line that names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tirjudge.evaluation.judged_rows import JudgedRow, Unscorable
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.stored_outputs import open_replay, stored_output_formats

VIEW = {
    "view": "AB",
    "order": [0, 1],
    "sample": 0,
    "stop": "verdict",
    "detail": "",
    "verdict": {"choice": 0, "tie": False, "scores": {"0": 3.0, "1": 1.0}},
    "segments": [{"kind": "program", "text": "(", "status": "error", "stderr": "SyntaxError: x"}],
    "prompt_tokens": 1,
    "completion_tokens": 1,
    "seconds": 0.1,
}
OURS = {
    "id": "a",
    "label": 0,
    "strength": None,
    "domain": "d",
    "tags": ["group=a"],
    "verdict": "A",
    "stop": "verdict",
    "views": [VIEW],
    "programs": 1,
    "prompt_tokens": 1,
    "completion_tokens": 1,
    "seconds": 0.1,
}
CHAT = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "R"}]
PEOPLE = {"annotator1": 1, "annotator2": 1, "annotator3": 2}
ROWS: dict[str, dict[str, Any]] = {
    "tirjudge": OURS,
    "judgebench": {
        "pair_id": "a",
        "source": "mmlu-pro-law",
        "label": "A>B",
        "judgments": [
            {"judgment": {"response": "[[A>B]]"}, "decision": "A>B"},
            {"judgment": {"response": "", "scores": [1.0, 2.0]}, "decision": "B>A"},
        ],
    },
    "judgelrm": {"idx": 1, "output": "<answer>3</answer><answer>4</answer>", "response1": "", **PEOPLE},
    "pandalm": {"idx": 1, "pandalm_result": 1, **PEOPLE},
    "rm-r1": {
        "pair_uid": "1",
        "category_path": "BoN_set/Harmlessness/S1",
        "bon_uid": "2",
        "text_chosen": CHAT,
        "text_rejected": CHAT,
        "answers": "<answer>[[A]]</answer>",
        "Is_Chosen_Answer_Shuffled_toPositionB": True,
    },
    "rmb": {
        "pair_uid": "1",
        "category_path": "Pairwise_set/Helpfulness/x",
        "chosen_reward": 1.0,
        "reject_reward": 0.5,
    },
    "metajudge": {
        "metadata": {"human-checklist": ["x"], "m-checklist": ["y"], "domain": "d"},
        "samples": [{"generated_text": "<RESULT_START>\n- R1@S1: 0.5\n<RESULT_END>"}],
    },
    "alpaca_eval": {"instruction": "i", "preference": 1.5, "output_2": "x", "dataset": "d"},
}
USUAL = ("tirjudge", "judgebench", "alpaca_eval")
"""Formats that are tried outside the slow tests: our own, one of texts and one of numbers."""
HOSTILE = (
    None,
    True,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "\x00\x1b[31m[[A]]```output\n<|im_end|>",
    "🙂" * 1000,
    [],
    {},
    [None],
    [[0, 1]],
    {"choice": 99},
)


def mutations(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the value with one part, at any depth, missing or hostile, after the path of this part."""
    for hostile in HOSTILE:
        yield ".".join(path), hostile
    if isinstance(value, dict):
        for key, part in value.items():
            yield ".".join((*path, key)), {name: other for name, other in value.items() if name != key}
            for place, changed in mutations(part, (*path, key)):
                yield place, {**value, key: changed}
    elif isinstance(value, list):
        for number, part in enumerate(value):
            for place, changed in mutations(part, (*path, str(number))):
                yield place, [*value[:number], changed, *value[number + 1 :]]


def read_or_refused(path: Path, format: str) -> tuple[list[JudgedRow], str]:
    try:
        return list(open_replay(path, format=format)), ""
    except ValueError as error:
        return [], str(error)


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_a_row_with_one_hostile_part_is_scored_or_refused_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.jsonl"
    protocols = next(one.protocols for one in stored_output_formats() if one.name == name)
    read = refused = 0
    scored: set[str] = set()
    for _, row in mutations(ROWS[name]):
        if not isinstance(row, dict):
            continue
        path.write_text(json.dumps(row) + "\n")
        judged, reason = read_or_refused(path, name)
        if reason:
            assert reason.startswith(str(path))
            refused += 1
            continue
        read += 1
        assert all(isinstance(one, JudgedRow) for one in judged)
        # Most parts do not change what is scored, and a bootstrap takes its time.
        if repr(judged) in scored:
            continue
        scored.add(repr(judged))
        for protocol in map(open_protocol, protocols):
            with suppress(Unscorable):
                protocol.figures(protocol.units(judged))
    assert read
    assert refused


def test_a_refused_row_names_the_nested_column_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    refused = 0
    for column, row in mutations(OURS):
        if not column:
            continue
        path.write_text(json.dumps(row) + "\n")
        reason = read_or_refused(path, "tirjudge")[1]
        if reason:
            refused += 1
            assert reason.startswith(
                (f"{path}:1: {column} is ", f"{path}:1: {column}.", f"{path}:1: no column ")
            )
            assert column in reason
            assert len(reason.splitlines()) == 1
    assert refused > 100


def test_a_nested_value_is_shown_with_what_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for view, said in (
        (VIEW | {"order": 5}, "views.0.order is 5: it should be a valid list"),
        (VIEW | {"verdict": {"choice": "A", "tie": False, "scores": {}}}, 'views.0.verdict.choice is "A": '),
        (VIEW | {"segments": [{"kind": "program", "text": "("}]}, "no column 'views.0.segments.0.status'"),
        (
            VIEW | {"verdict": {"choice": 7, "tie": False, "scores": {}}},
            "verdict.choice is 7, which is not in",
        ),
    ):
        path.write_text(json.dumps(OURS | {"views": [view]}) + "\n")
        assert said in read_or_refused(path, "tirjudge")[1]
