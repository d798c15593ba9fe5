"""The papers' figures: all there, under the right protocol, and sound where arithmetic can tell."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

import pytest

from tirjudge.evaluation.protocols import protocol_names
from tirjudge.evaluation.published import PublishedFigure, published

Cells = dict[str, PublishedFigure]


def rows(benchmark: str, *, paper: str = "", table: str = "") -> dict[tuple[str, str, str], Cells]:
    found: dict[tuple[str, str, str], Cells] = defaultdict(dict)
    for one in published(benchmark):
        if paper in one.paper and (not table or one.table == table):
            found[one.paper, one.table, one.model][one.figure] = one
    return found


@pytest.mark.parametrize(
    ("paper", "tables", "figures"),
    [
        ("TIR-Judge", ("1", "2", "3", "5", "7", "8", "8, money"), 1088),
        ("J1", tuple(str(number) for number in range(1, 9)), 422),
        ("RM-R1", ("1", "2", "3", "6", "7", "8"), 747),
        ("JudgeLRM", ("1", "2", "3", "4", "5", "8", "9", "10", "11", "12"), 315),
        ("Rationale Consistency", ("2", "3", "4", "5"), 208),
    ],
)
def test_every_table_of_results_is_there(paper: str, tables: tuple[str, ...], figures: int) -> None:
    found = [one for one in published() if one.paper == paper]
    assert {one.table.removeprefix("Table ") for one in found} == set(tables)
    assert len(found) == figures


@pytest.mark.parametrize(
    ("paper", "table", "model", "benchmark", "figure", "value"),
    [
        ("TIR-Judge", "Table 1", "TIR-Judge-Zero 8B (Pairwise)", "rewardbench", "mean of sections", 0.891),
        ("TIR-Judge", "Table 2", "TIR-Judge-Zero 8B", "rewardbench2", "Focus", 0.895),
        ("TIR-Judge", "Table 3", "Qwen-3-Tool", "any", "syntax errors", 0.0495),
        ("TIR-Judge", "Table 5", "Claude 3.5", "judgebench", "accuracy", 0.643),
        ("TIR-Judge", "Table 7", "AIME 2025 Qwen-2.5-32B", "best-of-n", "8B pairwise", 14),
        ("J1", "Table 3", "J1-Llama-8B Pointwise", "ppe-correctness", "mean of sections", 0.538),
        ("J1", "Table 7", "J1-Llama-70B (Mean-Score@32)", "ppe-correctness", "IFEval", 0.708),
        ("RM-R1", "Table 8", "RM-R1-DeepSeek-Distilled-Qwen-32B", "rmb", "mean of sections", 0.698),
        ("JudgeLRM", "Table 12", "JudgeLRM-3B", "pandalm", "F1", 0.8266),
        ("JudgeLRM", "Table 5", "JudgeLRM-8B", "judgelm", "delta bias", 0.0236),
        ("Rationale Consistency", "Table 4", "Ours", "cw-atomic", "rationale consistency", 0.2526),
    ],
)
def test_figures_stand_where_the_paper_prints_them(
    paper: str, table: str, model: str, benchmark: str, figure: str, value: float
) -> None:
    assert rows(benchmark, paper=paper, table=table)[paper, table, model][figure].value == pytest.approx(
        value
    )


def test_mixed_protocols_in_one_column_are_told_apart() -> None:
    column = {
        one.model: one.protocol
        for one in published("judgebench")
        if (one.paper, one.table, one.figure) == ("TIR-Judge", "Table 1", "accuracy")
    }
    assert column["GPT-o1-mini"] == column["GPT-4o"] == "net-vote"
    assert column["J1 70B"] == column["J1-8B (Pairwise)"] == "both-orders"
    assert column["TIR-Judge-Zero 8B (Pairwise)"] == "tir"


def test_a_mean_of_columns_is_told_from_a_share_of_all_pairs() -> None:
    for cells in rows("judgebench", paper="Rationale").values():
        overall = cells["accuracy"]
        columns = [cells[name].value for name in ("knowledge", "reasoning", "math", "coding")]
        is_mean = abs(fmean(columns) - overall.value) < 0.0011
        assert ("mean of sections" in overall.protocol) == is_mean, overall.model


def test_f1_of_means_is_told_from_the_mean_of_f1() -> None:
    """JudgeLRM's own rows on JudgeLM print 2PR / (P + R), the rows it takes from others do not."""
    seen = set()
    for (_, table, model), cells in rows("judgelm", paper="JudgeLRM").items():
        if "F1" not in cells:
            continue
        precision, recall, f1 = (cells[name].value for name in ("precision", "recall", "F1"))
        of_means = abs(2 * precision * recall / (precision + recall) - f1) < 0.0002
        assert (cells["F1"].protocol == "three-class-f1-of-means") == of_means, (table, model)
        seen.add(of_means)
    assert seen == {True, False}


def test_position_shares_of_judgelrm_add_up() -> None:
    """But for GPT-4's, quoted from JudgeLM: 5.5 % are nowhere."""
    for (_, _, model), cells in rows("judgelm", paper="JudgeLRM", table="Table 5").items():
        shares = [cells[name].value for name in ("consistency", "bias toward first", "bias toward second")]
        assert (sum(shares) == pytest.approx(1, abs=1e-4)) == (model != "GPT-4")
        assert cells["delta bias"].value == pytest.approx(abs(shares[1] - shares[2]), abs=2e-4)


def test_means_are_those_of_their_sections() -> None:
    """But for rows whose printed mean is not: RM-R1 quotes some from other papers."""
    for benchmark, mean, sections in (
        ("rm-bench", "overall", ("chat", "math", "code", "safety")),
        ("rewardbench", "mean of sections", ("Chat", "Chat Hard", "Safety", "Reasoning")),
    ):
        complete = [
            (cells[mean].value, fmean(cells[name].value for name in sections))
            for cells in rows(benchmark).values()
            if {mean, *sections} <= set(cells)
        ]
        off = [one for one in complete if abs(one[0] - one[1]) > 0.0015]
        assert len(off) <= 0.1 * len(complete), (benchmark, off)


def test_protocols_of_benchmarks_are_ours_where_they_can_be() -> None:
    known = set(protocol_names())
    foreign = {one.protocol for one in published()} - known
    assert foreign == {
        "none",
        "arena-hard",
        "best-of-n",
        "rewardbench2 with Ties",
        "one-order, mean of sections",
        "rm-bench and one-order",
        "rewardbench-strict, rm-bench and rmb",
    }
