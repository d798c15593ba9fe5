"""Error rates: programs that could not be parsed or failed, and answers that could not be read."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.units import UnitsBuilder
from tirjudge.statistics import Proportion

_KINDS = ("syntax", "runtime", "limit", "refused")


class Errors:
    """Shares of programs by how they ended, and the share of missing verdicts.

    The row is the unit of the intervals, because its programs and answers depend on each other.
    """

    card = ProtocolCard(
        name="errors",
        about="syntax and runtime errors among the programs run, format errors among the answers",
        ties="are verdicts",
        failures="are the format errors, including exhausted budgets",
        source="TIR-Judge, Table 3 (which does not state its denominators)",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            ended = [row.programs.count(kind) for kind in _KINDS]
            unread = [vote.stop for vote in row.votes if vote.stop != "verdict"]
            builder.counts.update(unread)
            builder.add(
                row.id, row.domain, not unread, len(row.votes), len(unread), len(row.programs), *ended
            )
        return builder.build()

    def figures(self, units: Units) -> Figures:
        _, votes, unread, programs, syntax, runtime, limit, refused = units.values.T
        if not votes.any():
            raise Unscorable("no row was judged")
        ran = programs - refused
        return {
            "syntax errors": Proportion.of_clusters(syntax, ran),
            "runtime errors": Proportion.of_clusters(runtime, ran),
            "stopped at a limit": Proportion.of_clusters(limit, ran),
            "refused programs": Proportion.of_clusters(refused, programs),
            "format errors": Proportion.of_clusters(unread, votes),
        }


ERRORS = Errors()
