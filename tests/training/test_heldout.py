"""Held-out numbers against counts made by hand."""

from __future__ import annotations

from tirjudge_training.heldout import Answer, lines, summary


def one(family: str, correct: bool | None, *, calls: int = 1, errors: int = 0) -> Answer:
    return Answer(
        format="tir-pairwise",
        family=family,
        domain="safety" if family == "starts" else "",
        correct=correct,
        reward=None if correct is None else float(correct),
        verdicts=int(correct is not None),
        views=1,
        calls=calls,
        ran=calls,
        errors=errors,
    )


ANSWERS = [
    one("ends", True),
    one("ends", False, calls=2, errors=1),
    one("starts", True, calls=0),
    one("starts", None, calls=3, errors=3),
]


def test_accuracy_is_over_scored_answers() -> None:
    found = summary(ANSWERS)["tir-pairwise"]
    assert (found["accuracy"]["count"], found["accuracy"]["n"], found["unscored"]) == (2, 3, 1)
    assert (round(found["accuracy"]["low"], 3), round(found["accuracy"]["high"], 3)) == (0.208, 0.939)
    assert found["calls_per_verdict"] == 1.0
    assert (found["program_errors"]["count"], found["program_errors"]["n"]) == (1, 3)
    assert found["families"]["starts"]["accuracy"]["n"] == 1
    assert found["families"]["ends"]["accuracy"]["rate"] == 0.5
    assert found["domains"]["safety"]["accuracy"]["count"] == 1


def test_the_printed_line_has_count_and_interval() -> None:
    assert lines(summary(ANSWERS)) == [
        "tir-pairwise: 66.7% [20.8%, 93.9%], n = 3; program errors 33.3% [6.1%, 79.2%], n = 3; "
        "1.00 calls per verdict"
    ]
