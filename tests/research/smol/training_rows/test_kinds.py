"""The composed kinds of rules: their number, wordings, pieces, edits and programs, and which are held out."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from research.smol import sets, sources
from research.smol.sets import stored
from research.smol.splits import SPLITS
from research.smol.training_rows.families.base import Constraint
from research.smol.training_rows.families.registry import FAMILIES, worded
from research.smol.training_rows.kinds.registry import (
    KINDS,
    TRAINED_BEFORE,
    UNSEEN_GROUPS,
    UNSEEN_KINDS,
    draw_held_out,
    trained_kinds,
    unseen,
)
from research.smol.training_rows.kinds.tokens import UNITS
from research.smol.training_rows.many import ManyKinds, kinds_of, trained_attacks
from research.smol.training_rows.rows import PAIRWISE, Draft, confirmed, output_lines, program
from research.smol.training_rows.writing import Pen, compose
from tests.research.smol.training_rows.sources import BENCHMARK_PROMPT
from tests.research.smol.training_rows.test_generator import generator
from tirjudge_training.corpora.decontamination import OverlapIndex, Text

REQUEST = "Write about houseplants."
WORDS = """
    anchor basket copper dinner ending fabric garden harbour island jigsaw kitchen ladder
    market needle orange pencil quartz rather silver timber under velvet winter yellow
    sun action loved slowly baker running happy sea tide cold
