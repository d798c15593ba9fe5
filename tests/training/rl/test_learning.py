"""Every text-only judge learns: on one fixed batch the answer with the higher reward becomes likelier.

With the sign of the reward reversed it becomes less likely.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.rows import every
from tests.training.fitting import fit
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.meta_judge import RewardQuestions
from tirjudge.judging.options import NoSandbox
from tirjudge.rollout import Rollout
from tirjudge_environments import (
    Context,
    Environment,
    Episode,
    J1PaS,
    J1PaV,
    J1PaVS,
    J1PoS,
    JudgeLrmPair,
    JudgeTask,
    Message,
    Prompt,
    Reward,
    RmR1,
    Score,
    View,
)
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stage_trainer import build_trainer

T = TypeVar("T")
PAIR = JudgeTask(id="t", prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0)


@dataclass(frozen=True)
class Case:
    """A judge, a task, and the right and a wrong answer to each view."""

    environment: Environment
    task: JudgeTask
    right: Mapping[str, str]
    wrong: Mapping[str, str]
    rl: Mapping[str, Any]
    """Settings of the paper's loss."""
    reward_questions: Callable[[], RewardQuestions] | None = None
    """Opens the RewardQuestions of a judge whose reward asks another model."""


JUDGELRM = {"sigma": "population", "eta": 1e-6, "beta": 1e-3, "epsilon": 0.5, "epsilon_high": 0.5}
J1 = {"beta": 0.01, "epsilon": 0.2, "epsilon_high": 0.2}
CASES = {
    "judgelrm-pair": Case(
        JudgeLrmPair(),
        replace(PAIR, gold={"scores": [8, 3]}),
        {"AB": "why</think><answer>8</answer><answer>3</answer>"},
        {"AB": "why</think><answer>3</answer><answer>8</answer>"},
        JUDGELRM,
    ),
    "judgelrm-pair, absolute": Case(
        JudgeLrmPair(length=True),
        replace(PAIR, gold={"scores": [8, 3]}),
        {"AB": "why</think><answer>8</answer><answer>3</answer>"},
        {"AB": "why</think><answer>6</answer><answer>5</answer>"},
        JUDGELRM,
    ),
    "j1-pav": Case(
        J1PaV(),
        PAIR,
        {"AB": "<answer> [[A]] </answer>", "BA": "<answer> [[B]] </answer>"},
        {"AB": "<answer> [[B]] </answer>", "BA": "<answer> [[A]] </answer>"},
        J1,
    ),
    "j1-pav, consistency": Case(
        J1PaV(consistency=True, negative_reward=-1.0, seed_prompt="plan"),
        PAIR,
        {"AB": "<answer> [[A]] </answer>", "BA": "<answer> [[B]] </answer>"},
        {"AB": "<answer> [[B]] </answer>", "BA": "Both are good."},
        J1,
    ),
    "j1-pas": Case(
        J1PaS(order="given"),
        PAIR,
        {"AB": "<score_A>7.5</score_A><score_B>3</score_B>"},
        {"AB": "<score_A>3</score_A><score_B>3</score_B>"},
        J1,
    ),
    "j1-pavs": Case(
        J1PaVS(order="given"),
        PAIR,
        {"AB": "<score_A>7</score_A><score_B>3</score_B><answer>[[A]]</answer>"},
        {"AB": "<score_A>7</score_A><score_B>3</score_B><answer>[[B]]</answer>"},
        J1,
    ),
    "j1-pos": Case(
        J1PoS(),
        PAIR,
        {"0": "<score>8</score>", "1": "<score>2</score>"},
        {"0": "<score>5</score>", "1": "<score>9</score>"},
        J1,
    ),
    "rm-r1": Case(
        RmR1(style="reasoning", order="given"),
        PAIR,
        {"AB": "</think><answer>[[A]]</answer>"},
        {"AB": "</think><answer>[[B]]</answer>"},
        {"loss": "per_response", "beta": 1e-3, "epsilon": 0.2, "epsilon_high": 0.2},
    ),
    "rm-r1, cold start": Case(
        RmR1(style="no-rubrics", order="given", reward="cold-start"),
        PAIR,
        {"AB": "A is better. <answer>[[A]]</answer>"},
        {"AB": "B is better. [[B]]"},
        {"loss": "per_response", "beta": 1e-3, "epsilon": 0.2, "epsilon_high": 0.2},
    ),
}
"""By the order of the requests: every second sample of a view gives the right answer."""


