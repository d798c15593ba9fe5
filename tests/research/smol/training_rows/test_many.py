"""The rows of many kinds: rules in one sentence, unedited responses, shapes of programs, packaged rows."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from research.smol.training_rows.families.base import Constraint, Family
from research.smol.training_rows.families.registry import FAMILIES
from research.smol.training_rows.kinds.registry import KINDS, follows, unseen
from research.smol.training_rows.many import ManyKinds, kinds_of, main
from research.smol.training_rows.prompts import run_on
from research.smol.training_rows.requests import MODELS, questions
from research.smol.training_rows.rows import Shape, confirmed, program
from tests.research.smol.training_rows.sources import write_sources
from tests.research.smol.training_rows.test_generator import generator

KEYWORDS = Constraint(
    FAMILIES["keywords:existence"], {"words": ["sea", "Noro"]}, "Include the keywords 'sea' and 'Noro'."
)
COMMAS = Constraint(FAMILIES["punctuation:no_comma"], {}, "Avoid commas.")


def test_all_rules_stand_in_one_sentence() -> None:
    made = {run_on("Is tea good?", [KEYWORDS, COMMAS], random.Random(seed)) for seed in range(500)}
    gaps, joints = ("", " ", "\n", "\n\n"), (", and ", " and ", ", ", "; and ")
    assert made == {
        f"Is tea good?{gap}Include the keywords 'sea' and 'Noro'{joint}avoid commas."
        for gap in gaps
        for joint in joints
    }


def test_a_name_keeps_its_capital_and_a_clause_gets_a_subject() -> None:
    name = Constraint(KEYWORDS.family, {"words": ["Noro"]}, "Noro must appear in the text.")
    made = {run_on("Go on.", [COMMAS, name], random.Random(seed)) or "" for seed in range(20)}
    assert all("Noro must appear" in prompt for prompt in made)
    clause = Constraint(COMMAS.family, {}, "not contain any commas")
    assert run_on("", [clause], random.Random(0)).strip().split(" not ")[0].split()[-1] in (
        *("should", "must"),
        "to",
    )


def test_a_rule_for_each_part_follows_their_number() -> None:
    number = Constraint(FAMILIES["own:numbered_list"], {}, "Write {n} steps.".replace("{n}", "4"))
    each = Constraint(KINDS["every:steps_digit"], {}, "each of which mentions a number", "tail")
    made = {run_on("Plan it.", [number, each, COMMAS], random.Random(seed)) for seed in range(200)}
    assert "Plan it.Write 4 steps, each of which mentions a number, and avoid commas." in made
    assert all("Write 4 steps, each of which mentions a number" in (prompt or "") for prompt in made)


def test_some_rows_have_a_number_of_parts_and_a_rule_for_each(tmp_path: Path) -> None:
    rows = ManyKinds(generator(tmp_path), 3).training(kinds_of(None), 120, run_on=1.0)
    found = [
        row
        for row in rows
        if any(follows(_family(one), _family(other)) for one, other in pairwise(row.families))
    ]
    assert 0.1 < len(found) / len(rows) < 0.4
    assert all(re.search(r", (and )?(each|every|where each) ", row.prompt) for row in found)


def _family(name: str) -> Family:
    return {**FAMILIES, **KINDS}.get(name, FAMILIES["punctuation:no_comma"])


def test_a_wording_of_two_sentences_is_left_to_other_prompts() -> None:
    long = Constraint(COMMAS.family, {}, "My file format breaks on commas. Leave them out.")
    assert run_on("Go on.", [KEYWORDS, long], random.Random(0)) is None


def test_rows_with_all_rules_in_one_sentence_often_ask_for_keywords(tmp_path: Path) -> None:
    rows = ManyKinds(generator(tmp_path), 3).training(kinds_of(None), 120, run_on=1.0)
    assert all(confirmed(rows, lambda line: None))
    several = [row for row in rows if len(row.families) > 1]
    assert 0.3 < sum("keywords:existence" in row.families for row in several) / len(several) < 0.8
    assert not any(name in KINDS and unseen(KINDS[name]) for row in rows for name in row.families)


def test_unedited_responses_are_those_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.smol.training_rows.many._UNEDITED", 1.0)
    monkeypatch.setattr("research.smol.training_rows.many._ATTACKED", 0.0)
    made = generator(tmp_path)
    rows = ManyKinds(made, 3).training(["length_constraints:number_words", *kinds_of(31)], 160, run_on=1.0)
    public = [text for row in rows if row.program for text in row.responses if text.startswith(MODELS)]
    written = {
        f"{model} says that matter {number} needs time. Think about it. " * (3 + number)
        for model in MODELS
        for number in range(16)
    }
    assert len(public) > 5
    assert set(public) <= {text.strip() for text in written}


@pytest.mark.parametrize(
    ("shape", "checks"),
    [
        ("list", 'return [all(w.lower() in r.lower() for w in ["sea", "Noro"]), "," not in r]'),
        (
            "lines",
            'return [\n        all(w.lower() in r.lower() for w in ["sea", "Noro"]),\n'
            '        "," not in r,\n    ]',
        ),
        (
            "quoted",
            "return [\n        # include the keywords 'sea' and 'Noro'\n"
            '        all(w.lower() in r.lower() for w in ["sea", "Noro"]),\n'
            '        # Avoid commas\n        "," not in r,\n    ]',
        ),
        (
            "rules",
            "# include the keywords 'sea' and 'Noro'\n# Avoid commas\ndef check(r):\n    "
            'return [all(w.lower() in r.lower() for w in ["sea", "Noro"]), "," not in r]',
        ),
    ],
)
def test_programs_of_every_shape_make_the_same_checks(shape: Shape, checks: str) -> None:
    prompt = "Avoid commas. Then include the keywords 'sea' and 'Noro'."
    source = program([KEYWORDS, COMMAS], "tir-pairwise", shape, prompt)
    assert checks in source
    # Words that the prompt does not hold are not quoted.
    assert program([KEYWORDS, COMMAS], "tir-pairwise", shape, "Go on.").count("#") == 0


def test_rows_are_the_same_for_every_shape(tmp_path: Path) -> None:
    drawn = {
        shape: ManyKinds(generator(tmp_path), 3, shape).training(kinds_of(None), 40, run_on=0.5)
        for shape in ("list", "quoted")
    }
    assert [row.prompt for row in drawn["list"]] == [row.prompt for row in drawn["quoted"]]
    assert [row.responses for row in drawn["list"]] == [row.responses for row in drawn["quoted"]]
    assert all(confirmed(drawn["quoted"], lambda line: None))


def test_a_first_program_leaves_rules_out_and_finds_a_tie(tmp_path: Path) -> None:
    drawn = {
        again: ManyKinds(generator(tmp_path), 3, again=again).training(kinds_of(None), 60)
        for again in (0.0, 1.0)
    }
    assert [row.prompt for row in drawn[0.0]] == [row.prompt for row in drawn[1.0]]
    assert not any(row.first for row in drawn[0.0])
    rows = [row for row in drawn[1.0] if row.first]
    assert len(rows) > 5
    assert {row.environment for row in rows} == {"tir-pairwise"}
    for row in rows:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(row.first or "", dict(row.bindings()[0]))
        (_, kept, _, of), (_, other, _, _) = (line.split() for line in out.getvalue().splitlines())
        assert kept == other
        assert int(of) < len(row.families)
        assert row.row("r")["demonstration"]["first"] == row.first


def test_questions_that_people_ask_are_among_the_requests(tmp_path: Path) -> None:
    rows = ManyKinds(generator(tmp_path), 3).training(kinds_of(31), 120, run_on=1.0)
    asked = {held: [one.text for one in questions() if one.held_out == held] for held in (False, True)}
    shares = {
        held: sum(any(text in row.prompt for text in texts) for row in rows) / len(rows)
        for held, texts in asked.items()
    }
    assert len(asked[True]) > 10
    assert shares[False] > 0.15
    assert shares[True] == 0


def test_the_command_adds_rows_of_the_package(tmp_path: Path) -> None:
    sources, output = write_sources(tmp_path), tmp_path / "mixed.jsonl.xz"
    words = ["--sources", str(sources), "--dialogues", "24", "--run-on", "0.5", "--packaged", "7"]
    main([*words, "--output", str(output)])
    with lzma.open(output, "rt", encoding="utf-8") as lines:
        names = [json.loads(line)["id"] for line in lines]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("smol-train-") for name in names) == 7
