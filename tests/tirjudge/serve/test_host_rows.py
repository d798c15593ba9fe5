"""Rows and completions as the hosts of a policy hand them over: what the judge is shown of each."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tirjudge.judge_server import JudgeServer, close_clients, judge_serving
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.serve.trl import JudgeGroupReward, JudgeReward
from tirjudge.serve.verl import compute_group_score, compute_score
from tirjudge_environments import Context
from tirjudge_environments.adapters import checkers

SEEN: list[str] = []
SEEN_RUBRICS: list[Any] = []
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "moon"}'}}
TOOL = {"role": "tool", "tool_call_id": "c1", "name": "search", "content": "384,400 km"}


def watching(context: Context) -> str:
    SEEN.append(context.prompt.messages[-1].content)
    return "<score>3</score>" if "<score>" in SEEN[-1] else "<preference>A</preference>"


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(watching), tools=False) as server:
        yield server


@pytest.fixture
async def url(served: JudgeServer) -> AsyncIterator[str]:
    SEEN.clear()
    yield served.url
    await close_clients(served.url)


def said(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


@pytest.mark.parametrize(
    ("completion", "shown", "hidden"),
    [
        ([{"role": "assistant", "tool_calls": [CALL]}], "[message 1: call of search, id c1]", "None"),
        ([said(None, tool_calls=[CALL])], '{"q": "moon"}', "None"),
        ([said(None)], "Response:\n\n", "None"),
        ([said(None, tool_calls=[CALL]), TOOL], "[message 2: result of search, id c1]\n384,400 km", "None"),
        ([said("", tool_calls=[CALL]), TOOL, said("Far.")], "[message 3: assistant]\nFar.", "None"),
        ([said("", tool_calls=[{"function": {"name": "search"}}])], "call of search", "None"),
        ([said(np.array([{"type": "text", "text": "Far "}, {"type": "text", "text": "off."}]))],
         "Far off.", "type"),
        (np.array([said("Far off.")]), "Far off.", "role"),
        ([said([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Far."}])], "Far.", "Hm."),
        ("Far.<｜end▁of▁sentence｜>", "Far.", "sentence"),
        ("Far.<|im_end|><|endoftext|>", "Far.", "<|"),
        ("Far.</s>\n<pad><pad><pad>", "Far.", "pad"),
        ("Far.[EOS]" + "[PAD]" * 40, "Far.", "[PAD]"),
        ("Far.<|return|>", "Far.", "return"),
        ("Far.@@END@@", "Far.", "END"),
        ([said("Far.<end_of_turn>\n")], "Far.", "turn>"),
        ('Call: <tool_call>{"name": "f"}</tool_call>', "tool_call>", "nothing"),
    ],
)  # fmt: skip
async def test_trl_has_what_the_policy_wrote_judged(
    url: str, completion: Any, shown: str, hidden: str
) -> None:
    tokenizer = SimpleNamespace(all_special_tokens=["@@END@@"])
    reward = JudgeReward(url, tokenizer=tokenizer)
    assert await reward(prompts=["How far?"], completions=[completion]) == [3.0]
    (text,) = SEEN
    response = text.partition("Response:")[2].partition("Guidelines:")[0]
    assert shown in f"Response:{response}"
    assert hidden not in response


REFERENCES = [
    (7, "7"),
    (0.5, "0.5"),
    (["7", "seven"], "7\nseven"),
    (np.array([7, 8]), "7\n8"),
    ({"target": ["7"]}, '{"target": ["7"]}'),
    ([[1, 2], [3, 4]], "[1, 2]\n[3, 4]"),
    (np.str_("seven"), "seven"),
]


@pytest.mark.parametrize(("reference", "shown"), REFERENCES)
async def test_a_reference_of_any_type_is_shown(url: str, reference: Any, shown: str) -> None:
    reward = JudgeReward(url, reference_column="gold")
    assert await reward(prompts=["2 + 5?"], completions=["7."], gold=[reference]) == [3.0]
    row: dict[str, Any] = {"data_source": "ours", "solution_str": "7.", "extra_info": {"question": "2 + 5?"}}
    told = await compute_score(**row, ground_truth=reference, url=url, reference_key="ground_truth")
    assert told["score"] == 3.0
    assert len(SEEN) == 2
    assert all(shown in text for text in SEEN)


@pytest.mark.parametrize(
    ("criteria", "count"),
    [("It is polite.", 1), (["It is polite.", "It is brief."], 2), (np.array(["It is polite."]), 1), ([], 1),
     (np.array([]), 1), (None, 1), ('["It is polite.", "It is brief."]', 2),
     (np.array([{"text": "It is polite.", "weight": None}], dtype=object), 1)],
)  # fmt: skip
async def test_a_rubric_is_read_as_rows_have_it(url: str, criteria: Any, count: int) -> None:
    # Comparisons that were made before are not asked for again.
    texts = [f"{greeting} {len(SEEN_RUBRICS)}" for greeting in ("Hi.", "Ho.")]
    SEEN_RUBRICS.append(criteria)
    for kind, dialogues in ((JudgeReward, 2), (functools.partial(JudgeGroupReward, method="pivot"), 1)):
        SEEN.clear()
        reward = kind(url, criteria_column="rubric")
        found = await reward(prompts=["Greet."] * 2, completions=texts, rubric=[criteria] * 2)
        assert None not in found
        asked = [text for text in SEEN if "polite" in text or "brief" in text]
        assert len(SEEN) == count * dialogues
        assert len(asked) == (0 if criteria is None or not len(criteria) else len(SEEN))


@pytest.mark.parametrize(
    ("keywords", "line"),
    [
        ({"reference_key": "gold"}, r"^a row of 'ours': no column 'gold' \(named as reference\); it has gr"),
        ({"criteria_key": "rubrik"}, r"no column 'rubrik' \(named as criteria\); it has ground_truth, "),
        ({"prompt_key": "prompt"}, r"no column 'prompt' \(named as prompt\)"),
        ({"refrence_key": "gold"}, r"^reward_kwargs has no 'refrence_key'; did you mean reference_key\?$"),
        ({"reference": "gold"}, r"^reward_kwargs has no 'reference'; did you mean reference_key\?$"),
    ],
)  # fmt: skip
async def test_verl_is_refused_what_no_row_or_function_has(keywords: dict[str, Any], line: str) -> None:
    row: dict[str, Any] = {"data_source": "ours", "solution_str": "x", "ground_truth": "7"}
    row["extra_info"] = {"question": "2 + 5?", "rubric": "It is brief."}
    group = functools.partial(compute_group_score, url="http://localhost:1", group_size=2)
    for score in (functools.partial(compute_score, url="http://localhost:1"), group):
        with pytest.raises(ValueError, match=line):
            await score(**row, **keywords)
    if "reference" not in next(iter(keywords)) and "refrence" not in next(iter(keywords)):
        with pytest.raises(ValueError, match=line):
            checkers.compute_score(**row, checkers="checkers.toml", **keywords)
    with pytest.raises(ValueError, match=r"no column 'uid' \(named as group\)"):
        await group(**row, group_key="uid")


async def test_verls_own_keywords_and_nested_places_are_accepted(url: str) -> None:
    row: dict[str, Any] = {"data_source": "ours", "solution_str": "7.@@END@@", "ground_truth": None}
    row["extra_info"] = {"task": {"question": "2 + 5?", "answers": [6, 7]}}
    own: dict[str, Any] = {
        "reward_router_address": None,
        "reward_model_tokenizer": SimpleNamespace(all_special_tokens=["@@END@@"]),
    }
    keys: dict[str, Any] = {"prompt_key": "task.question", "reference_key": "task.answers.1"}
    assert (await compute_score(**row, **own, **keys, url=url))["score"] == 3.0
    assert "@@END@@" not in SEEN[0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/get_reward",
         {"query": ["<pad>" * 50 + "Ask.Far.<｜end▁of▁sentence｜><pad>"], "prompts": ["Ask."]}),
        ("/remote_rm", {"prompt": "Ask.", "response": "Far.<|im_end|>\n<|endoftext|>", "label": [7, "x"]}),
        ("/remote_rm",
         {"prompt": [{"role": "user", "parts": [{"text": "Ask."}]}], "response": "Far.", "label": 7}),
        ("/remote_rm", {"prompt": "Ask.", "response": "Far.", "label": {"answer": 7}}),
    ],
)  # fmt: skip
def test_openrlhf_and_slime_send_padding_and_labels_of_any_type(
    served: JudgeServer, path: str, body: dict[str, Any]
) -> None:
    SEEN.clear()
    answer = served.post(path, body)
    assert answer.status_code == 200, answer.text
    (text,) = SEEN
    assert not any(mark in text for mark in ("<|", "<pad>", "<｜", "< |", "< pad", "< ｜"))
    assert "Far." in text
    assert ("7" in text) == ("label" in body)


async def test_groups_have_transcripts_and_the_last_answer_is_no_tools_result(url: str) -> None:
    runs = [[said(None, tool_calls=[CALL]), TOOL], [said("", tool_calls=[CALL]), TOOL, said("Far.")]]
    rewards = await JudgeGroupReward(url, "pivot")(prompts=["How far?"] * 2, completions=runs)
    assert sorted(map(float, rewards)) == [0, 1]  # type: ignore[arg-type]
    assert SEEN[0].count("result of search, id c1]\n384,400 km") == 2


ASKED = {"role": "user", "content": "How far?"}
RUN = [{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "search", "input": {}}]},
       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "384,400 km"}]},
       {"role": "assistant", "content": [{"type": "text", "text": "Far."}]}]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        ("/v1/judge", {"prompt": "How far?", "responses": [RUN]}, "[message 3: assistant]\nFar."),
        ("/v1/judge", {"prompt": [ASKED, *RUN[:2]], "responses": ["Far."]}, "[message 3: result of search, "),
        ("/v1/judge", {"prompt": {"messages": [ASKED], "model": "m"}, "responses": ["Far."]}, "How far?"),
        ("/v1/judge", {"prompt": [{"type": "human", "content": "How far?"}], "responses": ["x"]}, "How far?"),
        ("/v1/group", {"prompt": "How far?", "completions": [RUN, "Near."]}, "[message 3: assistant]\nFar."),
        ("/v1/chat/completions", {"messages": [ASKED, said(None, tool_calls=[CALL]), TOOL, said("Far.")]},
         "[message 3: result of search, id c1]\n384,400 km"),
        ("/v1/chat/completions", {"messages": [ASKED, said(None, tool_calls=[CALL])]}, "call of search, id"),
    ],
)  # fmt: skip
def test_conversations_of_every_form_are_judged_over_http(
    served: JudgeServer, path: str, body: dict[str, Any], shown: str
) -> None:
    SEEN.clear()
    answer = served.post(path, {"model": "scripted", **body} if path.startswith("/v1/chat") else body)
    assert answer.status_code == 200, answer.text
    assert shown in SEEN[0]
