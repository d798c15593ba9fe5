"""The files of an RL stage: metrics and rollouts per generation batch, every episode, and a progress line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from statistics import fmean
from typing import Any

from tirjudge.console_text import duration
from tirjudge.progress import SECONDS, ProgressReporter
from tirjudge.records.episodes import episode_record
from tirjudge.records.result_row import failed
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import encode_line
from tirjudge.storage.settings_text import Damaged
from tirjudge_environments import Evidence, JudgeTask, Reward, Score, Trajectory, Transcript
from tirjudge_environments.messages import whole_text
from tirjudge_environments.orders import letter
from tirjudge_environments.programs.evidence import decisive, program_evidence
from tirjudge_environments.programs.outputs import most_counted
from tirjudge_sandbox import Execution
from tirjudge_training.distributed.checkpoints import EVENTS, record_resumption
from tirjudge_training.rl.batch_sampler import GenerationBatch
from tirjudge_training.rl.dynamic_sampling import RoundTimes, SampledBatch, ScoredRollouts
from tirjudge_training.rl.health import FIRST_SHOWN, Health, Unhealthy
from tirjudge_training.rl.stream import STREAM
from tirjudge_training.rl.trl_rollout import RolloutTokens

METRICS, EPISODES = "metrics.jsonl", "episodes.jsonl"
IDLE = 3
"""Batches in a row without any group in the loss after which the log says why there is nothing to learn."""
FEW = 32
"""Verdicts on pairs that say how often a judge names the response shown first."""

GROUP_KINDS = ("all_right", "all_wrong", "unscored")
"""The kinds of groups that the filter on correctness drops."""

PROGRAM_KINDS = ("right", "wrong", "unread", "tie", "failed", "missing")
"""The kinds of a rollout by its last successful program.

