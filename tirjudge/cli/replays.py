"""The runs that `tirjudge eval` scores: their files, columns and labels, as the command line names them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tirjudge.cli.options import label_values
from tirjudge.evaluation.stored_outputs.columns import VerdictColumns
from tirjudge.evaluation.stored_outputs.reading import Duplicates, Replay, open_replay

_DUPLICATES: tuple[Duplicates, ...] = ("refuse", "first")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options that say how the files of a run are read."""

    columns: VerdictColumns | None
    labels: Path | None
    swapped: Path | None
    format: str
    duplicates: Duplicates

    @classmethod
    def parse(
        cls,
        *,
        columns: Iterable[str],
        labels: Iterable[str],
        swapped: str,
        format: str,
        duplicates: str,
    ) -> ReplayOptions:
        """Read `--column PART=PLACE` and `--labels` (a file, or the meaning of values: `1=A,2=B,0=tie`).

        Raises ValueError, in one line, for options that do not belong together.
        """
        chosen = next((one for one in _DUPLICATES if one == duplicates), None)
        if chosen is None:
            raise ValueError(f"--duplicates {duplicates!r}: choose {' or '.join(_DUPLICATES)}")
        files = [Path(text) for text in labels if "=" not in text or Path(text).exists()]
        meanings = [text for text in labels if text not in map(str, files)]
        if len(files) > 1 or len(meanings) > 1:
            raise ValueError("--labels takes one file, and once what the values mean (1=A,2=B,0=tie)")
        places = list(columns)
        if not places and (meanings or swapped):
            option = "--labels VALUE=LETTER" if meanings else "--swapped"
            raise ValueError(f"{option} belongs to --column, which names the columns of a file")
        read = None
        if places:
            read = VerdictColumns.parse([*places, *(["place_swapped=place_swapped"] if swapped else [])])
            if meanings:
                read = read.meaning(label_values(meanings[0]) or {})
        return cls(
            columns=read,
            labels=files[0] if files else None,
            swapped=Path(swapped) if swapped else None,
            format=format,
            duplicates=chosen,
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
