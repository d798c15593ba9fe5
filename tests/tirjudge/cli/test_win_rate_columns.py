"""`tirjudge score FILE --column sources=...`: win rates of the files of arena-hard-auto and MT-bench."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.cli.test_eval_inputs import figures, lines, records, refused

ARENA_HARD = (
    *("--column", "id=uid", "--column", "domain=category", "--column", "sources=baseline,model"),
    *("--column", "prediction=games.0.score", "--column", "place_swapped=games.1.score"),
)
MT_BENCH = (
    *("--column", "id=question_id", "--column", "sources=model_1,model_2", "--labels"),
    "model_1=A,model_2=B,tie=tie,error=none",
    *("--column", "prediction=g1_winner", "--column", "prediction_swapped=g2_winner"),
)


def games(model: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows as arena-hard-auto's gen_judgment.py writes them; the baseline is A in the first game."""
    draw = random.Random(seed)
    levels = ["A>>B", "A>B", "A=B", "B>A", "B>>A", None]
    return [
        {"uid": f"u{n}", "category": draw.choice(["hard_prompt", "creative_writing"]), "judge": "j"}
        | {"model": model, "baseline": "b", "games": [{"score": draw.choice(levels)} for _ in range(2)]}
        for n in range(count)
    ]


def battles(rows: list[dict[str, Any]]) -> list[float]:
    """Return the model's scores in all games, as show_result.py counts them: three for a much better one."""
    found: list[float] = []
    for row in rows:
        first, second = (one["score"] for one in row["games"])
        if first is None or second is None:
            continue
        for score, model in ((first, "B"), (second, "A")):
            if "=" in score:
                found.append(0.5)
            else:
                found += [float(score[0] == model)] * (3 if ">>" in score else 1)
    return found


def test_arena_hards_games_give_its_score(tmp_path: Path) -> None:
    rows = games("m", 200, seed=1)
    run = lines(tmp_path / "run.jsonl", rows)
    found = figures("arena-hard", run, *ARENA_HARD)
    scores = battles(rows)
    assert found["win rate of m"] == pytest.approx(sum(scores) / len(scores))
    assert found["win rate of b"] == pytest.approx(1 - found["win rate of m"])
    for category in ("hard_prompt", "creative_writing"):
        own = battles([row for row in rows if row["category"] == category])
        assert found[f"m, {category}"] == pytest.approx(sum(own) / len(own))
    (record,) = records("score", run, *ARENA_HARD, "--protocol", "arena-hard")
    complete = sum(all(one["score"] for one in row["games"]) for row in rows)
    assert record["figures"]["win rate of m"]["n"] == complete
    assert "who_won" not in record


def test_several_models_have_a_score_each(tmp_path: Path) -> None:
    runs = {name: games(name, 60, seed) for seed, name in enumerate(["m1", "m2"])}
    files = [lines(tmp_path / f"{name}.jsonl", rows) for name, rows in runs.items()]
    by_both = [*ARENA_HARD[:1], "id=uid+model", *ARENA_HARD[2:], "--cluster", "uid"]
    found = figures("arena-hard", *files, *by_both)
    for name, rows in runs.items():
        assert found[f"win rate of {name}"] == pytest.approx(sum(battles(rows)) / len(battles(rows)))


def test_levels_may_be_numbers(tmp_path: Path) -> None:
    """A scale from 1 to 5: two much better verdicts for B and one better for A are 6 games to 1."""
    rows = [{"said": said, "who": ["x", "y"]} for said in (5, 2, 5, 3)]
    run = lines(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=said", "--column", "sources=who")
    meaning = ("--labels", "1=A>>B,2=A>B,3=tie,4=B>A,5=B>>A")
    assert figures("arena-hard", run, *words, *meaning)["win rate of y"] == pytest.approx(6.5 / 8)
    assert figures("win-rate", run, *words, *meaning)["win rate of y"] == pytest.approx(2.5 / 4)


def test_mt_benchs_games_give_the_adjusted_win_rate(tmp_path: Path) -> None:
    """FastChat, show_result.py: a pair whose games differ, or of which one is a tie, is half a win each."""
    pairs = [("model_1", "model_1")] * 5 + [("model_2", "model_2")] * 2 + [("model_1", "tie")] * 3
    pairs += [("model_1", "model_2"), ("tie", "tie"), ("error", "model_1")]
    rows = [
        {"question_id": n, "model_1": "alpha", "model_2": "beta", "g1_winner": one, "g2_winner": other}
        for n, (one, other) in enumerate(pairs)
    ]
    found = figures("win-rate", lines(tmp_path / "pair.jsonl", rows), *MT_BENCH)
    assert found["win rate of alpha"] == pytest.approx((5 + 0.5 * 5) / 12)


@pytest.mark.parametrize("lost", [None, {}, {"score": None}, "gone"])
@pytest.mark.parametrize("place", [0, 7, 199])
def test_a_game_that_is_null_or_missing_leaves_its_row_out(tmp_path: Path, lost: Any, place: int) -> None:
    """arena-hard-auto's show_result.py counts such rows and goes on; so does MT-bench's for an error."""
    rows = games("m", 200, seed=1)
    rows[place]["games"][1:] = [] if lost == "gone" else [lost]
    scores = battles([row for number, row in enumerate(rows) if number != place])
    run = lines(tmp_path / "run.jsonl", rows)
    assert figures("arena-hard", run, *ARENA_HARD)["win rate of m"] == pytest.approx(
        sum(scores) / len(scores)
    )
    pairs = [
        {"question_id": n, "model_1": "alpha", "model_2": "beta", "g1_winner": "model_1", "g2_winner": "tie"}
        for n in range(200)
    ]
    del pairs[place]["g2_winner"]
    pair = lines(tmp_path / "pair.jsonl", pairs)
    (record,) = records("score", pair, *MT_BENCH, "--protocol", "win-rate")
    assert record["figures"]["win rate of alpha"]["n"] == 199


def test_a_game_that_no_row_has_is_an_error(tmp_path: Path) -> None:
    run = lines(tmp_path / "run.jsonl", games("m", 3, seed=1))
    wrong = [word.replace("games.1.score", "games.2.score") for word in ARENA_HARD]
    assert f"{run}:1: no column 'games.2.score' (named as place_swapped)" in refused("score", run, *wrong)


@pytest.mark.parametrize(
    ("fields", "words", "reason"),
    [
        ({"who": ["x"]}, ["sources=who"], 'who is ["x"], not a list of 2'),
        ({"who": "x"}, ["sources=who"], 'who is "x", not a list of 2'),
        ({}, ["sources=who"], "no column 'who' (named as sources)"),
        ({"a": "x", "b": -1}, ["responses=a,b"], "a,b is -1, neither a text nor its length"),
    ],
)
def test_wrong_sources_are_named(
    tmp_path: Path, fields: dict[str, Any], words: list[str], reason: str
) -> None:
    run = lines(tmp_path / "run.jsonl", [{"said": "A"} | fields])
    options = [part for word in ["prediction=said", *words] for part in ("--column", word)]
    assert f"{run}:1: {reason}" in refused("score", run, *options)
