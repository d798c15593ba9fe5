"""CodeJudgeBench: the right one of two programs, repairs or tests; labels come from hidden tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow

_HUB = "mattymchen/codejudgebench"
_TASKS = ("codegen", "coderepair", "testgen")
_REPAIR = """Repair the program below: it does not solve the question.

### Question
{question}

### Program
```python
{program}
```

### What went wrong
{error}"""
_MESSAGES = ("error", "error_message", "inputs", "output", "expected")


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": f"{row.part}/{row.number}",
        "prompt": _prompt(row),
        "chosen": row.need("pos_response"),
        "rejected": row.need("neg_response"),
        "domain": row.part.partition("/")[0],
        "tags": [f"difficulty={row.fields.get('difficulty', '')}", f"source={row.part}"],
    }


def _prompt(row: PublishedRow) -> str:
    question = str(row.need("question_content"))
    if row.fields.get("wrong_code") is None:
        starter = str(row.fields.get("starter_code") or "")
        return f"{question}\n\nStart from:\n```python\n{starter}\n```" if starter.strip() else question
    value = row.fields.get("wrong_meta")
    meta: Mapping[str, object] = value if isinstance(value, dict) else {}
    error = "\n".join(f"{name}: {meta[name]}" for name in _MESSAGES if meta.get(name) is not None)
    return _REPAIR.format(question=question, program=row.need("wrong_code"), error=error or "unknown")


CODEJUDGEBENCH = Benchmark(
    name="codejudgebench",
    about="Which program, repair or unit test is right, both orders as samples (Jiang et al. 2025)",
    parts=tuple(Part(name=task, hub=_HUB, config=task) for task in _TASKS),
    columns={
        "question_content": "the problem",
        "starter_code": "optional",
        "wrong_code, wrong_meta": "coderepair: the program and how it failed",
        "pos_response": "right",
        "neg_response": "wrong",
        "difficulty": "optional",
    },
    protocols=("every-order", "both-orders", "one-order", "tir", "position"),
    licence="Apache-2.0",
    order="both",
    read=_read,
)
