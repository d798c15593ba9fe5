"""The rollout log: one Parquet file per generation batch, one row per rollout with its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from tirjudge_environments import JudgeTask, Reward, Score, Trajectory, Transcript
from tirjudge_environments.orders import letter
from tirjudge_training.rl.dynamic_sampling import Batch, ScoredRollouts
from tirjudge_training.rl.trl_rollout import Row

FOLDER = "rollouts"
"""The folder inside an RL stage's folder; `datasets.load_dataset` and `tirjudge data inspect` read it."""


TOKENS = ("prompt_ids", "completion_ids", "mask", "logprobs")
"""The columns of a rollout's tokens."""


def shard_name(step: int) -> str:
    """Return the path of a batch's file inside the stage's folder."""
    return f"{FOLDER}/step-{step:06}.parquet"


def shard(step: int, batch: Batch) -> bytes:
    """Return a batch as a Parquet file: tasks in the columns of `tirjudge judge`, with their rollouts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = BytesIO()
    # In memory first, so that the run folder can write the file atomically.
    pq.write_table(pa.Table.from_pylist(list(_rows(step, batch)), schema=_schema()), file, compression="zstd")
    return file.getvalue()


def compared_rows(folder: Path) -> list[Row]:
    """Return two rollouts of each of the first four groups of the first batch of a stage.

    On these rows, which the start of the stage sampled, `kl_start` compares the policy with the start.
    """
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / shard_name(0), columns=["id", "view", "sample", *TOKENS]).to_pylist()
    groups = list(dict.fromkeys((row["id"], row["view"]) for row in rows))[:4]
    chosen = [row for row in rows if (row["id"], row["view"]) in groups and row["sample"] < 2]
    return [
        Row(
            tuple(row["prompt_ids"]), tuple(row["completion_ids"]), tuple(row["mask"]), tuple(row["logprobs"])
        )
        for row in chosen
        if any(row["mask"])
    ]


def _rows(step: int, batch: Batch) -> Iterator[dict[str, Any]]:
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
        "responses": [_utf8(response) for response in task.candidates],
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
    parts = [{"name": name, "value": value} for name, value in score.parts.items()]
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
