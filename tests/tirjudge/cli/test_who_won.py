"""Who won: rows without labels whose responses come from named columns or name their sources."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import choix
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels import api

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval_inputs import result
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, results, through, write_rows
from tirjudge.evaluation.judged_rows import JudgedRow, Unscorable, Vote
from tirjudge.evaluation.protocols.win_rate import WIN_RATE
from tirjudge.evaluation.scoring import score
from tirjudge.evaluation.stored_outputs.reading import open_results
from tirjudge.evaluation.who_won import WhoWon, who_won

HABITS = ("long",) * 28 + ("short",) * 12 + ("first",) * 8
"""The longer response wins, the shorter one, or the one shown first, which is a tie over both orders."""
COLUMNS = ("--column", "prompt=question", "--column", "responses=gpt_answer,claude_answer")


def choosing(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that follows the habit that the prompt names."""
    text = body["messages"][-1]["content"]
    (habit,) = re.findall(r"Prefer (\w+)", text)[-1:]
    longer_first = text.index("a long answer") < text.index("brief")
    best = {"long": "A" if longer_first else "B", "short": "B" if longer_first else "A", "first": "A"}[habit]
    return chat(f"So <preference>{best}</preference>")


@pytest.fixture
def judged(tmp_path: Path, endpoint: EndpointServer) -> dict[str, Any]:
    """Judge 48 unlabelled rows in both orders, two rows for each prompt; return the summary."""
    endpoint.script = choosing
    rows = [
        {"question": f"{n // 2}. Prefer {habit}", "gpt_answer": "a long answer", "claude_answer": "brief"}
        for n, habit in enumerate(HABITS)
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    words = ("--pairwise", "rows.jsonl", *COLUMNS, *through(endpoint), "--no-tools", "--order", "both")
    done = judge(tmp_path, *words, "--output", "out.jsonl", code=0)
    assert "accuracy" not in done.stdout
    (tmp_path / "judged.txt").write_text(done.stdout)
    return json.loads(judge(tmp_path, *words, "--output", "out.jsonl", "--json").stdout)["who_won"]


@pytest.mark.slow
def test_every_command_names_the_columns_that_won(judged: dict[str, Any], tmp_path: Path) -> None:
    """gpt_answer is longer: it wins 28 rows of 48, loses 12 and shares 8, so that its win rate is 8 / 12.

    In a decided row one of the two verdicts names the first place, in a tie both do: 40 + 16 of 96.
    """
    first, second = judged["sources"]
    assert (first["name"], first["wins"], first["losses"], first["ties"]) == ("gpt_answer", 28, 12, 8)
    assert (second["name"], second["wins"], second["losses"], second["ties"]) == ("claude_answer", 12, 28, 8)
    assert (first["win_rate"]["value"], second["win_rate"]["value"]) == pytest.approx((8 / 12, 4 / 12))
    assert first["win_rate"]["low"] == pytest.approx(1 - second["win_rate"]["high"])
    assert first["bradley_terry"] is None
    assert judged["first_shown_wins"]["value"] == pytest.approx(14 / 24)
    assert judged["first_shown_by_chance"] == 0.5
    assert (judged["longer_wins"]["value"], judged["longer_wins"]["n"]) == (pytest.approx(0.7), 40)
    long, short = len("a long answer"), len("brief")
    assert judged["winner_characters"] == pytest.approx((7 * long + 3 * short) / 10)
    assert judged["loser_characters"] == pytest.approx((3 * long + 7 * short) / 10)
    assert judged["clusters"] == 24

    scored = next(
        one
        for one in json.loads(invoke("score", "out.jsonl", "--json", folder=tmp_path).stdout)
        if one["protocol"] == "win-rate"
    )
    assert scored["who_won"] == judged
    line = re.escape("gpt_answer 66.7% [") + r"[^\n]* of 48 rows \(28 won, 12 lost, 8 tied\)\n"
    for words in ("score", "out.jsonl"), ("show", "out.jsonl"):
        done = invoke(*words, folder=tmp_path)
        assert re.search(rf"^who won   {line}", done.stdout, re.MULTILINE), done.stdout
        assert "needs labels" not in done.stderr
        assert ("tirjudge compare out.jsonl OTHER" in done.stdout.splitlines()[-1]) == (words[0] == "score")
    said = (tmp_path / "judged.txt").read_text()
    assert re.search(line, said)
    # Two of three wins of 24 prompts: the interval decides, in the closing line, below the next commands.
    decided = first["win_rate"]["low"] > 0.5
    winner = (
        "gpt_answer: its interval lies above 50 %" if decided else "none: the interval of gpt_answer contains"
    )
    *_, following, last = said.splitlines()
    assert last.startswith(f"winner    {winner}")
    assert following.startswith(
        "next      tirjudge show out.jsonl; tirjudge report out.jsonl; tirjudge reproduce"
    )
    assert "A gpt_answer" in invoke("show", "out.jsonl", folder=tmp_path).stdout
    shown = invoke("show", "out.jsonl", "line-1", folder=tmp_path).stdout
    assert "response A (gpt_answer, chosen):" in shown
    invoke("report", "out.jsonl", "-o", "page.html", folder=tmp_path)
    page = (tmp_path / "page.html").read_text()
    sentence = "gpt_answer wins: its" if decided else "no winner: the"
    assert f'<p class="sentence">{sentence} interval' in page
    assert "<strong>gpt_answer</strong> won 28</span><span>8 tied</span><span><strong>claude_answer" in page


def test_the_next_command_is_named_only_where_it_reads_the_file(
    judged: dict[str, Any], tmp_path: Path
) -> None:
    labels = [{"id": row["id"], "label": "A"} for row in results(tmp_path / "out.jsonl")]
    write_rows(tmp_path / "labels.jsonl", labels)
    write_rows(tmp_path / "other.jsonl", [{"id": f"{n}", "said": "A", "label": "A"} for n in range(3)])
    columns = ("--column", "prediction=said", "--column", "label=label")
    own = ("out.jsonl",)
    for words in (
        own,
        (*own, "--labels", "labels.jsonl"),
        (*own, "--cluster", "id"),
        (*own, "--duplicates", "first"),
        ("other.jsonl", *columns),
    ):
        done = invoke("score", *words, folder=tmp_path, code=0)
        assert ("tirjudge compare" in done.stdout) is (words == own), words
    invoke("compare", "out.jsonl", "out.jsonl", folder=tmp_path, code=0)


@pytest.mark.slow
def test_a_run_to_standard_output_names_who_won_as_well(
    judged: dict[str, Any], endpoint: EndpointServer, tmp_path: Path
) -> None:
    words = ("--pairwise", "rows.jsonl", *COLUMNS, *through(endpoint), "--no-tools", "--order", "both")
    for further in (), ("--json",):
        done = judge(tmp_path, *words, "--output", "-", *further)
        assert len(done.stdout.splitlines()) == len(HABITS)
        if further:
            assert json.loads(done.stderr[done.stderr.index("{") :])["who_won"] == judged
        else:
            assert "who won   gpt_answer 66.7% [" in done.stderr


def test_a_judge_that_prefers_its_own_family_is_told_so(endpoint: EndpointServer, tmp_path: Path) -> None:
    endpoint.script = choosing
    rows = [
        {"prompt": f"{n}. Prefer long", "responses": ["a long answer", "brief"], "label": "AB"[n % 4 == 0]}
        | {"model_a": "Model-7B", "model_b": "other"}
        for n in range(40)
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    words = ("--pairwise", "rows.jsonl", "--column", "sources=model_a,model_b", "--no-tools")
    words += ("--model", "owner/model-x", "--base-url", endpoint.url)
    done = judge(tmp_path, *words, "--output", "out.jsonl")
    line = "own       the judge gives models whose names begin like its own +25.0 ["
    assert line in done.stdout
    assert "points of wins that labels do not give, n = 40 rows" in done.stdout
    invoke("report", "out.jsonl", "-o", "page.html", folder=tmp_path)
    assert "Own: the judge gives" in (tmp_path / "page.html").read_text()


def test_a_baseline_that_is_always_first_tells_nothing_about_the_position() -> None:
    def row(id: str, *sources: str, order: tuple[int, int]) -> JudgedRow:
        votes = (Vote(best=(0,), order=order),)
        return JudgedRow(id=id, votes=votes, sources=sources)

    rows = [row("1", "base", "new", order=(0, 1)), row("2", "base", "newer", order=(0, 1))]
    # Wins of the response shown first would be the wins of the baseline.
    fixed = WhoWon.of(score(WIN_RATE, [*rows, row("3", "new", "base", order=(1, 0))]))
    assert fixed is not None
    assert fixed.first_shown is None
    place = dict(fixed.lines())["position"]
    assert place.startswith("unknown: every source was always shown at the same place")
    moved = WhoWon.of(score(WIN_RATE, [*rows, row("3", "new", "base", order=(0, 1))]))
    assert moved is not None
    assert not moved.one_place
    assert moved.first_shown is not None


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (30, ": the judge prefers the response shown second (--order both"),
        (70, ": the judge prefers the response shown first (--order both"),
        (48, ""),
    ],
)
def test_a_judge_that_prefers_a_place_is_told_so_in_the_same_line(first: int, said: str) -> None:
    """Of 100 verdicts, so many name the response shown first."""
    rows = [
        JudgedRow(id=str(n), votes=(Vote(best=(order[n >= first],), order=order),), sources=("one", "other"))
        for n in range(100)
        for order in [(0, 1) if n % 2 else (1, 0)]
    ]
    found = WhoWon.of(score(WIN_RATE, rows))
    assert found is not None
    text = dict(found.lines())["position"]
    assert text.startswith(f"{first}.0% [")
    assert text.partition("by chance 50%")[2].startswith(said)
    assert bool(said) == bool(found.record()["preferred_place"])


