"""Empty answers: in pairs and lists they lose against the others, which are judged among themselves.

An answer is empty without any visible text, file or tool call. With one answer left, that one wins, decided
by this rule; if all are empty, they tie, undecided. The rule is recorded as a view of all responses without a
dialogue, beside the dialogues about the answers with content.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from tirjudge.judging.judgment import Judgment
from tirjudge.records.verdicts import EMPTY
from tirjudge_environments import Episode, JudgeTask, Prompt, StopReason, Trajectory, Verdict, View
from tirjudge_environments.orders import letter

_INVISIBLE = "\u115f\u1160\u2800\u3164\uffa0"
"""Characters that are letters or symbols to Unicode, and that show nothing."""


def with_content(task: JudgeTask) -> tuple[int, ...]:
    """Return the indices of the responses with visible text, a file or a tool call."""
    found = []
    for index, response in enumerate(task.candidates):
        said = [response] if isinstance(response, str) else [one.content for one in response]
        calls = not isinstance(response, str) and any(one.tool_calls for one in response)
        if calls or any(map(_is_visible, said)) or (task.files and task.files[index].files):
            found.append(index)
    return tuple(found)


def _is_visible(text: str) -> bool:
    # Separators, control and format characters, and marks, which show nothing without a letter.
    return any(unicodedata.category(one)[0] not in "CMZ" and one not in _INVISIBLE for one in text)


def rule_view(task: JudgeTask, kept: Sequence[int], sample: int = 0) -> Trajectory:
    """Return the record of the rule for a task of which only the responses `kept` have content.

    It has no verdict where several responses are left, which dialogues compare.
    """
    verdict = Verdict(choice=kept[0]) if len(kept) == 1 else None if kept else Verdict(tie=True)
    names = ", ".join(letter(index) for index in range(len(task.candidates)) if index not in kept)
    return Trajectory(
        view=View(EMPTY, tuple(range(len(task.candidates)))),
        sample=sample,
        prompt=Prompt(messages=()),
        prompt_ids=None,
        segments=(),
        calls=(),
        stop=StopReason.VERDICT,
        verdict=verdict,
        detail=f"no visible text, file or tool call: {names}",
    )


def left(task: JudgeTask, kept: Sequence[int]) -> JudgeTask:
    """Return the task with the responses `kept` alone."""
    return replace(
        task,
        candidates=tuple(task.candidates[index] for index in kept),
        files=tuple(task.files[index] for index in kept) if task.files else task.files,
        label=kept.index(task.label) if task.label in kept else None,
    )


def among_all(judged: Judgment, task: JudgeTask, kept: Sequence[int], kind: str) -> Judgment:
    """Return a judgment on the responses `kept` as one on all responses of the task."""

    def whole(episode: Episode) -> Episode:
        rule = rule_view(task, kept, episode.sample)
        return replace(
            episode, task=task, trajectories=(rule, *(_moved(one, kept) for one in episode.trajectories))
        )

    return replace(
        judged,
        kind=kind,
        best=tuple(kept[index] for index in judged.best),
        scores={kept[index]: score for index, score in judged.scores.items()},
        episode=whole(judged.episode),
        further=tuple(map(whole, judged.further)),
    )


def _moved(dialogue: Trajectory, kept: Sequence[int]) -> Trajectory:
    """Return a dialogue about the responses `kept` with their indices in the row."""
    verdict, view = dialogue.verdict, dialogue.view
    if verdict is not None:
        choice = None if verdict.choice is None else kept[verdict.choice]
        scores = {kept[index]: score for index, score in verdict.scores.items()}
        verdict = replace(verdict, choice=choice, scores=scores)
    order = tuple(kept[index] for index in view.order)
    name = str(order[0]) if len(order) == 1 else "".join(letter(index) for index in order)
    return replace(dialogue, verdict=verdict, view=replace(view, order=order, name=name))
