"""`Judge.batch`, and how judgments and batches show themselves."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.tirjudge.endpoint_server import chat, serving
from tests.tirjudge.test_judge import first_shown, measuring
from tirjudge import Judge, NoRowJudged
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.generation.cached import CompletionStore
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.batch import Failure
from tirjudge.judging.tally import JurorTally
from tirjudge_environments import Completion, Context, Finish


def test_a_judgment_shows_itself_briefly_and_as_json() -> None:
    with Judge(generator=ScriptedGenerator(measuring), order="both", untrained="tir") as judge:
        result = judge.compare("Which is longer?", "short", "the longest")
    name = result.episode.task.id
    assert repr(result) == f"<Judgment '{name}' pairwise: verdict='B', decided=False, programs=2>"
    assert [program.output for program in result.programs] == ["longer B", "longer A"]
    assert [program.letters["B"] for program in result.programs] == [1, 0]
    record = json.loads(json.dumps(result.to_dict()))
    assert (record["id"], record["verdict"], record["choice"], record["stop"]) == (name, "B", 1, "verdict")
    assert [view["letters"] for view in record["views"]] == [{"A": 0, "B": 1}, {"A": 1, "B": 0}]
    assert [program["output"] for program in record["programs"]] == ["longer B", "longer A"]
    with Judge(generator=ScriptedGenerator(["I do not know."]), tools=False) as judge:
        silent = judge.score("p", "x")
    assert "verdict=None, stop='malformed', detail='" in repr(silent)


def test_a_batch_keeps_the_order_and_the_failures_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    def fussy(context: Context) -> str:
        if "xxx" in context.prompt.messages[0].content:
            raise GeneratorFailed("the model is off")
        return measuring(context)

    rows: list[dict[str, object]] = [
        {"id": f"r{n}", "prompt": f"p{n}", "responses": ["z" + "x" * n, "yyyyy"], "label": "B"}
        for n in range(4)
    ]
    with Judge(generator=ScriptedGenerator(fussy), order="random", untrained="tir") as judge:
        results = judge.batch([*rows, {"prompt": "p"}, 5], progress=True)  # type: ignore[list-item]
    assert len(results) == 6
    assert [one.verdict for one in results.judgments] == ["B", "B", "B"]
    assert [one.episode.task.id for one in results.judgments] == ["r0", "r1", "r2"]
    assert results[3] == Failure("rows[3]", "r3", "generator_down: the model is off")
    assert isinstance(results[4], Failure)
    assert "no responses" in results[4].reason
    assert isinstance(results[5], Failure)
    assert results[5].reason == "a row is a mapping with a prompt and responses, not int"
    assert repr(results).startswith("<BatchResult: 6 rows, 3 with a verdict, 3 failed, accuracy 100.0% [")
    assert len(results.programs) == 3
    record = json.loads(json.dumps(results.to_dict()))
    assert [row["verdict"] for row in record["judged"]] == ["B", "B", "B"]
    assert [row["where"] for row in record["failed"]] == ["rows[3]", "rows[4]", "rows[5]"]
    assert capsys.readouterr().err.splitlines() == ["6 of 6 rows judged"]


async def test_a_row_of_a_batch_is_judged_as_it_is_alone() -> None:
    prompts = [f"p{number}" for number in range(8)]
    rows = [{"question": prompt, "responses": ["x", "y"], "label": "2"} for prompt in prompts]
    done: list[tuple[int, int]] = []
    async with Judge(generator=ScriptedGenerator(first_shown), tools=False) as judge:
        together = await judge.abatch(
            rows,
            columns={"prompt": "question"},
            labels={"1": "A", "2": "B"},
            progress=lambda *state: done.append(state),
        )
        alone = [(await judge.acompare(prompt, "x", "y")).verdict for prompt in prompts]
        assert len(await judge.abatch([])) == 0
    assert [one.verdict for one in together.judgments] == alone
    assert set(alone) == {"A", "B"}
    assert {one.episode.task.label for one in together.judgments} == {1}
    assert done == [(count, 8) for count in range(1, 9)]


def test_labels_may_be_translated_from_numbers() -> None:
    rows = [{"prompt": f"p{label}", "responses": ["x", "y"], "label": label} for label in (1, 2, 3)]
    with Judge(generator=ScriptedGenerator(first_shown), tools=False) as judge:
        results = judge.batch(rows, labels={1: 0, 2: "B"})  # type: ignore[dict-item]
    assert [one.episode.task.label for one in results.judgments] == [0, 1]
    assert [one.reason for one in results.failures] == ["label '3' is none of 1, 2"]


def test_a_table_with_missing_values_is_judged_row_by_row() -> None:
    frame = pd.DataFrame(
        {
            "prompt": pd.array(["p", pd.NA, "r"], dtype="string"),
            "responses": [np.array(["x", "xyz"]), ["x", "y"], ("xyz", "x")],
            "label": pd.array([1, 0, pd.NA], dtype="Int64"),
        }
    )
    with Judge(generator=ScriptedGenerator(measuring), order="given", untrained="tir") as judge:
        for table in (frame, pa.Table.from_pylist([{"prompt": "p", "responses": ["x", "xyz"], "label": 1}])):
            results = judge.batch(table)
            first = results[0]
            assert not isinstance(first, Failure)
            assert (first.verdict, first.credit) == ("B", 1.0)
        results = judge.batch(frame)
        failure, last = results[1], results[2]
        assert isinstance(failure, Failure)
        assert failure.reason == "no prompt"
        assert not isinstance(last, Failure)
        assert (last.verdict, last.credit) == ("A", None)


def test_a_batch_at_the_cost_limit_keeps_what_was_judged() -> None:
    with serving() as endpoint:
        endpoint.script = lambda body: chat("<preference>B</preference>")
        options = {"tools": False, "price_in": 1.0, "price_out": 1.0, "max_tokens": 10, "concurrency": 1}
        with Judge("m", endpoint.url, max_cost=1.5e-3, **options) as judge:  # type: ignore[arg-type]
            results = judge.batch([{"prompt": f"p{n}", "responses": ["x", "y"]} for n in range(300)])
    assert 0 < len(results.judgments) < 300
    assert len(results.judgments) + len(results.failures) == 300
    assert "are spent" in results.failures[0].reason


def test_a_batch_keeps_what_was_judged_before_the_cache_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIRJUDGE_CACHE", str(tmp_path / "completions.sqlite"))
    stored: list[bytes] = []

    def put(self: CompletionStore, key: bytes, completion: Completion) -> None:
        stored.append(key)
        if len(stored) > 2:
            raise OSError("the cache cannot be written")

    monkeypatch.setattr(CompletionStore, "put", put)
    with serving() as endpoint:
        endpoint.script = lambda body: chat("<preference>B</preference>")
        with Judge("m", endpoint.url, tools=False, cache=True, concurrency=1) as judge:
            results = judge.batch([{"prompt": f"p{n}", "responses": ["x", "y"]} for n in range(5)])
    assert [one.verdict for one in results.judgments] == ["B", "B"]
    assert [one.reason for one in results.failures] == [
        "the cache cannot be written",
        "not tried: the cache cannot be written",
        "not tried: the cache cannot be written",
    ]


def test_a_batch_starts_slowly_and_ends_after_consecutive_failures() -> None:
    asked: list[int] = []
    at_once: list[int] = [0]

    class Waiting:
        model, encoder = "waiting", None

        async def generate(self, context: Context, sampling: Sampling) -> Completion:
            at_once[0] += 1
            asked.append(at_once[0])
            await asyncio.sleep(0.01)
            at_once[0] -= 1
            if "bad" in context.prompt.messages[0].content:
                raise GeneratorFailed("the model is off")
            return Completion(text="<preference>A</preference>", finish=Finish.END)

        async def close(self) -> None: ...

    rows = [{"prompt": f"p{n}", "responses": ["x", "y"]} for n in range(10)]
    with Judge(generator=Waiting(), tools=False, concurrency=8) as judge:
        judge.batch(rows)
        assert asked[2] <= 2, "two rows are judged alone until one of them is finished"
        assert max(asked[3:]) > 2
        asked.clear()
        bad = [{"prompt": f"bad {n}", "responses": ["x", "y"]} for n in range(60)]
        with pytest.raises(NoRowJudged) as raised:
            judge.batch(bad)
    tried = [one for one in raised.value.failures if not one.reason.startswith("not tried")]
    assert 50 <= len(tried) < 60
    last = raised.value.failures[-1].reason
    assert last.startswith(
        "not tried: gave up after 50 consecutive failures, the last one because: the model"
    )


def length_unless_biased(context: Context) -> str:
    """Prefer the longer response, but the one shown first where the prompt says `biased`."""
    text = context.prompt.messages[-1].content
    longer = "A" if text.index("long") < text.index("tiny") else "B"
    return f"<preference>{'A' if 'biased' in text else longer}</preference>"


def test_verdicts_of_low_confidence_are_left_open() -> None:
    """Both orders agree on the first question. On the biased one they make a tie that nobody voted for."""
    judge = Judge(
        generator=ScriptedGenerator(length_unless_biased), tools=False, order="both", abstain_below=0.7
    )
    rows = [
        {"id": "sure", "prompt": "Q", "responses": ["long", "tiny"], "label": "A"},
        {"id": "biased", "prompt": "biased Q", "responses": ["long", "tiny"], "label": "A"},
    ]
    with judge:
        sure = judge.compare("Q", "long", "tiny")
        biased = judge.compare("biased Q", "long", "tiny")
        results = judge.batch(rows)
    assert (sure.verdict, sure.stop, sure.is_open) == ("A", "verdict", False)
    assert sure.confidence is not None
    assert sure.confidence.value == 1.0
    assert (biased.verdict, biased.choice, biased.best, biased.stop) == (None, None, (), "abstained")
    assert biased.detail == "left open: vote-share 0 is below 0.7"
    assert [view.verdict for view in biased.views] == ["A", "B"]
    held = {"name": "vote-share", "value": 0.0, "below": 0.7, "verdict": "tie"}
    assert json.loads(json.dumps(biased.to_dict()))["confidence"] == held
    assert [(one.verdict, one.credit) for one in results.judgments] == [("A", 1.0), (None, None)]
    assert repr(results).startswith(
        "<BatchResult: 2 rows, 1 with a verdict, 1 left open, accuracy 100.0% [20.7%, 100.0%], n = 1>"
    )


def test_a_margin_that_is_too_small_gives_no_ranking() -> None:
    def scores(context: Context) -> str:
        text = context.prompt.messages[-1].content
        return f"<score>{9 if 'long' in text else 6 if 'mid' in text else 5}</score>"

    judge = Judge(generator=ScriptedGenerator(scores), tools=False, abstain_below=2, confidence="margin")
    with judge:
        assert judge.rank("Q", ["tiny", "long", "mid"], pointwise=True).ranking == (1, 2, 0)
        close = judge.rank("Q", ["tiny", "mid", "tiny too"], pointwise=True)
        alone = judge.score("Q", "mid")
    assert (close.choice, close.ranking, close.is_open) == (None, (), True)
    assert close.scores == {0: 5.0, 1: 6.0, 2: 5.0}
    assert (alone.score, alone.is_open) == (6.0, False)


def test_a_prompt_that_is_a_number_is_judged_as_its_text() -> None:
    with Judge(generator=ScriptedGenerator(first_shown), tools=False) as judge:
        number, text = judge.batch([{"prompt": one, "responses": ["x", "y"]} for one in (42, "42")])
    assert not isinstance(number, Failure)
    assert not isinstance(text, Failure)
    assert number.episode.task == text.episode.task


def test_a_model_without_a_verdict_does_not_have_the_verdict_of_a_row_without_one() -> None:
    tally = JurorTally()
    for stop, verdict in (("malformed", None), ("verdict", "A")):
        tally.add({"verdict": verdict, "stop": stop, "correct": None}, {"verdict": verdict})
    assert (tally.rows, tally.deciding, tally.without) == (2, 1, 1)
