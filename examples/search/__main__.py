"""Makes a corpus of invented facts, and rows about them that nobody can judge without a search.

    python -m examples.search --output runs/search
    tirjudge train --recipe examples/search/recipe.toml

Every fact is one line of `corpus.txt`. A row asks for a fact: the better response names the right person, and
the worse response a person of another fact. Rows of `demonstrations.jsonl` show the call that finds the fact.
The three files are about different places, and everything is a function of the seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

FIRST = "Anna Boris Clara David Elena Felix Greta Henry Irene Jonas Karla Lewis Maria Oscar Paula Simon"
LAST = "Adler Brown Carver Dalton Ellis Fisher Grant Harper Irving Jensen Keller Lowell Mercer Norris"
STARTS = "Al Bel Cor Dan El Far Gar Hol Kar Lin Mar Nor Or Per Ros Sel Tor Ul Ver Wen"
ENDS = "burg dale ford ham mond more nia port stead ton ville wick"
RELATIONS = {
    "designed the bridge": "Who designed the bridge in {place}?",
    "painted the chapel": "Who painted the chapel in {place}?",
    "founded the library": "Who founded the library in {place}?",
    "built the lighthouse": "Who built the lighthouse in {place}?",
}
"""A deed in a place, and the question who did it."""


def facts(seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield a place, what was done there and the person who did it; every place has all relations."""
    places = [start + end for start, end in product(STARTS.split(), ENDS.split())]
    people = [f"{first} {last}" for first, last in product(FIRST.split(), LAST.split())]
    drawn = Random(f"facts {seed}")
    drawn.shuffle(places)
    for place in places:
        for relation, person in zip(RELATIONS, drawn.sample(people, len(RELATIONS)), strict=True):
            yield place, relation, person


def row(fact: tuple[str, str, str], other: str, drawn: Random, *, shown: bool) -> dict[str, Any]:
    """Return a row about a fact and another person's name; `shown` adds the call that finds the fact."""
    place, relation, person = fact
    label = drawn.randrange(2)
    responses = [f"{other} {relation} in {place}."]
    responses.insert(label, f"{person} {relation} in {place}.")
    call = {"tool": "search", "arguments": {"query": f"{relation} in {place}"}}
    return {
        "id": f"{place} {relation}",
        "prompt": RELATIONS[relation].format(place=place),
        "responses": responses,
        "label": label,
        "domain": "reasoning",
        "environment": "tir-pairwise",
        **({"demonstration": call} if shown else {}),
    }


def write_rows(file: Path, known: Sequence[tuple[str, str, str]], seed: int, *, shown: bool = False) -> None:
    """Write a row about every fact; the worse response is the person of another of the facts."""
    drawn = Random(f"{file.name} {seed}")
    with file.open("w", encoding="utf-8") as lines:
        for fact in known:
            other = drawn.choice([person for _, _, person in known if person != fact[2]])
            lines.write(json.dumps(row(fact, other, drawn, shown=shown)) + "\n")


def main() -> None:
    """Write the corpus and the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    known = list(facts(options.seed))
    corpus = "".join(f"{person} {relation} in {place}.\n" for place, relation, person in known)
    (options.output / "corpus.txt").write_text(corpus, "utf-8")
    write_rows(options.output / "demonstrations.jsonl", known[:120], options.seed, shown=True)
    write_rows(options.output / "train.jsonl", known[120:720], options.seed)
    write_rows(options.output / "heldout.jsonl", known[720:], options.seed)


if __name__ == "__main__":
    main()
