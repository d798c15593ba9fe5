"""`tirjudge score` on wrong input: it is refused with its row and column, never scored in silence."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval import judgebench_row
from tests.tirjudge.cli.test_eval import write as lines
from tests.tirjudge.judge_command import command

O1_MINI = "judgebench/judge-arena-hard-o1-mini.jsonl"
ARMORM = "rmb/armorm-pairwise-helpfulness.json"
RM_R1 = "rm-r1/deepseek-distilled-qwen-32b"
PANDALM = "pandalm/testset-v1.json"
PANDALM_7B = "pandalm/pandalm-7b-testset-v1.json"
JUDGELRM = "judgelrm/results_judgelrm3b.json"
OPPOSITE = {"A>B": "B>A", "B>A": "A>B"}


def records(*arguments: object) -> list[dict[str, Any]]:
    done = command(*arguments, "--json", code=0)
    read: list[dict[str, Any]] = json.loads(done.stdout)
    return read


def figures(protocol: str, *arguments: object) -> dict[str, float]:
    (record,) = records("score", *arguments, "--protocol", protocol)
    return {name: one["value"] for name, one in record["figures"].items()}


def refused(*arguments: object) -> str:
    """Return the one line with which the command refuses."""
    done = command(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    (line,) = done.stderr.splitlines()
    assert line.isprintable()
    return line


def stored(name: str) -> list[dict[str, Any]]:
    text = benchmark_file(name).read_text()
    rows = json.loads(text) if text.startswith("[") else list(map(json.loads, text.splitlines()))
    assert isinstance(rows, list)
    return rows


def array(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


def annotation(number: int, preference: object) -> dict[str, Any]:
    return {"instruction": f"i{number}", "generator_1": "g", "output_2": "x", "preference": preference}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([judgebench_row("", "", label="A")], ':1: label is "A", not one of A>B'),
        ([judgebench_row("", "", "")], ":1: judgments has 3 judgments"),
        ([judgebench_row("", "") | {"source": ""}], ":1: source is empty"),
        ([judgebench_row("", "") | {"pair_id": "\x1b[31m"}] * 2, ":2: two rows have the id '\\x1b[31m'"),
        ([{"idx": 0, "pandalm_result": 1}], ":1: no annotators: give the test set with --labels"),
        ([annotation(n, n % 2) for n in range(4)], "item 1: preference is 0 or 1 in all rows"),
        ([annotation(1, 2.0), annotation(2, 0.7)], "item 2: preference is 0.7"),
        ([annotation(1, 2.0), annotation(2, 100)], "item 2: preference is 100"),
        ([annotation(1, 2.0), annotation(2, 1.0), annotation(1, 1.0)], "item 3: two rows have the id 'i1 #"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, rows: list[dict[str, Any]], reason: str) -> None:
    is_array = "item" in reason
    run = array(tmp_path / "run.json", rows) if is_array else lines(tmp_path / "run.jsonl", rows)
    assert f"{run}, {reason}" if is_array else f"{run}{reason}" in refused("score", run)


def test_verdicts_of_pandalm_from_0_to_1_are_no_ties(tmp_path: Path) -> None:
    rows = [row | {"pandalm_result": max(0, row["pandalm_result"] - 1)} for row in stored(PANDALM_7B)]
    reason = refused("score", array(tmp_path / "run.json", rows), "--labels", benchmark_file(PANDALM))
    assert "pandalm_result is 0 or 1 in all rows" in reason


# Labels in a file of their own


def test_judgebench_takes_the_labels_of_a_file(tmp_path: Path) -> None:
    """All labels inverted: o1-mini's 70.86 in the first order becomes the share of its wrong choices."""
    rows = stored(O1_MINI)
    inverted = [{"pair_id": row["pair_id"], "label": OPPOSITE[row["label"]]} for row in reversed(rows)]
    labels = lines(tmp_path / "labels.jsonl", inverted)
    wrong = sum(row["judgments"][0]["decision"] == OPPOSITE[row["label"]] for row in rows)
    found = figures("first-order", benchmark_file(O1_MINI), "--labels", labels)
    assert found["accuracy"] == pytest.approx(wrong / 350)


