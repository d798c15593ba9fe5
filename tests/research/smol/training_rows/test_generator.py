"""The generator: the same seed gives the same bytes, splits do not mix, and benchmarks stay out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from research.smol.training_rows.__main__ import main
from research.smol.training_rows.families.registry import FAMILIES
from research.smol.training_rows.generator import Generator, compressed, drawn_families
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


def test_families_that_are_left_out_appear_nowhere(tmp_path: Path) -> None:
    without = tuple(drawn_families(20, 1))
    rows = generator(tmp_path, without=without).make("train", 60)
    found = {name for row in rows for name in row.families}
    assert found - {"mbpp", "general"} <= set(FAMILIES) - set(without)
    assert drawn_families(5, 1) == drawn_families(5, 1)
    assert drawn_families(5, 1) != drawn_families(5, 2)


def test_a_benchmark_prompt_of_a_source_is_dropped_and_counted(tmp_path: Path) -> None:
    made = generator(tmp_path)
    assert made.report.shared["self-instruct"].total() == 1
    assert BENCHMARK_PROMPT not in {row.prompt for row in made.make("train", 40)}


def test_the_command_writes_three_files_and_a_card(tmp_path: Path) -> None:
    sources = write_sources(tmp_path)
    output = tmp_path / "out"
    main(["--sources", str(sources), "--output", str(output), "--scale", "0.006"])
    for name in ("warmup", "train", "heldout"):
        with gzip.open(output / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        assert rows
        assert len({row["id"] for row in rows}) == len(rows)
    card = (output / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "CC BY 4.0" in card
    assert "--seed 0 --scale 0.006" in card


@pytest.mark.parametrize("broken", ["missing", "benchmarks", "mbpp.jsonl", "family"])
def test_a_bad_input_gives_one_line(tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    sources = write_sources(tmp_path)
    words = ["--sources", str(sources), "--output", str(tmp_path / "out")]
    if broken == "missing":
        words[1] = str(tmp_path / "nowhere")
    elif broken == "benchmarks":
        (tmp_path / "benchmarks" / "ifeval" / "input_data.jsonl").unlink()
    elif broken == "mbpp.jsonl":
        (sources / "mbpp" / "mbpp.jsonl").write_text("{not json\n")
    else:
        words += ["--without", "punctuation:no_semicolon"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(lines) == 1
    assert not (tmp_path / "out").exists()
    assert {
        "missing": "nowhere",
        "benchmarks": "--benchmarks",
        "mbpp.jsonl": "line 1",
        "family": "no_semicolon",
    }[broken] in lines[0]
