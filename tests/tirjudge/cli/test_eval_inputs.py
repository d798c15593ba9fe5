"""`tirjudge eval` on wrong input: it is refused with its row and column, never scored in silence."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.tirjudge.benchmark_data import benchmark_file
from tirjudge.cli import app
from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.reading import Replay

O1_MINI = "judgebench/judge-arena-hard-o1-mini.jsonl"
ARMORM = "rmb/armorm-pairwise-helpfulness.json"
RM_R1 = "rm-r1/deepseek-distilled-qwen-32b"
PANDALM = "pandalm/testset-v1.json"
PANDALM_7B = "pandalm/pandalm-7b-testset-v1.json"
JUDGELRM = "judgelrm/results_judgelrm3b.json"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments])


def records(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    done = command(*arguments, "--json")
    assert done.exit_code == 0, done.output
    read: list[dict[str, Any]] = json.loads(done.stdout)
    return read


def figures(folder: Path, protocol: str, *arguments: object) -> dict[str, float]:
    (record,) = records(folder, *arguments, "--protocol", protocol)
    return {name: one["value"] for name, one in record["figures"].items()}


def refused(*arguments: object) -> str:
    """Return the one line with which the command refuses."""
    done = command(*arguments)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert done.stdout == ""
    for word in ("Traceback", "NoneType", "zip()", "takes", "attribute", "argument", "at at"):
        assert word not in line
    return line


def stored(name: str) -> list[dict[str, Any]]:
    text = benchmark_file(name).read_text()
    rows = json.loads(text) if text.startswith("[") else list(map(json.loads, text.splitlines()))
    assert isinstance(rows, list)
    return rows


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def array(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


# Labels in a file of their own


def test_judgebench_takes_the_labels_of_a_file(tmp_path: Path) -> None:
    """All labels inverted: o1-mini's 70.86 in the first order becomes the share of its wrong choices."""
    rows = stored(O1_MINI)
    other = {"A>B": "B>A", "B>A": "A>B"}
    labels = lines(
        tmp_path / "labels.jsonl",
        [{"pair_id": row["pair_id"], "label": other[row["label"]]} for row in reversed(rows)],
    )
    got = figures(tmp_path, "first-order", "score", benchmark_file(O1_MINI), "--labels", labels)
    wrong = sum(row["judgments"][0]["decision"] == other[row["label"]] for row in rows)
    assert got["accuracy"] == pytest.approx(wrong / 350)


