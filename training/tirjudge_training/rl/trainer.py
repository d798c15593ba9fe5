"""The RL trainer: TRL's GRPOTrainer with our batches and advantages.

Forward passes and loss are TRL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tirjudge_environments.types import derive_seed
from tirjudge_training.cpu_forward import IGNORED, shares_prompts
from tirjudge_training.distributed.device import moments_on_host
from tirjudge_training.distributed.fsdp import frozen_copy, sharded_reference
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.profiling import (
    PhaseTimer,
    forget_peak,
    gpu_peak,
    memory_in_use,
    return_free_memory,
    shares_of_time,
    times,
)
from tirjudge_training.rl.batch_sampler import BatchSampler, GenerationBatch
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import RoundProgress
from tirjudge_training.rl.losses import open_loss, truncated_weights
from tirjudge_training.rl.packed_attention import packs_rows
from tirjudge_training.rl.packing import (
    length_buckets,
    packed_parts,
    prompt_order,
    score_packed,
    seed_shuffle,
    shard_batch,
    without_left_padding,
    written_tokens,
)
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.rl.trl_rollout import RolloutTokens, batch_rows, quiet

if TYPE_CHECKING:
    from trl import GRPOTrainer

else:
    GRPOTrainer = object

TOKEN_MEANS = {
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/low_mean": "clipped_low",
    "clip_ratio/high_mean": "clipped_high",
}
"""TRL's metrics of a batch's tokens, by TRL's name, with our names. Its other metrics include fillers."""

GAPS = (0.001, 0.01, 0.1, 1.0)
"""Differences of logprobs, in nats; metrics have the share of tokens above each."""

BatchCallback = Callable[[GenerationBatch], Mapping[str, float]]
"""Callback per batch; returns extra metrics to log."""


@dataclass(frozen=True, slots=True)
class PartOfBatch:
    """Some rows under training, which TRL's loss gets as its model and passes on to the scoring of tokens."""

    model: Any
    rows: dict[str, Any]
    """The tensors of the rows, as TRL's loss gets them."""


