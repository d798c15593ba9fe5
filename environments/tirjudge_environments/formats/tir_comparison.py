"""TIR-Judge's formats that compare: the better of two responses, or the best of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.reward_terms import NO_TOOL_DOMAINS, Scored, failed, together, unlabelled
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import Order, letters, ordered_views, require_pair
from tirjudge_environments.programs.evidence import decisive, program_evidence
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.types import Episode, Evidence, JudgeTask, Trajectory, Unscored, Verdict, View
from tirjudge_sandbox import Status


class TirChoice(TirFormat):
    """A TIR-Judge format in which the judge sees every response under a letter and names the best one."""

    tag: ClassVar[str] = "preference"

    order: Order = "random"
    """Order of the responses: one permutation drawn from (seed, task id); as given; or as given and
    reversed."""
    seed: int = 0
    consistency: RewardOnly[bool] = False
    """Reward a view only if the verdict of the other order is right too, as J1's consistency reward does (J1
    section 2.3). Our own option for TIR's formats; it needs `order = both`."""
    evidence: RewardOnly[Literal["off", "recorded", "required"]] = "off"
    """Run every successful program a second time with the responses exchanged, which takes as long as the
    first run. `recorded` only stores whether the output changes, see `programs.evidence`; `required` also
    rewards a right verdict only if it does. The rows of domains without tools need no evidence. Our own
    option."""

    @model_validator(mode="after")
    def _rewards_fit(self) -> Self:
        if self.consistency and self.order != "both":
            raise ValueError("consistency compares both orders: set order to `both`")
        if self.evidence != "off" and (self.exact or not self.bindings):
            raise ValueError("evidence exchanges the variables of programs, which `bindings` gives them")
        return self

    @property
    def linked(self) -> bool:
        return self.consistency

    def verdict(self, view: View, answer: str) -> Verdict | None:
        shown = dict(zip(letters(len(view.order)), view.order, strict=True))
        return Verdict(choice=shown[answer]) if answer in shown else None

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        views = [
            unlabelled(episode)
            or failed(trajectory)
            or self._unchecked(episode.task, trajectory)
            or self._scored(episode.task, trajectory)
            for trajectory in episode.trajectories
        ]
        return together(views) if self.consistency else views

    def _scored(self, task: JudgeTask, trajectory: Trajectory) -> Scored:
        verdict = self.replay(task, trajectory)
        right = verdict is not None and verdict.choice == task.label
        needed, evidence = self._needs_evidence(task), program_evidence(trajectory)
        # MISSING settles nothing: in place of the verdict the judge could have written a program.
        settled = needed and evidence in (Evidence.TIE, Evidence.FAILED)
        teaches = right and (not needed or evidence is Evidence.SEPARATES)
        return Scored(task, trajectory, right, teaches, settled)

    def _unchecked(self, task: JudgeTask, trajectory: Trajectory) -> Unscored | None:
        """Return the reason if the sandbox failed in the second run, on which the reward depends."""
        last = decisive(trajectory)
        again = None if last is None else last.exchanged
        if not self._needs_evidence(task) or again is None or again.status is not Status.SANDBOX_FAILED:
            return None
        return Unscored(f"the sandbox failed in the run with exchanged responses: {again.detail}")

    def _needs_evidence(self, task: JudgeTask) -> bool:
        return self.evidence == "required" and self.uses_tools(task) and task.domain not in NO_TOOL_DOMAINS

    def exchanged(self, task: JudgeTask, view: View) -> tuple[dict[str, Any], ...]:
        if self.evidence == "off":
            return ()
        return (self._bindings(task, replace(view, order=(*view.order[1:], view.order[0]))),)

    def _ordered(self, task: JudgeTask) -> tuple[View, ...]:
        return ordered_views(task, self.order, self.seed)


class TirPairwise(TirChoice):
    """TIR-Judge, pairwise (TIR Fig. 8 and 11): two responses, answered by `<preference>A</preference>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in a random order",
        answer="`<preference>A</preference>`",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf])",
        source="TIR-Judge section 4.2, Fig. 8, without tools Fig. 11",
    )

    kind: ClassVar[str] = "pairwise"

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        require_pair(task)
        return self._ordered(task)


class TirListwise(TirChoice):
    """TIR-Judge, listwise (TIR Fig. 9 and 12): three or more, answered by `<preference>C</preference>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="three responses or more, in a random order",
        answer="`<preference>C</preference>`; A to Z, then AA, AB, ...",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf])",
        source="TIR-Judge section 4.2, Fig. 9, without tools Fig. 12",
    )

    kind: ClassVar[str] = "listwise"

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        if len(task.candidates) < 3:
            raise ValueError(
                f"a list has at least three responses; task {task.id!r} has {len(task.candidates)}"
            )
        return self._ordered(task)
