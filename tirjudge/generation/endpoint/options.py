"""The options of a model behind an endpoint, declared once for commands, Python and recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT, Retry
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.endpoint.request_fields import check_fields
from tirjudge.storage.run_settings import MOVABLE, Option
from tirjudge_environments.types import Later


class EndpointOptions(BaseModel):
    """A model and how to reach it; each field is an argument of `OpenAIGenerator` too.

    The judge, the MetaJudge, the teacher of a distillation and the generators of a corpus have all fields. A
    model that runs in this process, for lack of a `base_url`, uses only `model` and `concurrency`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Annotated[str, Option("Model", "--model", "MODEL", common=True)] = ""
    """The model's name at the endpoint."""
    base_url: Annotated[str, Option("Model", "--base-url", "URL", common=True), MOVABLE] = ""
    """An OpenAI-compatible endpoint; without one the model runs in this process."""
    request_fields: Annotated[
        Mapping[str, Any], Option("Model", "--request-field", "KEY=JSON"), Later({}, hashed=True)
    ] = {}
    """A further field of every request to the endpoint, such as reasoning_effort=low. Repeatable."""
    concurrency: Annotated[int, Field(ge=1), Option("Model", "--concurrency"), MOVABLE] = 32
    """Requests at once, and rows, questions or dialogues. No result depends on it."""
    timeout: Annotated[
        float, Field(gt=0, allow_inf_nan=False), Option("Model", "--timeout", "SECONDS", "600"), MOVABLE
    ] = TIMEOUT
    """Time that the endpoint may take for one answer before the request is repeated."""
    retries: Annotated[int, Field(ge=0), Option("Model", "--retries"), MOVABLE] = RETRIES
    """Further attempts of a request after a temporary failure; at most two before the first answer."""

    @field_validator("request_fields")
    @classmethod
    def _leave_ours(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        check_fields(given)
        return given

    def open_endpoint(
        self, api_key: str | None, *, on_retry: Callable[[Retry], None] | None = None, **further: Any
    ) -> OpenAIGenerator:
        """Return the endpoint's generator; `further` are arguments that no field declares."""
        declared = {name: getattr(self, name) for name in EndpointOptions.model_fields}
        return OpenAIGenerator(**declared, api_key=api_key, on_retry=on_retry, **further)