def test_a_jury_has_no_family_of_its_own(tmp_path: Path) -> None:
    votes = [
        {"model": "qwen/qwen3", "verdict": "A", "samples": [0]},
        {"model": "meta/llama-3", "verdict": "A", "samples": [1]},
    ]
    alone = result("a", 0, 1) | {"verdict": "A", "sources": ["llama-1", "other"], "model": "meta/llama-3"}
    jury = alone | {"model": "qwen/qwen3, meta/llama-3", "jury": votes}
    found = [who_won(open_results(write_rows(tmp_path / "run.jsonl", [row]))) for row in (alone, jury)]
    assert [one is not None and one.own_family is not None for one in found] == [True, False]


def arena(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return pairs of four models, whose answers' lengths decide who wins with which probability."""
    rng = random.Random(seed)
    strengths = {"m0": 4.0, "m1": 2.0, "m2": 1.5, "m3": 0.5}
    rows = []
    for n in range(count):
        one, other = rng.sample(sorted(strengths), 2)
        chance = strengths[one] / (strengths[one] + strengths[other])
        habit = "first" if rng.random() < 0.1 else "long" if rng.random() < chance else "short"
        rows.append({"id": n, "prompt": f"{n}. Prefer {habit}", "responses": ["a long answer", "brief"]})
        rows[-1] |= {"model_a": one, "model_b": other}
    return rows


def independent_shares(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected shares of wins against the others, from the strengths that choix fits."""
    strengths = choix.ilsr_pairwise_dense(wins)
    chances = 1 / (1 + np.exp(strengths - strengths[:, None]))
    return (chances.sum(axis=1) - 0.5) / (len(wins) - 1)


def test_models_named_by_columns_are_ranked_as_choix_ranks_them(
    endpoint: EndpointServer, tmp_path: Path
) -> None:
    endpoint.script = choosing
    rows = arena(60)
    write_rows(tmp_path / "rows.jsonl", rows)
    words = ("--pairwise", "rows.jsonl", "--column", "sources=model_a,model_b", *through(endpoint))
    done = judge(tmp_path, *words, "--no-tools", "--order", "both", "--output", "out.jsonl", "--json")
    won = json.loads(done.stdout)["who_won"]
    names, wins, counts = ["m0", "m1", "m2", "m3"], np.zeros((4, 4)), Counter[tuple[str, str]]()
    for row in rows:
        one, other = names.index(row["model_a"]), names.index(row["model_b"])
        habit = row["prompt"].split()[-1]
        wins[one, other] += {"long": 1, "short": 0, "first": 0.5}[habit]
        wins[other, one] += {"long": 0, "short": 1, "first": 0.5}[habit]
        counts[row["model_a"], habit] += 1
        counts[row["model_b"], {"long": "short", "short": "long", "first": "first"}[habit]] += 1
    expected = dict(zip(names, independent_shares(wins), strict=True))
    for source in won["sources"]:
        name = source["name"]
        found = (source["wins"], source["losses"], source["ties"])
        assert found == tuple(counts[name, habit] for habit in ("long", "short", "first"))
        rate = (found[0] + found[2] / 2) / sum(found)
        assert source["win_rate"]["value"] == pytest.approx(rate)
        assert source["bradley_terry"]["value"] == pytest.approx(expected[name], abs=1e-6)
    assert results(tmp_path / "out.jsonl")[0]["sources"]
    ranking = [
        line for line in invoke("score", "out.jsonl", folder=tmp_path).stdout.splitlines() if ". m" in line
    ]
    best = sorted(expected, key=lambda name: -expected[name])
    assert [re.findall(r"\d\. (m\d)", line)[0] for line in ranking] == best


def rows_of(wins: list[tuple[tuple[str, ...], int]]) -> list[JudgedRow]:
    return [
        JudgedRow(
            id=str(n),
            votes=(Vote(best=(best,), order=tuple(range(len(sources)))),),
            candidates=len(sources),
            sources=sources,
        )
        for n, (sources, best) in enumerate(wins)
    ]


def test_the_ranking_of_pandalms_models_has_the_strengths_and_errors_of_statsmodels() -> None:
    """Five models by an annotator's verdicts on 999 real pairs, of which several share an instruction.

    A logistic regression without an intercept, with 1/2 for a tie, is the model of Bradley and Terry; its
    sandwich covariance takes instructions as clusters, and the delta method leads to the shares of wins.
    """
    pairs = json.loads(benchmark_file("pandalm/testset-v1.json").read_text())
    best = {0: (0, 1), 1: (0,), 2: (1,)}
    prompts = [one["instruction"] + one["input"] for one in pairs]
    rows = [
        JudgedRow(
            id=str(one["idx"]),
            votes=(Vote(best=best[one["annotator1"]], order=(0, 1)),),
            sources=tuple(one["cmp_key"].split("_")),
            cluster=prompt,
        )
        for one, prompt in zip(pairs, prompts, strict=True)
    ]
    scored = score(WIN_RATE, rows)
    names = sorted({name for one in pairs for name in one["cmp_key"].split("_")})
    design = np.zeros((len(pairs), len(names)))
    for row, one in zip(design, pairs, strict=True):
        first, second = (names.index(name) for name in one["cmp_key"].split("_"))
        row[first], row[second] = 1, -1
    wins = np.array([{0: 0.5, 1: 1, 2: 0}[one["annotator1"]] for one in pairs])
    codes = np.unique(prompts, return_inverse=True)[1]
    count = codes.max() + 1
    assert 1 < count < len(pairs)
    # The strength of the first model is 0.
    model = api.GLM(wins, design[:, 1:], family=api.families.Binomial())
    fitted = model.fit(cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False})
    strengths = np.concatenate([[0], fitted.params])
    covariance = np.zeros((len(names), len(names)))
    # The sandwich of statsmodels sums the scores of each cluster. A jackknife leaves a cluster out, so that
    # its scores count 1 / (1 - h) times, by its share h of the rows (Bell and McCaffrey 2002).
    scores = np.zeros((count, len(names) - 1))
    np.add.at(scores, codes, design[:, 1:] * (wins - fitted.fittedvalues)[:, None])
    bread = model.fit().cov_params()
    assert np.allclose(fitted.cov_params(), bread @ scores.T @ scores @ bread, rtol=1e-6)
    scores /= 1 - np.bincount(codes)[:, None] / len(codes)
    covariance[1:, 1:] = bread @ scores.T @ scores @ bread * (count - 1) / count
    chances = 1 / (1 + np.exp(strengths - strengths[:, None]))
    for place, name in enumerate(names):
        share = (chances[place].sum() - 0.5) / (len(names) - 1)
        slope = -chances[place] * (1 - chances[place]) / (len(names) - 1)
        slope[place] = -(slope.sum() - slope[place])
        error = np.sqrt(slope @ covariance @ slope) / (share * (1 - share))
        found = scored.estimates[f"Bradley-Terry {name}"]
        assert found.value == pytest.approx(share, abs=1e-6)
        # Instructions of unequal size count as n^2 / sum n_g^2, of which one degree of freedom is spent.
        freedom = len(codes) ** 2 / (np.bincount(codes) ** 2).sum() - 1
        bounds = np.log(share / (1 - share)) + np.array([-1, 1]) * stats.t.ppf(0.975, freedom) * error
        assert (found.low, found.high) == pytest.approx(tuple(1 / (1 + np.exp(-bounds))), abs=1e-5)


@pytest.mark.parametrize(
    ("judge", "file", "verdict"),
    [
        ("llama-7b", "pandalm/pandalm-7b-testset-v1.json", "pandalm_result"),
        ("opt-7b", "pandalm/gpt-3.5-turbo-testset-v1.json", "gpt_result"),
    ],
)
def test_the_preference_for_the_own_family_is_a_fitted_constant(judge: str, file: str, verdict: str) -> None:
    """Beside people on PandaLM's pairs: PandaLM-7B was made from llama-7b, whose answers are in the set.

    The mean over the pairs with a response of the family, with clusters, is a constant fitted by statsmodels.
    """
    pairs = json.loads(benchmark_file("pandalm/testset-v1.json").read_text())
    verdicts = {str(one["idx"]): one[verdict] for one in json.loads(benchmark_file(file).read_text())}
    best = {"0": (0, 1), "1": (0,), "2": (1,), "tie": (0, 1)}
    rows, differences, prompts = [], [], []
    for one in pairs:
        said, people = best.get(str(verdicts[str(one["idx"])]).strip().lower()), best[str(one["annotator1"])]
        sources, prompt = tuple(one["cmp_key"].split("_")), one["instruction"] + one["input"]
        if said is None:
            continue
        label = people[0] if len(people) == 1 else None
        row = JudgedRow(
            id=str(one["idx"]), votes=(Vote(best=said, order=(0, 1)),), label=label, cluster=prompt
        )
        rows.append(replace(row, tied=label is None, sources=sources, judge=f"owner/{judge.upper()}"))
        if judge in sources:
            place = sources.index(judge)
            differences.append(sum((place in c) / len(c) * sign for c, sign in ((said, 1), (people, -1))))
            prompts.append(prompt)
    codes = np.unique(prompts, return_inverse=True)[1]
    fitted = api.OLS(differences, np.ones(len(differences))).fit(
        cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False}
    )
    scored = score(WIN_RATE, rows)
    found = scored.estimates["wins of the judge's own family, judge minus label"]
    assert (found.value, found.n) == (pytest.approx(fitted.params[0]), len(differences))
    # Our clusters are those of all rows, of which some have no response of the family.
    assert found.high - found.value == pytest.approx(1.96 * fitted.bse[0], rel=0.02)
    won = WhoWon.of(scored)
    assert won is not None
    shown = f"begin like its own {100 * fitted.params[0]:+.1f} ["
    assert any(shown in text for heading, text in won.lines() if heading == "own")


def test_the_best_of_a_list_is_ranked_like_choices_of_the_luce_model() -> None:
    rng = np.random.default_rng(1)
    names, strength = ("a", "b", "c", "d"), np.array([3.0, 2.0, 1.0, 0.5])
    best = rng.choice(4, size=4000, p=strength / strength.sum())
    scored = score(WIN_RATE, rows_of([(names, int(one)) for one in best])).estimates
    data = [(int(one), [other for other in range(4) if other != one]) for one in best]
    fitted = choix.ilsr_top1(4, data)
    chances = 1 / (1 + np.exp(fitted - fitted[:, None]))
    for name, share in zip(names, (chances.sum(axis=1) - 0.5) / 3, strict=True):
        assert scored[f"Bradley-Terry {name}"].value == pytest.approx(share, abs=0.002)


def test_names_of_rows_are_refused_and_empty_responses_have_no_ratio_of_lengths() -> None:
    rows = rows_of([((f"a{n}", f"b{n}"), 0) for n in range(6000)])
    with pytest.raises(Unscorable, match="12000 sources"):
        score(WIN_RATE, rows)
    won = [replace(one, sources=("a", "b"), lengths=(3, 0)) for one in rows[:20]]
    found = score(WIN_RATE, won).estimates
    assert found["longer wins"].value == 1
    assert "length of winners to losers" not in found


def test_a_source_that_never_lost_has_no_strength_and_no_invented_interval() -> None:
    won = [(("a", "b"), 0), (("a", "c"), 0), (("b", "c"), 0), (("b", "c"), 1)] * 10
    found = score(WIN_RATE, rows_of(won)).estimates
    assert found["win rate of a"].value == 1
    assert np.isnan(found["Bradley-Terry a"].value)
    assert "has no strength" in found["Bradley-Terry a"].no_interval
    # The others have met, and are ranked among themselves: half of 20 games each, an error of sqrt(1/4 / 20).
    assert [found[f"Bradley-Terry {name}"].value for name in "bc"] == pytest.approx([0.5, 0.5])
    lost = rows_of([*won, *[(("a", "d"), 0), (("b", "a"), 0)] * 3, (("b", "c"), 0)])
    told = [line for _, line in WhoWon.of(score(WIN_RATE, lost)).lines()]
    names = [line.split()[1] for line in told if "(Bradley-Terry" in line]
    alone = score(WIN_RATE, [row for row in lost if "d" not in row.sources]).estimates
    assert names == ["a", "b", "c"]
    found = score(WIN_RATE, lost).estimates
    for name in names:
        assert found[f"Bradley-Terry {name}"].value == pytest.approx(alone[f"Bradley-Terry {name}"].value)
    assert any(line.startswith("none for d: a source won, lost or met nobody") for line in told)
