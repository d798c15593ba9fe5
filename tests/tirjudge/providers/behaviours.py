"""Behaviours of providers by name: the next report is one line of the table of its outcome.

A behaviour answers requests in place of a provider with a perfect judge behind it, which prefers A. The
wordings are those of public reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.tirjudge.endpoint_server import called, chat, failure

Body = dict[str, Any]
Reply = Response | Body
Play = Callable[[Body, int], Reply]
"""Answers a request, given its body and how many requests came before it."""

VERDICT = "A is right. <preference>A</preference>"
PROGRAM = "print(int(response_a) % 2, int(response_b) % 2)"
FENCE = f"Let me check.\n```python\n{PROGRAM}\n```\n"
THOUGHT = "Even numbers above two are no primes."


@dataclass(frozen=True)
class Behaviour:
    """A behaviour, and the outcome that it must have for the row."""

    play: Play
    outcome: Literal["judged", "down", "withheld", "denied", "token_budget", "too_long"]
    words: str = ""
    """Words of the row's reason or, for a row that is judged, of a warning; without any there is none."""
    requests: int = 0
    """Requests that the row may take; 0 for one more than the honest dialogue."""
    judge: Literal["text", "fence", "tools"] = "text"
    """The judge writes its verdict at once, or after a program in a fence or in a native call."""
    key: str = ""


def honest(body: Body) -> Body:
    """Answer as a perfect judge of whatever kind the request asks for."""
    if len(body["messages"]) > 1:
        return chat(VERDICT)
    if body.get("tools"):
        return chat(None, "tool_calls", tool_calls=[called(PROGRAM)])
    if "python" not in body["messages"][0]["content"].lower():
        return chat(VERDICT)
    return chat(FENCE.removesuffix("\n```\n") if "stop" in body else FENCE)


def first(reply: Any) -> Play:
    """Give the first request another reply."""
    return lambda body, before: honest(body) if before else _of(reply, body)


def always(reply: Any) -> Play:
    return lambda body, before: _of(reply, body)


def refusing(field: str, reply: Reply) -> Play:
    """Refuse requests with a field."""
    return lambda body, before: reply if field in body else honest(body)


def ending(word: Any, text: str | None = VERDICT, **more: Any) -> Body:
    return chat(text, word, **more)


def streamed(body: Body, *, end: str = "data: [DONE]\n\n", usage: bool = True) -> Response:
    """Send the honest answer as server-sent events, in parts of three characters."""
    (choice,) = honest(body)["choices"]
    message, parts = choice["message"], []
    for start in range(0, len(message["content"] or ""), 3):
        parts.append({"delta": {"content": message["content"][start : start + 3]}})
    for number, call in enumerate(message.get("tool_calls", ())):
        whole = call["function"]["arguments"]
        named = {"name": call["function"]["name"], "arguments": ""}
        parts.append({"delta": {"tool_calls": [{**call, "index": number, "function": named}]}})
        for start in range(0, len(whole), 7):
            piece = {"index": number, "function": {"arguments": whole[start : start + 7]}}
            parts.append({"delta": {"tool_calls": [piece]}})
    if end:
        parts.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    events = [{"choices": [{"index": 0, **part}]} for part in parts]
    events += [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}] if usage else []
    text = ": PROCESSING\n\n" + "".join(f"data: {json.dumps(event)}\n\n" for event in events) + end
    return Response(text, media_type="text/event-stream")