"""
VOCABULARY = tuple(WORDS.split())
PARTS: dict[str, tuple[str, list[str]]] = {
    "sentences": ("It rained. Did it? Yes!\n\nSo we left", ["It rained.", "Did it?", "Yes!", "So we left"]),
    "lines": ("one\n\n two \nthree", ["one", " two ", "three"]),
    "paragraphs": ("one\ntwo\n\nthree\n\nfour", ["one\ntwo", "three", "four"]),
    "words": ("Don't stop, well-known man!", ["Don't", "stop", "well-known", "man"]),
    "items": ("Buy:\n- milk\n* two eggs\n• tea\n-none\n1. bread", ["milk", "two eggs", "tea"]),
    "headings": ("# One\ntext # no\n### Two", ["One", "Two"]),
    "steps": ("1. Open\n2) Close\n- Wait", ["Open", "Close"]),
    "numbers": ("7 of 250, not seven", ["7", "250"]),
    "emails": ("Ask j.weber@office.org or @sam", ["j.weber@office.org"]),
    "links": ("See https://a.org/b and www.c.org", ["https://a.org/b"]),
    "hashtags": ("#sea is not # sea", ["#sea"]),
    "prices": ("$20, €7 and 9 $", ["$20", "€7"]),
    "dates": ("2024-05-17 and 17.5.2024", ["2024-05-17"]),
    "times": ("9:15 or 14:30, not 9.15", ["9:15", "14:30"]),
    "phones": ("555-010-2233 and 5550102233", ["555-010-2233"]),
    "versions": ("2.4.1, not 2.4", ["2.4.1"]),
    "quotes": ("He said \"go now\" and 'no'", ['"go now"']),
    "asides": ("yes (maybe) and (no)", ["(maybe)", "(no)"]),
    "bolds": ("a **bold** *word*", ["**bold**"]),
    "blocks": ("```\na\n```\nand\n```py\nb\n```", ["```\na\n```", "```py\nb\n```"]),
    "checkboxes": ("- [ ] one\n- [x] two\n- three", ["- [ ] one", "- [x] two"]),
    "rows": ("| a | b |\nno | row\n| c |", ["| a | b |", "| c |"]),
    "greek": ("ο ήλιος and sun", ["ο", "ήλιος"]),
    "acronyms": ("The EU and Nato", ["EU"]),
}
"""Parts of a text by unit, written by hand."""
BOUNDARIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "every:lines_words": ({"sign": "<=", "value": 3}, "one two three\nfour", "one two three four\nfive"),
    "every:items_capital": ({}, "- Milk\n- Eggs", "- Milk\n- eggs"),
    "every:sentences_end_mark": ({"value": "!"}, "Go! Run!", "Go! Run."),
    "some:words_characters": (
        {"sign": ">=", "value": 6, "relation": "==", "n": 1},
        "one kitchen",
        "silver kitchen",
    ),
    "placed:last_sentences_contains": ({"value": "sea"}, "Hello. To the Sea.", "To the sea. Hello."),
    "placed:second_paragraphs_end_mark": ({"value": "?"}, "a.\n\nb?\n\nc.", "a?\n\nb.\n\nc?"),
    "sorted:numbers_rising": ({}, "2, 10, 30", "2, 30, 10"),
    "sorted:items_alphabet": ({}, "- apple\n- Bread\n- corn", "- Bread\n- apple\n- corn"),
    "distinct:lines_heads": ({}, "one a\ntwo a", "one a\nOne b"),
    "count:commas": ({"relation": "..", "n": 2, "b": 3}, "a, b, c", "a, b"),
    "rule:json_range": ({"key": "stars", "low": 1, "high": 5}, '{"stars": 5}', '{"stars": "5"}'),
    "rule:json_sorted": ({}, '{"a": 1, "b": 2}', '{"b": 1, "a": 2}'),
    "rule:csv_columns": ({"n": 2}, "name,city\nAnna,Oslo", "name,city\nAnna,Oslo,4"),
    "rule:table_rows": (
        {"sign": "==", "n": 1},
        "| Name | City |\n| --- | --- |\n| Anna | Oslo |",
        "| Name | City |\n| --- | --- |",
    ),
    "rule:xml_root": ({"tag": "note"}, "<note><a>1</a></note>", "<notes><a>1</a></notes>"),
    "rule:sum": ({"n": 20}, "12 and 8", "12 and 9"),
    "rule:acrostic": ({"word": "SUN"}, "So\nup\nnow", "So\nup\nyes"),
    "rule:greeting": ({"word": "Dear", "name": "Tom"}, "Dear Tom,\nhi", "Dear Tom\nhi"),
}
"""Arguments of kinds, a text that keeps the rule and one that breaks it narrowly, written by hand."""


def pen(seed: object) -> Pen:
    return Pen(random.Random(str(seed)), "houseplants", "home", vocabulary=VOCABULARY)


def holds_in_program(constraint: Constraint, responses: list[str]) -> list[bool]:
    kept = [1, 0]
    found = []
    for good, bad in (responses, responses[::-1]):
        draft = Draft(REQUEST, [good, bad], 0, "", PAIRWISE, [], "", program([constraint], PAIRWISE), kept, 1)
        found.append(confirmed([draft], lambda line: None)[0])
    return found


def test_there_are_more_than_150_kinds_besides_the_families() -> None:
    assert len(KINDS) >= 150 + 24
    assert len(trained_kinds()) + len(FAMILIES) >= 150
    assert not set(KINDS) & set(FAMILIES)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_at_least_five_wordings(name: str) -> None:
    kind, seen = KINDS[name], set()
    for seed in range(60):
        one = pen(f"{name}/{seed}")
        constraint = worded(kind, compose(one, "text", 60), REQUEST, one, "sentence")
        assert not re.search(r"\{(?!\{)\w+\}(?!\})", constraint.wording.replace("{number}", "")), (
            constraint.wording
        )
        values = [str(value) for value in constraint.given.values() if isinstance(value, str | int)]
        words = re.sub(r"\d+", "N", constraint.wording)
        for value in sorted(values, key=len, reverse=True):
            words = words.replace(value, "V") if len(value) > 2 and value not in ("words", "lines") else words
        seen.add(words.lower())
    assert len(seen) >= 5, seen


@pytest.mark.parametrize("name", PARTS)
def test_a_unit_finds_its_parts_in_labels_and_in_programs(name: str) -> None:
    text, parts = PARTS[name]
    unit = UNITS[name]
    assert unit.parts(text) == parts
    names: dict[str, Any] = {"re": re}
    exec(unit.definition, names)
    assert names[name](text) == parts


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_rule_is_kept_up_to_its_boundary_and_no_further(name: str) -> None:
    given, good, bad = BOUNDARIES[name]
    constraint = Constraint(KINDS[name], given, "")
    assert [constraint.verified(text) for text in (good, bad)] == [True, False]
    assert holds_in_program(constraint, [good, bad]) == [True, False]


def test_edits_keep_and_break_every_kind_and_the_sandbox_agrees() -> None:
    drafts = []
    for name, kind in KINDS.items():
        for seed in range(5):
            one = pen(f"{name}/{seed}")
            text = compose(one, one.rng.choice(["text", "list", "letter"]), one.rng.choice([40, 90, 150]))
            constraint = worded(kind, text, REQUEST, one, "sentence")
            good = _edited(constraint, text, True, one)
            bad = good and _edited(constraint, good, False, one)
            if good and bad:
                drafts.append(
                    Draft(
                        REQUEST,
                        [good, bad],
                        0,
                        "",
                        PAIRWISE,
                        [name],
                        "",
                        program([constraint], PAIRWISE),
                        [1, 0],
                        1,
                    )
                )
    assert len(drafts) >= 4.6 * len(KINDS)
    agreed = confirmed(drafts, lambda line: None)
    assert sum(agreed) >= 0.98 * len(drafts)
    assert {draft.families[0] for draft, agrees in zip(drafts, agreed, strict=True) if agrees} == set(KINDS)


def _edited(constraint: Constraint, text: str, keep: bool, one: Pen) -> str | None:
    for _ in range(6):
        changed = text
        for _ in range(3):
            changed = constraint.edit(changed, keep, one).strip()
        if constraint.verified(changed) == keep:
            return changed
    return None


def test_the_held_out_kinds_and_groups_are_the_seeded_draw() -> None:
    assert draw_held_out() == (UNSEEN_KINDS, UNSEEN_GROUPS)
    assert len(UNSEEN_KINDS) == 24
    assert len(UNSEEN_GROUPS) == 2
    assert not set(UNSEEN_GROUPS) & TRAINED_BEFORE
    assert not any(unseen(KINDS[name]) for name in kinds_of(None) if name in KINDS)


def test_training_rows_hold_no_unseen_kind_and_no_benchmark_prompt(tmp_path: Path) -> None:
    made = ManyKinds(generator(tmp_path), 3)
    rows = made.training(kinds_of(None), 240)
    assert all(confirmed(rows, lambda line: None))
    families = Counter(name for row in rows for name in row.families)
    assert not any(name in KINDS and unseen(KINDS[name]) for name in families)
    assert sum(name in KINDS for name in families) > 40
    assert sum(name in FAMILIES for name in families) > 20
    assert not any(BENCHMARK_PROMPT in row.prompt for row in rows)
    assert max(len(row.families) for row in rows) == 4
    attacked = {tag for row in rows for tag in row.tags}
    assert attacked
    assert len(trained_attacks()) == 4


def test_the_first_kinds_are_those_of_a_smaller_number() -> None:
    assert kinds_of(31) == list(FAMILIES)
    assert kinds_of(75) == kinds_of(150)[:75]
    assert len(set(kinds_of(150))) == 150


def test_unseen_pairs_hold_only_unseen_kinds_and_their_programs_confirm_the_labels() -> None:
    rows = [row for split in SPLITS for row in stored("unseen", split)]
    held = {kind.id for kind in KINDS.values() if unseen(kind)}
    assert {name for row in rows for name in row["families"]} == held
    assert not any("demonstration" in row for row in rows)
    whole = [json.loads(line) for line in _stored_lines("unseen.jsonl.xz")]
    for row in random.Random(0).sample(whole, 60):
        shown = row["demonstration"]
        draft = Draft(row["prompt"], row["responses"], row["label"], "", PAIRWISE, [], "", **shown)
        assert confirmed([draft], lambda line: None) == [True]
        assert shown["kept"][row["label"]] > shown["kept"][1 - row["label"]]


def test_everyday_rows_are_labelled_by_their_checks() -> None:
    rows = [json.loads(line) for line in _stored_lines("everyday.jsonl")]
    assert len(rows) == len({row["id"] for row in rows}) == 60
    assert Counter(row["families"][0] for row in rows) == dict.fromkeys(
        ("support", "summary", "email", "code", "json"), 12
    )
    drafts = []
    for row in rows:
        body = "\n".join(
            f"    try: found.append(bool({check}))\n    except Exception: found.append(False)"
            for check in row["checks"]
        )
        check = f"def check(r):\n    found = []\n{body}\n    return found"
        source = f"import json, re\n{check}\n{output_lines(PAIRWISE)}"
        of = len(row["checks"])
        for worse in range(of):
            kept = [worse, worse]
            kept[row["label"]] = of
            drafts.append(
                (
                    row["id"],
                    Draft(
                        row["prompt"], row["responses"], row["label"], "", PAIRWISE, [], "", source, kept, of
                    ),
                )
            )
    agreed = confirmed([draft for _, draft in drafts], lambda line: None)
    # The better response keeps all of its rules, and the other one fewer.
    assert {id for (id, _), agrees in zip(drafts, agreed, strict=True) if agrees} == {
        row["id"] for row in rows
    }


def test_stored_pairs_share_no_prompt_with_a_benchmark() -> None:
    if not (sources.BENCHMARKS / "ifeval").exists():
        pytest.skip(f"no benchmark data at {sources.BENCHMARKS}; set TIRJUDGE_BENCHMARK_DATA")
    prompts = [row["prompt"] for row in (*sources.ifeval_rows(), *sources.ifbench_rows())]
    index = OverlapIndex(Text("benchmark", str(number), text) for number, text in enumerate(prompts))
    for name in ("unseen.jsonl.xz", "everyday.jsonl"):
        for line in _stored_lines(name):
            assert index.find([json.loads(line)["prompt"]]) is None


def _stored_lines(name: str) -> list[str]:
    file = Path(sets.__file__).parent / "held_out" / name
    with (lzma.open if file.suffix == ".xz" else open)(file, "rt", encoding="utf-8") as lines:
        return list(lines)
