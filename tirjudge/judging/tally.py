"""The tally of a run: counts of its judged and failed rows, and the accuracy of the labelled ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tirjudge.console_text import counted
from tirjudge.statistics import Credits, Proportion, prompt_cluster
from tirjudge_environments import StopReason


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
        self.deciding += verdict["stop"] == "verdict" and verdict["verdict"] == row["verdict"]
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
        for row in rows:
            tally.add(row)
        return tally

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of a result file."""
        self.judged += 1
        self.stops[row["stop"]] += 1
        self.verdicts += row["stop"] == "verdict"
        self.ties += row["verdict"] == "tie"
        self.open += row["stop"] == StopReason.ABSTAINED
        if row["correct"] is not None:
            self.credits.add(row["correct"], prompt_cluster(row.get("prompt")))
        self.with_evidence += row.get("decided") is not None
        if row["stop"] == "verdict":
            self.evidence.add(row.get("decided"), row["correct"], row.get("prompt"))
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
    """Counts of verdicts that programs decided, and of verdicts that are the model's opinion."""

    decided: int = 0
    opinions: int = 0
    """Verdicts that no program decided, ties in place of guesses included."""
    unknown: int = 0
    """Verdicts of which this is not known, such as those of an older run into the same file."""
    decided_credits: Credits = field(default_factory=Credits)
    opinion_credits: Credits = field(default_factory=Credits)

    def add(self, decided: bool | None, credit: float | None, prompt: Any) -> None:
        """Count a verdict, and the credit of a labelled verdict; `decided` is None if that is not known."""
        if decided is None:
            self.unknown += 1
            return
        self.decided += decided
        self.opinions += not decided
        if credit is not None:
            credits = self.decided_credits if decided else self.opinion_credits
            credits.add(credit, prompt_cluster(prompt))

    @property
    def known(self) -> int:
        """Verdicts whose `decided` is known."""
        return self.decided + self.opinions

    @property
    def others(self) -> str:
        """The number of verdicts of which nothing is known, in words; empty without any."""
        return f"unknown of {counted(self.unknown, 'more row')}" if self.unknown else ""

    def lines(self) -> Iterator[str]:
        """Yield how many verdicts programs decided, and the accuracy of both kinds; nothing if not known."""
        if not self.known:
            return
        decided = f"decided by a program {self.decided} of {self.known} rows"
        yield "; ".join(filter(None, [decided, f"{self.opinions} are the model's opinion", self.others]))
        if self.decided_credits:
            yield f"accuracy of decided rows {self.decided_credits.mean}"
        if self.opinion_credits:
            yield f"accuracy of opinions {self.opinion_credits.mean}"

    def record(self) -> dict[str, Any] | None:
        """Return the same as JSON values; None if nothing is known."""
        if not self.known:
            return None
        return {
            "decided": self.decided,
            "opinions": self.opinions,
            "unknown": self.unknown,
            "decided_accuracy": _accuracy(self.decided_credits),
            "opinion_accuracy": _accuracy(self.opinion_credits),
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