def events(*deltas: Body, finish: str = "stop", more: Body | None = None) -> Response:
    """Send parts of an answer as server-sent events, and the finish reason behind them."""
    choices = [{"index": 0, "delta": delta} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": finish}] + ([more] if more else [])
    text = "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices)
    return Response(text + "data: [DONE]\n\n", media_type="text/event-stream")


def streamed_calls(*calls: Body) -> Play:
    """Stream native calls, and refuse every turn but the honest one with a result for each."""

    def play(body: Body, before: int) -> Reply:
        if not before:
            return events(*({"tool_calls": [call]} for call in calls), finish="tool_calls")
        results = [turn for turn in body["messages"] if turn["role"] == "tool"]
        return chat(VERDICT) if len(results) == len(calls) else failure(418, f"{len(results)} results")

    return play


def without_null(reply: Reply) -> Play:
    """Refuse null as the text of a turn with a call."""

    def play(body: Body, before: int) -> Reply:
        return reply if any(turn["content"] is None for turn in body["messages"]) else honest(body)

    return play


def empty_old_call(body: Body, before: int) -> Body:
    """Add an old, empty call to every answer."""
    answer = honest(body)
    answer["choices"][0]["message"]["function_call"] = {"name": "", "arguments": ""}
    return answer


def only_streams(body: Body, before: int) -> Reply:
    text = "This model only support stream mode, please enable the stream parameter to access the model. "
    return streamed(body) if body.get("stream") else failure(400, text, code="invalid_parameter_error")


def no_stream_options(body: Body, before: int) -> Reply:
    if "stream_options" in body:
        return JSONResponse(
            {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}, 422
        )
    return streamed(body, usage=False) if body.get("stream") else only_streams(body, before)


def keeps(field: str, place: str, missing: str, value: Any = "signature") -> Play:
    """Return a field with a native call, and refuse the next request without it."""

    def play(body: Body, before: int) -> Reply:
        answer = honest(body)
        (choice,) = answer["choices"]
        if calls := choice["message"].get("tool_calls"):
            (calls[0] if place == "call" else choice["message"])[field] = value
            return answer
        turn = body["messages"][-2]
        sent = turn["tool_calls"][0] if place == "call" else turn
        return answer if sent.get(field) == value else failure(400, missing)

    return play


def wants_thinking(body: Body, before: int) -> Reply:
    """Refuse every turn of the judge without its thinking, also those without calls."""
    turns = [turn for turn in body["messages"] if turn["role"] == "assistant"]
    if all(turn.get("reasoning_content") == THOUGHT for turn in turns):
        answer = honest(body)
        answer["choices"][0]["message"]["reasoning_content"] = THOUGHT
        return answer
    return failure(400, "The `reasoning_content` in the thinking mode must be passed back to the API.")


def refuses_own_field(body: Body, before: int) -> Reply:
    """Groq: refuse the field that the endpoint itself has sent."""
    if any("reasoning" in turn for turn in body["messages"]):
        return failure(400, "'messages.1' : for 'role:assistant' property 'reasoning' is unsupported")
    answer = honest(body)
    answer["choices"][0]["message"]["reasoning"] = THOUGHT
    return answer


def bad_call(call: Body) -> Play:
    """Make a call that nobody can run, and an honest one after its fault."""

    def play(body: Body, before: int) -> Reply:
        for turn in body["messages"]:
            for sent in turn.get("tool_calls", ()):
                json.loads(sent["function"]["arguments"])
        if not before:
            return chat(None, "tool_calls", tool_calls=[call])
        told = body["messages"][-1]["content"]
        if before == 1:
            assert "There is no tool of this name" in told or "not a JSON object" in told
            return chat(None, "tool_calls", tool_calls=[called(PROGRAM, "call_b")])
        return chat(VERDICT)

    return play


def unless_streamed(text: str) -> Play:
    return lambda body, before: streamed(body) if body.get("stream") else failure(400, text)


def at_most(limit: int, reply: Reply, name: str = "max_tokens") -> Play:
    return lambda body, before: honest(body) if body.get(name, 0) <= limit else reply


def _of(reply: Any, body: Body) -> Reply:
    found: Reply = reply(body) if callable(reply) and not isinstance(reply, Response) else reply
    return found


def minimax(code: int, text: str) -> Body:
    return {"id": "x", "choices": None, "base_resp": {"status_code": code, "status_msg": text}}


def google(status: int, text: str, **more: Any) -> Response:
    return JSONResponse([{"error": {"code": status, "message": text, "status": "X", **more}}], status)


def up_to_excluded(limit: int) -> Play:
    """Vertex: refuse an answer's length from a limit on, with the range in the message."""

    def play(body: Body, before: int) -> Reply:
        if (asked := body.get("max_tokens", 0)) < limit:
            return honest(body)
        text = f"it has a maxOutputTokens value of {asked} but the supported range is from 1 (inclusive) to"
        return google(400, f"Unable to submit request because {text} {limit} (exclusive).")

    return play


LITELLM = "litellm.BadRequestError: OpenAIException - " + "Received Model Group=judge " * 16

REPEATED: dict[str, Any] = {
    "OpenRouter: an error inside a choice": ending(
        "stop", "A is", error={"code": 502, "message": "Upstream error from Chutes"}
    ),
    "Gemini: an empty answer once": chat(None) | {"usage": {"prompt_tokens": 9}},
    "a choice without anything": {"choices": [{}]},
    "TGI: 424": JSONResponse({"error": "Request failed during generation", "error_type": "generation"}, 424),
    "Groq: 498": failure(498, "Flex tier capacity exceeded"),
    "GitHub: a rate limit as 403": failure(403, "API rate limit exceeded"),
    "Bedrock: throttling as 400": failure(400, "ThrottlingException: Too many requests, please wait."),
    "Anthropic: overloaded_error": JSONResponse(
        {"type": "error", "error": {"type": "overloaded_error"}}, 529
    ),
    "MiniMax: a rate limit inside a 200": minimax(1002, "rate limit"),
    "Gemini: 429 with a delay in its body": google(
        429, "You exceeded your current quota. Please retry in 3.2s."
    ),
    "a stream that breaks": lambda body: streamed(body, end="", usage=False),
    "OpenRouter: an error in a stream": Response(
        'data: {"choices": [{"delta": {"content": "A is"}}]}\n\n'
        'data: {"error": {"code": 502, "message": "Provider disconnected"}}\n\n',
        media_type="text/event-stream",
    ),
    "choices: null": {"id": "x", "choices": None},
    "an error that is a text": {"error": "upstream connect error"},
    "Zhipu: success is false": {"code": 1302, "msg": "Too many requests", "success": False},
}
"""First replies after which the request is repeated, and judged."""

AT_ONCE: dict[str, Any] = {
    "Cohere: COMPLETE": ending("COMPLETE"),
    "no finish reason": ending(None),
    "a gateway that always streams": streamed,
    "a stream with a line separator in a text": Response(
        'data: {"choices": [{"delta": {"content": "One.\u2028Two.\x85' + VERDICT + '"}}]}\r\n\r\n'
        'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\r\n\r\ndata: [DONE]\r\n\r\n',
        media_type="text/event-stream",
    ),
    "Mistral: thinking as a part": chat(
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
            {"type": "text", "text": VERDICT},
        ]
    ),
    "usage that is nonsense": chat(VERDICT) | {"usage": {"prompt_tokens": "7", "completion_tokens": -1.0}},
    "Mistral: a stream with thinking in parts": lambda body: events(
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]},
        {"content": "A is right. "},
        {"content": [{"type": "text", "text": "<preference>A</preference>"}]},
    ),
    "a content that is one part": chat({"type": "text", "text": VERDICT}),
    "a content that is a list of texts": chat([VERDICT]),
    "a body with a byte order mark": Response(b"\xef\xbb\xbf" + json.dumps(chat(VERDICT)).encode()),
    "an error without content beside an answer": chat(VERDICT) | {"error": {"code": 0, "message": ""}},
}
"""Replies that are verdicts, without a further request or a warning."""