@pytest.mark.slow
@pytest.mark.parametrize("name", every(5, CASES))
def test_the_rewarded_answer_becomes_likelier_and_less_likely_with_the_sign_reversed(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    for sign in (1.0, -1.0):
        for view, (right, wrong) in learn(CASES[name], tiny_model, tmp_path, sign=sign).items():
            assert sign * right > 0, f"the right answer to {view}, with {sign:+} times the reward"
            assert sign * (right - wrong) > 0, f"the answers to {view}, with {sign:+} times the reward"


def learn(case: Case, start: Path, folder: Path, *, sign: float) -> dict[str, tuple[float, float]]:
    """Return, by view, the change of the log-probabilities of the right and the wrong answer in three steps.

    The model is first fitted to both answers about equally well, so that RL cannot gain from what they have
    in common. It is fitted once for all calls with the same folder.
    """
    tokenizer, known = AutoTokenizer.from_pretrained(start), folder / "known"
    engine = FixedAnswers(case, ChatEncoder(tokenizer), sign)
    if not known.exists():
        model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
        fit(model, engine.dialogues(), tokenizer.pad_token_id)
        model.save_pretrained(known)
    model = AutoModelForCausalLM.from_pretrained(known, dtype=torch.float32)
    views = case.environment.views(case.task)
    config = RlConfig(
        steps=3,
        groups=len(views),
        samples=4,
        micro_batch=4 * len(views),
        filter="none",
        learning_rate=3e-4,
        **case.rl,
    )
    trainer = build_trainer(
        model,
        tokenizer,
        config,
        engine=engine,  # type: ignore[arg-type]  # the rollouts are fixed
        source=lambda *key: FormattedTask("judge", case.task),
        seed=0,
        output=str(folder / f"{sign:+}"),
    )
    before = engine.log_probabilities(model)
    with closing(engine):
        trainer.train()
    after = engine.log_probabilities(model)
    return {view: (after[view][0] - before[view][0], after[view][1] - before[view][1]) for view in before}


class Turned:
    """An environment with `sign` times its rewards, and a prompt of a few bytes."""

    def __init__(self, environment: Environment, sign: float) -> None:
        self._environment, self._sign = environment, sign

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        shown = " ".join(task.candidates[index] for index in view.order)
        return replace(self._environment.prompt(task, view), messages=(Message("user", shown),))

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        scores = self._environment.score(group, answers)
        return [tuple(self._turned(score) for score in episode) for episode in scores]

    def _turned(self, score: Score) -> Score:
        assert isinstance(score, Reward)
        return replace(score, total=self._sign * score.total)


class FixedAnswers:
    """An engine whose every second rollout of a view is the right answer, and the others the wrong one."""

    def __init__(self, case: Case, encoder: ChatEncoder, sign: float) -> None:
        self.case, self.encoder, self.environment = case, encoder, Turned(case.environment, sign)
        self.prompts = {
            view.name: tuple(encoder.prompt(self.environment.prompt(case.task, view)))
            for view in case.environment.views(case.task)
        }
        self.runner, self.reward_questions = (
            asyncio.Runner(),
            case.reward_questions() if case.reward_questions else None,
        )
        self.generator, self.waited_seconds = SimpleNamespace(busy_seconds=0.0), 0.0
        self.tokens_written = 0

    def refresh(self) -> None:
        """Do nothing: the answers are fixed."""

    def rest(self) -> None:
        """Do nothing: no memory is held."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def close(self) -> None:
        if self.reward_questions is not None:
            self.run(self.reward_questions.close())
        self.runner.close()

    def rollouts(self, seed: int) -> dict[str, Rollout]:
        asked: Counter[str] = Counter()

        def answer(context: Context) -> str:
            view = next(name for name, ids in self.prompts.items() if ids == context.ids)
            asked[view] += 1
            return (self.case.right if asked[view] % 2 else self.case.wrong)[view]

        generator = ScriptedGenerator(answer, encoder=self.encoder)
        return {
            "judge": Rollout(self.environment, generator, NoSandbox(), reward_questions=self.reward_questions)
        }

    def dialogues(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        """Return both answers to each view, as token ids of prompt and answer."""
        return [
            (prompt, self.encoder.text(answers[view]))
            for view, prompt in self.prompts.items()
            for answers in (self.case.right, self.case.wrong)
        ]

    def log_probabilities(self, model: Any) -> dict[str, tuple[float, float]]:
        """Return the log-probabilities of the right and the wrong answer, by view."""
        return {
            view: (
                self._log_probability(model, prompt, self.case.right[view]),
                self._log_probability(model, prompt, self.case.wrong[view]),
            )
            for view, prompt in self.prompts.items()
        }

    def _log_probability(self, model: Any, prompt: tuple[int, ...], answer: str) -> float:
        ids = torch.tensor([*prompt, *self.encoder.text(answer)])
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)
        return float(logits.gather(1, ids[1:, None])[len(prompt) - 1 :].sum())
