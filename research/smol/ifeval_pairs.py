"""Pairs and lists from IFEval's prompts and GPT-4's answers, with labels that the verifiers confirm.

Three kinds of pairs: `broken`, a passing answer and the same answer minimally edited until one constraint
fails; `repaired`, a real failure of GPT-4 and the same answer minimally edited until every constraint holds,
so that the edited answer is right; `both-edited`, a passing answer with a harmless edit against the same
answer with an edit that breaks a constraint. All constraints of a prompt count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Any

from research.smol.breaks import BREAKS, HARMLESS, Edit, Way
from research.smol.passages import sentence_texts
from research.smol.repairs import REPAIRS
from research.smol.sources import Fields, ifeval_rows
from research.smol.splits import HELD_OUT_FAMILIES, Split, rank, split_of
from tirjudge_environments.instruction_checks import Verifier, detected_language, followed, verifiers_of

_TRIES = 80
"""Texts of one way that are checked."""
_LONGEST = 8000
"""Characters of an edited answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt of IFEval with GPT-4's answer and its verifiers."""

    key: int
    prompt: str
    answer: str
    families: tuple[str, ...]
    arguments: tuple[dict[str, Any], ...]
    verifiers: tuple[Verifier, ...]
    holds: tuple[bool, ...]
    """The answer's strict result, one per constraint."""
    split: Split

    def edit(self, text: str, constraint: int, *purpose: object) -> Edit:
        """Return a text with a constraint's arguments and its own draws."""
        draw = Random(rank(self.key, constraint, *purpose))
        donors = list(_donors(self.split))
        draw.shuffle(donors)
        arguments = dict(self.arguments[constraint])
        if self.families[constraint] == "language:response_language":
            arguments["other"] = _in_another_language(self.split, arguments["language"], draw)
        return Edit(text, arguments, draw, donors)


@cache
def asked() -> tuple[Asked, ...]:
    """Return all 541 prompts."""
    found = []
    for row in ifeval_rows():
        verifiers = verifiers_of(row)
        found.append(
            Asked(
                key=row["key"],
                prompt=row["prompt"],
                answer=row["response"],
                families=tuple(row["instruction_id_list"]),
                arguments=tuple(
                    {name: value for name, value in one.items() if value is not None} for one in row["kwargs"]
                ),
                verifiers=verifiers,
                holds=followed(verifiers, row["response"]).strict,
                split=split_of(row["prompt"]),
            )
        )
    return tuple(found)


@cache
def _donors(split: Split) -> tuple[str, ...]:
    """Return sentences of GPT-4's answers in one half, so that no half's answers contain the other's."""
    return tuple(sentence_texts(row["response"] for row in ifeval_rows() if split_of(row["prompt"]) == split))


@cache
def _languages(split: Split) -> tuple[tuple[str | None, str], ...]:
    texts = [row["response"] for row in ifeval_rows() if split_of(row["prompt"]) == split]
    return tuple((detected_language(text), text) for text in texts if len(text) > 300)


def _in_another_language(split: Split, language: str, draw: Random) -> str:
    others = [text for found, text in _languages(split) if found not in (language, None)]
    return draw.choice(others)


@dataclass(frozen=True, slots=True)
class Edited:
    """An edited answer and the edit's description."""

    text: str
    family: str
    way: str
    changed: int
    """Words that were added or removed, counted with repetition."""


def _confirmed(texts: Iterable[str], accepts: Callable[[str], bool]) -> str | None:
    for text in islice(texts, _TRIES):
        if text.strip() and len(text) <= _LONGEST and accepts(text):
            return text
    return None


def changed_words(before: str, after: str) -> int:
    """Count the words that only one of two texts has."""
    old, new = Counter(before.split()), Counter(after.split())
    return ((old - new) + (new - old)).total()


def breaks(one: Asked, text: str) -> Iterator[Edited]:
    """Yield edits of a passing text, each of which breaks exactly one constraint; the order is drawn.

    The constraint fails strictly and in all of IFEval's loose readings; the others hold strictly.
    """
    order = sorted(range(len(one.families)), key=lambda index: rank("constraint", one.key, index))
    ways = [[*enumerate(BREAKS[one.families[index]])] for index in order]
    for constraint, several in zip(order, ways, strict=True):
        several.sort(key=lambda way, at=constraint: rank("way", one.key, at, way[0]))
    # One way of every constraint first, then the second ways: an answer's first edits differ in family.
    for turn in range(max(map(len, ways))):
        for constraint, several in zip(order, ways, strict=True):
            if turn < len(several):
                number, way = several[turn]
                edit = one.edit(text, constraint, "break", number)
                found = _confirmed(way(edit), lambda new, at=constraint: _breaks(one, new, at))
                if found is not None:
                    family = one.families[constraint]
                    yield Edited(found, family, f"break {number}", changed_words(text, found))


def _breaks(one: Asked, text: str, constraint: int) -> bool:
    if one.verifiers[constraint].holds(text):
        return False
    result = followed(one.verifiers, text)
    kept = [holds for index, holds in enumerate(result.strict) if index != constraint]
    return all(kept) and not result.loose[constraint]