CUT: dict[str, Any] = {
    "OpenRouter: native_finish_reason": ending("stop", "A is", native_finish_reason="MAX_TOKENS"),
    "OpenAI: length": ending("length", "A is"),
    "a stream with an empty finish reason behind the true one": lambda body: events(
        {"content": "A is"}, finish="length", more={"index": 0, "delta": {}, "finish_reason": ""}
    ),
}
"""Replies that a limit of tokens cut."""

WITHHELD: dict[str, tuple[str, Any]] = {
    "OpenRouter: a final error inside a choice": (
        "flagged by moderation",
        ending("error", "", error={"code": 403, "message": "Input flagged by moderation"}),
    ),
    "Gemini: SAFETY": ("SAFETY", ending("SAFETY", None)),
    "Zhipu: sensitive": ("sensitive", ending("sensitive", "A is")),
    "Azure: a filtered prompt": (
        "content management",
        failure(400, "The prompt triggers Azure's content management policy.", code="content_filter"),
    ),
    "Alibaba: DataInspectionFailed": (
        "inappropriate",
        failure(400, "Input data may contain inappropriate content.", code="data_inspection_failed"),
    ),
    "Moonshot: high risk": (
        "high risk",
        failure(400, "The request was rejected because it was considered high risk"),
    ),
    "DeepSeek: Content Exists Risk": (
        "Content Exists Risk",
        failure(400, "Content Exists Risk", type="invalid_request_error"),
    ),
    "Gemini: a blocked choice without a message": ("SAFETY", {"choices": [{"finish_reason": "SAFETY"}]}),
    "OpenRouter: a moderated row": (
        "flagged",
        failure(403, "openai/gpt-4o requires moderation. Your input was flagged for 'violence'."),
    ),
    "MiniMax: a filtered answer inside a 200": (
        "sensitive",
        chat(VERDICT) | {"base_resp": {"status_code": 1027, "status_msg": "output new_sensitive"}},
    ),
}
"""Filtered rows: words of the reason, and the reply."""

