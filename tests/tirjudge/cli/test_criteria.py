"""`tirjudge judge` on rows with criteria and references: good ones, bad ones, and options."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import command, results, write_rows

CRITERIA = ["names a cat", {"text": "names a dog", "polarity": "negative"}, {"text": "is kind", "weight": 2}]
BAD: list[Any] = [
    [],
    [{"text": "a", "weight": 0}],
    [{"text": "a", "polarity": "neutral"}],
    ["a", "b", "a"],
    {"text": 7},
]


def by_criterion(body: dict[str, Any]) -> Any:
    """Score a response by the criterion that the prompt frames; refuse a prompt that is too long."""
    text = body["messages"][-1]["content"]
    if len(text) > 20_000:
        return failure(400, "This model's maximum context length is 100 tokens")
    found = re.search(r"<(criterion-\w+)>\n(.*)\n</\1>", text)
    assert found, text
    return chat(f"<score>{8 if found[2] == 'names a cat' else 7 if found[2] == 'is kind' else 2}</score>")


def judge(server: EndpointServer, *words: object, code: int | None = None) -> Result:
    given = ["judge", *words, "--base-url", server.url, "--model", "m", "--no-tools", "--pointwise"]
    return command(*given, code=code)


def test_rows_with_bad_criteria_fail_in_one_line_each_and_the_others_are_judged(
    server: EndpointServer, tmp_path: Path
) -> None:
    server.script = by_criterion
    rows: list[dict[str, Any]] = [
        {"prompt": "p", "response": "x", "criteria": one} for one in (CRITERIA, *BAD)
    ]
    rows.append({"prompt": "p", "response": "x", "reference": "long " * 5000, "criteria": CRITERIA})
    file, output = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    run = judge(server, file, "--output", output, code=1)
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
    named = ("empty list", "weights", "criteria[0]: polarity 'neutral'", "criteria[2] repeats", "has no text")
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
    other = judge(server, *words, "--column", "reference=", "--satisfied-from", 7.5, code=2)
    assert "satisfied_from was 6.0 and is now 7.5" in other.stderr
    judge(server, *words, "--truncate", 500, "--satisfied-from", 7.5, "--overwrite", code=0)
    assert results(output)[0]["scores"] == [0.25]
    assert results(output)[0]["cut"] is True


SEVERAL = ["names a cat", {"text": "names a dog", "polarity": "negative"}, {"text": "is kind", "weight": 2}]
PAIR = {"id": "p", "prompt": "p", "responses": ["a cat", "a dog"], "criteria": SEVERAL}


def several(body: dict[str, Any]) -> Any:
    """Run a program first; then answer each criterion that the prompt frames, between remarks."""
    text = body["messages"][0]["content"]
    found = re.findall(r"<(criterion-\w+)>\n(.*)\n</\1>", text)
    if len(body["messages"]) == 1 and "names a cat" in text:
        return chat("```python\nprint('cat' in response_a)\n```\n")
    cat_first = "Response A:\na cat\n" in text
    best = {"names a cat": cat_first, "names a dog": cat_first, "is kind": not cat_first}
    answers = [f"About {name}: <preference>{'AB'[not best[name]]}</preference>" for _, name in found]
    return chat(" and ".join(answers) + ".")


def judge_several(server: EndpointServer, folder: Path, *words: object, code: int | None = None) -> Result:
    file = write_rows(folder / "rows.jsonl", [PAIR])
    model = ("--base-url", server.url, "--model", "m", "--prompts", "tir")
    return command("judge", file, *model, "--output", folder / "out.jsonl", *words, code=code)


def test_a_dialogue_on_several_criteria_has_a_verdict_on_each(server: EndpointServer, tmp_path: Path) -> None:
    server.script = several
    judge_several(server, tmp_path, "--order", "both", "--overwrite", code=0)
    (apart,) = results(tmp_path / "out.jsonl")
    asked = len(server.asked)
    judge_several(server, tmp_path, "--order", "both", "--criteria-per-call", 2, "--overwrite", code=0)
    (row,) = results(tmp_path / "out.jsonl")
    assert len(server.asked) - asked == 6, "for both orders two turns on two criteria, and one on the third"
    assert [one["satisfied"] for one in row["criteria"]] == [[1, 0], [1, 0], [0, 1]]
    assert [one["satisfied"] for one in apart["criteria"]] == [[1, 0], [1, 0], [0, 1]]
    assert (row["verdict"], row["scores"]) == (apart["verdict"], apart["scores"]) == ("tie", [0.5, 0.5])
    prompts = [one.body["messages"][0]["content"] for one in server.asked[asked:]]
    answers = (
        "There are 2 criteria.",
        "in the format <preference>...</preference> <preference>...</preference>.",
    )
    assert [sum(part in prompt for prompt in prompts) for part in answers] == [4, 4]
    first, second = (
        next(view for view in row["views"] if view["criterion"] == number and view["view"] == "AB")
        for number in (0, 1)
    )
    assert [part["kind"] for part in first["segments"]] == ["program", "output", "reasoning"]
    assert first["segments"][-1]["text"] == "About names a cat: <preference>A</preference>"
    (rest,) = second["segments"]
    assert rest["text"] == " and About names a dog: <preference>A</preference>."
    assert (second["prompt_tokens"], second["completion_tokens"]) == (0, 0)
    assert row["programs"] == 2
    again = command("reproduce", tmp_path / "out.jsonl", "--json")
    found = json.loads(again.stdout)
    assert (found["verdicts"], found["verdicts_changed"]) == (6, 0)
    assert (found["programs"], found["same"]) == (2, 2)


def test_a_dialogue_without_an_answer_to_each_criterion_decides_none(
    server: EndpointServer, tmp_path: Path
) -> None:
    for said in (
        "<preference>A</preference>",
        "<preference>A</preference> " * 4,
        "A <preference>C</preference> " * 3,
    ):
        server.script = lambda body, said=said: chat(said)
        judge_several(server, tmp_path, "--criteria-per-call", 3, "--overwrite", "--no-tools", code=1)
        (row,) = results(tmp_path / "out.jsonl")
        assert [one["stop"] for one in row["criteria"]] == ["malformed"] * 3
        assert (row["verdict"], row["criteria"][0]["satisfied"]) == (None, [None, None])
