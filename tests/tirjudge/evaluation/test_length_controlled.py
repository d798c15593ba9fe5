"""Win rates at equal length, beside the linear models of statsmodels and alpaca_eval's formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval_inputs import array, figures, lines, records
from tirjudge.evaluation.judged_rows import JudgedRow, Preference, Units, Unscorable
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.statistics.estimators import Fitted

PANDALM = "pandalm/testset-v1.json"
LENGTH = "length-controlled"
Values = NDArray[np.float64]


def length(text: Any) -> int:
    return len(text if isinstance(text, str) else json.dumps(text))


def design(apart: Values) -> Values:
    return np.column_stack([np.tanh(apart / apart.std(ddof=1)), np.ones(len(apart))])


def share(odds: float) -> float:
    return float(1 / (1 + np.exp(-odds)))


def pandalm() -> tuple[list[dict[str, Any]], Values, Values]:
    """Return the rows of PandaLM's test set, the wins of the second response, and how much it is shorter."""
    rows = json.loads(benchmark_file(PANDALM).read_text())
    wins = np.array([{1: 0.0, 2: 1.0, 0: 0.5}[row["annotator1"]] for row in rows])
    apart = np.array([length(row["response1"]) - length(row["response2"]) for row in rows], dtype=float)
    return rows, wins, apart


def test_columns_of_pandalm_give_the_constant_of_statsmodels(tmp_path: Path) -> None:
    rows, wins, apart = pandalm()
    fitted = sm.GLM(wins, design(apart), family=sm.families.Binomial()).fit(cov_type="HC0")
    kept = [{name: row[name] for name in ("response1", "response2", "annotator1")} for row in rows]
    options = ("--column", "prediction=annotator1", "--labels", "1=A,2=B,0=tie")
    options = (*options, "--column", "responses=response1,response2", "--protocol", LENGTH)
    (record,) = records("score", lines(tmp_path / "run.jsonl", kept), *options)
    found = record["figures"]["length-controlled win rate of response2"]
    constant, error = fitted.params[1], fitted.bse[1]
    assert found["value"] == pytest.approx(share(constant), abs=1e-7)
    assert found["low"] == pytest.approx(share(constant - 1.959963984540054 * error), abs=1e-6)
    assert found["high"] == pytest.approx(share(constant + 1.959963984540054 * error), abs=1e-6)
    other = record["figures"]["length-controlled win rate of response1"]
    assert other["value"] == pytest.approx(1 - found["value"])
    assert [other["low"], other["high"]] == pytest.approx([1 - found["high"], 1 - found["low"]])


def test_lengths_may_be_numbers_and_places_may_change(tmp_path: Path) -> None:
    rows, _, apart = pandalm()
    turned = []
    for number, row in enumerate(rows):
        sizes, said = [length(row["response1"]), length(row["response2"])], row["annotator1"]
        names = ["one", "two"]
        if number % 3 == 1:
            sizes, names, said = sizes[::-1], names[::-1], {0: 0, 1: 2, 2: 1}[said]
        turned.append({"sizes": sizes, "names": names, "said": said})
    options = ("--column", "prediction=said", "--labels", "1=A,2=B,0=tie", "--column", "responses=sizes")
    found = figures(LENGTH, lines(tmp_path / "run.jsonl", turned), *options, "--column", "sources=names")
    fitted = sm.GLM(pandalm()[1], design(apart), family=sm.families.Binomial()).fit()
    assert found["length-controlled win rate of two"] == pytest.approx(share(fitted.params[1]), abs=1e-7)


def annotations(rows: list[dict[str, Any]], seed: int, model: str, **more: Values) -> list[dict[str, Any]]:
    """Return alpaca_eval's annotations of a model, with preferences between the classes, as weights give."""
    draw = np.random.default_rng(seed)
    wins = {1: 1.1, 2: 1.9, 0: 1.5}
    return [
        {
            "instruction": f"{number} {row['instruction']}",
            "generator_1": "gpt4",
            "generator_2": model,
            "output_1": str(row["response1"]),
            "output_2": str(row["response2"]) + "." * int(draw.integers(0, 50)),
            "preference": float(np.clip(wins[row["annotator1"]] + draw.normal(0, 0.1), 1.01, 2)),
            **{name: float(values[number]) for name, values in more.items()},
        }
        for number, row in enumerate(rows)
    ]


