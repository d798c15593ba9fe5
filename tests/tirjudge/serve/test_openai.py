"""The judge as an OpenAI-compatible model: requests as OpenAI's client sends them, and the client itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module
from typing import Any, Literal

import httpx
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tests.docs.blocks import blocks
from tests.tirjudge.judge_server import JudgeServer, judge_serving
from tests.tirjudge.serve.test_serve import TOKEN, script
from tests.unknown_fields import misspelt, post_paths
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.selection.group_rewards import GroupOptions
from tirjudge.serve.chat import ChatRequest
from tirjudge.serve.messages import JudgeRequest
from tirjudge.serve.service import OPEN_PATHS, JudgeServerSettings
from tirjudge_sandbox.server.guard import Access


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(script), order="given") as server:
        yield server


def chat(*responses: object, prompt: str = "Which is longer?", **more: object) -> dict[str, Any]:
    """Return what OpenAI's client sends for a question, with its usual parameters of sampling."""
    messages = [{"role": "user", "content": prompt}]
    messages += [{"role": "assistant", "content": response} for response in responses]
    return {"model": "scripted", "messages": messages, "temperature": 0, "max_tokens": 5, **more}


def asked(server: JudgeServer, body: dict[str, Any]) -> httpx.Response:
    return server.post("/v1/chat/completions", body, headers={"authorization": "Bearer none"})


