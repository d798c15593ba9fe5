"""Win rates at equal length: the logistic regression of alpaca_eval 2 (Dubois et al. 2024)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import (
    MODEL,
    Figures,
    JudgedRow,
    ProtocolCard,
    Units,
    Unscorable,
    decision,
)
from tirjudge.evaluation.scoring import UnitsBuilder
from tirjudge.statistics.estimators import Fitted

Values = NDArray[np.float64]
LENGTH_CONTROLLED = "length-controlled win rate"
"""A figure's name; ` of ` and a source follow where there are several."""
_GAMED_WEIGHT = 0.2
"""Weight of all rows in which the baseline meets itself, told to be concise or verbose, in units of rows."""
_LARGEST = 20.0
"""A coefficient beyond this one belongs to a fit that does not exist: lengths tell wins from losses."""
_NO_FIT = "one source wins all rows or is always the longer one, or lengths alone tell the winner"
_LEAST_ROWS = 30


class LengthControlled:
    """Win rates that are expected if both responses had the same length.

    The chance of a win is logistic in tanh(difference of lengths / its standard deviation), a constant and,
    if every row has it, the difficulty of its instruction. The difference is then set to 0. A unit has the
    win of a model, the lengths of the baseline's and its response, the difficulty and the model's number.
    """

    card = ProtocolCard(
        name="length-controlled",
        about="win rate against a baseline that is expected at equal lengths, by logistic regression on the "
        "difference of lengths",
        ties="are worth 0.5",
        failures="leave the row out",
        source="alpaca_eval 2, metrics/glm_winrate.py (Dubois et al. 2024)",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        numbers: dict[str, int] = {}
        pairs, named = array("q"), False
        for row in rows:
            sources, named = _sources(row), named or bool(row.sources)
            win, difficulty = _win(row), None if row.preference is None else row.preference.difficulty
            paired = len(sources) == len(set(sources)) == len(row.lengths) == 2
            if not paired or np.isnan(win) or row.left_open:
                reason = "no verdict" if paired else "no two sources, or no lengths of their responses"
                builder.counts[f"left out: {reason}"] += 1
                continue
            builder.counts["tie"] += win == 0.5
            pairs.extend(numbers.setdefault(name, len(numbers)) for name in sources)
            # Models may have answered the same instructions.
            id = row.id if named or pairs[-1] == pairs[1] else f"{row.id} by {sources[1]}"
            hardness = np.nan if difficulty is None else difficulty
            builder.add(id, "", win, *row.lengths, hardness, 0, cluster=row.cluster)
        units = builder.build()
        names, values = _against_baseline(list(numbers), np.array(pairs).reshape(-1, 2), units.values)
        return replace(units, values=values, names=tuple(names) if named or len(names) > 2 else ())

    def figures(self, units: Units) -> Figures:
        models = units.values[:, -1].astype(int)
        gamed = [number for number, name in enumerate(units.names) if _is_gamed(name, units.names[0])]
        found = {
            number: _controlled(units.values, models, number, gamed) for number in np.unique(models).tolist()
        }
        if all(one.fault for one in found.values()):
            raise Unscorable(next(iter(found.values())).fault)
        if not units.names:
            return {LENGTH_CONTROLLED: found[1]}
        if len(units.names) == 2:  # what the model does not win, the baseline does
            found[0] = replace(found[1], value=1 - found[1].value, errors=-found[1].errors)
        rates = sorted(found.items(), key=lambda pair: -pair[1].value)
        return {f"{LENGTH_CONTROLLED} of {units.names[number]}": one for number, one in rates}


LENGTH_CONTROLLED_PROTOCOL = LengthControlled()


def _sources(row: JudgedRow) -> tuple[str, ...]:
    """Return the baseline and the model of alpaca_eval, or else the sources of the responses."""
    if row.preference is not None:
        return row.preference.baseline, row.tag(MODEL) or "model"
    return row.sources


def _win(row: JudgedRow) -> float:
    """Return the win of the second source; nan without a verdict."""
    if row.preference is not None:
        return np.nan if row.preference.value is None else row.preference.value - 1
    best = decision(row)
    return (1 in best) / len(best) if best else np.nan


def _against_baseline(names: list[str], pairs: NDArray[np.intp], values: Values) -> tuple[list[str], Values]:
    """Return the names of the baseline and the models, and the units seen from each model.

    The baseline is the source that all pairs have, the first of two. Raises Unscorable without one.
    """
    common = set(pairs[0].tolist()).intersection(*map(set, np.unique(pairs, axis=0).tolist()))
    if not common:
        raise Unscorable("the sources have no baseline in common, which every pair has")
    baseline = min(common)
    order = [baseline, *(number for number in range(len(names)) if number != baseline)]
    swapped = pairs[:, 1] == baseline
    win, first, second, difficulty, _ = values.T
    seen = np.where(swapped, 1 - win, win), np.where(swapped, second, first), np.where(swapped, first, second)
    model = np.argsort(order)[np.where(swapped, pairs[:, 0], pairs[:, 1])]
    return [names[number] for number in order], np.column_stack([*seen, difficulty, model])


def _is_gamed(name: str, baseline: str) -> bool:
    """Return True for the baseline under another prompt, as `gpt4_1106_preview_concise`."""
    return bool(baseline) and name.startswith(f"{baseline}_")


def _controlled(values: Values, models: NDArray[np.intp], number: int, gamed: list[int]) -> Fitted:
    """Return the win rate of a model at equal lengths.

    Rows in which the baseline meets itself under another prompt hold the coefficient of the length near the
    value at which they are draws apart from their lengths, with a small weight and without the constant.
    """
    own = np.flatnonzero(models == number)
    win, features = values[own, 0], _features(values, own)
    weights, held = np.ones(len(own)), [np.flatnonzero(models == one) for one in gamed]
    for places in held:
        win = np.append(win, values[places, 0])
        others = _features(values, places)
        others[:, -1] = 0
        features = np.vstack([features, others])
        weights = np.append(weights, np.full(len(places), _GAMED_WEIGHT / len(held)))
    if np.isnan(features).any():
        features = np.delete(features, 1, axis=1)
    nothing = np.zeros(len(values))
    if len(own) < _LEAST_ROWS:
        return Fitted(np.nan, len(own), nothing, f"fewer than {_LEAST_ROWS} rows")
    coefficients = _logistic(features, win, weights)
    if not np.isfinite(coefficients).all() or abs(coefficients).max() > _LARGEST:
        return Fitted(np.nan, len(own), nothing, _NO_FIT)
    expected = 1 / (1 + np.exp(-features @ coefficients))
    level = features[: len(own)] * ([0] + [1] * (features.shape[1] - 1))
    chances = 1 / (1 + np.exp(-level @ coefficients))
    value = float(chances.mean())
    # What a row adds to the coefficients is its score times the inverse information.
    information = features.T @ (features * (weights * expected * (1 - expected))[:, None])
    slope = level.T @ (chances * (1 - chances)) / len(own)
    added = (features * (weights * (win - expected))[:, None]) @ (np.linalg.pinv(information) @ slope)
    errors = np.zeros(len(values))
    np.add.at(errors, np.concatenate([own, *held]), added)
    errors[own] += (chances - value) / len(own)
    return Fitted(value, len(own), errors)


def _features(values: Values, places: NDArray[np.intp]) -> Values:
    """Return the length, the difficulty and the constant of the rows of one model, in three columns."""
    apart = values[places, 1] - values[places, 2]
    spread = float(apart.std(ddof=1)) if len(places) > 1 else 0.0
    length = np.tanh(apart / spread) if spread else np.zeros(len(places))
    return np.column_stack([length, values[places, 3], np.ones(len(places))])


def _logistic(features: Values, win: Values, weights: Values) -> Values:
    """Return the coefficients of a weighted logistic regression without a penalty, by scikit-learn.

    Raises Unscorable, in one line, without scikit-learn.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ModuleNotFoundError:
        raise Unscorable(
            "a logistic regression needs the extra `eval`: pip install 'tirjudge[eval]'"
        ) from None
    # Each row counts as a win and as a loss, with the shares of both as weights: a preference may be 0.7.
    model = LogisticRegression(C=_NO_PENALTY, fit_intercept=False, solver="newton-cholesky", tol=1e-10)
    shares = np.concatenate([win, 1 - win]) * np.tile(weights, 2)
    model.fit(np.vstack([features, features]), np.repeat([1, 0], len(win)), sample_weight=shares)
    coefficients: Values = model.coef_[0]
    return coefficients


_NO_PENALTY = 1e9
"""scikit-learn's inverse of the penalty on squared coefficients."""
