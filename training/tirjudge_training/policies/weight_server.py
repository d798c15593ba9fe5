"""The routes of a vLLM server through which its weights are replaced (`VLLM_SERVER_DEV_MODE=1`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tirjudge.console_text import printable
from tirjudge.generation import GeneratorFailed
from tirjudge.generation.endpoint.http import api_root

EXTENSION = "tirjudge.generation.vllm_worker.WeightReloader"
START = (
    "start it with VLLM_SERVER_DEV_MODE=1 in its environment, "
    f"--worker-extension-cls {EXTENSION} and --logprobs-mode processed_logprobs"
)
PATIENCE = httpx.Timeout(1800.0, connect=20.0)
"""Seconds: a server answers once it has read the weights, which may lie on a disk of another machine."""
LONGEST = 300
"""Characters of a server's own words in a message."""


class WeightServer:
    """One server. Raises GeneratorFailed, in one line that names it, from every method."""

    def __init__(self, url: str) -> None:
        """`url`: with or without the trailing `/v1`. Raises ValueError for what is no address."""
        self.url = str(api_root(url)).removesuffix("/v1")
        self.precision = "unknown"
        """What it computes in, as `check` has found it."""
        self._client: httpx.AsyncClient | None = None

    def check(self) -> None:
        """That it can be given weights, and tells logprobs of what was sampled."""
        told = self._ask("GET", "/server_info?config_format=json")
        try:
            config = told["vllm_config"]
            extension = config["parallel_config"]["worker_extension_cls"]
            mode = config["model_config"]["logprobs_mode"]
            self.precision = _line(config["model_config"].get("dtype", "unknown")).removeprefix("torch.")
        except (AttributeError, KeyError, TypeError):
            raise GeneratorFailed(f"{self.url} does not tell its configuration as vLLM 0.31 does") from None
        if extension != EXTENSION or mode != "processed_logprobs":
            raise GeneratorFailed(
                f"{self.url} has worker_extension_cls {extension!r} and logprobs_mode {mode!r}: {START}"
            )

    def served_model(self) -> str:
        """The name that requests must give."""
        models = self._ask("GET", "/v1/models")
        try:
            return str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise GeneratorFailed(f"{self.url} serves no model") from None

    def load(self, folder: Path, name: str) -> None:
        """Take the weights of a model folder that the server sees, as `name`; forget what was cached."""
        self._ask("POST", "/collective_rpc", {"method": "reload_from", "args": [str(folder)]})
        if not self._ask("POST", "/reset_prefix_cache").get("success"):
            raise GeneratorFailed(
                f"{self.url}: keys and values of the old weights are held: is somebody else sampling there?"
            )
        self._ask("POST", "/update_weight_version", {"new_version": name})

    async def require(self, name: str) -> None:
        """That it holds the weights of this name."""
        if self._client is None:
            self._client = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE)
        try:
            answer = await self._client.get("/weight_info")
            held = _json(answer).get("weight_version")
        except httpx.HTTPError as error:
            raise GeneratorFailed(f"{self.url}: {_line(error)}") from None
        if held != name:
            raise GeneratorFailed(
                f"{self.url} does not hold the weights that it was given: it was started again, or somebody "
                "else gave it others"
            )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
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
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _line(told: object) -> str:
    """Foreign words as one line."""
    return printable(" ".join(str(told).split()) or type(told).__name__, LONGEST)
