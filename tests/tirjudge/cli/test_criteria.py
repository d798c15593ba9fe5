"""`tirjudge judge` on rows with criteria and references: good ones, bad ones, and options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import results, write_rows
from tirjudge.cli import app

CRITERIA = ["names a cat", {"text": "names a dog", "polarity": "negative"}, {"text": "is kind", "weight": 2}]
BAD: list[Any] = [
    [],
    [{"text": "a", "weight": 0}],
    [{"text": "a", "polarity": "neutral"}],
    ["a", "b", "a"],
    "be kind",
]


def by_criterion(body: dict[str, Any]) -> Any:
    """Score a response by the criterion that the prompt frames; refuse a prompt that is too long."""
    text = body["messages"][-1]["content"]
    if len(text) > 20_000:
        return failure(400, "This model's maximum context length is 100 tokens")
    found = re.search(r"<(criterion-\w+)>\n(.*)\n</\1>", text)
    assert found, text
    return chat(f"<score>{8 if found[2] == 'names a cat' else 7 if found[2] == 'is kind' else 2}</score>")


def judge(server: EndpointServer, *words: object) -> Result:
    given = ["judge", *words, "--base-url", server.url, "--model", "m", "--no-tools", "--pointwise"]
    return CliRunner().invoke(app, list(map(str, given)))


def test_rows_with_bad_criteria_fail_in_one_line_each_and_the_others_are_judged(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = by_criterion
    rows: list[dict[str, Any]] = [
        {"prompt": "p", "response": "x", "criteria": one} for one in (CRITERIA, *BAD)
    ]
    rows.append({"prompt": "p", "response": "x", "reference": "long " * 5000, "criteria": CRITERIA})
    file, output = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    run = judge(server, file, "--output", output)
    assert run.exit_code == 1, run.output
    (row,) = results(output)
    # 1 for the cat and 2 of 4 for kindness; the dog has score 2, and so has its fault.
    assert (row["scores"], [one["satisfied"] for one in row["criteria"]]) == ([0.75], [[1.0], [0.0], [1.0]])
    failed = {
        one["where"].rpartition(":")[2]: one["reason"] for one in results(Path(f"{output}.failed.jsonl"))
    }
    too_long = failed.pop("7")
    assert too_long.startswith("prompt_too_long: criterion 1: ")
    assert "maximum context length is 100 tokens" in too_long
    assert too_long.endswith("; the reference has 25000 characters, which --truncate shortens")
    named = ("empty list", "weights", "criteria[0]: polarity 'neutral'", "criteria[2] repeats", "a list")
    for reason, part in zip(failed.values(), named, strict=True):
        assert part in reason
    for number in range(2, 8):
        assert sum(f"rows.jsonl:{number}: " in line for line in run.stderr.splitlines()) == 1


def test_criteria_come_from_any_column_and_a_file_keeps_its_threshold(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = by_criterion
    row = {"prompt": "p", "response": "x", "reference": "long " * 5000, "rubric": CRITERIA}
    file, output = write_rows(tmp_path / "rows.jsonl", [row]), tmp_path / "out.jsonl"
    words = (file, "--output", output, "--column", "criteria=rubric")
    assert judge(server, *words, "--column", "reference=").exit_code == 0
    assert results(output)[0]["scores"] == [0.75]
    assert "reference" not in results(output)[0]
    other = judge(server, *words, "--column", "reference=", "--satisfied-from", 7.5)
    assert other.exit_code == 2
    assert "satisfied_from was 6.0 and is now 7.5" in other.stderr
    shortened = judge(server, *words, "--truncate", 500, "--satisfied-from", 7.5, "--overwrite")
    assert shortened.exit_code == 0, shortened.output
    assert results(output)[0]["scores"] == [0.25]
    assert results(output)[0]["cut"] is True
