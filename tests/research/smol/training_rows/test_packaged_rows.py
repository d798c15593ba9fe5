"""The packaged files keep the contract of their rows, and no prompt of them is a benchmark's."""

from __future__ import annotations

import json
import lzma
import random
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from research.smol.training_rows.rows import Draft, confirmed
from tests.tirjudge.benchmark_data import benchmark_file
from tirjudge_environments.instruction_checks import IFEVAL, followed, open_verifier
from tirjudge_training.corpora.decontamination import OverlapIndex, Text

FOLDER = files("tirjudge_training").joinpath("smol")
NAMES = ("warmup", "train", "heldout")
WITHOUT_ARGUMENTS = (
    "punctuation:no_comma",
    "detectable_format:title",
    "detectable_format:json_format",
    "detectable_format:constrained_response",
    "combination:two_responses",
    "startend:quotation",
    "change_case:english_lowercase",
    "change_case:english_capital",
)


@cache
def rows(name: str) -> list[dict[str, Any]]:
    path = FOLDER.joinpath(f"{name}.jsonl.xz")
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def draft(row: dict[str, Any]) -> Draft:
    own = {key: row[key] for key in ("prompt", "responses", "label", "domain", "environment", "families")}
    return Draft(**own, source="", **row["demonstration"])


def test_the_files_take_at_most_two_megabytes() -> None:
    assert sum(len(FOLDER.joinpath(f"{name}.jsonl.xz").read_bytes()) for name in NAMES) <= 2_000_000


@pytest.mark.parametrize("name", NAMES)
def test_rows_keep_their_contract(name: str) -> None:
    for row in rows(name):
        shown = row["demonstration"]
        assert set(row) == {
            *("id", "prompt", "responses", "label", "domain", "environment", "families", "demonstration")
        }
        count = len(row["responses"])
        assert count == 2 or row["environment"] == "tir-listwise"
        assert 2 <= count <= 4
        assert len(set(row["responses"])) == count
        assert all(response.strip() for response in row["responses"])
        assert 0 <= row["label"] < count
        if row["families"] == ["general"]:
            assert row["domain"] == "helpfulness"
            assert shown == {"program": None, "kept": None, "of": None}
            continue
        assert row["domain"] == ("code" if row["families"] == ["mbpp"] else "instruction-following")
        assert row["domain"] == "code" or (
            {name for name in row["families"] if not name.startswith("own:")} <= set(IFEVAL)
            and shown["of"] == len(row["families"])
        )
        kept = shown["kept"]
        assert len(kept) == count
        assert max(kept) <= shown["of"]
        assert kept[row["label"]] == max(kept)
        assert kept.count(max(kept)) == 1
        assert "```" not in shown["program"].splitlines()[0]


def test_no_prompt_is_in_two_files() -> None:
    found = Counter(
        prompt
        for name in NAMES
        for prompt in {row["prompt"] for row in rows(name) if "mbpp" not in row["families"]}
    )
    shared = [prompt for prompt, count in found.items() if count > 1]
    # Public instructions without constraints may serve as general preferences twice.
    general = {row["prompt"] for name in NAMES for row in rows(name) if row["families"] == ["general"]}
    assert not set(shared) - general
    held = {row["prompt"] for row in rows("heldout")}
    assert not held & {row["prompt"] for name in ("warmup", "train") for row in rows(name)}


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_those_of_the_verifiers(name: str) -> None:
    """For families without arguments, the verifier is opened from the row alone."""
    counted = 0
    for row in rows(name):
        if len(row["families"]) == 1 and row["families"][0] in WITHOUT_ARGUMENTS:
            check = open_verifier(row["families"][0])
            kept = [sum(followed([check], response).strict) for response in row["responses"]]
            assert kept == row["demonstration"]["kept"], row["id"]
            counted += 1
        if counted == 60:
            break
    assert counted >= 20


@pytest.mark.parametrize("name", NAMES)
def test_programs_print_what_the_row_says(name: str) -> None:
    sample = random.Random(0).sample(rows(name), 80)
    assert all(confirmed([draft(row) for row in sample], lambda line: None))


def test_the_best_response_is_neither_always_first_nor_always_longest() -> None:
    pairs = [row for row in rows("train") if row["environment"] == "tir-pairwise"]
    first = sum(row["label"] == 0 for row in pairs) / len(pairs)
    longest = sum(
        max((0, 1), key=lambda at: len(row["responses"][at])) == row["label"] for row in pairs
    ) / len(pairs)
    assert 0.45 < first < 0.55
    assert 0.43 < longest < 0.57


def test_no_prompt_shares_eight_words_with_ifeval() -> None:
    path = benchmark_file("ifeval/input_data.jsonl")
    prompts = [json.loads(line)["prompt"] for line in path.read_text().splitlines()]
    index = OverlapIndex(Text("ifeval", str(number), prompt) for number, prompt in enumerate(prompts))
    assert index.find([prompts[0]]) is not None
    for name in NAMES:
        for row in rows(name):
            assert index.find([row["prompt"]]) is None, row["id"]
