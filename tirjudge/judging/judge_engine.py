"""The judge engine: a model, a sandbox and the judge formats, opened together, with a meter and a cache."""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, get_args

from tirjudge.generation.base import GENERATORS, NEEDED, Generator, Sampling, open_generator
from tirjudge.generation.cached import CachedGenerator, CompletionStore, cache_file
from tirjudge.generation.endpoint.http import Retry
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.model_files import Adapter
from tirjudge.generation.spending import MeteredGenerator, Spending
from tirjudge.judging.abstention import Abstention
from tirjudge.judging.combining import by_criteria, by_criterion, by_views, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.options import JudgeOptions, NoSandbox, endpoint_key
from tirjudge.models import ModelUnavailable, resolve_model
from tirjudge.models.machine import require
from tirjudge.models.resolve import (
    NOTE_FILE,
    ModelNote,
    NotOnHub,
    embedded_model,
    embedded_name,
    model_folder,
    read_note,
    weights_digest,
)
from tirjudge.records.verdicts import JurorVerdict
from tirjudge.rollout import Rollout, all_or_none
from tirjudge_environments import (
    Context,
    Environment,
    Episode,
    JudgeTask,
    Message,
    Prompt,
    Score,
    StopReason,
    ToolEnvironment,
)
from tirjudge_environments.orders import Order
from tirjudge_environments.registry import environment_options, open_environment
from tirjudge_environments.tools import open_tools
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, SandboxUnavailable, Status

logger = logging.getLogger(__name__)

