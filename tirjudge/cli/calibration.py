"""`tirjudge score --calibrate`: agreement with people, variance, and the risk of kept verdicts, printed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge.cli.output import console, figures_table
from tirjudge.console_text import printable
from tirjudge.evaluation.alternative_annotators import PASSES, AlternativeTest, alternative_test
from tirjudge.evaluation.calibration import (
    JUDGE,
    MAJORITY,
    Agreement,
    BaseRates,
    CalibratedRow,
    CalibratedRows,
    Curve,
    Point,
    Reliability,
    Variance,
    Verified,
    agreements,
    alphas,
    base_rates,
    chosen_and_verified,
    curve,
    labelled,
    reliability,
    variances,
    with_reruns,
)
from tirjudge.evaluation.people import PeopleLabels
from tirjudge.evaluation.prediction_powered import Corrected, corrected
from tirjudge.evaluation.protocols.agreement import KAPPA
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.judging.abstention import ABOUT
from tirjudge.records.verdicts import Confidence
from tirjudge.statistics.printed import bounds_record, estimated, estimated_percent, percent
from tirjudge.statistics.proportions import Proportion

_SHOWN_POINTS = 11
"""Points of a curve that are printed without --full."""
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything that `--calibrate` measures."""

    run: str
    confidence: Confidence
    counts: Counter[str]
    rows: int
    agreements: list[Agreement]
    alphas: dict[str, tuple[float, tuple[float, float]]]
    rates: list[BaseRates]
    variances: list[Variance]
    curve: Curve
    verified: Verified | None
    corrected: list[Corrected]
    """Means over all rows, if people labelled only some rows."""
    alternative: AlternativeTest | None
    """None for fewer than three annotators with enough rows."""
    reliability: Reliability | None
    """None for a confidence that is no share."""

    @property
    def reached(self) -> bool:
        """False if a target was given that no threshold reaches, or that the second half does not confirm."""
        return self.verified is None or self.verified.holds


def calibrated(
    run: Replay,
    *,
    labels: Path,
    confidence: Confidence,
    target_risk: float | None,
    reruns: Sequence[Replay],
    meaning: dict[str, str] | None,
    seed: int,
) -> Calibration:
    """Measure a run. Raises ValueError, in one line, for labels and runs that cannot be measured."""
    if target_risk is not None and not 0 <= target_risk < 1:
        raise ValueError(f"--target-risk {target_risk:g}: a share from 0 to below 1, such as 0.1")
    people, counts = PeopleLabels(labels, meaning, run.join), Counter[str]()
    again = [{(row.domain, row.id): row for row in one} for one in reruns]
    rows_of = with_reruns(run.with_rows(), again, counts) if again else run.with_rows()
    found = CalibratedRows.of(rows_of, people, confidence, run.name)
    rows = labelled(found.rows)
    if not rows:
        raise ValueError(f"{people.name}: the annotators of no row agree on a majority")
    return Calibration(
        run=run.name,
        confidence=confidence,
        counts=found.counts + counts,
        rows=len(found.rows),
        agreements=agreements(found.rows, found.annotators),
        alphas=alphas(found.rows, found.annotators),
        rates=base_rates(found.rows, found.annotators),
        variances=variances(rows),
        curve=_curve(rows, confidence, seed),
        verified=None if target_risk is None else chosen_and_verified(rows, target_risk, seed=seed),
        corrected=corrected(rows, found.unlabelled),
        alternative=alternative_test(found.rows, found.annotators),
        reliability=reliability(rows) if confidence == "vote-share" else None,
    )


def _curve(rows: Sequence[CalibratedRow], confidence: Confidence, seed: int) -> Curve:
    try:
        return curve(rows, seed=seed)
    except ValueError:
        hints = {
            "vote-share": "no row has a verdict",
            "margin": "the judge gives no scores; choose another --confidence",
            "evidence": "no row says whether a program decided it: the rows were judged without evidence",
        }
        raise ValueError(f"--confidence {confidence}: {hints[confidence]}") from None


def show(one: Calibration, *, full: bool, as_json: bool) -> None:
    """Print a calibration as JSON, or as tables, each with the line that says what it shows."""
    if as_json:
        print(json.dumps(record(one), indent=2, allow_nan=False))
        return
    _print_agreement(one)
    if one.corrected:
        _print_corrected(one.corrected)
    if one.alternative is not None:
        _print_alternative(one.alternative)
    for variance in one.variances:
        _print_variance(variance)
    _print_curve(one, full=full)
    if one.verified is not None:
        _print_verified(one.verified, one)
    left = ", ".join(f"{name} {count}" for name, count in one.counts.items() if count)
    if left:
        _say(f"rows {left}")


