"""Results of the smol judge: conditions, tables, differences, mistakes and curves."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.miniature import TRAINED
from research.smol import curves, differences, judging, mistakes, results
from research.smol.sources import read_lines
from research.smol.summary import accuracy, summary
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.statistics.proportions import wilson_interval
from tirjudge_environments import Context

MINIATURE = TRAINED / "model.safetensors"
PROGRAM = "```python\nprint(*[int(',' not in r) for r in responses])\n```\n"


def follower(context: Context) -> str:
    """Write a program that counts, then the response with the higher count; A without a difference."""
    if not context.segments:
        return PROGRAM
    counts = re.search(r"(\d) (\d)", context.segments[-1].text)
    best = "B" if counts and counts[1] < counts[2] else "A"
    return f"Response {best} keeps it.\n<preference>{best}</preference>"


def write_set(folder: Path, count: int = 12) -> Path:
    """Write a set whose right responses have no comma."""
    lines = []
    for number in range(count):
        place = number % 2
        responses = [f"one {number}", f"one, {number}"]
        lines.append(
            {
                "id": f"row-{number}",
                "prompt": f"Say {number} without a comma.",
                "responses": responses[::-1] if place else responses,
                "label": place,
                "families": ["punctuation:no_comma"],
                "broken": ["punctuation:no_comma"],
                "constraints": 1 + number % 3,
                "held_out": number % 4 == 0,
            }
        )
    file = folder / "broken.development.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


async def judged(
    folder: Path, condition: str, count: int = 12, rows: int | None = None, **options: Any
) -> Any:
    file, output = write_set(folder, count), folder / f"{condition}.jsonl"
    # A sandbox without preloaded modules opens fast, and the follower reads the responses first.
    options |= {"backend_options": {"capacity": 1, "preload": ()}, "untrained": "tir"}
    generator = ScriptedGenerator(follower)
    await judging.run_under(
        condition, "broken", file, output, rows=rows, options=options, generator=generator
    )
    return judging.judged_rows(file, output, rows)


async def test_withheld_and_swapped_outputs_reach_a_judge_who_follows_them(tmp_path: Path):
    numbers = {name: summary(await judged(tmp_path, name, order="given")) for name in judging.CONDITIONS}
    assert {name: one["accuracy"] for name, one in numbers.items()} == {
        "shown": 1.0,
        "withheld": 0.5,
        "swapped": 0.0,
    }
    assert [one["program_separates"] for one in numbers.values()] == [0, 12, 12]
    assert (numbers["swapped"]["program_right"], numbers["shown"]["program_right"]) == (0.0, 1.0)
    assert all(one["calls_per_verdict"] == 1.0 and one["program_errors"] == 0.0 for one in numbers.values())


async def test_both_orders_are_compared(tmp_path: Path):
    found = summary(await judged(tmp_path, "withheld", order="both"))
    # Without outputs the judge always says A, so its choice changes with the order.
    assert (found["same_choice"], found["right_in_both_orders"], found["accuracy"]) == (0.0, 0.0, 0.5)
    found = summary(await judged(tmp_path, "shown", order="both"))
    assert (found["same_choice"], found["right_in_both_orders"], found["accuracy"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("condition", "measured"),
    [
        ("shown", {"right": 1.0, "both-orders": 1.0, "program": 1.0}),
        # The judge always says A, which is right in one of two orders.
        ("withheld", {"right": 0.5, "both-orders": 0.0, "program": 0.0}),
        ("swapped", {"right": 0.0, "both-orders": 0.0, "program": 0.0}),
    ],
)
async def test_a_difference_is_of_one_of_three_measures(
    condition: str, measured: dict[str, float], tmp_path: Path
):
    rows = await judged(tmp_path, condition, order="both")
    failed = [(row, None) for row, _ in rows]
    for name, measure in differences.MEASURES.items():
        by_prompt = differences.differences_by_prompt(rows, failed, measure)
        assert np.mean([*by_prompt.values()]) == measured[name]


async def test_tables_split_by_constraints_and_families(tmp_path: Path):
    rows = await judged(tmp_path, "shown", order="given")
    found = results.tables({"broken": rows, "repaired": rows[:6]})
    assert found["headline"] == 1.0
    assert {name: one["n"] for name, one in found["parts"]["number of constraints"].items()} == {
        "1": 6,
        "2": 6,
        "3": 6,
    }
    held_out = found["parts"]["families never trained in the compared arms"]
    assert {name: one["n"] for name, one in held_out.items()} == {"held out": 5, "trained": 13}
    about: dict[str, object] = dict.fromkeys(("sha256", "base", "condition", "rows"), "")
    about |= {"model": "m", "split": "test", "shown_chars": "160", "seed": "0"}
    text = results.markdown({**about, "commands": ["tirjudge judge x"], **found})
    assert "- shown_chars: 160\n- seed: 0\n" in text
    assert "- headline, the worse of broken and repaired: 100.0" in text
    assert "| broken | 12 | 100.0 [75.8, 100.0] | 0.0 | 1.00 | 0.0 | 0 | 12 (100.0, 100.0) |  |" in text


@pytest.mark.slow
def test_a_model_is_measured_by_the_command(tmp_path: Path):
    write_set(tmp_path, 4)
    about = results.measure(
        str(TRAINED),
        tmp_path,
        tmp_path / "out",
        "development",
        ["broken"],
        rows=2,
        further=["--max-tokens=40"],
    )
    lines = read_lines(tmp_path / "out" / "broken.development.verdicts.jsonl")
    assert len(lines) == 2
    assert about["sets"]["broken"]["accuracy"] == sum(line["correct"] for line in lines) / 2
    assert about["commands"][0].startswith("tirjudge judge ")
    assert about["commands"][0].endswith(f"--model {TRAINED} --limit 2 --undecided guess --max-tokens=40")
    assert about["sha256"] == hashlib.sha256(MINIATURE.read_bytes()).hexdigest()
    assert json.loads((tmp_path / "out" / "results.development.json").read_text())["sets"] == about["sets"]
    assert "| broken | 2 |" in (tmp_path / "out" / "results.development.md").read_text()


def test_rows_about_the_same_prompt_are_no_further_evidence():
    """A second copy of every row leaves the interval as it is; rows of other prompts make it narrower."""

    def rows(copies: int, prompt: str) -> list[Any]:
        return [
            ({"id": f"{n} {copy}", "prompt": prompt.format(n=n, copy=copy)}, {"correct": n % 3 > 0})
            for n in range(30)
            for copy in range(copies)
        ]

    once, copied, others = accuracy(rows(1, "{n}")), accuracy(rows(2, "{n}")), accuracy(rows(2, "{n} {copy}"))
    assert (once.n, copied.n, others.n) == (30, 60, 60)
    assert copied.interval == pytest.approx(once.interval)
    # Wilson's interval of 20 and of 40 right rows.
    assert once.interval == pytest.approx(wilson_interval(20, 30))
    assert others.interval == pytest.approx(wilson_interval(40, 60))


def test_a_set_that_was_not_judged_at_all_is_an_error_and_not_a_zero(tmp_path: Path):
    file, output = write_set(tmp_path, 2), tmp_path / "out.jsonl"
    for rows_of_an_earlier_run in (False, True):
        if rows_of_an_earlier_run:
            output.touch()
        with pytest.raises(SystemExit, match="not judged, since `tirjudge judge` ended with exit code 2"):
            judging.judge_set("broken", file, output, str(TRAINED), further=["--no-such-option"])


def test_holm_adjusts_as_in_the_textbook():
    # Holm 1979: the smallest of four is multiplied by four, the next by three, and order is kept.
    found = differences.holm([0.01, 0.04, 0.03, 0.005])
    assert [round(value, 10) for value in found] == [0.03, 0.06, 0.06, 0.02]


def test_the_bootstrap_covers_prompts_and_seeds():
    prompts = {f"p{number}": [1.0 if number < 60 else 0.0] for number in range(100)}
    one = differences.bootstrap("one seed", [prompts])
    spread = 1.96 * math.sqrt(0.6 * 0.4 / 100)
    assert one.points == pytest.approx(60.0)
    assert (one.low, one.high) == pytest.approx((100 * (0.6 - spread), 100 * (0.6 + spread)), abs=1.5)
    assert one.p < 0.001
    # Seeds that disagree widen the interval, and no difference is not significant.
    other = {prompt: [0.0] for prompt in prompts}
    three = differences.bootstrap("three seeds", [prompts, other, other])
    assert three.points == pytest.approx(20.0)
    assert three.high - three.low > one.high - one.low
    assert differences.bootstrap("none", [other, other]).p == 1.0


async def test_models_are_compared_on_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for condition in ("shown", "withheld"):
        await judged(tmp_path, condition, order="given")
        for suffix in ("", ".settings.json"):
            target = tmp_path / condition / f"broken.development.verdicts.jsonl{suffix}"
            target.parent.mkdir(exist_ok=True)
            (tmp_path / f"{condition}.jsonl{suffix}").rename(target)
    comparison = f"tools - outputs withheld={tmp_path / 'shown'}:{tmp_path / 'withheld'}"
    monkeypatch.setattr("sys.argv", ["differences", "--sets", str(tmp_path), "--compare", comparison])
    differences.main()
    printed = capsys.readouterr().out
    assert f"| {tmp_path / 'shown'} | 12 | 100.0 | 100.0 | 12 (12, 12) | 0 |" in printed
    assert f"| {tmp_path / 'withheld'} | 12 | 50.0 | 50.0 | 0 (0, 0) | 0 |" in printed
    assert "| tools - outputs withheld | 12 | 12 | 1 (prompts only) | +50.0 [" in printed
    monkeypatch.setattr("sys.argv", [*sys.argv, "--differing"])
    differences.main()
    printed = capsys.readouterr().out
    assert ": the same verdict for 6 of 12 rows\n" in printed
    # Without outputs the scripted judge always names A.
    assert len(re.findall(r"^\| \S+ \| (1|B>A) \| B \| A \|$", printed, re.MULTILINE)) == 6
    # The responses of the rows 0 to 9 have at most six characters, as in "one, 9".
    monkeypatch.setattr("sys.argv", [*sys.argv, "--longest", "6"])
    differences.main()
    assert "| tools - outputs withheld | 10 | 10 | 1 (prompts only) | +50.0 [" in capsys.readouterr().out
    # A set that is not among the pooled ones, with four of the rows.
    for folder in (tmp_path, tmp_path / "shown", tmp_path / "withheld"):
        for file in folder.glob("broken.development*.jsonl"):
            text = "".join(file.read_text().splitlines(keepends=True)[:4])
            (folder / file.name.replace("broken", "unseen")).write_text(text)
    monkeypatch.setattr("sys.argv", [*sys.argv[:-2], "--only", "unseen"])
    differences.main()
    assert "| tools - outputs withheld | 4 | 4 | 1 (prompts only) | +50.0 [" in capsys.readouterr().out
    with pytest.raises(ValueError, match="judged different rows"):
        differences.differences_by_prompt([({"id": "a", "prompt": "p"}, None)], [])


async def test_mistakes_are_shown_with_program_output_and_cause(tmp_path: Path):
    await judged(tmp_path, "swapped", order="given")
    (tmp_path / "swapped.jsonl").rename(tmp_path / "broken.development.verdicts.jsonl")
    found = mistakes.wrong(tmp_path, tmp_path, ("broken",))
    assert len(found) == 12
    assert {mistakes.cause(one) for one in found} == {"program counts wrongly"}
    text = mistakes.shown(found[0])
    assert "PROMPT: Say " in text
    assert "[program] print(*[int(',' not in r) for r in responses])" in text
    assert re.search(r"label ([AB]), verdict (?!\1)[AB]", text)


def test_curves_of_two_runs_share_the_axes_of_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = {tmp_path / "seed <0>": [0.25, 0.5], tmp_path / "seed <1>": [0.5, 0.75]}
    for run, rewards in runs.items():
        (run / "rl").mkdir(parents=True)
        rows = [{"step": step, "reward": reward} for step, reward in enumerate(rewards, 1)]
        (run / "rl/metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("sys.argv", ["curves", *map(str, runs), "--output", str(tmp_path / "pictures")])
    curves.main()
    drawn = ElementTree.parse(tmp_path / "pictures/rl.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    assert [name.text for name in drawn.iter(f"{svg}tspan")] == list(map(str, runs))
    heights = [
        [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        for line in drawn.iter(f"{svg}polyline")
    ]
    values, _, others, _ = heights
    # Upwards is less in SVG: the second run begins where the first one ends, and ends higher.
    assert values[0] > values[1] == others[0] > others[1]