DENIED: dict[str, tuple[str, Any]] = {
    "OpenAI: a model without access": (
        "access to model",
        failure(403, "Project `p` does not have access to model `m`", code="model_not_found"),
    ),
    "OpenAI: an unsupported country": (
        "Country",
        failure(403, "Country, region, or territory not supported"),
    ),
    "Gemini: a wrong key as 400": (
        "set the key",
        google(400, "API key not valid. Please pass a valid API key."),
    ),
    "xAI: a wrong key as 400": (
        "set the key",
        JSONResponse({"code": "invalid-argument", "error": "Incorrect API key provided: x*y."}, 400),
    ),
    "Anthropic: no credit as 400": (
        "credit balance",
        failure(400, "Your credit balance is too low to access the Anthropic API."),
    ),
    "DeepSeek: no balance": ("Balance", failure(402, "Insufficient Balance")),
    "Moonshot: no quota as 429": (
        "suspended",
        failure(429, "Your account is suspended", type="exceeded_current_quota_error"),
    ),
    "MiniMax: no balance inside a 200": ("insufficient balance", minimax(1008, "insufficient balance")),
    "a wrong key inside a 200": (
        "set the key",
        {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}},
    ),
    "Groq: a model that is no longer there": (
        "decommissioned",
        failure(400, "The model `m` has been decommissioned.", code="model_decommissioned"),
    ),
    "LiteLLM: an unknown model as 400": (
        "Invalid model name",
        failure(400, "{'error': '/chat/completions: Invalid model name passed in model=m.'}"),
    ),
    "DeepSeek: an unknown model as 400": ("Model Not Exist", failure(400, "Model Not Exist")),
    "Mistral: an unknown model as 400": (
        "Invalid model",
        JSONResponse({"object": "error", "message": "Invalid model: m", "type": "invalid_model"}, 400),
    ),
    "Zhipu: an unknown model as 400": ("模型", failure(400, "模型不存在，请检查模型代码。", code="1211")),
    "OpenRouter: the free requests of a day": (
        "free-models-per-day",
        failure(429, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock more"),
    ),
}
"""Endpoints that refuse every row: words of the reason, and the reply."""

TOO_LONG: dict[str, Any] = {
    "OpenAI: input tokens": failure(
        400, "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 289650."
    ),
    "Groq: context_length_exceeded": failure(
        400, "Please reduce the length of the messages or completion.", code="context_length_exceeded"
    ),
    "Gemini: the input token count": failure(
        400, "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
    ),
    "xAI: the maximum prompt length": failure(
        400, "This model's maximum prompt length is 131072 but the request contains 200000 tokens."
    ),
    "Bedrock: too long": failure(400, "Input is too long for requested model."),
    "LiteLLM: a full context behind a long prefix": failure(
        400, LITELLM + "This model's maximum context length is 8192 tokens."
    ),
    "llama.cpp: a full context": failure(
        400,
        "the request exceeds the available context size, try increasing it",
        type="exceed_context_size_error",
    ),
    "LM Studio: a full context inside a 200": {
        "error": "The number of tokens to keep from the initial prompt is greater than the context "
        "length. Try to load the model with a larger context length, or provide a shorter input"
    },
    "Groq: larger than the limit of a minute": failure(
        413,
        "Request too large for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit 6000, "
        "Requested 9120, please reduce your message size and try again.",
        code="rate_limit_exceeded",
    ),
    "OpenAI: larger than the limit of a minute": failure(
        429,
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 43211. The "
        "input or output tokens must be reduced in order to run successfully.",
        code="rate_limit_exceeded",
    ),
    "OpenAI: a string that is too long": failure(
        400, "Invalid 'messages[0].content': string too long.", code="string_above_max_length"
    ),
}
"""Replies to a row that no later moment makes small enough."""

