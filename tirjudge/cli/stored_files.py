"""The stored runs that commands score: their files, columns, labels and matched reasons, as options say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tirjudge.cli.options import label_values
from tirjudge.cli.output import say
from tirjudge.data.rows import STANDARD_INPUT
from tirjudge.evaluation.benchmarks.rationale_rm import Extras, KeptAnswers, matched
from tirjudge.evaluation.stored_outputs.columns import VerdictColumns
from tirjudge.evaluation.stored_outputs.reading import Duplicates, Replay, open_replay
from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT
from tirjudge.judging.meta_judge import AnswerStore, MetaJudgeConfig
from tirjudge.storage.run_folder import JsonObject, read_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFiles:
    """The options that say how the files of a run are read."""

    columns: VerdictColumns | None
    labels: Path | None
    swapped: Path | None
    format: str
    duplicates: Duplicates
    meaning: dict[str, str] | None
    """The meaning of the values of labels; of `columns` too, if there are any."""

    @classmethod
    def parse(
        cls,
        *,
        columns: Iterable[str],
        labels: Iterable[str],
        swapped: str,
        format: str,
        duplicates: Duplicates,
        calibrates: bool = False,
    ) -> StoredFiles:
        """Read `--column PART=PLACE` and `--labels` (a file, or the meaning of values: `1=A,2=B,0=tie`).

        With `calibrates`, a meaning may belong to the labels of people instead of to columns. Raises
        ValueError, in one line, for options that do not belong together.
        """
        files = [Path(text) for text in labels if "=" not in text or Path(text).exists()]
        meanings = [text for text in labels if text not in map(str, files)]
        if len(files) > 1 or len(meanings) > 1:
            raise ValueError("--labels takes one file, and once what the values mean (1=A,2=B,0=tie)")
        places = list(columns)
        stray = bool(meanings) and not calibrates
        if not places and (stray or swapped):
            option = "--labels VALUE=LETTER" if stray else "--swapped"
            raise ValueError(f"{option} belongs to --column, which names the columns of a file")
        read, meaning = None, label_values(meanings[0]) if meanings else None
        if places:
            read = VerdictColumns.parse([*places, *(["place_swapped=place_swapped"] if swapped else [])])
            read = read.meaning(meaning) if meaning else read
        return cls(
            columns=read,
            labels=files[0] if files else None,
            swapped=Path(swapped) if swapped else None,
            format=format,
            duplicates=duplicates,
            meaning=meaning,
        )

    def open(self, paths: Sequence[Path]) -> Replay:
        """Open files as one run. Raises ValueError and OSError as `open_replay` does."""
        return open_replay(
            paths,
            labels=self.labels,
            format=self.format,
            columns=self.columns,
            swapped=self.swapped,
            duplicates=self.duplicates,
        )


def split_words(words: Sequence[str], *, columns: bool) -> tuple[list[str], list[str]]:
    """Return the files and the `PART=PLACE` among the words of a command, such as those a shell's glob adds.

    With `columns`, a word that begins with a part's name and `=`, and is no file, names a column.
    """
    places = [
        word
        for word in words
        if columns and word.partition("=")[0] in VerdictColumns.parts() and not Path(word).exists()
    ]
    return [word for word in words if word not in places], places


def with_matchings(
    run: Replay, meta_judge: str = "", base_url: str = "", *, timeout: float = TIMEOUT, retries: int = RETRIES
) -> Replay:
    """Return the run with people's reasons matched; unchanged if no meta judge was ever asked.

    Answers are stored in RESULTS.asked/ and reused. Raises NotAnswered if the model is not available,
    ValueError for stored answers of several models if none is named.
    """
    folder = run.path.with_name(f"{run.path.name or STANDARD_INPUT}.asked")
    if meta_judge and len(run.files.paths) > 1:
        raise ValueError("--meta-judge matches the reasons of one file at a time")
    if meta_judge:
        folder.mkdir(exist_ok=True)
        config = MetaJudgeConfig(model=meta_judge, base_url=base_url, timeout=timeout, retries=retries)
        return run.with_extras(asyncio.run(_ask(run.path, config, folder)))
    kept = folder / "asked.jsonl"
    if not kept.exists():
        return run
    answers = _only_model(list(read_lines(kept)), kept)
    return run.with_extras(asyncio.run(matched(read_lines(run.path), KeptAnswers(answers))))


async def _ask(path: Path, config: MetaJudgeConfig, folder: Path) -> Extras:
    reward_questions = config.open(kept=AnswerStore(folder), say=say)
    try:
        return await matched(read_lines(path), reward_questions)
    finally:
        await reward_questions.close()


def _only_model(rows: list[JsonObject], path: Path) -> dict[str, str]:
    models = sorted({row["model"] for row in rows})
    if len(models) > 1:
        raise ValueError(f"{path} holds answers of {', '.join(models)}: name one with --meta-judge")
    return {row["key"]: row["answer"] for row in rows}
