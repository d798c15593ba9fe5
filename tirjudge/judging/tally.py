"""The tally of a run: counts of its judged and failed rows, and the accuracy of the labelled ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tirjudge.console_text import counted
from tirjudge.judging.copied_programs import LEAST_PROMPTS, CopiedPrograms
from tirjudge.records.result_row import read_result_row
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge.statistics.estimators import Credits
from tirjudge.statistics.proportions import Proportion
from tirjudge_environments import StopReason
from tirjudge_environments.orders import letter

T = TypeVar("T")
_MOST = 2 / 3
"""The share of verdicts from which a summary says that most name the response shown first."""


@dataclass(slots=True)
class JurorTally:
    """Counts of the rows that one model of a jury judged."""

    rows: int = 0
    deciding: int = 0
    """Rows decided as this model voted."""
    without: int = 0
    """Rows without a verdict of this model."""
    credits: Credits = field(default_factory=Credits)

    def add(self, verdict: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Count the verdict of the model in a row of a result file."""
        self.rows += 1
        answered = verdict["stop"] == "verdict" and not verdict.get("guess")
        name = "verdict" if row["verdict"] else "scores"
        self.deciding += answered and verdict[name] == row[name]
        self.without += verdict["stop"] != "verdict"
        if verdict["correct"] is not None:
            self.credits.add(verdict["correct"], prompt_cluster(row.get("prompt")))


@dataclass(slots=True)
class Tally:
    """Counts of result rows, and of rows that failed."""

    judged: int = 0
    """Rows with a line in the result file, with or without a verdict."""
    failed: int = 0
    """Rows without a line: unreadable, or the model or the sandbox was down."""
    verdicts: int = 0
    """Rows with a choice, a tie or a score."""
    ties: int = 0
    contested: int = 0
    """Rows with a turn that states two different verdicts."""
    exposed: int = 0
    """Rows judged without the boundary whose texts hold a token from which verdicts are read."""
    open: int = 0
    """Rows left open because of a low confidence."""
    credits: Credits = field(default_factory=Credits)
    """The `verdict_credit` of each labelled row; rows with the same prompt are a cluster."""
    passes: int = 0
    """Rows about a single response that people passed or failed."""
    ratings: int = 0
    """Rows about a single response that people rated with a number."""
    evidence: EvidenceTally = field(default_factory=lambda: EvidenceTally())
    with_evidence: int = 0
    """Rows that record `decided`, with or without a verdict."""
    checkers: CheckerTally = field(default_factory=lambda: CheckerTally())
    sources: int = 0
    """Rows that name the sources of their responses."""
    programs: int = 0
    """Programs executed, not counting refused ones."""
    programs_failed: int = 0
    programs_refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    jury: dict[str, JurorTally] = field(default_factory=dict)
    """Counts by model of a jury, in the order of asking."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], *, failed: int = 0) -> Tally:
        """Return the counts of the rows of a result file, besides which others failed."""
        tally = cls(failed=failed)
        for number, row in enumerate(rows, 1):
            read_result_row(row, f"row {number} of the result file")
            tally.add(row)
        return tally

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of a result file."""
        self.judged += 1
        self.stops[row["stop"]] += 1
        self.verdicts += row["stop"] == "verdict"
        self.ties += row["verdict"] == "tie"
        self.contested += any(view.get("contested") for view in row.get("views", ()))
        self.exposed += any(view.get("exposed") for view in row.get("views", ()))
        self.open += row["stop"] == StopReason.ABSTAINED
        if row["correct"] is not None:
            self.credits.add(row["correct"], prompt_cluster(row.get("prompt")))
        self.with_evidence += row.get("decided") is not None
        self.evidence.add(row, row["correct"], row.get("label"), prompt_cluster(row.get("prompt")))
        for verdict in row.get("jury", ()):
            self.jury.setdefault(verdict["model"], JurorTally()).add(verdict, row)
        self.checkers.add(row)
        rating = row.get("rating")
        self.passes += isinstance(rating, bool)
        self.ratings += rating is not None and not isinstance(rating, bool)
        self.sources += bool(row.get("sources"))
        self.programs += row["programs"]
        self.programs_failed += row["programs_failed"]
        self.programs_refused += row["programs_refused"]
        self.prompt_tokens += row["prompt_tokens"]
        self.completion_tokens += row["completion_tokens"]

    @property
    def decided_share(self) -> float | None:
        """The share of judged rows whose verdict programs decided; None if no row records `decided`."""
        return self.evidence.decided / self.judged if self.with_evidence else None

    @property
    def accuracy(self) -> Proportion:
        """The mean credit of labelled rows: the accuracy under the protocol `verdict`."""
        return self.credits.mean

    @property
    def labelled(self) -> int:
        return len(self.credits)