Kind = Literal["pointwise", "pairwise", "listwise"]
_MAX_TOKENS = 8192
"""Tokens of one view if neither the options nor the model say otherwise."""
_TURNS_WITHOUT_PROGRAMS = 5
"""Turns of a view beyond the turns that run a program, the verdict's included."""


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

        Calls are booked in `spending`. `weights` is what `local_weights` returns, for callers that know it
        already; a cache of completions needs it. `api_key` is the endpoint's; None takes the environment's
        (see `KEY_VARIABLES`). `on_retry` is called for every repeated request to the endpoint; without it
        they are logged.
        """
        self.options, self._api_key, self._on_retry = options, api_key, on_retry
        self._spending, self._weights = Spending() if spending is None else spending, weights
        self._models: tuple[_Model, ...] = ()
        self.model, self.note = options.model, ModelNote()
        self._given_generator, self._given_sandbox = generator, sandbox
        self._abstention, self._escalation = options.abstention(), options.escalation()
        self._stack = AsyncExitStack()
        self._rollouts: dict[tuple[str, Order | None, int], Rollout] = {}
        self._runs_programs = options.tools

    def check_options(self, kind: Kind | None = None) -> None:
        """Raise ValueError for wrong options, before a model is resolved, converted or loaded.

        `kind` is that of all rows; without it, at least one kind must accept the options.
        """
        self._check_format()
        if self._given_generator is None:
            for one in self.options.jurors:
                _check_model(one)
        self._closed_sandbox()
        fixed = self.options.format or kind
        faults = []
        for name in (fixed,) if fixed else get_args(Kind):
            try:
                self._environment(name, None, self.model, self.note)
                return
            except ValueError as error:
                faults.append(error)
        raise faults[0]

    async def __aenter__(self) -> Self:
        self._check_format()
        sandbox = self._closed_sandbox()
        async with AsyncExitStack() as stack:
            self._open_models(stack)
            self._sandbox = await stack.enter_async_context(sandbox)
            self._tools = await stack.enter_async_context(
                open_tools(self.options.tool_settings, self._sandbox)
            )
            # Rollouts of an earlier opening refer to a closed generator and sandbox.
            self._rollouts.clear()
            await self._warn_of_notes()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def judge(
        self, task: JudgeTask, kind: Kind | None = None, *, order: Order | None = None
    ) -> Judgment:
        """Judge a task in the configured format, or else as `kind`, or else by its number of responses.

        `order` replaces the configured one. A task with criteria is judged by each of them, up to
        `criteria_per_call` in one dialogue (see `by_criteria`). Raises ValueError if the format takes another
        number of responses or has no orders, and if it does not show a reference or criteria of the task.
        """
        name = self.options.format or kind or kind_for(task)
        self._check_shown(name, task)
        result = await self._decided(name, task, order)
        return result if self._abstention is None else self._abstention.apply(result)

    async def _decided(self, name: str, task: JudgeTask, order: Order | None) -> Judgment:
        """Judge a task by the model, by the vote of all models, or by the first model that is sure enough."""
        if self._escalation is not None:
            return await self._escalated(self._escalation, name, task, order)
        numbers = range(len(self._models))
        found = await all_or_none(self._answers(name, task, order, number) for number in numbers)
        if len(found) == 1:
            return self._combined(task, found[0])
        weights = [self.options.vote_weights.get(one.name, 1.0) for one in self._models]
        voted = [self_consistency(answers, weights) for answers in zip(*found, strict=True)]
        jury = tuple(
            _juror(model.name, self._combined(task, answers), number * self.options.samples, weight)
            for number, (model, weight, answers) in enumerate(zip(self._models, weights, found, strict=True))
        )
        return replace(self._combined(task, voted), jury=jury)

    async def _escalated(self, rule: Abstention, name: str, task: JudgeTask, order: Order | None) -> Judgment:
        """Ask one model after the other until one is sure enough, or fails."""
        asked: list[JurorVerdict] = []
        for number, model in enumerate(self._models):
            result = self._combined(task, await self._answers(name, task, order, number))
            verdict = _juror(model.name, result, 0)
            if result.stop.unscored or number == len(self._models) - 1:
                break
            verdict = verdict.model_copy(update={"confidence": rule.value(result)})
            if rule.is_reached(verdict.confidence):
                break
            asked.append(verdict.model_copy(update={"samples": []}))
        return replace(result, jury=(*asked, verdict))

    async def _answers(self, name: str, task: JudgeTask, order: Order | None, number: int) -> list[Judgment]:
        """Return the judgments of one model: on each criterion of a task, or on a task without criteria."""
        size = self.options.criteria_per_call
        starts = range(0, max(1, len(task.criteria)), size)
        questions = [replace(task, criteria=task.criteria[start : start + size]) for start in starts]
        found = await all_or_none(self._judgments(name, question, order, number) for question in questions)
        return [judged for part in found for judged in part]

    def _combined(self, task: JudgeTask, answers: Sequence[Judgment]) -> Judgment:
        """Combine what `_answers` returns into the judgment of the task."""
        return by_criteria(task, answers, self.options.satisfied_from) if task.criteria else answers[0]

    async def _judgments(
        self, name: str, task: JudgeTask, order: Order | None, number: int
    ) -> list[Judgment]:
        """Judge a task by the model of a number, in one dialogue on all its criteria for each view."""
        rollout, samples = self.rollout(name, order, number), self.options.samples
        group = [await rollout.episode(task)] if samples == 1 else await rollout.group(task, samples)
        return [self._sampled(name, task, part) for part in zip(*map(by_criterion, group), strict=True)]

    @staticmethod
    def _sampled(name: str, task: JudgeTask, group: Sequence[Episode]) -> Judgment:
        judged = [by_views(name, episode) for episode in group]
        result = judged[0] if len(judged) == 1 else self_consistency(judged)
        if result.stop is StopReason.PROMPT_TOO_LONG and task.reference:
            length = len(task.reference)
            hint = f"the reference has {length} characters, which --truncate shortens"
            result = replace(result, detail=f"{result.detail}; {hint}")
        return result

    def _check_shown(self, name: str, task: JudgeTask) -> None:
        """Raise ValueError for a format of another package that leaves out a part of the task."""
        if not task.reference and not task.criteria:
            return
        environment = self.rollout(name).environment
        view = environment.views(task)[0]
        prompt = environment.prompt(task, view)
        for part, without in (
            ("reference", replace(task, reference="")),
            ("criteria", replace(task, criteria=())),
        ):
            if without != task and environment.prompt(without, view) == prompt:
                raise ValueError(
                    f"the format {name} does not show the judge a row's {part}: use another format, or "
                    f"leave the column out with --column {part}="
                )

    def dialogues(self, task: JudgeTask, kind: Kind | None = None, *, order: Order | None = None) -> int:
        """Return the most dialogues in which `judge` would judge the task; raises as `judge` does."""
        rollout = self.rollout(self.options.format or kind or kind_for(task), order)
        parts = math.ceil(len(task.criteria) / self.options.criteria_per_call)
        questions = len(self.options.jurors) * max(1, parts)
        return len(rollout.environment.views(task)) * self.options.samples * questions

    def rewards(self, result: Judgment) -> tuple[Score, ...]:
        """Return the training reward of each trajectory of a judgment.

        Empty without a label, with criteria, whose verdicts are not about the label, for a jury, and for a
        format whose reward needs the answers of another model.
        """
        if result.criteria or result.jury:
            return ()
        group, environment = (result.episode, *result.further), self.rollout(result.kind).environment
        if result.episode.task.label is None or environment.questions(group):
            return ()
        return tuple(score for scores in environment.score(group, {}) for score in scores)

    async def check(self) -> None:
        """Ask each model for one token and the sandbox for an empty program.

        Raises GeneratorFailed or SandboxUnavailable, in one line, naming the part that cannot answer.
        """
        for number in range(len(self._models)):
            await self.ask("Hello", number=number, tokens=1)
        if self._runs_programs:
            tried = await self._sandbox.run(Program(source=""))
            if tried.status is not Status.OK:
                raise SandboxUnavailable(tried.detail or f"an empty program ended with {tried.status}")

    async def ask(self, text: str, *, number: int = 0, tokens: int | None = None) -> str:
        """Return the greedy answer of a model to a question of our own; raises GeneratorFailed."""
        model, prompt, ids = self._models[number], Prompt(messages=(Message("user", text),)), None
        if (encoder := model.generator.encoder) is not None:
            prompt = replace(prompt, prefill=encoder.opening(prompt))
            ids = tuple(encoder.prompt(prompt))
        sampling = Sampling(max_tokens=tokens or view_tokens(self.options, model.note))
        return prompt.prefill + (await model.generator.generate(Context(prompt, ids=ids), sampling)).text

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        """Run a program of our own in the judge's sandbox."""
        return await self._sandbox.run(program, limits)

    def rollout(self, name: str, order: Order | None = None, number: int = 0) -> Rollout:
        """Return the rollout of a kind or format by the model of a number.

        `order` replaces the configured one. Raises ValueError for unknown prompts or options.
        """
        if (name, order, number) not in self._rollouts:
            options, model = self.options, self._models[number]
            tokens = view_tokens(options, model.note)
            self._rollouts[name, order, number] = Rollout(
                self._environment(name, order, model.name, model.note),
                model.generator,
                self._sandbox,
                tools=self._tools,
                budget=Budget(
                    turns=options.max_tool_calls + _TURNS_WITHOUT_PROGRAMS,
                    tool_calls=options.max_tool_calls,
                    tokens=tokens,
                ),
                sampling=Sampling(temperature=options.temperature, top_p=options.top_p, max_tokens=tokens),
                seed=options.seed,
            )
        return self._rollouts[name, order, number]

    def _environment(self, name: str, order: Order | None, model: str, note: ModelNote) -> Environment:
        """Open a format with those configured options that it knows, for a model with a note."""
        options = self.options
        format = f"tir-{name}" if name in get_args(Kind) else name
        wanted = {
            "tools": options.tools,
            "prompts": options.prompts or note.prompts,
            "shown_chars": options.shown_chars or note.shown_chars,
            "bindings": options.bindings,
            "exact": options.exact,
            "protocol": "tool" if options.tier == "tools" else "fence",
            "order": options.order,
            "seed": options.seed,
            "per_criterion": options.criteria_per_call > 1,
        }
        # Options with a default, such as `bindings`, do not apply to every format: leave out unknown ones.
        known = environment_options(format)
        if options.criteria_per_call > 1 and "per_criterion" not in known:
            raise ValueError(f"the format {format} gives one answer: leave out --criteria-per-call")
        taken = {key: value for key, value in wanted.items() if key in known and value is not None}
        trained = dict(note.formats.get(format, {}))
        if note.formats and not trained:
            logger.warning("%s was trained for %s, not for %s", model, ", ".join(note.formats), format)
        if not options.tools:
            # --no-tools holds in every domain, also where the training had tools.
            trained.pop("tools_by_domain", None)
        # An option of the run that was left at its default gives way to that of the training.
        asked = {key: value for key, value in taken.items() if key in trained and self._differs(key)}
        chosen = {**taken, **trained, **asked, **options.options}
        if order is not None:
            if "order" not in known:
                raise ValueError(
                    f"the format {format} does not show responses in an order that can be chosen"
                )
            chosen["order"] = order
        return open_environment(format, **chosen)

    def _differs(self, name: str) -> bool:
        """Return True if an option of the format was chosen for this run."""
        own = {"protocol": "tier", "per_criterion": "criteria_per_call"}.get(name, name)
        return bool(getattr(self.options, own) != JudgeOptions.model_fields[own].default)

    def _check_format(self) -> None:
        """Raise ValueError for a wrong format now, since loading a model may take minutes."""
        format = self.options.format
        if self.options.tool_settings.servers and not self.options.tools:
            raise ValueError("--tool needs a judge with tools: leave out --no-tools")
        if not format:
            if self.options.options:
                raise ValueError("options belong to a format: give --format")
            return
        environment = open_environment(format, **self.options.options)
        self._runs_programs = self.options.tools and isinstance(environment, ToolEnvironment)
        if self.options.tool_settings.servers and "further_tools" not in environment_options(format):
            raise ValueError(f"the format {format} offers its judge no further tools: leave out --tool")
        embedded = not (self._given_generator or self.options.model or self.options.base_url)
        if embedded and not format.startswith("tir-"):
            raise ValueError(f"the embedded model knows only TIR-Judge's formats: give --model for {format}")

    @property
    def denied(self) -> bool:
        """True if an endpoint refuses every request, see `OpenAIGenerator.denied`."""
        return any(one.endpoint is not None and one.endpoint.denied for one in self._models)

    @property
    def cached(self) -> int:
        """The calls of the models that the cache of completions answered."""
        return sum(one.cached.hits for one in self._models if one.cached is not None)

    def _open_models(self, stack: AsyncExitStack) -> None:
        if self._given_generator is not None:
            generator = MeteredGenerator(self._given_generator, self._spending)
            self.model = generator.model
            self._models = (_Model(self.model, ModelNote(), generator),)
            return  # the caller closes its own generator
        self._models = tuple(self._opened(one, stack) for one in self.options.jurors)
        joint = ", " if self._escalation is None else ", then "
        self.model = joint.join(one.name for one in self._models)
        self.note = ModelNote() if self.options.jury else self._models[0].note

    def _opened(self, options: JudgeOptions, stack: AsyncExitStack) -> _Model:
        store = None
        if options.cache:
            # Before the model, since loading one may take minutes.
            store = CompletionStore(cache_file())
            stack.callback(store.close)
        generator, note, name = _generator(options, self._api_key, self._on_retry)
        stack.push_async_callback(generator.close)
        endpoint = generator if isinstance(generator, OpenAIGenerator) else None
        # The meter is inside: a cached completion costs nothing.
        metered: Generator = MeteredGenerator(generator, self._spending, name if self.options.jury else "")
        cached = None
        if store is not None:
            # Equal names with other weights must not share completions.
            # A jury's digest is about all of its models, and each model needs a digest of its own.
            given = None if self.options.jury else self._weights
            identity = options.model_identity(local_weights(options) if given is None else given)
            metered = cached = CachedGenerator(metered, store, identity)
        return _Model(name, note, metered, endpoint, cached)

    async def _warn_of_notes(self) -> None:
        """Warn of a judge without the tools of its training, and of one whose settings do not apply."""
        for model in self._models:
            if missing := [tool for tool in model.note.tools if tool not in self.options.tool]:
                asked = " ".join(f"--tool {shlex.quote(tool)}" for tool in missing)
                logger.warning("%s was trained with further tools: give %s", model.name, asked)
            if model.endpoint is None or self.options.note_of:
                continue
            # A server may call a model by any name; vLLM's list has the folder or hub id behind it as `root`.
            for name in (model.name, str((await model.endpoint.card()).get("root") or "")):
                if name and read_note(name, download=False).model_fields_set:
                    logger.warning(
                        "%s serves the trained judge %s, whose prompts and settings an endpoint does not "
                        "apply: give --note-of %s",
                        self.options.base_url,
                        name,
                        name,
                    )
                    break

    def _closed_sandbox(self) -> Sandbox:
        """Create the sandbox; done before a model is loaded, so that an unknown backend fails at once."""
        if self._given_sandbox is not None:
            return self._given_sandbox
        return self.options.closed_sandbox() if self._runs_programs else NoSandbox()


