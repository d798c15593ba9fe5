"""Generates rows of many kinds of rules: for training, and pairs of the kinds that no training row contains.

    python -m research.smol.training_rows.many --sources DIR --dialogues 40000 --output rows/many.jsonl.xz
    python -m research.smol.training_rows.many --sources DIR --kinds 75 --output rows/kinds-75.jsonl.xz
    python -m research.smol.training_rows.many --sources DIR --unseen 6 --output rows/unseen.jsonl.xz

The kinds are the 31 families and the composed kinds in an order drawn by a seed, without those held out. The
files are a function of the seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from research.smol.training_rows.constrained import Constrained, environments
from research.smol.training_rows.families.base import Family
from research.smol.training_rows.families.registry import FAMILIES, choose
from research.smol.training_rows.generator import Generator, write
from research.smol.training_rows.kinds.registry import DOCUMENT, KINDS, NUMBERED, SEED, trained_kinds, unseen
from research.smol.training_rows.kinds.shapes import Every
from research.smol.training_rows.preferences import preference_draft
from research.smol.training_rows.requests import BadSources, Request, own_requests, questions
from research.smol.training_rows.rows import PAIRWISE, Draft, Shape, confirmed
from tirjudge.attacks import families as attacks
from tirjudge.attacks.families import Attack
from tirjudge.cli.output import log
from tirjudge_training.data.base import data_path

NEW = 0.5
"""Share of the constraints that are of composed kinds, if there are any."""
_COUNTS = {1: 42, 2: 32, 3: 18, 4: 8}
"""Weights of the numbers of constraints."""
_CODE, _GENERAL = 0.02, 0.1
"""Shares of the rows about MBPP problems and of preferences without a program."""
_NEAR = 0.7
"""Share of the rows whose worse responses are the best one, edited."""
_ATTACKED = 0.06
_KEYWORDS, _NUMBERED, _UNEDITED = 0.5, 0.25, 0.35
"""Shares of the rows with all rules in one sentence: those that ask for keywords, those that ask for a number
of parts and state a rule for each part, and those whose responses nobody edited."""
_POINTWISE = 0.2
"""Share of the rows with single responses, which are two dialogues each."""
_ALONE = {
    *(
        "detectable_format:json_format",
        "detectable_format:constrained_response",
        "language:response_language",
    ),
    *("own:line_start", "own:number_lines", "combination:two_responses", "combination:repeat_prompt"),
}
"""Families that go with no composed kind."""
_ATTACKS: Mapping[str, tuple[Attack, ...]] = {
    family.name: family.attacks
    for family in (
        *(
            attacks.CLAIMS,
            attacks.MASTER_KEYS,
            attacks.INSTRUCTIONS,
            attacks.FORGERIES,
            attacks.CHAT_TEMPLATES,
        ),
        *(attacks.CHARACTERS, attacks.LENGTHS, attacks.CODE),
    )
}


def trained_attacks(seed: int = SEED, count: int = 4) -> tuple[str, ...]:
    """Return the families of attacks in training rows, drawn by a seed; the others measure carrying over."""
    return tuple(sorted(random.Random(f"attacks/{seed}").sample(sorted(_ATTACKS), count)))


def kinds_of(count: int | None, seed: int = SEED) -> list[str]:
    """Return the 31 families, then composed kinds in an order drawn by a seed; None is all of them."""
    composed = trained_kinds()
    random.Random(f"kinds/{seed}").shuffle(composed)
    found = [*FAMILIES, *composed]
    return found if count is None else found[:count]


Draw = Callable[[random.Random], list[Family]]
"""Draws the constraints of a row."""


class Choice:
    """A draw of one to four constraints from families and composed kinds."""

    def __init__(self, names: Sequence[str], counts: Mapping[int, int] = _COUNTS) -> None:
        self._old = [name for name in names if name in FAMILIES]
        self._new = [KINDS[name] for name in names if name in KINDS]
        self._counts = counts

    def __call__(self, rng: random.Random) -> list[Family]:
        count = rng.choices(list(self._counts), list(self._counts.values()))[0]
        share = 0.0 if not self._new else NEW if self._old else 1.0
        new = sum(rng.random() < share for _ in range(count))
        chosen: list[Family] = choose(count - new, self._old, rng) if count > new else []
        if any(family.id in _ALONE for family in chosen):
            return chosen
        for _ in range(new):
            fitting = [kind for kind in self._new if self._fits(kind.id, chosen)]
            if fitting:
                chosen.append(rng.choice(fitting))
        return chosen

    def _fits(self, name: str, chosen: Sequence[Family]) -> bool:
        """Return True if a kind is not chosen yet and can stand in one text with those that are."""
        return all(name != one.id and DOCUMENT.get(name, "") == DOCUMENT.get(one.id, "") for one in chosen)


class RunOnChoice(Choice):
    """The same draw for prompts with all rules in one sentence, half of which ask for keywords."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, {1: 12, 2: 44, 3: 32, 4: 12})

    def __call__(self, rng: random.Random) -> list[Family]:
        keywords = FAMILIES["keywords:existence"]
        every = [kind for kind in self._new if isinstance(kind, Every) and kind.unit.name in NUMBERED]
        if every and rng.random() < _NUMBERED:
            kind = rng.choice(every)
            number = NUMBERED[kind.unit.name]
            pair: list[Family] = [{**FAMILIES, **KINDS}[number], kind]
            # Keywords stand before or after the two, which stay together.
            return rng.choice([pair, [keywords, *pair], [*pair, keywords]])
        chosen = super().__call__(rng)
        alone = len(chosen) == 1 or any(one.id in _ALONE or one.id in DOCUMENT for one in chosen)
        if not alone and keywords not in chosen and rng.random() < _KEYWORDS:
            chosen[-1] = keywords
        rng.shuffle(chosen)
        return chosen