def _print_agreement(one: Calibration) -> None:
    judge = [pair for pair in one.agreements if pair.first == JUDGE]
    named = next((pair for pair in judge if pair.second == MAJORITY), judge[0])
    _say(
        f"kappa {_interval(named.kappa, named.interval)} of the judge with {named.second}, "
        f"{KAPPA.card.order}, n = {named.agreement.n} ({one.run})"
    )
    _table(
        ("raters", "agreement", "by chance", "kappa", "n"),
        [
            (
                f"{pair.first}, {pair.second}",
                _share(pair.agreement),
                percent(pair.by_chance),
                "not defined: one class" if math.isnan(pair.kappa) else _interval(pair.kappa, pair.interval),
                str(pair.agreement.n),
            )
            for pair in one.agreements
        ],
    )
    for raters, (value, interval) in one.alphas.items():
        _say(f"Krippendorff's alpha {_interval(value, interval)} of {raters}")
    classes = list(dict.fromkeys(name for rates in one.rates for name in rates.shares))
    _table(
        ("base rates", *classes, "n"),
        [
            (rates.rater, *(percent(rates.shares.get(name, 0.0)) for name in classes), str(rates.n))
            for rates in one.rates
        ],
    )


def _print_corrected(found: Sequence[Corrected]) -> None:
    first = found[0]
    _say(
        f"{first.name} {estimated_percent(first.value, *first.interval)} if people had judged all "
        f"{first.labelled + first.unlabelled} rows, from {first.labelled} labels and the judge's verdicts "
        "(PPI++)"
    )
    _table(
        ("over all rows", "the judge", "people, labelled rows", "corrected", "weight"),
        [
            (
                one.name,
                estimated_percent(one.judge, *one.judge_interval),
                estimated_percent(one.people, *one.people_interval),
                estimated_percent(one.value, *one.interval),
                f"{one.weight:.2f}",
            )
            for one in found
        ],
    )
    for fault in dict.fromkeys(one.fault for one in found if one.fault):
        names = ", ".join(one.name for one in found if one.fault == fault)
        _say(f"no interval of {names}: {fault}")


def _print_alternative(one: AlternativeTest) -> None:
    _say(
        f"may the judge replace people? rho {_share(one.advantage)}: it agrees with the other annotators at "
        f"least as well as the annotator who is left out, n = {one.advantage.n}"
    )
    _table(
        ("epsilon", "omega", "may replace them"),
        [
            (f"{epsilon:g}", f"{omega:.2f}", "yes" if omega >= PASSES else "not shown")
            for epsilon, omega in one.wins.items()
        ],
    )


def _print_variance(one: Variance) -> None:
    _say(f"variance over {one.over}: verdicts change in {one.changed}")
    rows = [
        (f"{one.over.removesuffix('s')} {n}", _share(p), str(p.n)) for n, p in enumerate(one.accuracies, 1)
    ]
    _table(("right", "accuracy", "n"), rows)
    _say(
        f"standard deviation of the accuracies {percent(one.deviation)}, "
        f"{percent(one.expected_deviation)} if repetitions of a row are independent"
    )


def _print_curve(one: Calibration, *, full: bool) -> None:
    found = one.curve
    _say(f"confidence {one.confidence}: {ABOUT[one.confidence]}")
    _say(
        f"AURC {_interval(found.aurc, found.interval)}, n = {found.ordered}; "
        f"{found.random:.4g} for a confidence that says nothing, {found.best:.4g} for the best one"
    )
    if found.is_constant:
        _say(f"every verdict has the same {one.confidence}, which cannot order them")
    if one.reliability is not None:
        _say(
            f"Brier score {_interval(one.reliability.brier, one.reliability.brier_interval)}, "
            f"expected calibration error {one.reliability.error:.4g} (no interval: noise raises it)"
        )
    points = found.points if full else _spread(found.points)
    _table(
        ("keep from", "coverage", "risk", "kept", "of"),
        [
            (
                *(_threshold(one.threshold), _share(one.coverage), _share(one.risk)),
                *(f"{one.coverage.successes:.0f}", str(one.coverage.n)),
            )
            for one in points
        ],
    )
    if len(points) < len(found.points):
        _say(f"{len(points)} of {len(found.points)} thresholds; --full prints all of them")