A `right` program counts most for the labelled response, a `wrong` program for another response, and an
`unread` program prints no such count. A `tie` prints the same for exchanged responses, which is known only
with the option `evidence`. In `failed` and `missing` rollouts every program failed, or none was run.
"""


class MetricsLog:
    """Receives every generation batch and every log of the trainer, and writes a row once it has both.

    Raises Unhealthy if the run should stop, after writing the numbers that show why.
    """

    def __init__(self, run: RunFolder, steps: int, say: Callable[[str], None], health: Health) -> None:
        self._run, self._steps, self._say, self._health = run, steps, say, health
        self._step = self._next = 0
        self._tokens = 0  # of the ended rollouts of the batch in progress
        self._sampling = self._training = self._sampling_of(self._next)
        self._began: tuple[int, float] | None = None
        self._idle: list[dict[str, Any]] = []

    def resume(self, step: int) -> None:
        """Go on at this step: drop the rows of an interrupted run from it on; those steps are repeated."""
        self._next, self._sampling = step, self._sampling_of(step)
        # The rollout log needs no such step: its shards are overwritten by name.
        for name in (EPISODES, STREAM):
            self._drop(name, step)
        lost = self._drop(METRICS, step)
        # Only the first process changes the file, so that another process may still read its dropped rows.
        kept = [row for row in self._run.read(METRICS) if row["step"] < step]
        if step and not kept:
            # The checks would compare with another first batch, and a finished stage would seem to have
            # learned nothing.
            raise Damaged(
                f"{self._run.path / METRICS} lacks the steps before {step + 1}: put the former file back, or "
                f"delete {self._run.path} to repeat the stage"
            )
        self._health.earlier(kept)
        for row in kept:
            self._idle = [*self._idle, row] if is_idle(row) else []
        repeated = f"; repeating {lost} that had no checkpoint yet" if lost else ""
        if kept or lost:
            self._say(f"resumes at {self._place(step)}{repeated}")
            record_resumption(self._run, step, repeated)

    def _drop(self, name: str, step: int) -> int:
        """Drop the rows of a file from a step on, and return their number.

        One row at a time is in memory: the episodes of a long run do not fit.
        """
        lost = sum(row["step"] >= step for row in self._run.read(name))
        if lost:
            with self._run.rewrite(name) as file:
                file.writelines(encode_line(row) for row in self._run.read(name) if row["step"] < step)
        return lost

    def sampled(self, ended: int, tokens: int, rollouts: int) -> None:
        """Report the rollouts of the batch in progress that are sampled, from time to time."""
        self._tokens += tokens
        self._sampling.show(self._sampling.done + ended, rollouts)

    def passed(self, micro_batches: int) -> None:
        """Report, from time to time, that one more of the micro-batches of a batch has been trained on."""
        self._training.show(self._training.done + 1, micro_batches)

    def _sampling_of(self, step: int) -> ProgressReporter:
        return ProgressReporter(self._say, self._place(step), "rollouts", detail=self._speed)

    def _speed(self) -> str:
        return f"{self._tokens / self._sampling.seconds:.0f} tokens a second" if self._tokens else ""

    def _place(self, step: int) -> str:
        return f"step {step + 1} of {self._steps}"

    def generation(self, generation: GenerationBatch) -> dict[str, float]:
        """Write the episodes of a batch; return its metrics."""
        self._run.append(EPISODES, *episode_rows(generation))
        self._run.write(shard_name(generation.step), shard(generation.step, generation.batch))
        if generation.stream is not None:
            self._run.append(STREAM, {"step": generation.step, **generation.stream.place})
        with self._recorded(generation.step):
            self._health.rollouts(generation.step, (*generation.batch.first, *generation.batch.replacements))
        if self._sampling.seconds >= SECONDS:
            self._say(
                f"{self._place(generation.step)}: all rollouts are sampled, and training on them begins"
            )
        self._training = ProgressReporter(self._say, self._place(generation.step), "micro-batches trained on")
        self._step, self._next = generation.step, generation.step + 1
        return batch_metrics(generation)

    def log(self, logs: dict[str, Any]) -> None:
        """Write a row from a log of the trainer, which is averaged over the batch's optimizer steps."""
        if "loss" not in logs:  # the summary at the end of training
            return
        row = {"step": self._step} | {name: value for name, value in logs.items() if name != "epoch"}
        # Written before the checks, so that the folder has the numbers that stopped the run.
        self._run.append(METRICS, row)
        self._say(self._progress(row))
        self._tokens, self._sampling = 0, self._sampling_of(self._next)
        self._idle = [*self._idle, row] if is_idle(row) else []
        if self._idle and len(self._idle) % IDLE == 0:
            self._say(f"{self._place(row['step'])}: {nothing_to_learn(self._idle)}")
        with self._recorded(row["step"]):
            self._health.trained(row)

    @contextmanager
    def _recorded(self, step: int) -> Iterator[None]:
        """Write a stop of the run to its events."""
        try:
            yield
        except Unhealthy as error:
            self._run.append(EVENTS, {"step": step + 1, "event": "stopped", "about": str(error)})
            raise

    def _progress(self, row: dict[str, Any]) -> str:
        if self._began is None:
            # The first row arrives when its step is over, so the clock is set back to the step's start.
            self._began = row["step"], time.perf_counter() - row["seconds/step"]
        # Steps of an earlier run are not counted: only this run's speed predicts the time left.
        first, began = self._began
        each = (time.perf_counter() - began) / (row["step"] + 1 - first)
        left = each * (self._steps - row["step"] - 1)
        # A batch with nothing in the loss has no tokens to take a mean over.
        entropy = f", entropy {row['entropy']:.3f}" if "entropy" in row else ""
        return (
            f"{self._place(row['step'])}: mean reward {row['reward']:.3f}, "
            f"{row['reward/teaches']:.0%} rewarded as right{entropy}, {row['groups/dropped']:.0%} of groups "
            f"left out, {row['tools/error_rate']:.0%} of programs failed, "
            f"{duration(each)} a step, {duration(left)} left"
        )


def is_idle(row: Mapping[str, Any]) -> bool:
    """Return True for the metrics of a batch without any group in the loss."""
    return row["groups/in_loss"] == 0


