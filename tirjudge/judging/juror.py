"""A juror: one model that judges tasks. Options set the format, samples and criteria of the dialogues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast, get_args

from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.judging.checked import UNCHECKED, Checked
from tirjudge.judging.combining import by_criteria, by_criterion, by_views, self_consistency
from tirjudge.judging.empty_answers import among_all, left, rule_view, with_content
from tirjudge.judging.judge_model import JudgeModel, view_tokens
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.options import JudgeOptions
from tirjudge.judging.questions import FAMILIES, Kind, environment_name, format_for
from tirjudge.models.resolve import ModelNote
from tirjudge.rollout import Rollout, all_or_none
from tirjudge.rollout.callers import Turns
from tirjudge_environments import (
    Context,
    Environment,
    Episode,
    Finish,
    JudgeTask,
    Message,
    Prompt,
    StopReason,
)
from tirjudge_environments.formats.checks import unreadable
from tirjudge_environments.orders import Order
from tirjudge_environments.registry import environment_options, open_environment
from tirjudge_environments.tools.base import Tool
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Sandbox
from tirjudge_sandbox.prepared import prepared_docstring

logger = logging.getLogger(__name__)

_TURNS_WITHOUT_PROGRAMS = 5
"""Turns of a view beyond the turns that run a program, the verdict's included."""