def message(server: JudgeServer, body: dict[str, Any]) -> dict[str, Any]:
    response = asked(server, body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    return choice["message"]


def test_an_answer_has_the_verdict_the_dialogue_and_the_judgment(served: JudgeServer) -> None:
    models = served.get("/v1/models").json()
    assert (models["object"], [one["id"] for one in models["data"]]) == ("list", ["scripted"])
    answer = asked(served, chat("one", "three", id="row 1", reference="four")).json()
    told = answer["choices"][0]["message"]
    assert (answer["object"], answer["model"], answer["id"]) == (
        "chat.completion",
        "scripted",
        "chatcmpl-row 1",
    )
    assert (told["content"], told["refusal"]) == ("B", None)
    parts = ("print(len(response_a), len(response_b))", "3 5", "Counted. <preference>B</preference>")
    places = [told["reasoning_content"].index(part) for part in parts]
    assert places == sorted(places)
    question = {"prompt": [{"role": "user", "content": "Which is longer?"}], "responses": ["one", "three"]}
    assert answer["judgment"] == served.judge({**question, "id": "row 1", "reference": "four"})
    assert (answer["judgment"]["decided"], answer["judgment"]["views"][0]["evidence"]) == (False, "separates")
    assert answer["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def test_the_responses_are_the_assistant_messages_at_the_end(served: JudgeServer) -> None:
    assert message(served, chat("a"))["content"] == "7"
    assert message(served, chat("a", "b", "c"))["content"] == "C"
    assert message(served, chat("a", "b", kind="pointwise"))["content"] == "tie"
    turns = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
    turns += [{"role": "assistant", "content": "Hello!"}, *chat([{"type": "text", "text": "a"}])["messages"]]
    single = message(served, chat(messages=turns))
    assert (single["content"], single["refusal"]) == ("7", None)


def test_an_object_for_tools_that_expect_json(served: JudgeServer) -> None:
    form = {"type": "json_object"}
    told = message(served, chat("a", response_format=form))
    read = json.loads(told["content"])
    assert read == {"verdict": None, "choice": None, "score": 7.0, "reason": told["reasoning_content"]}
    pair = json.loads(message(served, chat("a", "b", response_format=form))["content"])
    assert (pair["verdict"], pair["choice"], pair["score"]) == ("B", 1, None)


def in_schema(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "Verdict", "strict": True, "schema": schema}}


class _Letter(StrEnum):
    A = "A"
    B = "B"


class _Choice(BaseModel):
    """As LangChain's `with_structured_output` and OpenAI's `parse` send it."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(description="Why.", min_length=1)
    verdict: _Letter | Literal["tie"]
    choice: int | None
    confidence: float | None


class _Score(BaseModel):
    score: int = Field(ge=1, le=10)


class _Loop(BaseModel):
    verdict: str
    next: _Loop | None = None


def test_a_schema_that_the_verdict_fits_is_filled(served: JudgeServer) -> None:
    def content(body: dict[str, Any], model: type[BaseModel]) -> BaseModel:
        told = message(served, {**body, "response_format": in_schema(model.model_json_schema())})
        return model.model_validate_json(told["content"])

    choice = content(chat("one", "three"), _Choice)
    assert (choice.verdict, choice.choice, choice.confidence) == (_Letter.B, 1, None)
    assert "print(len(response_a), len(response_b))" in choice.reason
    assert content(chat("a"), _Score) == _Score(score=7)
    assert content(chat("a", "b"), _Loop) == _Loop(verdict="B")
    tie = chat("a", "b", kind="pointwise")
    assert content(tie, _Loop).verdict == "tie"
    told = message(
        served, {**tie, "response_format": in_schema({"properties": {"verdict": {"enum": ["A", "B"]}}})}
    )
    assert json.loads(told["content"]) == {}, "a field that is not required is left out"
    required = {"properties": {"verdict": {"enum": ["A", "B"]}}, "required": ["verdict"]}
    told = message(served, {**tie, "response_format": in_schema(required)})
    assert (told["content"], "json_object" in told["refusal"]) == (None, True)
    told = message(served, {**chat("a"), "response_format": in_schema({"type": "object"})})
    assert set(json.loads(told["content"])) == {"verdict", "choice", "score", "reason"}


_WIDE = {f"d{depth}": {"anyOf": [{"$ref": f"#/$defs/d{depth + 1}"}] * 9} for depth in range(30)}
_WIDE["d30"] = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"winner": {"type": "string"}}, "required": ["winner"]}, "'winner'"),
        ({"properties": {"score": {"type": "number"}}, "required": ["score"]}, "'score'"),
        ({"properties": {"verdict": {"enum": ["first"]}}, "required": ["verdict"]}, "'verdict'"),
        ({"required": ["why"]}, None),
        ({"properties": {"reason": {"pattern": "(a+)+$"}}, "required": ["reason"]}, "'pattern'"),
        ({"type": "array"}, "no object"),
        ({"properties": {"verdict": {"$ref": "#"}}, "required": ["verdict"], "type": "object"}, "'verdict'"),
        (
            {"properties": {"verdict": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
            "too large",
        ),
        ({"properties": {"verdict": {"$ref": "#/$defs/d0"}}, "$defs": _WIDE}, "too large"),
        ({"properties": {"verdict": {"$ref": "http://127.0.0.1/x"}}}, "JSON schema"),
        ({"properties": {"choice": {"minimum": "x"}}}, "JSON schema"),
        ({"properties": []}, "JSON schema"),
        ([], "JSON schema"),
        (None, "JSON schema"),
    ],
)
def test_a_schema_that_no_verdict_fits_is_refused_with_what_to_use(
    served: JudgeServer, schema: object, said: str | None
) -> None:
    response = asked(served, {**chat("a", "b"), "response_format": in_schema(schema)})
    if said is None:
        assert response.status_code == 200, response.text
        return
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "response_format.json_schema"), response.text
    assert said in error["message"]
    assert '{"type": "json_object"}' in error["message"]


def test_a_model_is_described_by_its_name(served: JudgeServer) -> None:
    assert served.get("/v1/models/scripted").json() == served.get("/v1/models").json()["data"][0]
    missing = served.get("/v1/models/Qwen/Qwen3-8B")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert "this server has 'scripted'" in missing.json()["error"]["message"]


def test_fields_that_nobody_set_may_be_null_and_streaming_is_refused_with_the_reason(
    served: JudgeServer,
) -> None:
    unset = dict.fromkeys(ChatRequest.model_fields.keys() | ChatRequest.ignored - {"model", "messages"})
    body = {**unset, **chat("one", "three")}
    assert message(served, body)["content"] == "B"
    question = {"prompt": "Which is longer?", "responses": ["one", "three"]}
    nulls = {name: None for name in JudgeRequest.model_fields if name not in question}
    assert served.judge({**question, **nulls}) == served.judge(question)
    group = {"prompt": "p", "completions": ["a", "b"], "options": dict.fromkeys(GroupOptions.model_fields)}
    for options in (group["options"], None):
        assert served.post("/v1/group", {**group, "options": options}).status_code == 200
    error = asked(served, chat("a", stream=True)).json()["error"]
    assert error["message"] == (
        "stream: a verdict is known only when the judge has ended, so nothing is streamed: leave it out"
    )


def test_a_missing_verdict_is_a_refusal_and_no_content(served: JudgeServer) -> None:
    for form in ({"type": "text"}, {"type": "json_object"}):
        told = message(served, chat("a", "b", prompt="MUMBLE", response_format=form))
        assert told["content"] is None
        assert told["refusal"].startswith("malformed: ")


REFUSED = [
    (chat("a", stream=True), 400, "stream", None),
    (chat("a", n=2), 400, "n", None),
    (chat("a", tools=[{"type": "function"}]), 400, "tools", None),
    (chat("a", response_format={"type": "json_schema"}), 400, "response_format.json_schema", None),
    (chat("a", response_format={"type": "xml"}), 400, "response_format.type", None),
    (chat(), 400, "messages", None),
    (chat(messages=[]), 400, "messages", None),
    (chat(messages=[{"role": "assistant", "content": "a"}]), 400, "messages", None),
    (chat(*"a" * 65), 400, "messages", None),
    (chat([{"type": "image_url", "image_url": {"url": "u"}}]), 400, "messages.1.content", None),
    (chat("a", kind="pairwise"), 400, "messages", None),
    (chat("a", prompt=" "), 400, None, None),
    (chat("a", model="gpt-4o"), 404, None, "model_not_found"),
    (chat("a", prompt="DOWN"), 503, None, None),
]


SAMPLING = {
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "top_p", "seed", "user", "logit_bias"), None),
    "max_completion_tokens": 9, "reasoning_effort": "low", "stop": ["x"], "stream_options": None,
    "store": False, "metadata": {"a": "b"}, "tool_choice": "none", "service_tier": "auto",
    "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "chat_template_kwargs": {"enable_thinking": False},
}  # fmt: skip
"""Parameters of OpenAI's client and of vLLM's extra body."""


def test_parameters_of_sampling_are_ignored_and_misspelt_ones_refused(served: JudgeServer) -> None:
    body = chat("one", "three", **SAMPLING)
    # As the client's message of an earlier answer is sent back.
    body["messages"][1] |= {"refusal": None, "annotations": [], "tool_calls": None, "name": "n"}
    body["messages"][0]["content"] = [
        {"type": "text", "text": "Which?", "cache_control": {"type": "ephemeral"}}
    ]
    assert message(served, body)["content"] == "B"
    error = asked(served, chat("a", temprature=1)).json()["error"]
    assert error["message"] == "there is no field 'temprature'; did you mean temperature?"
    part = {"type": "text", "text": "a", "txt": "b"}
    error = asked(served, chat([part])).json()["error"]
    assert error["param"] == "messages.1.content.txt"
    assert error["message"].startswith("messages.1.content.txt: there is no field 'txt'; did you mean text?")
    called = chat("a")
    called["messages"][1]["tool_calls"] = [{"id": "1"}]
    assert "message 2, call 1: not a tool call" in asked(served, called).json()["error"]["message"]
    called["messages"][1] |= {"tool_calls": None, "audio": {"id": "1"}}
    assert "this message has audio" in asked(served, called).json()["error"]["message"]


@pytest.mark.parametrize(("body", "status", "param", "code"), REFUSED)
def test_failures_have_the_form_of_openais_errors(
    served: JudgeServer, body: dict[str, Any], status: int, param: str | None, code: str | None
) -> None:
    response = asked(served, body)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, param, code), response.text
    assert error["type"] == ("server_error" if status == 503 else "invalid_request_error")
    assert error["message"].startswith(param or "")
    assert len(error["message"]) > 10


def test_an_unknown_field_of_any_object_of_any_route_is_refused(served: JudgeServer) -> None:
    document = served.get("/openapi.json").json()
    tried = []
    for path in post_paths(document):
        for body, way, meant in misspelt(document, path):
            response = served.post(path, body)
            told = f"there is no field {way[-1]!r}; did you mean {meant}?"
            if path == "/v1/chat/completions":
                assert response.status_code == 400, response.text
                assert response.json()["error"]["message"].endswith(told)
            else:
                assert response.status_code == 422, (path, body, response.text)
                error = response.json()["detail"][0]
                assert (error["loc"][-1], error["msg"]) == (way[-1], told)
            tried.append((path, *(part for part in way[:-1] if part != 0)))
    question = [(), ("criteria",), ("prompt",)]
    assert sorted(tried) == sorted(
        [
            *(("/v1/judge", *way) for way in 2 * [*question, ("responses",)]),
            *(("/v1/group", *way) for way in (*question, ("completions",), ("options",))),
            *(("/v1/group/member", *way) for way in (*question, ("completion",), ("options",))),
            ("/get_reward",), ("/remote_rm",), ("/remote_rm", "prompt"),
            ("/v1/chat/completions",),
            *(("/v1/chat/completions", name) for name in ("criteria", "messages", "response_format")),
        ]
    )  # fmt: skip


def test_a_refused_token_and_a_bad_body_have_it_as_well() -> None:
    settings = JudgeServerSettings(access=Access(token=SecretStr(TOKEN), open_paths=OPEN_PATHS))
    with judge_serving(ScriptedGenerator(script), settings) as server:
        refused = asked(server, chat("a"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        holder = {"authorization": f"Bearer {TOKEN}"}
        assert server.post("/v1/chat/completions", chat("a"), headers=holder).status_code == 200
        assert server.get("/v1/models").json()["error"]["code"] == "invalid_api_key"
        headers = {**holder, "content-type": "application/json"}
        broken = httpx.post(f"{server.url}/v1/chat/completions", content=b"{", headers=headers)
        assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
        assert "detail" in server.post("/v1/judge", {}).json(), "other routes keep their own form"


def test_litellm(served: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in `.ci/frameworks inspect`, which installs the client."""
    # Its import fetches a table of prices otherwise.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm", reason="needs litellm, see .ci/frameworks")
    litellm.suppress_debug_info = True
    asked = {"api_base": f"{served.url}/v1", "api_key": "none", "max_retries": 0}
    body = chat("one", "three", model="openai/scripted")
    answer = litellm.completion(**body, **asked)
    assert answer.choices[0].message.content == "B"
    assert "3 5" in answer.choices[0].message.reasoning_content
    told = litellm.completion(**body, **asked, response_format=_Choice).choices[0].message.content
    assert (_Choice.model_validate_json(told).verdict, _Choice.model_validate_json(told).choice) == ("B", 1)
    for error, body in (
        (litellm.BadRequestError, chat("a", model="openai/scripted", stream=True)),
        (litellm.NotFoundError, chat("a", model="openai/gpt-4o")),
        (litellm.ServiceUnavailableError, chat("a", prompt="DOWN", model="openai/scripted")),
    ):
        with pytest.raises(error):
            litellm.completion(**body, **asked)


def test_langchain(served: JudgeServer) -> None:
    """Runs in `.ci/frameworks inspect`, which installs the client."""
    langchain = pytest.importorskip("langchain_openai", reason="needs langchain-openai, see .ci/frameworks")
    model = langchain.ChatOpenAI(
        base_url=f"{served.url}/v1", api_key="none", model="scripted", max_retries=0, temperature=0
    )
    asked = [("human", "Which is longer?"), ("ai", "one"), ("ai", "three")]
    assert model.invoke(asked).content == "B"
    chosen = model.with_structured_output(_Choice).invoke(asked)
    assert (chosen.verdict, chosen.choice) == ("B", 1)
    assert "3 5" in chosen.reason
    assert [one.content for one in model.batch([asked, asked[:2]])] == ["B", "7"]
    with pytest.raises(import_module("openai").BadRequestError, match="stream"):
        list(model.stream(asked))


def test_openais_client(served: JudgeServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs in `.ci/frameworks inspect`, which installs the client."""
    openai = pytest.importorskip("openai", reason="needs openai, see .ci/frameworks")
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        body = chat("one", "three", extra_body={"reference": "four"})
        answer = client.chat.completions.create(**body)
        assert answer.choices[0].message.content == "B"
        assert "3 5" in answer.choices[0].message.reasoning_content
        assert answer.judgment["programs"][0]["output"] == "3 5"
        for error, body in (
            (openai.BadRequestError, chat("a", stream=True)),
            (openai.NotFoundError, chat("a", model="gpt-4o")),
            (openai.InternalServerError, chat("a", prompt="DOWN")),
        ):
            with pytest.raises(error) as raised:
                client.chat.completions.create(**body)
            assert raised.value.body["message"] in str(raised.value)
    (block,) = (one.code for one in blocks() if one.page == "serve.md" and "import OpenAI" in one.code)
    model = ScriptedGenerator(["<preference>A</preference>"])
    with judge_serving(model, tools=False, order="given") as server:
        exec(compile(block.replace("http://127.0.0.1:8082", server.url), "serve.md", "exec"))
    assert capsys.readouterr().out == "A\n"
