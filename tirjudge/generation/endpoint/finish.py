"""The end of a completion: the endpoint's finish reasons, and stop strings that it cut off."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.generation.base import Withheld
from tirjudge.generation.endpoint.answers import ChatChoice, TokenChoice
from tirjudge_environments import Finish
from tirjudge_environments.parsing import find_fences


def finish_of(choice: ChatChoice | TokenChoice) -> Finish:
    match choice.finish_reason:
        case "content_filter":
            raise Withheld("the endpoint's content filter blocked the answer")
        case "length" | "max_tokens":
            return Finish.LENGTH
        case _:
            return Finish.END


def restored(before: str, text: str, finish: Finish, stops: tuple[str, ...], met: str) -> tuple[str, Finish]:
    """Restore the stop string that an endpoint cut off; return the text and why it ended.

    Args:
        before: text of earlier completions of the same turn.
        text: text of this completion, as the endpoint returned it.
        finish: as the endpoint reported it; many do not distinguish a stop string from the end of the turn.
        stops: the stop strings of the request.
        met: the stop string that ended the turn; empty if the endpoint does not report it.
    """
    if finish is Finish.LENGTH:
        return text, finish
    cut = met if met in stops else _closing(before + text, stops)
    # Some endpoints leave the stop string in the text.
    text = text.removesuffix(cut) + cut
    return text, Finish.STOP if stops and text.endswith(stops) else finish


def _closing(turn: str, stops: Iterable[str]) -> str:
    """Return the stop string that closes the fence in which the turn would otherwise end; empty if none."""
    # Models close their fences, so a text that ends inside one has lost its stop string.
    fences = find_fences(turn)
    if not fences or fences[-1].closed:
        return ""
    return next((stop for stop in stops if find_fences(turn + stop)[len(fences) - 1].closed), "")