@dataclass(slots=True)
class EvidenceTally:
    """Counts of verdicts that programs decided, of undecided verdicts, and what else may explain verdicts."""

    copied: CopiedPrograms = field(default_factory=CopiedPrograms)
    undecided: int = 0
    """Verdicts that no program decided, ties in place of guesses included."""
    tied: int = 0
    """Undecided verdicts that are ties."""
    unknown: int = 0
    """Verdicts of which this is not known, such as those of an older run into the same file."""
    programs: int = 0
    """Programs that rows ran."""
    guesses: Credits = field(default_factory=Credits)
    """The credits of undecided verdicts, of a tie in place of a guess that of the guess."""
    _decided: int = 0
    """Verdicts that programs decided, copied ones included, and those of `_ruled`."""
    _ruled: set[str] = field(default_factory=set)
    """The ids of the rows that the rule about empty answers decided, without a program."""
    _credits: Credits = field(default_factory=Credits)
    """The credits of the decided verdicts that `copied` does not keep."""
    _first: Credits = field(default_factory=Credits)
    """The share of each row's verdicts that name the response shown first."""
    _named: int = 0
    """Verdicts that name a response, of several that were shown."""
    _named_first: int = 0
    _by_chance: float = 0.0
    """The sum of the shares that each row would have by chance."""
    _in_both_orders: bool = False

    def add(self, row: Mapping[str, Any], credit: float | None, label: int | None, prompt: str) -> None:
        """Count a row of a result file with its credit and label, which may be those of another file."""
        kept = self.copied.add(row, credit, prompt)
        self.programs += row.get("programs", 0)
        self._add_places(row["views"], prompt)
        decided = row.get("decided")
        if row["stop"] != "verdict":
            return
        if decided is None:
            self.unknown += 1
        elif decided:
            self._decided += 1
            if not row.get("programs"):
                self._ruled.add(row["id"])
            elif credit is not None and not kept:
                self._credits.add(credit, prompt)
        else:
            self.undecided += 1
            self.tied += row["verdict"] == "tie"
            guess = row.get("guess") or row["verdict"]
            if credit is not None and guess != "tie":
                replaced = label is not None and row.get("guess")
                self.guesses.add(float(guess == letter(label or 0)) if replaced else credit, prompt)

    def _add_places(self, views: Iterable[Mapping[str, Any]], prompt: str) -> None:
        several = [view for view in views if len(view["order"]) > 1 and view["verdict"]]
        named = [view for view in several if view["verdict"]["choice"] is not None]
        self._in_both_orders |= len({tuple(view["order"]) for view in several}) > 1
        if named:
            first = sum(view["verdict"]["choice"] == view["order"][0] for view in named)
            self._first.add(first / len(named), prompt)
            self._named += len(named)
            self._named_first += first
            self._by_chance += sum(1 / len(view["order"]) for view in named) / len(named)

    @property
    def apart(self) -> set[str]:
        """The ids of the rows that copied programs or a rule decided."""
        return self._ruled.union(*(one.decided for one in self.copied.found()))

    @property
    def decided(self) -> int:
        """Verdicts that programs decided, without those of copied programs."""
        return self._decided - len(self.apart)

    @property
    def decided_credits(self) -> Credits:
        """The credits of these verdicts."""
        found = deepcopy(self._credits)
        for credit, prompt in self.copied.others():
            if credit is not None:
                found.add(credit, prompt)
        return found

    @property
    def known(self) -> int:
        """Verdicts whose `decided` is known."""
        return self._decided + self.undecided

    @property
    def is_about_decided(self) -> bool:
        """True if only the verdicts that programs decided count for more than ties."""
        return self.known > 0 and self.tied == self.undecided

    def counting(self, every: T, decided: T | None) -> T | None:
        """Return who won the rows that count, of all rows and of the decided ones; None if no row counts."""
        if not self.is_about_decided:
            return every
        return decided or (every if self.decided else None)

    @property
    def others(self) -> list[str]:
        """The verdicts that are not decided or counted apart, in words."""
        copied, ties = len(self.apart - self._ruled), f"{self.tied} " if self.tied < self.undecided else ""
        counts = f"{ties}counted as ties" if self.tied else "counted as guessed"
        found = {
            f"{self.undecided} undecided, {counts}": self.undecided,
            f"{copied} decided by a copied program": copied,
            f"{len(self._ruled)} decided by the rule about empty answers": len(self._ruled),
            f"unknown of {counted(self.unknown, 'more row')}": self.unknown,
        }
        return [text for text, number in found.items() if number]

    def lines(self) -> Iterator[str]:
        """Yield how many verdicts programs decided, and the accuracy of both kinds; nothing if not known."""
        if not self.known:
            return
        yield "; ".join([f"decided by a program {self.decided} of {self.known} rows", *self.others])
        if credits := self.decided_credits:
            yield f"accuracy of decided rows {credits.mean}"
        if self.guesses:
            counting = " (guesses count as ties)" if self.is_about_decided else ""
            yield f"accuracy of guesses {self.guesses.mean}{counting}"

    def warnings(self) -> Iterator[str]:
        """Yield what else may explain the verdicts: a copied program, no program at all, the place."""
        for one in self.copied.found():
            decided = f"; it decided {counted(len(one.decided), 'row')}, counted apart" if one.decided else ""
            ran = f"one program ran in {one.rows} of {self.copied.rows} rows"
            yield f"{ran}, which hold no {one.missing}{decided}: {one}"
        if self.known and not self.programs:
            yield "no row ran a program: the judge only read the responses"
        rows, most = len(self._first), self._named_first >= _MOST * self._named
        if most and rows >= LEAST_PROMPTS and self._first.mean.interval[0] > self._by_chance / rows:
            advice = "" if self._in_both_orders else " (--order both shows each row in both orders)"
            yield f"{self._named_first} of {self._named} verdicts name the response shown first{advice}"

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yield the lines and the warnings with their headings."""
        yield from (("evidence", line) for line in self.lines())
        yield from (("warning", line) for line in self.warnings())

    def record(self) -> dict[str, Any] | None:
        """Return the same as JSON values; None if nothing is known."""
        if not self.known:
            return None
        return {
            "decided": self.decided,
            "undecided": self.undecided,
            "ties": self.tied,
            "copied": len(self.apart - self._ruled),
            "ruled": len(self._ruled),
            "unknown": self.unknown,
            "decided_accuracy": _accuracy(self.decided_credits),
            "guess_accuracy": _accuracy(self.guesses),
            "warnings": list(self.warnings()),
        }


@dataclass(slots=True)
class CheckerTally:
    """Counts of criteria that checkers decided, and of those that the model judged as well."""

    rows: int = 0
    alone: int = 0
    """Rows whose criteria checkers decided, all of them."""
    mixed: int = 0
    """Rows with some criteria that checkers decided."""
    decided: int = 0
    """Criteria that checkers decided."""
    asked: int = 0
    """Criteria that the model judged, audits apart."""
    audited: int = 0
    """Decisions of checkers on which the model was asked as well."""
    disagreements: Credits = field(default_factory=Credits)
    """Of each audited decision that can be compared, in the order of the rows, 1 if the model disagrees."""
    _above: Proportion | None = None
    _looked: int = 0
    """Decisions that had been compared at the last look of `above`."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of a result file."""
        criteria = row.get("criteria") or ()
        checked = sum(bool(one.get("checker")) for one in criteria)
        self.rows += 1
        self.decided += checked
        self.asked += len(criteria) - checked
        self.alone += bool(checked) and checked == len(criteria)
        self.mixed += 0 < checked < len(criteria)
        for one in row.get("audit", ()):
            self.audited += 1
            if one["agrees"] is not None:
                self.disagreements.add(float(not one["agrees"]), prompt_cluster(row.get("prompt")))

    @property
    def disagreement(self) -> Proportion:
        """The share of audited decisions with which the model disagrees."""
        return self.disagreements.mean

    def above(self, most: float) -> Proportion | None:
        """Return the disagreement once it is surely above `most`; None before.

        Looks after each audit at first, and then after a twentieth more audits than at the last look, so that
        looking before every row stays cheap.
        """
        known = len(self.disagreements)
        if self._above is None and known >= self._looked + max(1, self._looked // 20):
            self._looked, found = known, self.disagreement
            if found.interval[0] > most:
                self._above = found
        return self._above

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield lines with headings: rows by who decided them, dialogues that were saved, and the audit."""
        if not self.decided:
            return
        by_model = self.rows - self.alone - self.mixed
        yield (
            "checkers",
            f"decided {self.alone} of {self.rows} rows alone, {self.mixed} with the model; "
            f"{by_model} are the model's",
        )
        yield "", f"{self.decided} of {self.decided + self.asked} criteria needed no dialogue"
        if self.audited:
            yield "audit", f"{self.audited} decisions, the model disagrees with {self.disagreement}"
            first, second = self.disagreements.halves
            if first:
                yield "", f"first half {first.mean}; second half {second.mean}"

    def record(self) -> dict[str, Any] | None:
        """Return the same as JSON values; None if no checker decided anything."""
        if not self.decided:
            return None
        return {
            "rows": self.alone,
            "rows_with_model": self.mixed,
            "decided": self.decided,
            "asked": self.asked,
            "audited": self.audited,
            "disagreement": self.disagreement.record(),
            "halves": [half.mean.record() for half in self.disagreements.halves],
        }


def _accuracy(credits: Credits) -> dict[str, Any] | None:
    if not credits:
        return None
    return {"rate": credits.mean.rate, "interval": credits.mean.bounds, "n": len(credits)}
