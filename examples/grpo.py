"""GRPO of SmolLM2 on two cores: the built-in judge compares its answers to each prompt."""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tirjudge import Judge
from tirjudge.models import resolve_model
from tirjudge.serve.trl import JudgeGroupReward

TOPICS = ("a storm", "your favourite meal", "a busy market", "the sea", "an old house", "a train ride")
ASKED = [f"Describe {topic}. Do not use any commas in your answer." for topic in TOPICS]
CPU = {"use_cpu": True, "bf16": False, "logging_steps": 1, "save_strategy": "no", "report_to": []}


def without_commas(completions, **columns):
    return [float("," not in completion[0]["content"]) for completion in completions]


def main(steps=24, samples=8):
    options = {"num_generations": samples, "per_device_train_batch_size": samples, "max_steps": steps}
    options |= {"learning_rate": 1e-5, "lr_scheduler_type": "constant"}
    prompts = [[{"role": "user", "content": one}] for one in ASKED]
    with Judge() as judge:
        trainer = GRPOTrainer(
            str(resolve_model("smol")),
            reward_funcs=[JudgeGroupReward(judge, "swiss", group_size=samples), without_commas],
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            args=GRPOConfig("runs/grpo", reward_weights=[1, 0], max_completion_length=48, **options, **CPU),
        )
        trainer.train()
    for log in trainer.state.log_history[:-1]:
        share = log["rewards/without_commas/mean"]
        print(f"{log['step']:3} {share:4.0%} {'#' * round(40 * share)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
