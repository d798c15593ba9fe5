"""The TRL adapter: a judge in GRPOTrainer's own loop over native tool calls, with a scripted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from tests.environments.adapters.dialogues import (
    ROW,
    SCRIPTS,
    Outcome,
    Script,
    Turn,
    encoded_elsewhere,
    ours,
    outcome,
    settings,
)
from tests.environments.adapters.examples import example
from tests.tirjudge.tiny_models import TRL_ON_CPU, tiny_qwen3
from tirjudge_environments import Reward
from tirjudge_environments.adapters.dialogues import LinkedViews
from tirjudge_environments.adapters.trl import JudgeEnv, judge_reward
from tirjudge_environments.tasks import Columns

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using 'environment_factory'"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
]

SETTINGS = settings(
    options={"order": "given", "protocol": "tool"}, columns=Columns(prompt="question", id="name")
)
MARKERS = ("<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
LENGTH = 4096


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte and the markers of Qwen3's chat template, which TRL supports."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: number for number, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=MARKERS[0], pad_token=MARKERS[0])
    fast.add_special_tokens({"additional_special_tokens": list(MARKERS[1:])})
    fast.chat_template = qwen3_chat_template
    return fast


def row(script: Script) -> dict[str, Any]:
    named = {"prompt": "question", "id": "name"}
    return {named.get(key, key): value for key, value in script.row.items()}


def qwen3(turn: Turn) -> str:
    """Return a turn in Qwen3's format."""
    calls = [
        f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
        for call in turn.calls()
    ]
    return "\n".join(part for part in (turn.text, *calls) if part) + MARKERS[0]


@dataclass
class Seen:
    """The arguments that TRL passed to its reward function."""

    messages: list[Sequence[Mapping[str, Any]]]
    scores: list[Reward]


class ScriptedTrainer(GRPOTrainer):
    """TRL's trainer with scripted sampling."""

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        return [self._next(self.processing_class.decode(ids)) for ids in prompt_ids], None

    def _next(self, context: str) -> list[int]:
        (script,) = [script for script in SCRIPTS if f"({script.name})" in context]
        turn = script.native_turns[context.count("<|im_start|>assistant") - 1]
        ids: list[int] = self.processing_class.encode(qwen3(turn), add_special_tokens=False)
        return ids


def trainer(folder: Path, rewards: Any, scripts: Sequence[Script], **changes: Any) -> GRPOTrainer:
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2 * len(scripts),
        "num_generations": 2,
        "max_completion_length": LENGTH,
        "max_tool_calling_iterations": SETTINGS.turns - 1,
        **TRL_ON_CPU,
    }
    words = tokenizer()
    judge = settings(**dict(SETTINGS) | scripts[0].changes)
    return ScriptedTrainer(
        model=tiny_qwen3(len(words), max_position_embeddings=4 * LENGTH),
        environment_factory=partial(JudgeEnv, judge),
        reward_funcs=rewards,
        # A column of a data set holds texts or transcripts.
        train_dataset=Dataset.from_list([row(script) for script in scripts if script.given is ROW]),
        processing_class=words,
        args=GRPOConfig(**options | changes),
    )


Played = tuple[dict[str, Outcome], dict[str, str]]
"""Outcomes and the text at mask 0, by name."""


def played(folder: Path, scripts: Sequence[Script], **changes: Any) -> Played:
    """Play scripts of one judge twice by TRL in one batch."""
    seen = Seen([], [])

    def watched(completions: Any, environments: Any, **columns: Any) -> list[float | None]:
        totals = judge_reward(completions, environments, **columns)
        seen.messages += completions
        seen.scores += [environment.score for environment in environments]
        assert totals == [score.total for score in seen.scores]
        return totals

    grpo = trainer(folder, watched, scripts, **changes)
    made = grpo._generate_and_score_completions([row(script) for script in scripts for _ in range(2)])
    outcomes, masked = {}, {}
    for number, script in enumerate(scripts):
        ids = made["completion_ids"][2 * number]
        counts = made["completion_mask"][2 * number].bool()
        by_model = made["tool_mask"][2 * number].bool()
        outcomes[script.name] = Outcome(
            grpo.processing_class.decode(ids[counts & by_model]),
            tuple(m["content"] for m in seen.messages[2 * number] if m["role"] == "tool"),
            seen.scores[2 * number].total,
            seen.scores[2 * number].metrics,
        )
        masked[script.name] = grpo.processing_class.decode(ids[counts & ~by_model])
    return outcomes, masked


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """Every script as TRL plays it, by the judge."""
    return {
        judge: played(tmp_path_factory.mktemp("trl"), [one for one in SCRIPTS if one.judge == judge])
        for judge in {script.judge for script in SCRIPTS}
    }


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_a_dialogue_is_the_same_as_in_our_engine(script: Script, batches: Any) -> None:
    outcomes, masked = batches[script.judge]
    found = outcomes[script.name]
    plain = settings(options=SETTINGS.options, **script.changes)
    expected = encoded_elsewhere(outcome(script, plain, await ours(script, plain)))
    assert found.observations == expected.observations
    assert (found.total, found.parts) == (expected.total, expected.parts)
    assert found.written == "".join(qwen3(turn) for turn in script.native_turns)
    assert all(text in masked[script.name] for text in expected.observations)


def test_responses_that_do_not_fit_into_the_completion_give_no_verdict(tmp_path: Path) -> None:
    script = next(one for one in SCRIPTS if one.name == "a check after the responses")
    outcomes, masked = played(tmp_path, [script], max_completion_length=200)
    assert (outcomes[script.name].total, masked[script.name]) == (0.0, "")


def test_a_reward_over_several_views_is_refused_by_name() -> None:
    env = JudgeEnv(settings(judge="tir-pointwise", options={"protocol": "tool"}))
    with pytest.raises(LinkedViews, match=r"scores one rollout at a time.*JudgeRolloutFunc"):
        env.reset(**ROW)


def test_fences_are_refused_with_the_name_of_an_engine_that_supports_them() -> None:
    with pytest.raises(ValueError, match=r"protocol='tool'.*JudgeRolloutFunc"):
        JudgeEnv(settings()).reset(**ROW)


@pytest.mark.slow
def test_the_example_trains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    example("trl_judge", monkeypatch).main(output=str(tmp_path))
    steps = [line.split() for line in capsys.readouterr().out.splitlines() if line[:2] in ("1 ", "2 ")]
    assert len(steps) == 2
    assert all(0 <= float(reward) <= 1 for _, reward, _ in steps)
