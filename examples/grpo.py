"""GRPO of SmolLM2 on two cores: the built-in judge compares its answers to each prompt."""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tirjudge import Judge
from tirjudge.models import resolve_model
from tirjudge.serve.trl import JudgeGroupReward

TOPICS = ("a storm", "your favourite meal", "a busy market", "the sea", "an old house", "a train ride")
ASKED = [f"Describe {topic}. Your answer must have at most 25 words." for topic in TOPICS]
CPU = {"use_cpu": True, "bf16": False, "logging_steps": 1, "save_strategy": "no", "report_to": []}


def short(completions, **columns):
    return [float(len(completion[0]["content"].split()) <= 25) for completion in completions]


def main(steps=10, samples=4):
    options = {"num_generations": samples, "per_device_train_batch_size": samples, "max_steps": steps}
    with Judge() as judge:
        trainer = GRPOTrainer(
            str(resolve_model("smol")),
            reward_funcs=[JudgeGroupReward(judge, "swiss", group_size=samples), short],
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": one}]} for one in ASKED]
            ),
            args=GRPOConfig("runs/grpo", reward_weights=[1, 0], max_completion_length=48, **options, **CPU),
        )
        trainer.train()
    for log in trainer.state.log_history[:-1]:
        share = log["rewards/short/mean"]
        print(f"{log['step']:3} {share:4.0%} {'#' * round(40 * share)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
