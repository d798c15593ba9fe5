"""Behaviours of providers by name: the next report is one line of `BEHAVIOURS`.

A behaviour answers requests in place of a provider with a perfect judge behind it, which prefers A. The
wordings are those of public reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from tests.tirjudge.endpoint_server import called, chat, failure, torn

Body = dict[str, Any]
Reply = Response | Body
Play = Callable[[Body, int], Reply]
"""Answers a request, given its body and how many requests came before it."""

VERDICT = "A is right. <preference>A</preference>"
PROGRAM = "print(int(response_a) % 2, int(response_b) % 2)"
FENCE = f"Let me check.\n```python\n{PROGRAM}\n```\n"
THOUGHT = "Even numbers above two are no primes."
CONTENT_POLICY = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
)


@dataclass(frozen=True)
class Behaviour:
    """A behaviour, and the outcome that it must have for the row."""

    play: Play
    outcome: Literal["judged", "down", "withheld", "denied", "token_budget", "too_long", "malformed"]
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


def one_row_blocked(status: int, reply: Reply) -> Play:
    """Refuse the row, and answer a harmless question."""
    return lambda body, before: chat("Hello!") if len(str(body["messages"])) < 200 else reply


def at_most(limit: int, reply: Reply, name: str = "max_tokens") -> Play:
    return lambda body, before: honest(body) if body.get(name, 0) <= limit else reply


def counted(prompt_tokens: int, **more: Any) -> Play:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 3, **more}
    return lambda body, before: honest(body) | {"usage": usage}


def _of(reply: Any, body: Body) -> Reply:
    found: Reply = reply(body) if callable(reply) and not isinstance(reply, Response) else reply
    return found


def minimax(code: int, text: str) -> Body:
    return {"id": "x", "choices": None, "base_resp": {"status_code": code, "status_msg": text}}


def google(status: int, text: str, **more: Any) -> Response:
    return JSONResponse([{"error": {"code": status, "message": text, "status": "X", **more}}], status)


def pydantic_refusal(name: str) -> Response:
    detail = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}]
    return JSONResponse({"detail": detail}, 422)


def up_to_excluded(limit: int) -> Play:
    """Vertex: refuse an answer's length from a limit on, with the range in the message."""

    def play(body: Body, before: int) -> Reply:
        if (asked := body.get("max_tokens", 0)) < limit:
            return honest(body)
        text = f"it has a maxOutputTokens value of {asked} but the supported range is from 1 (inclusive) to"
        return google(400, f"Unable to submit request because {text} {limit} (exclusive).")

    return play


LITELLM = "litellm.BadRequestError: OpenAIException - " + "Received Model Group=judge " * 16

