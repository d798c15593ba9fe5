"""TRL's trainer with a policy that calls tools; a served judge and checkers reward its completions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.environments.adapters.test_trl import tokenizer
from tests.tirjudge.judge_server import judge_serving
from tests.tirjudge.tiny_models import TRL_ON_CPU, tiny_qwen3
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.serve.trl import JudgeReward
from tirjudge_environments import Context
from tirjudge_environments.adapters.checkers import CheckerReward
from tirjudge_environments.checkers.file import Checker, CheckerFile, Measurement

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
]

STEPS = 3
CALL = '<tool_call>\n{{"name": "search", "arguments": {{"query": "{0}"}}}}\n</tool_call><|im_end|>'
TURNS = {
    "answers": ["It is far.<|im_end|>"],
    "searches, then answers": ["Let me look.\n" + CALL.format("moon"), "384,400 km.<|im_end|>"],
    "ends in a call": [CALL.format("sun"), CALL.format("stars")],
    "searches and says nothing": [CALL.format("night"), "<|im_end|>"],
}
"""The turns of the four rollouts of a group."""
SHOWN = {
    "answers": ["It is far."],
    "searches, then answers": [
        "[message 1: assistant]\nLet me look.",
        '{"query": "moon"}',
        "result of search]\nabout the moon",
        "384,400 km.",
    ],
    "ends in a call": ["result of search]\nabout the sun", '{"query": "stars"}'],
    "searches and says nothing": ['{"query": "night"}', "result of search]\nabout the night"],
}
"""The parts of each rollout that the judge must be shown."""
SCORES = {
    "answers": 3.0,
    "searches, then answers": 9.0,
    "ends in a call": 1.0,
    "searches and says nothing": 2.0,
}
WORDS = "def check(response, prompt, n):\n    return len(response.split()) >= n\n"


def search(query: str) -> str:
    """
    Search the web.

    Args:
        query: What to search for.

    Returns:
        What was found.
    """
    return f"about the {query}"


class ScriptedTrainer(GRPOTrainer):
    """TRL's trainer with scripted sampling; its tool calls, masks and gradients are its own."""

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        texts = [self.processing_class.decode(ids) for ids in prompt_ids]
        first = all("about the" not in text for text in texts)
        turns = list(TURNS.values())
        if first:
            written = [turns[place % len(turns)][0] for place in range(len(texts))]
        else:
            written = [next(two[1] for two in turns[1:] if two[0] in text) for text in texts]
        return [self.processing_class.encode(text, add_special_tokens=False) for text in written], None


def shown_of(context: Context) -> str:
    """Return the response that a judge of single responses was shown."""
    return context.prompt.messages[-1].content.partition("Response:\n")[2].partition("Guidelines:")[0]


def trained(rewards: Any, folder: Path) -> tuple[list[dict[str, float]], bool]:
    """Train for three steps; return what TRL logged and whether weights changed."""
    words = tokenizer()
    model = tiny_qwen3(len(words), max_position_embeddings=4096)
    before = [weight.clone() for weight in model.parameters()]
    trainer = ScriptedTrainer(
        model=model,
        tools=[search],
        reward_funcs=rewards,
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": f"How far is star {n}?"}]} for n in range(STEPS)]
        ),
        processing_class=words,
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=len(TURNS),
            num_generations=len(TURNS),
            max_completion_length=1024,
            max_tool_calling_iterations=1,
            logging_steps=1,
            save_strategy="no",
            **TRL_ON_CPU,
        ),
    )
    trainer.train()
    changed = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return [row for row in trainer.state.log_history if "reward" in row], changed


def test_a_judge_rewards_what_a_policy_with_tools_wrote(tmp_path: Path) -> None:
    seen: list[str] = []

    def judge(context: Context) -> str:
        seen.append(shown_of(context))
        (name,) = [name for name, parts in SHOWN.items() if all(part in seen[-1] for part in parts)]
        return f"<score>{SCORES[name]:.0f}</score>"

    with judge_serving(ScriptedGenerator(judge), tools=False) as server:
        logged, changed = trained(JudgeReward(server.url), tmp_path)
    assert len(seen) == STEPS * len(TURNS)
    assert not any("None" in text or "<|im_end|>" in text for text in seen)
    assert [row["reward"] for row in logged] == [sum(SCORES.values()) / len(SCORES)] * STEPS
    assert [row["judge/no_verdict"] for row in logged] == [0.0] * STEPS
    # Three of four rollouts call the tool once, and one of them a second time, for which no turn is left.
    assert [row["tools/call_frequency"] for row in logged] == [3 / 4] * STEPS
    assert changed


def test_checkers_reward_the_last_answer_of_a_policy_with_tools(tmp_path: Path) -> None:
    one = Checker(name="words", rule="at least {n:number} words", source=WORDS)
    one = one.model_copy(update={"measured": Measurement(digest=one.digest, admitted=True)})
    file = tmp_path / "checkers.toml"
    file.write_text(CheckerFile(checkers=(one,), rules=("at least 2 words",)).text())
    logged, changed = trained(CheckerReward(str(file)), tmp_path)
    # Only "It is far." and "384,400 km." have two words; a result of a tool is not the policy's answer.
    assert [row["reward"] for row in logged] == [0.5] * STEPS
    assert changed
