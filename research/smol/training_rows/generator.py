"""The generator of the three files: warm-up, training and held-out rows, as a function of the seed."""

from __future__ import annotations

import json
import lzma
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from research.smol.training_rows.benchmarks import evaluation_index
from research.smol.training_rows.coding import (
    HELD_OUT,
    TRAINED,
    Pool,
    Problem,
    coding_drafts,
    coding_pools,
    read_problems,
    usable,
)
from research.smol.training_rows.constrained import Constrained, environments
from research.smol.training_rows.families.registry import FAMILIES
from research.smol.training_rows.preferences import preference_draft
from research.smol.training_rows.requests import (
    BadSources,
    Request,
    own_requests,
    public_requests,
    vocabulary,
)
from research.smol.training_rows.rows import LISTWISE, PAIRWISE, Draft, confirmed
from tirjudge.storage.durable_files import complete_file
from tirjudge_environments.instruction_checks import IFEVAL

SIZES = {"warmup": 5000, "train": 4000, "heldout": 600}
"""Rows of each file at scale 1."""
_CODE, _GENERAL = 0.05, 0.13


@dataclass
class Report:
    """Counts of a run, for the card and the console."""

    seed: int
    without: Sequence[str]
    rows: dict[str, list[Draft]] = field(default_factory=dict)
    """Rows by file."""
    read: Counter[str] = field(default_factory=Counter)
    """Requests and problems by source, before decontamination."""
    shared: dict[str, Counter[str]] = field(default_factory=dict)
    """Requests, problems and prompts dropped because a benchmark shares them, by source and benchmark."""
    disagreed: Counter[str] = field(default_factory=Counter)
    """Rows dropped because the program printed something else than the verifiers count, by family."""
    failed: Counter[str] = field(default_factory=Counter)
    """Draws without answers that keep and break the constraints as wanted, by families."""
    generated: Counter[str] = field(default_factory=Counter)
    """Rows drafted, by source, before decontamination and confirmation."""


