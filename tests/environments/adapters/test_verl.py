"""The verl adapter: token ids, mask and reward of verl's agent loop with a scripted model server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from tests.environments.adapters.dialogues import ROW, SCRIPTS, Script, ours, outcome, settings
from tests.environments.adapters.examples import example
from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge_environments import Transcript
from tirjudge_environments.adapters.dialogues import VERL_MANAGER, LinkedViews, write_task
from tirjudge_environments.adapters.verl import JudgeLoop, PythonTool
from tirjudge_environments.tasks import read_task
from tirjudge_environments.tokenization import ChatEncoder

TOKENIZER = bpe_tokenizer("Let me count. print len response_a split preference")
ENCODER = ChatEncoder(TOKENIZER)


class ScriptedServer:
    """A stand-in for verl's server client that records its requests."""

    def __init__(self, script: Script) -> None:
        self._turns = list(script.turns)
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **request: Any) -> TokenOutput:
        self.asked.append(request)
        ids = ENCODER.text(self._turns.pop(0).fenced())
        return TokenOutput(token_ids=ids, log_probs=[0.0] * len(ids))


def loop(server: Any, **changes: Any) -> JudgeLoop:
    lengths = {"prompt_length": 4096, "response_length": 4096}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": lengths | changes.pop("lengths", {})}})
    return JudgeLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=TOKENIZER,
        processor=None,
        dataset_cls=object,
        data_config=DictConfigWrap(OmegaConf.create({})),
        settings=OmegaConf.create(settings(**changes).model_dump(exclude_defaults=True)),
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_a_dialogue_is_the_same_as_in_our_engine(script: Script) -> None:
    plain = settings(tokens=4096, **script.changes)
    trajectory = await ours(script, plain, ENCODER)
    expected, transcript = outcome(script, plain, trajectory), Transcript.of(trajectory)
    made = await loop(ScriptedServer(script), **script.changes).run(
        {"temperature": 1.0}, extra_info=script.row
    )
    assert tuple(made.prompt_ids) == transcript.prompt_ids
    assert tuple(made.response_ids) == transcript.completion_ids
    assert tuple(made.response_mask) == transcript.mask
    assert tuple(made.response_logprobs or ()) == transcript.logprobs
    assert (made.reward_score, made.extra_fields["reward_extra_info"]) == (expected.total, expected.parts)


async def test_the_server_is_asked_to_stop_at_a_program_and_within_the_budget() -> None:
    server = ScriptedServer(SCRIPTS[3])
    made = await loop(server, tokens=900).run({"temperature": 0.5}, extra_info=SCRIPTS[3].row)
    first, second = (request["sampling_params"] for request in server.asked)
    assert first["stop"] == ["\n```\n", "\n```output"]
    assert first["temperature"] == 0.5
    assert first["max_tokens"] == 900
    answer = len(ENCODER.text(SCRIPTS[3].turns[1].fenced()))
    assert second["max_tokens"] == 900 - len(made.response_ids) + answer
    assert server.asked[1]["prompt_ids"] == made.prompt_ids + made.response_ids[:-answer]


async def test_a_prompt_that_does_not_fit_is_refused_and_not_cut() -> None:
    judge = loop(ScriptedServer(SCRIPTS[0]), lengths={"prompt_length": 10})
    with pytest.raises(ValueError, match="prompt_length is 10"):
        await judge.run({}, extra_info=ROW)


async def test_responses_without_room_in_the_response_are_refused_and_not_cut() -> None:
    """A judge that writes its check first sees the responses within the tokens of its response."""
    (script,) = (script for script in SCRIPTS if script.name == "a check that decides")
    server = ScriptedServer(script)
    await loop(server, **script.changes, lengths={"response_length": 600}).run({}, extra_info=script.row)
    room = server.asked[0]["sampling_params"]["max_tokens"]
    assert 0 < room < 344  # 256 tokens are kept for the verdict, and more for the responses
    judge = loop(server, **script.changes, lengths={"response_length": 600 - room})
    with pytest.raises(
        ValueError, match=rf"task 'a check that decides': the responses need {600 - room} tokens"
    ):
        await judge.run({}, extra_info=script.row)


async def test_an_aborted_turn_is_an_error_and_no_low_reward() -> None:
    class Aborted:
        async def generate(self, **request: Any) -> TokenOutput:
            return TokenOutput(token_ids=[], stop_reason="aborted")

    with pytest.raises(RuntimeError, match="aborted"):
        await loop(Aborted()).run({}, extra_info=ROW)


async def test_a_reward_over_several_views_is_refused_by_name() -> None:
    judge = loop(ScriptedServer(SCRIPTS[0]), judge="tir-pointwise", options={})
    with pytest.raises(LinkedViews, match=r"verl scores one rollout at a time.*JudgeRolloutFunc"):
        await judge.run({}, extra_info=ROW)


async def test_a_rollout_of_linked_views_has_one_output_with_its_own_reward_for_each() -> None:
    """TIR-Judge's R (section 4.2): both views share Rc, and each has the format of its own answer."""
    scores = ("<score>9</score>", "<score>2</score> no more")

    class Scores:
        async def generate(self, *, prompt_ids: list[int], **request: Any) -> TokenOutput:
            shown = ENCODER.decode(tuple(prompt_ids))
            ids = ENCODER.text(scores["one two three" not in shown])
            versions = {"min_global_steps": 4, "max_global_steps": 5}
            return TokenOutput(token_ids=ids, log_probs=[0.0] * len(ids), extra_fields=versions)

    managed = {"agent": {"agent_loop_manager_class": VERL_MANAGER}}
    judge = loop(Scores(), judge="tir-pointwise", options={}, lengths=managed | {"prompt_length": 9000})
    row = {"index": 3, "task": write_task(read_task(ROW, default_id="row"))}
    outputs = await judge.run({}, extra_info=row)
    assert [output.reward_score for output in outputs] == [1.0, 0.1]
    assert [output.extra_fields["reward_extra_info"]["correct"] for output in outputs] == [1.0, 1.0]
    assert [ENCODER.decode(tuple(output.response_ids)) for output in outputs] == list(scores)
    for output in outputs:
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (4, 5)


async def test_the_tool_runs_programs_within_a_trajectorys_budget() -> None:
    options = settings(tool_calls=1).model_dump(include={"tool_calls", "sandbox_options"})
    tool = PythonTool({"type": "native", **options}, None)
    here, elsewhere = (SimpleNamespace(extra_fields={}) for _ in range(2))
    answers = []
    for trajectory in (here, here, elsewhere):
        name, _ = await tool.create(create_kwargs={})
        answer, reward, _ = await tool.execute(name, {"code": "print(6 * 7)"}, agent_data=trajectory)
        answers.append(answer.text)
        assert reward == 0.0
        await tool.release(name)
    assert answers[0] == answers[2] == "42"
    assert "budget of 1 programs is spent" in answers[1]


async def test_the_example_rolls_out_a_model_that_runs_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await example("verl_judge", monkeypatch).main()
    river, garden = capsys.readouterr().out.splitlines()
    assert river.startswith("river 1.0 ")
    assert garden.startswith("garden 1.0 ")
