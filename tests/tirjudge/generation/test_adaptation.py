"""Refusals of a request in the words of providers: what the next request leaves out, lowers or changes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tirjudge.generation.endpoint.adaptation import Learnt
from tirjudge.generation.endpoint.refusals import EndpointRefused, complaint

SENT = {
    "temperature": 0.0,
    "top_p": 0.9,
    "seed": 3,
    "stop": ["\n```\n"],
    "max_tokens": 8192,
    "messages": [{"role": "user", "content": "?"}],
}
EXTRA = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
BURIED = json.dumps({"error": {"message": "`temperature` is deprecated for this model."}})


def refused(body: Any, status: int = 400) -> EndpointRefused:
    text = json.dumps(body if isinstance(body, list | dict) else {"error": {"message": body}})
    response = httpx.Response(status, text=text)
    said = complaint(response)
    return EndpointRefused("refused", status=status, message=said.message, code=said.code, complaint=said)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
        ("Model grok-4 does not support parameter stop.", "stop"),
        ("Argument not supported on this model: stop", "stop"),
        ("Unsupported parameter: 'stop' is not supported with this model.", "stop"),
        ("claude-opus-4-7 does not support temperature=0.0.", "temperature"),
        ("stop_sequences: each stop sequence must contain non-whitespace", "stop"),
        ("invalid temperature: only 1 is allowed for this model", "temperature"),
        ("temperature: Input should be greater than 0", "temperature"),
        ("This model does not support setting temperature; leave it unset", "temperature"),
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature"),
        ('json: unknown field "seed"', "seed"),
        ([{"error": {"code": 400, "message": 'Unknown name "seed": Cannot find field.'}}], "seed"),
        ({"error": "Input validation error: `temperature` must be strictly positive"}, "temperature"),
        ("Model incompatible request argument supplied: top_p", "top_p"),
        ({"detail": [EXTRA]}, "seed"),
        ({"object": "error", "message": {"detail": [EXTRA]}}, "seed"),
        ({"message": "Malformed input request: #: extraneous key [seed] is not permitted"}, "seed"),
        ("Unrecognized request argument supplied: seed", "seed"),
        ({"detail": "Unsupported parameter: temperature"}, "temperature"),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": BURIED}}}, "temperature"),
        ({"error": {"message": "not supported, see temperature", "param": "seed"}}, "seed"),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_field_is_found_by_its_name(body: Any, field: str, status: int) -> None:
    learnt = Learnt().adapted(refused(body, status), SENT)
    assert learnt is not None
    assert learnt.left_out == {field}
    assert field not in learnt.applied(SENT)


@pytest.mark.parametrize(
    "body",
    [
        "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
        "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than "
        "the `context_window` for this model",
        "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you "
        "provided 8192.",
        "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for "
        "claude-3-haiku-20240307",
        "max_tokens 8192 is above 4,096",
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens "
        "value that is lower than 4096.",
        "invalid request: max tokens must be less than or equal to 4096",
        {"code": 20015, "message": "Value error, batch size * max_tokens must be <= 4096", "data": None},
    ],
)
def test_the_longest_answer_is_read_from_the_refusal(body: Any) -> None:
    learnt = Learnt().adapted(refused(body), SENT)
    assert learnt is not None
    assert learnt.applied(SENT)["max_tokens"] == 4096


@pytest.mark.parametrize(
    "body",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 8256 tokens (64 in the "
        "messages, 8192 in the completion).",
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is "
        "8201 tokens and your request has 4235 input tokens",
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000"},
        "prompt is too long: 205000 tokens > 200000 maximum",
        "Range of input length should be [1, 30720]",
    ],
)
def test_a_full_context_is_no_limit_of_the_answer(body: Any) -> None:
    refusal = refused(body, 422 if isinstance(body, dict) else 400)
    assert refusal.context_full
    assert Learnt().adapted(refusal, SENT) is None


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("temperature", 3.0, "'temperature' must be between 0 and 2, not 3."),
        ("top_p", 0.9, "top_p: the maximum is 0.8"),
        ("messages", [], "messages must not be empty"),
    ],
)
def test_a_value_that_the_user_chose_is_the_users_to_change(field: str, value: Any, text: str) -> None:
    assert Learnt().adapted(refused(text), {**SENT, field: value}) is None


def test_what_several_requests_learn_at_the_same_time_is_joined() -> None:
    one = Learnt(left_out=frozenset({"seed"}), most_tokens=4096, streams=True)
    other = Learnt(left_out=frozenset({"stop"}), most_tokens=2048, length="max_completion_tokens")
    joined = one.joined(other)
    assert joined == other.joined(one)
    assert joined.applied(SENT) == {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_completion_tokens": 2048,
        "messages": SENT["messages"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
