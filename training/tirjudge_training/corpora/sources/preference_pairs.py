"""Sources whose rows already are preference pairs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from tirjudge_environments import Message
from tirjudge_training.corpora.base import ChatTurn, Skipped, Source, SourceCard, SourceItem


class CodePreferenceRow(BaseModel):
    """A row of Code-Preference-Pairs: code, and the same with bugs (RM-R1, App. D.2 and Table 5)."""

    input: str
    accepted: str
    rejected: str


class CodePreferencePairs(Source[CodePreferenceRow]):
    """Takes every row as a pair."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="Vezora/Code-Preference-Pairs",
        domain="reasoning",
        about="correct code, and the same with bugs",
        licence="",
    )

    def question(self, row: CodePreferenceRow) -> SourceItem | Skipped:
        return SourceItem(prompt=(Message("user", row.input),), good=(row.accepted,), bad=(row.rejected,))


CLEAR = 2
"""The smallest |overall_preference| that is taken, "better"; 1 is "slightly better" (TIR App. C)."""


class HelpSteer3Row(BaseModel):
    """A row of HelpSteer3: human preferences between two responses (TIR Table 6, "HelpSteer3")."""

    context: list[ChatTurn]
    response1: str
    response2: str
    overall_preference: int = Field(ge=-3, le=3)
    """Negative if the first response is better."""


class HelpSteer3(Source[HelpSteer3Row]):
    """Takes pairs in which one response is better or significantly better."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="nvidia/HelpSteer3",
        parts=(("preference", "train"),),
        domain="helpfulness",
        about="human preferences, |overall_preference| >= 2",
        licence="CC-BY-4.0",
    )

    def question(self, row: HelpSteer3Row) -> SourceItem | Skipped:
        if abs(row.overall_preference) < CLEAR:
            return Skipped("neither response is better or significantly better")
        responses = (row.response1, row.response2)
        first = row.overall_preference < 0
        return SourceItem(
            prompt=tuple(turn.message for turn in row.context),
            good=responses[:1] if first else responses[1:],
            bad=responses[1:] if first else responses[:1],
        )


class JudgeLmRow(BaseModel):
    """A row of JudgeLM-100K: pairs with GPT-4's scores, JudgeLRM's targets (JudgeLRM, section 4.1)."""

    question_body: str
    answer1_body: str
    answer2_body: str
    score: list[float]


class JudgeLm(Source[JudgeLmRow]):
    """Takes both answers in the order that GPT-4 saw, ties included."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="BAAI/JudgeLM-100K",
        files="judgelm_train_100k.jsonl",
        domain="general",
        about="pairs with GPT-4's two scores; rows where it gave none (-1) are left out",
        licence="CC-BY-NC-4.0",
        repeats=True,
    )

    def question(self, row: JudgeLmRow) -> SourceItem | Skipped:
        # A score of -1 marks a row for which GPT-4 gave none.
        if len(row.score) != 2 or min(row.score) < 0:
            return Skipped("no two scores")
        if not row.question_body.strip():
            return Skipped("an empty question")
        return SourceItem(
            prompt=(Message("user", row.question_body.strip()),),
            row={"responses": [row.answer1_body, row.answer2_body], "gold_scores": row.score},
        )


class MathStepRow(BaseModel):
    """A row of Math-Step-DPO-10K: right and wrong continuations of the same steps (RM-R1, App. D.2)."""

    prompt: str
    initial_reason_steps: str
    full_chosen: str
    full_rejected: str