@dataclass(frozen=True, slots=True)
class _Model:
    """An open model."""

    name: str
    note: ModelNote
    generator: Generator
    endpoint: OpenAIGenerator | None = None
    """The generator without meter and cache; None for a model of this process."""
    cached: CachedGenerator | None = None
    """The generator's cache, if it has one."""


def _juror(model: str, judged: Judgment, first: int, weight: float = 1.0) -> JurorVerdict:
    """Return the verdict of a model of a jury, whose samples are numbered from `first` in the row."""
    return JurorVerdict(
        model=model,
        weight=weight,
        verdict=judged.verdict,
        scores=judged.all_scores,
        correct=judged.credit,
        stop=judged.stop.value,
        samples=list(range(first, first + 1 + len(judged.further))),
        prompt_tokens=judged.usage.prompt_tokens,
        completion_tokens=judged.usage.completion_tokens,
    )


def kind_for(task: JudgeTask) -> Kind:
    """Return the kind for a number of responses: one is scored, two are a pair, more are a list."""
    match len(task.candidates):
        case 1:
            return "pointwise"
        case 2:
            return "pairwise"
        case _:
            return "listwise"


def local_model(options: JudgeOptions) -> str:
    """Return the folder of the model that runs in this process, see `model_folder`.

    The generators of other packages get the name as it is.
    """
    name = options.model or embedded_model()
    if options.generator not in GENERATORS.own:
        return resolve_model(name)
    try:
        return model_folder(name)
    except NotOnHub as error:
        raise ModelUnavailable(
            f"--model {name} is no folder, file or short name, and no hub id that can be reached "
            f"({error.reason}): did you mean --base-url?"
        ) from error


