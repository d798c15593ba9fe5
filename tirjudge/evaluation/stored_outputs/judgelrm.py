"""JudgeLRM's transcripts on PandaLM's test set."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import pandalm_label
from tirjudge.evaluation.stored_outputs.base import Fields, need, need_text, pair_vote, reading
from tirjudge_environments import Malformed
from tirjudge_environments.formats.judgelrm import read_scores


class JudgeLrm:
    """Reads `output` as the judge format judgelrm-pair does; labels come from the row's annotators."""

    name = "judgelrm"
    about = "NuoJohnChen/JudgeLRM: outputs on PandaLM's test set"
    benchmark = "pandalm"
    protocols = ("three-class", "three-class-f1-of-means", "two-class", "kappa")

    def recognises(self, row: Fields) -> bool:
        return "output" in row and "response1" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        people = row if label is None else label
        with reading(people):
            gold, annotations = pandalm_label(people)
        yield JudgedRow(
            id=str(need(row, "idx")),
            votes=(_vote(need_text(row, "output")),),
            label=gold[0] if len(gold) == 1 else None,
            tied=len(gold) > 1,
            extras={"annotators": annotations},
        )


JUDGELRM = JudgeLrm()


def _vote(text: str) -> Vote:
    scores = read_scores(text, 2)
    if isinstance(scores, Malformed):
        return Vote(best=(), order=(0, 1), stop="malformed")
    return Vote(best=pair_vote(*scores), order=(0, 1), scores=dict(enumerate(scores)))