def result(id: str, choice: int, label: int | None = 0) -> dict[str, Any]:
    verdict = {"choice": choice, "tie": False, "scores": {}}
    view = {"order": [0, 1], "sample": 0, "stop": "verdict", "verdict": verdict, "segments": []}
    spent = {"programs": 0, "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.1}
    row = {"id": id, "label": label, "strength": None, "domain": "", "tags": [], "stop": "verdict"}
    return row | spent | {"views": [view]}


def test_result_files_take_the_labels_of_a_file(tmp_path: Path) -> None:
    run = lines(tmp_path / "run.jsonl", [result("a", 0), result("b", 1, None), result("c", 1)])
    labels = [{"id": id, "label": label} for id, label in ("aA", "bB", "cB")]
    assert figures("one-order", run)["accuracy"] == 1 / 2
    given = lines(tmp_path / "labels.jsonl", labels)
    assert figures("one-order", run, "--labels", given)["accuracy"] == 1


def test_a_file_of_labels_may_be_named_from_the_current_folder(tmp_path: Path) -> None:
    lines(tmp_path / "labels.jsonl", [{"id": "a", "label": "A"}])
    run = lines(tmp_path / "run.jsonl", [result("a", 0, None)])
    with chdir(tmp_path):
        assert figures("one-order", run, "--labels", "./labels.jsonl")["accuracy"] == 1


def test_responses_after_the_26th_are_named_by_two_letters(tmp_path: Path) -> None:
    row = result("a", 27, None) | {"verdict": "AB"}
    row["views"][0]["order"] = list(range(30))
    run, given = (tmp_path / name for name in ("run.jsonl", "labels.jsonl"))
    for label, accuracy in (("AB", 1), ("AD", 0), ("Z", 0)):
        lines(given, [{"id": "a", "label": label}])
        assert figures("verdict", lines(run, [row]), "--labels", given)["accuracy"] == accuracy
    lines(given, [{"id": "a", "label": "AE"}])
    assert 'label is "AE", which is no letter from A to AD' in refused("score", run, "--labels", given)


def test_formats_that_hold_their_labels_refuse_the_option(tmp_path: Path) -> None:
    for run in (benchmark_file(ARMORM), array(tmp_path / "run.json", [annotation(1, 1.5)])):
        assert "does not use --labels" in refused("score", run, "--labels", benchmark_file(PANDALM))


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("twice.json", lambda people: people.append(people[7]), ", item 1000: two rows have the key '7'"),
        ("differ.json", lambda people: people.append(people[7] | {"annotator1": 0}), "and they differ"),
        ("value.json", lambda people: people[4].update(annotator2=7), ", item 5: annotator2 is 7"),
        ("fewer.json", lambda people: people.__delitem__(slice(500, None)), " has no row '500'"),
        (
            "keyless.json",
            lambda people: people[0].pop("idx"),
            ": no column to join labels by: one of idx, pair_id",
        ),
    ],
)
def test_wrong_labels_name_their_file(tmp_path: Path, name: str, change: Any, reason: str) -> None:
    people = stored(PANDALM)
    change(people)
    line = refused("score", benchmark_file(PANDALM_7B), "--labels", array(tmp_path / name, people))
    assert name in line
    assert reason in line


def test_labels_that_contradict_each_other_cannot_be_compared(tmp_path: Path) -> None:
    rows, first = stored(O1_MINI), benchmark_file(O1_MINI)
    changed = [*rows[:9], rows[9] | {"label": OPPOSITE[rows[9]["label"]]}, *rows[10:]]
    other = lines(tmp_path / "other.jsonl", random.Random(0).sample(changed, len(changed)))
    a, b = ("A", "B") if rows[9]["label"] == "A>B" else ("B", "A")
    said = f"row '{rows[9]['pair_id']}': its label is {a} in {first.name} and {b} in other.jsonl"
    assert said in refused("compare", first, other)


# Rows that occur twice


def test_duplicate_rows_of_rmb_are_refused_or_counted_once(tmp_path: Path) -> None:
    """79.505 % of ArmoRM's pairs (the file's own `is_correct`), followed by wrong rows of the same pairs."""
    rows = stored(ARMORM)
    wrong = [row | {"chosen_reward": 0.0, "reject_reward": 1.0} for row in rows[:300]]
    run = array(tmp_path / "run.json", rows + wrong)
    assert f"{run}, item 850: two rows have the id '9218'; --duplicates first" in refused("score", run)
    found = figures("rmb", run, "--duplicates", "first")
    assert found["Pairwise Helpfulness"] == pytest.approx(sum(row["is_correct"] for row in rows) / 849)
    assert round(100 * found["Pairwise Helpfulness"], 3) == 79.505
    assert "300 rows" in command("score", run, "--duplicates", "first").stderr


