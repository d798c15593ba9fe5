"""Fuzz a server with requests generated from its own schema; every answer must fit that schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
fuzzing = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def fuzz_schema(url: str, seconds: float, prepare: Callable[[Any], None] = lambda case: None) -> set[str]:
    """Fuzz every operation, each with a time limit in seconds, and return the paths of all operations.

    `prepare` may change a request before it is sent.
    """
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        _fuzz(operation, seconds, prepare)
    return {operation.path for operation in operations}


def _fuzz(operation: Any, seconds: float, prepare: Callable[[Any], None]) -> None:
    # Not through schemathesis's plugin, which does not run under this pytest.
    @fuzzing
    @given(case=st.one_of(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))
    def answers_as_it_says(case: Any) -> None:
        prepare(case)
        case.call_and_validate(checks=CHECKS, timeout=seconds)

    answers_as_it_says()