def published(rows: list[dict[str, Any]], gamed: list[list[dict[str, Any]]]) -> float:
    """Return the length-controlled win rate by the published formula, step by step, with its penalty.

    alpaca_eval, metrics/glm_winrate.py: tanh of the standardized difference of lengths, the difficulty of the
    instruction, and 1 for rows that are not of gamed baselines, which weigh 0.2 divided by their number;
    rows count as a win and as a loss, and the penalty is the absolute value with C = 100.
    """

    def features(one: list[dict[str, Any]], constant: float) -> Values:
        apart = np.array([len(row["output_1"]) - len(row["output_2"]) for row in one], dtype=float)
        difficulty = np.array([row["instruction_difficulty"] for row in one])
        return np.column_stack([np.tanh(apart / apart.std(ddof=1)), difficulty, np.full(len(one), constant)])

    own = features(rows, 1.0)
    found = np.vstack([own, *(features(one, 0.0) for one in gamed)])
    wins = np.array([row["preference"] - 1 for one in [rows, *gamed] for row in one])
    weights = np.array([1.0] * len(rows) + [0.2 / max(1, len(gamed))] * (len(wins) - len(rows)))
    model = LogisticRegression(
        C=100, l1_ratio=1, solver="liblinear", fit_intercept=False, tol=1e-8, random_state=123
    )
    model.fit(
        np.vstack([found, found]),
        np.repeat([1, 0], len(wins)),
        sample_weight=np.concatenate([wins, 1 - wins]) * np.tile(weights, 2),
    )
    own[:, 0] = 0
    return float(model.predict_proba(own)[:, 1].mean())


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("with_gamed", [False, True])
def test_annotations_with_difficulty_give_alpaca_evals_figure(tmp_path: Path, with_gamed: bool) -> None:
    rows = pandalm()[0][:400]
    difficulty = np.random.default_rng(0).normal(0, 1, len(rows))
    own = annotations(rows, 1, "m", instruction_difficulty=difficulty)
    # The gamed baselines lose where the second response wins, so that their weight matters.
    lost = [row | {"annotator1": {0: 0, 1: 2, 2: 1}[row["annotator1"]]} for row in rows]
    names = ["gpt4_concise", "gpt4_verbose"] if with_gamed else []
    gamed = [
        annotations(lost, 2 + n, name, instruction_difficulty=difficulty) for n, name in enumerate(names)
    ]
    files = [array(tmp_path / f"{n}.json", one) for n, one in enumerate([own, *gamed])]
    found = figures(LENGTH, *files)
    value = found["length-controlled win rate of m" if with_gamed else "length-controlled win rate"]
    assert value == pytest.approx(published(own, gamed), abs=5e-4)
    assert (len(found) == 3) is with_gamed


def test_two_models_of_alpaca_eval_are_compared_in_pairs(tmp_path: Path) -> None:
    rows = pandalm()[0][:300]
    files = [array(tmp_path / f"{name}.json", annotations(rows, n, name)) for n, name in enumerate("xy")]
    one, other = (figures(LENGTH, file)["length-controlled win rate"] for file in files)
    (record,) = records("compare", *files, "--protocol", LENGTH)
    found = record["differences"]["length-controlled win rate"]
    assert found["value"] == pytest.approx(other - one)
    # The two runs differ by a few characters and small noise, so that a pair's errors cancel.
    assert found["low"] < found["value"] < found["high"] < found["low"] + 0.05


def fitted(wins: Values, lengths: Values) -> float:
    protocol = open_protocol(LENGTH)
    rows = [
        JudgedRow(
            id=str(number),
            votes=(),
            preference=Preference(1 + win, "b"),
            lengths=(100, 100 + int(more)),
            tags=("model=m",),
        )
        for number, (win, more) in enumerate(zip(wins, lengths, strict=True))
    ]
    units: Units = protocol.units(rows)
    (figure,) = protocol.figures(units).values()
    assert isinstance(figure, Fitted)
    return figure.value


def test_what_lengths_or_wins_alone_decide_has_no_figure() -> None:
    lengths = np.arange(60) - 30.0
    for wins, apart, reason in (
        (lengths > 0, lengths, "lengths alone"),
        (np.ones(60), lengths, "one source wins all rows"),
        (np.arange(5) % 2, lengths[:5], "fewer than 30 rows"),
    ):
        with pytest.raises(Unscorable, match=reason):
            fitted(wins.astype(float), apart)
    assert fitted((np.arange(60) % 3 == 0).astype(float), np.zeros(60)) == pytest.approx(1 / 3)


def test_figures_name_their_sources_whichever_row_comes_last() -> None:
    draw = np.random.default_rng(0)
    rows = [
        JudgedRow(
            id=str(number),
            votes=(),
            sources=("one", "two"),
            verdict=(int(draw.integers(2)),),
            lengths=(100, 100 + int(draw.integers(-40, 40))),
        )
        for number in range(60)
    ]
    protocol = open_protocol(LENGTH)
    left_out = JudgedRow(id="last", votes=())
    for order in ([*rows, left_out], [left_out, *rows]):
        assert set(protocol.figures(protocol.units(order))) == {
            "length-controlled win rate of one",
            "length-controlled win rate of two",
        }
