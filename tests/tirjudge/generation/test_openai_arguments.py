"""Arguments of the OpenAI-compatible generator: base URLs, limits, and a key that is never shown."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, failure
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.generation.endpoint.http import api_root
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import Context, Message, Prompt

PROMPT = Prompt(messages=(Message("user", "A or B?"),))
SAMPLING = Sampling()


@pytest.mark.parametrize("tail", ["", "/v1/", "/v1/chat/completions", "/api/openai/"])
async def test_the_base_url_may_be_written_in_many_ways(server: EndpointServer, tail: str) -> None:
    generator = OpenAIGenerator("judge-8b", server.url + tail)
    await generator.generate(Context(PROMPT), SAMPLING)
    await generator.close()
    assert server.asked[0].path == f"/{'api/openai' if 'api' in tail else 'v1'}/chat/completions"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier": "completions"}, "needs the model's tokenizer"),
        ({"tier": "best"}, "tier must be one of auto, completions"),
        ({"concurrency": 0}, "must be positive"),
        ({"api_key": "sk-\nsecret"}, "characters that a header cannot carry"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        OpenAIGenerator("judge-8b", "http://127.0.0.1:1", **options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "http://me:secret@host/v1", "http://host/v1#secret"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the base URL must be http") as caught:
        OpenAIGenerator("judge-8b", url)
    assert "secret" not in str(caught.value)


def test_an_address_that_files_record_may_have_no_query() -> None:
    """A recipe is stored in the run folder, and a query may contain a key."""
    with pytest.raises(ValueError, match="with no user, query or fragment") as caught:
        api_root("http://host/v1?key=secret")
    assert "secret" not in str(caught.value)


async def test_further_fields_are_sent_with_every_request(server: EndpointServer) -> None:
    """The template's own switches are merged with those of the fields."""
    fields = {"reasoning_effort": "low", "chat_template_kwargs": {"style": "short"}}
    generator = OpenAIGenerator("judge-8b", server.url, enable_thinking=False, request_fields=fields)
    await generator.generate(Context(PROMPT), SAMPLING)
    await generator.close()
    (body,) = server.bodies
    assert body["reasoning_effort"] == "low"
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "style": "short"}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"max_tokens": 5}, "the judge sets the request field 'max_tokens' itself: use --max-tokens"),
        ({"logprobs": True}, "the judge sets the request field 'logprobs' itself: leave it out"),
        ({"chat_template_kwargs": "x"}, "'chat_template_kwargs' must be a JSON object"),
    ],
)
def test_fields_that_the_judge_sets_are_refused(field: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenAIGenerator("judge-8b", "http://127.0.0.1:1", request_fields=field)


async def test_nothing_shows_the_key(server: EndpointServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = "sk-0123456789abcdef"
    server.answers(failure(401, f"Incorrect API key provided: {key}. \x1b[31mGet one\r\n at."))
    generator = OpenAIGenerator("judge-8b", server.url, api_key=key)
    with pytest.raises(GeneratorFailed) as caught:
        await generator.generate(Context(PROMPT), SAMPLING)
    await generator.close()
    assert server.asked[0].headers["authorization"] == f"Bearer {key}"
    assert str(caught.value) == (
        f"{server.url}/v1/chat/completions: 401 Unauthorized: Incorrect API key provided: [key]. "
        "[31mGet one at; set the key in TIRJUDGE_API_KEY or OPENAI_API_KEY"
    )
    shown = [
        caplog.text,
        repr(generator),
        repr(caught.value),
        str(vars(generator)),
        str(vars(generator._endpoint)),
    ]
    assert not any(key in text for text in shown)
