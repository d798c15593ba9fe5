"""TRL: GRPO with the judge's environment. The miniature cannot call tools: name a model that can."""

import sys
from functools import partial

from datasets import Dataset
from judged import ROWS
from policy import FOLDER
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.adapters.trl import JudgeEnv, judge_reward
from tirjudge_environments.tasks import Columns

SETTINGS = JudgeSettings(options={"protocol": "tool"}, columns=Columns(prompt="question"))
"""TRL's column `prompt` is the policy's chat, so the judged prompt is in another column."""


def main(model: str = str(FOLDER), output: str = "runs/trl-judge") -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    if model == str(FOLDER):
        tokenizer.chat_template = qwen3_chat_template
    rows = [{("question" if name == "prompt" else name): part for name, part in row.items()} for row in ROWS]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
        processing_class=tokenizer,
        environment_factory=partial(JudgeEnv, SETTINGS),
        reward_funcs=judge_reward,
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(
            output_dir=output,
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=128,
            max_tool_calling_iterations=SETTINGS.turns - 1,
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
        ),
    )
    trainer.train()
    for step in trainer.state.log_history[:-1]:
        print(step["step"], step["reward"], step["judge/format"])


if __name__ == "__main__":
    main(*sys.argv[1:])
