"""RM-R1's transcripts on RMB."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import rmb_section
from tirjudge.evaluation.stored_outputs.base import Fields
from tirjudge_environments import JudgeTask, Malformed, Message, View
from tirjudge_environments.formats.rm_r1 import RmR1

_FORMAT = RmR1()


class RmR1Transcripts:
    """Reads `answers` as the judge format rm-r1 does; the chosen response is the first candidate."""

    name = "rm-r1"
    about = "RM-R1-UIUC/RM-R1: transcripts with text_chosen, text_rejected and answers"
    benchmark = "rmb"
    protocols = ("rmb",)

    def recognises(self, row: Fields) -> bool:
        return "answers" in row and "Is_Chosen_Answer_Shuffled_toPositionB" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        order = (1, 0) if row["Is_Chosen_Answer_Shuffled_toPositionB"] else (0, 1)
        chosen, rejected = (row[name][-1]["content"] for name in ("text_chosen", "text_rejected"))
        task = JudgeTask(
            id=default_id,
            prompt=tuple(Message(turn["role"], turn["content"]) for turn in row["text_chosen"][:-1]),
            candidates=(chosen, rejected),
            label=0,
        )
        verdict = _FORMAT.verdict(task, View("AB", order), row["answers"])
        choice = None if isinstance(verdict, Malformed) else verdict.choice
        vote = Vote(
            best=() if choice is None else (choice,),
            order=order,
            stop="malformed" if choice is None else "verdict",
        )
        group = row.get("bon_uid")
        yield JudgedRow(
            id=str(row.get("pair_uid", default_id)),
            votes=(vote,),
            label=0,
            domain=rmb_section(row["category_path"]),
            tags=() if group is None else (f"group={group}",),
        )


RM_R1_TRANSCRIPTS = RmR1Transcripts()
