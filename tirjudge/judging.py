"""One judge at work: a model, a sandbox and the formats, opened together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.embedded import EMBEDDED_NAME, ModelNote, embedded_model, read_note
from tirjudge.generation.base import Generator, Sampling
from tirjudge.generation.catalog import open_generator
from tirjudge.generation.openai import OpenAIGenerator, Tier
from tirjudge.judgment import Judgment, consensus, judgment
from tirjudge.rollout import Rollout
from tirjudge_environments import Context, Environment, JudgeTask, Message, Prompt
from tirjudge_environments.budget import Budget
from tirjudge_environments.catalog import environment_options, open_environment
from tirjudge_environments.formats.text_only import TextOnly
from tirjudge_environments.orders import Order
from tirjudge_sandbox import (
    Execution,
    ImportPolicy,
    Limits,
    Program,
    Sandbox,
    SandboxUnavailable,
    Status,
    open_sandbox,
)

Kind = Literal["pointwise", "pairwise", "listwise"]
KEY_VARIABLES = ("TIRJUDGE_API_KEY", "OPENAI_API_KEY")
_TURNS_BESIDE_PROGRAMS = 5


class JudgeConfig(BaseModel):
    """Everything that a verdict depends on. Keys are no part of it: they come from the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    """A local folder, a hub id, or the name that an endpoint knows; empty: the embedded model."""
    base_url: str = ""
    """Of an OpenAI-compatible endpoint; empty: the model runs in this process."""
    generator: str = "transformers"
    """What runs a model in this process, by a name of `generator_names`."""
    generator_options: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the generator; no keys."""
    tier: Tier = "auto"
    """How the endpoint is spoken to (see `OpenAIGenerator`)."""
    tokenizer: str = ""
    """Folder or hub id of the endpoint model's tokenizer, which tier `completions` needs."""
    prompts: str = ""
    """The family of prompts; empty: what the model's folder names, else `tir`."""
    format: str = ""
    """A judge format by the name that `tirjudge formats` lists; empty: TIR-Judge's, by the row."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the format."""
    order: Order | None = None
    """Of responses that are shown together; None: the format's own default, a random one for TIR-Judge's."""
    tools: bool = True
    """False: the judge answers from its text alone, with the prompts made for that."""
    bindings: bool = True
    """Whether programs find `prompt` and the responses defined."""
    exact: bool = False
    """Nothing beyond the TIR-Judge paper: no bindings, outputs as they are."""
    max_tool_calls: int = Field(default=3, ge=0)
    """Programs that a view may run."""
    max_tokens: int = Field(default=8192, ge=1)
    """What the judge and the sandbox may write in a view, without the prompt."""
    temperature: float = Field(default=0.0, ge=0.0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    samples: int = Field(default=1, ge=1)
    """Draws of every view: the verdict is what most of them say (self-consistency), scores are means."""
    seed: int = Field(default=0, ge=0)
    concurrency: int = Field(default=32, ge=1)
    """Requests, or rows of a local batch, at once. No verdict depends on it."""
    backend: str = "local"
    """Which sandbox runs the programs, by a name of `sandbox_names`."""
    backend_options: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the sandbox."""
    policy: bool = False
    """Refuse programs that import what judging does not take, in words that the model can use."""
    allow_weak_isolation: bool = False
    """Run programs where the machine cannot isolate them fully."""


class Judging:
    """An async context manager around everything that a judge needs; belongs to one event loop.

    Opening raises GeneratorFailed for a model that cannot be had, SandboxUnavailable for a machine that
    cannot isolate programs, ValueError for options that do not fit together; each in one line.
    """

    def __init__(
        self,
        config: JudgeConfig,
        *,
        generator: Generator | None = None,
        sandbox: Sandbox | None = None,
        around: Callable[[Generator], Generator] | None = None,
    ) -> None:
        """Instead of what the config says: a generator, which is left open, or a sandbox, to be opened.

        `around` puts another generator around the one that is opened, and closes it with it.
        """
        self.config, self._around = config, around
        self._given_generator, self._given_sandbox = generator, sandbox
        self._stack = AsyncExitStack()
        self._rollouts: dict[str, Rollout] = {}
        self._runs_programs = config.tools

    async def __aenter__(self) -> Self:
        self._check_format()
        sandbox = self._closed_sandbox()
        async with AsyncExitStack() as stack:
            self._open_generator(stack)
            self._sandbox = await stack.enter_async_context(sandbox)
            self._rollouts.clear()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def judge(self, task: JudgeTask, kind: Kind | None = None) -> Judgment:
        """Judge a task in the configured format, else as this kind, else by its number of responses.

        Raises ValueError if the responses do not fit.
        """
        name = self.config.format or kind or kind_for(task)
        rollout = self.rollout(name)
        if self.config.samples == 1:
            return judgment(name, await rollout.episode(task))
        group = await rollout.group(task, self.config.samples)
        return consensus([judgment(name, episode) for episode in group])

    async def check(self) -> None:
        """Ask the model for one token and the sandbox for an empty program.

        Raises GeneratorFailed or SandboxUnavailable, in one line, for the one that cannot answer.
        """
        prompt = Prompt(messages=(Message("user", "Hello"),))
        encoder = self._generator.encoder
        ids = None if encoder is None else tuple(encoder.prompt(prompt))
        await self._generator.generate(Context(prompt, ids=ids), Sampling(max_tokens=1))
        if self._runs_programs:
            tried = await self._sandbox.run(Program(source=""))
            if tried.status is not Status.OK:
                raise SandboxUnavailable(tried.detail or f"an empty program ended with {tried.status}")

    def rollout(self, name: str) -> Rollout:
        """Of a kind, or of a format by its name; raises ValueError for prompts or options that it lacks."""
        if name not in self._rollouts:
            config = self.config
            self._rollouts[name] = Rollout(
                self._environment(name),
                self._generator,
                self._sandbox,
                budget=Budget(
                    turns=config.max_tool_calls + _TURNS_BESIDE_PROGRAMS,
                    tool_calls=config.max_tool_calls,
                    tokens=config.max_tokens,
                ),
                sampling=Sampling(
                    temperature=config.temperature, top_p=config.top_p, max_tokens=config.max_tokens
                ),
                seed=config.seed,
            )
        return self._rollouts[name]

    def _environment(self, name: str) -> Environment:
        """Of what was configured, a format is given the options that it has."""
        config = self.config
        format = f"tir-{name}" if name in get_args(Kind) else name
        wanted = {
            "tools": config.tools,
            "prompts": config.prompts or self.note.prompts,
            "bindings": config.bindings,
            "exact": config.exact,
            "protocol": "tool" if config.tier == "tools" else "fence",
            "order": config.order,
            "seed": config.seed,
        }
        known = environment_options(format)
        taken = {key: value for key, value in wanted.items() if key in known and value is not None}
        return open_environment(format, **{**taken, **config.options})

    def _check_format(self) -> None:
        """Before a model is loaded, which may take minutes."""
        format = self.config.format
        if not format:
            if self.config.options:
                raise ValueError("options are a format's: give --format")
            return
        environment = open_environment(format, **self.config.options)
        self._runs_programs = self.config.tools and not isinstance(environment, TextOnly)
        embedded = not (self._given_generator or self.config.model or self.config.base_url)
        if embedded and not format.startswith("tir-"):
            raise ValueError(f"the embedded model knows TIR-Judge's formats alone: give --model for {format}")

    def _open_generator(self, stack: AsyncExitStack) -> None:
        if self._given_generator is not None:
            self._generator, self.note = self._given_generator, ModelNote()
            self.model = self._generator.model
            return
        generator, self.note, self.model = _generator(self.config)
        self._generator = self._around(generator) if self._around else generator
        stack.push_async_callback(self._generator.close)

    def _closed_sandbox(self) -> Sandbox:
        """Made before a model is loaded: an unknown backend is told at once."""
        if self._given_sandbox is not None:
            return self._given_sandbox
        return _sandbox(self.config) if self._runs_programs else NoSandbox()


class NoSandbox:
    """The sandbox of a judge that runs no programs: a machine that cannot isolate any can still judge."""

    capacity = 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        return Execution(status=Status.SANDBOX_FAILED, detail="this judge was opened without a sandbox")


def kind_for(task: JudgeTask) -> Kind:
    """One response is scored, two are a pair, more are a list."""
    match len(task.candidates):
        case 1:
            return "pointwise"
        case 2:
            return "pairwise"
        case _:
            return "listwise"


def _generator(config: JudgeConfig) -> tuple[Generator, ModelNote, str]:
    """The generator, what is known of its model, and the name for result rows."""
    if config.base_url:
        if config.generator != "transformers" or config.generator_options:
            raise ValueError("a generator is for a model in this process: leave out either it or --base-url")
        return _endpoint(config), ModelNote(), config.model
    if config.tier not in ("auto", "completions") or config.tokenizer:
        raise ValueError("a tier and a tokenizer are an endpoint's: give --base-url")
    folder = config.model or embedded_model()
    note = read_note(folder)
    generator = open_generator(
        config.generator, folder, **{"max_rows": config.concurrency, **config.generator_options}
    )
    return generator, note, config.model or EMBEDDED_NAME


def _endpoint(config: JudgeConfig) -> OpenAIGenerator:
    if not config.model:
        raise ValueError("an endpoint needs the model's name: give --model")
    key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    return OpenAIGenerator(
        config.model,
        config.base_url,
        api_key=key,
        tier=config.tier,
        tokenizer=config.tokenizer or None,
        concurrency=config.concurrency,
    )


def _sandbox(config: JudgeConfig) -> Sandbox:
    """What is not asked for is not said: not every backend has a policy, or a way to isolate less."""
    options = dict(config.backend_options)
    if config.policy:
        options["import_policy"] = ImportPolicy()
    if config.allow_weak_isolation:
        options["allow_weak_isolation"] = True
    return open_sandbox(config.backend, **options)