@dataclass(slots=True)
class Juror:
    """One model that judges; belongs to one event loop. A judge without a jury has one juror."""

    model: JudgeModel
    options: JudgeOptions
    """The options of this model alone."""
    sandbox: Sandbox
    tools: Sequence[Tool] = ()
    """Open tools besides Python."""
    weight: float = 1.0
    """Weight of the juror's votes and scores in a jury."""
    turns: Turns | None = None
    """Places for dialogues that all rollouts share; None: every rollout has its own."""
    tie_guesses: bool = False
    """Count guesses as ties where several verdicts become one."""
    _rollouts: dict[tuple[str, Order | None, bool], Rollout] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.model.name

    async def judge(
        self,
        format: str,
        task: JudgeTask,
        order: Order | None = None,
        *,
        evidence: bool = True,
        checked: Checked = UNCHECKED,
    ) -> Judgment:
        """Judge a task alone; see `answers`."""
        answers = await self.answers(format, task, order, evidence=evidence, checked=checked)
        return self.combined(task, answers, checked)

    async def answers(
        self,
        format: str,
        task: JudgeTask,
        order: Order | None = None,
        *,
        evidence: bool = True,
        checked: Checked = UNCHECKED,
    ) -> list[Judgment]:
        """Return the juror's judgments on each criterion of a task, or on a task without criteria.

        `format` is a kind or the name of a format, and `order` replaces the configured order of responses.
        Without `evidence` no program runs twice, whatever the options say. The `checked` criteria, which are
        not all, are left out.
        """
        format = self.named(format, task)
        kept = tuple(range(len(task.candidates)))
        if len(kept) > 1 and self.options.empty_loses:
            kept = with_content(task)
        if len(kept) < len(task.candidates):
            return await self._among(kept, format, task, order, evidence, checked)
        return await self._asked(format, task, order, evidence, checked)

    async def _asked(
        self, format: str, task: JudgeTask, order: Order | None, evidence: bool, checked: Checked
    ) -> list[Judgment]:
        """Return the judgments on a task whose responses all have content, or count as if they had."""
        size = self.options.criteria_per_call
        asked = [one for number, one in enumerate(task.criteria) if number not in checked]
        starts = range(0, max(1, len(asked)), size)
        questions = [replace(task, criteria=tuple(asked[start : start + size])) for start in starts]
        found = await all_or_none(self._sampled(format, question, order, evidence) for question in questions)
        return [judged for part in found for judged in part]

    async def _among(
        self,
        kept: Sequence[int],
        format: str,
        task: JudgeTask,
        order: Order | None,
        evidence: bool,
        checked: Checked,
    ) -> list[Judgment]:
        """Return the answers where only the responses `kept` have content (see `empty_answers`)."""
        if len(kept) > 1:
            # A list of which a pair is left is judged as one.
            asked = format.replace("listwise", "pairwise") if len(kept) == 2 else format
            found = await self._asked(asked, left(task, kept), order, evidence, checked)
            return [among_all(one, task, kept, format) for one in found]
        samples = range(self.options.samples)
        episodes = [Episode(task, number, (rule_view(task, kept, number),)) for number in samples]
        ruled = _of_samples(format, task, episodes, False, self.tie_guesses)
        return [ruled] * max(1, len(task.criteria) - len(checked))

    def combined(
        self, task: JudgeTask, answers: Sequence[Judgment], checked: Checked = UNCHECKED
    ) -> Judgment:
        """Combine what `answers` returns into the judgment of the task."""
        if not task.criteria:
            return answers[0]
        return by_criteria(
            task, answers, self.options.satisfied_from, checked=checked, tie_guesses=self.tie_guesses
        )

    async def ask(self, text: str, *, tokens: int | None = None) -> str:
        """Return the greedy answer to a question of our own; raises GeneratorFailed."""
        prompt, ids = Prompt(messages=(Message("user", text),)), None
        generator = self.model.generator
        if (encoder := generator.encoder) is not None:
            prompt = replace(prompt, prefill=encoder.opening(prompt))
            ids = tuple(encoder.prompt(prompt))
        sampling = Sampling(max_tokens=tokens or view_tokens(self.options, self.model.note))
        completion = await generator.generate(Context(prompt, ids=ids), sampling)
        if completion.finish is Finish.UNKNOWN and not completion.text.strip():
            raise GeneratorFailed(f"the model answered nothing ({completion.finish_word})")
        return prompt.prefill + completion.text

    def rollout(self, format: str, order: Order | None = None, *, evidence: bool = True) -> Rollout:
        """Return the rollout of a format from `named`; raises ValueError for unknown prompts or options."""
        if (format, order, evidence) not in self._rollouts:
            options, model = self.options, self.model
            if not evidence and options.confidence != "evidence":
                options = options.model_copy(update={"evidence": False})
            tokens = view_tokens(options, model.note)
            self._rollouts[format, order, evidence] = Rollout(
                open_format(format, options, model.name, model.note, order),
                model.generator,
                self.sandbox,
                tools=self.tools,
                budget=Budget(
                    turns=options.max_tool_calls + _TURNS_WITHOUT_PROGRAMS,
                    tool_calls=options.max_tool_calls,
                    tokens=tokens,
                    late_text=False,
                ),
                limits=options.limits,
                sampling=Sampling.of(options, max_tokens=tokens),
                seed=options.seed,
                ask_for_verdict=options.ask_for_verdict,
                turns=self.turns,
            )
        return self._rollouts[format, order, evidence]

    def named(self, format: str, task: JudgeTask | None = None) -> str:
        """Return the format by which this model judges a task, for a kind, format or family.

        A family is for models without another training. A kind is judged as the model's note says, or else by
        the family `untrained`, if it can read the task.
        """
        family, note = self.options.format, self.model.note
        if format in FAMILIES:
            format = format_for(format, "pairwise")
        if family in FAMILIES and note.formats and not any(one.startswith(family) for one in note.formats):
            format = format.removeprefix(f"{family}-")
        if format not in get_args(Kind):
            return format
        asks_first = not note.model_fields_set and self.options.untrained == "checks"
        chosen = "checks" if asks_first and not (task and unreadable(task, format)) else ""
        return format_for(chosen, cast(Kind, format), note.formats)

    async def _sampled(
        self, format: str, task: JudgeTask, order: Order | None, evidence: bool
    ) -> list[Judgment]:
        """Sample a task, and return a judgment for each criterion that the dialogues are about."""
        rollout, samples = self.rollout(format, order, evidence=evidence), self.options.samples
        group = [await rollout.episode(task)] if samples == 1 else await rollout.group(task, samples)
        # The output of a program is not about one of several criteria.
        known = records_evidence(rollout.environment) and len(task.criteria) < 2
        parts = zip(*map(by_criterion, group), strict=True)
        return [_of_samples(format, task, part, known, self.tie_guesses) for part in parts]