def result(id: str, choice: int, label: int | None = 0) -> dict[str, Any]:
    verdict = {"choice": choice, "tie": False, "scores": {}}
    view = {"order": [0, 1], "sample": 0, "stop": "verdict", "verdict": verdict, "segments": []}
    spent = {"programs": 0, "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.1}
    row = {"id": id, "label": label, "strength": None, "domain": "", "tags": [], "stop": "verdict"}
    return row | spent | {"views": [view]}


def test_result_files_take_the_labels_of_a_file(tmp_path: Path) -> None:
    run = lines(tmp_path / "run.jsonl", [result("a", 0), result("b", 1, None), result("c", 1)])
    labels = lines(
        tmp_path / "labels.jsonl",
        [{"id": id, "label": label} for id, label in zip("abc", "ABB", strict=True)],
    )
    assert figures(tmp_path, "one-order", "score", run)["accuracy"] == 1 / 2
    assert figures(tmp_path, "one-order", "score", run, "--labels", labels)["accuracy"] == 1


@pytest.mark.parametrize(
    "name", [ARMORM, f"{RM_R1}/rmb-pairwise-helpfulness-transcripts.json", f"{RM_R1}/rmb-meta.json"]
)
def test_formats_that_hold_their_labels_refuse_the_option(name: str) -> None:
    reason = refused("score", benchmark_file(name), "--labels", benchmark_file(PANDALM))
    assert "does not use --labels: leave the option out" in reason


def test_alpaca_eval_refuses_labels(tmp_path: Path) -> None:
    run = array(tmp_path / "run.json", [annotation(1, 1.5)])
    assert "format alpaca_eval does not use --labels" in refused("score", run, "--labels", run)


@pytest.mark.parametrize("change", [{}, {"annotator1": 0}])
def test_two_labels_of_one_row_are_an_error(tmp_path: Path, change: dict[str, int]) -> None:
    people = stored(PANDALM)
    labels = array(tmp_path / "labels.json", [*people, people[7] | change])
    reason = refused("score", benchmark_file(PANDALM_7B), "--labels", labels)
    assert f"{labels}, item 1000: two rows have the key '7' (the other: {labels}, item 8)" in reason
    assert reason.endswith(", and they differ") == bool(change)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"annotator2": 7}, "item 5: annotator2 is 7, not 0 (tie), 1 or 2"),
        ({"annotator3": None}, "item 5: annotator3 is None, not 0 (tie), 1 or 2"),
        ({"annotator1": 0, "annotator2": 1, "annotator3": 2}, "item 5: the three annotators disagree"),
    ],
)
def test_errors_in_the_labels_name_the_file_of_labels(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    people = stored(PANDALM)
    people[4] |= change
    labels = array(tmp_path / "labels.json", people)
    for run in (PANDALM_7B, JUDGELRM):
        assert f"{labels}, {reason}" in refused("score", benchmark_file(run), "--labels", labels)


def test_labels_that_cannot_be_joined_or_read_name_their_file(tmp_path: Path) -> None:
    run = benchmark_file(PANDALM_7B)
    people = stored(PANDALM)
    fewer = array(tmp_path / "fewer.json", people[:500])
    assert f"item 501: {fewer} has no row '500'" in refused("score", run, "--labels", fewer)
    keyless = array(tmp_path / "keyless.json", [{"annotator1": 1}])
    assert f"{keyless}: no column to join by: one of idx, pair_id, id, index" in refused(
        "score", run, "--labels", keyless
    )
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"idx": 0}\n{"idx"\n')
    assert f"{broken}:2: not JSON" in refused("score", run, "--labels", broken)


# Rows that occur twice


def test_duplicate_rows_of_rmb_are_refused_or_counted_once(tmp_path: Path) -> None:
    """79.505 % of ArmoRM's pairs (the file's own `is_correct`), followed by wrong rows of the same pairs."""
    rows = stored(ARMORM)
    wrong = [row | {"chosen_reward": 0.0, "reject_reward": 1.0} for row in rows[:300]]
    run = array(tmp_path / "run.json", rows + wrong)
    reason = refused("score", run)
    assert f"{run}, item 850: two rows have the id '9218'; --duplicates first counts only the first" in reason
    got = figures(tmp_path, "rmb", "score", run, "--duplicates", "first")
    assert got["Pairwise Helpfulness"] == pytest.approx(sum(row["is_correct"] for row in rows) / 849)
    assert (
        "300 rows with an id that occurred before are not counted"
        in command("score", run, "--duplicates", "first").stderr
    )


def annotation(number: int, preference: object, **changed: Any) -> dict[str, Any]:
    return {
        "instruction": f"i{number}",
        "generator_1": "g",
        "output_2": "x",
        "preference": preference,
    } | changed


def test_duplicate_rows_of_alpaca_eval(tmp_path: Path) -> None:
    rows = [annotation(1, 2.0), annotation(2, 1.0), annotation(1, 1.0)]
    run = array(tmp_path / "run.json", rows)
    assert "item 3: two rows have the id 'i1 #" in refused("score", run)
    assert figures(tmp_path, "win-rate", "score", run, "--duplicates", "first")["win rate"] == 1 / 2
    assert command("score", run, "--duplicates", "last").exit_code == 2


def test_rows_of_alpaca_eval_are_known_by_instruction_and_baseline(tmp_path: Path) -> None:
    """A file compared with its own shuffle differs by nothing."""
    rows = [annotation(number, 1 + number % 7 / 6) for number in range(60)]
    first = array(tmp_path / "a.json", rows)
    second = array(tmp_path / "b.json", random.Random(0).sample(rows, len(rows)))
    (record,) = records(tmp_path, "compare", first, second, "--protocol", "win-rate")
    assert record["common"] == 60
    difference = record["differences"]["win rate"]
    assert (difference["value"], difference["low"], difference["high"]) == pytest.approx((0, 0, 0))
    assert difference["n"] == 60


# Values on another scale


@pytest.mark.parametrize(
    ("name", "column", "value", "reason"),
    [
        (
            "rm-bench.json",
            "math",
            91.8,
            "math is 91.8, not a share from 0 to 1 (is it a percentage? divide by 100)",
        ),
        ("rm-bench.json", "math", -0.1, "math is -0.1, not a share from 0 to 1"),
        ("rmb-meta.json", "BoN Helpfulness", 1.2, "BoN Helpfulness is 1.2, not a share from 0 to 1"),
        ("rewardbench-subsets.json", "hep-go", 95.7, "hep-go is 95.7, not a share from 0 to 1"),
        ("rewardbench-subsets.json", "hep-go", "x", 'hep-go is "x", not a finite number'),
        ("rm-bench.json", "code", None, "no column 'code', one of the domains (chat, math, code, safety)"),
        ("rewardbench-sections.json", "Safety", None, "no column 'Safety', one of the sections"),
        ("rewardbench-subsets.json", "math-prm", None, "no column 'math-prm'"),
        ("rm-bench.json", "total_avg_acc", 0.85, "total_avg_acc is 0.85, but the mean of its domains"),
        (
            "rm-bench.json",
            "hard_acc",
            0.8,
            "total_avg_acc is 0.8388277867114855, but the mean of its difficulties",
        ),
        (
            "rmb-meta.json",
            "Accuracy Averaged from Four Sections",
            0.6,
            "Accuracy Averaged from Four Sections is 0.6, but the mean of its four sections",
        ),
        (
            "rewardbench-sections.json",
            "avg_Result_each_section",
            0.95,
            "avg_Result_each_section is 0.95, but the mean of its sections",
        ),
    ],
)
def test_summaries_with_wrong_values(
    tmp_path: Path, name: str, column: str, value: object, reason: str
) -> None:
    summary = json.loads(benchmark_file(f"{RM_R1}/{name}").read_text())
    changed = summary | {column: value}
    if value is None:
        del changed[column]
    path = array(tmp_path / name, changed)
    assert f"{name}: {reason}" in refused("score", path).replace(", item 1", "")


def test_totals_of_rounded_parts_do_not_contradict_them(tmp_path: Path) -> None:
    """RM-R1's Table 7 as printed: 74.2, 91.8, 74.1, 95.4; 83.9."""
    path = array(
        tmp_path / "run.json",
        {"chat": 0.742, "math": 0.918, "code": 0.741, "safety": 0.954, "total_avg_acc": 0.839},
    )
    assert figures(tmp_path, "summary", "score", path)["mean of domains"] == pytest.approx(0.83875)


def test_preferences_from_0_to_1_are_no_draws(tmp_path: Path) -> None:
    run = array(tmp_path / "run.json", [annotation(number, number % 2) for number in range(4)])
    reason = "item 1: preference is 0 or 1 in all rows: alpaca_eval's scale is 1 (the baseline) to 2"
    assert reason in refused("score", run)
    run = array(tmp_path / "run.json", [annotation(1, 2.0), annotation(2, 0.7)])
    assert "item 2: preference is 0.7, not a number from 1 (the baseline) to 2" in refused("score", run)
    run = array(tmp_path / "run.json", [annotation(1, 2.0), annotation(2, 100)])
    assert "item 2: preference is 100, not a number from 1" in refused("score", run)


def test_verdicts_of_pandalm_from_0_to_1_are_no_ties(tmp_path: Path) -> None:
    rows = [row | {"pandalm_result": max(0, row["pandalm_result"] - 1)} for row in stored(PANDALM_7B)]
    run = array(tmp_path / "run.json", rows)
    reason = refused("score", run, "--labels", benchmark_file(PANDALM))
    assert "pandalm_result is 0 or 1 in all rows, never 2" in reason


def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    rows = stored(ARMORM)
    rows[3] |= {"chosen_reward": "high"}
    run = array(tmp_path / "run.json", rows)
    assert f'{run}, item 4: chosen_reward is "high", not a finite number' in refused("score", run)
    rows[3] |= {"chosen_reward": 0.5, "category_path": "x"}
    assert "item 4: category_path 'x' is not one of RMB's" in refused("score", array(run, rows))


def test_labels_that_contradict_each_other_cannot_be_compared(tmp_path: Path) -> None:
    rows = stored(O1_MINI)
    changed = [*rows[:9], rows[9] | {"label": {"A>B": "B>A", "B>A": "A>B"}[rows[9]["label"]]}, *rows[10:]]
    shuffled = random.Random(0).sample(changed, len(changed))
    first = benchmark_file(O1_MINI)
    for name, other in (("same", changed), ("shuffled", shuffled)):
        second = lines(tmp_path / f"{name}.jsonl", other)
        reason = refused("compare", first, second)
        a, b = ("A", "B") if rows[9]["label"] == "A>B" else ("B", "A")
        assert (
            f"row '{rows[9]['pair_id']}': its label is {a} in {first.name} and {b} in {second.name}" in reason
        )
    agreed = lines(tmp_path / "agreed.jsonl", random.Random(1).sample(rows, len(rows)))
    (record,) = records(tmp_path, "compare", first, agreed, "--protocol", "net-vote")
    assert (record["gained"], record["lost"], record["common"]) == (0, 0, 350)


# Rows that are not the benchmark's


@pytest.mark.parametrize("count", [270, 349])
def test_an_incomplete_file_is_not_comparable(tmp_path: Path, count: int) -> None:
    run = lines(tmp_path / "run.jsonl", stored(O1_MINI)[:count])
    done = command("score", run, "--protocol", "net-vote", "--full")
    assert done.exit_code == 0, done.output
    assert f"{count} of 350 rows: not comparable with the figures published on judgebench" in done.stdout
    assert "difference" not in done.stdout
    (record,) = records(tmp_path, "score", run, "--protocol", "net-vote")
    assert (record["published"], record["not_comparable"]) == ([], f"{count} of 350 rows")


def test_other_rows_than_the_benchmarks_are_not_comparable(tmp_path: Path) -> None:
    rows = stored(O1_MINI)
    run = lines(tmp_path / "run.jsonl", [*rows[:349], rows[349] | {"pair_id": "mine"}])
    (record,) = records(tmp_path, "score", run, "--protocol", "net-vote")
    assert (record["published"], record["not_comparable"]) == (
        [],
        "350 rows that are not those of judgebench",
    )


def test_the_benchmarks_own_rows_are_comparable(tmp_path: Path) -> None:
    for name, protocol in (
        (O1_MINI, "net-vote"),
        (JUDGELRM, "three-class"),
        (f"{RM_R1}/rewardbench-subsets.json", "rewardbench-strict"),
    ):
        (record,) = records(tmp_path, "score", benchmark_file(name), "--protocol", protocol)
        assert record["published"]
        assert "not_comparable" not in record


def test_a_protocol_that_does_not_fit_leaves_the_others_comparable() -> None:
    """It stops at the first row, and the rows that the other protocol read are those of the benchmark."""
    done = command(
        "score", benchmark_file(O1_MINI), "--protocol", "net-vote", "--protocol", "rm-bench", "--full"
    )
    assert done.exit_code == 1
    assert "tirjudge score: rm-bench: " in done.stderr
    assert "of 350 rows" not in done.stdout
    assert "published under net-vote" in done.stdout


@pytest.mark.parametrize("arguments", [("score",), ("compare",)])
def test_a_run_is_read_once_for_each_protocol(arguments: tuple[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of labels and of the benchmark's rows watch the rows that a protocol reads."""
    reads: list[str] = []

    def counted(run: Replay) -> Iterator[JudgedRow]:
        reads.append(run.name)
        return rows_of(run)

    rows_of = Replay.__iter__
    monkeypatch.setattr(Replay, "__iter__", counted)
    files = [benchmark_file(O1_MINI)] * (1 + (arguments == ("compare",)))
    assert command(*arguments, *files, "--protocol", "net-vote", "--protocol", "tir").exit_code == 0
    assert len(reads) == 2 * len(files)


# Files


def test_compressed_results_and_labels(tmp_path: Path) -> None:
    for name in (PANDALM_7B, PANDALM):
        (tmp_path / f"{Path(name).name}.gz").write_bytes(gzip.compress(benchmark_file(name).read_bytes()))
    run, labels = (tmp_path / f"{Path(name).name}.gz" for name in (PANDALM_7B, PANDALM))
    got = figures(tmp_path, "three-class", "score", run, "--labels", labels)
    assert [round(100 * got[name], 2) for name in ("agreement", "F1")] == [66.77, 57.43]


def test_single_games_of_judgebench_are_scored_in_the_order_they_have(tmp_path: Path) -> None:
    rows = [row | {"judgments": row["judgments"][:1]} for row in stored(O1_MINI)]
    run = lines(tmp_path / "run.jsonl", rows)
    (record,) = records(tmp_path, "score", run)
    assert record["protocol"] == "first-order"
    assert round(100 * record["figures"]["accuracy"]["value"], 2) == 70.86


@pytest.mark.parametrize(
    ("judgment", "reason"),
    [
        ({"judgment": {"scores": [1.0]}}, "judgments: scores has 1 numbers, not 2"),
        ({"judgment": {"scores": [1.0, None]}}, "judgments: scores is null, not a finite number"),
        ({"judgment": {"response": 3}}, "judgments: response is 3, not a text"),
        (5, "judgments holds 5, not an object"),
    ],
)
def test_wrong_judgments_are_named(tmp_path: Path, judgment: object, reason: str) -> None:
    row = stored(O1_MINI)[0]
    run = lines(tmp_path / "run.jsonl", [row | {"judgments": [judgment, None]}])
    assert f"{run}:1: {reason}" in refused("score", run)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": ""}, "source is empty, so that the row has no domain"),
        ({"source": None}, "source is null, not a text"),
        ({"label": "C>A"}, 'label is "C>A", not one of A>B'),
    ],
)
def test_a_missing_domain_and_a_wrong_label_of_judgebench_are_named(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    rows = stored(O1_MINI)
    run = lines(tmp_path / "run.jsonl", [*rows[:3], rows[3] | change])
    assert f"{run}:4: {reason}" in refused("score", run)
