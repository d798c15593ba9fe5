"""The baselines of the smol judge: surface features, the nearest program, and the length."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from research.smol import baselines, surface
from research.smol.nearest import Nearest, credit, numbers, quoted, substituted
from tirjudge_sandbox import open_sandbox

LINES = "for name, r in zip('AB', responses):\n    print(name, sum(check(r)), 'of', len(check(r)))"
COMMAS = "def check(r):\n    return [',' not in r]\n" + LINES
WORDS = "def check(r):\n    return [len(r.split()) >= 40]\n" + LINES


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return pairs of two families: no comma, and at least a number of words."""
    draw, found = Random(seed), []
    for number in range(count):
        place, few = number % 2, draw.randint(3, 9)
        text = " ".join(draw.choices(["river", "stone", "light", "green", "walks", "slowly"], k=few + 3))
        if number % 4 < 2:
            prompt = f"Tell me about topic {number}. Use no commas in your answer."
            right, wrong, family = text, text.replace(" ", ", ", 1), "punctuation:no_comma"
        else:
            prompt = f"Tell me about topic {number}. Write at least {few + 3} words."
            right, wrong, family = text, " ".join(text.split()[:3]), "length_constraints:number_words"
        responses = [wrong, right] if place else [right, wrong]
        program = COMMAS if number % 4 < 2 else WORDS.replace("40", str(few + 3))
        found.append(
            {
                "id": str(number),
                "prompt": prompt,
                "responses": responses,
                "label": place,
                "families": [family],
                "demonstration": {"program": program, "kept": [1 - place, place], "of": 1},
            }
        )
    return found


def test_surface_features_learn_a_family_from_the_words_of_the_prompt():
    choices = surface.fitted_on_training(rows(120, 0), rows(40, 1))
    assert sum(baselines.chosen(rows(40, 1), choices)) >= 38


def test_cross_validation_does_not_see_the_labels_of_its_fold():
    draw = Random(3)
    coin = [row | {"responses": ["a b c", "a b c d"], "label": draw.randrange(2)} for row in rows(200, 2)]
    right = sum(baselines.chosen(coin, surface.cross_validated(coin)))
    assert 70 <= right <= 130


def test_literals_are_substituted_by_their_place_in_the_prompt():
    old = 'Use at least 40 words and the word "river" three times.'
    new = "Use at least 25 words and the word 'stone' two times."
    program = "ok = len(r.split()) >= 40 and r.count('river') == 3 and r.count(',') < 7"
    assert (
        substituted(program, old, new)
        == "ok = len(r.split()) >= 25 and r.count('stone') == 2 and (r.count(',') < 7)"
    )
    assert substituted("not python (", old, new) == "not python ("
    assert (numbers("Two of 30, then seven"), quoted("\"a\" and 'b c' but don't")) == (
        [2, 30, 7],
        ["a", "b c"],
    )


async def test_the_nearest_program_decides_in_the_sandbox():
    nearest = Nearest(rows(40, 0))
    async with open_sandbox() as sandbox:
        found = [await credit(nearest, row, sandbox) for row in rows(12, 5)]
    assert [value for value, end in found if end == "decided"].count(1.0) >= 10
    assert {end for _, end in found} <= {"decided", "tie"}


def test_the_command_measures_all_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "broken.development.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows(24, 9)))
    with gzip.open(tmp_path / "train.jsonl.gz", "wt") as lines:
        lines.writelines(f"{json.dumps(row)}\n" for row in rows(80, 0))
    words = ["baselines", str(tmp_path), "--train", str(tmp_path / "train.jsonl.gz")]
    monkeypatch.setattr("sys.argv", [*words, "--output", str(tmp_path / "lines.json")])
    baselines.main()
    lines = {line["baseline"]: line for line in json.loads((tmp_path / "lines.json").read_text())}
    assert set(lines) == {
        "longer response",
        "surface, fitted on the set itself",
        "surface, fitted on training pairs",
        "nearest program",
    }
    assert all(line["n"] == 24 and line["low"] <= line["accuracy"] <= line["high"] for line in lines.values())
    assert lines["surface, fitted on training pairs"]["accuracy"] > 0.9
    assert "| broken | development | nearest program | 24 |" in capsys.readouterr().out
