"""PPE Human Preference: votes of people in Chatbot Arena."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge_environments.tasks import RowError

_LABELS = {"model_a": "A", "model_b": "B"}


def _read(row: PublishedRow) -> Iterator[Fields]:
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
    example={
        "question_id": "a",
        "prompt": "Say hello.",
        "response_1": "Hello!",
        "response_2": "No.",
        "winner": "model_a",
        "language": "English",
    },
    read=_read,
)