DOWN: dict[str, tuple[str, int, Any]] = {
    "Zhipu: network_error": ("network_error", 3, ending("network_error", None)),
    "OpenRouter: error with a whole verdict": ("'error'", 3, ending("error")),
    "an unknown word": ("(ponies)", 2, ending("ponies", "A is")),
    "Gemini: empty answers": (
        "empty", 2, chat("") | {"usage": {"prompt_tokens": 9, "completion_tokens": 0}},
    ),
    "a login page": (
        "a web page with the title", 3, HTMLResponse("<!DOCTYPE html><title>Sign in</title>"),
    ),
    "null": ("'null'", 3, Response("null", media_type="application/json")),
    "an empty body": ("the body is empty", 3, Response("")),
}  # fmt: skip
"""Endpoints that never answer: words of the reason, the requests that are made, and the reply."""

DOUBTFUL: dict[str, tuple[str, Response]] = {
    "an account that is flagged": (
        "", failure(403, "Your account has been flagged for a violation of our terms"),
    ),
    "Cloudflare: an address that is blocked": (
        "", HTMLResponse("<html><h1>Sorry, you have been blocked</h1></html>", 403),
    ),
    "405 from a site that is no API": (
        "check the base URL", HTMLResponse("<html><h1>405 Not Allowed</h1></html>", 405),
    ),
    "a redirect to a login": ("another one", Response("", 302, {"location": "https://login.example"})),
}  # fmt: skip
"""Endpoints that refuse every row, which only a second, harmless question shows: words, and the reply."""

ADAPTED: dict[str, tuple[str, Play]] = {
    "an unknown word once": ("'ponies'", first(ending("ponies", "A is"))),
    "Alibaba: max_tokens above the model's limit": (
        "at most 2000", at_most(2000, failure(400, "Range of max_tokens should be [1, 2000]")),
    ),
    "Vertex: a limit that is excluded": ("at most 2048 tokens", up_to_excluded(2049)),
    "LiteLLM: a long prefix": (
        "leave out temperature",
        refusing("temperature", failure(400, LITELLM + "`temperature` is deprecated for this model.")),
    ),
    "Alibaba: only streams": ("", only_streams),
    "Alibaba: Qwen 3 thinks only in streams": (
        "", unless_streamed("parameter.enable_thinking must be set to false for non-streaming calls"),
    ),
    "Fireworks: long answers only as streams": (
        "", unless_streamed("Requests with max_tokens > 4096 must have stream=true"),
    ),
}  # fmt: skip
"""Endpoints that judge a request in another form: words of a warning, and the behaviour."""

