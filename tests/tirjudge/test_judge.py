"""`Judge` in plain code, in coroutines, and inside a running event loop."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Self

import pytest

from tests.tirjudge.endpoint_server import chat, serving
from tirjudge import CostReached, GeneratorFailed, Judge
from tirjudge.generation.base import Sampling
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions, NoSandbox
from tirjudge_environments import Completion, Context, JudgeTask, Message, StopReason
from tirjudge_sandbox import Sandbox, SandboxUnavailable
from tirjudge_sandbox.blocking import EventLoopThread


def first_shown(context: Context) -> str:
    return "<preference>A</preference> <score>6</score>"


def measuring(context: Context) -> str:
    """Play a judge that lets a program find the longer response and believes its output."""
    if not context.segments:
        return "```python\nprint('longer', 'A' if len(response_a) > len(response_b) else 'B')\n```\n"
    letter = context.segments[-1].text.split("longer ")[1][0]
    return f"<preference>{letter}</preference>"


def scoring(context: Context) -> str:
    text = context.prompt.messages[0].content
    return f"<score>{2 + 3 * ('good' in text) + 4 * ('best' in text)}</score>"


class BrokenGenerator:
    """A generator whose model is unreachable."""

    model = "broken"
    encoder = None

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        raise GeneratorFailed("nobody is there")

    async def close(self) -> None: ...


def test_compare_runs_the_program_and_undoes_the_order() -> None:
    with Judge(generator=ScriptedGenerator(measuring), untrained="tir") as judge:
        for a, b, verdict in (("long", "no", "A"), ("no", "long", "B"), ("x", "xyz", "B"), ("abc", "z", "A")):
            result = judge.compare("Which is longer?", a, b)
            assert (result.verdict, result.choice) == (verdict, "AB".index(verdict))
            assert result.stop is StopReason.VERDICT
            assert len(result.trajectories[0].calls) == 1


def test_with_an_import_policy_the_model_sees_why_a_program_was_refused() -> None:
    def careless(context: Context) -> str:
        if not context.segments:
            return "```python\nimport requests\n```\n"
        reason_is_shown = "there is no network here" in context.segments[-1].text
        return f"<preference>{'B' if reason_is_shown else 'A'}</preference>"

    with Judge(
        generator=ScriptedGenerator(careless), order="given", import_policy=True, untrained="tir"
    ) as judge:
        assert judge.compare("p", "x", "y").verdict == "B"


def test_score_and_rank() -> None:
    with Judge(generator=ScriptedGenerator(scoring), tools=False) as judge:
        assert judge.score("p", "good").score == 5.0
        result = judge.rank("p", ["bad", "best", "good"], pointwise=True)
        assert result.ranking == (1, 2, 0)
        assert (result.choice, result.verdict) == (1, "B")
        assert dict(result.scores) == {0: 2.0, 1: 6.0, 2: 5.0}
    with Judge(generator=ScriptedGenerator(first_shown), tools=False, order="given") as judge:
        assert judge.rank("p", ["x", "y", "z"]).ranking == (0,)
        assert judge.rank([{"role": "user", "content": "p"}], ["x", "y"]).verdict == "A"


@pytest.mark.parametrize(("undecided", "ranking"), [("tie", ()), ("guess", (1, 2, 0))])
def test_guesses_rank_nothing_where_they_are_ties(
    undecided: Literal["tie", "guess"], ranking: tuple[int, ...]
) -> None:
    with Judge(generator=ScriptedGenerator(scoring), undecided=undecided, untrained="tir") as judge:
        result = judge.rank("p", ["bad", "best", "good"], pointwise=True)
    assert (result.decided, result.ranking) == (False, ranking)


def test_a_format_excludes_another_kind() -> None:
    answer = "<think>t</think><answer> [[A]] </answer>"
    with Judge(generator=ScriptedGenerator(lambda context: answer), format="j1-pav") as judge:
        assert judge.rank("p", ["x", "y"]).verdict == "tie"
        with pytest.raises(ValueError, match="pointwise and the judge's format j1-pav exclude each other"):
            judge.rank("p", ["x", "y"], pointwise=True)
        with pytest.raises(ValueError, match="pairwise and the judge's format j1-pav exclude each other"):
            judge.batch([{"prompt": "p", "responses": ["x", "y"]}], kind="pairwise")


def test_the_same_question_gets_the_same_order() -> None:
    with Judge(generator=ScriptedGenerator(first_shown), tools=False) as judge:
        verdicts = {judge.compare("p", "x", "y").verdict for _ in range(3)}
        orders = {judge.compare(f"p{n}", "x", "y").trajectories[0].view.name for n in range(12)}
    assert len(verdicts) == 1
    assert orders == {"AB", "BA"}


async def test_calls_are_awaited_together_in_another_loop() -> None:
    async with Judge(generator=ScriptedGenerator(measuring), untrained="tir") as judge:
        results = await asyncio.gather(
            judge.acompare("p", "aa", "b"), judge.acompare("p", "a", "bb"), judge.arank("p", ["a", "bbb"])
        )
    assert [result.verdict for result in results] == ["A", "B", "B"]


async def test_the_waiting_methods_work_inside_a_running_loop() -> None:
    judge = Judge(generator=ScriptedGenerator(first_shown), tools=False, order="given")
    assert judge.compare("p", "x", "y").verdict == "A"
    assert (await judge.ascore("p", "x")).score == 6.0
    judge.close()
    assert judge.score("p", "x").score == 6.0
    judge.close()


async def test_cancelling_a_call_leaves_the_judge_usable() -> None:
    class Slow(ScriptedGenerator):
        async def generate(self, context: Context, sampling: Sampling) -> Completion:
            if "slow" in context.prompt.messages[0].content:
                await asyncio.sleep(600)
            return await super().generate(context, sampling)

    async with Judge(generator=Slow(first_shown), tools=False, order="given") as judge:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(judge.acompare("slow", "x", "y"), 0.05)
        assert (await judge.acompare("p", "x", "y")).verdict == "A"


def test_an_interrupt_while_waiting_frees_the_model() -> None:
    cancelled = threading.Event()

    class Endless(ScriptedGenerator):
        async def generate(self, context: Context, sampling: Sampling) -> Completion:
            await asyncio.sleep(0.5)  # The caller waits by then.
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            raise AssertionError

    with Judge(generator=Endless(first_shown), tools=False) as judge:
        with pytest.raises(KeyboardInterrupt):
            judge.score("p", "x")
        assert cancelled.wait(10)


async def test_concurrent_first_calls_open_one_sandbox() -> None:
    class Counted(NoSandbox):
        opened = 0

        async def __aenter__(self) -> Self:
            self.opened += 1
            await asyncio.sleep(0.01)
            return self

    sandbox = Counted()
    judge = Judge(generator=ScriptedGenerator(first_shown), sandbox=sandbox, untrained="tir")
    await asyncio.gather(*(judge.acompare(f"p{n}", "x", "y") for n in range(5)))
    judge.close()
    assert sandbox.opened == 1


def test_concurrent_first_calls_of_threads_start_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class Slow(EventLoopThread):
        def __init__(self, name: str) -> None:
            started.append(name)
            time.sleep(0.05)
            super().__init__(name)

    monkeypatch.setattr("tirjudge.judge.EventLoopThread", Slow)
    judge = Judge(generator=ScriptedGenerator(first_shown), tools=False)
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda number: judge.compare(f"p{number}", "x", "y").stop, range(8)))
    judge.close()
    assert verdicts == ["verdict"] * 8
    assert len(started) == 1


async def test_a_judge_that_cannot_open_leaves_no_thread() -> None:
    # Judges of other tests in this process may be open.
    before = set(threading.enumerate())
    for _ in range(2):
        with pytest.raises(ValueError, match="give --model"), Judge(base_url="http://127.0.0.1:1"):
            pass
        with pytest.raises(ValueError, match="give --model"):
            async with Judge(base_url="http://127.0.0.1:1"):
                pass
    assert "tirjudge-judge" not in {thread.name for thread in set(threading.enumerate()) - before}


def test_a_failure_of_the_model_or_the_sandbox_raises() -> None:
    with (
        Judge(generator=BrokenGenerator()) as judge,
        pytest.raises(GeneratorFailed, match=r"^nobody is there$"),
    ):
        judge.compare("p", "x", "y")
    with (
        Judge(generator=ScriptedGenerator(measuring), sandbox=NoSandbox(), untrained="tir") as judge,
        pytest.raises(SandboxUnavailable, match="this judge was opened without a sandbox"),
    ):
        judge.compare("p", "x", "y")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda judge: judge.compare(None, "x", "y"), "prompt must be a text or a list of .*, not None"),
        (lambda judge: judge.compare(["p"], "x", "y"), "prompt must be a text or a list of chat messages"),
        (
            lambda judge: judge.compare("p", "x", float("nan")),
            "b must be a text or a list of chat messages .*, not float",
        ),
        (
            lambda judge: judge.score("p", ["x"]),
            "response must be a text or a list of chat messages .*, not list",
        ),
        (lambda judge: judge.rank("p", "abc"), "responses must be a list of texts, not a single text"),
        (lambda judge: judge.rank("p", ["x", None]), r"responses\[1\] must be a text or a list .*, not None"),
        (lambda judge: judge.batch("rows.jsonl"), "rows must be a list of mappings, not str"),
    ],
)
def test_wrong_types_are_named(call: Callable[[Judge], object], reason: str) -> None:
    with (
        Judge(generator=ScriptedGenerator(first_shown), tools=False) as judge,
        pytest.raises(TypeError, match=f"^{reason}"),
    ):
        call(judge)


def test_an_invalid_prompt_is_refused_at_the_call() -> None:
    with Judge(generator=ScriptedGenerator(first_shown), tools=False) as judge:
        with pytest.raises(ValueError, match="the prompt is empty"):
            judge.compare("", "x", "y")
        with pytest.raises(ValueError, match="prompt, message 1"):
            judge.score([{"role": "robot", "content": "x"}], "x")


async def test_a_judge_without_tools_opens_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot isolate programs can still judge by text alone."""

    def refuse(name: str, **options: object) -> Sandbox:
        raise SandboxUnavailable("programs cannot be isolated here")

    monkeypatch.setattr("tirjudge.judging.options.open_sandbox", refuse)
    with pytest.raises(SandboxUnavailable):
        Judge(generator=ScriptedGenerator([])).open()
    task = JudgeTask(id="t", prompt=(Message("user", "p"),), candidates=("x", "y"))
    generator = ScriptedGenerator(["```python\nprint(1)\n```\n<preference>A</preference>"])
    async with JudgeEngine(JudgeOptions(tools=False, order="given"), generator=generator) as opened:
        result = await opened.judge(task)
    assert (result.verdict, result.trajectories[0].calls) == ("A", ())


