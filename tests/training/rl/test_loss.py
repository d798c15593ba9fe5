"""The training loss against a plain torch computation, and values that must not change it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tirjudge_training.distributed.processes import Processes
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.packing import length_buckets, packed_parts, packs
from tirjudge_training.rl.stage_trainer import build_trainer

CONFIG = RlConfig(
    steps=1, groups=2, samples=4, optimizer_steps=4, micro_batch=2, beta=0.01, epsilon=0.2, epsilon_high=0.3
)
PER_RESPONSE = CONFIG.model_copy(update={"loss": "per_response"})
SEQUENCE = CONFIG.model_copy(update={"loss": "sequence", "epsilon": 2e-4, "epsilon_high": 2e-4})
PROMPT, COMPLETION, ROWS = 5, 12, 8


@pytest.fixture(scope="module")
def trainer(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trainer_of(CONFIG, tiny_model, tmp_path_factory.mktemp("trainer"))


def trainer_of(config: RlConfig, tiny_model: Path, folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64)
    trainer = build_trainer(
        model,
        AutoTokenizer.from_pretrained(tiny_model),
        config,
        engine=None,  # type: ignore[arg-type]  # the loss needs no rollouts
        source=lambda *key: pytest.fail("no rollouts"),
        seed=0,
        output=str(folder),
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    return trainer


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """Ragged prompts and completions, sandbox spans, one filler row; ratios wide enough to clip both ways."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    prompt_mask, completion_mask = torch.ones(ROWS, PROMPT).long(), torch.ones(ROWS, COMPLETION).long()
    for row in range(ROWS):
        prompt_mask[row, : row % 3] = 0
        completion_mask[row, COMPLETION - row % 4 :] = 0
    tool_mask = torch.ones(ROWS, COMPLETION).long()
    tool_mask[:, 3:6] = 0
    tool_mask[-1] = 0
    ids = torch.randint(0, 250, (ROWS, PROMPT + COMPLETION), generator=generator)
    return {
        "prompt_ids": ids[:, :PROMPT],
        "prompt_mask": prompt_mask,
        "completion_ids": ids[:, PROMPT:],
        "completion_mask": completion_mask,
        "tool_mask": tool_mask,
        "advantages": noise(ROWS),
        "old_per_token_logps": noise(ROWS, COMPLETION) * 0.5,
        "ref_per_token_logps": noise(ROWS, COMPLETION) * 0.5,
        "num_items_in_batch": (completion_mask * tool_mask).sum(),
        "num_responses_in_batch": torch.tensor(ROWS - 1),
    }