class MathStepDpo(Source[MathStepRow]):
    """Joins the common first steps with each continuation, as the authors' code does."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="xinlai/Math-Step-DPO-10K",
        domain="reasoning",
        about="the common first steps with the right and with the wrong continuation",
        licence="",
        repeats=True,
    )

    def question(self, row: MathStepRow) -> SourceItem | Skipped:
        return SourceItem(
            prompt=(Message("user", row.prompt),),
            good=(row.initial_reason_steps + row.full_chosen,),
            bad=(row.initial_reason_steps + row.full_rejected,),
        )


class SafeRlhfRow(BaseModel):
    """A row of PKU-SafeRLHF: pairs of a safe and an unsafe answer (TIR Table 6, "SafeRLHF")."""

    prompt: str
    response_0: str
    response_1: str
    is_response_0_safe: bool
    is_response_1_safe: bool
    safer_response_id: Literal[0, 1]


class SafeRlhf(Source[SafeRlhfRow]):
    """Takes pairs with exactly one safe response, which is also rated as safer (ours)."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="PKU-Alignment/PKU-SafeRLHF",
        domain="safety",
        about="pairs of a safe and an unsafe response",
        licence="CC-BY-NC-4.0",
    )

    def question(self, row: SafeRlhfRow) -> SourceItem | Skipped:
        responses = (row.response_0, row.response_1)
        safe = (row.is_response_0_safe, row.is_response_1_safe)
        if safe[0] == safe[1]:
            return Skipped("both responses are safe, or neither")
        # Two annotations that contradict each other.
        if not safe[row.safer_response_id]:
            return Skipped("the safer response is not the safe one")
        return SourceItem(
            prompt=(Message("user", row.prompt),),
            good=(responses[safe.index(True)],),
            bad=(responses[safe.index(False)],),
        )


GIVEN_AWAY = "magpie_ultra"
"""Left out: only its rejected responses contain a stray chat marker, which would give the label away."""
DOMAINS = {"magpie": "reasoning", "offset": "chat", "helpsteer": "chat", "wildguard": "safety"}
"""The domains of RM-R1's Table 5, by the prefix of a row's `source`."""


class SkyworkRow(BaseModel):
    """A row of Skywork-Reward-Preference-80K without `magpie_ultra` (RM-R1, App. D.2 and Table 5)."""

    source: str
    chosen: list[ChatTurn]
    rejected: list[ChatTurn]


class Skywork(Source[SkyworkRow]):
    """Takes conversations that differ in the last turn alone, since a pair has one prompt."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="Skywork/Skywork-Reward-Preference-80K-v0.2",
        domain="chat",
        about="all preference pairs except those of magpie_ultra",
        licence="",
        repeats=True,
    )

    def question(self, row: SkyworkRow) -> SourceItem | Skipped:
        if row.source == GIVEN_AWAY:
            return Skipped(f"of {GIVEN_AWAY}")
        # A pair has one prompt, so only the last turn may differ.
        if len(row.chosen) < 2 or row.chosen[:-1] != row.rejected[:-1]:
            return Skipped("conversations that differ before their last turn")
        if {row.chosen[-1].role, row.rejected[-1].role} != {"assistant"}:
            return Skipped("a conversation that does not end with an answer")
        found = (domain for name, domain in DOMAINS.items() if row.source.startswith(name))
        return SourceItem(
            prompt=tuple(turn.message for turn in row.chosen[:-1]),
            good=(row.chosen[-1].content,),
            bad=(row.rejected[-1].content,),
            domain=next(found, ""),
        )


CODING = "Coding"


class Turn(BaseModel):
    """One turn of a trajectory."""

    role: Literal["user", "assistant"] = Field(alias="from")
    value: str


class UltraInteractRow(BaseModel):
    """A row of UltraInteract: right and wrong actions in trees of trajectories (TIR Table 6)."""

    task: str
    trajectory: list[Turn]
    chosen: str
    rejected: str


class UltraInteract(Source[UltraInteractRow]):
    """Takes the coding tasks alone, since Table 6 gives this source's domain as code."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="openbmb/UltraInteract_pair",
        domain="code",
        about="pairs of a right and a wrong next action, task Coding",
        licence="MIT",
    )

    def question(self, row: UltraInteractRow) -> SourceItem | Skipped:
        if row.task != CODING:
            return Skipped(f"a task other than {CODING}")
        return SourceItem(
            prompt=tuple(Message(turn.role, turn.value) for turn in row.trajectory),
            good=(row.chosen,),
            bad=(row.rejected,),
        )
