"""The rollout engine of a trainer: its configuration, an event loop for synchronous code, and a clock.

The clock measures the time in which programs ran and the generator did not.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, ExitStack
from typing import Annotated, Any, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from tirjudge.generation.base import Sampling, SamplingOptions
from tirjudge.judging.meta_judge import RewardQuestions
from tirjudge.rollout import Rollout
from tirjudge.storage.run_settings import MOVABLE
from tirjudge_environments import Environment
from tirjudge_environments.tools import open_tools
from tirjudge_environments.tools.base import ToolSettings
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, open_sandbox
from tirjudge_training import model_folder
from tirjudge_training.distributed.device import Dtype
from tirjudge_training.distributed.processes import ALONE, Processes, cpus_of_this_process
from tirjudge_training.weight_sync.base import Policy, Sampler
from tirjudge_training.weight_sync.colocated_vllm import VllmPolicy
from tirjudge_training.weight_sync.same_process import CopyPolicy, OwnPolicy
from tirjudge_training.weight_sync.vllm_servers import VllmServerConfig, VllmServerPolicy

T = TypeVar("T")


class RolloutConfig(SamplingOptions):
    """Sampling and budget of a trajectory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """0 is greedy decoding (ours)."""
    max_tokens: int = Field(default=8192, gt=0)
    """New tokens of one trajectory, program outputs included."""
    tool_calls: int = Field(default=3, ge=0)
    turns: int = Field(default=8, gt=0)
    """Turns of one trajectory (ours)."""
    cpu_seconds: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """CPU time of all programs of a trajectory (ours)."""
    program_cpu_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """CPU time of one program (ours)."""
    sandbox: Annotated[str, MOVABLE] = "local"
    """The sandbox backend, by name; may be changed when a run is resumed (ours)."""
    tools: ToolSettings = ToolSettings()
    """Tools besides Python; their calls count in `tool_calls` and in the reward as programs do (ours)."""
    generator: Sampler = "transformers"
    """The sampler: the model in this process, or vLLM with the same weights, either in one engine per
    process or in servers (ours)."""
    vllm: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the vLLM engine: gpu_memory_utilization, tensor_parallel_size, ... (ours)."""
    server: Annotated[VllmServerConfig | None, MOVABLE] = None
    """The servers of `vllm-server`; may be changed when a run is resumed (ours)."""

    @model_validator(mode="after")
    def _has_its_servers(self) -> Self:
        if (self.generator == "vllm-server") != (self.server is not None):
            raise ValueError(
                'generator = "vllm-server" and server.urls require each other: set both or neither'
            )
        return self

    @property
    def budget(self) -> Budget:
        return Budget(
            turns=self.turns, tool_calls=self.tool_calls, tokens=self.max_tokens, cpu_seconds=self.cpu_seconds
        )

    @property
    def limits(self) -> Limits:
        return Limits(cpu_seconds=self.program_cpu_seconds)

    @property
    def sampling(self) -> Sampling:
        return Sampling.of(self, max_tokens=self.max_tokens)


class Engine:
    """Runs rollouts with the model's current weights for synchronous code. A context manager.

    `environments` maps each format's name to its judge. The sandbox is opened once and stays open between
    runs.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        environments: Mapping[str, Environment],
        config: RolloutConfig | None = None,
        *,
        budget: Budget | None = None,
        sampling: Sampling | None = None,
        name: str = "policy",
        reward_questions: RewardQuestions | None = None,
        processes: Processes = ALONE,
        enable_thinking: bool | None = None,
        off_policy: bool = False,
        trained: bool = True,
    ) -> None:
        """Create the sampler that `config` names. Raises GeneratorFailed.

        `budget` and `sampling` replace those of `config`. Each of several `processes` that train the model
        must make this call. `reward_questions` answers the questions of rewards that depend on another model,
        and is closed with the engine. `enable_thinking` is the thinking mode of the prompts, see
        `ChatEncoder`. With `off_policy` the sampler has weights of its own, which only `refresh` changes.
        `trained` is False for a model that no trainer will change or shard.
        """
        self._config = config = config or RolloutConfig()
        self._budget = budget or config.budget
        self.sampling = sampling or config.sampling
        """The parameters of every turn."""
        self._policy: Policy
        if config.generator == "vllm":
            self._policy = VllmPolicy(
                model,
                tokenizer,
                name,
                processes=processes,
                **{"enable_thinking": enable_thinking, **config.vllm},
            )
        elif config.server is not None:
            self._policy = VllmServerPolicy(
                model,
                tokenizer,
                name,
                config=config.server,
                processes=processes,
                enable_thinking=enable_thinking,
            )
        elif off_policy or (trained and processes.share_weights):
            # Training changes the trainer's own model meanwhile, or that model is only a shard.
            self._policy = CopyPolicy(model, tokenizer, name, enable_thinking=enable_thinking)
        else:
            self._policy = OwnPolicy(model, tokenizer, name, enable_thinking=enable_thinking)
        self.generator = self._policy.generator
        self.environments = environments
        # The sandbox is opened in `__enter__`, since its workers belong to the event loop.
        self._reward_questions = reward_questions
        self._trained = trained
        self._ahead: tuple[Future[Any], asyncio.Task[Any]] | None = None

    @classmethod
    def load(
        cls,
        model: str,
        environments: Mapping[str, Environment],
        config: RolloutConfig,
        reward_questions: RewardQuestions | None = None,
        *,
        enable_thinking: bool | None = None,
        dtype: Dtype = "float32",
        processes: Processes = ALONE,
    ) -> Self:
        """Return an engine for a model that is not being trained: a folder, hub id or short name.

        Each of several `processes` must make this call, and samples with an engine of its own.
        """
        if config.generator == "transformers":
            # Nothing is shared: each process samples with a whole model, also in a launch that shards models.
            loaded, processes = model_folder.load(model, dtype=dtype), ALONE
        else:
            # Under vLLM the model only passes its weights on, so it stays out of GPU memory; the first
            # process does that for all.
            loaded = model_folder.load(model, "cpu", dtype=dtype, weights=processes.rank == 0)
        return cls(
            *loaded,
            environments,
            config,
            name=model,
            reward_questions=reward_questions,
            processes=processes,
            enable_thinking=enable_thinking,
            trained=False,
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # One event loop for all runs: sandbox workers and HTTP connections belong to it.
            self._runner = stack.enter_context(asyncio.Runner())
            generator = self.generator  # a closure over `self` would be a reference cycle
            sandbox = TimedSandbox(
                open_sandbox(self._config.sandbox, **pool_options(self._config.sandbox)),
                generating=lambda: generator.busy_seconds,
            )
            self._sandbox = self.run(sandbox.__aenter__())
            # Closed in reverse order, while the loop still runs.
            stack.callback(lambda: self.run(sandbox.__aexit__(None, None, None)))
            tools = AsyncExitStack()
            self._tools = self.run(tools.enter_async_context(open_tools(self._config.tools, self._sandbox)))
            stack.callback(lambda: self.run(tools.aclose()))
            stack.callback(lambda: self.run(self._policy.close()))
            if self._trained:
                # The trainer moves policy and reference to the GPU before the first `refresh`.
                self.run(self._policy.rest())
            if self._reward_questions is not None:
                reward_questions = self._reward_questions
                stack.callback(lambda: self.run(reward_questions.close()))
            self._threads = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="tirjudge-ahead"))
            # Registered last and so called first: the executor's exit would wait for the whole batch ahead.
            stack.callback(self._cancel_ahead)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's event loop and return its result."""
        return self._runner.run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine's event loop in a thread, while the caller goes on.

        Nothing else can use the engine until it has ended. Leaving the engine's context cancels it.
        """
        began = threading.Event()
        tasks = []

        async def cancellable() -> T:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            began.set()
            return await work

        future = self._threads.submit(self._runner.run, cancellable())
        # Only a task that has started can be cancelled, and leaving the engine must be able to cancel it.
        began.wait()
        self._ahead = future, tasks[0]
        return future

    def _cancel_ahead(self) -> None:
        if self._ahead is not None and not self._ahead[0].done():
            self._runner.get_loop().call_soon_threadsafe(self._ahead[1].cancel)
            wait([self._ahead[0]])

    def refresh(self) -> None:
        """Give the sampler the current weights. Call it after they change, while no rollout is running."""
        self.run(self._policy.refresh())

    def rest(self) -> None:
        """Release the memory that only sampling needs. Call it when a batch is complete."""
        self.run(self._policy.rest())

    @property
    def has_own_weights(self) -> bool:
        """True if training does not change the sampler's weights before the next `refresh`."""
        return not isinstance(self._policy, OwnPolicy)

    @property
    def waited_seconds(self) -> float:
        """Wall seconds since the start in which programs ran and no token was computed."""
        return self._sandbox.seconds

    def rollouts(self, seed: int, config: RolloutConfig | None = None) -> dict[str, Rollout]:
        """Return one rollout engine per format; every sample is a function of (seed, task, view, sample).

        `config` replaces budget, limits and sampling of the engine.
        """
        return {
            name: Rollout(
                environment,
                self.generator,
                self._sandbox,
                tools=self._tools,
                budget=config.budget if config else self._budget,
                limits=(config or self._config).limits,
                sampling=config.sampling if config else self.sampling,
                seed=seed,
                reward_questions=self._reward_questions,
            )
            for name, environment in self.environments.items()
        }


