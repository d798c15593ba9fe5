"""Options that are proposed for the files of other tools: with them every row is the row that is meant."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.data.test_inspection import inspected
from tirjudge_environments.tasks import Columns, read_task

COUNT = 5


def completion(text: str) -> dict[str, Any]:
    """Return an answer of OpenAI's server."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def rows(make: Any) -> list[Any]:
    return [make(f"q{n}", f"a{n}") for n in range(COUNT)]


FILES: dict[str, Any] = {
    "inspect.json": {
        "version": 2, "status": "success", "eval": {"task": "t"}, "plan": {"steps": [{"solver": "g"}]},
        "results": {"scores": [{"name": "match"}]}, "reductions": [{"scorer": "match", "samples": []}],
        "samples": rows(lambda q, a: {
            "id": 1, "epoch": 1, "input": q, "target": "t", "output": {"model": "m", **completion(a)},
            "messages": [*chat(q), {"role": "assistant", "content": a}], "scores": {"m": {"value": "C"}}}),
    },
    "inspect-chats.json": {"samples": rows(lambda q, a: {"input": chat(q), "output": completion(a)})},
    "deepeval.json": {
        "testFile": None, "conversationalTestCases": [], "metricsScores": [{"metric": "x"}],
        "testCases": rows(lambda q, a: {
            "name": "t", "input": q, "actualOutput": a, "expectedOutput": "e", "success": True,
            "metricsData": [{"name": "x", "score": 0.3}]}),
    },
    "deepeval-cases.json": {"test_cases": rows(lambda q, a: {
        "input": q, "actual_output": a, "expected_output": "e"})},
    "langfuse.jsonl": rows(lambda q, a: {
        "id": "i", "name": "chat", "input": {"messages": chat(q)},
        "output": {"role": "assistant", "content": a}}),
    "openai.jsonl": rows(lambda q, a: {"question": q, "response": completion(a)}),
    "openai-requests.jsonl": rows(lambda q, a: {
        "id": "batch_1", "request": {"model": "m", "messages": chat(q)}, "answer": completion(a)}),
    "mlflow.jsonl": rows(lambda q, a: {
        "inputs": {"question": q}, "outputs": {"response": a}, "expectations": {"expected_response": "e"}}),
    "mlflow-chats.jsonl": rows(lambda q, a: {"inputs": {"messages": chat(q)}, "outputs": completion(a)}),
    "promptfoo.json": {"evalId": "e", "results": {
        "version": 3, "prompts": [{"raw": "Say {{x}}", "label": "Say"}],
        "results": rows(lambda q, a: {
            "promptIdx": 0, "promptId": "abc", "provider": {"id": "o:m", "label": ""}, "vars": {"x": 1},
            "prompt": {"raw": q, "label": "Say {{x}}"}, "response": {"output": a, "tokenUsage": {"total": 9}},
            "success": True, "gradingResult": {"pass": True, "score": 1, "componentResults": []}}),
    }},
    "lm-eval.jsonl": rows(lambda q, a: {
        "doc_id": 0, "doc": {"question": q, "answer": "gold"}, "target": "gold", "arguments": [[q, {}]],
        "resps": [[f" {a} "]], "filtered_resps": [a], "exact_match": 0.0}),
    "langsmith.jsonl": rows(lambda q, a: {
        "inputs": {"question": q}, "example": {"outputs": {"answer": "gold"}},
        "run": {"outputs": {"output": a}}}),
    "helm.json": {"adapter_spec": {"model": "m"}, "request_states": rows(lambda q, a: {
        "instance": {"references": [{"output": {"text": "gold"}}]}, "request": {"prompt": q},
        "result": {"completions": [{"text": a, "logprob": -1}]}})},
    "openai-evals.jsonl": rows(lambda q, a: {
        "run_id": "r", "type": "sampling", "data": {"prompt": chat(q), "sampled": [a]}}),
    "questions of a run.json": {"name": "run", "pairs": rows(lambda q, a: {"question": q, "answer": a})},
    "a task's results.json": {"task": "t", "results": {"samples": rows(lambda q, a: {
        "question": q, "answer": a})}},
    "evaluations.json": {"Evaluations": rows(lambda q, a: {"query": q, "completion": a})},
}  # fmt: skip


def stored(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    lines = [content] if isinstance(content, dict) else content
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("name", FILES)
def test_proposed_options_give_every_row_its_prompt_and_its_answer(tmp_path: Path, name: str) -> None:
    path = stored(tmp_path, name, FILES[name])
    with pytest.raises(ValueError, match="map them with ") as raised:
        inspected(path)
    options = re.sub("; the rows are .*", "", str(raised.value)).partition("map them with ")[2]
    columns = shlex.split(options)[1::2]
    _, read = inspected(path, *columns)
    tasks = [read_task(row.fields, default_id="1", columns=Columns.parse(columns)) for row in read]
    assert [(one.prompt[-1].content, *one.candidates) for one in tasks] == [
        (f"q{n}", f"a{n}") for n in range(COUNT)
    ]
    assert all(one.gold.get("rating", 1) == 1 for one in tasks)


NOTHING: dict[str, Any] = {
    "one question of a run.json": {"name": "run", "pairs": [{"question": "q", "answer": "a"}]},
    "answers of the data.jsonl": rows(lambda q, a: {"doc": {"question": q, "answer": a}, "target": a}),
    "items without answers.jsonl": rows(lambda q, a: {
        "id": "i", "input": {"messages": chat(q)}, "expectedOutput": {"role": "assistant", "content": a}}),
    "objects as answers.jsonl": rows(lambda q, a: {"question": q, "answer": {"city": a, "country": "it"}}),
    "objects as responses.jsonl": rows(lambda q, a: {"request": q, "response": {"city": a, "country": "it"}}),
    "a row without answer.jsonl": [
        *rows(lambda q, a: {"question": q, "answer": a})[:2], {"question": "q", "answer": None}],
    "the prompt as answer.jsonl": rows(lambda q, a: {"question": q, "answer": q}),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_options_that_do_not_fit_every_row_are_not_proposed(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"no row has|is an object") as raised:
        inspected(stored(tmp_path, name, NOTHING[name]))
    options = str(raised.value).partition("map them with ")[2]
    assert not options or "responses=COLUMN,COLUMN" in options
