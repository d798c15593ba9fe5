"""The judge engine: a model, a sandbox and the judge formats, opened together, with a meter and a cache."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Self, get_args

from tirjudge.generation.base import Generator
from tirjudge.generation.endpoint.http import Retry
from tirjudge.generation.spending import MeteredGenerator, Spending
from tirjudge.judging.checked import CriteriaCheckers, audited
from tirjudge.judging.empty_answers import with_content
from tirjudge.judging.judge_model import JudgeModel, check_model, open_model, undecided_verdicts
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.juror import Juror, open_format
from tirjudge.judging.jury import Jury
from tirjudge.judging.options import JudgeOptions, NoSandbox
from tirjudge.judging.questions import Kind, format_for, kind_for
from tirjudge.models.resolve import ModelNote
from tirjudge.records.verdicts import EMPTY
from tirjudge.rollout import Rollout
from tirjudge.rollout.callers import CallersSandbox, FairGenerator, Turns
from tirjudge_environments import JudgeTask, Score, ToolEnvironment
from tirjudge_environments.base import LateText
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import Order
from tirjudge_environments.registry import environment_options, open_environment
from tirjudge_environments.session import strict
from tirjudge_environments.tools import open_tools
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, SandboxUnavailable, Status

logger = logging.getLogger(__name__)


class JudgeEngine:
    """An async context manager that opens everything a judge needs; belongs to one event loop.

    Opening raises GeneratorFailed for a model that cannot be loaded or reached, SandboxUnavailable for a
    machine that cannot isolate programs and for a tool that cannot be opened, ValueError for options that
    contradict each other; each in one line.
    """

    def __init__(
        self,
        options: JudgeOptions,
        *,
        generator: Generator | None = None,
        sandbox: Sandbox | None = None,
        spending: Spending | None = None,
        weights: str | None = None,
        api_key: str | None = None,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> None:
        """Use `generator` (left open) or `sandbox` (opened here) in place of the configured one.

        Calls are booked in `spending`. `weights` is the result of `local_weights`, if known, for the cache of
        completions. `api_key` is the endpoint's key; None takes the environment's (see `KEY_VARIABLES`).
        `on_retry` is called for every repeated request to the endpoint; without a callback, repeats are
        logged.
        """
        self.options, self._api_key, self._on_retry = options, api_key, on_retry
        self._spending, self._weights = Spending() if spending is None else spending, weights
        self._jury = Jury()
        self.model, self.note = options.model, ModelNote()
        self._given_generator, self._given_sandbox = generator, sandbox
        self._abstention, self._escalation = options.abstention(), options.escalation()
        options.check_undecided()
        self._stack = AsyncExitStack()
        self._runs_programs = options.tools
        self.tie_guesses = False
        """True if verdicts that no program decided are ties; known once the judge is open."""

    def check_options(self, kind: Kind | None = None) -> None:
        """Raise ValueError for wrong options, before a model is resolved, converted or loaded.

        `kind` is that of all rows; without it, at least one kind must accept the options.
        """
        self._check_format()
        if self._given_generator is None:
            for one in self.options.jurors:
                check_model(one)
        self._closed_sandbox()
        _ = self.options.checker_file
        faults = []
        for one in (kind,) if kind else get_args(Kind):
            name = format_for(self.options.format, one)
            try:
                open_format(name, self.options, self.model, self.note)
                return
            except ValueError as error:
                faults.append(error)
        raise faults[0]

    async def __aenter__(self) -> Self:
        self._check_format()
        sandbox = self._closed_sandbox()
        async with AsyncExitStack() as stack:
            models = self._open_models(stack)
            self._sandbox: Sandbox = CallersSandbox(await stack.enter_async_context(sandbox))
            file = self.options.checker_file
            if unmeasured := file.unmeasured(self.options.checkers):
                logger.warning("--checkers %s: of its checkers, %s", self.options.checkers, unmeasured)
            self._checkers = CriteriaCheckers(
                file, self._sandbox, audit=self.options.audit, seed=self.options.seed
            )
            tools = await stack.enter_async_context(open_tools(self.options.tool_settings, self._sandbox))
            weights = self.options.vote_weights
            note = ModelNote() if self.options.jury else models[0].note
            self.tie_guesses = undecided_verdicts(self.options, [model.note for model in models]) == "tie"
            # Twice as many, so that the model has work while programs run.
            turns = Turns(2 * self.options.concurrency)
            jurors = [
                Juror(
                    model,
                    options,
                    self._sandbox,
                    tools,
                    weights.get(model.name, 1.0),
                    turns,
                    self.tie_guesses,
                )
                for model, options in zip(models, self.options.jurors, strict=False)
            ]
            self._jury = Jury(jurors, self._escalation)
            self.model = (", " if self._escalation is None else ", then ").join(one.name for one in models)
            self.note = note
            for model in models:
                await model.warn(self.options)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def judge(
        self, task: JudgeTask, kind: Kind | None = None, *, order: Order | None = None, evidence: bool = True
    ) -> Judgment:
        """Judge a task in the configured format, or else as `kind`, or else by its number of responses.

        `order` replaces the configured one. Without `evidence` no program runs twice, and guesses stay; the
        confidence `evidence` needs both runs. A task with criteria is judged by each of them, up to
        `criteria_per_call` in one dialogue (see `by_criteria`). Raises ValueError if the format takes another
        number of responses or has no orders, and if it does not show a reference or criteria of the task.
        """
        name = format_for(self.options.format, kind or kind_for(task))
        task = self._checkers.ruled(task)
        checked = await self._checkers.decide(task)
        if len(checked) < max(1, len(task.criteria)):
            self._check_shown(name, task)
        result = await self._jury.judge(name, task, order, evidence=evidence, checked=checked)
        empty = self.options.empty_loses and len(with_content(task)) < len(task.candidates)
        if checked and not empty and self._checkers.is_audited(task):
            result = await self._audited(result, name, order, sorted(checked))
        if len(task.candidates) == 1:
            # The aggregate of criteria is from 0 to 1: a response passes if it satisfies all.
            passing = 1.0 if task.criteria else self.options.satisfied_from
            result = replace(result, satisfied_from=passing)
        if self._abstention is not None:
            result = self._abstention.apply(result)
        return result.tied_without_evidence() if self.tie_guesses else result

    async def _audited(
        self, result: Judgment, name: str, order: Order | None, numbers: Sequence[int]
    ) -> Judgment:
        """Return the judgment with the model's verdicts on criteria that checkers decided."""
        asked = replace(
            result.episode.task, criteria=tuple(result.criteria[one].criterion for one in numbers)
        )
        model = await self._jury.judge(name, asked, order, evidence=self.tie_guesses)
        compared = audited([result.criteria[one] for one in numbers], model.criteria, numbers)
        return replace(result, audit=tuple(compared), audit_usage=model.usage)

    def _check_shown(self, name: str, task: JudgeTask) -> None:
        """Raise ValueError for a format of another package that leaves out a part of the task."""
        if not task.reference and not task.criteria:
            return
        environment = self.rollout(name, task=task).environment
        view = environment.views(task)[0]
        prompt = shown_prompt(environment, task, view)
        for part, without in (
            ("reference", replace(task, reference="")),
            ("criteria", replace(task, criteria=())),
        ):
            if without != task and shown_prompt(environment, without, view) == prompt:
                raise ValueError(
                    f"the format {name} does not show the judge a row's {part}: use another format, or "
                    f"leave the column out with --column {part}="
                )

    def dialogues(self, task: JudgeTask, kind: Kind | None = None, *, order: Order | None = None) -> int:
        """Return the most dialogues in which `judge` would judge the task; raises as `judge` does."""
        rollout = self.rollout(format_for(self.options.format, kind or kind_for(task)), order, task)
        parts = math.ceil(len(task.criteria) / self.options.criteria_per_call)
        questions = len(self.options.jurors) * max(1, parts)
        return len(rollout.environment.views(task)) * self.options.samples * questions

    def rewards(self, result: Judgment) -> tuple[Score, ...]:
        """Return the training reward of each trajectory of a judgment.

        Empty without a label, for a jury, beside an empty answer, with criteria (verdicts on criteria are not
        about the label), and for a format whose reward needs another model's answers. Verdicts from
        `ask_for_verdict` do not count.
        """
        if result.criteria or result.jury or any(one.view.name == EMPTY for one in result.trajectories):
            return ()
        environment = self._jury.jurors[0].rollout(result.kind).environment
        group = tuple(map(strict, (result.episode, *result.further)))
        if result.episode.task.label is None or environment.questions(group):
            return ()
        return tuple(score for scores in environment.score(group, {}) for score in scores)

    async def check(self) -> None:
        """Ask each model for one token and the sandbox for an empty program.

        Raises GeneratorFailed or SandboxUnavailable, in one line, naming the part that cannot answer.
        """
        for juror in self._jury.jurors:
            await juror.ask("Hello", tokens=1)
        if self._runs_programs:
            tried = await self._sandbox.run(Program(source=""))
            if tried.status is not Status.OK:
                raise SandboxUnavailable(tried.detail or f"an empty program ended with {tried.status}")

    async def ask(self, text: str) -> str:
        """Return the first model's greedy answer to a question of our own; raises GeneratorFailed."""
        return await self._jury.jurors[0].ask(text)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        """Run a program of our own in the judge's sandbox."""
        return await self._sandbox.run(program, limits)

    def rollout(self, name: str, order: Order | None = None, task: JudgeTask | None = None) -> Rollout:
        """Return the first model's rollout of a kind, format or family, for a task or for texts.

        `order` replaces the configured one. Raises ValueError for unknown prompts or options.
        """
        juror = self._jury.jurors[0]
        return juror.rollout(juror.named(name, task), order)

    def _check_format(self) -> None:
        """Raise ValueError for a wrong format now, since loading a model may take minutes."""
        format = self.options.format
        if self.options.tool_settings.servers and not self.options.tools:
            raise ValueError("--tool needs a judge with tools: leave out --no-tools")
        if self.options.prepare and not (self.options.tools or self.options.checkers):
            raise ValueError("--prepare needs a judge with tools: leave out --no-tools")
        if not format:
            # Every format of a row's kind has a boundary.
            if self.options.options.keys() - {"boundary"}:
                raise ValueError("options belong to a format: give --format")
            return
        # The members of a family have the same options.
        format = format_for(format, "pairwise")
        environment = open_environment(format, **self.options.format_options)
        self._runs_programs = self.options.tools and isinstance(environment, ToolEnvironment)
        takes_tools = "further_tools" in environment_options(format) and not isinstance(environment, LateText)
        if self.options.tool_settings.servers and not takes_tools:
            raise ValueError(f"the format {format} offers its judge no further tools: leave out --tool")
        embedded = not (self._given_generator or self.options.model or self.options.base_url)
        if embedded and (not isinstance(environment, TirFormat) or isinstance(environment, LateText)):
            raise ValueError(f"the embedded model knows only TIR-Judge's formats: give --model for {format}")

    @property
    def denied(self) -> bool:
        """True if an endpoint refuses every request, see `OpenAIGenerator.denied`."""
        models = (juror.model for juror in self._jury.jurors)
        return any(one.endpoint is not None and one.endpoint.denied for one in models)

    @property
    def cached(self) -> int:
        """The calls of the models that the cache of completions answered."""
        models = (juror.model for juror in self._jury.jurors)
        return sum(one.cached.hits for one in models if one.cached is not None)

    def _open_models(self, stack: AsyncExitStack) -> list[JudgeModel]:
        if self._given_generator is not None:  # the caller closes its own generator
            metered = MeteredGenerator(self._given_generator, self._spending)
            generator = FairGenerator(metered, self.options.concurrency)
            return [JudgeModel(generator.model, ModelNote(), generator)]
        is_jury = bool(self.options.jury)
        return [
            open_model(
                one,
                self._spending,
                stack,
                by_name=is_jury,
                # A jury's digest is about all models, and a cache needs each model's digest.
                weights=None if is_jury else self._weights,
                api_key=self._api_key,
                on_retry=self._on_retry,
            )
            for one in self.options.jurors
        ]

    def _closed_sandbox(self) -> Sandbox:
        """Create the sandbox; done before a model is loaded, so that an unknown backend fails at once."""
        if self._given_sandbox is not None:
            return self._given_sandbox
        needed = self._runs_programs or self.options.checkers
        return self.options.closed_sandbox() if needed else NoSandbox()
