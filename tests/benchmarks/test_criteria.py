"""The measurement of criteria: wordings of all of IFEval's constraints, and counts against verifiers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.criteria.__main__ import alone, compared, measure
from benchmarks.criteria.rows import criterion
from research.smol import sources
from tests.tirjudge.endpoint_server import chat, serving
from tirjudge_environments.instruction_checks import IFEVAL, verifiers_of
from tirjudge_environments.tasks import read_criteria


@pytest.mark.skipif(
    not (sources.BENCHMARKS / "ifeval").exists(),
    reason=f"no benchmark data at {sources.BENCHMARKS}; set TIRJUDGE_BENCHMARK_DATA",
)
def test_every_constraint_of_ifeval_is_a_criterion_in_words() -> None:
    families = set()
    for row in sources.ifeval_rows():
        for family, given in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            (found,) = read_criteria([criterion(family, given)])
            families.add(family)
            assert "{" not in found.text.replace(str(given.get("prompt_to_repeat")), ""), found
            # A fault is worded as what the verifier does not accept.
            (verifier,) = verifiers_of({"instruction_id_list": [family], "kwargs": [given]})
            if family == "punctuation:no_comma":
                assert (found.polarity, verifier.holds("a, b")) == ("negative", False)
    assert families == set(IFEVAL)


ROW = {"truth": [[True, False], [True, True], [False, False]]}
LINE = {"criteria": [{"satisfied": [1.0, 1.0]}, {"satisfied": [0.0, None]}, {"satisfied": [1.0, 0.0]}]}


def test_verdicts_are_counted_by_what_the_verifier_says() -> None:
    # Satisfied are A by the first, and both by the second criterion, which has no verdict on B.
    assert alone(True)(ROW, LINE) == (1, 3)
    assert alone(False)(ROW, LINE) == (1, 3)
    # Only the first criterion separates the responses, and a tie is shared.
    assert compared(ROW, {"criteria": [{"satisfied": [0.5, 0.5]}, *LINE["criteria"][1:]]}) == (0.5, 1)
    assert compared(ROW, {"criteria": [{"satisfied": [None, None]}, *LINE["criteria"][1:]]}) == (0.0, 1)


def by_length(body: dict[str, Any]) -> Any:
    """Score a response by one criterion that it judges rightly and one that it always calls satisfied."""
    text = body["messages"][-1]["content"]
    short = "has less than 3 words" in text and "\none two three four\n" in text
    return chat(f"<score>{2 if short else 9}</score>")


def test_a_set_is_judged_by_its_criteria_and_by_the_whole_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    criteria = [{"text": f"The response {one}."} for one in ("has less than 3 words", "contains a comma")]
    rows = [
        {
            "id": f"r{number}",
            "prompt": "Be brief.",
            "responses": ["one two", "one two three four"],
            "label": 0,
            "criteria": criteria,
            "truth": [[True, False], [False, False]],
        }
        for number in range(2)
    ]
    (tmp_path / "pairs-test-2.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving() as server:
        server.script = by_length
        words = ["--base-url", server.url, "--model", "m", "--no-tools"]
        measure("pairs-alone", tmp_path, "test", 2, words)
    printed = capsys.readouterr().out
    assert "verdicts on satisfied criteria   100.0% [" in printed
    assert "verdicts on violated criteria    33.3% [" in printed
    assert "responses without a verdict      0 of 8" in printed
    by_criteria, whole = printed.split("by whole-prompt")
    assert "choice of the right response     100.0% [" in by_criteria
    assert "choice of the right response     50.0% [" in whole
    assert "2 ties, 0 without" in whole
