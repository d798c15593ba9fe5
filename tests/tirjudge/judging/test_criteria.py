"""Criteria of a row: the aggregate, judged dialogues, the result file and what reads it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import FAST, edit, judge_to
from tirjudge import Judge
from tirjudge.cli import app
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.combining import by_criterion
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.votes import Aggregate, aggregate
from tirjudge.records.verdicts import JudgedCriterion
from tirjudge.storage.result_file import digest
from tirjudge_environments import (
    Completion,
    Context,
    Criterion,
    Episode,
    Finish,
    JudgeSession,
    JudgeTask,
    Message,
    StopReason,
    TirPointwise,
    Usage,
)
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import open_sandbox

Shares = Sequence[float | None]
MALFORMED = StopReason.MALFORMED


def verdict(*satisfied: float | None, weight: float = 1, must_have: bool = False) -> JudgedCriterion:
    return JudgedCriterion(
        text="c",
        weight=weight,
        polarity="positive",
        must_have=must_have,
        satisfied=list(satisfied),
        scores=None,
        satisfied_from=None,
        stop="malformed" if None in satisfied else "verdict",
    )


@pytest.mark.parametrize(
    ("verdicts", "best", "scores"),
    [
        # Shares of the weight: 3 of 4 and 1 of 4.
        ([verdict(1, 0, weight=3), verdict(0, 1)], (0,), {0: 0.75, 1: 0.25}),
        # A must-have outweighs everything else.
        ([verdict(1, 0, weight=9), verdict(0, 1, must_have=True)], (1,), {0: 0.0, 1: 0.1}),
        # Equal aggregates are a tie, also where 0.1 + 0.2 and 0.3 differ as floats.
        (
            [verdict(1, 0, weight=0.1), verdict(1, 0, weight=0.2), verdict(0, 1, weight=0.3)],
            (0, 1),
            {0: 0.5, 1: 0.5},
        ),
        # An unknown verdict that cannot change the choice leaves only the scores open.
        ([verdict(1, 0, weight=3), verdict(None, None)], (0,), {}),
        # An unknown must-have may leave nothing of a lead.
        ([verdict(1, 0, weight=9), verdict(None, 1, must_have=True)], (), {1: 0.1}),
        # A weight of 0 changes nothing, unless it is a must-have.
        ([verdict(1, 0), verdict(None, None, weight=0)], (0,), {0: 1.0, 1: 0.0}),
        ([verdict(1), verdict(0, weight=3)], (), {0: 0.25}),
    ],
)
def test_the_aggregate_is_the_weighted_share_of_satisfied_criteria(
    verdicts: list[JudgedCriterion], best: tuple[int, ...], scores: dict[int, float]
) -> None:
    found = aggregate(verdicts, len(verdicts[0].satisfied))
    assert found == Aggregate(best, pytest.approx(scores))
    assert set(found.scores) == set(scores)


def _answers(count: int, alone: bool) -> list[tuple[float, ...]]:
    """Return every possible verdict on a criterion: of each response, or of a comparison."""
    if alone:
        return list(product((0.0, 1.0), repeat=count))
    winners = [one for size in range(1, count + 1) for one in combinations(range(count), size)]
    return [tuple(1 / len(one) if n in one else 0.0 for n in range(count)) for one in winners]


@pytest.mark.parametrize("alone", [True, False])
def test_a_row_has_an_outcome_if_and_only_if_no_missing_verdict_could_change_it(alone: bool) -> None:
    """Compare the bounds with all completions of what is unknown."""
    draw, decided = random.Random(5), 0
    for _ in range(400):
        count, criteria = draw.choice((2, 3)), draw.choice((2, 3))
        options = _answers(count, alone)
        given: list[tuple[float | None, ...]] = []
        for _ in range(criteria):
            known = draw.choice(options)
            hidden = tuple(None if draw.random() < 0.3 else share for share in known)
            given.append(hidden if alone else draw.choice((known, known, (None,) * count)))
        kinds = [(draw.choice((0.0, 1.0, 2.0, 5.0)), draw.random() < 0.3) for _ in range(criteria)]
        if not sum(weight for weight, _ in kinds):
            continue

        def outcome(rows: Sequence[Shares], kinds: Any = tuple(kinds), count: int = count) -> Any:
            scores = [
                0.0
                if any(must and row[n] == 0 for (_, must), row in zip(kinds, rows, strict=True))
                else sum(weight * (row[n] or 0) for (weight, _), row in zip(kinds, rows, strict=True))
                for n in range(count)
            ]
            return tuple(n for n in range(count) if max(scores) - scores[n] < 1e-9)

        fitting = [
            [one for one in options if all(a is None or a == b for a, b in zip(row, one, strict=True))]
            for row in given
        ]
        outcomes = {outcome(rows) for rows in product(*fitting)}
        verdicts = [
            verdict(*row, weight=weight, must_have=must)
            for row, (weight, must) in zip(given, kinds, strict=True)
        ]
        assert aggregate(verdicts, count).best == (outcomes.pop() if len(outcomes) == 1 else ()), verdicts
        decided += not outcomes
    assert 100 < decided < 400


PROMPT = "Write about a cat in one line."
CRITERIA = [
    "mentions a cat",
    {"text": "has at least 20 letters", "weight": 2},
    {"text": "mentions a dog", "polarity": "negative", "must_have": True},
]
GOOD, SHORT, DOG = "A cat sleeps in the warm sun.", "A cat.", "A cat sleeps and a dog barks loudly."
CHECKS: dict[str, str] = {
    "mentions a cat": "'cat' in {}",
    "has at least 20 letters": "len({}) >= 20",
    "mentions a dog": "'dog' not in {}",
}


def asked(context: Context) -> str:
    return context.prompt.messages[-1].content


def checking(context: Context) -> str:
    """Play a judge whose program checks the one criterion that it is asked about, and believe the program."""
    (text,) = (text for text in CHECKS if text in asked(context))
    if not context.segments:
        if "<score>" in asked(context):
            return f"```python\nprint('score', 9 if {CHECKS[text].format('response')} else 2)\n```\n"
        return f"```python\nprint('holds', [{CHECKS[text].format('r')} for r in responses])\n```\n"
    output = context.segments[-1].text
    if "score" in output:
        return f"<score>{output.split('score ')[1].split()[0]}</score>"
    held = output.split("holds [")[1].split("]")[0].split(", ")
    return f"<preference>{'ABCD'[held.index('True') if 'True' in held else 0]}</preference>"


def judge(script: Callable[[Context], str] = checking, **options: Any) -> Judge:
    sandbox = open_sandbox("local", preload=()) if options.get("tools", True) else None
    return Judge(generator=ScriptedGenerator(script), sandbox=sandbox, untrained="tir", **options)


def satisfied(result: Judgment) -> list[tuple[float | None, ...]]:
    return [tuple(one.satisfied) for one in result.criteria]


def test_each_criterion_has_its_own_dialogue_program_and_verdict() -> None:
    with judge(order="both") as judging:
        one = judging.score(PROMPT, GOOD, criteria=CRITERIA)
        failing = judging.score(PROMPT, DOG, criteria=CRITERIA)
        pair = judging.compare(PROMPT, GOOD, SHORT, criteria=CRITERIA)
        ranked = judging.rank(PROMPT, [SHORT, DOG, GOOD], criteria=CRITERIA, pointwise=True)
        listed = judging.rank(PROMPT, [SHORT, DOG, GOOD], criteria=CRITERIA)
    assert (one.score, satisfied(one)) == (1.0, [(1,), (1,), (1,)])
    assert [view.criterion for view in one.views] == [0, 1, 2]
    assert [program.criterion for program in one.programs] == [0, 1, 2]
    assert ["cat" in program.source for program in one.programs] == [True, False, False]
    # The reference solution of the criteria: a dog is a must-not-have.
    assert (failing.score, satisfied(failing)) == (0.0, [(1,), (1,), (0,)])
    # Both mention a cat and no dog, so the judge names the first one shown: in both orders that is a tie.
    assert satisfied(pair) == [(0.5, 0.5), (1, 0), (0.5, 0.5)]
    assert (pair.verdict, pair.scores) == ("A", {0: pytest.approx(0.75), 1: pytest.approx(0.25)})
    assert [(view.criterion, view.view) for view in pair.views] == [
        (number, order) for number in range(3) for order in ("AB", "BA")
    ]
    assert ranked.ranking == (2, 0, 1)
    assert dict(ranked.scores) == {0: 0.5, 1: 0.0, 2: 1.0}
    assert listed.verdict is not None
    assert len(listed.criteria) == 3
    assert [len(one.satisfied) for one in listed.criteria] == [3, 3, 3]


@pytest.mark.parametrize("thinking", ["", "<think>\nIs it <score>1</score>?\n</think>\n"])
async def test_the_parts_of_a_dialogue_on_several_criteria_are_the_whole(thinking: str) -> None:
    criteria = (Criterion(text="is short"), Criterion(text="is kind"))
    task = JudgeTask(id="t", prompt=(Message("user", "p"),), candidates=("x",), criteria=criteria)
    format = TirPointwise(per_criterion=True)
    session = JudgeSession(format, task, format.views(task)[0], fixed_sandbox())
    said = f"{thinking}Short: <score>7</score>\n```json\n3\n```\nkind: <score>2.5</score> end"
    await session.step(Completion(text="```python\nprint(1)\n```\n", finish=Finish.STOP))
    await session.step(Completion(text=said, finish=Finish.END, usage=Usage(10, 5)))
    parts = [one.trajectories[0] for one in by_criterion(Episode(task, 0, (session.trajectory,)))]
    assert [one.verdict.scores if one.verdict else None for one in parts] == [{0: 7.0}, {0: 2.5}]
    assert [segment.text for one in parts for segment in one.segments[-1:]] == [
        said.partition("7</score>")[0] + "7</score>",
        said.partition("7</score>")[2],
    ]
    assert [(len(one.segments), len(one.calls), one.usage.completion_tokens) for one in parts] == [
        (3, 1, 5),
        (1, 0, 0),
    ]


def test_a_missing_verdict_is_never_a_0_and_a_failed_call_fails_the_row() -> None:
    def mumbling(context: Context) -> str:
        if "mentions a cat" in asked(context):
            return "I cannot say."
        if "mentions a dog" in asked(context) and "DOWN" in asked(context):
            raise GeneratorFailed("nobody is there")
        return "<preference>A</preference> <score>9</score>"

    with judge(mumbling, tools=False, order="given") as judging:
        one = judging.score(PROMPT, GOOD, criteria=CRITERIA)
        assert (one.score, one.stop, dict(one.scores)) == (None, MALFORMED, {})
        assert one.detail.startswith("criterion 1: no <score>")
        assert [part.stop for part in one.criteria] == ["malformed", "verdict", "verdict"]
        # Three of four parts of the weight are decided: the first criterion cannot turn the pair.
        pair = judging.compare(PROMPT, GOOD, SHORT, criteria=CRITERIA)
        assert (pair.verdict, pair.stop, satisfied(pair)[0]) == ("A", StopReason.VERDICT, (None, None))
        assert pair.ranking == (0,)
        with pytest.raises(GeneratorFailed, match=r"^criterion 3: nobody is there$"):
            judging.compare(f"{PROMPT} DOWN", GOOD, SHORT, criteria=CRITERIA)
        # Also if the others decide: another try completes the record.
        decided = [{"text": "something else", "weight": 9}, "mentions a dog"]
        with pytest.raises(GeneratorFailed, match=r"^criterion 2: nobody is there$"):
            judging.compare(f"{PROMPT} DOWN", GOOD, SHORT, criteria=decided)
        with pytest.raises(ValueError, match=r"^criteria\[1\] repeats criteria\[0\]"):
            judging.score(PROMPT, GOOD, criteria=["a", "a"])
        with pytest.raises(
            TypeError, match=r"^criteria must be a list of texts or mappings, not a single text"
        ):
            judging.score(PROMPT, GOOD, criteria="polite")
        with pytest.raises(TypeError, match=r"^reference must be a text, not None"):
            judging.score(PROMPT, GOOD, reference=None)  # type: ignore[arg-type]


def test_a_format_that_does_not_show_criteria_or_a_reference_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tirjudge_environments.formats import text_only
    from tirjudge_environments.messages import conversation_text

    monkeypatch.setattr(text_only, "question_text", lambda task: conversation_text(task.prompt))
    with judge(lambda _: "<answer>[[A]]</answer>", format="rm-r1") as judging:
        assert judging.compare(PROMPT, GOOD, SHORT).verdict in ("A", "B")
        with pytest.raises(
            ValueError, match=r"^the format rm-r1 does not show the judge a row's criteria: use "
        ):
            judging.compare(PROMPT, GOOD, SHORT, criteria=CRITERIA)
        with pytest.raises(
            ValueError, match=r"a row's reference: .* leave the column out with --column reference=$"
        ):
            judging.compare(PROMPT, GOOD, SHORT, reference="r")


def test_a_reference_is_shown_found_by_programs_and_shortened_by_truncate() -> None:
    def comparing(context: Context) -> str:
        if not context.segments:
            return "```python\nprint('equal', response == reference, len(reference))\n```\n"
        return f"<score>{10 if 'equal True' in context.segments[-1].text else 1}</score>"

    with judge(comparing) as judging:
        assert judging.score(PROMPT, GOOD, reference=GOOD).score == 10
        assert judging.score(PROMPT, GOOD, reference=SHORT).score == 1
    with judge(comparing, truncate=100) as judging:
        result = judging.score(PROMPT, GOOD, reference="x" * 5000)
    assert "4900 characters left out" in result.trajectories[0].prompt.messages[0].content


ROWS = [
    {
        "id": "pair",
        "prompt": PROMPT,
        "responses": [GOOD, SHORT],
        "label": 0,
        "criteria": CRITERIA,
        "reference": "A cat naps.",
    },
    {"id": "one", "prompt": PROMPT, "responses": [DOG], "criteria": CRITERIA},
    {"id": "plain", "prompt": f"{PROMPT} Also: mentions a cat.", "responses": [GOOD, SHORT], "label": 0},
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with and without criteria, judged in both orders with programs in the sandbox."""
    return judge_to(tmp_path_factory.mktemp("judged") / "out.jsonl", ROWS, checking, order="both")