def local_weights(options: JudgeOptions) -> str:
    """Return a digest of the local model's files; empty for an endpoint, and for a jury that of each model.

    That of an adapter includes its base's: the same adapter on another base is another model.
    """
    if options.jury:
        return " ".join(map(local_weights, options.jurors)).strip()
    if options.base_url:
        return ""
    folder = local_model(options)
    adapter = Adapter.of(Path(folder))
    digest = weights_digest(folder)
    return f"{digest}-{weights_digest(model_folder(adapter.base))}" if adapter else digest


def local_note(options: JudgeOptions) -> ModelNote:
    """Return the note of the model that runs in this process; for an endpoint, that of `note_of`, if given.

    Raises ValueError for a `note_of` without a note.
    """
    if not options.base_url:
        return read_note(local_model(options))
    note = read_note(options.note_of) if options.note_of else ModelNote()
    if options.note_of and not note.model_fields_set:
        raise ValueError(f"--note-of {options.note_of}: there is no {NOTE_FILE} of a trained judge")
    return note


def view_tokens(options: JudgeOptions, note: ModelNote) -> int:
    """Return the tokens of one view: as configured, else as the model's note says, else 8192."""
    return options.max_tokens or note.max_tokens or _MAX_TOKENS


def most_tokens(options: JudgeOptions) -> int | list[int]:
    """Return the tokens of one view, for a jury those of each model, as the settings of a run record them."""
    each = [view_tokens(one, local_note(one)) for one in options.jurors]
    return each if options.jury else each[0]


