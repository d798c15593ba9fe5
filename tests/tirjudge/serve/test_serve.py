"""The judge over HTTP: verdicts and rewards, and failures that are never reported as either."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from tests.tirjudge.judge_server import JudgeServer, judge_serving
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.generation.spending import CostReached
from tirjudge.serve.service import OPEN_PATHS, JudgeServerSettings
from tirjudge_environments import Completion, Context, Finish
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits

TOKEN = "0123456789abcdef"
PROGRAM = "```python\nprint(len(response_a), len(response_b))\n```\n"


DECIDING = "```python\nprint('A' if len(response_a) > len(response_b) else 'B')\n```\n"


def script(context: Context) -> str:
    """Play a judge: counts, then prefers B; scores by letters; chooses C of three; fails on DOWN."""
    words = context.prompt.messages[-1].content
    if "DOWN" in words:
        raise GeneratorFailed("the model's machine is off")
    if "MUMBLE" in words:
        return "I would rather not say."
    if "<score>" in words:
        return "<score>7</score>"
    if "Response C" in words or "[Response C" in words or "response C" in words:
        return "<preference>C</preference>"
    program = DECIDING if "DECIDE" in words else PROGRAM
    return "Counted. <preference>B</preference>" if context.segments else program


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(script), order="given") as server:
        yield server


def question(*responses: str, prompt: str = "Which is longer?", **more: object) -> dict[str, object]:
    return {"prompt": prompt, "responses": list(responses), **more}


def test_a_pair_with_the_program_that_proves_it(served: JudgeServer) -> None:
    answer = served.judge(question("one", "three", id="row 1"))
    (program,), (view,) = answer.pop("programs"), answer.pop("views")
    told = {"id": "row 1", "format": "pairwise", "verdict": "B", "choice": 1, "scores": None}
    told |= {
        "stop": "verdict",
        "detail": "",
        # Its program prints lengths, and a length says nothing about who is better.
        "decided": False,
        "guess": None,
        "criteria": [],
        "jury": [],
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }
    assert answer == told
    shown = {"order": [0, 1], "letters": {"A": 0, "B": 1}, "criterion": None}
    source = "print(len(response_a), len(response_b))\n"
    assert program == {"source": source, "tool": "", "output": "3 5", **shown}
    assert view == {
        **shown,
        "view": "AB",
        "sample": 0,
        "verdict": "B",
        "verdict_as_shown": "B",
        "scores": {},
        "evidence": "separates",
        "stop": "verdict",
        "detail": "",
        "reasoning": "Counted. <preference>B</preference>",
    }


def test_an_answer_says_whether_a_program_decided_it(served: JudgeServer) -> None:
    answer = served.judge(question("one", "three", prompt="DECIDE: which is longer?"))
    assert (answer["verdict"], answer["decided"]) == ("B", True)
    guess = served.judge(question("one", "two", "three"))
    assert (guess["verdict"], guess["decided"]) == ("C", False)
    assert guess["views"][0]["evidence"] == "missing"


def test_criteria_have_verdicts_of_their_own_and_bad_ones_are_refused(served: JudgeServer) -> None:
    criteria = ["It is long.", {"text": "MUMBLE", "weight": 0.5}, {"text": "DOWN"}]
    answer = served.judge(question("one", "three", criteria=criteria[:2], reference="four"))
    # B has two thirds of the weight, whatever the judge would say on the second criterion.
    assert (answer["verdict"], answer["scores"], answer["stop"]) == ("B", None, "verdict")
    assert [(one["text"], one["satisfied"], one["stop"]) for one in answer["criteria"]] == [
        ("It is long.", [0.0, 1.0], "verdict"),
        ("MUMBLE", [None, None], "malformed"),
    ]
    assert [view["criterion"] for view in answer["views"]] == [0, 1]
    assert served.judge(question("one", criteria=criteria[:1]))["scores"] == [1.0]
    failed = served.post("/v1/judge", question("one", "three", criteria=criteria))
    assert (failed.status_code, failed.json()["detail"]) == (
        503,
        "generator_down: criterion 3: the model's machine is off",
    )
    for bad, reason in (
        ([], "criteria"),
        (["a", "a"], "criteria[1] repeats criteria[0]"),
        ([{"text": "a", "weight": 0}], "add up to 0"),
        ([{"text": "a", "polarity": "bad"}], "polarity"),
        ([{"text": "a", "wieght": 1}], "wieght"),
    ):
        refused = served.post("/v1/judge", question("one", "two", criteria=bad))
        assert (refused.status_code, reason in refused.text) == (422, True), refused.text


def test_letters_of_both_orders_lead_to_the_same_response() -> None:
    """The judge believes its program, whose letters are those of the order that it was shown."""

    def measuring(context: Context) -> str:
        if not context.segments:
            return "```python\nprint('longer', 'A' if len(response_a) > len(response_b) else 'B')\n```\n"
        shown = context.segments[-1].text.split("longer ")[1][0]
        return f"Response {shown} is longer. <preference>{shown}</preference>"

    with judge_serving(ScriptedGenerator(measuring), order="both") as server:
        answer = server.judge(question("short", "longest"))
    assert (answer["verdict"], answer["choice"]) == ("B", 1)
    given, reversed_ = answer["views"]
    assert [one["order"] for one in answer["views"]] == [[0, 1], [1, 0]]
    assert [one["verdict"] for one in answer["views"]] == ["B", "B"]
    assert [one["verdict_as_shown"] for one in answer["views"]] == ["B", "A"]
    assert reversed_["reasoning"] == "Response A is longer. <preference>A</preference>"
    for one, program in zip(answer["views"], answer["programs"], strict=True):
        assert program["letters"] == one["letters"]
        assert program["order"] == one["order"]
        assert one["letters"][program["output"].removeprefix("longer ")] == answer["choice"]
        assert one["letters"][one["verdict_as_shown"]] == answer["choice"]
    assert given["letters"] != reversed_["letters"]


def test_a_response_shown_alone_has_no_letter(served: JudgeServer) -> None:
    views = served.judge(question("a", "b", kind="pointwise"))["views"]
    assert [(one["order"], one["letters"], one["scores"]) for one in views] == [
        ([0], {}, {"0": 7.0}),
        ([1], {}, {"1": 7.0}),
    ]


def test_hidden_thinking_and_lone_surrogates_do_not_break_an_answer() -> None:
    text = "\ud800 <preference>A</preference>"
    turn = Completion(text=text, finish=Finish.END, reasoning="a secret")
    with judge_serving(ScriptedGenerator([turn]), order="given") as server:
        (view,) = server.judge(question("a", "b"))["views"]
    assert view["reasoning"] == "\\ud800 <preference>A</preference>"


def test_several_requests_are_answered_in_order(served: JudgeServer) -> None:
    chat = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "What?"}]
    asked = [
        question("a", "b", id="pair"),
        question("a", id="single", prompt="Rate it."),
        question("a", "b", "c", id="list"),
        question("a", "b", id="both", kind="pointwise"),
        {"prompt": chat, "responses": ["a"], "id": "chat"},
    ]
    answers = served.judge(asked)
    assert [one["id"] for one in answers] == ["pair", "single", "list", "both", "chat"]
    assert [one["format"] for one in answers] == [
        "pairwise", "pointwise", "listwise", "pointwise", "pointwise",
    ]  # fmt: skip
    assert [one["verdict"] for one in answers] == ["B", None, "C", "tie", None]
    assert [one["scores"] for one in answers] == [None, [7.0], None, [7.0, 7.0], [7.0]]


def test_a_missing_verdict_has_a_reason(served: JudgeServer) -> None:
    answer = served.judge(question("a", "b", prompt="MUMBLE"))
    assert (answer["verdict"], answer["choice"], answer["stop"]) == (None, None, "malformed")
    assert answer["detail"]


def test_one_failure_leaves_no_answer_for_the_whole_request(served: JudgeServer) -> None:
    for body in (question("a", "b", prompt="DOWN"), [question("a", "b"), question("a", prompt="DOWN")]):
        response = served.post("/v1/judge", body)
        assert response.status_code == 503
        assert response.json() == {"detail": "generator_down: the model's machine is off"}
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("body", "way"),
    [
        ({"prompt": "p"}, ["body", "responses"]),
        ({"prompt": 5, "responses": ["a"]}, ["body", "prompt"]),
        ({"prompt": "p", "responses": ["a", [{"role": "user"}]]}, ["body", "responses", 1]),
        ({"prompt": "  ", "responses": ["a"]}, ["body"]),
        ({"prompt": "p", "responses": ["a"], "kind": "pairwise"}, ["body", "responses"]),
        ({"prompt": "p", "responses": ["a"] * 65}, ["body", "responses"]),
        ([question("a", "b"), question("a", kind="pairwise")], ["body", 1, "responses"]),
        ([question("a")] * 257, ["body"]),
    ],
)
def test_invalid_requests_name_the_field(served: JudgeServer, body: object, way: list[object]) -> None:
    response = served.post("/v1/judge", body)
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == way
    assert response.json()["detail"][0]["msg"]


def test_openrlhf_gets_a_reward_for_each_query(served: JudgeServer) -> None:
    prompt = "<|im_start|>user\nRate me.<|im_end|>\n<|im_start|>assistant\n"
    asked = {
        "query": [f"{prompt}one<|im_end|>", f"<s>{prompt}two"],
        "prompts": [prompt, prompt],
        "labels": ["", None],
    }
    none = [0.0, 0.0]
    assert served.post("/get_reward", asked).json() == {
        "rewards": [7.0, 7.0],
        "scores": [7.0, 7.0],
        "extra_logs": {"judge_programs": none, "judge_decided": none, "judge_no_verdict": none},
    }


def test_a_reward_says_whether_a_program_decided_the_score() -> None:
    def checking(context: Context) -> str:
        found = "[]" if "BEAUTY" in context.prompt.messages[-1].content else "['x' in response]"
        return (
            "<score>4</score>"
            if context.segments
            else f"```python\ndef check(response):\n    return {found}\n```\n"
        )

    asked = {"query": ["Has it an x? x", "BEAUTY x"], "prompts": ["Has it an x?", "BEAUTY"]}
    with judge_serving(ScriptedGenerator(checking), untrained="checks") as server:
        told = server.post("/get_reward", asked).json()
    assert (told["rewards"], told["extra_logs"]["judge_decided"]) == ([10.0, 4.0], [1.0, 0.0])


def test_slime_gets_a_number_for_a_sample() -> None:
    """The request and the answer of `remote_rm` in slime's slime/rollout/rm_hub/__init__.py."""
    seen: list[str] = []

    def watching(context: Context) -> str:
        seen.append(context.prompt.messages[-1].content)
        return "MUMBLE" if "MUMBLE" in seen[-1] else "<score>3</score>"

    chat = [{"role": "user", "content": "Name a prime above 10."}]
    with judge_serving(ScriptedGenerator(watching)) as server:
        answer = server.post("/remote_rm", {"prompt": chat, "response": "11<|im_end|>", "label": "11 or 13"})
        assert (answer.status_code, answer.json()) == (200, 3.0)
        assert "11 or 13" in seen[0]
        assert "<|im_end|>" not in seen[0]
        assert server.post("/remote_rm", {"prompt": "Ask.", "response": "x", "label": None}).json() == 3.0
        refused = server.post("/remote_rm", {"prompt": "MUMBLE", "response": "x", "label": ""})
        assert refused.status_code == 502
        assert refused.json() == {"detail": "the response: the judge ended without a score (malformed)"}
        assert server.post("/remote_rm", {"prompt": "Ask."}).status_code == 422


