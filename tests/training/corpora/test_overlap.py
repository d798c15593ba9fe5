"""Decontamination finds the planted overlaps and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pyarrow
import pyarrow.parquet
import pytest

from tests.tirjudge.judge_command import command
from tirjudge_training.corpora.decontamination import Overlap, OverlapIndex, Text, words

WORDS = [f"word{number}" for number in range(5000)]


def sentence(rng: Random, length: int) -> list[str]:
    return [rng.choice(WORDS) for _ in range(length)]


def index(*texts: str, **options: int) -> OverlapIndex:
    return OverlapIndex([Text("bench", str(i), text) for i, text in enumerate(texts)], **options)


def shared(one: Iterable[str], other: Iterable[str], n: int) -> bool:
    """An independent implementation of the rule, on the words themselves."""
    first, second = list(one), list(other)
    runs = {tuple(first[i : i + n]) for i in range(len(first) - n + 1)}
    return any(tuple(second[i : i + n]) in runs for i in range(len(second) - n + 1))


def test_every_planted_overlap_is_found_and_no_control_is_dropped() -> None:
    """100 prompts share eight words in a row with a benchmark at any position, 100 share seven."""
    rng = Random(0)
    texts = [sentence(rng, rng.randint(8, 60)) for _ in range(100)]
    known = index(*map(" ".join, texts))
    for number in range(200):
        planted, source = number % 2 == 0, rng.choice(texts)
        n = 8 if planted else 7
        start = rng.randint(0, len(source) - n)
        around = [sentence(rng, rng.randint(1, 20)) for _ in range(2)]
        prompt = [*around[0], *source[start : start + n], *around[1]]
        assert (known.find([" ".join(prompt)]) is not None) == planted
        assert any(shared(prompt, text, 8) for text in texts) == planted


def test_an_overlap_names_the_benchmark_row_and_the_shared_words() -> None:
    known = index("nothing of it", "Write a poem about the sea, in which every line ends in a vowel!")
    found = known.find(["Please write me: a Poem about the SEA in which -- every line is blue"])
    assert found == Overlap("bench", "1", "a poem about the sea in which every")


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("How many legs has a spider?", True),
        ("how many LEGS has a spider", True),
        ("Tell me: how many legs has a spider?", False),
        ("", False),
        ("???", False),
    ],
)
def test_a_text_of_fewer_words_is_compared_as_a_whole(prompt: str, found: bool) -> None:
    assert (index("How many legs has a spider?").find([prompt]) is not None) == found


def test_words_are_compared_without_case_punctuation_and_compatibility_forms() -> None:
    assert words("Ｆｕｌｌ-width, Straße_2  naïve\u00a0x²") == [
        "full",
        "width",
        "strasse",
        "2",
        "naïve",
        "x2",
    ]
    assert words("東京はどこ") == ["東", "京", "は", "ど", "こ"]


def test_a_run_of_words_does_not_span_messages() -> None:
    known = index("one two three four five six seven eight")
    assert known.find(["one two three four", "five six seven eight"]) is None


def test_words_of_a_template_are_ignored_on_request() -> None:
    ask = "answer with a single letter and nothing else please"
    known = index(*(f"{ask} {' '.join(sentence(Random(i), 12))}" for i in range(20)), common=10)
    assert known.find([f"{ask} which planet is largest"]) is None
    own = " ".join(sentence(Random(3), 12))
    assert known.find([f"a new question {own}"]) is not None
    strict = index(*(f"{ask} {i}" for i in range(20)))
    assert strict.find([f"{ask} which planet is largest"]) is not None


def test_the_command_lists_dropped_rows_with_reasons(tmp_path: Path) -> None:
    rows, bench, clean = (tmp_path / name for name in ("rows.jsonl", "bench.jsonl", "clean.jsonl"))
    ask = "name the largest planet of our own solar system"
    bench.write_text(json.dumps({"question": f"Please {ask}!"}))
    kept = {"prompt": "name the largest planet", "more": 1}
    chat = {"prompt": [{"role": "system", "content": ask}, {"role": "user", "content": "hello"}]}
    rows.write_text("".join(json.dumps(row) + "\n" for row in (kept, {"prompt": f"So {ask}"}, chat)))
    words = [str(rows), "--output", str(clean), "--against", f"{bench}:question"]
    result = command("data", "decontaminate", *words, code=0)
    assert "3 rows, 1 dropped" in result.output
    assert [json.loads(line) for line in clean.read_text().splitlines()] == [kept, chat]
    (dropped,) = map(json.loads, (tmp_path / "clean.jsonl.dropped.jsonl").read_text().splitlines())
    assert dropped["row"] == f"{rows}:2"
    assert dropped["words"] == "name the largest planet of our own solar"


def test_a_column_that_json_cannot_hold_is_named(tmp_path: Path) -> None:
    rows, bench, clean = (tmp_path / name for name in ("rows.parquet", "bench.jsonl", "clean.jsonl"))
    bench.write_text(json.dumps({"prompt": "hello"}))
    table = pyarrow.table({"id": [1], "prompt": ["Name a planet."], "written": [b"\xff"]})
    pyarrow.parquet.write_table(table, rows)
    words = [str(rows), "--output", str(clean), "--against", str(bench)]
    result = command("data", "decontaminate", *words, code=3)
    assert f"{rows}, item 1: written: Object of type bytes is not JSON" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not clean.exists()
