"""The comparison of judging speeds on a CPU reads a file of rows and measures every way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import judging_speed
from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_llama
from tirjudge_environments.session import Transcript


def test_every_way_judges_the_rows_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_llama(seed=3).save_pretrained(tmp_path / "model")
    bpe_tokenizer().save_pretrained(tmp_path / "model")
    rows = [{"id": str(n), "prompt": "Hi", "responses": ["a", "b"], "label": 0} for n in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        str(tmp_path / "rows.jsonl"),
        "--model",
        str(tmp_path / "model"),
        "--counts",
        "2",
        "--repeats",
        "1",
    ]
    monkeypatch.setattr("sys.argv", ["judging_speed", *words])
    judging_speed.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("rows/s")[0].split()[:3] for line in lines] == [
        ["2", "rows", "one"],
        ["2", "rows", "two"],
        ["2", "rows", "generate"],
    ]
    assert lines[0].endswith("same verdict 2 of 2")


def test_llama_cpp_is_fed_a_dialogue_up_to_each_token_of_the_model() -> None:
    transcript = Transcript(
        prompt_ids=(1, 2), completion_ids=(3, 4, 50, 51, 5), mask=(1, 1, 0, 0, 1), logprobs=None
    )
    # The prompt, then one token at a time, and what the sandbox printed together with the token before it.
    assert list(judging_speed.pieces(transcript)) == [([1, 2], 3), ([3], 4), ([4, 50, 51], 5)]