@pytest.mark.parametrize(
    ("query", "prompts", "way"),
    [
        (["b a"], ["a", "b"], ["body", "prompts"]),
        (["other"], ["prompt"], ["body", "query", 0]),
        (["a", "x" * 50 + "p"], ["a", "p"], ["body", "query", 1]),
        (["a"], [" "], ["body", "prompts", 0]),
    ],
)
def test_a_query_must_hold_its_prompt(
    served: JudgeServer, query: list[str], prompts: list[str], way: list[object]
) -> None:
    response = served.post("/get_reward", {"query": query, "prompts": prompts})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == way


def test_no_reward_is_invented(served: JudgeServer) -> None:
    asked = {"query": ["Rate it. x", "MUMBLE x"], "prompts": ["Rate it.", "MUMBLE"]}
    response = served.post("/get_reward", asked)
    assert response.status_code == 502
    assert response.json() == {"detail": "query 1: the judge ended without a score (malformed)"}
    down = served.post("/get_reward", {"query": ["DOWN x"], "prompts": ["DOWN"]})
    assert (down.status_code, "rewards" in down.json()) == (503, False)
    with judge_serving(ScriptedGenerator(script), JudgeServerSettings(no_verdict_reward=-1.0)) as server:
        told = server.post("/get_reward", asked).json()
        assert told["rewards"] == [7.0, -1.0]
        assert told["extra_logs"]["judge_no_verdict"] == [0.0, 1.0]
        assert server.post("/get_reward", {"query": ["DOWN x"], "prompts": ["DOWN"]}).status_code == 503