class JudgeBatches(GRPOTrainer):
    """A mixin before GRPOTrainer that replaces its batches and advantages.

    TRL's dataset only counts steps. A batch consists of whole tasks, every rollout is a function of (seed,
    step, task, view, sample), and advantages are normalised within each (task, view) group:

        tasks x orders x samples      `groups` = 6 slots of `samples` = 4 rollouts

        task 1   AB    r r r r        a group, whose mean reward is the baseline of its advantages
                 BA    r r r r
        task 2   AB    r r r r
                 BA    r r r r
        (empty)        . . . .        slots that no whole task fits: fillers, masked out of the loss
                       . . . .
                          |
                          v           `shard_batch` mixes all rows and cuts them into equal shares:
        step 1, process 0   [r r] [r .] [r r]      `optimizer_steps` = 2, two processes, and
                process 1   [r r] [. r] [r .]      micro-batches of `micro_batch` = 2 rows with a
        step 2, process 0   [. r] [r r] [. r]      backward pass each, in `length_buckets`
                process 1   [r r] [r .] [. r]
        or with `token_budget`
        step 1, process 0   [r|r|r] [r|r]          packs: rows in one sequence without padding

    The loss of every part is weighted by its share of the whole batch, see `_part_loss`, so that it does not
    matter where a row is.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        source: TaskSource,
        config: RlConfig,
        seed: int,
        on_batch: BatchCallback,
        on_sampled: RoundProgress,
        on_weights: Callable[[int], None] | None = None,
        compared: Callable[[], Sequence[RolloutTokens]] = lambda: (),
        processes: Processes = ALONE,
        **trl: Any,
    ) -> None:
        self.engine, self.config, self.seed = engine, config, seed
        self.on_batch, self.processes = on_batch, processes
        self._compared = compared
        self._compared_rows: list[RolloutTokens] | None = None
        self.sampling = BatchSampler(
            engine, source, config, seed, progress=on_sampled, on_weights=on_weights, processes=processes
        )
        self.loss = open_loss(config.loss)
        self.rows: list[RolloutTokens] = []
        self._batch: list[RolloutTokens] = []
        self._batch_metrics: Mapping[str, float] = {}
        self._measured: dict[str, float] = {}
        self._timer = PhaseTimer()
        self._skipped = 0
        super().__init__(**trl)
        if config.beta and trl["args"].beta == 0:  # see `build_trainer`
            from trl.trainer.utils import add_fused_lm_head

            self.beta = config.beta
            fused_head = partial(add_fused_lm_head, temperature=config.temperature)
            if processes.share_weights:
                self.ref_model = sharded_reference(self.model, self.accelerator, fused_head)
            else:
                reference = frozen_copy(self.model, fused_head)
                self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        import torch

        # TRL counts optimizer steps; our steps are generation batches.
        step = self.state.global_step // self.config.optimizer_steps
        shuffle = derive_seed("shuffle", self.seed, step)
        generation = self._roll_out(step)
        self._batch = batch_rows(
            generation.batch,
            slots=self.config.groups,
            size=self.config.samples,
            blank=self.processing_class.eos_token_id,
            sigma=self.config.sigma,
            eta=self.config.eta,
            tool_calls=self.config.tool_calls,
            mask_cut=self.config.overlong.mask,
        )
        self.rows = shard_batch(
            self._batch,
            steps=self.config.optimizer_steps,
            processes=self.processes,
            seed=shuffle,
            # The samples of a prompt share micro-batches, which compute the prompt once.
            order_by=prompt_order if shares_prompts(self.accelerator.unwrap_model(self.model)) else None,
        )
        # TRL gets empty prompts: its `rollout_func` returns self.rows whatever they are.
        with quiet():
            output = super()._generate_and_score_completions([{"prompt": ""} for _ in self.rows])
        advantages = torch.tensor([row.advantage for row in self.rows], device=self.args.device)
        # With one optimizer step, the pass that trains gives the importance weights.
        if self.config.importance_cap is not None and self.config.optimizer_steps > 1:
            advantages = self._weighted(advantages, output["old_per_token_logps"], output)
        output["advantages"] = advantages  # replaces TRL's, which count fillers and unscored rollouts
        # Over the whole batch and not this process's rows, because it is the denominator in all processes.
        responses = sum(any(row.mask) for row in self._batch)
        output["num_responses_in_batch"] = torch.tensor(responses, device=self.args.device)
        # Over all processes: each sees only its own rows.
        gaps = torch.cat([torch.tensor(one) for one in self.processes.every(self._sampler_gaps(output))])
        self._timer.end("logprobs")
        largest = gaps.max().item() if len(gaps) else 0.0
        shares = {f"sampler_gap/above_{least:g}": (gaps > least).float().mean().item() for least in GAPS}
        recorded = self.on_batch(replace(generation, sampler_gap=largest))
        self._batch_metrics = {**recorded, **(shares if len(gaps) else {})}
        self._timer.end("record")
        # After `on_batch`, which writes the rollouts of the first batch, on which `kl_start` is measured.
        self._batch_metrics = {**self._batch_metrics, **self._divergence()}
        self._timer.end("logprobs")
        seed_shuffle(shuffle)  # TRL shuffles the output next
        return output

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return the schedule of the learning rate; transformers' own would begin a warm-up at 0."""
        from torch.optim.lr_scheduler import LambdaLR

        share = partial(self.config.rate_share, steps=num_training_steps)
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, share)
        return self.lr_scheduler

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load both and set the rate of this configuration, which may be lower than the checkpoint's."""
        super()._load_optimizer_and_scheduler(checkpoint)
        rate = self.config.learning_rate
        if checkpoint is None or self.lr_scheduler is None or set(self.lr_scheduler.base_lrs) == {rate}:
            return
        # As the schedule itself would have left optimizer and scheduler after so many steps.
        rates: list[Any] = [
            rate * share(self.lr_scheduler.last_epoch) for share in self.lr_scheduler.lr_lambdas
        ]
        self.lr_scheduler.base_lrs, self.lr_scheduler._last_lr = [rate] * len(rates), rates
        for group, now in zip(self.optimizer.param_groups, rates, strict=True):
            group["initial_lr"], group["lr"] = rate, now

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Add the metrics of the generation batch, for the metrics log and for TRL's reporters."""
        if "loss" in logs:
            trl_metrics = self._metrics["train"]
            # A batch of fillers alone has no tokens to take a mean over.
            if any(any(row.mask) for row in self._batch):
                logs |= {
                    name: sum(trl_metrics[trl_name]) / self.args.steps_per_generation
                    for trl_name, name in TOKEN_MEANS.items()
                    if trl_name in trl_metrics
                }
            logs |= {**self._batch_metrics, **self._time_and_memory()}
            logs["steps/skipped"] = self._skipped / self.config.optimizer_steps
            self._skipped = 0
            trl_metrics.clear()  # the others describe fillers too
        super().log(logs, start_time)

    def skip_empty_step(self) -> None:
        """Drop gradients that are all 0: the optimizer then leaves the weights alone.

        Adam's momentum would move them although no row of the batch is in the loss.
        """
        gradients = (one.grad for one in self.model.parameters() if one.grad is not None)
        # Sharded gradients differ between processes, which decide together.
        own = (one.to_local() if hasattr(one, "to_local") else one for one in gradients)
        if not any(self.processes.every(any(bool(one.any()) for one in own))):
            self.model.zero_grad(set_to_none=True)
            self._skipped += 1

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Sum TRL's loss over parts of similar length: a loss is a sum over tokens, so padding can be cut.

        With a token budget only the last part is left to the trainer's backward pass, so that the activations
        of one part at a time are in memory.
        """
        import torch

        if self.config.token_budget is not None:
            *others, last = packed_parts(
                inputs, self.config.token_budget, self.processes, shared=packs_rows(model)
            )
            done = 0.0
            for part in others:
                loss = self._part_loss(model, part)
                # The trainer's own backward pass runs outside of autocast too.
                with torch.autocast(self.args.device.type, enabled=False):
                    self.accelerator.backward(loss)
                done += loss.detach()
            return done + self._part_loss(model, last)
        parts = length_buckets(
            inputs,
            self.config.length_buckets,
            every=self.processes.world > 1,
            by_prompt=shares_prompts(self.accelerator.unwrap_model(self.model)),
        )
        return sum(self._part_loss(model, part) for part in parts)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> tuple[Any, Any, Any]:
        """Return logprobs and entropies `[rows, completion tokens]`; 0 where the model did not write.

        TRL scores every token of a completion, which holds the prompt here, see `without_left_padding`. It
        passes on the model that it was given: that of a part under training is a `PartOfBatch`.
        """
        part = None
        if isinstance(model, PartOfBatch):
            model, part = model.model, model.rows
            written = part["completion_mask"] * part["tool_mask"]
        else:
            written = written_tokens(self.rows, logits_to_keep, self.args.device)
        found = self._score(
            model,
            input_ids,
            attention_mask,
            written,
            batch_size,
            compute_entropy,
            compute_aux_loss,
            images,
            packed=part is not None,
        )
        if part and self.config.importance_cap is not None and self.config.optimizer_steps == 1:
            # The pass that trains gives the logprobs that the weights need, since the batch has no earlier
            # step. TRL reads the advantages after it has computed the logprobs.
            part["advantages"] = self._weighted(part["advantages"], found[0], part)
        return found

    def _score(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        written: Any,
        batch_size: int | None,
        entropies: bool,
        aux_loss: bool = False,
        images: Mapping[str, Any] = MappingProxyType({}),
        *,
        packed: bool = False,
    ) -> tuple[Any, Any, Any]:
        """Return logprobs and entropies of the tokens in `written`, `[rows, completion tokens]`.

        `packed` rows share one pass: they are a part of the batch within the token budget.
        """
        import torch

        width = written.shape[1]
        # The reference model of the KL divergence, unless it is the policy without its adapter, never shares
        # prompts.
        shares = shares_prompts(self.accelerator.unwrap_model(model))
        if self.config.token_budget is not None and not shares and not aux_loss:
            scored = torch.zeros_like(attention_mask)
            scored[:, -width:] = written
            with self.accelerator.autocast():
                logprobs, found = score_packed(
                    model,
                    input_ids,
                    attention_mask,
                    scored,
                    budget=None if packed else self.config.token_budget,
                    processes=self.processes,
                    entropies=entropies,
                )
            return logprobs[:, -width:], found[:, -width:] if entropies else None, None
        if aux_loss or not shares:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, width, batch_size, entropies, aux_loss, **images
            )
        labels = input_ids.masked_fill(attention_mask == 0, IGNORED)
        labels[:, :-width] = IGNORED
        labels[:, -width:].masked_fill_(written == 0, IGNORED)
        found = [
            model(input_ids=ids, attention_mask=attended, labels=wanted, fused_lm_head=True)
            for ids, attended, wanted in zip(
                *(part.split(batch_size or len(part)) for part in (input_ids, attention_mask, labels)),
                strict=True,
            )
        ]
        logprobs = torch.cat([one.log_probs for one in found])[:, -width:]
        if not entropies:
            return logprobs, None, None
        return logprobs, torch.cat([one.entropy for one in found])[:, -width:], None

    def _weighted(self, advantages: Any, logprobs: Any, rows: Mapping[str, Any]) -> Any:
        """Return the advantages `[rows, completion tokens]`, times the importance weight of each token.

        The weight multiplies each token's term of the objective, as its advantage `[rows]` does.
        """
        cap = self.config.importance_cap
        assert cap is not None
        weights = truncated_weights(logprobs, rows["sampling_per_token_logps"], cap)
        return advantages[:, None] * weights

    def _part_loss(self, model: Any, part: dict[str, Any]) -> Any:
        """Return the loss of one part, weighted by its share of the batch.

        TRL averages responses and entropy over the rows of each call, and logs the mean over its calls. The
        weights turn these means into shares of the batch's sums, so that the result does not depend on how
        rows are spread over parts, optimizer steps and processes.
        """
        mask = part["completion_mask"] * part["tool_mask"]
        # The micro-batches of a generation batch, on all processes together.
        share = self.args.steps_per_generation * self.accelerator.num_processes
        weight = 1.0
        if self.loss.mean_of == "responses":
            weight = share * len(mask) / part["num_responses_in_batch"].clamp(min=1)
        tokens = share * mask.sum() / part["num_items_in_batch"].clamp(min=1)
        # TRL's loss reads this attribute.
        self.entropy_coef = float(self.config.entropy_bonus * tokens / weight)
        loss = self.loss.compute(self._trl_loss, model, part) * weight
        # A token mean of this part counts as much as the part has tokens; `log` takes the sum.
        each = self.accelerator.reduce(tokens, reduction="mean").item()
        for name in TOKEN_MEANS.keys() & self._metrics["train"].keys():
            self._metrics["train"][name][-1] *= each
        return loss

    def _trl_loss(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """Return TRL's own loss of some rows."""
        part = dict(inputs)  # a copy, whose advantages are weighted
        return super()._compute_loss(PartOfBatch(model, part), part)

    def _roll_out(self, step: int) -> GenerationBatch:
        self._timer = PhaseTimer()
        forget_peak()
        # Before the first step there is no optimizer.
        offloaded = moments_on_host(self.optimizer) if self.config.offload_moments else nullcontext()
        with offloaded:
            generation = self.sampling.batch(step, self._timer)
        self._measured = {**generation.seconds, **gpu_peak("rollout")}
        return generation

    def _time_and_memory(self) -> dict[str, float]:
        """Return timings and peak memory of a batch, once it was trained on."""
        self._timer.end("train")
        return_free_memory()
        timed = self._measured | times(self.processes.every(self._timer.parts))
        return {**timed, **shares_of_time(timed), **gpu_peak("train"), **memory_in_use()}

    def _sampler_gaps(self, output: dict[str, Any]) -> list[float]:
        """Return the differences between sampler and trainer logprobs, one for each token.

        Compares all rows if TRL has computed their logprobs anyway, else the rows of one group, since each
        comparison costs a forward pass.
        """
        # Fillers last: they have nothing to compare. The rows of a group come together: they share a prompt.
        rows = sorted(
            range(len(self.rows)),
            key=lambda number: (not any(self.rows[number].mask), self.rows[number].prompt_ids),
        )
        # TRL computes them if a batch is used for several optimizer steps.
        if "old_per_token_logps" not in output:
            rows = rows[: self.config.samples]
        part = {name: tensor[rows] for name, tensor in output.items() if tensor.dim() > 1}
        mask = (part["completion_mask"] * part["tool_mask"]).bool()
        logprobs = self._logprobs(part)
        gaps: list[float] = (logprobs - part["sampling_per_token_logps"])[mask].abs().tolist()
        return gaps

    def _divergence(self) -> dict[str, float]:
        """Return `kl_start`: the KL divergence of the policy from the start of the stage, in nats per token.

        It is the mean of log p(start) - log p(policy) over tokens that the start sampled, so that it needs no
        reference model and is comparable between batches.
        """
        if self._compared_rows is None:
            self._compared_rows = self.processes.first(lambda: list(self._compared()))
        if not self._compared_rows:
            return {}
        part = _tensors([without_left_padding(row) for row in self._compared_rows], self.args.device)
        mask = part["tool_mask"].bool()
        change = part["sampling_per_token_logps"] - self._logprobs(part)
        return {"kl_start": change[mask].mean().item()}

    def _logprobs(self, part: dict[str, Any]) -> Any:
        """Return the trainer's logprobs of completion tokens, by a forward pass unless TRL has them."""
        import torch

        if part.get("old_per_token_logps") is not None:
            return part["old_per_token_logps"]
        ids = torch.cat([part["prompt_ids"], part["completion_ids"]], dim=1)
        attention = torch.cat([part["prompt_mask"], part["completion_mask"]], dim=1)
        written = part["completion_mask"] * part["tool_mask"]
        with torch.no_grad():
            rows = self.args.per_device_train_batch_size
            return self._score(self.model, ids, attention, written, rows, entropies=False)[0]


def _tensors(rows: Sequence[RolloutTokens], device: Any) -> dict[str, Any]:
    """Return rows `without_left_padding` as the tensors of a TRL batch, padded on the right."""
    import torch

    width = max(len(row.completion_ids) for row in rows)

    def padded(values: Sequence[Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
        filled = [[*one, *[0] * (width - len(one))] for one in values]
        return torch.tensor(filled, dtype=dtype, device=device)

    prompts = torch.tensor([row.prompt_ids for row in rows], device=device)
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": padded([row.completion_ids for row in rows], torch.long),
        "completion_mask": padded([[1] * len(row.completion_ids) for row in rows], torch.long),
        "tool_mask": padded([row.mask for row in rows], torch.long),
        "sampling_per_token_logps": padded([row.logprobs for row in rows], torch.float32),
    }