def test_importing_the_package_is_light() -> None:
    heavy = {"torch", "httpx", "pydantic", "numpy", "rich"}
    code = f"import sys, tirjudge; print(sorted({heavy!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_long_responses_are_truncated_as_on_the_command_line() -> None:
    shown: list[str] = []

    def reading(context: Context) -> str:
        shown.append(context.prompt.messages[0].content)
        return "<preference>A</preference>"

    with Judge(generator=ScriptedGenerator(reading), tools=False, truncate=100) as judge:
        judge.compare("p", "a" * 500, "b")
    assert "a" * 50 + "\n... 400 characters left out ...\n" + "a" * 50 in shown[0]


def test_the_key_is_sent_and_costs_are_counted_and_limited() -> None:
    with serving() as endpoint:
        endpoint.script = lambda body: chat("<preference>B</preference>")
        options = {"tools": False, "price_in": 1.0, "price_out": 10.0, "max_tokens": 100}
        with Judge("m", endpoint.url, api_key="sk-given", **options) as judge:  # type: ignore[arg-type]
            judge.compare("p", "x", "y")
            assert (judge.spending.calls, judge.spending.cost) == (1, pytest.approx((7 + 30) / 1e6))
        assert endpoint.asked[-1].headers["authorization"] == "Bearer sk-given"
        with (
            Judge("m", endpoint.url, max_cost=1e-6, **options) as judge,  # type: ignore[arg-type]
            pytest.raises(CostReached, match="of 1e-06 are spent"),
        ):
            judge.compare("p", "x", "y")


def test_completions_are_cached_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRJUDGE_CACHE", str(tmp_path / "completions.sqlite"))
    with serving() as endpoint:
        endpoint.script = lambda body: chat("<preference>B</preference>")
        for _ in range(2):
            with Judge("m", endpoint.url, tools=False, order="given", cache=True) as judge:
                assert judge.compare("p", "x", "y").verdict == "B"
        assert len(endpoint.bodies) == 1
    with pytest.raises(ValueError, match="cache needs a model's name"):
        Judge(generator=ScriptedGenerator(first_shown), cache=True)
