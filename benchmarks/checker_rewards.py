"""Speed of compiled checkers: rows judged with and without them, and steps of TRL with both as the reward.

    OMP_NUM_THREADS=1 python -m benchmarks.checker_rewards rows --rows 10000 --without 24 --audited 1000
    OMP_NUM_THREADS=1 python -m benchmarks.checker_rewards training --steps 3

`rows` writes pairs about the rules of examples/checkers.toml and judges them by one judge in one run: some
rows without checkers, all rows with them, and some with an audit of 2 %. It prints rows a second, and ratios
to the judge without checkers. `training` trains the miniature with GRPO of TRL, once with the checkers as its
reward and once with the embedded judge's criteria, from the same weights and seed. It prints seconds a step,
and on how many completions of the judge's run both rewards are equal, where the judge decided. The judge is
the embedded model unless --model names another.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tirjudge import Judge
from tirjudge_environments.adapters.checkers import CheckerReward

ROOT = Path(__file__).parent.parent
CHECKERS = ROOT / "examples" / "checkers.toml"
WORDS = [
    "river",
    "stone",
    "cloud",
    "garden",
    "window",
    "letter",
    "market",
    "harbour",
    "summer",
    "engine",
    "paper",
    "candle",
]
RULES = (
    "Answer with at least {} words.",
    "Answer with less than {} words.",
    "In your entire response, refrain from the use of any commas.",
    "Wrap your entire response with double quotation marks.",
)
AUDIT = 0.02


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return pairs with one rule each; each response follows it or not by chance."""
    draw, found = random.Random(seed), []
    for number in range(count):
        texts = [" ".join(draw.choices(WORDS, k=draw.randrange(20, 120))) for _ in range(2)]
        texts = [draw.choice(("{}", '"{}"', "{}, and so on")).format(text) for text in texts]
        rule = draw.choice(RULES).format(draw.randrange(30, 110))
        row = {"id": f"r{number}", "prompt": f"Write text {number}.", "responses": texts}
        found.append({**row, "criteria": [rule]})
    return found


def rate(given: Sequence[dict[str, Any]], **options: Any) -> tuple[float, int, int]:
    """Return rows a second of an open judge, the rows without a dialogue, and the audited rows."""
    with Judge(**options) as judge:
        # One row opens everything.
        judge.batch([{**given[0], "id": "first"}])
        started = time.perf_counter()
        result = judge.batch(given)
        seconds = time.perf_counter() - started
    done = list(result.judgments)
    alone = sum(all(one.checker for one in row.criteria) for row in done)
    return len(given) / seconds, alone, sum(bool(row.audit) for row in done)


def print_rows(count: int, without: int, audited: int, model: dict[str, Any]) -> None:
    """Print the rates and ratios of one run."""
    given, checkers = rows(count), {"checkers": str(CHECKERS), **model}
    plain, _, _ = rate(given[:without], order="given", **model)
    print(f"without checkers     {plain:10.3f} rows a second, n = {without} rows")
    for name, some, audit in (
        ("with checkers", given, 0.0),
        (f"with an audit of {AUDIT:.0%}", given[:audited], AUDIT),
    ):
        found, alone, asked = rate(some, order="given", audit=audit, **checkers)
        facts = f"n = {len(some)} rows, {alone} by checkers alone, {asked} audited"
        print(f"{name:<20} {found:10.1f} rows a second, {found / plain:.0f} times as many, {facts}")


class JudgedReward:
    """The judge's criteria as a reward, which also notes where the checkers agree."""

    __name__ = "judge"

    def __init__(self, judge: Judge, checkers: CheckerReward) -> None:
        self._judge, self._checkers = judge, checkers
        self.decided = self.equal = self.completions = 0

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[Any]:
        criteria = columns["criteria"]
        given = [
            {"id": f"{self.completions + place}", "prompt": prompt, "response": text, "criteria": rules}
            for place, (prompt, text, rules) in enumerate(zip(prompts, completions, criteria, strict=True))
        ]
        found = {one.episode.task.id: one for one in self._judge.batch(given).judgments}
        checked = self._checkers.scores(prompts, completions, criteria)
        rewards = []
        for row, other in zip(given, checked, strict=True):
            one = found.get(row["id"])
            rewards.append(None if one is None else one.score)
            if one is not None and one.decided and one.score is not None:
                self.decided += 1
                self.equal += one.score == other
        self.completions += len(given)
        return rewards


def print_training(steps: int, model: dict[str, Any]) -> None:
    """Train twice, and print the seconds a step of each run."""
    checkers = CheckerReward(CHECKERS)
    seconds = {"checkers": _train(checkers, steps)}
    with Judge(**model) as judge:
        reward = JudgedReward(judge, checkers)
        judge.score("Write.", "a b c", criteria=[RULES[2]])
        seconds["judge"] = _train(reward, steps)
    for name, found in seconds.items():
        shown = f"{median(found):.2f} s a step (median of {len(found)}: {min(found):.2f} to {max(found):.2f})"
        print(f"{name:<10} {shown}")
    print(f"ratio of medians {median(seconds['judge']) / median(seconds['checkers']):.1f}")
    print(
        f"rewards equal to the judge's on {reward.equal} of the {reward.decided} completions that programs "
        f"decided, of {reward.completions} completions"
    )


def _train(reward: Any, steps: int) -> list[float]:
    """Return the seconds of each step but the first."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    folder = ROOT / "examples" / "miniature" / "trained"
    times: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *given: Any, **further: Any) -> None:
            times.append(time.perf_counter())

    data = [
        {"prompt": f"Write text {number}.", "criteria": [RULES[number % 2].format(12), RULES[2]]}
        for number in range(8)
    ]
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=reward,
            train_dataset=Dataset.from_list(data),
            callbacks=[Clock()],
            args=GRPOConfig(
                output_dir=output,
                max_steps=steps + 1,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=32,
                use_cpu=True,
                bf16=False,
                save_strategy="no",
                report_to=[],
                seed=0,
            ),
        )
        trainer.train()
    return [after - before for before, after in pairwise(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("rows", "training"))
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--without", type=int, default=24)
    parser.add_argument("--audited", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--model", default="")
    given = parser.parse_args()
    model = {"model": given.model} if given.model else {}
    if given.what == "rows":
        print_rows(given.rows, given.without, given.audited, model)
    else:
        print_training(given.steps, model)


if __name__ == "__main__":
    main()
