"""`tirjudge train` with the rationale judge: its real prompt, rows with checklists, and an HTTP MetaJudge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, serving
from tests.tirjudge.judge_command import command
from tests.training.conftest import tiny_qwen, tokenizer_of_words
from tests.training.fitting import fit
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Rationale
from tirjudge_environments.tasks import read_task
from tirjudge_environments.tokenization import ChatEncoder

RECIPE = """
[model]
base = "{base}"
[data]
train = "{rows}"
[environments.rationale]
name = "rationale"
options = {{ order = "given" }}
[meta_judge]
model = "meta"
base_url = "{url}"
[rl]
steps = 1
groups = 2
samples = 4
micro_batch = 4
beta = 0.0
loss = "sequence"
epsilon = 2e-4
epsilon_high = 2e-4
filter = "none"
max_tokens = 40
"""
ROWS = [
    {
        "prompt": f"q{i}",
        "response_a": "1",
        "response_b": "2",
        "label": "A>>B",
        "checklist": ["Response 2 errs"],
    }
    for i in range(20)
]
RESULT = "List of reasons:\n- Response B errs\nFinal assessment result:\n\\boxed"
ANSWERS = [f"<RESULT_START>\n{RESULT}{{{box}}}\n<RESULT_END>" for box in ("A>B", "B>>A")]


def base(folder: Path) -> Path:
    """A model that gives one of two answers, each a single token, to the judge's real prompt."""
    tokenizer = tokenizer_of_words(ANSWERS)
    model, encoder, judge = (
        tiny_qwen(tokenizer, positions=4096),
        ChatEncoder(tokenizer),
        Rationale(order="given"),
    )
    task = read_task(ROWS[0], default_id="0")
    start = list(encoder.prompt(judge.prompt(task, judge.views(task)[0])))
    fit(model, [(start, [256 + i, tokenizer.eos_token_id]) for i in range(2)], tokenizer.pad_token_id)
    model.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    return folder / "base"


def train(folder: Path, server: EndpointServer, model: Path) -> Any:
    rows, recipe = folder / "rows.jsonl", folder / "mine.toml"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    recipe.write_text(RECIPE.format(base=model, rows=rows, url=server.url))
    return command("train", "--recipe", recipe, "--output", folder / "run")


@pytest.mark.slow
def test_a_run_stops_without_its_metajudge_and_resumes_when_it_is_back(tmp_path: Path) -> None:
    model = base(tmp_path)
    with serving() as server:
        server.answers(failure(401, "no such key"))
        stopped = train(tmp_path, server, model)
        assert stopped.exit_code == 1, stopped.output
        assert "tirjudge train: meta refuses all questions: " in stopped.stderr
        server.answers(chat("<RESULT_START>\nScores for each claim:\n- R1@S1: 0.75\n<RESULT_END>"))
        done = train(tmp_path, server, model)
        assert done.exit_code == 0, done.output
    (metrics,) = read_lines(tmp_path / "run" / "rl" / "metrics.jsonl")
    assert metrics["reward/rationale"] == 1.0
    assert metrics["reward/consistency"] == 0.75
    assert 0 < metrics["reward/teaches"] < 1
    assert metrics["reward"] == metrics["reward/teaches"], "the reward is AP times the outcome"
    (asked,) = read_lines(tmp_path / "run" / "rl" / "asked.jsonl")
    assert asked["model"] == "meta"
