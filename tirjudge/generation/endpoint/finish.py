"""The end of a completion: the endpoint's word for it, and stop strings that the endpoint cut off."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from tirjudge_environments import Finish
from tirjudge_environments.turn_reader import find_fences


class Ending(Enum):
    """The meaning of an endpoint's finish reason."""

    WHOLE = "whole"
    """The model ended its turn, met a stop string or called a tool."""
    CUT = "cut"
    """The limit of tokens or the end of the context was reached."""
    WITHHELD = "withheld"
    """A filter of the provider blocked the answer."""
    FAILED = "failed"
    """The server failed or was interrupted, so the text is no answer of the model."""
    UNKNOWN = "unknown"
    """The word says nothing that is known."""


_KINDS = (
    # A call that the server could not read, which Gemini reports as `function_call_filter: ...` as well.
    (Ending.FAILED, r"malformed|unexpected_tool|too_many_tool|invalid_(tool|function)"),
    (
        Ending.CUT,
        r"length|max\w*tokens|tokens?_limit|token_budget|limit_tokens|error_limit|context_window"
        r"|out_of_tokens|truncat",
    ),
    (
        Ending.WITHHELD,
        r"filter|safety|recitation|sensitiv|refus|prohibited|block|spii|moderat|guardrail|toxic|polic|censor"
        r"|violat|harm|risk|illegal|inspection|copyright|flagged|nsfw|abus|forbidden|denied",
    ),
    (
        Ending.FAILED,
        r"error|fail|abort|cancel|time_?(d_)?out|insufficient|resource|unavailable|overload|network|interrupt"
        r"|disconnect|connection|preempt|exception|crash|internal|deadline|quota|rate_limit|terminated|kill|upstream|throttl"
        r"|expired|evict|shutdown|unload|^load$|^other$|busy",
    ),
)
_WHOLE = re.compile(
    r"(|stop(ped)?|stop_?(sequence|token|string|word)\w*|end|end_?(of_?)?(turn|text|sequence)"
    r"|eos(_token\w*)?|eot(_id)?|im_end|tool_?(calls?|use)|function_?calls?|completed?|finish(ed)?|done|success"
    r"|normal|natural|null|none)"
)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def ending(reason: str) -> Ending:
    """Return what a finish reason means, in any provider's spelling: `MAX_TOKENS`, `FinishReason.SAFETY`."""
    word = _WORD.sub("_", reason).strip("_").lower().removeprefix("finishreason_")
    word = word.removeprefix("finish_reason_")
    if _WHOLE.fullmatch(word):
        return Ending.WHOLE
    return next((kind for kind, pattern in _KINDS if re.search(pattern, word)), Ending.UNKNOWN)


def restored(
    before: str, text: str, finish: Finish, stops: tuple[str, ...], met: str | None
) -> tuple[str, Finish]:
    """Restore the stop string that an endpoint cut off; return the text and why it ended.

    `before` is the text of earlier completions of the same turn. Many endpoints do not distinguish a stop
    string from the end of the turn: `met` is the stop string, empty if the model ended the turn, and None if
    the endpoint does not say, so that the text decides.
    """
    if finish is Finish.LENGTH:
        return text, finish
    cut = met if met in stops else _closing(before + text, stops)
    if met is None:
        cut = cut or _opening(before + text, stops)
    # Some endpoints leave the stop string in the text.
    text = text.removesuffix(cut or "") + (cut or "")
    return text, Finish.STOP if stops and text.endswith(stops) else finish


def _closing(turn: str, stops: Iterable[str]) -> str:
    """Return the stop string that closes an unclosed fence at the end of the turn; empty if none."""
    # Models close fences, so a text that ends inside a fence has lost the stop string.
    fences = find_fences(turn)
    if not fences or fences[-1].closed:
        return ""
    return next((stop for stop in stops if find_fences(turn + stop)[len(fences) - 1].closed), "")


def _opening(turn: str, stops: Iterable[str]) -> str:
    """Return the stop string that opens a fence without a language, if the turn seems to end before one.

    The line that opens such a fence equals the line that closes another one. A text that a model ended does
    not end with a colon or an empty line.
    """
    fences = find_fences(turn)
    ends_before_more = turn.endswith("\n") or turn.rstrip(" \t*_").endswith((":", "："))
    # A text behind a fence's last line ends with a line break too.
    if not turn.strip() or not ends_before_more or (fences and fences[-1].end >= len(turn)):
        return ""
    return next((stop for stop in stops if stop.strip("\n") == "```"), "")
