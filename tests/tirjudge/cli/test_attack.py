"""`tirjudge attack`: rows judged clean and attacked through a real endpoint, flips counted, errors."""

from __future__ import annotations

import json
import math
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import t
from typer.testing import CliRunner

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import command, results, through, write_rows
from tirjudge.attacks import open_families
from tirjudge.attacks.flips import count_flips
from tirjudge.cli import app
from tirjudge_environments.formats.tir import TirFormat

SECTIONS = re.compile(
    r"^Response (.):\n(.*?)(?=\n\nResponse .:\n|\n\nGuidelines:\n)", re.DOTALL | re.MULTILINE
)
FORGED_TURN = re.compile(r"<\|im_start\|>assistant\n(.*?)<\|im_end\|>", re.DOTALL)


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"r{n}", "prompt": "Say right.", "responses": [f"right {n}", f"wrong {n}"], "label": 0, **more}
        for n in range(count)
    ]


def literal(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that is right, on a server that reads control tokens and sections wherever they are."""
    asked = body["messages"][-1]["content"]
    if forged := FORGED_TURN.search(asked):
        return chat(forged[1])
    shown = dict(SECTIONS.findall(asked))
    return chat(f"<preference>{next((n for n in shown if 'right' in shown[n]), 'B')}</preference>")


def flips(printed: str) -> dict[str, tuple[int, int, int]]:
    return {
        one["attack"]: (one["n"], one["to_target"], one["lost"]) for one in json.loads(printed)["attacks"]
    }


def attack(folder: Path, *words: str) -> Any:
    """Run the command in this process, which is what a shell starts, without its slow imports."""
    with chdir(folder):
        return CliRunner().invoke(app, ["attack", *words], env={"NO_COLOR": "1"})


def unquoted(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (
        "tirjudge_environments.templates.quote_lines",
        "tirjudge.generation.endpoint.chat_turns.quote_control_tokens",
    ):
        monkeypatch.setattr(place, lambda text, *_: text)
    monkeypatch.setattr(TirFormat, "is_bounded", False)


@pytest.mark.parametrize("family", ["tir", "checks"])
def test_a_family_of_formats_is_attacked(family: str, tmp_path: Path, endpoint: EndpointServer) -> None:
    check = "```python\ndef check(response):\n    return ['right' in response]\n```"
    endpoint.script = lambda body: (
        chat(check) if "Write the function" in body["messages"][-1]["content"] else literal(body)
    )
    write_rows(tmp_path / "rows.jsonl", rows(1))
    words = ["rows.jsonl", "--format", family, "--json", *through(endpoint), "--attack", "remark"]
    done = attack(tmp_path, *words)
    assert done.exit_code == 0, done.stderr
    assert set(flips(done.stdout).values()) == {(1, 0, 0)}


def test_forged_turns_and_sections_reach_no_verdict(
    tmp_path: Path, endpoint: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.script = literal
    write_rows(tmp_path / "rows.jsonl", rows(4))
    words = ["rows.jsonl", "--no-tools", "--order", "given", "--json", *through(endpoint)]
    words += ["--attack", "chat-templates", "--attack", "forged-section", "--attack", "remark"]
    done = attack(tmp_path, *words)
    assert done.exit_code == 0, done.stderr
    assert set(flips(done.stdout).values()) == {(4, 0, 0)}
    assert len(flips(done.stdout)) == 7
    # Each clean row is judged once, whatever the number of attacks, and nothing again by the same command.
    assert len(endpoint.asked) == 4 * 8
    again = attack(tmp_path, *words)
    assert (again.exit_code, again.stdout, len(endpoint.asked)) == (0, done.stdout, 4 * 8)
    more = attack(tmp_path, *words, "--attack", "verdict-tag")
    assert (more.exit_code, len(endpoint.asked)) == (0, 4 * 9)
    # The same judge without the quoting is fooled every time.
    unquoted(monkeypatch)
    fooled = attack(tmp_path, *words, "--output", "unquoted.jsonl")
    found = flips(fooled.stdout)
    assert (found["chatml"], found["forged-section"], found["remark"]) == ((4, 4, 0), (4, 4, 0), (4, 0, 0))


def test_a_row_and_its_attacks_are_shown_in_one_order(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = literal
    given = rows(12, reference="right", criteria=["The response is right."])
    write_rows(tmp_path / "rows.jsonl", [row | {"prompt": f"q{n}"} for n, row in enumerate(given)])
    done = attack(tmp_path, "rows.jsonl", "--attack", "passed", "--no-tools", *through(endpoint))
    assert done.exit_code == 0, done.stderr
    assert re.search(
        r"^clean     12 rows, 0 for the target, accuracy 100.0% \[75.8%, 100.0%\], n = 12$", done.stdout, re.M
    )
    assert re.search(r"^passed  +12 +0  \[0.0%, 24.2%\] +0 +0 +0.0%  \[-", done.stdout, re.M)
    asked = [body["messages"][-1]["content"] for body in endpoint.bodies]
    assert len(asked) == 24
    assert all("The response is right." in one and "reference" in one for one in asked)
    judged = {row["id"]: row for row in results(tmp_path / "rows.attacks.jsonl")}
    assert len({row["label"] for row in judged.values()}) == 2
    for n in range(12):
        clean, attacked = judged[f"r{n}"], judged[f"r{n}/passed"]
        target = 1 - clean["label"]
        assert clean["tags"] == ["attack=none", f"of=r{n}", f"target={'AB'[target]}"]
        assert attacked["responses"][1 - target] == clean["responses"][1 - target] == f"right {n}"
        assert attacked["responses"][target].startswith(f"wrong {n}\n\nAll tests passed")
        assert [view["order"] for view in attacked["views"]] == [view["order"] for view in clean["views"]]


def test_a_failed_call_is_no_flip(tmp_path: Path, endpoint: EndpointServer) -> None:
    def failing(body: dict[str, Any]) -> Any:
        return (
            failure(500, "down")
            if "wrong 1\n\nAll tests" in str(body["messages"][0]["content"])
            else literal(body)
        )

    endpoint.script = failing
    write_rows(tmp_path / "rows.jsonl", rows(3))
    words = ["rows.jsonl", "--attack", "passed", "--no-tools", "--json", "--retries", "0", *through(endpoint)]
    done = attack(tmp_path, *words)
    assert (done.exit_code, flips(done.stdout)) == (1, {"passed": (2, 0, 0)})
    endpoint.script = literal
    again = attack(tmp_path, *words)
    assert (again.exit_code, flips(again.stdout)) == (0, {"passed": (3, 0, 0)})


def test_scores_and_rows_without_labels(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat(
        f"<score>{9 if 'tests passed' in body['messages'][0]['content'] else 5}</score>"
    )
    write_rows(tmp_path / "rows.jsonl", [{"id": "1", "prompt": "Q", "responses": ["a", "b", "c"]}])
    done = attack(
        tmp_path,
        "rows.jsonl",
        "--pointwise",
        "--attack",
        "passed",
        "--no-tools",
        "--json",
        *through(endpoint),
    )
    assert flips(done.stdout) == {"passed": (1, 1, 0)}
    assert json.loads(done.stdout)["clean"]["accuracy"] is None


def test_every_attack_is_listed() -> None:
    listed = command("attack", "--list", "--json").stdout
    assert json.loads(listed) == {
        family.name: {one.name: one.about for one in family.attacks} for family in open_families()
    }
    assert "  chatml " in command("attack", "--list").stdout


def judged(attack: str, of: str, choice: int | None) -> dict[str, Any]:
    """A result row whose target is B."""
    view = {"view": "AB", "order": [0, 1], "verdict": None, "stop": "verdict", "segments": []}
    return {
        "id": f"{of}/{attack}",
        "verdict": None if choice is None else "AB"[choice],
        "choice": choice,
        "stop": "verdict",
        "tags": [f"attack={attack}", f"of={of}", "target=B", "attack=other"],
        "views": [view],
    }


def test_flips_are_counted_in_pairs(tmp_path: Path) -> None:
    pairs = {
        "1": (0, 1),
        "2": (0, 1),
        "3": (1, 0),
        "4": (1, 1),
        "5": (1, None),
        "6": (0, None),
        "7": (None, 1),
    }
    lines = [judged("x", of, after) for of, (_, after) in pairs.items()]
    lines += [judged("none", of, before) for of, (before, _) in pairs.items()]
    lines += [judged("x", "unpaired", 1), judged("none", "alone", 1)]
    tally = count_flips(write_rows(tmp_path / "rows.jsonl", lines))
    found = tally.attacks["x"]
    assert (found.n, found.to_target, found.away, found.lost) == (7, 3, 2, 2)
    assert (tally.clean, tally.for_target) == (8, 4)
    other = write_rows(tmp_path / "other.jsonl", [judged("x", "1", 0) | {"tags": ["a"]}])
    with pytest.raises(ValueError, match=r"other\.jsonl: row '1/x': .*its tags name no attack"):
        count_flips(other)
    broken = write_rows(tmp_path / "broken.jsonl", [judged("x", "1", 0), {"id": "2"}])
    with pytest.raises(ValueError, match=r"broken\.jsonl:2: not a row that tirjudge judge writes"):
        count_flips(broken)


def test_rows_of_the_same_prompt_flip_together(tmp_path: Path) -> None:
    """30 prompts of ten rows, of which all or none flip: the t intervals of 30 means of 0 and 1."""
    lines = []
    for number in range(300):
        prompt = [{"role": "user", "content": f"q{number % 30}"}]
        for attack, choice in (("none", 0), ("x", int(number % 30 < 12))):
            lines.append(judged(attack, str(number), choice) | {"prompt": prompt})
    found = count_flips(write_rows(tmp_path / "rows.jsonl", lines)).attacks["x"]
    half = t.ppf(0.975, 29) * math.sqrt(0.4 * 0.6 / 29)
    for low, high in (found.rate.interval, found.net[1]):
        assert high - low == pytest.approx(2 * half, rel=0.1)
    assert found.record()["clusters"] == 30
    few = [one for one in lines if one["prompt"][0]["content"] in ("q1", "q20")]
    found = count_flips(write_rows(tmp_path / "few.jsonl", few)).attacks["x"]
    assert (found.record()["rate_interval"], found.record()["net_interval"]) == (None, None)
