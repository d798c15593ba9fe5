"""Arguments, retries, limits and errors of an endpoint, against an HTTP server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, torn
from tirjudge.generation.base import GeneratorFailed, Sampling
from tirjudge.generation.endpoint import http as endpoint_module
from tirjudge.generation.endpoint.answers import ChatAnswer
from tirjudge.generation.endpoint.http import JsonEndpoint, api_root
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import Context, Message, Prompt


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses that an endpoint asked for, in seconds, without waiting."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(endpoint_module, "sleep", sleep)
    return asked


async def ask(url: str, **options: Any) -> str | None:
    endpoint = JsonEndpoint(url, **options)
    try:
        answer = await endpoint.post("chat/completions", {"question": "?"}, ChatAnswer)
    finally:
        await endpoint.close()
    return answer.choices[0].message.content


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (b"lone \\ud83d escape", "lone \ufffd escape"),
        (b"a pair \\ud83d\\ude00", "a pair \U0001f600"),
        (b"no utf-8 \xff\xed\xa0\x80", "no utf-8 " + "\ufffd" * 4),
    ],
)
async def test_text_that_utf_8_cannot_hold_is_read_at_the_first_attempt(
    content: bytes, read: str, server: EndpointServer, pauses: list[float]
) -> None:
    answer = json.dumps(chat("HERE")).encode().replace(b"HERE", content)
    server.answers(Response(answer, media_type="application/json"))
    assert await ask(server.url) == read
    assert not pauses


@pytest.mark.parametrize(
    "trouble",
    [
        failure(429, "busy"),
        failure(500, "oops"),
        PlainTextResponse("overloaded", 503),
        torn(),
        Response("{'not': json", media_type="application/json"),
        HTMLResponse("<html>Log in, please</html>"),
        JSONResponse({"choices": []}),
        JSONResponse({"error": {"message": "provider down", "code": 502}}),
        chat("half", "abort"),
        Response(b'{"choices": ' + b"[" * 100_000, media_type="application/json"),
    ],
)
async def test_temporary_failures_are_retried(
    server: EndpointServer, pauses: list[float], trouble: Response | dict[str, Any]
) -> None:
    server.answers(trouble, chat("A"))
    assert await ask(server.url) == "A"
    assert len(server.asked) == 2
    assert server.bodies[0] == server.bodies[1]
    assert 0 < pauses[0] <= endpoint_module.FIRST_PAUSE


async def test_a_pause_is_as_long_as_the_endpoint_asks(server: EndpointServer, pauses: list[float]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    asked = ("7", later, "soon")
    server.answers(*(failure(429, "busy", {"retry-after": one}) for one in asked), chat("A"))
    assert await ask(server.url) == "A"
    assert 7 <= pauses[0] <= 7.5
    assert 60 < pauses[1] < 91.5
    assert 0 < pauses[2] <= 2


async def test_a_spent_quota_is_not_waited_for(server: EndpointServer, pauses: list[float]) -> None:
    server.answers(failure(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(GeneratorFailed, match="429 Too Many Requests: You exceeded"):
        await ask(server.url)
    server.answers(JSONResponse({"error": {"message": "No credit left", "code": 402}}))
    with pytest.raises(GeneratorFailed, match="402 Payment Required: No credit left"):
        await ask(server.url)
    server.answers(failure(429, "daily limit", {"retry-after": "86400"}))
    with pytest.raises(GeneratorFailed, match="its Retry-After is 86400 seconds"):
        await ask(server.url)
    server.answers(failure(429, "Limit of tokens per day reached. Please try again in 7h3m."))
    with pytest.raises(GeneratorFailed, match="its Retry-After is 25380 seconds"):
        await ask(server.url)
    assert pauses == []


async def test_attempts_end_and_pauses_double_up_to_a_limit(
    server: EndpointServer, pauses: list[float]
) -> None:
    server.answers(failure(500, "oops"))
    with pytest.raises(GeneratorFailed, match=r"500 Internal Server Error: oops \(10 attempts\)$"):
        await ask(server.url, retries=9)
    assert len(server.asked) == 10
    ceilings = [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert all(top / 2 <= pause <= top for pause, top in zip(pauses, ceilings, strict=True))


async def test_many_refusals_are_overcome(server: EndpointServer, pauses: list[float]) -> None:
    """Of twenty concurrent rows every other answer is a 429: all are judged, at most four at a time."""
    served = 0

    def storm(body: dict[str, Any]) -> Any:
        nonlocal served
        served += 1
        return failure(429, "busy") if served % 2 else chat(body["row"])

    server.script = storm
    server.delay = 0.02
    endpoint = JsonEndpoint(server.url, concurrency=4, retries=49)
    rows = [f"row {number}" for number in range(20)]
    answers = await asyncio.gather(
        *(endpoint.post("chat/completions", {"row": row}, ChatAnswer) for row in rows)
    )
    await endpoint.close()
    assert [answer.choices[0].message.content for answer in answers] == rows
    assert 1 < server.most_at_once <= 4
    assert len(pauses) == len(server.asked) - len(rows)


async def test_a_timeout_is_retried(server: EndpointServer, pauses: list[float]) -> None:
    server.delay = 0.5
    with pytest.raises(GeneratorFailed, match=r"timed out: no answer within 0.05 s \(2 attempts\)"):
        await ask(server.url, timeout=0.05, retries=1)
    assert len(pauses) == 1


async def test_an_unreachable_address_is_given_up_soon(pauses: list[float]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(GeneratorFailed, match=r"ConnectError: .* \(3 attempts\)"):
            await ask(url)
    assert len(pauses) == 2


async def test_cancelling_frees_the_slot(server: EndpointServer) -> None:
    endpoint = JsonEndpoint(server.url, concurrency=1)
    server.delay = 30.0
    server.arrived.clear()
    waiting = asyncio.create_task(endpoint.post("chat/completions", {}, ChatAnswer))
    assert await asyncio.to_thread(server.arrived.wait, 10)
    server.delay = 0.0
    waiting.cancel()
    answer = await asyncio.wait_for(endpoint.post("chat/completions", {}, ChatAnswer), 10)
    await endpoint.close()
    assert waiting.cancelled()
    assert answer.choices[0].message.content == "<preference>A</preference>"


async def test_an_error_is_one_short_printable_line(server: EndpointServer) -> None:
    server.answers(failure(400, "\x1b]0;owned\x07 \u202eabc\n" + "x" * 5000))
    with pytest.raises(GeneratorFailed) as caught:
        await ask(server.url)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 450
    assert line.endswith("x…")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (json.dumps({"error": "plain words"}), "plain words"),
        (json.dumps({"detail": "FastAPI's"}), "FastAPI's"),
        (json.dumps({"detail": [{"loc": ["body", "x"], "msg": "a field"}]}), "x: a field"),
        ("<html><head><title>T</title></head><body><h1>Not <b>here</b></h1></body>", "Not here"),
    ],
)
async def test_the_endpoints_error_message_is_found(server: EndpointServer, body: str, words: str) -> None:
    server.answers(Response(body, 404))
    with pytest.raises(GeneratorFailed, match=f"404 Not Found: {words}; check the base URL"):
        await ask(server.url)


async def test_an_answer_that_trickles_in_for_ever_is_a_timeout(
    server: EndpointServer, pauses: list[float]
) -> None:
    """Some gateways send white space to keep a connection open, which a limit on silence never ends."""

    async def spaces() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    server.script = lambda body: StreamingResponse(spaces(), media_type="application/json")
    with pytest.raises(GeneratorFailed, match=r"timed out: no answer within 0.3 s \(1 attempt\)"):
        await asyncio.wait_for(ask(server.url, timeout=0.3, retries=0), 30)
    assert pauses == []


async def test_in_python_the_first_retry_is_logged_as_a_warning(
    server: EndpointServer, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    server.answers(failure(500, "oops"), failure(500, "oops"), failure(500, "oops"), chat("A"))
    assert await ask(server.url) == "A"
    warnings = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1, "then one a minute"
    assert "500 Internal Server Error: oops; retrying in" in warnings[0]


async def test_the_query_of_the_address_is_sent_and_never_shown(
    server: EndpointServer, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Azure's deployments need `api-version`, and read the key from a header of their own."""
    caplog.set_level(logging.DEBUG)
    address = f"{server.url}/openai/deployments/d?api-version=2024-10-21&sig=hidden"
    assert await ask(address, api_key="secret") == "<preference>A</preference>"
    (asked,) = server.asked
    assert asked.path == "/openai/deployments/d/chat/completions"
    assert asked.query == "api-version=2024-10-21&sig=hidden"
    assert asked.headers["api-key"] == "secret"
    assert "authorization" not in asked.headers
    server.answers(failure(401, "who?"))
    with pytest.raises(GeneratorFailed) as refused:
        await ask(address)
    assert "hidden" not in str(refused.value)
    assert "HTTP Request: POST" in caplog.text
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        # Groq, OpenAI, Gemini
        ({"error": {"message": "Rate limit reached. Please try again in 1m2.5s. Visit ..."}}, 62.5),
        ({"error": {"message": "Limit 30000, Used 29000. Please try again in 120ms."}}, 0.12),
        ([{"error": {"code": 429, "message": "Quota exceeded.", "details": [{"retryDelay": "37s"}]}}], 37),
        ({"error": {"message": "Retry after 20 seconds"}}, 20),
    ],
)
async def test_a_pause_may_be_asked_for_in_the_body(
    server: EndpointServer, pauses: list[float], body: Any, seconds: float
) -> None:
    server.answers(JSONResponse(body, 429), chat("A"))
    assert await ask(server.url) == "A"
    assert seconds <= pauses[0] <= 2 * seconds + 1


async def test_the_key_is_never_shown_and_is_no_part_of_a_word(server: EndpointServer) -> None:
    server.answers(failure(400, "max_tokens of x is wrong, sk-x and sk-longer-key-1 too"))
    for key, shown in (("x", "max_tokens of [key] is"), ("sk-longer-key-1", "sk-x and [key] too")):
        with pytest.raises(GeneratorFailed) as refused:
            await ask(server.url, api_key=key)
        assert shown in str(refused.value)
        assert key not in str(refused.value).replace("max_tokens", "").split(": ", 2)[-1].split()


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
        ({"tier": "best"}, "tier must be one of auto, completions"),
        ({"api_key": "sk-\nsecret"}, "characters that a header cannot carry"),
        ({"base_url": "http://host/v1#secret"}, "the base URL must be http"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        OpenAIGenerator("judge-8b", **{"base_url": "http://127.0.0.1:1", **options})
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