def _check_note(options: JudgeOptions, note: ModelNote) -> None:
    """Raise ValueError for prompts other than the prompts of the model's training.

    A model that was trained with other prompts judges far worse, and nothing in its verdicts shows why.
    """
    trained = {name: getattr(note, name) for name in ("prompts", "shown_chars")}
    for name, value in trained.items():
        given = getattr(options, name)
        # A note without prompts is not from a training that recorded them.
        if given and given != value and "prompts" in note.model_fields_set:
            flag, usual = name.replace("_", "-"), "whole responses" if value is None else value
            raise ValueError(
                f"this model was trained with {name} = {usual}, not {given}: leave out --{flag}, or "
                f"insist with --format FORMAT --option {name}={given}"
            )


def _generator(
    options: JudgeOptions, api_key: str | None, on_retry: Callable[[Retry], None] | None
) -> tuple[Generator, ModelNote, str]:
    """Open the generator; return it, the note of its model, and the name for result rows."""
    _check_model(options)
    note = local_note(options)
    _check_note(options, note)
    if options.base_url:
        return _endpoint(options, note, api_key, on_retry), note, options.model
    folder = local_model(options)
    arguments = {"max_rows": options.concurrency, **options.generator_options}
    if (thinking := _thinking(options, note)) is not None:
        arguments = {"enable_thinking": thinking, **arguments}
    generator = open_generator(options.generator, folder, **arguments)
    return generator, note, options.model or embedded_name()


