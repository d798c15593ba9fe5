"""The base class of TIR-Judge's three formats: prompts, dialogue, and the format part of the reward."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from tirjudge_environments.files.folder import Folder
from tirjudge_environments.files.listing import listing, unlisted
from tirjudge_environments.formats.reward_terms import (
    NO_TOOL_DOMAINS,
    Rewarded,
    Term,
    correct,
    tools_in_order,
)
from tirjudge_environments.messages import (
    conversation_data,
    is_transcript,
    response_data,
    response_text,
    tool_data,
    tools_text,
)
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.programs.outputs import output_text, quote_fences, replacement_note
from tirjudge_environments.quoting import opens_an_output, quote_lines
from tirjudge_environments.templates import (
    OwnPrompts,
    Template,
    load_template,
    prompt_families,
    question_text,
)
from tirjudge_environments.tools.python import RUN_PYTHON
from tirjudge_environments.turn_reader import Turn, behind_thinking, elements
from tirjudge_environments.types import (
    THINK,
    By,
    Completion,
    Continue,
    Episode,
    Finish,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Question,
    Reading,
    Refused,
    Response,
    RunCode,
    StopReason,
    ToolCall,
    ToolSpec,
    Trajectory,
    Verdict,
    View,
    model_turns,
)
from tirjudge_sandbox import Execution

STOP = ("\n```\n", "\n```output")
"""Texts at which a program may be complete, or at which the model opens the output of the sandbox."""

_ISOLATED = "tir-isolated"
"""The prompt file that ends the prompt under the option `isolated`."""
_TRANSCRIPTS = "tir-transcripts"
"""The prompt file that says how programs find transcripts."""
_FILES = "tir-files"
"""The prompt file that says how programs find the files of responses."""
_VARIABLES = "tir-variables"
"""The prompt file that names the variables of programs, under the option `name_variables`."""
_PREPARED = "tir-prepared"
"""The prompt file that says what programs find defined."""
_CRITERIA = "tir-criteria"
"""The prompt file that asks for an answer to each of several criteria."""
_TOOLS = "tir-tools"
"""The prompt file that describes the tools besides Python, under the `fence` protocol."""


class TirFormat(Rewarded, ABC):
    """A TIR-Judge format (TIR App. A for the prompts, section 4.2 for the dialogue and the reward)."""

    kind: ClassVar[str]
    """The middle part of the names of the prompt files."""
    tag: ClassVar[str]
    """The name of the element that holds the answer."""

    tools: bool = True
    """False makes the judge text-only, except in the domains that `tools_by_domain` names."""
    tools_by_domain: Mapping[str, bool] = Field(default_factory=dict)
    """Domains that differ from `tools`. Our own option: the paper does not say which rows get which
    prompts."""
    prompts: str | OwnPrompts = "tir"
    """The family of prompt files, or prompts of one's own."""
    bindings: bool = True
    """True if programs find `prompt`, the responses and a `reference` as variables; off under `exact`."""
    name_variables: bool = False
    """Tell the judge the names of the variables, and that a program which gave one of them another value says
    nothing about the given text. Our own option."""
    exact: bool = False
    """Follow the paper exactly: no bindings, and fences inside outputs stay unchanged."""
    protocol: Literal["fence", "tool"] = "fence"
    """Programs are fences in the text, as in the paper, or native calls of `run_python(code)`."""
    further_tools: tuple[ToolSpec, ...] = ()
    """Tools besides Python that the judge may call in both protocols, in a fence with the name of the tool or
    natively; see `registry.with_tools`. Our own option."""
    output_chars: int = Field(default=2000, ge=100)
    """Maximum length of a shown output; a longer one is cut in the middle."""
    shown_chars: int | None = Field(default=None, ge=2)
    """Characters of a response, and of the reference, that the prompt shows, half of them from each end,
    around a count of the characters left out; None shows all of a text, and 16,000 characters of a
    transcript. Programs find them whole in either case. Our own option."""

    isolated: bool = False
    """Tell the judge how its programs run the code of a response as a separate program. Our own option; the
    module `isolated` is there in either case."""

    prepared: str = ""
    """The names that every program finds because the sandbox is opened with `prepare`, as the judge is told
    of them; empty tells it nothing. Our own option."""

    per_criterion: bool = False
    """Ask for one answer to each criterion of a task that has several. Our own option."""

    def model_post_init(self, context: Any) -> None:
        """Load every prompt that may be needed, so that a missing prompt fails before a run."""
        for with_tools in {self.tools, *self.tools_by_domain.values()}:
            self._template(with_tools)

    @property
    @abstractmethod
    def linked(self) -> bool: ...

    @abstractmethod
    def views(self, task: JudgeTask) -> tuple[View, ...]: ...

    @abstractmethod
    def verdict(self, view: View, answer: str) -> Verdict | None:
        """Parse the text inside the answer tag; None for an answer that is invalid for this view."""

    @property
    def own_terms(self) -> Mapping[str, Term]:
        """Rc, Rf and Rt of TIR section 4.2."""
        return {
            "correct": Term(correct),
            "format": Term(lambda seen: float(self.well_formed(seen.task, seen.trajectory))),
            "tool": Term(lambda seen: float(tools_in_order(seen.trajectory))),
        }

    def equation(self, parts: Mapping[str, float]) -> float:
        """Return R = Rc * (0.1 + 0.9 * [Rt and Rf]), from 0 to 1 (TIR Eq. 4)."""
        return parts["correct"] * (0.1 + 0.9 * bool(parts["format"] and parts["tool"]))

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        with_tools = self.uses_tools(task)
        responses = [
            self._with_files(self._excerpt(response), task, index, position, len(view.order))
            for position, (index, response) in enumerate(zip(view.order, _shown(task, view), strict=True))
        ]
        own = self.prompts if isinstance(self.prompts, OwnPrompts) else OwnPrompts()
        family = self.prompts if isinstance(self.prompts, str) else ""
        asked = question_text(replace(task, reference=self._excerpt(task.reference)), family)
        template = self._template(with_tools)
        text = template.fill(asked, responses)
        variables = self._bindings(task, view) if with_tools and self.name_variables else {}
        if names := [f"`{name}`" for name, value in variables.items() if not _is_of_files(value)]:
            text = f"{text}\n{load_template(_VARIABLES).with_values({'names': ', '.join(names)})}"
        notes = [_TRANSCRIPTS] if with_tools and self._binds_transcripts(task) else []
        has_files = task.files or task.prompt_files.files
        if with_tools and has_files and self.bindings and not self.exact:
            notes.append(_FILES)
        for note in [*notes, *([_ISOLATED] if with_tools and self.isolated else [])]:
            text = f"{text}\n{load_template(note).text}"
        if with_tools and self.prepared:
            text = f"{text}\n{load_template(_PREPARED).with_values({'names': self.prepared})}"
        if (count := self._answers(task)) > 1:
            answers = " ".join([f"<{self.tag}>...</{self.tag}>"] * count)
            asked_for = {"count": str(count), "answers": answers}
            text = f"{text}\n{load_template(_CRITERIA).with_values(asked_for)}"
        native = self.protocol == "tool"
        if with_tools and self.further_tools and not native:
            described = tools_text(self.further_tools)
            text = f"{text}\n{load_template(_TOOLS).with_values({'tools': described})}"
        before = [Message("system", own.system)] if own.system else []
        for one in own.shown_before(self.kind):
            before += [
                Message("user", template.fill(one.prompt, one.responses)),
                Message("assistant", one.answer),
            ]
        return Prompt(
            messages=(*before, Message("user", text)),
            stop=STOP if with_tools and not native else (),
            tools=(RUN_PYTHON, *self.further_tools) if with_tools and native else (),
        )

    @property
    def marks(self) -> tuple[str, ...]:  # type: ignore[override]
        called = ("tool_call", "tool_calls", "tool_response") if self.protocol == "tool" else ()
        return (self.tag, "think", *called)

    @property
    def is_bounded(self) -> bool:
        return self.boundary and not self.exact

    def uses_tools(self, task: JudgeTask) -> bool:
        """Return True if the judge of this task may run programs."""
        return self.tools_by_domain.get(task.domain, self.tools)

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        turn = self._turn(task, completion.text)
        if self.uses_tools(task):
            if self.protocol == "tool" and completion.tool_calls:
                return self._read_call(task, view, completion.tool_calls[0])
            if self.protocol == "fence" and turn.program is not None:
                opened = turn.awaited is not None
                if turn.tool:
                    return RunCode(turn.source, opened=opened, end=turn.request_end, tool=turn.tool)
                return RunCode(
                    turn.source,
                    self._bindings(task, view),
                    opened,
                    end=turn.request_end,
                    exchanged=self.exchanged(task, view),
                )
        # A stop string without a program, such as the end of another fence, is only a pause within the turn.
        if completion.finish is Finish.STOP:
            return Continue()
        searched = turn.text if completion.finish is Finish.END else turn.before_open_request
        opened, answers = self._thinks(completion.earlier), self._answers(task)
        reading = self._read_answer(view, self._turn(task, searched), opened, answers)
        # A turn that was cut is not malformed: the session ends it as `token_budget`.
        cut = completion.finish is Finish.LENGTH and isinstance(reading, Malformed)
        return Continue() if cut else reading

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        text = output_text(outcome, self.output_chars, called=bool(request.tool))
        if self.name_variables and isinstance(outcome, Execution) and not request.is_check:
            text += replacement_note(request.source, request.bindings)
        if request.call_id is not None:
            return text
        body = text if self.exact else quote_fences(text)
        return f"{body}\n```\n" if request.opened else f"```output\n{body}\n```\n"

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        return ()

    def replay(self, task: JudgeTask, trajectory: Trajectory) -> Verdict | None:
        """Read the verdict again from the text of the turns; None without a verdict."""
        if trajectory.stop is not StopReason.VERDICT:
            return None
        *earlier, last = model_turns(trajectory.prompt, trajectory.segments)
        reading = self._read_answer(trajectory.view, self._turn(task, last), self._thinks(earlier), 1)
        return reading if isinstance(reading, Verdict) else None

    def well_formed(self, task: JudgeTask, trajectory: Trajectory) -> bool:
        """Return Rf: the verdict's tag is unique and last, fences are closed, no output is forged, and no
        program was requested in a domain without tools.
        """
        if self.replay(task, trajectory) is None:
            return False
        written = model_turns(trajectory.prompt, trajectory.segments)
        turns = [self._turn(task, text) for text in written]
        tags = [tag for turn in turns for tag in turn.tags(self.tag)]
        settled = trajectory.segments[-1].by is By.SANDBOX  # the verdict is then in no turn
        if len(tags) != (0 if settled else 2):
            return False
        if tags and turns[-1].text[tags[-1].end :].strip():
            return False
        if any(turn.unclosed or turn.forged for turn in turns):
            return False
        # A judge without tools may write a program too, which is then not among the calls.
        called = bool(trajectory.calls) or any(turn.program for turn in turns)
        return not (called and task.domain in NO_TOOL_DOMAINS)

    def allowed_answers(self, task: JudgeTask, view: View) -> str:
        """Return the answers that a view may get, for the turn that asks for the verdict alone."""
        count, scale = self._answers(task), getattr(self, "scale", None)
        number = [f"a number from {scale[0]:g} to {scale[1]:g}"] if scale else letters(len(view.order))
        form = " or ".join(f"<{self.tag}>{one}</{self.tag}>" for one in number)
        return f"{form}, {count} times: for each criterion in order" if count > 1 else form

    def _thinks(self, earlier: Sequence[str]) -> bool:
        """Return True if the model's earlier turns left its thinking open."""
        opened = False
        for text in earlier:
            thinking = opened or text.lstrip().startswith(THINK)
            opened = thinking and behind_thinking(THINK + text) is None
        return opened

    def _turn(self, task: JudgeTask, text: str) -> Turn:
        runs = self.protocol == "fence" and self.uses_tools(task)
        return Turn(text, tuple(tool.name for tool in self.further_tools), runs)

    def _template(self, with_tools: bool) -> Template:
        variant = "-no-tools" if not with_tools else "-calls" if self.protocol == "tool" else ""
        if isinstance(self.prompts, OwnPrompts):
            return self.prompts.template(self.kind, variant)
        part = f"{self.kind}{variant}"
        if self.prompts not in (known := prompt_families(part)):
            raise ValueError(f"no prompts {self.prompts!r} for {part}; there are {', '.join(known)}")
        return load_template(f"{self.prompts}-{part}")

    def _excerpt(self, response: Response) -> str:
        # Only the sandbox opens outputs, and endpoints show those in the same role as the prompt.
        return quote_lines(response_text(response, self.shown_chars), opens_an_output)

    def _with_files(self, text: str, task: JudgeTask, index: int, position: int, count: int) -> str:
        """Return a response followed by the listing of its files, if the task has files."""
        if not task.files:
            return text
        of = "this response" if count == 1 else f"response {letter(position)}"
        shown = quote_lines(listing(task.files[index], of, task.prompt_files), opens_an_output)
        return f"{unlisted(text)}\n\n{shown}" if text.strip() else shown

    def _binds_transcripts(self, task: JudgeTask) -> bool:
        transcripts = any(not isinstance(response, str) for response in task.candidates)
        return self.bindings and not self.exact and (transcripts or is_transcript(task.prompt))

    def _bindings(self, task: JudgeTask, view: View) -> dict[str, Any]:
        if self.exact or not self.bindings:
            return {}
        responses = list(map(response_data, _shown(task, view)))
        bound: dict[str, Any] = {"prompt": conversation_data(task.prompt)}
        if task.reference:
            bound["reference"] = task.reference
        if task.tools:
            bound["tools"] = list(map(tool_data, task.tools))
        folders = [task.files[index] for index in view.order] if task.files else []
        if folders or task.prompt_files.files:
            bound["prompt_files"] = task.prompt_files
        if len(folders) == 1:
            bound["files"] = folders[0]
        elif folders:
            bound |= {f"files_{letter(i).lower()}": folder for i, folder in enumerate(folders)}
            bound["files"] = folders
        if len(responses) == 1:
            return bound | {"response": responses[0]}
        named = {f"response_{letter(i).lower()}": response for i, response in enumerate(responses)}
        return bound | named | {"responses": responses}

    def exchanged(self, task: JudgeTask, view: View) -> tuple[dict[str, Any], ...]:
        """Return the variables of further runs with other responses; empty if the format needs none."""
        return ()

    def _read_call(self, task: JudgeTask, view: View, call: ToolCall) -> Reading:
        if call.name in (tool.name for tool in self.further_tools):
            return RunCode(call.arguments, call_id=call.id, tool=call.name)
        if call.name != RUN_PYTHON.name:
            names = ", ".join(tool.name for tool in (RUN_PYTHON, *self.further_tools))
            fault = f"There is no tool of this name. The tools are: {names}."
            return RunCode(call.arguments, call_id=call.id, fault=fault)
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):  # deeply nested JSON exceeds the recursion limit
            arguments = None
        if not isinstance(arguments, dict) or not isinstance(arguments.get("code"), str):
            fault = 'The arguments are not a JSON object with a text "code". Nothing was run.'
            return RunCode(call.arguments, call_id=call.id, fault=fault)
        return RunCode(
            arguments["code"],
            self._bindings(task, view),
            call_id=call.id,
            exchanged=self.exchanged(task, view),
        )

    def _answers(self, task: JudgeTask) -> int:
        """Return the number of answers that the judge of this task is asked for."""
        return max(1, len(task.criteria)) if self.per_criterion else 1

    def _read_answer(self, view: View, turn: Turn, opened: bool, answers: int) -> Verdict | Malformed:
        """Read the verdict of a turn; `opened` is True if the turn begins within thinking."""
        text = turn.text
        # Only a turn that begins with the tag thinks: elsewhere the judge may quote it from a response.
        if opened or text.lstrip().startswith(THINK):
            behind = behind_thinking(THINK + text)
            if behind is None:
                return Malformed("the thinking was not closed")
            turn = replace(turn, text=behind)
        if answers > 1:
            return self._read_each(view, turn, answers, len(text) - len(turn.text))
        answer = turn.answer(self.tag)
        if answer is not None:
            bodies = {element.body for element in elements(turn.text, self.tag)}
            found = [verdict for body in bodies if (verdict := self.verdict(view, body)) is not None]
            contested = any(one != found[0] for one in found)
            verdict = self.verdict(view, answer)
            reason = f"the last <{self.tag}> holds no answer to this view"
            return replace(verdict, contested=contested) if verdict else Malformed(reason, contested)
        return Malformed(
            f"no complete <{self.tag}> at the end" if turn.tags(self.tag) else f"no <{self.tag}>"
        )

    def _read_each(self, view: View, turn: Turn, answers: int, skipped: int) -> Verdict | Malformed:
        """Read the answers to several criteria from a turn without its thinking, of `skipped` characters."""
        tags = turn.tags(self.tag)
        opened, closed = tags[::2], tags[1::2]
        in_turn = all(one.opens for one in opened) and not any(one.opens for one in closed)
        if len(tags) != 2 * answers or not in_turn:
            return Malformed(f"not one <{self.tag}> for each of {answers} criteria")
        read: list[tuple[Verdict, int]] = []
        for first, last in zip(opened, closed, strict=True):
            verdict = self.verdict(view, turn.text[first.end : last.start].strip())
            if verdict is None:
                return Malformed(f"<{self.tag}> {len(read) + 1} holds no answer to this view")
            read.append((verdict, skipped + last.end))
        return Verdict(criteria=tuple(read))


def _is_of_files(value: Any) -> bool:
    return isinstance(value, Folder) or (isinstance(value, list) and isinstance(value[0], Folder))


def _shown(task: JudgeTask, view: View) -> list[Response]:
    return [task.candidates[index] for index in view.order]