def test_a_server_of_one_format_refuses_a_kind() -> None:
    with judge_serving(ScriptedGenerator(["[[A]]"]), format="j1-pav") as server:
        response = server.post("/v1/judge", question("a", "b", kind="pairwise"))
        [error] = response.json()["detail"]
        assert (error["loc"], error["type"]) == (["body", "kind"], "value_error")


def test_ready_while_the_model_answers() -> None:
    broken = [True]

    def flaky(context: Context) -> str:
        if broken[0]:
            raise GeneratorFailed("the model's machine is off")
        return "<score>5</score>"

    with judge_serving(ScriptedGenerator(flaky)) as server:
        assert server.get("/healthz").json() == "ok"
        assert server.get("/readyz").status_code == 503
        broken[0] = False
        assert server.get("/readyz").status_code == 200
        broken[0] = True
        assert server.get("/readyz").status_code == 200, "no failure should be known yet"
        assert server.post("/v1/judge", question("a")).status_code == 503
        told = server.get("/readyz")
        assert (told.status_code, told.json()) == (503, {"detail": "the model's machine is off"})


def test_the_cost_limit_is_a_failure_and_never_a_verdict() -> None:
    def spent(context: Context) -> str:
        raise CostReached("1.0 of 1 are spent, and the next call may cost 0.1")

    with judge_serving(ScriptedGenerator(spent)) as server:
        answer = server.post("/v1/judge", question("a", "b"))
        assert answer.status_code == 503
        assert answer.json() == {"detail": "1.0 of 1 are spent, and the next call may cost 0.1"}
        assert server.get("/readyz").status_code == 503


