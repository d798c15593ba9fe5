"""The generator: the same seed gives the same bytes, splits do not mix, and benchmarks stay out."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from research.smol.training_rows.__main__ import main
from research.smol.training_rows.generator import Generator, compressed
from tests.research.smol.training_rows.sources import BENCHMARK_PROMPT, write_sources


def generator(folder: Path, seed: int = 3, without: tuple[str, ...] = ()) -> Generator:
    sources = folder / "corpora"
    if not sources.exists():
        write_sources(folder)
    return Generator(sources, folder / "benchmarks", seed=seed, without=without, say=lambda line: None)


def test_the_rows_are_a_function_of_the_seed(tmp_path: Path) -> None:
    first, again, other = (
        compressed(generator(tmp_path, seed).make("train", 40), "train") for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_rows_have_the_shares_that_were_asked_for(tmp_path: Path) -> None:
    made = generator(tmp_path)
    rows = made.make("warmup", 100)
    assert 90 <= len(rows) <= 100
    formats = [row.environment for row in rows]
    assert 50 <= formats.count("tir-pairwise") <= 65
    assert 15 <= formats.count("tir-listwise") <= 25
    assert 15 <= formats.count("tir-pointwise") <= 25
    assert sum(row.families == ["general"] for row in rows) == 13
    positions = [row.label for row in rows if row.environment == "tir-pairwise"]
    assert 0.3 < sum(positions) / len(positions) < 0.7
    assert made.report.rows["warmup"] == rows


def test_held_out_rows_share_no_request_with_the_other_files(tmp_path: Path) -> None:
    made = generator(tmp_path)
    trained = {row.prompt for name in ("warmup", "train") for row in made.make(name, 40)}
    held = {row.prompt for row in made.make("heldout", 40)}
    assert not trained & held
    code = [row for row in made.report.rows["heldout"] if row.domain == "code"]
    assert all("add_52" in row.prompt for row in code)
    assert not any("add_52" in prompt for prompt in trained)
    # Task 20 is one of the 500 of the test split.
    assert not any("add_20" in prompt for prompt in trained | held)


def test_a_benchmark_prompt_of_a_source_is_dropped_and_counted(tmp_path: Path) -> None:
    made = generator(tmp_path)
    assert made.report.shared["self-instruct"].total() == 1
    assert BENCHMARK_PROMPT not in {row.prompt for row in made.make("train", 40)}


def test_the_command_writes_three_files_and_a_card(tmp_path: Path) -> None:
    sources = write_sources(tmp_path)
    output = tmp_path / "out"
    main(["--sources", str(sources), "--output", str(output), "--scale", "0.006"])
    for name in ("warmup", "train", "heldout"):
        with lzma.open(output / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        assert rows
        assert len({row["id"] for row in rows}) == len(rows)
    card = (output / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "CC BY 4.0" in card
    assert "--seed 0 --scale 0.006" in card
