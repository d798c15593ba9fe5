"""The sampler in vLLM servers that the user starts, on this machine or another, and how they get weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from pydantic import Field, field_validator

from tirjudge.console_text import printable
from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge.generation.base import BusyClock
from tirjudge.generation.endpoint.http import api_root
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import Completion, Context
from tirjudge_environments.types import FrozenModel
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.weight_sync.base import WeightFolder

EXTENSION = "tirjudge.generation.vllm_worker.WeightReloader"
START = (
    "start it with VLLM_SERVER_DEV_MODE=1 in its environment, "
    f"--worker-extension-cls {EXTENSION} and --logprobs-mode processed_logprobs"
)
PATIENCE = httpx.Timeout(1800.0, connect=20.0)
"""Seconds. A server answers only after it has read the weights, possibly from another machine's disk."""
LONGEST = 300
"""The most characters of a server's answer that a message quotes."""
INCOMPLETE = "incomplete"
"""The name of a server's weights during a transfer, and after an incomplete transfer."""


class WeightServer:
    """One vLLM server. Every method raises GeneratorFailed, in one line that names the server."""

    def __init__(self, url: str) -> None:
        """`url` may end in `/v1`. Raises ValueError for an invalid address."""
        self.url = str(api_root(url)).removesuffix("/v1")
        self.precision = "unknown"
        """Type of the matrix products, after `check` has read it."""
        self._client: httpx.AsyncClient | None = None

    def check(self) -> None:
        """Verify that the server accepts weights and returns logprobs of the sampling distribution."""
        info = self._ask("GET", "/server_info?config_format=json")
        try:
            config = info["vllm_config"]
            extension = config["parallel_config"]["worker_extension_cls"]
            mode = config["model_config"]["logprobs_mode"]
            self.precision = _line(config["model_config"].get("dtype", "unknown")).removeprefix("torch.")
        except (AttributeError, KeyError, TypeError):
            raise GeneratorFailed(
                f"{self.url} does not report its configuration as vLLM 0.31 does: check its version"
            ) from None
        if extension != EXTENSION or mode != "processed_logprobs":
            raise GeneratorFailed(
                f"{self.url} has worker_extension_cls {extension!r} and logprobs_mode {mode!r}: {START}"
            )

    def served_model(self) -> str:
        """Return the model name that requests must use."""
        models = self._ask("GET", "/v1/models")
        try:
            return str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise GeneratorFailed(f"{self.url} serves no model") from None

    def load(self, folder: Path, name: str) -> None:
        """Load the weights of a model folder that the server can read, under `name`; clear its caches."""
        self._ask("POST", "/pause?mode=abort")
        self._ask("POST", "/update_weight_version", {"new_version": INCOMPLETE})
        try:
            self._ask("POST", "/collective_rpc", {"method": "reload_from", "args": [str(folder)]})
        except GeneratorFailed as error:
            raise GeneratorFailed(
                f"{error}; a server on another machine needs rl.server.weights, a folder that both see"
            ) from None
        if not self._ask("POST", "/reset_prefix_cache").get("success"):
            raise GeneratorFailed(f"{self.url}: the keys and values of the old weights are still cached")
        # Named last: until then the server does not claim to hold these weights.
        self._ask("POST", "/update_weight_version", {"new_version": name})
        self._ask("POST", "/resume")

    async def require(self, name: str) -> None:
        """Verify that the server holds the weights of this name."""
        # Created on first use, because an HTTP client belongs to the event loop that runs then.
        if self._client is None:
            self._client = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE)
        try:
            answer = await self._client.get("/weight_info")
            current = _json(answer).get("weight_version")
        except httpx.HTTPError as error:
            raise GeneratorFailed(f"{self.url}: {_line(error)}") from None
        if current != name:
            raise GeneratorFailed(
                f"{self.url} does not hold the weights that it was given: it was restarted, or another "
                "client replaced them"
            )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        # Synchronous, because it runs in the trainer's thread while no rollout is under way.
        try:
            answer = httpx.request(method, f"{self.url}{path}", json=body, timeout=PATIENCE)
        except httpx.HTTPError as error:
            raise GeneratorFailed(f"{self.url}: {_line(error)}") from None
        if answer.status_code == 404:
            raise GeneratorFailed(f"{self.url} has no route {path.partition('?')[0]}: {START}")
        if not answer.is_success:
            raise GeneratorFailed(f"{self.url}{path}: {answer.status_code}: {_line(answer.text)}")
        return _json(answer)


def _json(answer: httpx.Response) -> dict[str, Any]:
    """Return the body as an object; an empty object for any other body."""
    try:
        value = answer.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _line(reason: object) -> str:
    return printable(" ".join(str(reason).split()) or type(reason).__name__, LONGEST)


class VllmServerConfig(FrozenModel):
    """The servers, and how they receive weights (ours)."""

    urls: tuple[str, ...] = Field(min_length=1)
    """One server or several, `http://host:port`; the processes of a run are distributed over them."""
    weights: Path | None = None
    """An existing folder for passing weights, under the same path for trainer and servers. None passes them
    through this machine's memory, for servers on this machine."""
    concurrency: int = Field(default=256, gt=0)
    """Concurrent requests per process; vLLM queues the requests that it cannot run yet."""

    @field_validator("urls")
    @classmethod
    def _are_addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            api_root(url)
        return urls


class ServedGenerator:
    """Samples from a vLLM server and verifies that the server still holds the given weights."""

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
        """The name of the weights that the server must hold; empty while it has not received all weights."""
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
    """A copy of the trainer's model in every server; each process samples from one server.

    The first process writes the weights into a folder, and every server reads them there.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        *,
        config: VllmServerConfig,
        processes: Processes = ALONE,
        enable_thinking: bool | None = None,
    ) -> None:
        """Each of several `processes` must make the same calls. Raises GeneratorFailed, OSError."""
        self._processes = processes
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
        with self._weights.written() as folder:
            self._processes.first(lambda: self._load_all(folder, name))
        self.generator.weights = name

    def _load_all(self, folder: Path, name: str) -> None:
        for server in self._servers:
            server.load(folder, name)
