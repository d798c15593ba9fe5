"""The real vLLM server on a CPU: ids and logprobs over HTTP, and a server that dies under a judge."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from tests.tirjudge.judge_command import pairs, results, write_rows
from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_qwen3
from tests.vllm_server import HEAD, kill, serving
from tirjudge.cli.judge import judge
from tirjudge.generation import ContextTooLong, Sampling
from tirjudge.generation.endpoint import http
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge_environments import Context, Prompt

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]
TOKENIZER = bpe_tokenizer("print the answer and then the preference", "```python\nprint(1)\n```\n" * 3)
POSITIONS = 8192
ROWS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served")
    shape = {"head_dim": HEAD, "max_position_embeddings": POSITIONS}
    tiny_qwen3(len(TOKENIZER), tie_word_embeddings=True, **shape).save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with serving(folder) as (process, url):
        yield process, url


def logprobs(folder: Path, ids: list[int], written: tuple[int, ...], temperature: float) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.tensor([[*ids, *written]])).logits[0, len(ids) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(written)[:, None])[:, 0]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_ids_and_processed_logprobs_over_http(
    temperature: float, folder: Path, server: tuple[Any, str]
) -> None:
    generator = OpenAIGenerator(str(folder), server[1], tokenizer=str(folder))
    ids = [5, 17, 30, 44, 9]
    try:
        completion = await generator.generate(
            Context(Prompt(messages=()), (), tuple(ids)), Sampling(temperature=temperature, max_tokens=32)
        )
        with pytest.raises(ContextTooLong):
            await generator.generate(Context(Prompt(messages=()), (), (5,) * POSITIONS), Sampling())
    finally:
        await generator.close()
    assert completion.token_ids is not None
    assert generator.encoder is not None
    exact = logprobs(folder, ids, completion.token_ids, temperature or 1.0)
    assert completion.logprobs == pytest.approx(exact.tolist(), abs=1e-4)
    assert completion.text == generator.encoder.decode(completion.token_ids)


def test_a_server_that_dies_under_a_judge_fails_its_rows(
    folder: Path, server: tuple[subprocess.Popen[bytes], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last of this file: the server is gone afterwards."""
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(http, "LONGEST_PAUSE", 0.002)
    process, url = server
    rows = write_rows(tmp_path / "rows.jsonl", pairs(ROWS))
    verdicts, failures = tmp_path / "verdicts.jsonl", tmp_path / "verdicts.jsonl.failed.jsonl"

    def kill_between_rows() -> None:
        while not verdicts.exists() or verdicts.read_bytes().count(b"\n") < 2:
            time.sleep(0.01)
        kill(process)

    killer = Thread(target=kill_between_rows)
    killer.start()
    words = f"--base-url {url} --model {folder} --tier completions --tokenizer {folder} --output {verdicts}"
    command = typer.Typer()
    command.command()(judge)
    judged = CliRunner().invoke(
        command, [str(rows), *words.split(), "--max-tokens", "400", "--concurrency", "4"]
    )
    killer.join()
    assert judged.exit_code == 1
    assert "generator_down" in judged.stderr
    assert "Traceback" not in judged.stderr
    whole, failed = results(verdicts), results(failures)
    assert 2 <= len(whole) < ROWS
    assert len(failed) >= 4, "the rows that were running should fail"
    assert {row["id"] for row in whole}.isdisjoint(row["id"] for row in failed)
