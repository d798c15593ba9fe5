"""Request fields: set by the judge, dispensable, or added by the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge.generation.base import SamplingOptions

SERVER_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "vllm": {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "sglang": {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "llamacpp": {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
}
"""Fields of every request to a server of open models, by the `owned_by` of the server's list of models.

They turn off the sampling that the model's makers recommend, which the server applies otherwise."""

OWN_FIELDS = {
    "model": "--model",
    "max_tokens": "--max-tokens",
    "max_completion_tokens": "--max-tokens",
    **{name: f"--{name.replace('_', '-')}" for name in SamplingOptions.model_fields},
    "seed": "--seed",
    "n": "--samples",
    "tools": "--tier tools",
    **dict.fromkeys(
        (
            "messages",
            "prompt",
            "stop",
            "stop_token_ids",
            "logprobs",
            "return_token_ids",
            "skip_special_tokens",
        ),
        "",
    ),
}
"""Fields that a user cannot add to requests, with the option that sets the field, or empty."""
DISPENSABLE = ("seed", *reversed(SamplingOptions.model_fields), "stop")
"""Fields of the judge that are left out where an endpoint does not support them, or on request; of several
that a refusal names, the first one."""
HARMLESS = "Hello"
"""A question that no filter refuses, to tell a refused row from a refused key."""


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise ValueError for a request field that the judge sets itself."""
    for name in fields:
        if name in OWN_FIELDS and not (fields[name] is None and name in DISPENSABLE):
            option = f"use {OWN_FIELDS[name]}" if OWN_FIELDS[name] else "leave it out"
            raise ValueError(f"the judge sets the request field {name!r} itself: {option}")
    if not isinstance(fields.get("chat_template_kwargs", {}), Mapping):
        raise ValueError("the request field 'chat_template_kwargs' must be a JSON object")