BEHAVIOURS: dict[str, Behaviour] = {
    # Finish reasons: a failure of the server is repeated, and then fails the row.
    "Zhipu: network_error once": Behaviour(first(ending("network_error", "A is")), "judged"),
    "Zhipu: network_error": Behaviour(always(ending("network_error", None)), "down", "network_error", 3),
    "DeepSeek: insufficient_system_resource": Behaviour(
        always(ending("insufficient_system_resource", "A is")), "down", "insufficient_system_resource", 3
    ),
    "vLLM: abort": Behaviour(first(ending("abort", "A is")), "judged"),
    "OpenRouter: error with a whole verdict": Behaviour(always(ending("error")), "down", "'error'", 3),
    "Gemini: OTHER": Behaviour(first(ending("OTHER", None)), "judged"),
    "Gemini: MALFORMED_FUNCTION_CALL": Behaviour(
        first(ending("function_call_filter: MALFORMED_FUNCTION_CALL", None)), "judged"
    ),
    "Ollama: load": Behaviour(first(ending("load", "")), "judged"),
    "OpenRouter: an error inside a choice": Behaviour(
        first(ending("stop", "A is", error={"code": 502, "message": "Upstream error from Chutes"})), "judged"
    ),
    "OpenRouter: a final error inside a choice": Behaviour(
        always(ending("error", "", error={"code": 403, "message": "Input flagged by moderation"})),
        "withheld",
        "flagged by moderation",
        1,
    ),
    "OpenRouter: native_finish_reason": Behaviour(
        always(ending("stop", "A is", native_finish_reason="MAX_TOKENS")), "token_budget", requests=1
    ),
    # Filters
    "OpenAI: content_filter": Behaviour(always(ending("content_filter", "")), "withheld", "filter", 1),
    "Gemini: SAFETY": Behaviour(always(ending("SAFETY", None)), "withheld", "SAFETY", 1),
    "Gemini: RECITATION": Behaviour(always(ending("RECITATION", None)), "withheld", "RECITATION", 1),
    "Gemini: content_filter: PROHIBITED_CONTENT": Behaviour(
        always(ending("content_filter: PROHIBITED_CONTENT", None)), "withheld", "PROHIBITED", 1
    ),
    "Vertex: FinishReason.SPII": Behaviour(always(ending("FinishReason.SPII", "")), "withheld", "SPII", 1),
    "Zhipu: sensitive": Behaviour(always(ending("sensitive", "A is")), "withheld", "sensitive", 1),
    "Anthropic: refusal": Behaviour(always(ending("refusal", "")), "withheld", "refusal", 1),
    "Bedrock: guardrail_intervened": Behaviour(
        always(ending("guardrail_intervened", "Blocked.")), "withheld", "guardrail", 1
    ),
    "Cohere: ERROR_TOXIC": Behaviour(always(ending("ERROR_TOXIC", "")), "withheld", "ERROR_TOXIC", 1),
    "Azure: a filtered prompt": Behaviour(
        always(failure(400, CONTENT_POLICY, code="content_filter")), "withheld", "content management", 1
    ),
    "Alibaba: DataInspectionFailed": Behaviour(
        always(failure(400, "Input data may contain inappropriate content.", code="data_inspection_failed")),
        "withheld",
        "inappropriate",
        1,
    ),
    "Moonshot: high risk": Behaviour(
        always(failure(400, "The request was rejected because it was considered high risk")),
        "withheld",
        "high risk",
        1,
    ),
    "DeepSeek: Content Exists Risk": Behaviour(
        always(failure(400, "Content Exists Risk", type="invalid_request_error")),
        "withheld",
        "Content Exists Risk",
        1,
    ),
    # Lengths
    "OpenAI: length": Behaviour(always(ending("length", "A is")), "token_budget", requests=1),
    "Gemini: MAX_TOKENS": Behaviour(always(ending("MAX_TOKENS", "A is")), "token_budget", requests=1),
    "Vertex: FinishReason.MAX_TOKENS": Behaviour(
        always(ending("FinishReason.MAX_TOKENS", None)), "token_budget", requests=1
    ),
    "Mistral: model_length": Behaviour(always(ending("model_length", "A")), "token_budget", requests=1),
    "Anthropic: model_context_window_exceeded": Behaviour(
        always(ending("model_context_window_exceeded", "A")), "token_budget", requests=1
    ),
    # Ends in other words
    "Cohere: COMPLETE": Behaviour(always(ending("COMPLETE")), "judged", requests=1),
    "Anthropic: end_turn": Behaviour(always(ending("end_turn")), "judged", requests=1),
    "TGI: eos_token": Behaviour(always(ending("eos_token")), "judged", requests=1),
    "no finish reason": Behaviour(always(ending(None)), "judged", requests=1),
    "a finish reason that is a number": Behaviour(
        always(ending(1)), "judged", "the unknown reason '1'", requests=1
    ),
    "an unknown word with a whole verdict": Behaviour(
        always(ending("ponies")), "judged", "the unknown reason 'ponies'", requests=1
    ),
    "an unknown word once": Behaviour(first(ending("ponies", "A is")), "judged", "'ponies'"),
    "an unknown word": Behaviour(always(ending("ponies", "A is")), "down", "(ponies)", 2),
    "an unknown word in a program": Behaviour(
        first(ending("ponies", FENCE[:40])), "judged", "'ponies'", 3, judge="fence"
    ),
    "Gemini: an empty answer once": Behaviour(first(chat(None) | {"usage": {"prompt_tokens": 9}}), "judged"),
    "Gemini: empty answers": Behaviour(
        always(chat("") | {"usage": {"prompt_tokens": 9, "completion_tokens": 0}}), "down", "empty", 2
    ),
    "Gemini: a blocked choice without a message": Behaviour(
        always({"choices": [{"finish_reason": "SAFETY"}]}), "withheld", "SAFETY", 1
    ),
    "a choice without anything": Behaviour(first({"choices": [{}]}), "judged"),
    "Cerebras: an unknown filter": Behaviour(always(ending("nsfw_content", "")), "withheld", "nsfw", 1),
    # Failures of the server under the status of a refusal
    "TGI: 424": Behaviour(
        first(JSONResponse({"error": "Request failed during generation", "error_type": "generation"}, 424)),
        "judged",
    ),
    "Groq: 498": Behaviour(first(failure(498, "Flex tier capacity exceeded")), "judged"),
    "Groq: tool_use_failed": Behaviour(
        first(failure(400, "Failed to call a function.", code="tool_use_failed", failed_generation="<f")),
        "judged",
        judge="tools",
    ),
    "GitHub: a rate limit as 403": Behaviour(first(failure(403, "API rate limit exceeded")), "judged"),
    "Bedrock: throttling as 400": Behaviour(
        first(failure(400, "ThrottlingException: Too many requests, please wait.")), "judged"
    ),
    "Hugging Face: a model that loads": Behaviour(
        first(JSONResponse({"error": "Model m is currently loading", "estimated_time": 20.0}, 503)), "judged"
    ),
    "Anthropic: overloaded_error": Behaviour(
        first(JSONResponse({"type": "error", "error": {"type": "overloaded_error"}}, 529)), "judged"
    ),
    # Refused rows, and refused keys
    "OpenRouter: a moderated row": Behaviour(
        always(failure(403, "openai/gpt-4o requires moderation. Your input was flagged for 'violence'.")),
        "withheld",
        "flagged",
        1,
    ),
    "a firewall that blocks one row": Behaviour(
        one_row_blocked(403, HTMLResponse("<html><h1>403 Forbidden</h1></html>", 403)),
        "withheld",
        "refuses this row, and answers others",
        2,
    ),
    "a gateway that answers 404 for one row": Behaviour(
        one_row_blocked(404, failure(404, "nothing here")), "withheld", "answers others", 2
    ),
    "a wrong key as 403": Behaviour(always(failure(403, "Forbidden")), "denied", "check it", 2),
    "an account that is flagged": Behaviour(
        always(failure(403, "Your account has been flagged for a violation of our terms")), "denied", "", 2
    ),
    "Cloudflare: an address that is blocked": Behaviour(
        always(HTMLResponse("<html><h1>Sorry, you have been blocked</h1></html>", 403)), "denied", "", 2
    ),
    "OpenAI: a model without access": Behaviour(
        always(failure(403, "Project `p` does not have access to model `m`", code="model_not_found")),
        "denied",
        "access to model",
        1,
    ),
    "OpenAI: an unsupported country": Behaviour(
        always(failure(403, "Country, region, or territory not supported")), "denied", "Country", 1
    ),
    "OpenAI: an unknown model": Behaviour(
        always(failure(404, "The model `m` does not exist or you do not have access to it.")),
        "denied",
        "does not exist",
        1,
    ),
    "Gemini: a wrong key as 400": Behaviour(
        always(google(400, "API key not valid. Please pass a valid API key.")), "denied", "set the key", 1
    ),
    "xAI: a wrong key as 400": Behaviour(
        always(JSONResponse({"code": "invalid-argument", "error": "Incorrect API key provided: x*y."}, 400)),
        "denied",
        "set the key",
        1,
    ),
    "Anthropic: no credit as 400": Behaviour(
        always(failure(400, "Your credit balance is too low to access the Anthropic API.")),
        "denied",
        "credit balance",
        1,
    ),
    "DeepSeek: no balance": Behaviour(always(failure(402, "Insufficient Balance")), "denied", "Balance", 1),
    "Moonshot: no quota as 429": Behaviour(
        always(failure(429, "Your account is suspended", type="exceeded_current_quota_error")),
        "denied",
        "suspended",
        1,
    ),
    "MiniMax: no balance inside a 200": Behaviour(
        always(minimax(1008, "insufficient balance")), "denied", "insufficient balance", 1
    ),
    "MiniMax: a rate limit inside a 200": Behaviour(first(minimax(1002, "rate limit")), "judged"),
    "Gemini: 429 with a delay in its body": Behaviour(
        first(google(429, "You exceeded your current quota. Please retry in 3.2s.")), "judged"
    ),
    # Sampling fields
    "OpenAI: temperature of a reasoning model": Behaviour(
        refusing(
            "temperature",
            failure(
                400,
                "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) "
                "value is supported.",
                param="temperature",
            ),
        ),
        "judged",
        "leave out temperature",
    ),
    "OpenAI: a search model": Behaviour(
        refusing("temperature", failure(400, "Model incompatible request argument supplied: temperature")),
        "judged",
        "leave out temperature",
    ),
    "Moonshot: only 1 is allowed": Behaviour(
        refusing("temperature", failure(400, "invalid temperature: only 1 is allowed for this model")),
        "judged",
        "leave out temperature",
    ),
    "xAI: stop": Behaviour(
        refusing("stop", failure(400, "Argument not supported on this model: stop")),
        "judged",
        "leave out stop",
        3,
        judge="fence",
    ),
    "Gemini: Unknown name": Behaviour(
        refusing("seed", google(400, 'Invalid JSON payload received. Unknown name "seed".')),
        "judged",
        "leave out seed",
    ),
    "Go servers: unknown field": Behaviour(
        refusing("seed", PlainTextResponse('json: unknown field "seed"', 400)), "judged", "leave out seed"
    ),
    "Mistral: extra inputs": Behaviour(
        refusing("seed", pydantic_refusal("seed")), "judged", "leave out seed"
    ),
    "TGI: temperature must be positive": Behaviour(
        refusing(
            "temperature",
            JSONResponse({"error": "Input validation error: `temperature` must be strictly positive"}, 422),
        ),
        "judged",
        "leave out temperature",
    ),
    "Fireworks: unrecognized request argument": Behaviour(
        refusing("seed", failure(400, "Unrecognized request argument supplied: seed")),
        "judged",
        "leave out seed",
    ),
    "LiteLLM: a long prefix": Behaviour(
        refusing("temperature", failure(400, LITELLM + "`temperature` is deprecated for this model.")),
        "judged",
        "leave out temperature",
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
    # Lengths of answers and contexts
    "OpenAI: max_completion_tokens": Behaviour(
        refusing(
            "max_tokens",
            failure(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
            ),
        ),
        "judged",
    ),
    "OpenAI: max_completion_tokens, and the key is x": Behaviour(
        refusing(
            "max_tokens", failure(400, "'max_tokens' is not supported. Use 'max_completion_tokens' instead.")
        ),
        "judged",
        key="x",
    ),
    "OpenAI: max_tokens above the model's limit": Behaviour(
        at_most(
            4096,
            failure(
                400,
                "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas "
                "you provided 8192.",
            ),
        ),
        "judged",
        "at most 4096 tokens",
    ),
    "Anthropic: max_tokens above the model's limit": Behaviour(
        at_most(
            4096,
            failure(
                400,
                "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for "
                "claude-3-haiku-20240307",
            ),
        ),
        "judged",
        "at most 4096 tokens",
    ),
    "Alibaba: max_tokens above the model's limit": Behaviour(
        at_most(2000, failure(400, "Range of max_tokens should be [1, 2000]")), "judged", "at most 2000"
    ),
    "LiteLLM: a full context behind a long prefix": Behaviour(
        always(failure(400, LITELLM + "This model's maximum context length is 8192 tokens.")),
        "too_long",
        "shorten the row",
        2,
    ),
    "llama.cpp: a full context": Behaviour(
        always(
            failure(
                400,
                "the request exceeds the available context size, try increasing it",
                type="exceed_context_size_error",
            )
        ),
        "too_long",
        "shorten the row",
        2,
    ),
    # Streams
    "Alibaba: only streams": Behaviour(only_streams, "judged"),
    "Alibaba: only streams native calls": Behaviour(only_streams, "judged", requests=3, judge="tools"),
    "Alibaba: Qwen 3 thinks only in streams": Behaviour(
        lambda body, before: (
            streamed(body)
            if body.get("stream")
            else failure(400, "parameter.enable_thinking must be set to false for non-streaming calls")
        ),
        "judged",
    ),
    "a server of streams without stream_options": Behaviour(no_stream_options, "judged", "", 3),
    "a gateway that always streams": Behaviour(always(streamed), "judged", requests=1),
    "a stream with a line separator in a text": Behaviour(
        always(
            Response(
                'data: {"choices": [{"delta": {"content": "One.\u2028Two.\x85' + VERDICT + '"}}]}\r\n\r\n'
                'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\r\n\r\ndata: [DONE]\r\n\r\n',
                media_type="text/event-stream",
            )
        ),
        "judged",
        requests=1,
    ),
    "a stream that breaks": Behaviour(first(lambda body: streamed(body, end="", usage=False)), "judged"),
    "OpenRouter: an error in a stream": Behaviour(
        first(
            Response(
                'data: {"choices": [{"delta": {"content": "A is"}}]}\n\n'
                'data: {"error": {"code": 502, "message": "Provider disconnected"}}\n\n',
                media_type="text/event-stream",
            )
        ),
        "judged",
    ),
    # Bodies that are no answer
    "a login page": Behaviour(
        always(HTMLResponse("<!DOCTYPE html><title>Sign in</title>")), "down", "a web page with the title", 3
    ),
    "null": Behaviour(always(Response("null", media_type="application/json")), "down", "'null'", 3),
    "an empty body": Behaviour(always(Response("")), "down", "the body is empty", 3),
    "a torn body": Behaviour(first(torn()), "judged"),
    "choices: null": Behaviour(first({"id": "x", "choices": None}), "judged"),
    "an error that is a text": Behaviour(first({"error": "upstream connect error"}), "judged"),
    "Zhipu: success is false": Behaviour(
        first({"code": 1302, "msg": "Too many requests", "success": False}), "judged"
    ),
    # Messages in other forms
    "Mistral: thinking as a part": Behaviour(
        always(
            chat(
                [
                    {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
                    {"type": "text", "text": VERDICT},
                ]
            )
        ),
        "judged",
        requests=1,
    ),
    "usage that is nonsense": Behaviour(
        always(chat(VERDICT) | {"usage": {"prompt_tokens": "7", "completion_tokens": -1.0}}),
        "judged",
        requests=1,
    ),
    "older servers: function_call": Behaviour(
        lambda body, before: (
            chat(VERDICT)
            if before
            else {
                "choices": [
                    {
                        "finish_reason": "function_call",
                        "message": {"content": None, "function_call": called(PROGRAM)["function"]},
                    }
                ]
            }
        ),
        "judged",
        judge="tools",
    ),
    # Native calls
    "Gemini 3: thought_signature": Behaviour(
        keeps(
            "extra_content",
            "call",
            "Function call is missing a thought_signature in functionCall parts.",
            {"google": {"thought_signature": "c2ln"}},
        ),
        "judged",
        judge="tools",
        requests=2,
    ),
    "Moonshot: reasoning_content with a call": Behaviour(
        keeps(
            "reasoning_content",
            "message",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
            THOUGHT,
        ),
        "judged",
        judge="tools",
        requests=2,
    ),
    "OpenRouter: reasoning_details with a call": Behaviour(
        keeps("reasoning_details", "message", "reasoning_details are required", [{"type": "x", "data": "y"}]),
        "judged",
        judge="tools",
        requests=2,
    ),
    "LiteLLM: thinking_blocks with a call": Behaviour(
        keeps("thinking_blocks", "message", "Expected `thinking`, found `tool_use`", [{"signature": "z"}]),
        "judged",
        judge="tools",
        requests=2,
    ),
    "DeepSeek: reasoning_content with every turn": Behaviour(
        wants_thinking, "judged", judge="fence", requests=3
    ),
    "Groq: its own field is unsupported": Behaviour(refuses_own_field, "judged", judge="tools", requests=3),
    "a call with broken JSON": Behaviour(
        bad_call({"id": "a", "function": {"name": "run_python", "arguments": '{"code": "pri'}}),
        "judged",
        judge="tools",
        requests=3,
    ),
    "a call with raw code": Behaviour(
        bad_call({"id": "a", "function": {"name": "run_python", "arguments": "print(1)"}}),
        "judged",
        judge="tools",
        requests=3,
    ),
    "a call of another tool": Behaviour(
        bad_call({"id": "a", "function": {"name": "python", "arguments": '{"code": "print(1)"}'}}),
        "judged",
        judge="tools",
        requests=3,
    ),
    "a call without a name": Behaviour(
        bad_call({"id": "a", "function": {"arguments": None}}), "judged", judge="tools", requests=3
    ),
    # Streams and answers in further forms
    "Mistral: a stream with thinking in parts": Behaviour(
        always(
            lambda body: events(
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]},
                {"content": "A is right. "},
                {"content": [{"type": "text", "text": "<preference>A</preference>"}]},
            )
        ),
        "judged",
        requests=1,
    ),
    "a stream with an empty finish reason behind the true one": Behaviour(
        always(
            lambda body: events(
                {"content": "A is"}, finish="length", more={"index": 0, "delta": {}, "finish_reason": ""}
            )
        ),
        "token_budget",
        requests=1,
    ),
    "Gemini: a stream of two calls with the index 0": Behaviour(
        streamed_calls({**called(PROGRAM, "a"), "index": 0}, {**called(PROGRAM, "b"), "index": 0}),
        "judged",
        judge="tools",
        requests=2,
    ),
    "Gemini: a stream of two calls with the index 0 and no id": Behaviour(
        streamed_calls({**called(PROGRAM, ""), "index": 0}, {**called(PROGRAM, ""), "index": 0}),
        "judged",
        judge="tools",
        requests=2,
    ),
    "a stream of two calls with the index null": Behaviour(
        streamed_calls({**called(PROGRAM, "a"), "index": None}, {**called(PROGRAM, "b"), "index": None}),
        "judged",
        judge="tools",
        requests=2,
    ),
    "vLLM: a stream with an id for each part of a call": Behaviour(
        lambda body, before: (
            chat(VERDICT)
            if before
            else events(
                {"tool_calls": [{**called("", "a"), "index": 0, "function": {"name": "run_python"}}]},
                {"tool_calls": [{"index": 0, "id": "b", "function": {"arguments": '{"code": "print('}}]},
                {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": '1)"}'}}]},
                finish="tool_calls",
            )
        ),
        "judged",
        judge="tools",
        requests=2,
    ),
    "a content that is one part": Behaviour(
        always(chat({"type": "text", "text": VERDICT})),
        "judged",
        requests=1,  # type: ignore[arg-type]
    ),
    "a content that is a list of texts": Behaviour(
        always(chat([VERDICT])),
        "judged",
        requests=1,  # type: ignore[arg-type]
    ),
    "an old call that is empty in every answer": Behaviour(
        empty_old_call, "judged", judge="tools", requests=2
    ),
    "a body with a byte order mark": Behaviour(
        always(Response(b"\xef\xbb\xbf" + json.dumps(chat(VERDICT)).encode())), "judged", requests=1
    ),
    "an error without content beside an answer": Behaviour(
        always(chat(VERDICT) | {"error": {"code": 0, "message": ""}}), "judged", requests=1
    ),
    # Refusals inside a 200
    "LM Studio: a full context inside a 200": Behaviour(
        always(
            {
                "error": "The number of tokens to keep from the initial prompt is greater than the context "
                "length. Try to load the model with a larger context length, or provide a shorter input"
            }
        ),
        "too_long",
        "shorten the row",
        2,
    ),
    "a wrong key inside a 200": Behaviour(
        always({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}),
        "denied",
        "set the key",
        1,
    ),
    "MiniMax: a filtered answer inside a 200": Behaviour(
        always(chat(VERDICT) | {"base_resp": {"status_code": 1027, "status_msg": "output new_sensitive"}}),
        "withheld",
        "sensitive",
        1,
    ),
    # Requests that no later moment makes small enough
    "Groq: larger than the limit of a minute": Behaviour(
        always(
            failure(
                413,
                "Request too large for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit 6000, "
                "Requested 9120, please reduce your message size and try again.",
                code="rate_limit_exceeded",
            )
        ),
        "too_long",
        "shorten the row",
        2,
    ),
    "OpenAI: larger than the limit of a minute": Behaviour(
        always(
            failure(
                429,
                "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 43211. The "
                "input or output tokens must be reduced in order to run successfully.",
                code="rate_limit_exceeded",
            )
        ),
        "too_long",
        "shorten the row",
        2,
    ),
    "OpenAI: a string that is too long": Behaviour(
        always(
            failure(
                400,
                "Invalid 'messages[0].content': string too long. Expected a string with maximum length "
                "1048576, but got a string with length 1200000 instead.",
                code="string_above_max_length",
            )
        ),
        "too_long",
        "shorten the row",
        2,
    ),
    "nginx: 413": Behaviour(
        always(HTMLResponse("<html><h1>413 Request Entity Too Large</h1></html>", 413)),
        "too_long",
        "shorten the row",
        2,
    ),
    # Limits of an answer in further words
    "Bedrock: maximum tokens": Behaviour(
        at_most(
            4096,
            failure(
                400,
                "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum "
                "tokens value that is lower than 4096.",
            ),
        ),
        "judged",
        "at most 4096 tokens",
    ),
    "Cohere: max tokens": Behaviour(
        at_most(4096, failure(400, "invalid request: max tokens must be less than or equal to 4096")),
        "judged",
        "at most 4096 tokens",
    ),
    "Vertex: a limit that is excluded": Behaviour(up_to_excluded(2049), "judged", "at most 2048 tokens"),
    "Fireworks: long answers only as streams": Behaviour(
        lambda body, before: (
            streamed(body)
            if body.get("stream")
            else failure(400, "Requests with max_tokens > 4096 must have stream=true")
        ),
        "judged",
    ),
    # Every request is refused
    "Groq: a model that is no longer there": Behaviour(
        always(
            failure(
                400,
                "The model `llama3-70b-8192` has been decommissioned and is no longer supported.",
                code="model_decommissioned",
            )
        ),
        "denied",
        "decommissioned",
        1,
    ),
    "LiteLLM: an unknown model as 400": Behaviour(
        always(failure(400, "{'error': '/chat/completions: Invalid model name passed in model=m.'}")),
        "denied",
        "Invalid model name",
        1,
    ),
    "DeepSeek: an unknown model as 400": Behaviour(
        always(failure(400, "Model Not Exist")), "denied", "Model Not Exist", 1
    ),
    "Mistral: an unknown model as 400": Behaviour(
        always(
            JSONResponse({"object": "error", "message": "Invalid model: m", "type": "invalid_model"}, 400)
        ),
        "denied",
        "Invalid model",
        1,
    ),
    "Zhipu: an unknown model as 400": Behaviour(
        always(failure(400, "模型不存在，请检查模型代码。", code="1211")), "denied", "模型", 1
    ),
    "a tool choice that one model lacks": Behaviour(
        always(failure(400, "registry.ollama.ai/library/m:latest does not support tools")),
        "down",
        "does not support tools",
        1,
        judge="tools",
    ),
    "405 from a site that is no API": Behaviour(
        always(HTMLResponse("<html><h1>405 Not Allowed</h1></html>", 405)), "denied", "check the base URL", 2
    ),
    "a redirect to a login": Behaviour(
        always(Response("", 302, {"location": "https://login.example"})), "denied", "another one", 2
    ),
    "OpenRouter: the free requests of a day": Behaviour(
        always(failure(429, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock more")),
        "denied",
        "free-models-per-day",
        1,
    ),
    # A turn with a call and no text
    "LM Studio: null is no content": Behaviour(
        without_null(failure(400, "Invalid 'content': 'content' field must be a string or an array")),
        "judged",
        judge="tools",
        requests=3,
    ),
    "Ollama: null is no content": Behaviour(
        without_null(failure(400, "invalid message content type: <nil>")), "judged", judge="tools", requests=3
    ),
    "FastAPI: null is no content": Behaviour(
        without_null(
            JSONResponse(
                {"detail": [{"loc": ["body", "messages", 1, "content"], "msg": "Input should be a string"}]},
                422,
            )
        ),
        "judged",
        judge="tools",
        requests=3,
    ),
}