def harmless(one: Asked, text: str, like: Edited) -> Edited | None:
    """Return an edit after which every constraint still holds, nearest in size to another edit.

    Candidates come from the ways that break the same family, as far as they do not break it yet, and from
    edits of no family.
    """
    constraint = one.families.index(like.family)
    ways: list[tuple[str, Way]] = [(f"break {i}", way) for i, way in enumerate(BREAKS[like.family])]
    ways += [(f"harmless {i}", way) for i, way in enumerate(HARMLESS)]
    found = []
    for name, way in ways:
        edit = one.edit(text, constraint, "harmless", name)
        for new in islice(way(edit), 12):
            if new != text and new.strip() and len(new) <= _LONGEST and _keeps(one, new):
                found.append(Edited(new, like.family, name, changed_words(text, new)))
    found = [edited for edited in found if edited.text != like.text and edited.changed]
    if not found:
        return None
    return min(found, key=lambda edited: (abs(edited.changed - like.changed), rank(one.key, edited.way)))


def _keeps(one: Asked, text: str) -> bool:
    return all(followed(one.verifiers, text).strict)


def repaired(one: Asked) -> Edited | None:
    """Return GPT-4's failing answer, edited until every constraint holds; None if no editor manages."""
    text, names = one.answer, []
    for constraint in [index for index, holds in enumerate(one.holds) if not holds]:
        family = one.families[constraint]
        ways = sorted(
            enumerate(REPAIRS.get(family, ())), key=lambda way: rank("repair", one.key, constraint, way[0])
        )
        # Constraints that hold now, or that an earlier repair has mended, must stay kept.
        kept = [at for at in range(len(one.families)) if at == constraint or one.verifiers[at].holds(text)]
        for number, way in ways:
            edit = one.edit(text, constraint, "repair", number)
            new = _confirmed(way(edit), lambda new, kept=kept: _all_hold(one, new, kept))
            if new is not None:
                text = new
                names.append(f"repair {number}")
                break
    if not _keeps(one, text):
        return None
    family = one.families[one.holds.index(False)]
    return Edited(text, family, ", ".join(names), changed_words(one.answer, text))


def _all_hold(one: Asked, text: str, constraints: Sequence[int]) -> bool:
    return all(one.verifiers[index].holds(text) for index in constraints)


def row(one: Asked, kind: str, right: str, wrong: Sequence[tuple[str, str]], **about: Any) -> Fields:
    """Return a row of `tirjudge judge`; `wrong` has the other responses, each with its broken family."""
    name = f"ifeval-{kind}-{one.key}"
    place = rank("position", name) % (len(wrong) + 1)
    responses = [text for text, _ in wrong]
    responses.insert(place, right)
    broken = sorted({family for _, family in wrong})
    return {
        "id": name,
        "prompt": one.prompt,
        "responses": responses,
        "label": place,
        "domain": "instruction-following",
        "families": list(one.families),
        "broken": broken,
        "constraints": len(one.families),
        "held_out": any(family in HELD_OUT_FAMILIES for family in broken),
        "instruction_id_list": list(one.families),
        "kwargs": list(one.arguments),
        **about,
    }


def broken_pairs(split: Split) -> Iterator[Fields]:
    """Yield pairs of a passing answer and a minimally broken copy."""
    for one in asked():
        if one.split == split and all(one.holds) and (found := next(breaks(one, one.answer), None)):
            yield row(one, "broken", one.answer, [(found.text, found.family)], **_about(wrong=found))


def repaired_pairs(split: Split) -> Iterator[Fields]:
    """Yield pairs of a real failure and a minimally repaired copy, which is right."""
    for one in asked():
        if one.split == split and not all(one.holds) and (found := repaired(one)):
            yield row(
                one,
                "repaired",
                found.text,
                [(one.answer, found.family)],
                **_about(right=found),
                fails_loosely=not all(followed(one.verifiers, one.answer).loose),
            )


def both_edited_pairs(split: Split) -> Iterator[Fields]:
    """Yield pairs of two edited copies of a passing answer, one edit of which is harmless."""
    for one in asked():
        if one.split != split or not all(one.holds):
            continue
        # The second edit found, so that this set rarely repeats the wrong answer of `broken`.
        found = list(islice(breaks(one, one.answer), 2))
        kept = harmless(one, one.answer, found[-1]) if found else None
        if kept is not None:
            wrong = found[-1]
            yield row(
                one, "both-edited", kept.text, [(wrong.text, wrong.family)], **_about(right=kept, wrong=wrong)
            )


def lists(split: Split) -> Iterator[Fields]:
    """Yield lists of three or four responses; one, edited in half of the lists, keeps every constraint."""
    for one in asked():
        if one.split != split or not all(one.holds):
            continue
        size = 3 + rank("size", one.key) % 2
        found = {edited.text: edited for edited in islice(breaks(one, one.answer), 6)}
        wrong = list(found.values())[: size - 1]
        if len(wrong) < 2:
            continue
        edited = harmless(one, one.answer, wrong[0]) if rank("edited", one.key) % 2 else None
        right = edited.text if edited else one.answer
        yield row(one, "list", right, [(other.text, other.family) for other in wrong])


def _about(right: Edited | None = None, wrong: Edited | None = None) -> dict[str, Any]:
    return {
        f"{name}_edit": {"way": edited.way, "words": edited.changed}
        for name, edited in (("right", right), ("wrong", wrong))
        if edited is not None
    }