def test_requests_pass_the_guard_and_the_intake() -> None:
    settings = JudgeServerSettings(
        access=Access(token=SecretStr(TOKEN), open_paths=OPEN_PATHS), intake=IntakeLimits(body_bytes=1000)
    )
    with judge_serving(ScriptedGenerator(script), settings) as server:
        assert server.post("/v1/judge", question("a")).status_code == 401
        assert server.get("/metrics").status_code == 401
        assert [server.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        probed = [httpx.head(server.url + path).status_code for path in ("/healthz", "/readyz", "/metrics")]
        assert probed == [200, 200, 401]
        holder = {"authorization": f"Bearer {TOKEN}"}
        assert server.post("/v1/judge", question("a"), headers=holder).status_code == 200
        assert server.post("/v1/judge", question("a" * 2000), headers=holder).status_code == 413
        assert server.get("/healthz", headers={"host": "evil.example"}).status_code == 403
        page = {**holder, "origin": "http://evil.example"}
        assert server.post("/v1/judge", question("a"), headers=page).status_code == 403


def test_judgments_are_counted() -> None:
    with judge_serving(ScriptedGenerator(script), order="given") as server:
        server.judge([question("a", "b"), question("a")])
        server.post("/v1/judge", question("a", prompt="DOWN"))
        text = server.get("/metrics").text
    counts = dict(re.findall(r"^(tirjudge_\S+) (\S+)$", text, re.MULTILINE))
    assert counts['tirjudge_http_requests_total{path="/v1/judge",status="200"}'] == "1.0"
    assert counts['tirjudge_http_requests_total{path="/v1/judge",status="503"}'] == "1.0"
    assert counts['tirjudge_judgments_total{format="pairwise",stop="verdict"}'] == "1.0"
    assert counts['tirjudge_judgments_total{format="pointwise",stop="generator_down"}'] == "1.0"
    assert counts["tirjudge_judge_programs_total"] == "1.0"
    assert counts["tirjudge_judgment_seconds_count"] == "3.0"


def test_the_schema_describes_the_fields_of_requests_and_answers(served: JudgeServer) -> None:
    schemas = served.get("/openapi.json").json()["components"]["schemas"]
    asked, answered = (schemas[name]["properties"] for name in ("JudgeRequest", "JudgeAnswer"))
    assert asked["reference"]["description"] == "A reference answer that the judge is shown."
    assert answered["choice"]["description"].startswith("Index of the best response, from 0; null for a tie")
