"""Formats in which the judge writes its check before it sees a response: pairs, lists, single responses.

The first turn shows the request alone, and the judge answers with `check(response)`, a list with True, False
or None for each requirement. A trusted harness runs the function once for each response, in a process of its
own (see `programs.check_harness`). If the counts single out a response, they are the verdict; else the judge
sees the responses and chooses. No response can talk to the check, or the judge out of it, and the check
favours no position and cannot replace texts by copies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from pydantic import model_validator

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.reward_terms import NO_TOOL_DOMAINS
from tirjudge_environments.formats.tir import STOP, TirFormat
from tirjudge_environments.formats.tir_comparison import TirListwise, TirPairwise
from tirjudge_environments.formats.tir_pointwise import TirPointwise
from tirjudge_environments.orders import letters
from tirjudge_environments.programs.check_harness import EMPTY, ERROR, MOST_RESPONSES, NOTHING
from tirjudge_environments.programs.evidence import favourite, score_of
from tirjudge_environments.templates import Template, load_template, question_text
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_environments.turn_reader import find_fences, without_thinking
from tirjudge_environments.types import (
    THINK,
    By,
    Call,
    Completion,
    Continue,
    Finish,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Reading,
    Refused,
    RunCode,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_sandbox import Execution, Status

_CHECK = re.compile(
    r"^(?=import |from \S+ import |def |class |@|\w+ = ).*?^def check *\(", re.MULTILINE | re.DOTALL
)
"""Code from its first line on, up to `check`; what stands above the function may be part of it."""
_TOO_LATE = "The responses have been shown, so no other check runs. Give the verdict."


class ChecksFormat(TirFormat):
    """A TIR-Judge format whose judge writes one function, which runs on every response. Our own format."""

    prompts: str = "checks"
    """The family of the prompt that asks for the function: `checks` has examples, `coder` has none and is for
    models that are trained with it."""

    @model_validator(mode="after")
    def _checks_run(self) -> Self:
        if not self.tools or not all(self.tools_by_domain.values()):
            raise ValueError("a judge that writes checks needs programs: leave `tools` on, or use tir")
        if self.exact or not self.bindings:
            raise ValueError("checks find the responses as variables: use tir for `exact` or no `bindings`")
        if self.further_tools or self.per_criterion:
            raise ValueError("checks take no further tools and one criterion at a time: use tir")
        return self

    def model_post_init(self, context: Any) -> None:
        load_template(f"{self.prompts}-function")

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        if reason := unreadable(task, self.kind):
            raise ValueError(f"{reason}: use tir")
        # Every member puts this class before a format of TIR-Judge, which has the views.
        return super().views(task)  # type: ignore[safe-super]

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        asked = question_text(replace(task, reference=self._excerpt(task.reference)), self.prompts)
        text = load_template(f"{self.prompts}-function").fill(asked, ())
        if any(not isinstance(response, str) for response in task.candidates):
            text = f"{text}\n{load_template('checks-transcripts').text}"
        if self.prepared:
            text = f"{text}\n{load_template('tir-prepared').with_values({'names': self.prepared})}"
        native = self.protocol == "tool"
        return Prompt(
            messages=(Message("user", text),),
            stop=() if native else STOP,
            tools=(RUN_PYTHON,) if native else (),
        )

    def later_text(self, task: JudgeTask, view: View) -> str:
        """Return the text around the counts: the responses, and the question for the verdict."""
        shown = [self._excerpt(task.candidates[index]) for index in view.order]
        # Asked for a letter "as in" an example, a small model leaves out the tags.
        answers = " or ".join(f"<{self.tag}>{letter}</{self.tag}>" for letter in letters(len(shown)))
        text = load_template(f"checks-{self.kind}").with_values({"answers": answers})
        return Template(text).fill("", shown)

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        repairs = len(completion.outputs) == 1 and completion.outputs[0].rstrip().endswith(_repair())
        text, thinks = completion.text, completion.text.lstrip().startswith(THINK)
        answer = without_thinking(text) if thinks or repairs or not completion.outputs else text
        ended = answer != text
        if thinks and not ended and completion.finish is Finish.STOP:
            return Continue()
        if thinks or ended:
            # A draft in the thinking is no function yet. Blanks in its place keep the offsets of the rest.
            completion = replace(completion, text=(f"\n{answer}" if ended else "").rjust(len(text)))
        reading = super().read(task, view, completion)
        if completion.outputs and not repairs:
            if not isinstance(reading, RunCode):
                return reading
            if completion.outputs[-1].removeprefix("```output\n").startswith(_TOO_LATE):
                return Malformed("code again in place of the verdict")
            return replace(reading, fault=reading.fault or _TOO_LATE)
        if isinstance(reading, Continue) and completion.finish is Finish.STOP:
            return reading
        if not isinstance(reading, RunCode):
            # The turn ended: whatever it says, no response was seen, so it gives no verdict.
            source = _written_check(completion.text) or EMPTY
            reading = RunCode(source, self._bindings(task, view), exchanged=self.exchanged(task, view))
        return replace(reading, opened=False, is_check=True, repairable=not repairs)

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        text = super().show(request, outcome)
        return text if self.shows_later(request, outcome) or _is_late(request) else f"{text}\n{_repair()}\n"

    def shows_later(self, request: RunCode, outcome: Execution | Refused) -> bool:
        failed = isinstance(outcome, Execution) and (
            outcome.status is not Status.OK or outcome.stdout.startswith(ERROR)
        )
        return not _is_late(request) and not (request.repairable and failed)

    def settled(self, view: View, calls: Sequence[Call]) -> Verdict | None:
        """Return the verdict of counts that single out a response; the judge, who reads none, cannot undo it.

        A single response that keeps k of n checks scores 1 + 9 k / n.
        """
        outcome = calls[-1].outcome if calls else None
        if not isinstance(outcome, Execution) or not self.shows_later(calls[-1].request, outcome):
            return None
        if len(view.order) > 1:
            best = favourite(outcome.stdout, len(view.order))
            return None if best is None else Verdict(choice=view.order[best])
        score = score_of(outcome.stdout)
        return None if score is None else Verdict(scores={view.order[0]: score})

    def replay(self, task: JudgeTask, trajectory: Trajectory) -> Verdict | None:
        if trajectory.stop is StopReason.VERDICT and trajectory.segments[-1].by is By.SANDBOX:
            return self.settled(trajectory.view, trajectory.calls)
        return super().replay(task, trajectory)

    def well_formed(self, task: JudgeTask, trajectory: Trajectory) -> bool:
        """Return Rf: as for TIR-Judge, and in a domain without tools the function returns an empty list."""
        if task.domain not in NO_TOOL_DOMAINS:
            return super().well_formed(task, trajectory)
        asked = super().well_formed(replace(task, domain=""), trajectory)
        return asked and all(
            isinstance(call.outcome, Execution) and call.outcome.stdout.strip() == NOTHING
            for call in trajectory.calls
        )


def unreadable(task: JudgeTask, kind: str) -> str:
    """Return why no check of this kind can read the responses of a task; empty if checks can."""
    if task.files or task.prompt_files.files:
        return f"checks read texts, and task {task.id!r} has files"
    if kind != "pointwise" and (count := len(task.candidates)) > MOST_RESPONSES:
        return f"checks compare at most {MOST_RESPONSES} responses, and task {task.id!r} has {count}"
    return ""


def _is_late(request: RunCode) -> bool:
    return request.fault == _TOO_LATE


def _repair() -> str:
    return load_template("checks-repair").text


def _written_check(turn: str) -> str:
    """Return the code of a turn that defines `check`: a fence in any language, or the turn's end.

    Models without training often leave out the language or the last fence. Empty if nothing defines it.
    """
    bodies = [turn[fence.body_start : fence.body_end] for fence in find_fences(turn)]
    for text in (*bodies, turn):
        # Without the function, the pattern would look for it from every line on.
        if "\ndef check" in f"\n{text}" and (found := _CHECK.search(text)):
            return text[found.start() :]
    return ""


class ChecksPairwise(ChecksFormat, TirPairwise):
    """Checks for two responses, answered by `<preference>A</preference>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="the request; after a tie, both responses in a random order",
        answer="`check(response)`, then `<preference>A</preference>`",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf])",
        source="our own; reward of TIR-Judge section 4.2",
    )


class ChecksListwise(ChecksFormat, TirListwise):
    """Checks for three to sixteen responses, answered by `<preference>C</preference>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="the request; after a tie, three to sixteen responses in a random order",
        answer="`check(response)`, then `<preference>C</preference>`",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf])",
        source="our own; reward of TIR-Judge section 4.2",
    )


class ChecksPointwise(ChecksFormat, TirPointwise):
    """Checks for one response, answered by `<score>7</score>`, from 1 to 10."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="the request; if the check tests nothing, the response",
        answer="`check(response)`, then `<score>7</score>`, from 1 to 10, decimals allowed",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf]); Rc for all views if the better one scores higher",
        source="our own; reward of TIR-Judge section 4.2",
    )
