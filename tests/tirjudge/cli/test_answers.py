"""One file of answers for each model: rows that belong together are compared, and the others are counted."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, results, through, write_rows

GIVEN = ("--no-tools", "--order", "given", "--output", "out.jsonl")


def longer(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that prefers the longest response."""
    text = body["messages"][-1]["content"]
    found = re.findall(r"Response ([A-Z]):\n(.*?)\n\n", text, re.DOTALL)
    return chat(f"<preference>{max(found, key=lambda pair: len(pair[1]))[0]}</preference>")


def compared(folder: Path, endpoint: EndpointServer, *words: str) -> tuple[list[dict[str, Any]], str]:
    endpoint.script = longer
    done = judge(folder, *words, *through(endpoint), *GIVEN, code=0)
    return results(folder / "out.jsonl"), done.stderr


def test_rows_of_two_files_are_joined_by_their_ids(tmp_path: Path, endpoint: EndpointServer) -> None:
    rows = [
        {"id": n, "instruction": f"Q{n}", "output": "long answer", "domain": "d", "label": "A"}
        for n in range(6)
    ]
    write_rows(tmp_path / "a.jsonl", rows)
    others = [f'{n},"Q{n}",short' for n in (4, 3, 2, 1, 7)]
    (tmp_path / "b.csv").write_text("id,question,answer\n" + "\n".join(others) + "\n")
    words = ("--answers", "gpt-4.1=a.jsonl", "--answers", "Qwen/Qwen3=b.csv")
    judged, told = compared(tmp_path, endpoint, *words)
    assert {row["id"]: (row["responses"], row["choice"], row["domain"], row["label"]) for row in judged} == {
        str(n): (["long answer", "short"], 0, "d", 0) for n in (1, 2, 3, 4)
    }
    assert judged[0]["sources"] == ["gpt-4.1", "Qwen/Qwen3"]
    assert "rows without the same id in another file, which are left out: 2 of a.jsonl, 1 of b.csv" in told
    assert "the judge does not use" not in told
    again = judge(tmp_path, *words, *through(endpoint), *GIVEN)
    assert "gpt-4.1 100.0%" in again.stdout
    assert len(results(tmp_path / "out.jsonl")) == 4, "the same command resumes"


def test_rows_without_common_ids_are_joined_by_their_prompts(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    """Numbers of a shuffled file say nothing: equal ids have other prompts. Repeated prompts go in order."""
    prompts = ["p", "q", "q", "r"]
    answers = [{"id": n, "prompt": prompt, "response": f"first {n}"} for n, prompt in enumerate(prompts)]
    write_rows(tmp_path / "a.jsonl", answers)
    others = [
        {"messages": [{"role": "user", "content": text}], "completion": f"other {n}"}
        for n, text in enumerate("rqqp")
    ]
    random.Random(0).shuffle(answers)
    shuffled = [{"id": n, "prompt": text, "completion": f"other {n}"} for n, text in enumerate("rqqp")]
    write_rows(tmp_path / "b.jsonl", shuffled)
    judged, told = compared(tmp_path, endpoint, "--answers", "x=a.jsonl", "--answers", "y=b.jsonl")
    assert sorted(row["responses"] for row in judged) == [
        ["first 0", "other 3"],
        ["first 1", "other 1"],
        ["first 2", "other 2"],
        ["first 3", "other 0"],
    ]
    assert "left out" not in told
    write_rows(tmp_path / "c.jsonl", others)
    wanted = ("--column", "prompt=messages.0.content", "--column", "response=completion")
    refused = judge(tmp_path, "--answers", "x=a.jsonl", "--answers", "y=c.jsonl", *wanted)
    assert (refused.returncode, "a.jsonl:1: no column 'messages.0.content'" in refused.stderr) == (2, True)


def test_every_two_of_three_models_are_a_row_or_all_with_listwise(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    for name, answer in ("a", "aaa"), ("b", "bb"), ("c", "c"):
        write_rows(tmp_path / f"{name}.jsonl", [{"prompt": f"Q{n}", "response": answer} for n in range(2)])
    words = [word for name in "abc" for word in ("--answers", f"{name}={name}.jsonl")]
    judged, _ = compared(tmp_path, endpoint, *words)
    assert sorted((row["id"], row["sources"][row["choice"]]) for row in judged) == [
        (f"line-{n}: {pair}", pair[0]) for n in (1, 2) for pair in ("a and b", "a and c", "b and c")
    ]
    judged, _ = compared(tmp_path, endpoint, *words, "--listwise", "--overwrite")
    assert [row["sources"] for row in judged] == [["a", "b", "c"]] * 2


def test_show_and_report_read_several_files_of_a_run(tmp_path: Path) -> None:
    lines = Path("examples/instructions.verdicts.jsonl").read_text().splitlines(keepends=True)
    names = [json.loads(line)["id"] for line in lines]
    for part in range(3):
        (tmp_path / f"part-{part}.jsonl").write_text("".join(lines[part::3]))
    (tmp_path / "whole.jsonl").write_text("".join(lines))
    several = [f"part-{part}.jsonl" for part in range(3)]
    whole = invoke("show", "whole.jsonl", folder=tmp_path).stdout.splitlines()
    numbers = whole[len(names) :]
    for words in (several, ["part-*.jsonl"]):
        shown = invoke("show", *words, folder=tmp_path, code=0)
        assert sorted(shown.stdout.splitlines()[: len(names)]) == sorted(whole[: len(names)])
        assert [
            line.replace("part-0.jsonl and 2 more", "whole.jsonl")
            for line in shown.stdout.splitlines()[len(names) :]
        ] == numbers
        one = invoke("show", *words, names[4], "--json", folder=tmp_path)
        assert [json.loads(line)["id"] for line in one.stdout.splitlines()] == [names[4]]
    missing = invoke("show", *several, "nothing", folder=tmp_path)
    assert (missing.returncode, "no row 'nothing' among its 12" in missing.stderr) == (2, True)
    pages = []
    for words in ("part-*.jsonl", "whole.jsonl"):
        done = invoke("report", words, "-o", "page.html", folder=tmp_path, code=0)
        assert "12 rows, with texts" in done.stdout
        pages.append((tmp_path / "page.html").read_text())
    values = [re.findall(r'<p class="value">([^<]*)<', page) for page in pages]
    assert values[0] == values[1] != []