class ManyKinds:
    """Makes the rows."""

    def __init__(self, generator: Generator, seed: int, shape: Shape = "list", again: float = 0.0) -> None:
        self._generator, self._seed, self._shape, self._again = generator, seed, shape, again

    def training(self, names: Sequence[str], dialogues: int, run_on: float = 0.0) -> list[Draft]:
        """Return rows of these kinds, with this many dialogues or a few more.

        `run_on` is the share of the rows with rules whose prompts put all rules into one sentence.
        """
        rng = random.Random(f"many/{self._seed}")
        rows = round(dialogues / (1 + _POINTWISE))
        code, general = round(_CODE * rows), round(_GENERAL * rows)
        formats = environments(rng, rows - code - general)
        count = round(run_on * len(formats))
        found = self._constrained(Choice(names), formats[count:], rng, held=False, attacked=True)
        if count:
            found += self._constrained(
                RunOnChoice(names), formats[:count], rng, held=False, attacked=True, run_on=True
            )
        own, public = self._generator.requests(held=False)
        for environment in environments(rng, general):
            found.append(self._preference(environment, [*own, *public], rng))
        found += self._generator.coded(code, rng, held=False)
        rng.shuffle(found)
        return found

    def unseen(self, each: int) -> list[Draft]:
        """Return pairs of held-out kinds: `each` of every kind alone, and half as many with another one."""
        rng = random.Random(f"unseen/{self._seed}")
        names = [kind.id for kind in KINDS.values() if unseen(kind)]
        found: list[Draft] = []
        for name in names:
            alone = Choice([name], {1: 1})
            found += self._constrained(alone, [PAIRWISE] * each, rng, held=True)
            others = [
                other
                for other in names
                if DOCUMENT.get(other, "") == DOCUMENT.get(name, "") and other != name
            ]
            if others:
                found += self._constrained(_together(name, others), [PAIRWISE] * (each // 2), rng, held=True)
        return found

    def _constrained(
        self,
        draw: Draw,
        formats: Sequence[str],
        rng: random.Random,
        *,
        held: bool,
        attacked: bool = False,
        run_on: bool = False,
    ) -> list[Draft]:
        own, public = self._generator.requests(held=held)
        genres: dict[str, list[Request]] = {}
        for request in own:
            genres.setdefault(request.genre, []).append(request)
        genres["people"] = [one for one in questions() if one.held_out == held]
        records = [one for one in own_requests("records") if one.held_out == held]
        chosen = [one for name in trained_attacks() for one in _ATTACKS[name]] if attacked else []
        maker = Constrained(
            rng,
            genres,
            public,
            self._generator.vocabulary,
            allowed=(),
            near=_NEAR,
            draw=draw,
            records=records,
            shape=self._shape,
            again=self._again,
            run_on=run_on,
            unedited=_UNEDITED if run_on else 0.0,
            attacks=chosen,
            attacked=_ATTACKED if attacked else 0.0,
        )
        found: list[Draft] = []
        for environment in formats:
            for _ in range(200):
                draft = maker.draft(environment)
                if draft is None or not self._generator.accepts(draft):
                    continue
                if not prints_counts(draft):
                    self._generator.report.disagreed.update(draft.families)
                    continue
                found.append(draft)
                break
            if len(found) % 500 == 0 and len(formats) > 500:
                log(f"{len(found):,} of {len(formats):,} rows drafted")
        self._generator.report.failed.update(maker.tried)
        return found

    def _preference(self, environment: str, requests: Sequence[Request], rng: random.Random) -> Draft:
        while True:
            draft = preference_draft(environment, requests, rng)
            if draft is not None and self._generator.clean(draft):
                return draft


def _together(name: str, others: Sequence[str]) -> Draw:
    """Return a draw of a kind and another one."""
    return lambda rng: [KINDS[name], KINDS[rng.choice(others)]]


def packaged_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of the package's training file, whose kinds are the 31 families."""
    with lzma.open(data_path(Path("package:smol/train.jsonl.xz")), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return random.Random(f"packaged/{seed}").sample(rows, count)


def prints_counts(draft: Draft) -> bool:
    """Return True if the program prints what the labels say, by running it in this process.

    The programs are those of this package; responses are only texts to them. It spares the sandbox the rows
    that cannot be kept.
    """
    assert draft.program is not None
    outputs = []
    for bindings in draft.bindings():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(draft.program, "program", "exec"), dict(bindings))
            except Exception:
                return False
        outputs.append(out.getvalue().strip())
    return outputs == draft.printed()


def main(words: list[str] | None = None) -> None:
    """Generate a file. A source that cannot be read ends the program with one line and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m research.smol.training_rows.many",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sources", type=Path, required=True, help="folder with mbpp/ and self-instruct/")
    parser.add_argument("--benchmarks", type=Path, help="folder with the benchmarks' prompts")
    parser.add_argument("--output", type=Path, required=True, help="the file, .jsonl.xz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", type=int, help="number of kinds of rules; all that are trained by default")
    parser.add_argument("--dialogues", type=int, default=3000)
    parser.add_argument(
        "--run-on", type=float, default=0.0, help="share of the prompts that put all rules into one sentence"
    )
    parser.add_argument(
        "--programs",
        choices=get_args(Shape),
        default="list",
        help="where a program's checks stand: in a line, one a line, one a line below the words of its rule, "
        "or in a line after the words of all rules",
    )
    parser.add_argument(
        "--again", type=float, default=0.0, help="share of the pairs whose first program ends in a tie"
    )
    parser.add_argument(
        "--packaged",
        type=int,
        default=0,
        help="add this many rows of the package's training file, drawn by the seed",
    )
    parser.add_argument(
        "--unseen", type=int, help="write pairs of the held-out kinds instead, this many of each"
    )
    parser.add_argument("--checks", action="store_true", help="write rows for the formats of checks")
    given = parser.parse_args(words)
    folder = given.benchmarks or given.sources.parent / "benchmarks"
    try:
        generator = Generator(given.sources, folder, seed=given.seed, without=(), say=log)
    except BadSources as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    many = ManyKinds(generator, given.seed, given.programs, given.again)
    drafts = (
        many.unseen(given.unseen)
        if given.unseen
        else many.training(kinds_of(given.kinds), given.dialogues, given.run_on)
    )
    agreed = confirmed(drafts, log)
    rows = [draft for draft, agrees in zip(drafts, agreed, strict=True) if agrees]
    if given.checks:
        rows = [draft.for_checks() for draft in rows]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    write(rows, given.output, given.output.name.partition(".")[0], packaged_rows(given.packaged, given.seed))
    found = Counter(one for draft in rows for one in draft.families)
    print(
        f"{given.output}: {len(rows):,} of {len(drafts):,} rows, {len(found)} kinds, "
        f"the rarest {min(found.values())} times"
    )


if __name__ == "__main__":
    main()