def lines(path: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def run(*words: object) -> str:
    result = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_result_file_has_every_criterion_with_its_verdict(results: Path) -> None:
    rows = lines(results)
    pair = rows["pair"]
    assert (pair["verdict"], pair["scores"], pair["correct"]) == ("A", [0.75, 0.25], 1.0)
    assert pair["reference"] == "A cat naps."
    (program, *_) = [one for one in pair["views"][1]["segments"] if one["kind"] == "program"]
    assert program["bindings"] == {
        "prompt": "prompt",
        "reference": "reference",
        "response_a": 1,
        "response_b": 0,
        "responses": [1, 0],
    }
    assert pair["criteria"][1] == {
        "text": "has at least 20 letters",
        "weight": 2.0,
        "polarity": "positive",
        "must_have": False,
        "satisfied": [1.0, 0.0],
        "scores": None,
        "satisfied_from": None,
        "stop": "verdict",
        "detail": "",
        "decided": False,
    }
    assert [view["criterion"] for view in pair["views"]] == [0, 0, 1, 1, 2, 2]
    # The reward of training is about the label, which no criterion is.
    assert not any("reward" in view for view in pair["views"])
    (failed,) = [one for one in rows["one"]["criteria"] if one["satisfied"] == [0.0]]
    assert (failed["text"], failed["scores"], failed["satisfied_from"]) == ("mentions a dog", [2.0], 6.0)
    plain = rows["plain"]
    assert not {"criteria", "reference"} & plain.keys()
    assert not any("criterion" in view for view in plain["views"])


def test_show_and_report_have_the_criteria(results: Path, tmp_path: Path) -> None:
    shown = run("show", results, "pair")
    for text in (
        "reference:\n",
        "criterion 1:\n",
        "criterion 2 (weight 2):\n",
        "criterion 3 (negative, must-have):\n",
        "A 0.5 satisfied, B 0.5 satisfied",
        "A satisfied, B not satisfied",
        "criterion 2, view BA: the judge sees",
    ):
        assert text in shown.replace(" \n", "\n"), text
    assert "A not satisfied (2)" in run("show", results, "one")
    page = tmp_path / "report.html"
    run("report", results, "-o", page)
    assert "Responses that satisfy a criterion" in page.read_text()


def test_verdicts_are_reproduced_from_their_dialogues_and_an_edited_criterion_is_found(
    results: Path, tmp_path: Path
) -> None:
    def outcome(path: Path) -> dict[str, Any]:
        result = command("reproduce", path, "--json", *FAST)
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    found = outcome(results)
    assert (found["same"], found["programs"], found["verdicts_changed"]) == (11, 11, 0)

    def claim(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["id"] == "one":
                row["criteria"][2]["satisfied"] = [1.0]

    copy = tmp_path / "out.jsonl"
    copy.write_bytes(results.read_bytes())
    edit(copy, claim)
    assert outcome(copy)["verdicts_changed"] == 1
    result = command("reproduce", copy, *FAST)
    assert "criterion 3 [1.0], and its views together say [0.0]" in result.stdout


def test_protocols_score_the_aggregate_of_each_order(results: Path) -> None:
    rows = {row.id: row for row in open_replay(results)}
    # This judge names the response that is shown first if both are equal. They are equal under the must-have,
    # so that the reversed order gives it to the other response.
    votes = rows["pair"].votes
    assert [vote.order for vote in votes] == [(0, 1), (1, 0)]
    assert [vote.best for vote in votes] == [(0,), (1,)]
    assert [dict(vote.scores) for vote in votes] == [{0: 1.0, 1: 0.0}, {0: 0.0, 1: 0.5}]
    (alone,) = rows["one"].votes
    assert dict(alone.scores) == {0: 0.0}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: [one.update(weight=0) for one in row["criteria"]], "weights of the criteria add up"),
        (lambda row: row["views"][0].update(order=[0, 10**12]), "views show 1000000000001 responses"),
        (lambda row: row["views"].pop(), "the criteria do not have the same views"),
    ],
)
def test_an_edited_file_is_refused_in_one_line(
    results: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    row = lines(results)["pair"]
    change(row)
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=reason) as found:
        list(open_replay(path))
    assert str(found.value).startswith(f"{path}:1: ")


def test_a_row_is_judged_again_if_its_criteria_change_and_older_digests_stay() -> None:
    task = JudgeTask(id="t", prompt=(Message("user", "p"),), candidates=("x", "y"), label=0)
    # Written by the version before criteria.
    assert digest(task) == "4a4979d62412dc0a"
    others = [
        JudgeTask(id="t", prompt=task.prompt, candidates=task.candidates, label=0, **more)
        for more in (
            {"reference": "r"},
            {"criteria": (Criterion(text="r"),)},
            {"criteria": (Criterion(text="r", weight=2.0),)},
        )
    ]
    assert len({digest(one) for one in (task, *others)}) == 4
