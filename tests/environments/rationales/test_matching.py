"""Matching, AP and Rationale Consistency against the paper's tables and brute force on small cases."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_environments import Malformed
from tirjudge_environments.rationales import Matching, Pair, match, read_matching, read_scores

SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)


def answer(*lines: str) -> str:
    return "I compare.\n<RESULT_START>\nScores for each claim:\n" + "\n".join(lines) + "\n<RESULT_END>"


def matching(*lines: str, reasons: int) -> Matching:
    found = read_matching(answer(*lines), humans=len(lines), reasons=reasons)
    assert isinstance(found, Matching)
    return found


@pytest.mark.parametrize(
    ("lines", "reasons", "average_precision", "recall"),
    [
        # Table 6: deepseek-r1-0528 hits R1, R3 and R2 at S1, S3 and S4 of four: (1 + 2/3 + 3/4) / 3.
        (("R1@S1: 1.00", "R2@S4: 1.00", "R3@S3: 1.00"), 4, 0.806, 1.0),
        # Table 6: gemini-2.0-flash's 0.25 at S2 of five counts: (1/2) / 3. Its consistency is printed: 8.3 %.
        (("R1@S2: 0.25", "R2@S0: 0.00", "R3@S0: 0.00"), 5, 0.167, 0.083),
        # Table 7: deepseek-r1 hits nothing.
        (("R1@S0: 0.00", "R2@S0: 0.00", "R3@S0: 0.00"), 3, 0.0, 0.0),
        # Table 8: Rationale+Outcome hits H3, H2 and H1 at M1, M3 and M5 of five: (1 + 2/3 + 3/5) / 3.
        (("R1@S5: 1.00", "R2@S3: 1.00", "R3@S1: 1.00"), 5, 0.756, 1.0),
        # Table 8: step 0 hits H3 at S2: (1/2) / 3, and RC 0.33.
        (("R1@S0: 0", "R2@S0: 0", "R3@S2: 1.00"), 5, 0.167, 0.333),
        # Table 9: Rationale+Outcome hits three of four, RC 0.75, at M1, M2 and M4: (1 + 1 + 3/4) / 4.
        (("R1@S1: 1.00", "R2@S4: 1.00", "R3@S2: 1.00", "R4@S0: 0"), 5, 0.6875, 0.75),
    ],
)
def test_the_tables_of_the_paper(lines, reasons, average_precision, recall) -> None:
    found = matching(*lines, reasons=reasons)
    assert found.average_precision == pytest.approx(average_precision, abs=5e-4)
    assert found.recall == pytest.approx(recall, abs=5e-4)


def test_a_reason_assigned_to_several_human_ones_keeps_the_best() -> None:
    found = matching("R1@S1: 0.50", "R2@S1: 0.75", "R3@S1: 0.25", reasons=2)
    assert found.pairs == (Pair(human=1, reason=0, score=0.75),)
    assert found.recall == 0.25
    assert found.average_precision == pytest.approx(1 / 3)


def test_the_optimal_sum_differs_from_a_greedy_choice() -> None:
    assert match([[1.0, 0.75], [0.75, 0.0]], 2).total == 1.5


MATRICES = st.integers(1, 4).flatmap(
    lambda humans: st.integers(0, 4).flatmap(
        lambda reasons: st.lists(
            st.lists(st.sampled_from(SCORES), min_size=reasons, max_size=reasons),
            min_size=humans,
            max_size=humans,
        )
    )
)


@given(MATRICES)
def test_matching_equals_brute_force(scores) -> None:
    """Compute Eq. 1 over every assignment; unmatched human reasons get extra columns."""
    humans, reasons = len(scores), len(scores[0])
    best = max(
        sum(scores[i][j] for i, j in enumerate(chosen) if j < reasons)
        for chosen in permutations(range(reasons + humans), humans)
    )
    found = match(scores, reasons)
    assert found.total == pytest.approx(best)
    assert found.recall == pytest.approx(best / humans)
    assert (
        len({pair.human for pair in found.pairs})
        == len({pair.reason for pair in found.pairs})
        == len(found.pairs)
    )
    assert all(pair.score == scores[pair.human][pair.reason] > 0 for pair in found.pairs)


@given(MATRICES)
def test_average_precision_equals_eq_3_term_by_term(scores) -> None:
    found = match(scores, len(scores[0]))
    matched = {pair.reason + 1 for pair in found.pairs}
    total = 0.0
    for k in range(1, found.reasons + 1):
        indicator = 1 if k in matched else 0
        precision_at_k = len([j for j in matched if j <= k]) / k
        total += precision_at_k * indicator
    assert found.average_precision == pytest.approx(total / found.humans)
    assert 0 <= found.average_precision <= 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("R1@S1: 1.00\nR2@S2: 1.00", "no <RESULT_START>"),
        ("<RESULT_END>R1@S1: 1.00<RESULT_START>", "no <RESULT_START>"),
        (answer("R1@S1: 1.00"), "1 scores for 2"),
        (answer("R1@S1: 1.00", "R2@S2: 1.00", "R3@S0: 0"), "3 scores for 2"),
        (answer("R2@S1: 1.00", "R1@S2: 1.00"), "R2 stands where R1 is due"),
        (answer("R1@S1: 1.00", "R1@S2: 1.00"), "R1 stands where R2 is due"),
        (answer("R1@S1: 1.00", "R2@S3: 1.00"), "R2@S3 with 1: there are S1 to S2"),
        (answer("R1@S1: 1.00", "R2@S2: 1.50"), "R2@S2 with 1.5"),
        (answer("R1@S1: 1.00", "R2@S0: 0.50"), "R2@S0 with 0.5"),
        (answer("R1@S1: 1.00", "R2@S2: high"), "no line of the form"),
        (answer("R1@S1: 1.00", "R2@S2, S1: 0.50"), "no line of the form"),
        (answer("R1@S1: -1.00", "R2@S2: 1.00"), "no line of the form"),
        (answer("R1@S1: 1.00", "and so:", "R2@S2: 1.00"), "no line of the form"),
    ],
)
def test_a_metajudge_is_read_strictly(text: str, reason: str) -> None:
    read = read_scores(text, humans=2, reasons=2)
    assert isinstance(read, Malformed)
    assert reason in read.reason


def test_text_around_a_metajudges_answer_is_allowed() -> None:
    second = answer("* R1 @ S1 : 0.5 (partial)", "", "- R2@S0: 0 (no match)")
    text = f"<think>{answer('R1@S2: 0')}</think>{second}"
    assert read_scores(text, humans=2, reasons=2) == [[0.5, 0.0], [0.0, 0.0]]