# Summaries


@pytest.mark.parametrize(
    ("name", "column", "value", "reason"),
    [
        ("rm-bench.json", "math", 91.8, "math is 91.8, not a share from 0 to 1 (is it a percentage?"),
        ("rmb-meta.json", "BoN Helpfulness", 1.2, "BoN Helpfulness is 1.2"),
        ("rewardbench-subsets.json", "hep-go", "x", 'hep-go is "x", not a finite number'),
        ("rm-bench.json", "code", None, "no column 'code'"),
        ("rm-bench.json", "total_avg_acc", 0.85, "total_avg_acc is 0.85, but the mean of its domains"),
        (
            "rewardbench-sections.json",
            "avg_Result_each_section",
            0.95,
            "avg_Result_each_section is 0.95, but",
        ),
    ],
)
def test_summaries_with_wrong_values(
    tmp_path: Path, name: str, column: str, value: object, reason: str
) -> None:
    summary = json.loads(benchmark_file(f"{RM_R1}/{name}").read_text())
    changed = {**summary, column: value}
    if value is None:
        del changed[column]
    path = array(tmp_path / name, changed)
    assert f"{name}: {reason}" in refused("score", path).replace(", item 1", "")


def test_totals_of_rounded_parts_do_not_contradict_them(tmp_path: Path) -> None:
    """RM-R1's Table 7 as printed: 74.2, 91.8, 74.1, 95.4; 83.9."""
    table = {"chat": 0.742, "math": 0.918, "code": 0.741, "safety": 0.954, "total_avg_acc": 0.839}
    found = figures("summary", array(tmp_path / "run.json", table))
    assert found["mean of domains"] == pytest.approx(0.83875)


# Rows that are not the benchmark's


def test_rows_that_are_not_those_of_the_benchmark_are_not_comparable(tmp_path: Path) -> None:
    rows = stored(O1_MINI)
    fewer = lines(tmp_path / "fewer.jsonl", rows[:270])
    done = command("score", fewer, "--protocol", "net-vote", "--full", code=0)
    assert "270 of 350 rows: not comparable with the figures published on judgebench" in done.stdout
    assert "difference" not in done.stdout
    others = lines(tmp_path / "others.jsonl", [*rows[:349], rows[349] | {"pair_id": "mine"}])
    for run, said in ((fewer, "270 of 350 rows"), (others, "350 rows that are not those of judgebench")):
        (record,) = records("score", run, "--protocol", "net-vote")
        assert (record["published"], record["not_comparable"]) == ([], said)


@pytest.mark.parametrize(
    ("name", "protocol"),
    [(JUDGELRM, "three-class"), (f"{RM_R1}/rewardbench-subsets.json", "rewardbench-strict")],
)
def test_the_benchmarks_own_rows_are_comparable(name: str, protocol: str) -> None:
    (record,) = records("score", benchmark_file(name), "--protocol", protocol)
    assert record["published"]
    assert "not_comparable" not in record


def test_a_protocol_that_does_not_fit_leaves_the_others_comparable() -> None:
    """It stops at the first row, and the rows that the other protocol read are those of the benchmark."""
    protocols = ("--protocol", "net-vote", "--protocol", "rm-bench", "--full")
    done = command("score", benchmark_file(O1_MINI), *protocols, code=1)
    assert "tirjudge score: rm-bench: " in done.stderr
    assert "of 350 rows" not in done.stdout
    assert "published under net-vote" in done.stdout


# Files


def test_compressed_results_and_labels(tmp_path: Path) -> None:
    run, labels = tmp_path / "run.json.gz", tmp_path / "labels.json.gz"
    run.write_bytes(gzip.compress(benchmark_file(PANDALM_7B).read_bytes()))
    labels.write_bytes(gzip.compress(benchmark_file(PANDALM).read_bytes()))
    assert round(100 * figures("three-class", run, "--labels", labels)["agreement"], 2) == 66.77


def test_single_games_of_judgebench_are_scored_in_the_order_they_have(tmp_path: Path) -> None:
    rows = [row | {"judgments": row["judgments"][:1]} for row in stored(O1_MINI)]
    (record,) = records("score", lines(tmp_path / "run.jsonl", rows))
    assert record["protocol"] == "first-order"
    assert round(100 * record["figures"]["accuracy"]["value"], 2) == 70.86
