"""Providers that fail behind whole commands: judged rows are right, and the same command judges the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse

from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import FAST, asking_as_tir, invoke, judge, pairs, results, write_rows
from tests.tirjudge.judge_server import judge_serving
from tirjudge.generation.endpoint import http
from tirjudge_environments.session import QUESTION

VERDICT = "<preference>A</preference>"
FAILURES: dict[str, Any] = {
    "network_error": chat("", "network_error"),
    "half an answer": chat("<preference>", "insufficient_system_resource"),
    "SAFETY": chat(None, "SAFETY"),
    "sensitive": chat("<preference>B</preference>", "sensitive"),
    "refusal": chat("", "refusal"),
    "an error in the choice": chat("", "error", error={"code": 502, "message": "overloaded"}),
    "a moderated row": failure(403, "Your input was flagged by moderation"),
    "an unknown word": chat("So far", "ponies"),
    "an empty answer": chat("") | {"usage": {"prompt_tokens": 7, "completion_tokens": 0}},
    "a web page": HTMLResponse("<html>Sign in</html>"),
    "null": HTMLResponse("null"),
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        return None

    monkeypatch.setattr(http, "sleep", sleep)


def failing_by_turns(endpoint: EndpointServer, reply: Any) -> None:
    """Fail for every second row, and for none of them for ever."""
    tries: dict[str, int] = {}

    def script(body: dict[str, Any]) -> Any:
        prompt = body["messages"][0]["content"]
        if prompt not in tries:
            tries[prompt] = 2 if len(tries) % 2 == 0 else 0
        tries[prompt] -= 1
        return reply if tries[prompt] >= 0 else chat(VERDICT)

    endpoint.script = script


@pytest.mark.slow
@pytest.mark.parametrize("name", every(3, FAILURES))
def test_a_perfect_judge_stays_perfect_when_every_second_answer_fails(
    tmp_path: Path, endpoint: EndpointServer, name: str
) -> None:
    failing_by_turns(endpoint, FAILURES[name])
    write_rows(tmp_path / "rows.jsonl", pairs(8))
    options = (
        "--no-tools",
        "--order",
        "given",
        "--retries",
        "0",
        "--concurrency",
        "1",
        *asking_as_tir(endpoint),
    )
    for attempt in range(4):
        run = judge(tmp_path, "rows.jsonl", *options)
        rows = results(tmp_path / "rows.verdicts.jsonl")
        assert "accuracy  100.0%" in run.stdout, run.stderr
        assert [row["correct"] for row in rows] == [1.0] * len(rows)
        assert "the endpoint refuses every request" not in run.stderr
        if attempt == 0:
            assert (run.returncode, len(rows)) == (1, 4)
    assert (run.returncode, len(rows)) == (0, 8)


@pytest.mark.parametrize("name", ["network_error", "half an answer", "SAFETY", "an empty answer"])
def test_nothing_failed_is_cached(
    tmp_path: Path, endpoint: EndpointServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TIRJUDGE_CACHE", str(tmp_path / "cache.sqlite"))
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    options = ("--no-tools", "--order", "given", "--retries", "0", "--cache", *asking_as_tir(endpoint))
    endpoint.script = lambda body: FAILURES[name]
    assert judge(tmp_path, "rows.jsonl", *options).returncode == 1
    endpoint.script = lambda body: chat(VERDICT)
    judge(tmp_path, "rows.jsonl", *options, code=0)
    asked = len(endpoint.asked)
    # A whole answer is.
    assert judge(tmp_path, "rows.jsonl", *options, "--overwrite").returncode == 0
    assert len(endpoint.asked) == asked


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("body", ["moderation", "page"])
def test_a_refused_first_row_ends_no_run(
    tmp_path: Path, endpoint: EndpointServer, status: int, body: str
) -> None:
    """The first row is refused at every start, and all others are judged."""
    page = HTMLResponse("<html>blocked</html>", status)
    reply = failure(status, "Input flagged by moderation") if body == "moderation" else page
    endpoint.script = lambda asked: reply if "Question 0" in str(asked["messages"]) else chat(VERDICT)
    write_rows(tmp_path / "rows.jsonl", pairs(6))
    options = ("--no-tools", "--order", "given", *asking_as_tir(endpoint))
    for _ in range(2):
        judge(tmp_path, "rows.jsonl", *options, code=1)
        assert len(results(tmp_path / "rows.verdicts.jsonl")) == 5
        (failed,) = results(tmp_path / "rows.verdicts.jsonl.failed.jsonl")
        assert failed["id"] == "p0"
        assert "the key may not use" not in failed["reason"]
        assert ("refuses this row, and answers others" in failed["reason"]) == (body == "page")


@pytest.mark.parametrize(
    "reply",
    [
        # Some servers repeat a part of the request in their refusal, and a hostile response may be in it.
        failure(400, "invalid input: 'Question 4. insufficient balance, quota exceeded'"),
        # Behind a gateway, one server of several may lack the model.
        failure(404, "The model `m` does not exist."),
    ],
)
def test_a_refusal_of_a_later_row_ends_no_run(tmp_path: Path, endpoint: EndpointServer, reply: Any) -> None:
    endpoint.script = lambda asked: reply if "Question 4" in str(asked["messages"]) else chat(VERDICT)
    options = ("--no-tools", "--order", "given", "--concurrency", "1", *asking_as_tir(endpoint))
    run = judge(tmp_path, pairs(8), *options, code=1)
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 7
    assert "refuses every request" not in run.stderr


def test_a_cut_prompt_fails_the_row_with_the_remedy(tmp_path: Path, endpoint: EndpointServer) -> None:
    """Ollama drops the front of a long prompt, and only the number of tokens that it read shows it."""

    def ollama(body: dict[str, Any]) -> dict[str, Any]:
        tokens = len(json.dumps(body["messages"]).split()) * 4 // 3
        return chat(VERDICT) | {"usage": {"prompt_tokens": min(tokens, 2050), "completion_tokens": 3}}

    endpoint.script = ollama
    rows = pairs(3)
    rows[1] |= LONG
    prices = ("--price-in", "1", "--price-out", "1", "--json")
    judge(tmp_path, rows, "--no-tools", *asking_as_tir(endpoint), *prices, code=1)
    assert [row["id"] for row in results(tmp_path / "rows.verdicts.jsonl")] == ["p0", "p2"]
    (failed,) = results(tmp_path / "rows.verdicts.jsonl.failed.jsonl")
    assert "the endpoint read 2050 tokens of a prompt that has more than 12" in failed["reason"]
    assert "OLLAMA_CONTEXT_LENGTH=" in failed["reason"]
    # Its tokens are paid for all the same.
    calls = results(tmp_path / "rows.verdicts.jsonl.calls.jsonl")
    assert sorted(call["prompt_tokens"] for call in calls)[-1] == 2050


LONG = {"responses": ["word " * 6000, "other words " * 3000]}


@pytest.mark.parametrize(
    ("usage", "warnings"),
    [
        ({"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 15000}}, 0),
        ({"prompt_tokens": 900, "cache_read_input_tokens": 15000}, 0),
        ({"prompt_tokens": 0}, 0),
        ({}, 0),
        ({"prompt_tokens": 12}, 1),
    ],
)
def test_a_cached_uncounted_or_doubtful_prompt_is_not_taken_for_a_cut_one(
    tmp_path: Path,
    endpoint: EndpointServer,
    caplog: pytest.LogCaptureFixture,
    usage: dict[str, Any],
    warnings: int,
) -> None:
    endpoint.script = lambda body: chat(VERDICT) | {"usage": {"completion_tokens": 3, **usage}}
    run = judge(tmp_path, [row | LONG for row in pairs(3)], "--no-tools", *asking_as_tir(endpoint), code=0)
    assert "cut the prompt" not in run.stderr
    assert sum("counted 12 tokens" in record.message for record in caplog.records) == warnings


@pytest.mark.parametrize(
    ("reply", "words", "verdicts"),
    [
        (chat("Both are fine."), "no judgment got a verdict, and most ended by malformed", {None}),
        (chat("", "network_error"), "network_error", set()),
    ],
)
def test_best_of_n_without_a_verdict_says_so(
    tmp_path: Path, endpoint: EndpointServer, reply: Any, words: str, verdicts: set[None]
) -> None:
    endpoint.script = lambda body: reply
    rows = [{"prompt": f"Question {n}", "responses": ["x", "y", "z"], "label": 0} for n in range(3)]
    write_rows(tmp_path / "rows.jsonl", rows)
    options = ("--no-tools", "--pairwise", "--retries", "0", *asking_as_tir(endpoint))
    run = invoke("bon", "rows.jsonl", *options, folder=tmp_path, code=1)
    assert words in run.stderr
    assert {row["verdict"] for row in results(tmp_path / "rows.bon.jsonl")} == verdicts


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (chat("I have no idea."), "the model proposed no criterion for any row"),
        (chat("", "network_error"), "network_error"),
        (chat(None, "SAFETY"), "SAFETY"),
        (chat("", "ponies"), "ponies"),
    ],
)
def test_criteria_without_a_proposal_say_so(
    tmp_path: Path, endpoint: EndpointServer, reply: Any, words: str
) -> None:
    endpoint.script = lambda body: reply
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    options = ("--no-tools", "--retries", "0", *asking_as_tir(endpoint))
    run = invoke("criteria", "rows.jsonl", *options, folder=tmp_path, code=1)
    assert words in run.stderr


def test_attacks_behind_a_failing_provider_count_no_flip(tmp_path: Path, endpoint: EndpointServer) -> None:
    """A row whose attacked form fails is no row that the attack has moved."""
    endpoint.script = lambda body: (
        chat(VERDICT) if len(endpoint.asked) % 3 else chat("<preference>B</preference>", "network_error")
    )
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    options = ("--no-tools", "--retries", "0", "--order", "given", *asking_as_tir(endpoint))
    invoke("attack", "rows.jsonl", *options, folder=tmp_path, code=1)
    rows = [row for path in tmp_path.rglob("*.attack*.jsonl") for row in results(path) if "verdict" in row]
    assert rows
    assert {row["verdict"] for row in rows} == {"A"}


def test_a_jury_with_a_failing_model_has_no_verdict_of_its_own(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: (
        chat("<preference>B</preference>", "network_error") if body["model"] == "n" else chat(VERDICT)
    )
    options = ("--no-tools", "--retries", "0", "--order", "given", "--model", "n", *asking_as_tir(endpoint))
    judge(tmp_path, pairs(2), *options, code=1)
    assert results(tmp_path / "rows.verdicts.jsonl") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply", [chat("", "network_error"), chat(None, "SAFETY"), chat("So", "ponies"), HTMLResponse("null")]
)
def test_the_server_of_judges_answers_503(endpoint: EndpointServer, reply: Any) -> None:
    endpoint.script = lambda body: reply
    with judge_serving(tools=False, model="m", base_url=endpoint.url, retries=0) as server:
        asked = {"prompt": "Which?", "responses": ["x", "y"]}
        assert server.post("/v1/judge", asked).status_code == 503


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("NO_PROXY", "localhost,[::1]", "write an IPv6 address in NO_PROXY without brackets"),
        ("SSL_CERT_FILE", "/missing/certificates.pem", "SSL_CERT_FILE names /missing/certificates.pem"),
        ("HTTPS_PROXY", "http://proxy:port", "(HTTPS_PROXY"),
    ],
)
def test_a_variable_that_no_client_can_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    words_of = ("judge", "rows.jsonl", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", *FAST)
    monkeypatch.setenv(variable, value)
    run = invoke(*words_of, folder=tmp_path, code=2)
    assert words in run.stderr.splitlines()[-1]
    assert run.stderr.count("\n") <= 2


def test_a_stream_on_request(tmp_path: Path, endpoint: EndpointServer) -> None:
    """`--request-field stream=true`, for an endpoint that says nothing helpful about it."""
    parts = [{"choices": [{"index": 0, "delta": {"content": VERDICT}}]}]
    parts += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    stream = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
    endpoint.script = lambda body: (
        HTMLResponse(stream, media_type="text/event-stream") if body.get("stream") else failure(400, "no")
    )
    judge(
        tmp_path, pairs(2), "--no-tools", "--request-field", "stream=true", *asking_as_tir(endpoint), code=0
    )
    assert QUESTION not in str(endpoint.bodies)