def nothing_to_learn(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line about batches without any group in the loss: why, and what to do."""
    counts = {kind: sum(row.get(f"groups/{kind}", 0) for row in rows) for kind in GROUP_KINDS}
    found = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count)
    batches = "the only batch" if len(rows) == 1 else f"{len(rows)} batches in a row"
    return (
        f"nothing to learn from {batches}, so that the weights stay as they are: no group is in the loss "
        f"({found or 'no rewards differ'}); use other rows, or a start that is right more or less often"
    )


def episode_rows(generation: GenerationBatch) -> Iterator[dict[str, Any]]:
    """Yield one record per episode of a batch, for `episodes.jsonl`."""
    batch = generation.batch
    for replacement, scored in ((False, batch.first), (True, batch.replacements)):
        for rollouts in scored:
            for episode, scores in zip(rollouts.episodes, rollouts.scores, strict=True):
                yield {
                    "step": generation.step,
                    "format": rollouts.formatted.format,
                    "replacement": replacement,
                    **episode_record(episode, scores),
                }


def batch_metrics(generation: GenerationBatch) -> dict[str, Any]:
    """Return rewards, lengths and tool use over the batch's own tasks.

    Replacement tasks are left out of these means: they are kept only if they pass the filter, which would
    bias them.
    """
    batch = generation.batch
    trajectories = [
        t for rollouts in batch.first for episode in rollouts.episodes for t in episode.trajectories
    ]
    every = (*batch.first, *batch.replacements)
    groups = sum(len(rollouts.groups) for rollouts in every)
    return {
        **_rewards(batch.first),
        **_tools(trajectories),
        **_lengths(trajectories),
        **_tokens(batch),
        **_stops(trajectories),
        **program_metrics(batch.first),
        "groups/dropped": 1 - len(batch.kept) / groups,
        "groups/in_loss": len(batch.kept),
        **_group_kinds(every),
        "groups/replacement_rounds": batch.rounds,
        "groups/replacement_tasks": len(batch.replacements),
        "episodes/resampled": sum(rollouts.resampled for rollouts in every),
        **_waiting(batch.times),
        "staleness": generation.staleness,
        "sampler_gap": generation.sampler_gap,
        **(generation.stream.metrics if generation.stream is not None else {}),
        **_programs(every),
    }


def _group_kinds(scored: Iterable[ScoredRollouts]) -> dict[str, int]:
    """Return how many groups, replacements included, are of each of `GROUP_KINDS`."""
    counts = dict.fromkeys(GROUP_KINDS, 0)
    for group in (group for rollouts in scored for group in rollouts.groups):
        right = {score.teaches for score in group.scores if isinstance(score, Reward)}
        if len(right) < 2:
            counts["unscored" if not right else "all_right" if right == {True} else "all_wrong"] += 1
    return {f"groups/{kind}": count for kind, count in counts.items()}


def _waiting(times: RoundTimes) -> dict[str, float]:
    """Return the shares of the sampling time that done tasks, and processes without work, waited."""
    seconds = max(times.seconds, 1e-9)
    return {"share/waiting_tasks": times.waited / seconds, "share/idle_processes": times.idle / seconds}


def _rewards(scored: Iterable[ScoredRollouts]) -> dict[str, float]:
    """Return the means of the reward and its parts, and the shares of right verdicts by format and domain."""
    values: dict[str, list[float]] = {}
    for rollouts in scored:
        domain = rollouts.formatted.task.domain
        for score in (score for row in rollouts.scores for score in row if isinstance(score, Reward)):
            values.setdefault("reward", []).append(score.total)
            values.setdefault(f"correct/{rollouts.formatted.format}", []).append(score.teaches)
            if domain:
                values.setdefault(f"domain/{domain}", []).append(score.teaches)
            for name, value in score.metrics.items():
                values.setdefault(f"reward/{name}", []).append(value)
    return {name: fmean(found) for name, found in sorted(values.items())}


def _tools(trajectories: list[Trajectory]) -> dict[str, float]:
    """Return tool calls per trajectory, and the share of executed programs that did not exit with 0."""
    calls = [call for trajectory in trajectories for call in trajectory.calls]
    ran = [call for call in calls if isinstance(call.outcome, Execution)]
    return {
        "tools/calls": len(calls) / len(trajectories),
        "tools/error_rate": sum(map(failed, ran)) / len(ran) if ran else 0.0,
    }


def _lengths(trajectories: list[Trajectory]) -> dict[str, float]:
    """Return mean tokens per response, written by the model and by the sandbox, and the longest response."""
    masks = [Transcript.of(trajectory).mask for trajectory in trajectories]
    return {
        "tokens/model": fmean(map(sum, masks)),
        "tokens/sandbox": fmean(len(mask) - sum(mask) for mask in masks),
        "tokens/longest": max(map(len, masks)),
    }


def _tokens(batch: SampledBatch) -> dict[str, int]:
    """Return the tokens generated in all rollouts, and those trained on, prompts and outputs included."""
    trained = [
        Transcript.of(trajectory)
        for group in batch.kept
        for trajectory, reward in zip(group.trajectories, group.rewards, strict=True)
        if reward is not None
    ]
    return {
        "tokens/generated": batch.written,
        "tokens/trained": sum(len(script.prompt_ids) + len(script.completion_ids) for script in trained),
    }


def program_metrics(scored: Iterable[ScoredRollouts]) -> dict[str, float]:
    """Return what the programs of pairs and lists say about the label, and what the verdicts make of it.

    `programs/KIND` are shares of the rollouts of labelled tasks, see `program_kind`, and `verdicts/KIND` the
    shares of right verdicts among the rollouts of each kind. `programs/followed` is the share of verdicts for
    the response that the program counts most for, `verdicts/first_shown` that of verdicts on pairs for the
    response shown first, if there are at least `FEW`.
    """
    kinds: dict[str, list[bool]] = {kind: [] for kind in PROGRAM_KINDS}
    followed, first_shown = [], []
    for rollouts in scored:
        label = rollouts.formatted.task.label
        for episode in rollouts.episodes if label is not None else ():
            for one in episode.trajectories:
                if len(one.view.order) < 2 or one.stop.unscored:
                    continue
                choice = one.verdict.choice if one.verdict is not None else None
                kinds[program_kind(one, label)].append(choice == label)
                counted = program_choice(one)
                if counted is not None:
                    followed.append(choice == counted)
                if choice is not None and len(one.view.order) == 2:
                    first_shown.append(choice == one.view.order[0])
    rollouts_in_all = sum(map(len, kinds.values()))
    if not rollouts_in_all:
        return {}
    shares = {f"programs/{kind}": len(found) / rollouts_in_all for kind, found in kinds.items()}
    rates = {f"verdicts/{kind}": fmean(found) for kind, found in kinds.items() if found}
    others = {
        **({"programs/followed": fmean(followed)} if followed else {}),
        **({FIRST_SHOWN: fmean(first_shown)} if len(first_shown) >= FEW else {}),
    }
    return shares | rates | others


def program_kind(trajectory: Trajectory, label: int | None) -> str:
    """Return one of `PROGRAM_KINDS` for the last successful program of a trajectory."""
    evidence = program_evidence(trajectory)
    if evidence in (Evidence.MISSING, Evidence.FAILED, Evidence.TIE):
        return evidence.value
    counted = program_choice(trajectory)
    if counted is None:
        return "unread"
    return "right" if counted == label else "wrong"


def program_choice(trajectory: Trajectory) -> int | None:
    """Return the candidate that the last successful program counts most for.

    None if there is no such program, or if it prints no count for each response.
    """
    call = decisive(trajectory)
    if call is None or not isinstance(call.outcome, Execution):
        return None
    position = most_counted(call.outcome.stdout, len(trajectory.view.order))
    return None if position is None else trajectory.view.order[position]


def _stops(trajectories: list[Trajectory]) -> dict[str, float]:
    counts = Counter(trajectory.stop.value for trajectory in trajectories)
    return {f"stop/{reason}": count / len(trajectories) for reason, count in sorted(counts.items())}


def _programs(scored: Iterable[ScoredRollouts]) -> dict[str, float]:
    """Return the seconds in the sandbox, summed over programs; they overlap each other and generation."""
    ran = [
        call.outcome
        for rollouts in scored
        for episode in rollouts.episodes
        for trajectory in episode.trajectories
        for call in trajectory.calls
        if isinstance(call.outcome, Execution)
    ]
    return {
        "seconds/programs": round(sum(execution.wall_seconds for execution in ran), 3),
        "cpu_seconds/programs": round(sum(execution.cpu_seconds for execution in ran), 3),
    }


FOLDER = "rollouts"
"""The folder inside an RL stage's folder; `datasets.load_dataset` and `tirjudge data inspect` read it."""


TOKENS = ("prompt_ids", "completion_ids", "mask", "logprobs")
"""The columns of a rollout's tokens."""


def shard_name(step: int) -> str:
    """Return the path of a batch's file inside the stage's folder."""
    return f"{FOLDER}/step-{step:06}.parquet"


def shard(step: int, batch: SampledBatch) -> bytes:
    """Return a batch as a Parquet file: tasks in the columns of `tirjudge judge`, with their rollouts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = BytesIO()
    # In memory first, so that the run folder can write the file atomically.
    pq.write_table(pa.Table.from_pylist(list(_rows(step, batch)), schema=_schema()), file, compression="zstd")
    return file.getvalue()


def compared_rows(folder: Path) -> list[RolloutTokens]:
    """Return two rollouts of each of the first four groups of the first batch of a stage.

    On these rows, which the start of the stage sampled, `kl_start` compares the policy with the start.
    """
    import pyarrow.parquet as pq

    # Only a few rows, because every batch of the stage pays for a forward pass over them.
    rows = pq.read_table(folder / shard_name(0), columns=["id", "view", "sample", *TOKENS]).to_pylist()
    groups = list(dict.fromkeys((row["id"], row["view"]) for row in rows))[:4]
    chosen = [row for row in rows if (row["id"], row["view"]) in groups and row["sample"] < 2]
    return [
        RolloutTokens(
            tuple(row["prompt_ids"]), tuple(row["completion_ids"]), tuple(row["mask"]), tuple(row["logprobs"])
        )
        for row in chosen
        if any(row["mask"])
    ]


def _rows(step: int, batch: SampledBatch) -> Iterator[dict[str, Any]]:
    for replacement, scored in ((False, batch.first), (True, batch.replacements)):
        for rollouts in scored:
            for trajectory, score in _scores(rollouts):
                yield {
                    "step": step,
                    "replacement": replacement,
                    "format": rollouts.formatted.format,
                    **_task(rollouts.formatted.task),
                    **_rollout(trajectory),
                    **_reward(score),
                }


def _scores(rollouts: ScoredRollouts) -> Iterator[tuple[Trajectory, Score]]:
    for episode, scores in zip(rollouts.episodes, rollouts.scores, strict=True):
        yield from zip(episode.trajectories, scores, strict=True)


def _task(task: JudgeTask) -> dict[str, Any]:
    return {
        "id": _utf8(task.id),
        "domain": _utf8(task.domain),
        "prompt": [{"role": message.role, "content": _utf8(message.content)} for message in task.prompt],
        "responses": [_utf8(whole_text(response)) for response in task.candidates],
        "label": None if task.label is None else letter(task.label),
    }


def _rollout(trajectory: Trajectory) -> dict[str, Any]:
    script = Transcript.of(trajectory)
    return {
        "view": trajectory.view.name,
        "order": trajectory.view.order,
        "sample": trajectory.sample,
        "stop": trajectory.stop.value,
        "choice": trajectory.verdict.choice if trajectory.verdict else None,
        "completion": _utf8("".join(segment.text for segment in trajectory.segments)),
        "calls": len(trajectory.calls),
        "prompt_ids": script.prompt_ids,
        "completion_ids": script.completion_ids,
        "mask": script.mask,
        "logprobs": script.logprobs,
    }


def _reward(score: Score) -> dict[str, Any]:
    if not isinstance(score, Reward):
        return {"reward": None, "parts": [], "unscored": _utf8(score.reason)}
    # A list of pairs, since formats have different parts and a Parquet struct has fixed fields.
    parts = [{"name": name, "value": value} for name, value in score.metrics.items()]
    return {"reward": score.total, "parts": parts, "unscored": None}


def _utf8(text: str) -> str:
    """Replace lone surrogates, which JSON allows and Parquet cannot store, by `?`."""
    return text.encode(errors="replace").decode()


def _schema() -> Any:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    return pa.schema(
        {
            "step": pa.int64(),
            "replacement": pa.bool_(),
            "format": text,
            "id": text,
            "domain": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "responses": pa.list_(text),
            "label": text,
            "view": text,
            "order": pa.list_(pa.int64()),
            "sample": pa.int64(),
            "stop": text,
            "choice": pa.int64(),
            "completion": text,
            "calls": pa.int64(),
            # Narrow types: token columns make up nearly all of the file.
            "prompt_ids": pa.list_(pa.int32()),
            "completion_ids": pa.list_(pa.int32()),
            "mask": pa.list_(pa.int8()),
            "logprobs": pa.list_(pa.float32()),
            "reward": number,
            "parts": pa.list_(pa.struct({"name": text, "value": number})),
            "unscored": text,
        }
    )
