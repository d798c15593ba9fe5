"""The end of a turn that came as text alone: most endpoints cut the stop string off."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge_environments import Finish
from tirjudge_environments.parsing import find_fences


def restored(before: str, text: str, finish: Finish, stops: tuple[str, ...], met: str) -> tuple[str, Finish]:
    """A turn's text with the stop string that ended it, and what ended it.

    Args:
        before: what the model wrote in earlier completions of the same turn.
        text: what it wrote now, as the endpoint gave it.
        finish: as the endpoint told; many tell no difference between a stop string and the model's own end.
        stops: the stop strings that the endpoint was asked for.
        met: the one that ended the turn, where the endpoint tells.
    """
    if finish is Finish.LENGTH:
        return text, finish
    cut = met if met in stops else _closing(before + text, stops)
    text = text.removesuffix(cut) + cut
    return text, Finish.STOP if stops and text.endswith(stops) else finish


def _closing(turn: str, stops: Iterable[str]) -> str:
    """The stop string that closes the fence in which the turn would otherwise end: models close theirs."""
    fences = find_fences(turn)
    if not fences or fences[-1].closed:
        return ""
    return next((stop for stop in stops if find_fences(turn + stop)[len(fences) - 1].closed), "")