def _of_samples(
    format: str, task: JudgeTask, group: Sequence[Episode], evidence: bool, tie_guesses: bool
) -> Judgment:
    judged = [by_views(format, one, evidence=evidence, tie_guesses=tie_guesses) for one in group]
    result = self_consistency(judged, tie_guesses=tie_guesses)
    if result.stop is StopReason.PROMPT_TOO_LONG:
        cut = {
            "a response": max(map(_size, task.candidates), default=0),
            "the reference": len(task.reference),
        }
        parts = {"the prompt": _size(task.prompt), **cut}
        longest = max(parts, key=parts.__getitem__)
        hint = f"{longest} has {parts[longest]} characters{', which --truncate shortens' * (longest in cut)}"
        result = replace(result, detail=f"{result.detail}; {hint}")
    return result


def _size(said: str | Sequence[Message]) -> int:
    """Return the characters of a text, or of messages."""
    return len(said) if isinstance(said, str) else sum(len(one.content) for one in said)


def open_format(
    name: str, options: JudgeOptions, model: str, note: ModelNote, order: Order | None = None
) -> Environment:
    """Open a kind or format with those options that it knows, for a model with a note.

    `order` replaces the configured order of responses. Raises ValueError for unknown prompts or options.
    """
    format = environment_name(name)
    if note.formats and format not in note.formats:
        logger.warning("%s judges by %s, and was not made for %s", model, ", ".join(note.formats), format)
        if not any(one.startswith(format.partition("-")[0]) for one in note.formats):
            # A family of formats has prompts of its own.
            note = ModelNote()
    is_check = format.startswith("checks-")
    prompts = options.prompts or (note.prompts if note.prompts not in FAMILIES else None)
    wanted = {
        "tools": options.tools,
        "prompts": prompts,
        "shown_chars": options.shown_chars or note.shown_chars,
        "bindings": options.bindings,
        "exact": options.exact,
        # A judge of a training knows its prompt, which names no variables; a check has none.
        "name_variables": options.name_variables and not note.model_fields_set and not is_check,
        "protocol": "tool" if options.tier == "tools" else "fence",
        "order": options.order,
        "seed": options.seed,
        "per_criterion": options.criteria_per_call > 1,
        "evidence": "recorded" if options.evidence and options.tools else None,
        "prepared": prepared_docstring(options.prepare) if options.prepare else None,
    }
    # Options with a default, such as `bindings`, do not apply to every format: leave out unknown ones.
    known = environment_options(format)
    if options.criteria_per_call > 1 and "per_criterion" not in known:
        raise ValueError(f"the format {format} gives one answer: leave out --criteria-per-call")
    if options.prompts and (is_check or "prompts" not in known):
        raise ValueError(
            f"--prompts {options.prompts}: the format {format} has its own prompts: leave it out"
        )
    taken = {key: value for key, value in wanted.items() if key in known and value is not None}
    trained = dict(note.formats.get(format, {}))
    if not options.tools:
        # --no-tools holds in every domain, also where the training had tools.
        trained.pop("tools_by_domain", None)
    # An option of the run that was left at its default gives way to that of the training.
    asked = {key: value for key, value in taken.items() if key in trained and _is_chosen(options, key)}
    chosen = {**taken, **trained, **asked, **options.options}
    if own := options.own_prompts:
        chosen["prompts"] = own
    if order is not None:
        if "order" not in known:
            raise ValueError(f"the format {format} does not show responses in an order that can be chosen")
        chosen["order"] = order
    if "evidence" not in options.options and (chosen.get("exact") or not chosen.get("bindings", True)):
        # Without variables there is nothing to exchange.
        chosen.pop("evidence", None)
    return open_environment(format, **chosen)


def records_evidence(environment: Environment) -> bool:
    """Return True if successful programs of this format are run again with exchanged responses."""
    return getattr(environment, "evidence", "off") != "off"


def _is_chosen(options: JudgeOptions, name: str) -> bool:
    """Return True if an option of the format was chosen for this run."""
    own = {"protocol": "tier", "per_criterion": "criteria_per_call"}.get(name, name)
    return bool(getattr(options, own) != JudgeOptions.model_fields[own].default)
