"""The papers' figures: complete, under the right protocol, and consistent with arithmetic."""

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
def test_every_table_of_results_is_included(paper: str, tables: tuple[str, ...], figures: int) -> None:
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
def test_figures_have_the_values_that_the_paper_prints(
    paper: str, table: str, model: str, benchmark: str, figure: str, value: float
) -> None:
    assert rows(benchmark, paper=paper, table=table)[paper, table, model][figure].value == pytest.approx(
        value
    )


def test_mixed_protocols_in_one_column_are_separated() -> None:
    column = {
        one.model: one.protocol
        for one in published("judgebench")
        if (one.paper, one.table, one.figure) == ("TIR-Judge", "Table 1", "accuracy")
    }
    assert column["GPT-o1-mini"] == column["GPT-4o"] == "net-vote"
    assert column["J1 70B"] == column["J1-8B (Pairwise)"] == "both-orders"
    assert column["TIR-Judge-Zero 8B (Pairwise)"] == "tir"


QUOTED = {
    "GPT-4o": ("GPT-4o-0806",),
    "GPT-o1-mini": ("OpenAI-o1-mini",),
    "Claude 3.5": ("Claude-3.5-Sonnet", "Claude-3-5-sonnet-20240620"),
    "DeepSeek-R1-671B": ("DeepSeek-R1", "DeepSeek-R1-0528"),
    "J1-8B (Pairwise)": ("J1-Llama-8B",),
    "J1 70B": ("J1-Llama-70B",),
    "Armo-RM-8B": ("Armo-8B-v0.1", "ArmoRM-Llama3-8B-v0.1"),
    "Skywork-Gemma-2-27B": ("Skywork-Reward-Gemma-2-27B",),
    "Deepseek-BTRM-27B": ("DeepSeek-BTRM-27B",),
    "Deepseek-GRM-27B": ("DeepSeek-GRM-27B",),
    "Gemini-1.5-pro": ("Gemini-1.5-Pro-0514",),
    "Skywork-Critic-Llama-3.1-70B": (),
    "Llama3.1-405B-Instruct": (),
    "RM-R1-Deepseek-Distill-7B": ("RM-R1-DeepSeek-Distilled-Qwen-7B",),
    "RM-R1-Deepseek-Distill-14B": ("RM-R1-DeepSeek-Distilled-Qwen-14B", "RM-R1-Distilled-Qwen-14B"),
    "RM-R1-Deepseek-Distill-32B": ("RM-R1-DeepSeek-Distilled-Qwen-32B", "RM-R1-Distilled-Qwen-32B"),
    "RM-R1-Instruct-7B": ("RM-R1-Qwen-Instruct-7B",),
}
"""Names of one model in several papers."""


def test_a_figure_that_one_paper_quotes_from_another_has_one_protocol() -> None:
    """The same model with the same value in two papers was computed once, under one protocol."""
    names = {other: name for name, others in QUOTED.items() for other in others}
    found: dict[tuple[str, str, str, float], list[PublishedFigure]] = defaultdict(list)
    for one in published():
        model = names.get(one.model, one.model)
        if model in QUOTED and one.unit == "share":
            found[model, one.benchmark, one.figure, round(one.value, 4)].append(one)
    quoted = [group for group in found.values() if len({one.paper for one in group}) > 1]
    assert len(quoted) > 80
    for group in quoted:
        assert len({one.protocol for one in group}) == 1, [
            (one.paper, one.table, one.model, one.benchmark, one.figure, one.value, one.protocol)
            for one in group
        ]


def test_figures_of_judgebenchs_leaderboard_are_net_votes() -> None:
    """o1-mini's transcripts give 65.71 as net votes alone, and Skywork-Gemma's scores these four sections."""
    leaderboard = {0.657} | {0.597, 0.839, 0.5}
    found = [
        one
        for one in published("judgebench")
        if ("o1-mini" in one.model or "Skywork-Reward-Gemma" in one.model) and one.paper != "J1"
        if round(one.value, 4) in leaderboard
    ]
    assert len(found) == 5
    assert {one.protocol for one in found} == {"net-vote"}
    own = [one for one in published("judgebench") if one.model.startswith("TIR-Judge")]
    assert {one.protocol for one in own} == {"tir"}


def test_a_mean_of_columns_is_distinguished_from_a_share_of_all_pairs() -> None:
    for cells in rows("judgebench", paper="Rationale").values():
        overall = cells["accuracy"]
        columns = [cells[name].value for name in ("knowledge", "reasoning", "math", "coding")]
        is_mean = abs(fmean(columns) - overall.value) < 0.0011
        assert ("mean of sections" in overall.protocol) == is_mean, overall.model


def test_f1_of_means_is_distinguished_from_the_mean_of_f1() -> None:
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
    """They do in all rows but GPT-4's, which is quoted from JudgeLM and lacks 5.5 %."""
    for (_, _, model), cells in rows("judgelm", paper="JudgeLRM", table="Table 5").items():
        shares = [cells[name].value for name in ("consistency", "bias toward first", "bias toward second")]
        assert (sum(shares) == pytest.approx(1, abs=1e-4)) == (model != "GPT-4")
        assert cells["delta bias"].value == pytest.approx(abs(shares[1] - shares[2]), abs=2e-4)


def test_means_are_those_of_their_sections() -> None:
    """Up to 10 % of the rows print another mean: RM-R1 quotes some of them from other papers."""
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


def test_figures_have_a_protocol_of_this_package_or_one_of_six_others() -> None:
    known = set(protocol_names())
    foreign = {one.protocol for one in published()} - known
    assert foreign == {
        "none",
        "best-of-n",
        "net-vote, mean of sections",
        "one-order, mean of sections",
        "rm-bench and one-order",
        "rewardbench-strict, rm-bench and rmb",
    }