def _check_model(options: JudgeOptions) -> None:
    """Raise ValueError for options about the model that contradict each other."""
    if options.base_url:
        if options.generator != "transformers" or options.generator_options:
            raise ValueError("--generator runs a model in this process: leave out either it or --base-url")
        if not options.model:
            raise ValueError("an endpoint needs the model's name: give --model")
        return
    if options.note_of:
        raise ValueError("--note-of is about a model behind an endpoint: give --base-url")
    if options.tier not in ("auto", "completions") or options.tokenizer:
        raise ValueError("--tier and --tokenizer need an endpoint: give --base-url")
    if options.request_fields:
        raise ValueError("--request-field is sent to an endpoint: give --base-url")
    GENERATORS.entry(options.generator)
    if options.generator in NEEDED:
        extra, modules = NEEDED[options.generator]
        require("a model in this process", modules, extra)


def _thinking(options: JudgeOptions, note: ModelNote) -> bool | None:
    return note.enable_thinking if options.enable_thinking is None else options.enable_thinking


def _endpoint(
    options: JudgeOptions, note: ModelNote, api_key: str | None, on_retry: Callable[[Retry], None] | None
) -> OpenAIGenerator:
    return OpenAIGenerator(
        options.model,
        options.base_url,
        api_key=endpoint_key(api_key),
        tier=options.tier,
        tokenizer=options.tokenizer or None,
        enable_thinking=_thinking(options, note),
        concurrency=options.concurrency,
        timeout=options.timeout,
        retries=options.retries,
        request_fields=options.request_fields,
        on_retry=on_retry,
    )