def with_real_logprobs(trainer: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Old and reference logprobs are noise around the model's own, so that ratios are near 1."""
    with torch.no_grad():
        own = logprobs(trainer.model, inputs)
    return inputs | {name: own + inputs[name] for name in ("old_per_token_logps", "ref_per_token_logps")}


def distributions(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return logprobs over the vocabulary, `[rows, completion tokens, vocabulary]`."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    return torch.log_softmax(model(input_ids=ids, attention_mask=attention).logits[:, PROMPT - 1 : -1], -1)


def logprobs(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    every = distributions(model, inputs)
    return every.gather(-1, inputs["completion_ids"].unsqueeze(-1)).squeeze(-1)


def plain_dapo(model: Any, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute TIR-Judge Eq. 2 independently, and how often each side was clipped.

    The batch's tokens are shared by four optimizer steps: each divides by a quarter of their number.
    """
    new = logprobs(model, inputs)
    total, clipped = torch.zeros((), dtype=torch.float64), torch.zeros(2)
    for row in range(ROWS):
        for t in range(COMPLETION):
            if not inputs["completion_mask"][row, t] or not inputs["tool_mask"][row, t]:
                continue
            ratio = (new[row, t] - inputs["old_per_token_logps"][row, t]).exp()
            advantage = inputs["advantages"][row]
            clip = min(max(ratio, torch.tensor(0.8)), torch.tensor(1.3))
            gap = inputs["ref_per_token_logps"][row, t] - new[row, t]
            total = total + torch.minimum(ratio * advantage, clip * advantage) - 0.01 * (gap.exp() - gap - 1)
            clipped += torch.tensor([ratio < 0.8 and advantage < 0, ratio > 1.3 and advantage > 0])
    return -total / (inputs["num_items_in_batch"] / 4), clipped


def plain_response_mean(model: Any, inputs: dict[str, torch.Tensor], config: RlConfig) -> torch.Tensor:
    """Compute RM-R1 Eq. 9 independently, or with one ratio per response (rationale, Eq. 5).

    Seven of eight responses count; four optimizer steps share them.
    """
    new, total = logprobs(model, inputs), torch.zeros((), dtype=torch.float64)
    for row in range(ROWS):
        own = (inputs["completion_mask"][row] * inputs["tool_mask"][row]).bool()
        if not own.any():
            continue
        logs = new[row, own] - inputs["old_per_token_logps"][row, own]
        ratio = logs.mean().exp() if config.loss == "sequence" else logs.exp()
        advantage = inputs["advantages"][row]
        clip = ratio.clamp(1 - config.epsilon, 1 + config.epsilon_high)
        gap = inputs["ref_per_token_logps"][row, own] - new[row, own]
        total = total + torch.minimum(ratio * advantage, clip * advantage).mean()
        total = total - config.beta * (gap.exp() - gap - 1).mean()
    return -total / (7 / 4)


def gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_the_dapo_loss_is_the_papers(trainer: Any) -> None:
    inputs = with_real_logprobs(trainer, batch())
    expected, clipped = plain_dapo(trainer.model, inputs)
    assert (clipped > 0).all(), "the case must exercise clip-low and clip-higher"
    ours = trainer._compute_loss(trainer.model, inputs)
    assert ours.item() == pytest.approx(expected.item(), abs=1e-6)
    ours, expected = gradient(trainer.model, ours), gradient(trainer.model, expected)
    assert (ours - expected).norm() < 1e-6 * expected.norm()


def test_sandbox_tokens_do_not_change_the_gradient(trainer: Any) -> None:
    inputs = with_real_logprobs(trainer, batch())
    masked = inputs["tool_mask"] == 0
    assert masked.any()
    advantages = inputs["advantages"].unsqueeze(1).expand(-1, COMPLETION)
    absurd = inputs | {
        "advantages": torch.where(masked, 1e6, advantages),
        "ref_per_token_logps": torch.where(masked, 50.0, inputs["ref_per_token_logps"]),
        "old_per_token_logps": torch.where(masked, -80.0, inputs["old_per_token_logps"]),
    }
    before = gradient(
        trainer.model, trainer._compute_loss(trainer.model, inputs | {"advantages": advantages})
    )
    after = gradient(trainer.model, trainer._compute_loss(trainer.model, absurd))
    assert (after - before).abs().max().item() == 0.0


def test_fillers_change_neither_loss_nor_denominator(trainer: Any) -> None:
    """The filler row may hold anything; without it the loss is the same."""
    inputs = with_real_logprobs(trainer, batch())
    garbage = {name: tensor.clone() for name, tensor in inputs.items()}
    garbage["completion_ids"][-1] = 7
    garbage["advantages"][-1] = 1e6
    kept = {name: tensor[:-1] if tensor.dim() else tensor for name, tensor in inputs.items()}
    losses = [trainer._compute_loss(trainer.model, rows).item() for rows in (inputs, garbage, kept)]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-12)
    assert not math.isclose(losses[0], 0.0, abs_tol=1e-4)


@pytest.mark.parametrize(("processes", "rows"), [(1, [3, 2, 2]), (2, [3, 3, 2])], ids=["alone", "two"])
def test_length_buckets_do_not_change_the_loss(
    processes: int, rows: list[int], trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single process leaves the filler out; several have the same number of rows each."""
    inputs = with_real_logprobs(trainer, batch())
    whole = trainer._compute_loss(trainer.model, inputs)
    expected = gradient(trainer.model, whole)
    monkeypatch.setattr(trainer, "config", CONFIG.model_copy(update={"length_buckets": 3}))
    monkeypatch.setattr(trainer, "processes", Processes(0, processes))
    shapes = [part["completion_ids"].shape for part in length_buckets(inputs, 3, every=processes > 1)]
    assert [count for count, _ in shapes] == rows
    assert shapes[0][1] < shapes[2][1]
    parts = trainer._compute_loss(trainer.model, inputs)
    assert parts.item() == pytest.approx(whole.item(), abs=1e-6)
    assert (gradient(trainer.model, parts) - expected).norm() < 1e-6 * expected.norm()


@pytest.mark.parametrize("config", [CONFIG, SEQUENCE], ids=lambda config: config.loss)
def test_packing_under_a_budget_changes_neither_loss_nor_gradient(
    config: RlConfig, tiny_model: Path, tmp_path: Path
) -> None:
    """Rows have 14 to 17 tokens, so that two or three of them share a pass; the filler is left out.

    Prompts are not padded, as in training, since rotary positions round differently where they are shifted.
    """
    trainer = trainer_of(config, tiny_model, tmp_path)
    inputs = batch()
    inputs = with_real_logprobs(trainer, inputs | {"prompt_mask": torch.ones_like(inputs["prompt_mask"])})
    own = inputs["completion_mask"] * inputs["tool_mask"]
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)

    def scored() -> list[torch.Tensor]:
        """Return logprobs and entropies of a pass without gradients."""
        with torch.no_grad():
            found = trainer._score(trainer.model, ids, attention, own, None, entropies=True)
        return [values[own.bool()] for values in found[:2]]

    expected = scored()
    whole = trainer._compute_loss(trainer.model, inputs)
    expected_gradient = gradient(trainer.model, whole)

    trainer.config = config.model_copy(update={"token_budget": 45})
    fed: list[torch.Size] = []
    watch = trainer.model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    for values, ours in zip(expected, scored(), strict=True):
        assert torch.allclose(values, ours, rtol=0, atol=1e-6)
    assert sum(tokens for _, tokens in fed) == attention.sum(), "no padding"
    fed.clear()
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    watch.remove()
    assert all(rows == 1 and tokens <= 45 for rows, tokens in fed)
    assert sum(tokens for _, tokens in fed) == attention[:-1].sum()
    assert loss.item() == pytest.approx(whole.item(), abs=1e-6)
    found = torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])
    assert (found - expected_gradient).norm() < 1e-6 * expected_gradient.norm()


def test_rows_are_packed_first_fit_and_all_processes_get_the_same_parts() -> None:
    assert packs([5, 9, 2, 30, 4], 12) == [[3], [1, 2], [0, 4]]
    assert packs([], 12) == []

    class Two(Processes):
        """The first of two processes, of which the other has parts of three, one and one rows."""

        def every(self, value: Any) -> list[Any]:
            return [value, [3, 1, 1]]

    inputs = batch()
    parts = list(packed_parts(inputs, 70, Two(0, 2)))
    alone = list(packed_parts(inputs, 70, Processes()))
    assert [len(part["completion_ids"]) for part in alone] == [4, 3]
    assert [len(part["completion_ids"]) for part in parts] == [4, 3, 1]
    assert parts[2]["tool_mask"].sum() == 0, "only there to keep up with the other process"
    counted = [
        sum((part["completion_mask"] * part["tool_mask"]).sum() for part in each) for each in (alone, parts)
    ]
    assert counted[0] == counted[1] == (inputs["completion_mask"] * inputs["tool_mask"]).sum()


@pytest.mark.parametrize("config", [PER_RESPONSE, SEQUENCE], ids=lambda config: config.loss)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_losses_of_the_other_judges_are_those_of_their_papers(
    config: RlConfig, parts: int, tiny_model: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(config.model_copy(update={"length_buckets": parts}), tiny_model, tmp_path)
    inputs = with_real_logprobs(trainer, batch())
    expected = plain_response_mean(trainer.model, inputs, config)
    ours = trainer._compute_loss(trainer.model, inputs)
    assert ours.item() == pytest.approx(expected.item(), abs=1e-6)
    ours, expected = gradient(trainer.model, ours), gradient(trainer.model, expected)
    assert (ours - expected).norm() < 1e-6 * expected.norm()


@pytest.mark.parametrize("config", [CONFIG, SEQUENCE], ids=lambda config: config.loss)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_entropy_bonus_is_a_mean_over_the_tokens_of_the_batch(
    config: RlConfig, parts: int, tiny_model: Path, tmp_path: Path
) -> None:
    settings = {"length_buckets": parts, "entropy_bonus": 0.5}
    trainer = trainer_of(config.model_copy(update=settings), tiny_model, tmp_path)
    inputs = with_real_logprobs(trainer, batch())
    every = distributions(trainer.model, inputs)
    own = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
    entropy = -(every.exp() * every).sum(-1)[own].sum() / own.sum() * 4
    with_bonus = trainer._compute_loss(trainer.model, inputs)
    trainer.config = config
    expected = trainer._compute_loss(trainer.model, inputs) - 0.5 * entropy
    assert with_bonus.item() == pytest.approx(expected.item(), abs=1e-6)
    with_bonus, expected = gradient(trainer.model, with_bonus), gradient(trainer.model, expected)
    assert (with_bonus - expected).norm() < 1e-6 * expected.norm()


@pytest.mark.parametrize(
    ("decay", "final", "expected"), [(False, 0.0, 1e-6), (True, 0.0, 0.0), (True, 3e-7, 3e-7)]
)
def test_a_decaying_learning_rate_ends_at_the_configured_value(
    decay: bool, final: float, expected: float, tiny_model: Path, tmp_path: Path
) -> None:
    falling = CONFIG.model_copy(update={"decay": decay, "final_learning_rate": final, "warmup_steps": 2})
    trainer = trainer_of(falling, tiny_model, tmp_path)
    trainer.create_optimizer_and_scheduler(num_training_steps=6)
    rates = []
    for _ in range(6):
        rates += trainer.lr_scheduler.get_last_lr()[:1]
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    # The warm-up comes first, and the decay takes the steps after it.
    warmup, rates = rates[:2], rates[2:]
    assert warmup == pytest.approx([CONFIG.learning_rate / 3, CONFIG.learning_rate * 2 / 3])
    fall = (CONFIG.learning_rate - expected) / 4
    assert [*rates, *trainer.lr_scheduler.get_last_lr()[:1]] == pytest.approx(
        [CONFIG.learning_rate - step * fall for step in range(5)]
    )