def _print_verified(one: Verified, measured: Calibration) -> None:
    target, confidence = percent(one.target), measured.confidence
    if one.chosen is None or one.verified is None:
        _say(
            f"no threshold of {confidence} has a risk on the first half whose interval ends below {target}: "
            f"the lowest is {one.lowest.risk}, from {_threshold(one.lowest.threshold)} on"
        )
        return
    threshold = _threshold(one.chosen.threshold)
    _say(
        f"threshold {threshold} of {confidence}, chosen on one half, where the interval of the risk ends "
        f"below {target} (coverage {one.chosen.coverage}; risk {one.chosen.risk})"
    )
    found = "is" if one.holds else "is not"
    _say(
        f"on the other half the risk {found} below it: {one.verified.risk}; coverage {one.verified.coverage}"
    )
    if one.chosen.threshold > 0:
        how = ""
        if confidence == "vote-share":
            # A single vote has no share, and another number of votes has other shares.
            repeated = {found.over: len(found.accuracies) for found in measured.variances}
            how += " --order both" if "orders" in repeated else ""
            how += f" --samples {repeated['reruns']}" if "reruns" in repeated else ""
        _say(f"tirjudge judge ROWS{how} --abstain-below {threshold} --confidence {confidence}")
    else:
        _say("no verdict needs to be left open")


def record(one: Calibration) -> dict[str, Any]:
    """Return a calibration as JSON values; shares from 0 to 1, null for unknown ones."""
    verified = one.verified
    return {
        "run": one.run,
        "rows": one.rows,
        "counts": dict(one.counts),
        "agreement": [
            {
                "raters": [pair.first, pair.second],
                "agreement": pair.agreement.record(),
                "by_chance": pair.by_chance,
                "kappa": {**bounds_record(pair.kappa, *pair.interval), "n": pair.agreement.n},
            }
            for pair in one.agreements
        ],
        "alpha": {
            raters: bounds_record(value, *interval) for raters, (value, interval) in one.alphas.items()
        },
        "base_rates": {rates.rater: {**rates.shares, "n": rates.n} for rates in one.rates},
        "variance": {
            variance.over: {
                "accuracies": [one.record() for one in variance.accuracies],
                "deviation": variance.deviation,
                "expected_deviation": variance.expected_deviation,
                "changed": variance.changed.record(),
            }
            for variance in one.variances
        },
        "confidence": one.confidence,
        "aurc": {
            **bounds_record(one.curve.aurc, *one.curve.interval),
            "n": one.curve.ordered,
            "random": one.curve.random,
            "best": one.curve.best,
        },
        "curve": list(map(_point, one.curve.points)),
        "brier": one.reliability
        and {**bounds_record(one.reliability.brier, *one.reliability.brier_interval), "n": one.reliability.n},
        "calibration_error": one.reliability and one.reliability.error,
        "corrected": {
            found.name: {
                **bounds_record(found.value, *found.interval),
                "n": found.labelled,
                "unlabelled": found.unlabelled,
                "weight": found.weight,
                "judge": bounds_record(found.judge, *found.judge_interval),
                "people": bounds_record(found.people, *found.people_interval),
            }
            | ({"no_interval": found.fault} if found.fault else {})
            for found in one.corrected
        },
        "alternative_annotator_test": None
        if one.alternative is None
        else {
            "annotators": list(one.alternative.annotators),
            "rho": one.alternative.advantage.record(),
            "omega": {f"{epsilon:g}": omega for epsilon, omega in one.alternative.wins.items()},
        },
        "threshold": None
        if verified is None
        else {
            "target_risk": verified.target,
            "chosen": verified.chosen and _point(verified.chosen),
            "verified": verified.verified and _point(verified.verified),
            "lowest": _point(verified.lowest),
            "holds": verified.holds,
        },
    }


def _spread(points: Sequence[Point]) -> list[Point]:
    """Return a few points, spread over the coverage, with the first and the last one."""
    if len(points) <= _SHOWN_POINTS:
        return list(points)
    wanted = [number / (_SHOWN_POINTS - 1) for number in range(_SHOWN_POINTS)]
    ends = points[0].coverage.rate, points[-1].coverage.rate
    aims = [ends[0] + share * (ends[1] - ends[0]) for share in wanted]
    near = {min(points, key=lambda one: abs(one.coverage.rate - aim)).threshold for aim in aims}
    return [one for one in points if one.threshold in near]


def _point(one: Point) -> dict[str, Any]:
    return {"threshold": one.threshold, "coverage": one.coverage.record(), "risk": one.risk.record()}


def _threshold(value: float) -> str:
    """Return a threshold, rounded down: the verdicts that it keeps are kept by its digits as well."""
    digits = f"{math.floor(value * 10**_DIGITS) / 10**_DIGITS:.{_DIGITS}f}"
    return digits.rstrip("0").rstrip(".")


def _share(one: Proportion) -> str:
    return estimated_percent(one.rate, *one.interval) if one.n else "-"


def _interval(value: float, interval: tuple[float, float]) -> str:
    return estimated(value, *interval, ".4g")


def _say(line: str) -> None:
    print(printable(line))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console().print(figures_table(heads, rows))
    print()
