"""RMB: pairs and best-of-N sets, their scores, and the outputs of its authors and of RM-R1's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge.evaluation.judged_rows import Figures, JudgedRow, ProtocolCard, Units, Unscorable, Vote
from tirjudge.evaluation.scoring import UnitsBuilder, drawn_vote, section_figures
from tirjudge.evaluation.stored_outputs.base import (
    Record,
    Unreadable,
    need,
    need_list,
    need_number,
    need_text,
    pair_vote,
    reading,
    shown,
)
from tirjudge.statistics.estimators import SectionMean
from tirjudge_environments import JudgeTask, Malformed, Message, View
from tirjudge_environments.formats.rm_r1 import RmR1
from tirjudge_environments.tasks import RowError


def _section(category_path: str) -> str:
    """Return `Pairwise Helpfulness` for `Pairwise_set/Helpfulness/...`. Raises ValueError for other paths."""
    part, _, rest = category_path.partition("_set/")
    kind = rest.partition("/")[0]
    if part not in ("Pairwise", "BoN") or kind not in ("Helpfulness", "Harmlessness"):
        raise ValueError(f"category_path {category_path!r} is not one of RMB's")
    return f"{part} {kind}"


def _read(row: PublishedRow) -> Iterator[Fields]:
    if "bon_uid" in row.fields:
        name = f"bon-{row.need('bon_uid')}"
        for place, loser in enumerate(row.several("loser_list")):
            yield _pair(row, f"{name}/{place}", "bon_best", loser, [f"group={name}"])
    else:
        yield _pair(row, f"pair-{row.need('pair_uid')}", "chosen", row.need("reject"), [])


def _pair(row: PublishedRow, name: str, better: str, worse: Any, tags: list[str]) -> Fields:
    if not isinstance(worse, dict) or worse.get("answer") is None:
        raise RowError("a worse response must be an object with 'answer'")
    category = str(row.need("category_path"))
    return {
        "id": name,
        "prompt": [{"role": turn.get("role"), "content": turn.get("content")} for turn in _turns(row)],
        "chosen": row.within(better, "answer"),
        "rejected": worse["answer"],
        "domain": _section(category),
        "tags": [*tags, f"category={category}"],
    }


def _turns(row: PublishedRow) -> list[dict[str, Any]]:
    turns = row.several("conversation_input")
    if not all(isinstance(turn, dict) for turn in turns):
        raise RowError("conversation_input must be a list of chat messages")
    return turns


RMB = Benchmark(
    name="rmb",
    about="Helpful and harmless responses, in pairs and against several (Zhou et al. 2024)",
    parts=(Part(name="pairwise", rows=8714), Part(name="bon", rows=3786)),
    columns={
        "pair_uid or bon_uid": "id",
        "conversation_input": "chat messages",
        "chosen, reject": "pairs: objects with answer",
        "bon_best, loser_list": "best-of-N: an object, and a list of objects, with answer",
        "category_path": "holds Helpfulness or Harmlessness",
    },
    protocols=("rmb", "tir", "tie-half", "tie-wrong", "both-orders", "position"),
    licence="none stated",
    read=_read,
)


SECTIONS = ("Pairwise Helpfulness", "Pairwise Harmlessness", "BoN Helpfulness", "BoN Harmlessness")


class Rmb:
    """Accuracy on pairs; a best-of-N set is right if its best response beats every loser.

    A set is one row with scores, or one row per loser with the same tag `group=ID`.
    """

    card = ProtocolCard(
        name="rmb",
        about="accuracy on pairs and on sets whose best response beats every loser, the mean of the sections",
        ties="count as wrong",
        failures="count as wrong",
        source="RMB; RM-R1, Table 8 (the mean of the four)",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        right: dict[tuple[str, str], bool] = {}
        clusters: dict[tuple[str, str], str] = {}
        for row, label in builder.labelled(rows):
            if row.domain not in SECTIONS:
                raise Unscorable(f"row {row.id!r}: domain {row.domain!r} is not one of {', '.join(SECTIONS)}")
            vote = drawn_vote(row)
            builder.count_outcomes(vote)
            unit = (row.domain, row.tag("group") or row.id)
            right[unit] = vote.choice == label and right.get(unit, True)
            clusters[unit] = row.cluster
        for (section, id), is_right in right.items():
            builder.add(f"{section}/{id}", section, is_right, cluster=clusters[section, id])
        return builder.build()

    def figures(self, units: Units) -> Figures:
        sections = section_figures(units, units.values[:, 0])
        if len(sections) == 1:
            return sections
        return {"mean of sections": SectionMean(list(sections.values())), **sections}


RMB_PROTOCOL = Rmb()


class RmbScores:
    """The chosen response is the first candidate; equal scores are a tie."""

    name = "rmb"
    about = "Zhou-Zoey/RMB-Reward-Model-Benchmark: chosen_reward and reject_reward"
    benchmark = "rmb"
    protocols = ("rmb",)

    def recognises(self, row: Record) -> bool:
        return "chosen_reward" in row and "reject_reward" in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        scores = need_number(row, "chosen_reward"), need_number(row, "reject_reward")
        with reading(row):
            section = _section(need_text(row, "category_path"))
        yield JudgedRow(
            id=str(row.get("pair_uid", default_id)),
            votes=(Vote(best=pair_vote(*scores), scores=dict(enumerate(scores))),),
            label=0,
            domain=section,
        )


RMB_OUTPUTS = RmbScores()


_FORMAT = RmR1()


class RmR1Transcripts:
    """Reads `answers` as the judge format rm-r1 does; the chosen response is the first candidate."""

    name = "rm-r1"
    about = "RM-R1-UIUC/RM-R1: transcripts with text_chosen, text_rejected and answers"
    benchmark = "rmb"
    protocols = ("rmb",)

    def recognises(self, row: Record) -> bool:
        return "answers" in row and "Is_Chosen_Answer_Shuffled_toPositionB" in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        order = (1, 0) if need(row, "Is_Chosen_Answer_Shuffled_toPositionB") else (0, 1)
        chosen, rejected = (_messages(row, name) for name in ("text_chosen", "text_rejected"))
        task = JudgeTask(
            id=default_id, prompt=chosen[:-1], candidates=(chosen[-1].content, rejected[-1].content), label=0
        )
        verdict = _FORMAT.verdict(task, View("AB", order), need_text(row, "answers"))
        with reading(row):
            section = _section(need_text(row, "category_path"))
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


RM_R1_OUTPUTS = RmR1Transcripts()


def _messages(row: Record, column: str) -> tuple[Message, ...]:
    turns = need_list(row, column)
    for turn in turns:
        texts = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise Unreadable(f"{column} holds {shown(turn)}, not a chat message with role and content")
    if not turns:
        raise Unreadable(f"{column} is empty")
    return tuple(Message(turn["role"], turn["content"]) for turn in turns)


def _id(row: Record, rejected: str, default_id: str) -> str:
    """Return the pair's id; the pairs of a best-of-N set have only the set's, and differ in the loser."""
    if "pair_uid" in row or "bon_uid" not in row:
        return str(row.get("pair_uid", default_id))
    digest = blake2b(rejected.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{row['bon_uid']} #{digest}"
