"""Rows of prompts with one to three constraints, and answers that keep different numbers of them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

from research.smol.training_rows.families.base import Constraint, Family, Form
from research.smol.training_rows.families.registry import choose, worded
from research.smol.training_rows.kinds.registry import DOCUMENT, follows
from research.smol.training_rows.prompts import joined, run_on, takes_fragments, with_context, with_manner
from research.smol.training_rows.requests import Request
from research.smol.training_rows.rows import LISTWISE, PAIRWISE, POINTWISE, Draft, Shape, program
from research.smol.training_rows.writing import Pen, compose, insert_sentence
from tirjudge.attacks.attacked_rows import winning_answer
from tirjudge.attacks.families import Attack, Target
from tirjudge_environments.orders import letter

_PUBLIC = 0.25
"""Share of the prompts that come from public instructions."""
_GENRES = {"text": 5, "list": 2, "letter": 2, "story": 2, "question": 1}
"""Weights of the genres of our own requests."""
_RUN_ON_GENRES = {"people": 12, "general": 6, "text": 3, "list": 2, "question": 2, "letter": 1, "story": 1}
"""The same for prompts whose rules are all in one sentence."""
_FRAGMENTS, _CLAUSES = 0.2, 0.3
"""Shares of the prompts whose constraints continue the request, or follow "your response should"."""
_PASSES = 4
"""One edit may undo another one, so all are tried again."""
_CHOICES = "detectable_format:constrained_response"


@dataclass
class Constrained:
    """A generator of such rows; balances label positions and lengths as it goes."""

    rng: random.Random
    own: Mapping[str, Sequence[Request]]
    """Our own requests by genre."""
    public: Sequence[Request]
    vocabulary: Sequence[str]
    allowed: Sequence[str]
    """The families that may appear."""
    near: float = 0.0
    """Share of rows whose worse responses are the best one, edited: they break a part of a constraint rather
    than all of it, which a text that never tried to keep the constraint does."""
    draw: Callable[[random.Random], list[Family]] | None = None
    """Draws the families of a row; by default one to three of those allowed."""
    records: Sequence[Request] = ()
    """Requests for structured data, for kinds of rules about documents."""
    run_on: bool = False
    """True for prompts that put all rules into one sentence, behind a request with a wish about its tone."""
    unedited: float = 0.0
    """Share of the rows whose responses nobody edited, where drawn rules tell unedited responses apart."""
    shape: Shape = "list"
    """The shape of the programs."""
    again: float = 0.0
    """Share of the pairs whose first program leaves constraints out, so that it finds a tie."""
    attacks: Sequence[Attack] = ()
    attacked: float = 0.0
    """Share of the pairs and lists in which a worse response attacks the verdict by one of `attacks`."""
    tried: Counter[str] = field(default_factory=Counter)
    """Attempts that led to no row, by reason."""
    _longer: int = 0
    """Rows whose best response is the longest one, minus the others."""

    def draft(self, environment: str) -> Draft | None:
        """Return a row, or None if the drawn constraints and answers do not work out."""
        rng = self.rng
        if self.draw is None:
            families = choose(rng.choices([1, 2, 3], [50, 32, 18])[0], self.allowed, rng)
        else:
            families = self.draw(rng)
        request = self._request(families)
        pen = Pen(rng, request.topic, request.area, vocabulary=self.vocabulary)
        if self.run_on:
            return self._run_on_draft(request, families, environment, pen)
        text = with_context(request.text, rng)
        natural = self._natural(request, pen)
        form = self._form(request, families)
        constraints = [worded(family, natural, text, pen, form) for family in families]
        if form == "fragment":
            # The constraints continue the request itself, and the context follows.
            prompt = joined(request.text, constraints, rng, form) + text.removeprefix(request.text)
        else:
            prompt = joined(text, constraints, rng, form)
        constraints.sort(key=lambda one: prompt.find(one.wording[1:]))
        count = rng.choice([3, 3, 4]) if environment == LISTWISE else 2
        responses = self._responses(request, natural, constraints, count, pen)
        if responses is None:
            self.tried["no answers: " + ", ".join(one.family.id for one in constraints)] += 1
            return None
        return self._draft(prompt, constraints, responses, environment, request.source, pen)

    def _run_on_draft(
        self, request: Request, families: Sequence[Family], environment: str, pen: Pen
    ) -> Draft | None:
        """Return a row whose prompt has all rules in one sentence, or None."""
        rng = self.rng
        text, natural = with_manner(request.text, rng), self._natural(request, pen)
        unedited = self.unedited > 0 and rng.random() < self.unedited
        own = re.findall(r"\b[a-z]{4,12}\b", natural)
        # Words that no answer holds would tell none apart.
        drawn = replace(pen, vocabulary=own) if unedited and own else pen
        first: Form = "clause" if rng.random() < 0.5 and families[0].wordings("clause") else "sentence"
        forms = [first, *("tail" if follows(*pair) else "sentence" for pair in pairwise(families))]
        constraints = [
            worded(family, natural, text, drawn, form) for family, form in zip(families, forms, strict=True)
        ]
        prompt = run_on(text, constraints, rng)
        if prompt is None:
            return None
        count = rng.choice([3, 3, 4]) if environment == LISTWISE else 2
        make = self._unedited if unedited else self._responses
        responses = make(request, natural, constraints, count, pen)
        if responses is None:
            self.tried["no answers: " + ", ".join(one.family.id for one in constraints)] += 1
            return None
        return self._draft(
            prompt, constraints, responses, environment, request.source, pen, balanced=not unedited
        )

    def _form(self, request: Request, families: Sequence[Family]) -> Form:
        """Draw the form of the wordings; one that a family lacks gives way to sentences."""
        drawn = self.rng.random()
        form: Form = "sentence"
        if drawn < _FRAGMENTS and takes_fragments(request.text):
            form = "fragment"
        elif drawn > 1 - _CLAUSES:
            form = "clause"
        return form if all(family.wordings(form) for family in families) else "sentence"

    def _request(self, families: Sequence[Family]) -> Request:
        if self.records and any(family.id in DOCUMENT for family in families):
            return self.rng.choice(self.records)
        if any(family.id == _CHOICES for family in families):
            # A choice between yes, no and maybe needs a question.
            return self.rng.choice(self.own["question"])
        if self.public and self.rng.random() < _PUBLIC:
            return self.rng.choice(self.public)
        genres = _RUN_ON_GENRES if self.run_on else _GENRES
        genre = self.rng.choices(list(genres), list(genres.values()))[0]
        return self.rng.choice(self.own[genre])

    def _natural(self, request: Request, pen: Pen) -> str:
        fitting = [answer for answer in request.answers[:3] if 12 <= len(answer.split()) <= 350]
        if fitting and self.rng.random() < 0.8:
            return self.rng.choice(fitting)
        words = int(self.rng.choice([30, 50, 70, 90, 120, 160, 220, 300]) * self.rng.uniform(0.7, 1.3))
        return compose(pen, request.genre, words)

    def _responses(
        self, request: Request, natural: str, constraints: Sequence[Constraint], count: int, pen: Pen
    ) -> list[tuple[str, list[bool]]] | None:
        """Return the responses with the constraints that they keep, the best first."""
        wanted = self._patterns(len(constraints), count)
        same = self.rng.random() < 0.5
        near = self.near >= 1 or (self.near > 0 and self.rng.random() < self.near)
        found: list[tuple[str, list[bool]]] = []
        for pattern in wanted:
            for _ in range(5):
                if near and found:
                    base = found[0][0]
                else:
                    base = natural if same or not found else self._natural(request, pen)
                text = self._edited(base, constraints, pattern, pen)
                if text is not None and all(text != other for other, _ in found):
                    found.append((text, pattern))
                    break
            else:
                return None
        return found

    def _unedited(
        self, request: Request, natural: str, constraints: Sequence[Constraint], count: int, pen: Pen
    ) -> list[tuple[str, list[bool]]] | None:
        """Return responses as they are, the best first, if one keeps more constraints than the others."""
        texts = dict.fromkeys([natural, *(self._natural(request, pen) for _ in range(3 * count))])
        found = [(text, [one.verified(text) for one in constraints]) for text in texts]
        self.rng.shuffle(found)
        best = max(found, key=lambda each: sum(each[1]))
        worse = [each for each in found if sum(each[1]) < sum(best[1])]
        return [best, *worse[: count - 1]] if len(worse) >= count - 1 else None

    def _patterns(self, constraints: int, count: int) -> list[list[bool]]:
        """Draw the constraints that each response keeps; the first keeps more than any other."""
        best = (
            constraints if constraints == 1 or self.rng.random() < 0.75 else self.rng.randint(1, constraints)
        )
        kept = [
            best,
            *(self.rng.choice([best - 1, best - 1, self.rng.randint(0, best - 1)]) for _ in range(count - 1)),
        ]
        return [self.rng.sample([True] * n + [False] * (constraints - n), constraints) for n in kept]

    def _edited(
        self, text: str, constraints: Sequence[Constraint], pattern: Sequence[bool], pen: Pen
    ) -> str | None:
        if pen.chance(0.35):
            text = self._harmless(text, pen)
        pairs = sorted(zip(constraints, pattern, strict=True), key=lambda pair: pair[0].family.order)
        for _ in range(_PASSES):
            for constraint, keep in pairs:
                text = constraint.edit(text, keep, pen).strip()
            if len(text) > 3200:
                return None
            if all(constraint.holds(text) == keep for constraint, keep in pairs):
                return text if all(one.verified(text) == keep for one, keep in pairs) else None
        return None

    def _harmless(self, text: str, pen: Pen) -> str:
        edits: Sequence[Callable[[], str]] = (
            lambda: f"{pen.phrase('openers')}\n\n{text}",
            lambda: f"{text}\n\n{pen.phrase('closers')}",
            lambda: insert_sentence(text, pen.sentence(), pen.rng),
            lambda: text.replace(". ", ".\n\n", 1),
            lambda: f"**{pen.phrase('title')}**\n\n{text}",
            lambda: text.replace(" the ", " this ", 1),
        )
        return pen.rng.choice(edits)()

    def _draft(
        self,
        prompt: str,
        constraints: Sequence[Constraint],
        responses: list[tuple[str, list[bool]]],
        environment: str,
        source: str,
        pen: Pen,
        *,
        balanced: bool = True,
    ) -> Draft:
        if balanced:
            responses = self._balanced(responses, constraints, pen)
        order = self.rng.sample(range(len(responses)), len(responses))
        tags: tuple[str, ...] = ()
        if self.attacked and environment != POINTWISE and self.rng.random() < self.attacked:
            responses, tags = self._under_attack(responses, constraints, order)
        return Draft(
            prompt=prompt,
            responses=[responses[at][0] for at in order],
            label=order.index(0),
            domain="instruction-following",
            environment=environment,
            families=[constraint.family.id for constraint in constraints],
            source=source,
            program=program(constraints, environment, self.shape, prompt),
            kept=[sum(responses[at][1]) for at in order],
            of=len(constraints),
            tags=tags,
            first=self._first(prompt, constraints, responses, environment),
        )

    def _first(
        self,
        prompt: str,
        constraints: Sequence[Constraint],
        responses: Sequence[tuple[str, list[bool]]],
        environment: str,
    ) -> str | None:
        """Return a program with as many of the checks of a pair as find a tie, if it is to have one."""
        # With numbers of its own, so that the other rows stay the same.
        rng = random.Random(f"again/{prompt}")
        if environment != PAIRWISE or rng.random() >= self.again:
            return None
        better, worse = (pattern for _, pattern in responses)
        places = range(len(constraints))
        for size in reversed(places[1:]):
            ties = [
                chosen
                for chosen in combinations(places, size)
                if sum(better[at] for at in chosen) == sum(worse[at] for at in chosen)
            ]
            if ties:
                chosen = rng.choice(ties)
                return program([constraints[at] for at in chosen], environment, self.shape, prompt)
        return None

    def _under_attack(
        self, responses: list[tuple[str, list[bool]]], constraints: Sequence[Constraint], order: Sequence[int]
    ) -> tuple[list[tuple[str, list[bool]]], tuple[str, ...]]:
        """Return the responses with an attack in a worse one, if it keeps the same constraints as before."""
        attack = self.rng.choice(self.attacks)
        at = self.rng.randrange(1, len(responses))
        text, pattern = responses[at]
        place = letter(order.index(at))
        target = Target(
            response=text,
            letter=place,
            other=letter(order.index(0)),
            answer=winning_answer("pairwise", place),
        )
        changed = attack.changed(target)
        pairs = zip(constraints, pattern, strict=True)
        if (
            changed is None
            or not changed.strip()
            or not all(one.verified(changed) == keep for one, keep in pairs)
        ):
            return responses, ()
        return [*responses[:at], (changed, pattern), *responses[at + 1 :]], (f"attack={attack.name}",)

    def _balanced(
        self, responses: list[tuple[str, list[bool]]], constraints: Sequence[Constraint], pen: Pen
    ) -> list[tuple[str, list[bool]]]:
        """Lengthen a response, without changing what it keeps, if the best is too often longer or shorter."""
        longest = max(range(len(responses)), key=lambda at: len(responses[at][0]))
        if (longest == 0 and self._longer > 0) or (longest != 0 and self._longer < 0):
            at = self.rng.randrange(1, len(responses)) if longest == 0 else 0
            text, pattern = responses[at]
            goal = len(responses[longest][0]) + 5
            pairs = list(zip(constraints, pattern, strict=True))
            for _ in range(40):
                text = insert_sentence(text, pen.sentence(), self.rng)
                text = self._cased(text, pattern, constraints)
                if len(text) > goal or not all(one.holds(text) == keep for one, keep in pairs):
                    break
            if len(text) > goal and all(one.verified(text) == keep for one, keep in pairs):
                responses[at] = (text, pattern)
                longest = at
        if len(responses) == 2 or longest == 0:
            self._longer += 1 if longest == 0 else -1
        return responses

    def _cased(self, text: str, pattern: Sequence[bool], constraints: Sequence[Constraint]) -> str:
        """Return the text in the letter case that a constraint which it keeps asks for."""
        kept = {one.family.id for one, keep in zip(constraints, pattern, strict=True) if keep}
        if "change_case:english_capital" in kept:
            return text.upper()
        if "change_case:english_lowercase" in kept:
            return text.lower()
        return text.replace(",", "") if "punctuation:no_comma" in kept else text


def environments(rng: random.Random, count: int) -> list[str]:
    """Return the formats of rows: 60 % pairs, 20 % lists, 20 % single responses, shuffled."""
    lists = points = round(0.2 * count)
    found = [PAIRWISE] * (count - lists - points) + [LISTWISE] * lists + [POINTWISE] * points
    rng.shuffle(found)
    return found
