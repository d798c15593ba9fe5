"""RM-R1's transcripts on RMB."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import rmb_section
from tirjudge.evaluation.stored_outputs.base import (
    Fields,
    Unreadable,
    need,
    need_list,
    need_text,
    reading,
    shown,
)
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
        order = (1, 0) if need(row, "Is_Chosen_Answer_Shuffled_toPositionB") else (0, 1)
        chosen, rejected = (_turns(row, name) for name in ("text_chosen", "text_rejected"))
        task = JudgeTask(
            id=default_id,
            prompt=chosen[:-1],
            candidates=(chosen[-1].content, rejected[-1].content),
            label=0,
        )
        verdict = _FORMAT.verdict(task, View("AB", order), need_text(row, "answers"))
        with reading(row):
            section = rmb_section(need_text(row, "category_path"))
        choice = None if isinstance(verdict, Malformed) else verdict.choice
        vote = Vote(
            best=() if choice is None else (choice,),
            order=order,
            stop="malformed" if choice is None else "verdict",
        )
        group = row.get("bon_uid")
        yield JudgedRow(
            id=_id(row, rejected[-1].content, default_id),
            votes=(vote,),
            label=0,
            domain=section,
            tags=() if group is None else (f"group={group}",),
        )


RM_R1_TRANSCRIPTS = RmR1Transcripts()


def _turns(row: Fields, column: str) -> tuple[Message, ...]:
    turns = need_list(row, column)
    for turn in turns:
        texts = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise Unreadable(f"{column} holds {shown(turn)}, not a chat message with role and content")
    if not turns:
        raise Unreadable(f"{column} is empty")
    return tuple(Message(turn["role"], turn["content"]) for turn in turns)


def _id(row: Fields, rejected: str, default_id: str) -> str:
    """Return the pair's id; the pairs of a best-of-N set have only the set's, and differ in the loser."""
    if "pair_uid" in row or "bon_uid" not in row:
        return str(row.get("pair_uid", default_id))
    digest = blake2b(rejected.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{row['bon_uid']} #{digest}"
