"""A scorer and tools for Inspect (inspect.aisi.org.uk): judges in tasks, for solvers and on stored logs.

`inspect score LOG --scorer tirjudge/tirjudge_scorer` scores a stored log again.
"""

from __future__ import annotations

import atexit
import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import to_thread
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState
from inspect_ai.tool import Tool, tool

from tirjudge.judge import Judge
from tirjudge.judging.judgment import Judgment
from tirjudge.records.verdicts import encodable
from tirjudge_environments.adapters.dialogues import SandboxThread
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.programs.outputs import output_text
from tirjudge_sandbox import Execution, Limits, Program, SandboxUnavailable, Status

_METADATA = "metadata."
_LONGEST_OUTPUT = 10_000
"""Characters of a program's output that a solver reads; longer ones are cut in the middle."""

_judges: dict[str, Judge] = {}
_opening = threading.Lock()


@scorer(metrics=[mean(), stderr()])
def tirjudge_scorer(
    model: str = "", base_url: str | None = None, against: str = "", **options: Any
) -> Scorer:
    """Score completions by a judge that may run programs before its verdict.

    Args:
        model: the judge's model, as `tirjudge judge --model` takes it; by default the embedded one.
        base_url: an OpenAI-compatible endpoint of the judge.
        against: the text that a completion is compared with: `target`, or `metadata.NAME` of the sample.
            Empty scores each completion alone.
        options: further options of the judge, by their names in `tirjudge.Judge`.

    The value is the judge's score (1 to 10 for TIR-Judge's format); with `against` it is 1 if the completion
    is better, 0.5 for a tie and 0 if it is worse, judged in both orders unless `order` says otherwise. A
    sample without a verdict, or without the text to compare with, is unscored, with the reason. A model or a
    sandbox that fails raises GeneratorFailed or SandboxUnavailable, so that Inspect counts an error of the
    sample. Raises ValueError, in one line, for an unknown option.
    """
    if against not in ("", "target") and not against.startswith(_METADATA):
        raise ValueError(f"against is {against!r}: write target or metadata.NAME, or leave it out")
    judge = _shared(model, base_url, {"order": "both", **options} if against else options)

    async def score(state: TaskState, target: Target) -> Score:
        response = state.output.completion
        if not against:
            judgment = await _in_thread(judge.score, _prompt(state), response)
            value = judgment.score
        else:
            other = _other(against, state, target)
            if other is None:
                return Score.unscored(reason=f"the sample has no {against}", answer=response)
            judgment = await _in_thread(judge.compare, _prompt(state), response, other)
            value = {"A": 1.0, "tie": 0.5, "B": 0.0}.get(judgment.verdict or "")
        if value is None:
            return Score.unscored(
                reason=f"{judgment.stop.value}: {judgment.detail}",
                answer=response,
                metadata=_details(judgment),
            )
        explanation = "\n\n".join(view.reasoning for view in judgment.views)
        return Score(value=value, answer=response, explanation=explanation, metadata=_details(judgment))

    return score


@tool
def tirjudge_python(timeout: float = 20.0, backend: str = "local") -> Tool:
    """Run a solver's programs in tirjudge's sandbox, which needs no container.

    Args:
        timeout: wall and CPU seconds of a program.
        backend: the sandbox, as `tirjudge judge --backend` takes it.
    """
    limits = Limits(wall_seconds=timeout, cpu_seconds=timeout)

    async def execute(code: str) -> str:
        """Run a Python program and read what it prints.

        Programs share no state, and have neither files nor a network.

        Args:
            code: The whole program.
        """
        execution: Execution = await _in_thread(_run, backend, code, limits)
        if execution.status is Status.SANDBOX_FAILED:
            # It is no output of the program, and the solver must not read it as one.
            raise SandboxUnavailable(execution.detail)
        return encodable(output_text(execution, _LONGEST_OUTPUT))

    return execute


@tool
def tirjudge_compare(model: str = "", base_url: str | None = None, **options: Any) -> Tool:
    """Let a solver ask a judge which of two drafts is better; takes the arguments of the scorer."""
    judge = _shared(model, base_url, options)

    async def execute(question: str, first: str, second: str) -> str:
        """Ask a judge that may run programs which of two answers is better.

        Args:
            question: What was asked.
            first: One answer.
            second: Another answer.
        """
        judgment = await _in_thread(judge.compare, question, first, second)
        verdict = {"A": "the first answer is better", "B": "the second answer is better", "tie": "a tie"}
        reasoning = "\n\n".join(view.reasoning for view in judgment.views)
        said = verdict.get(judgment.verdict or "", "no verdict")
        said += ", undecided: no program decided it" if judgment.verdict and judgment.decided is False else ""
        return f"{said}\n\n{reasoning}".strip()

    return execute


def close_judges() -> None:
    """Close the judges of all scorers and tools; the next sample opens them again."""
    with _opening:
        while _judges:
            _judges.popitem()[1].close()


atexit.register(close_judges)


def _shared(model: str, base_url: str | None, options: dict[str, Any]) -> Judge:
    """Return the judge of these options, which all scorers and tools of a process share.

    It opens at its first question, since Inspect also creates scorers to list them.
    """
    key = json.dumps([model, base_url, options], sort_keys=True, default=str)
    with _opening:
        if key not in _judges:
            _judges[key] = Judge(model, base_url, **options)
        return _judges[key]


async def _in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    # A judge has an event loop of its own, and Inspect's may be asyncio or trio.
    return await to_thread.run_sync(partial(work, *arguments))


def _run(backend: str, code: str, limits: Limits) -> Execution:
    box = SandboxThread.shared(JudgeSettings(sandbox=backend))
    return box.run(box.sandbox.run(Program(source=code), limits))


def _prompt(state: TaskState) -> str | list[dict[str, Any]]:
    """Return the sample's input: a text, or its messages."""
    if isinstance(state.input, str):
        return state.input
    return [one.model_dump(exclude_none=True) for one in state.input]


def _other(against: str, state: TaskState, target: Target) -> str | None:
    """Return the text that a completion is compared with; None if the sample has none."""
    if against == "target":
        return target.text or None
    value = (state.metadata or {}).get(against.removeprefix(_METADATA))
    return value if isinstance(value, str) and value else None


def _details(judgment: Judgment) -> dict[str, Any]:
    """Return what led to a verdict: A is the completion, and B the text that it is compared with."""
    found: dict[str, Any] = judgment.to_dict()
    return {name: value for name, value in found.items() if name not in ("id", "label", "correct")}
