"""What a batch's metrics say about programs: dialogues with the real sandbox, counted by hand."""

from __future__ import annotations

from dataclasses import replace

from tirjudge_environments import (
    Completion,
    Episode,
    Finish,
    JudgeSession,
    JudgeTask,
    Message,
    TirPairwise,
    Trajectory,
)
from tirjudge_sandbox import Sandbox, open_sandbox
from tirjudge_training.rl.dynamic_sampling import FormattedTask, ScoredRollouts
from tirjudge_training.rl.metrics import program_metrics

TASK = JudgeTask(id="1", prompt=(Message("user", "Write x twice."),), candidates=("xx", "yyy"), label=0)
COUNTS = 'for name, one in zip("AB", responses):\n    print(name, one.count("x"), "of 2")'
LENGTHS = "print(len(response_a), len(response_b))"


async def dialogue(sandbox: Sandbox, program: str | None, verdict: str, view: int = 0) -> Trajectory:
    environment = TirPairwise(order="both", evidence="recorded")
    session = JudgeSession(environment, TASK, environment.views(TASK)[view], sandbox)
    if program is not None:
        await session.step(Completion(text=f"```python\n{program}\n```\n", finish=Finish.END))
    await session.step(Completion(text=f"<preference>{verdict}</preference>", finish=Finish.END))
    return session.trajectory


async def test_the_shares_of_programs_and_of_right_verdicts() -> None:
    async with open_sandbox("local", preload=()) as sandbox:
        dialogues = [
            await dialogue(sandbox, COUNTS, "A"),  # right, followed
            await dialogue(sandbox, COUNTS, "A", view=1),  # right: response 0 is B here; not followed
            await dialogue(sandbox, LENGTHS, "B"),  # wrong, followed
            await dialogue(sandbox, "print(response_a[0])", "A"),  # no count of each response
            await dialogue(sandbox, "print(len(prompt))", "A"),  # a tie
            await dialogue(sandbox, "print(nothing)", "B"),
            await dialogue(sandbox, None, "A"),
            await dialogue(sandbox, None, "B"),
        ]
    rollouts = ScoredRollouts(
        FormattedTask("pairs", TASK),
        tuple(Episode(TASK, i, (one,)) for i, one in enumerate(dialogues)),
        (),
        0,
    )
    assert program_metrics([rollouts]) == {
        "programs/right": 2 / 8,
        "programs/wrong": 1 / 8,
        "programs/unread": 1 / 8,
        "programs/tie": 1 / 8,
        "programs/failed": 1 / 8,
        "programs/missing": 2 / 8,
        "verdicts/right": 1 / 2,
        "verdicts/wrong": 0.0,
        "verdicts/unread": 1.0,
        "verdicts/tie": 1.0,
        "verdicts/failed": 0.0,
        "verdicts/missing": 1 / 2,
        "programs/followed": 2 / 3,
    }
    # Five of the eight verdicts name the response shown first; eight are too few to say so.
    assert program_metrics([rollouts] * 4)["verdicts/first_shown"] == 5 / 8
    unlabelled = replace(rollouts, formatted=FormattedTask("pairs", replace(TASK, label=None)))
    assert program_metrics([unlabelled]) == {}