NATIVE: dict[int, dict[str, Play]] = {
    2: {
        "Gemini 3: thought_signature": keeps(
            "extra_content", "call",
            "Function call is missing a thought_signature in functionCall parts.",
            {"google": {"thought_signature": "c2ln"}},
        ),
        "Moonshot: reasoning_content with a call": keeps(
            "reasoning_content", "message",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
            THOUGHT,
        ),
        "OpenRouter: reasoning_details with a call": keeps(
            "reasoning_details", "message", "reasoning_details are required", [{"type": "x", "data": "y"}]
        ),
        "LiteLLM: thinking_blocks with a call": keeps(
            "thinking_blocks", "message", "Expected `thinking`, found `tool_use`", [{"signature": "z"}]
        ),
        "Gemini: a stream of two calls with the index 0": streamed_calls(
            {**called(PROGRAM, "a"), "index": 0}, {**called(PROGRAM, "b"), "index": 0}
        ),
        "Gemini: a stream of two calls with the index 0 and no id": streamed_calls(
            {**called(PROGRAM, ""), "index": 0}, {**called(PROGRAM, ""), "index": 0}
        ),
        "a stream of two calls with the index null": streamed_calls(
            {**called(PROGRAM, "a"), "index": None}, {**called(PROGRAM, "b"), "index": None}
        ),
        "vLLM: a stream with an id for each part of a call": first(events(
            {"tool_calls": [{**called("", "a"), "index": 0, "function": {"name": "run_python"}}]},
            {"tool_calls": [{"index": 0, "id": "b", "function": {"arguments": '{"code": "print('}}]},
            {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": '1)"}'}}]},
            finish="tool_calls",
        )),
        "an old call that is empty in every answer": empty_old_call,
    },
    3: {
        "Groq: tool_use_failed": first(
            failure(400, "Failed to call a function.", code="tool_use_failed", failed_generation="<f")
        ),
        "older servers: function_call": first({"choices": [{
            "finish_reason": "function_call",
            "message": {"content": None, "function_call": called(PROGRAM)["function"]},
        }]}),
        "Alibaba: only streams native calls": only_streams,
        "Groq: its own field is unsupported": refuses_own_field,
        "a call with broken JSON": bad_call(
            {"id": "a", "function": {"name": "run_python", "arguments": '{"code": "pri'}}
        ),
        "a call without a name": bad_call({"id": "a", "function": {"arguments": None}}),
        "Ollama: null is no content": without_null(failure(400, "invalid message content type: <nil>")),
        "FastAPI: null is no content": without_null(JSONResponse(
            {"detail": [{"loc": ["body", "messages", 1, "content"], "msg": "Input should be a string"}]}, 422
        )),
    },
}  # fmt: skip
"""Endpoints behind a judge with native calls, which is judged, by the requests that the row may take."""

BEHAVIOURS: dict[str, Behaviour] = {
    **{name: Behaviour(first(reply), "judged") for name, reply in REPEATED.items()},
    **{name: Behaviour(always(reply), "judged", requests=1) for name, reply in AT_ONCE.items()},
    **{name: Behaviour(always(reply), "token_budget", requests=1) for name, reply in CUT.items()},
    **{name: Behaviour(always(reply), "withheld", words, 1) for name, (words, reply) in WITHHELD.items()},
    **{name: Behaviour(always(reply), "denied", words, 1) for name, (words, reply) in DENIED.items()},
    **{name: Behaviour(always(reply), "denied", words, 2) for name, (words, reply) in DOUBTFUL.items()},
    **{name: Behaviour(always(reply), "too_long", "shorten the row", 2) for name, reply in TOO_LONG.items()},
    **{name: Behaviour(always(reply), "down", *told) for name, (*told, reply) in DOWN.items()},
    **{name: Behaviour(play, "judged", words) for name, (words, play) in ADAPTED.items()},
    **{
        name: Behaviour(play, "judged", "", requests, "tools")
        for requests, plays in NATIVE.items()
        for name, play in plays.items()
    },
    "a finish reason that is a number": Behaviour(
        always(ending(1)), "judged", "the unknown reason '1'", requests=1
    ),
    "an unknown word with a whole verdict": Behaviour(
        always(ending("ponies")), "judged", "the unknown reason 'ponies'", requests=1
    ),
    "an unknown word in a program": Behaviour(
        first(ending("ponies", FENCE[:40])), "judged", "'ponies'", 3, judge="fence"
    ),
    "xAI: stop": Behaviour(
        refusing("stop", failure(400, "Argument not supported on this model: stop")),
        "judged",
        "leave out stop",
        3,
        judge="fence",
    ),
    "two fields in a row": Behaviour(
        lambda body, before: (
            refusing("seed", failure(400, "seed is not allowed"))(body, before)
            if "temperature" not in body
            else failure(400, "temperature is not allowed")
        ),
        "judged",
        "leave out temperature",
        3,
    ),
    "OpenAI: max_completion_tokens, and the key is x": Behaviour(
        refusing(
            "max_tokens",
            failure(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
            ),
        ),
        "judged",
        key="x",
    ),
    "a server of streams without stream_options": Behaviour(no_stream_options, "judged", "", 3),
    "DeepSeek: reasoning_content with every turn": Behaviour(
        wants_thinking, "judged", judge="fence", requests=3
    ),
    "a tool choice that one model lacks": Behaviour(
        always(failure(400, "registry.ollama.ai/library/m:latest does not support tools")),
        "down",
        "does not support tools",
        1,
        judge="tools",
    ),
}
