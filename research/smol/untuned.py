"""The untuned model as a judge of pairs: by forced choice, and few-shot in the judge's own format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from research.smol.baselines import entry
from research.smol.nearest import LIMITS
from research.smol.sources import Fields
from research.smol.splits import rank
from tirjudge.generation.base import Sampling, open_generator
from tirjudge.models import resolve_model
from tirjudge.rollout import Rollout
from tirjudge_environments import JudgeTask, Message, Prompt, View
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Program, Sandbox, Status, open_sandbox
from tirjudge_training.stages.demonstrations import verdict_from_counts

SHOWN_CHARS = 64
"""Characters of a response in the prompts of both baselines, as many as the tuned judge is shown."""
_SHOTS = 2
_PREFILL = "<preference>"


class FewShotPairwise(TirPairwise):
    """The pairwise format with finished dialogues before each prompt."""

    dialogues: tuple[Message, ...] = ()

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        asked = super().prompt(task, view)
        return Prompt(messages=(*self.dialogues, *asked.messages), stop=asked.stop)


async def demonstrations(
    training: Sequence[Fields], sandbox: Sandbox, count: int = _SHOTS
) -> tuple[Message, ...]:
    """Return finished dialogues about pairs of the training rows, of both labels in turn.

    The judge's turns are one message: program, what it prints in the sandbox, a sentence and the verdict.
    """
    usable = [
        row
        for row in training
        if row["environment"] == "tir-pairwise" and (row.get("demonstration") or {}).get("program")
    ]
    usable.sort(key=lambda row: rank("few-shot", row["id"]))
    format = TirPairwise(prompts="smol", shown_chars=SHOWN_CHARS, order="given")
    messages: list[Message] = []
    for label in range(count):
        row = next(row for row in usable if row["label"] == label % 2)
        task = read_task(row, default_id=str(row["id"]))
        shown = row["demonstration"]
        bindings = {"prompt": row["prompt"], "responses": row["responses"]}
        printed = await sandbox.run(Program(source=shown["program"], bindings=bindings), LIMITS)
        assert printed.status is Status.OK, "the programs of the training rows run"
        answer = (
            f"```python\n{shown['program'].rstrip()}\n```\n```output\n{printed.stdout.rstrip()}\n```\n"
            f"{verdict_from_counts(format.tag, shown['kept'], shown['of'])}"
        )
        messages += [*format.prompt(task, format.views(task)[0]).messages, Message("assistant", answer)]
    return tuple(messages)


class ForcedChoice:
    """The difference of the log probabilities of A and B behind `<preference>`."""

    def __init__(self, folder: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._torch = torch
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._letters = [self._tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "AB"]

    def __call__(self, text: str) -> float:
        """Return log p(A) - log p(B) after a prompt."""
        start = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        ids = self._tokenizer(start + _PREFILL, add_special_tokens=False, return_tensors="pt").input_ids
        with self._torch.inference_mode():
            logits = self._model(ids, logits_to_keep=1).logits[0, -1]
        return float(logits[self._letters[0]] - logits[self._letters[1]])


def forced_choices(choose: Callable[[str], float], rows: Sequence[Fields]) -> list[float]:
    """Return the credits of the responses that both orders together prefer; a tie counts one half.

    `choose` returns log p(A) - log p(B) for a prompt, as `ForcedChoice` does.
    """
    format = TirPairwise(prompts="smol", shown_chars=SHOWN_CHARS, order="both")
    credits = []
    for row in rows:
        task = read_task(row, default_id=str(row["id"]))
        first, second = (choose(format.prompt(task, view).messages[0].content) for view in format.views(task))
        preference = first - second
        credits.append(0.5 if preference == 0 else float((preference < 0) == row["label"]))
    return credits


async def few_shot(
    folder: str, sets: dict[tuple[str, str], list[Fields]], training: Sequence[Fields]
) -> list[Fields]:
    """Return the lines of the untuned model with finished dialogues in its prompt, greedy."""
    generator = open_generator("transformers", folder, max_rows=16)
    lines = []
    try:
        async with open_sandbox() as sandbox:
            dialogues = await demonstrations(training, sandbox)
            format = FewShotPairwise(prompts="smol", shown_chars=SHOWN_CHARS, dialogues=dialogues)
            rollout = Rollout(
                format, generator, sandbox, budget=Budget(tokens=256), sampling=Sampling(max_tokens=256)
            )
            for (name, split), rows in sets.items():
                tasks = [read_task(row, default_id=str(row["id"])) for row in rows]
                credits, without = [], 0
                async for episode in rollout.episodes(tasks):
                    verdict = episode.trajectories[0].verdict
                    without += verdict is None
                    credits.append(float(verdict is not None and verdict.choice == episode.task.label))
                lines.append(
                    entry(name, split, f"untuned, {_SHOTS}-shot", credits, ends={"without verdict": without})
                )
    finally:
        await generator.close()
    return lines


def with_model(
    model: str, sets: dict[tuple[str, str], list[Fields]], training: Sequence[Fields]
) -> list[Fields]:
    """Return the lines of both baselines; few-shot only if there are training rows to show."""
    folder = resolve_model(model)
    choose = ForcedChoice(folder)
    lines = [
        entry(name, split, "untuned, forced choice", forced_choices(choose, rows))
        for (name, split), rows in sets.items()
    ]
    if training:
        lines += asyncio.run(few_shot(folder, sets, training))
    return lines
