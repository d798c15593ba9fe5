"""Passing the trainer's weights to vLLM: a shared folder of weights, and the servers that load from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Literal

import httpx

from tirjudge.console_text import printable
from tirjudge.generation import GeneratorFailed
from tirjudge.generation.endpoint.http import api_root
from tirjudge_training.distributed.checkpoints import on_the_first
from tirjudge_training.distributed.processes import Processes

WeightSync = Literal["stream", "folder"]
"""The ways in which a run's own vLLM engines receive new weights."""
MEMORY = Path("/dev/shm")
"""A file system in memory, which passes weights without writing them to a disk."""
EXTENSION = "tirjudge.generation.vllm_worker.WeightReloader"
START = (
    "start it with VLLM_SERVER_DEV_MODE=1 in its environment, "
    f"--worker-extension-cls {EXTENSION} and --logprobs-mode processed_logprobs"
)
PATIENCE = httpx.Timeout(1800.0, connect=20.0)
"""Seconds. A server answers only after it has read the weights, possibly from another machine's disk."""
LONGEST = 300
"""The most characters of a server's answer that a message quotes."""


def parent_folder(parent: Path | None) -> Path:
    """Return where to create a folder of weights: `parent`, or else in memory if the machine has /dev/shm."""
    return parent or (MEMORY if MEMORY.is_dir() else Path(gettempdir()))


def free_bytes(parent: Path | None) -> int:
    """Return the free bytes at that place."""
    return disk_usage(parent_folder(parent)).free


class WeightFolder:
    """A model folder that the first process writes; each of several `processes` makes the same calls."""

    def __init__(self, model: Any, tokenizer: Any, processes: Processes, parent: Path | None = None) -> None:
        """Create the folder inside `parent`, by default in memory. Raises OSError if that fails."""
        self._model, self._processes = model, processes
        self._files = ExitStack()
        self.path = Path(processes.first(lambda: self._create(tokenizer, parent)))

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Write the current weights and yield the folder; delete them once every process has left the block.

        Otherwise a killed run would leave them in memory.
        """
        # Collective: with sharded weights every process takes part in gathering them.
        weights = on_the_first(self._model, self._processes)
        self._processes.first(lambda: self._model.save_pretrained(self.path, state_dict=weights))
        yield self.path
        self._processes.every("read")  # a barrier: the others may still be reading
        if self._processes.rank == 0:
            for file in self.path.glob("*.safetensors"):
                file.unlink()

    def close(self) -> None:
        self._files.close()

    def _create(self, tokenizer: Any, parent: Path | None) -> str:
        folder = self._files.enter_context(TemporaryDirectory(prefix="tirjudge-", dir=parent_folder(parent)))
        tokenizer.save_pretrained(folder)
        return folder


class WeightServer:
    """One vLLM server. Every method raises GeneratorFailed, in one line that names the server."""

    def __init__(self, url: str) -> None:
        """`url` may end in `/v1`. Raises ValueError for an invalid address."""
        self.url = str(api_root(url)).removesuffix("/v1")
        self.precision = "unknown"
        """The type of its matrix products, once `check` has read it."""
        self._client: httpx.AsyncClient | None = None

    def check(self) -> None:
        """Verify that the server accepts weights and returns the logprobs of its sampling distribution."""
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
        self._ask("POST", "/collective_rpc", {"method": "reload_from", "args": [str(folder)]})
        if not self._ask("POST", "/reset_prefix_cache").get("success"):
            raise GeneratorFailed(
                f"{self.url}: the KV cache of the old weights is in use: is another client sampling there?"
            )
        # Named last: until then the server does not claim to hold these weights.
        self._ask("POST", "/update_weight_version", {"new_version": name})

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
    """Return the body as an object; an empty one if it is anything else."""
    try:
        value = answer.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _line(reason: object) -> str:
    """Return untrusted text as one line."""
    return printable(" ".join(str(reason).split()) or type(reason).__name__, LONGEST)