POOLED = ("local", "docker")
"""The sandboxes whose `capacity` is the number of programs at once on the CPUs of this machine."""


def pool_options(sandbox: str) -> dict[str, Any]:
    """Return the options of a process's sandbox: a pool of no more than its share of the CPUs."""
    return {"capacity": cpus_of_this_process()} if sandbox in POOLED else {}


class TimedSandbox:
    """A sandbox wrapper with a clock that runs while programs run and the generator does not."""

    def __init__(self, sandbox: Sandbox, generating: Callable[[], float]) -> None:
        """`generating` returns the seconds that the generator has worked, the current call included."""
        self._sandbox, self._generating = sandbox, generating
        self.capacity = sandbox.capacity
        self.seconds = 0.0
        """Waiting time in wall seconds, up to the last moment at which no program ran or queued."""
        self._running = 0
        self._since = 0.0

    async def __aenter__(self) -> Self:
        self._sandbox = await self._sandbox.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._sandbox.__aexit__(*error)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        # Concurrent programs count once: the clock runs from the first start to the last end.
        if not self._running:
            self._since = self._idle()
        self._running += 1
        try:
            return await self._sandbox.run(program, limits)
        finally:
            self._running -= 1
            if not self._running:
                # Not below 0: the two clocks are not read at the same instant.
                self.seconds += max(0.0, self._idle() - self._since)

    def _idle(self) -> float:
        """Return a time that does not advance while the generator works."""
        return time.perf_counter() - self._generating()
