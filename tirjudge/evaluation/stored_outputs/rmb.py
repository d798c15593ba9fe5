"""RMB's files of scores by scalar reward models."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import rmb_section
from tirjudge.evaluation.stored_outputs.base import Fields, need_number, need_text, pair_vote, reading


class RmbScores:
    """The chosen response is the first candidate; equal scores are a tie."""

    name = "rmb"
    about = "Zhou-Zoey/RMB-Reward-Model-Benchmark: chosen_reward and reject_reward"
    benchmark = "rmb"
    protocols = ("rmb",)

    def recognises(self, row: Fields) -> bool:
        return "chosen_reward" in row and "reject_reward" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        scores = need_number(row, "chosen_reward"), need_number(row, "reject_reward")
        with reading(row):
            section = rmb_section(need_text(row, "category_path"))
        yield JudgedRow(
            id=str(row.get("pair_uid", default_id)),
            votes=(Vote(best=pair_vote(*scores), scores=dict(enumerate(scores))),),
            label=0,
            domain=section,
        )


RMB_SCORES = RmbScores()
