"""The policy in vLLM servers that the user starts, on this machine or another."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge.generation.base import BusyClock
from tirjudge.generation.endpoint.http import api_root
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import Completion, Context
from tirjudge_training.distributed.checkpoints import full_weights
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.policies.weight_server import WeightServer, send_weights
from tirjudge_training.policies.weight_sync import WeightFolder, WeightSync, can_stream


class VllmServerConfig(BaseModel):
    """The servers, and the folder through which they receive weights if these are not streamed (ours)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: tuple[str, ...] = Field(min_length=1)
    """One server or several, `http://host:port`; the processes of a run are distributed over them."""
    weights: Path | None = None
    """An existing folder that trainer and servers see under the same path, through which weights pass if they
    are not streamed; None uses this machine's memory."""
    concurrency: int = Field(default=256, gt=0)
    """Concurrent requests per process; vLLM queues those that it cannot run yet."""

    @field_validator("urls")
    @classmethod
    def _are_addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            api_root(url)
        return urls


class ServedGenerator:
    """Samples from a vLLM server and verifies that it still holds the weights it was given."""

    def __init__(
        self,
        name: str,
        server: WeightServer,
        folder: Path,
        concurrency: int,
        enable_thinking: bool | None = None,
    ) -> None:
        """`folder` contains the model's tokenizer. Raises GeneratorFailed."""
        self.model = name
        self.weights = ""
        """The name of the weights that the server must hold; empty while it has not received all of them."""
        self._server, self._clock = server, BusyClock()
        self._endpoint = OpenAIGenerator(
            server.served_model(),
            server.url,
            tokenizer=str(folder),
            enable_thinking=enable_thinking,
            concurrency=concurrency,
        )
        self.encoder = self._endpoint.encoder

    @property
    def busy_seconds(self) -> float:
        """Wall seconds since the start spent waiting for answers."""
        return self._clock.seconds

    @property
    def precision(self) -> str:
        """The type of the server's matrix products."""
        return self._server.precision

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Return the completion of one turn. Raises GeneratorFailed, ContextTooLong."""
        if not self.weights:
            raise GeneratorFailed(f"{self._server.url} has not received all of its new weights")
        with self._clock.working():
            completion = await self._endpoint.generate(context, sampling)
            # A restarted server would answer with the weights from its start.
            await self._server.require(self.weights)
        return completion

    async def close(self) -> None:
        await self._endpoint.close()
        await self._server.close()


class VllmServerPolicy:
    """A copy of the trainer's model in every server; each process samples from one of them.

    The first process sends the weights to all servers at once, one tensor at a time; a folder of weights that
    they read is the other way.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        *,
        config: VllmServerConfig,
        processes: Processes = ALONE,
        weight_sync: WeightSync = "stream",
        enable_thinking: bool | None = None,
    ) -> None:
        """Each of several `processes` must make the same calls. Raises GeneratorFailed, OSError."""
        self._model, self._processes = model, processes
        self._streams = weight_sync == "stream" and can_stream(model, {})
        self.passed = 0
        """Bytes of the last sync that each worker of a server received; 0 if they passed through a folder."""
        self._servers = [WeightServer(url) for url in config.urls]
        # Each process samples from one server, but the first loads the weights into all of them.
        mine = self._servers[processes.rank % len(self._servers)]
        processes.first(self._check)  # before the weights are written: the check is cheap
        self._weights = WeightFolder(model, tokenizer, processes, config.weights)
        try:
            self.generator = ServedGenerator(
                name, mine, self._weights.path, config.concurrency, enable_thinking
            )
            self._load()
        except BaseException:
            self._weights.close()
            raise

    async def refresh(self) -> None:
        self._load()  # Not in a thread: there, collective operations would use the first GPU.

    async def rest(self) -> None:
        """Do nothing: the servers keep their memory."""

    async def close(self) -> None:
        self._weights.close()
        await self.generator.close()

    def _check(self) -> None:
        for server in self._servers:
            server.check()

    def _load(self) -> None:
        self.generator.weights = ""
        # A fresh name for every load: a server that answers under another name holds stale weights.
        name = self._processes.first(lambda: uuid4().hex)
        if self._streams:
            self._stream(name)
        else:
            with self._weights.written() as folder:
                self._processes.first(lambda: self._load_all(folder, name))
        self.generator.weights = name

    def _stream(self, name: str) -> None:
        # Collective: with sharded weights every process takes part in gathering them.
        weights = full_weights(self._model)
        failure: GeneratorFailed | None = None
        if self._processes.rank:
            for _ in weights:
                pass
        else:
            try:
                device = next(self._model.parameters()).device
                self.passed = send_weights(self._servers, weights, device, name)
            except GeneratorFailed as error:
                failure = error

        def report() -> None:
            if failure is not None:
                raise failure

        self._processes.first(report)

    def _load_all(self, folder: Path, name: str) -> None:
        for server in self._servers:
            server.load(folder, name)
