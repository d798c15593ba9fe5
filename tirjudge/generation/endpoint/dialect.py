"""The request parameters that an endpoint accepts, learnt from its error messages."""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Mapping
from typing import Any

from tirjudge.generation.endpoint.http import Refused

logger = logging.getLogger(__name__)

DISPENSABLE = (
    "no_stop_trim",
    "include_stop_str_in_output",
    "repetition_penalty",
    "min_p",
    "top_k",
    "top_p",
    "seed",
    "stop",
    "temperature",
)
"""Parameters that a request can do without, the least important first."""
_UNSUPPORTED = re.compile(
    r"support|not (permitted|allowed|recogni[sz]ed)|unrecogni[sz]ed|unknown|unexpected|extra |deprecated"
    r"|cannot|only",
    re.IGNORECASE,
)


class Dialect:
    """Renames and drops the parameters that an endpoint has refused, so that they are not sent again."""

    def __init__(self, name: str, kept: Container[str] = ()) -> None:
        """`kept` are parameters that a user chose: a refusal of one of them is an error."""
        self._name, self._kept = name, kept
        self._dropped: set[str] = set()
        self._renamed: dict[str, str] = {}

    def speaks(self, parameter: str) -> bool:
        return parameter not in self._dropped

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with the parameters that this endpoint accepts."""
        named = {self._renamed.get(name, name): value for name, value in body.items()}
        return {name: value for name, value in named.items() if name not in self._dropped}

    def learn(self, refusal: Refused, sent: Mapping[str, Any]) -> bool:
        """Drop or rename the parameter that a refusal names; return True if there was one, so ask again."""
        if refusal.status not in (400, 422) or refusal.context_full:
            return False
        if "max_tokens" in sent and "max_completion_tokens" in refusal.message:
            self._note("max_tokens", "sending max_completion_tokens instead")
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        for name in DISPENSABLE:
            if name in sent and name not in self._kept and _is_about(refusal, name):
                self._note(name, "continuing without it")
                self._dropped.add(name)
                return True
        return False

    def _note(self, parameter: str, remedy: str) -> None:
        if parameter not in self._dropped and parameter not in self._renamed:
            logger.warning("%s refuses the parameter %r: %s", self._name, parameter, remedy)


def _is_about(refusal: Refused, name: str) -> bool:
    # A value out of range is an error of the user: only unsupported parameters are dropped.
    if not _UNSUPPORTED.search(refusal.message):
        return False
    if refusal.param:
        return refusal.param == name
    return bool(re.search(rf"(?<![\w.]){name}(?!\w)", refusal.message))
