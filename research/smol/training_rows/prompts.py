"""Prompts from a request and the wordings of its constraints, joined in the ways in which users write."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from research.smol.training_rows.families.base import Constraint, Form
from research.smol.training_rows.writing import sections

_HEADINGS = (
    "Requirements:",
    "Rules:",
    "Please follow these rules:",
    "Constraints:",
    "Keep in mind:",
    "Guidelines:",
    "What I need:",
    "Also:",
    "Important:",
    "",
)
_LEADS = ("Also, ", "In addition, ", "And ", "Besides, ", "Moreover, ", "One more thing: ", "Finally, ")
_CONTINUE = (
    "in ",
    "with ",
    "using ",
    "without ",
    "written ",
    "wrapped ",
    "as ",
    "formatted ",
    "divided ",
    "split ",
)
_SUBJECTS = ("Your response", "Your response", "Your answer", "The response", "Your reply", "It")
_DUTIES = ("should", "should", "must", "has to", "needs to")
_LAST = (", and ", ", and ", ", and ", " and ", ", ", "; and ")


def with_context(request: str, rng: random.Random) -> str:
    """Return the request, often with a sentence of context behind it."""
    if rng.random() < 0.35 and "\n" not in request:
        return f"{request} {rng.choice(sections('instructions')['context'])}"
    return request


def takes_fragments(request: str) -> bool:
    """Return True if a fragment can continue the request."""
    return "\n" not in request and request.endswith((".", "?")) and '"' not in request


def joined(request: str, constraints: Sequence[Constraint], rng: random.Random, form: Form) -> str:
    """Return the prompt of a request and its constraints, whose wordings all have this form."""
    wordings = [constraint.wording for constraint in constraints]
    if form == "fragment":
        return _continued(request, wordings, rng)
    if form == "clause":
        return _required(request, wordings, rng)
    # A request that is to be repeated comes first, since the wordings refer to what is above.
    repeats = any(constraint.family.id == "combination:repeat_prompt" for constraint in constraints)
    style = rng.random()
    gap = rng.choice(["\n\n", "\n", " "]) if "\n" in request else rng.choice([" ", " ", " ", "\n", "\n\n"])
    if repeats:
        return f"{request}{gap}{_sentences(wordings, rng)}"
    if style < 0.2 and "\n" not in request:
        return f"{_sentences(wordings, rng)} {request}"
    if style < 0.3 and len(wordings) > 1 and "\n" not in request:
        return f"{wordings[0]} {request} {_sentences(wordings[1:], rng)}"
    if (style < 0.5 and len(wordings) > 1) or style < 0.26:
        return f"{request}\n\n{_listed(wordings, rng)}"
    return f"{request}{gap}{_sentences(wordings, rng)}"


def with_manner(request: str, rng: random.Random) -> str:
    """Return the request, mostly with a wish behind it that no program can check."""
    if rng.random() < 0.85:
        return f"{request} {rng.choice(sections('instructions')['manner'])}"
    return request


def run_on(request: str, constraints: Sequence[Constraint], rng: random.Random) -> str | None:
    """Return the prompt whose rules are all in one sentence, or None if a wording is more than a sentence.

    The first wording may be a clause, the others are sentences. The request often ends without a space, as
    in many real prompts.
    """
    parts = [constraint.wording.rstrip(".!") for constraint in constraints]
    if any(re.search(r"[.!?:;]\s|\n", part) or not part for part in parts):
        return None
    parts[1:] = [_small(part, repr(one.given)) for part, one in zip(parts[1:], constraints[1:], strict=True)]
    tails = [at for at, one in enumerate(constraints) if at and one.form == "tail"]
    for at in reversed(tails):
        parts[at - 1 : at + 1] = [f"{parts[at - 1]}, {parts[at]}"]
    if parts[0][0].islower():
        parts[0] = f"{rng.choice(_SUBJECTS)} {rng.choice(_DUTIES)} {parts[0]}"
    *most, last = parts
    text = f"{', '.join(most)}{rng.choice(_LAST)}{last}" if most else last
    gap = rng.choice(["", "", " ", " ", "\n", "\n\n"])
    return f"{request}{gap}{text}."


def _small(wording: str, given: str) -> str:
    """Return the wording with a small first letter, unless its first word is a name or a word to use."""
    first = wording.split()[0]
    if first == "I" or first.isupper() or first in given:
        return wording
    return wording[0].lower() + wording[1:]


def _continued(request: str, wordings: Sequence[str], rng: random.Random) -> str:
    stem, mark = request[:-1], request[-1]
    usual = [wording for wording in wordings if wording.startswith(_CONTINUE)]
    rest = [wording for wording in wordings if wording not in usual]
    text = " ".join([" and ".join(usual), *rest]).strip()
    start = (
        rng.choice([" ", " ", " ", ", "]) if not text.startswith(("and ", "but ", "that ", "which ")) else " "
    )
    return f"{stem}{start}{text}{'' if text.endswith(('.', mark)) else mark}"


def _required(request: str, clauses: Sequence[str], rng: random.Random) -> str:
    subject = rng.choice(_SUBJECTS)
    start = f"{subject} {rng.choice(_DUTIES)} "
    *most, last = clauses
    text = f"{', '.join(most)}{rng.choice([', and ', ', and ', ' and ', ', '])}{last}" if most else last
    text = f"{start}{text}{'' if text.endswith(('.', '!', '?')) else '.'}"
    if rng.random() < 0.1 and "\n" not in request and subject != "It":
        return f"{text} {request}"
    # Many real prompts join the two without a space.
    return f"{request}{rng.choice([' ', ' ', '', chr(10), chr(10) * 2])}{text}"


def _sentences(wordings: Sequence[str], rng: random.Random) -> str:
    parts = [wordings[0]]
    for wording in wordings[1:]:
        lead = rng.choice(_LEADS) if rng.random() < 0.3 and wording.split()[0].isalpha() else ""
        keeps = not lead or wording.split()[0] in ("I", "ALL") or wording.split()[0].isupper()
        parts.append(f"{lead}{wording if keeps else wording[0].lower() + wording[1:]}")
    return " ".join(parts)


def _listed(wordings: Sequence[str], rng: random.Random) -> str:
    heading, mark = rng.choice(_HEADINGS), rng.choice(["- ", "- ", "* ", "{n}. ", "{n}) ", "• "])
    items = [f"{mark.replace('{n}', str(n))}{wording}" for n, wording in enumerate(wordings, 1)]
    return "\n".join([*([heading] if heading else []), *items])