class Generator:
    """Makes the rows of all files, so that no prompt appears twice."""

    def __init__(
        self,
        sources: Path,
        benchmarks: Path,
        *,
        seed: int,
        without: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        """Read the sources. Raises BadSources."""
        unknown = [name for name in without if name not in FAMILIES]
        if unknown:
            raise BadSources(f"no family is called {unknown[0]!r}; there are {', '.join(FAMILIES)}")
        self.report = Report(seed, without)
        self._say = say
        problems = read_problems(sources)
        self._index = evaluation_index(benchmarks, problems)
        self._problems = {
            split: self._usable(problems, split, ids)
            for split, ids in (("trained", TRAINED), ("held out", HELD_OUT))
        }
        shared = self.report.shared.setdefault("self-instruct", Counter())
        public = public_requests(sources, self._index, shared)
        self.report.read["self-instruct"] = len(public) + shared.total()
        own = self._own()
        self.vocabulary = vocabulary(public)
        self._requests = {
            held: (
                [one for one in own if one.held_out == held],
                [one for one in public if one.held_out == held],
            )
            for held in (False, True)
        }
        self._allowed = [name for name in FAMILIES if name not in without]
        self._pools: dict[bool, list[Pool]] = {}
        self._seen: set[str] = set()

    def make(self, name: str, count: int) -> list[Draft]:
        """Return the confirmed rows of one file. Raises SandboxUnavailable."""
        rng = random.Random(f"{self.report.seed}/{name}")
        held = name == "heldout"
        code, general = round(_CODE * count), round(_GENERAL * count)
        drafts = self._constrained(environments(rng, count - code - general), rng, held)
        drafts += self._general(general, rng, held)
        drafts += self.coded(code, rng, held=held)
        rows = self._confirmed(drafts, name)
        rng.shuffle(rows)
        self.report.rows[name] = rows
        return rows

    def near_misses(self, count: int) -> list[Draft]:
        """Return confirmed pairs and lists whose worse responses are the best one, edited."""
        rng = random.Random(f"{self.report.seed}/near misses")
        kinds = [LISTWISE if number % 3 == 0 else PAIRWISE for number in range(count)]
        return self._confirmed(self._constrained(kinds, rng, held=False, near=True), "near misses")

    def requests(self, *, held: bool) -> tuple[list[Request], list[Request]]:
        """Return our own requests and the public ones, of the held-out topics or of the others."""
        return self._requests[held]

    def accepts(self, draft: Draft) -> bool:
        """Return True if a draft shares nothing with a benchmark and has a prompt that no other row has."""
        self.report.generated[draft.source] += 1
        return self.clean(draft) and self._is_new(draft)

    def coded(self, count: int, rng: random.Random, *, held: bool) -> list[Draft]:
        """Return about this many rows of MBPP problems."""
        drafts = coding_drafts(self._coding_pools(held), environments(rng, round(count * 1.5)), rng)
        self.report.generated["mbpp"] += len(drafts)
        return [draft for draft in drafts if self._is_new(draft)][:count]

    def _confirmed(self, drafts: Sequence[Draft], name: str) -> list[Draft]:
        agreed = confirmed(drafts, lambda line: self._say(f"{name}: {line}"))
        for draft, agrees in zip(drafts, agreed, strict=True):
            if not agrees:
                self.report.disagreed.update(draft.families)
        return [draft for draft, agrees in zip(drafts, agreed, strict=True) if agrees]

    def _own(self) -> list[Request]:
        shared = self.report.shared.setdefault("own", Counter())
        found = []
        for request in own_requests():
            self.report.read["own"] += 1
            overlap = self._index.find([request.text])
            if overlap is None:
                found.append(request)
            else:
                shared[overlap.benchmark] += 1
        return found

    def _constrained(
        self, kinds: Sequence[str], rng: random.Random, held: bool, near: bool = False
    ) -> list[Draft]:
        own, public = self._requests[held]
        by_genre: dict[str, list[Request]] = {}
        for request in own:
            by_genre.setdefault(request.genre, []).append(request)
        maker = Constrained(rng, by_genre, public, self.vocabulary, self._allowed, near)
        found: list[Draft] = []
        for environment in kinds:
            while True:
                draft = maker.draft(environment)
                if draft is not None:
                    self.report.generated[draft.source] += 1
                    if self.clean(draft) and self._is_new(draft):
                        found.append(draft)
                        break
            if len(found) % 500 == 0:
                self._say(f"{len(found):,} of {len(kinds):,} rows drafted")
        self.report.failed.update(maker.tried)
        return found

    def _general(self, count: int, rng: random.Random, held: bool) -> list[Draft]:
        own, public = self._requests[held]
        requests = [*own, *public]
        found: list[Draft] = []
        for environment in environments(rng, count):
            while True:
                draft = preference_draft(environment, requests, rng)
                # Several answers to one public instruction may be compared with different worse ones.
                if draft is not None and self.clean(draft):
                    self.report.generated[draft.source] += 1
                    found.append(draft)
                    break
        return found

    def _coding_pools(self, held: bool) -> list[Pool]:
        # Running all copies takes a while, and two files share them.
        if held not in self._pools:
            split = "held out" if held else "trained"
            rng = random.Random(f"{self.report.seed}/mbpp {split}")
            self._pools[held] = coding_pools(self._problems[split], rng)
            self._say(f"mbpp: {len(self._pools[held])} problems with broken copies")
        return self._pools[held]

    def clean(self, draft: Draft) -> bool:
        """Return True if a prompt shares no run of words with a benchmark, and report what it shares."""
        overlap = self._index.find([draft.prompt])
        if overlap is None:
            return True
        self.report.shared.setdefault(f"{draft.source} prompts", Counter())[overlap.benchmark] += 1
        # The shared words tell which of our own wordings needs to be changed.
        self._say(f"dropped a prompt that shares with {overlap.benchmark}: {overlap.words}")
        return False

    def _is_new(self, draft: Draft) -> bool:
        key = draft.prompt if draft.domain != "code" else "\n".join(draft.responses)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _usable(self, problems: Sequence[Problem], split: str, ids: range) -> list[Problem]:
        shared = self.report.shared.setdefault(f"mbpp {split}", Counter())
        found = usable(problems, ids, self._index, shared)
        self.report.read[f"mbpp {split}"] = len(found) + shared.total()
        return found


def drawn_families(count: int, seed: int) -> list[str]:
    """Return this many of IFEval's families, drawn by seed, that a comparison leaves out of training."""
    return sorted(random.Random(f"held-out families/{seed}").sample(sorted(IFEVAL), count))


def write(rows: Sequence[Draft], path: Path, name: str, further: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write rows and further stored ones as JSON lines compressed with xz; equal rows give equal bytes."""
    with complete_file(path) as out:
        out.write(compressed(rows, name, further))


def compressed(rows: Sequence[Draft], name: str, further: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """Return rows and further stored ones as JSON lines compressed with xz."""
    stored = [draft.row(f"smol-{name}-{number:05d}") for number, draft in enumerate(rows)]
    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in (*stored, *further)]
    return lzma.compress(b"".join(lines), preset=9 | lzma.PRESET_EXTREME)
