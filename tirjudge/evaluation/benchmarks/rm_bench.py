"""RM-Bench: a right and a wrong response in three styles each, and accuracy in the matrix of styles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge.evaluation.judged_rows import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.scoring import UnitsBuilder, credit, drawn_vote, section_figures
from tirjudge.statistics.estimators import SectionMean

STYLES = 3
"""Concise, detailed in plain text, detailed in Markdown."""
_DOMAINS = {"alpacaeval": "chat", "bigcode/humanevalpack": "code"}


def _read(row: PublishedRow) -> Iterator[Fields]:
    chosen, rejected = row.several("chosen", STYLES), row.several("rejected", STYLES)
    name, domain = f"{row.need('subset')}/{row.need('id')}", _domain(row)
    shared = {"prompt": row.need("prompt"), "domain": domain}
    if row.alone:
        yield {**shared, "id": name, "responses": [*chosen, *rejected], "tags": [f"group={name}"]}
        return
    for i, better in enumerate(chosen):
        for j, worse in enumerate(rejected):
            tags = [f"group={name}", f"cell={i}{j}"]
            yield {**shared, "id": f"{name}/{i}{j}", "chosen": better, "rejected": worse, "tags": tags}


def _domain(row: PublishedRow) -> str:
    """Return the column `domain`, or derive it from the subset: the authors' files have no such column."""
    domain = row.fields.get("domain")
    if domain:
        return "safety" if str(domain).startswith("safety") else str(domain)
    subset = str(row.need("subset"))
    return _DOMAINS.get(subset, "math" if "math" in subset else "safety")


RM_BENCH = Benchmark(
    name="rm-bench",
    about="Content against style: chat, code, math, safety, each 3 x 3 pairs a row (Liu et al. 2024)",
    parts=(Part(name="train", hub="THU-KEG/RM-Bench", split="train", rows=1327),),
    columns={
        "id": "id",
        "subset": "where it comes from",
        "domain": "chat, code, math or safety-...; the authors' files lack it",
        "prompt": "prompt",
        "chosen": "3 right responses: concise, plain, Markdown",
        "rejected": "3 wrong ones in the same styles",
    },
    protocols=("rm-bench", "rm-bench-tie-half", "both-orders"),
    licence="none stated",
    read=_read,
)


_PLACES = tuple(f"{chosen}{rejected}" for chosen in range(STYLES) for rejected in range(STYLES))


@dataclass(frozen=True, slots=True)
class RmBench:
    """Accuracy per cell, from nine pairs or from six responses scored alone (three chosen, then rejected).

    Cell (i, j) compares the chosen response in style i with the rejected one in style j. Cells below the
    diagonal are easy (the chosen response is more elaborate), cells on it normal, cells above it hard. The
    score of a domain is the mean of easy, normal and hard; each overall figure is the mean of the domains.
    Domains that share the text before a dash (`safety-refuse`, `safety-response`) are pooled.
    """

    card: ProtocolCard
    tie: float = 0.0
    """Credit of a cell in which both responses have the same score."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        matrices: dict[str, tuple[str, NDArray[np.float64]]] = {}
        clusters: dict[str, str] = {}
        for row in rows:
            group = row.tag("group") or row.id
            domain = row.domain.partition("-")[0]
            matrix = matrices.setdefault(group, (domain, np.full(len(_PLACES), np.nan)))[1]
            clusters[group] = row.cluster
            for cell, worth in self._cells(row, builder):
                matrix[cell] = worth
        for group, (domain, matrix) in matrices.items():
            if np.isnan(matrix).any():
                builder.counts["left out: not all nine pairs were judged"] += 1
            else:
                cells = map(float, matrix)
                builder.add(group, domain, float(matrix.mean()), *cells, cluster=clusters[group])
        return builder.build()

    def figures(self, units: Units) -> Figures:
        matrices = units.values[:, 1:].reshape(-1, STYLES, STYLES)
        levels = dict(zip(("easy", "normal", "hard"), difficulties(matrices), strict=True))
        overall = np.mean(list(levels.values()), axis=0)
        named = {"overall": overall, **levels}
        means = {
            name: SectionMean(list(section_figures(units, values).values())) for name, values in named.items()
        }
        return {**means, **section_figures(units, overall)}

    def _cells(self, row: JudgedRow, builder: UnitsBuilder) -> Iterator[tuple[int, float]]:
        vote = drawn_vote(row)
        place = row.tag("cell")
        if place is not None:
            builder.count_outcomes(vote)
            if place not in _PLACES:
                raise Unscorable(f"row {row.id!r}: its tag cell={place} is not one of {', '.join(_PLACES)}")
            yield _PLACES.index(place), self.tie if vote.tie else credit(vote, 0, share_ties=False)
        elif row.candidates == 2 * STYLES and not vote.order:
            for chosen in range(STYLES):
                for rejected in range(STYLES):
                    pair = vote.scores.get(chosen), vote.scores.get(STYLES + rejected)
                    yield chosen * STYLES + rejected, self._compared(*pair, builder)
        else:
            raise Unscorable(
                f"row {row.id!r} is neither an RM-Bench pair (tag cell=IJ) nor six responses scored alone"
            )

    def _compared(self, chosen: float | None, rejected: float | None, builder: UnitsBuilder) -> float:
        if chosen is None or rejected is None:
            builder.counts["no verdict"] += 1
            return 0.0
        if chosen == rejected:
            builder.counts["tie"] += 1
            return self.tie
        return float(chosen > rejected)


def difficulties(matrices: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return (easy, normal, hard) for (..., styles, styles) matrices of accuracies, rows by chosen style."""
    places = np.tril_indices(STYLES, -1), np.diag_indices(STYLES), np.triu_indices(STYLES, 1)
    return tuple(matrices[..., rows, columns].mean(axis=-1) for rows, columns in places)


RM_BENCH_PROTOCOL = RmBench(
    ProtocolCard(
        name="rm-bench",
        about="accuracy in the 3 x 3 matrix of styles, the mean of the domains",
        ties="count as wrong",
        failures="count as wrong",
        source="RM-Bench, scripts/utils.py",
    )
)
RM_BENCH_TIE_HALF_PROTOCOL = RmBench(
    ProtocolCard(
        name="rm-bench-tie-half",
        about="accuracy in the 3 x 3 matrix of styles, the mean of the domains",
        ties="are worth 0.5",
        failures="count as wrong",
        source="RM-Bench, scripts/utils.py, under TIR-Judge, Appendix D",
    ),
    tie=0.5,
)
