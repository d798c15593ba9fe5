"""PPE Correctness: pairs of a right and a wrong response, from five sets of checkable questions."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge_environments.tasks import RowError

_SETS = ("MMLU-Pro", "MATH", "GPQA", "MBPP-Plus", "IFEval")


def _read(row: PublishedRow) -> Iterator[Fields]:
    scores = row.several("scores")
    for place, pair in enumerate(row.several("sampled_conflict_pairs")):
        first, second = _indices(pair, len(scores))
        if scores[first] == scores[second]:
            raise RowError(
                f"pair {place + 1} of sampled_conflict_pairs is no conflict: both have the same score"
            )
        yield {
            # A question occurs once per model, and a pair may occur twice in its row.
            "id": f"{row.part}/{row.number}/{place}",
            "prompt": row.need("prompt"),
            "responses": [row.need(f"response_{first + 1}"), row.need(f"response_{second + 1}")],
            "label": int(scores[second] > scores[first]),
            "domain": row.part,
            "tags": [
                f"question={row.fields.get('question_id', '')}",
                f"model={row.fields.get('model_name', '')}",
            ],
        }


def _indices(pair: object, count: int) -> tuple[int, int]:
    match pair:
        case [int(first), int(second)] if 0 <= first < count and 0 <= second < count:
            return first, second
    raise RowError("sampled_conflict_pairs must be pairs of indices into scores")


PPE_CORRECTNESS = Benchmark(
    name="ppe-correctness",
    about="Which of one model's responses is right, in five sets (Frick et al. 2024); mean of the five",
    parts=tuple(
        Part(name=name, hub=f"lmarena-ai/PPE-{name}-Best-of-K", split="train", rows=512) for name in _SETS
    ),
    columns={
        "prompt": "prompt",
        "response_1, ..., response_32": "responses",
        "scores": "list: whether each is right",
        "sampled_conflict_pairs": "list of pairs of indices from 0: a right and a wrong response",
        "question_id, model_name": "optional; repeated as tags",
    },
    protocols=("ppe", "tir", "tie-half", "tie-wrong", "both-orders", "position"),
    licence="see its card",
    row_by_row=False,
    example={
        "question_id": "7",
        "model_name": "m",
        "prompt": "What is 6 times 7?",
        "response_1": "41",
        "response_2": "42",
        "scores": [False, True],
        "sampled_conflict_pairs": [[0, 1]],
    },
    read=_read,
)
