"""PPE: pairs from five sets of checkable questions, and votes of people in Chatbot Arena."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge_environments.tasks import RowError

_SETS = ("MMLU-Pro", "MATH", "GPQA", "MBPP-Plus", "IFEval")


def _read_correctness(row: PublishedRow) -> Iterator[Fields]:
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
    read=_read_correctness,
)


_LABELS = {"model_a": "A", "model_b": "B"}


def _read_preference(row: PublishedRow) -> Iterator[Fields]:
    winner = str(row.need("winner"))
    if winner not in _LABELS and not winner.startswith("tie"):
        raise RowError(f"winner {winner!r} is not model_a, model_b or tie")
    yield {
        "id": f"{row.number}/{row.fields.get('question_id', '')}",
        "prompt": row.need("prompt"),
        "responses": [row.need("response_1"), row.need("response_2")],
        "label": _LABELS.get(winner, "tie"),
        "domain": row.fields.get("language", ""),
    }


PPE_PREFERENCE = Benchmark(
    name="ppe-preference",
    about="Which response a person preferred (Frick et al. 2024)",
    parts=(Part(name="test", hub="lmarena-ai/PPE-Human-Preference-V1", split="test", rows=16038),),
    columns={
        "prompt": "prompt",
        "response_1": "model_a's",
        "response_2": "model_b's",
        "winner": "model_a, model_b, tie or tie (bothbad)",
        "question_id, language": "optional",
    },
    protocols=("one-order", "tir", "tie-half", "tie-wrong", "both-orders", "position"),
    licence="prompts CC-BY-4.0, responses by their models' terms",
    read=_read_preference,
)
