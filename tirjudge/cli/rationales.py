"""The part of `tirjudge eval` that asks a MetaJudge, or reads what it answered before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tirjudge.cli.one_line import say
from tirjudge.evaluation.rationales import Extras
from tirjudge.evaluation.rationales import KeptAnswers
from tirjudge.evaluation.rationales import matched
from tirjudge.evaluation.stored_outputs import Replay
from tirjudge.meta_judge import MetaJudgeConfig
from tirjudge.rollout.reward_questions import AnswerStore
from tirjudge.storage.run_folder import JsonObject
from tirjudge.storage.run_folder import read_lines


def with_matchings(run: Replay, meta_judge: str, base_url: str) -> Replay:
    """The run with people's reasons matched; as it is where nobody was asked, now or before.

    Answers are kept in RESULTS.asked/ and not asked for again. Raises NotAnswered for a model that cannot be
    had, ValueError for answers of several models of which none is named.
    """
    folder = run.path.with_name(run.path.name + ".asked")
    if meta_judge:
        folder.mkdir(exist_ok=True)
        config = MetaJudgeConfig(model=meta_judge, base_url=base_url)
        return run.with_extras(asyncio.run(_ask(run.path, config, folder)))
    kept = folder / "asked.jsonl"
    if not kept.exists():
        return run
    answers = _only_model(list(read_lines(kept)), kept)
    return run.with_extras(asyncio.run(matched(read_lines(run.path), KeptAnswers(answers))))


async def _ask(path: Path, config: MetaJudgeConfig, folder: Path) -> Extras:
    asking = config.open(kept=AnswerStore(folder), say=say)
    try:
        return await matched(read_lines(path), asking)
    finally:
        await asking.close()


def _only_model(rows: list[JsonObject], path: Path) -> dict[str, str]:
    models = sorted({row["model"] for row in rows})
    if len(models) > 1:
        raise ValueError(f"{path} holds answers of {', '.join(models)}: name one with --meta-judge")
    return {row["key"]: row["answer"] for row in rows}
