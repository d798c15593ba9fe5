"""Quoting of untrusted text, so that no part of it reads as part of a prompt, an output or a chat template.

A quoted line begins with `> `, and a quoted control token has a space behind its first character. All other
text, which is nearly all text, stays as it is, byte by byte: prompts of papers and of trained models do not
change.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

QUOTE = "> "
"""The mark of a quoted line, as in a reply by mail."""
Reads = Callable[[str], bool]
"""Returns True for a line that reads as one of ours; it gets the line as `visible` returns it."""

# Control and format characters, and letters that are drawn as nothing: a line that hides a marker behind
# them reads as the marker.
_INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""A terminal's control sequence, which is invisible with its parameters."""
_CONTROL_TOKEN = re.compile(
    # ChatML, Llama 3, Phi, GLM, Harmony, Command R: <|im_end|>; Gemma 4: <|turn>, <turn|>
    r"<\|[^\s<>|]{1,64}\|?>|<[^\s<>|]{1,64}\|>"
    # DeepSeek: <｜User｜>; EXAONE: [|user|]
    r"|<｜[^\s<>｜]{1,64}｜>|\[\|[^\s\[\]|]{1,64}\|\]"
    # Mistral, Llama 2
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]|<</?SYS>>"
    # MiniMax: ]~b], [e~[, ]~!b[; GLM: [gMASK]
    r"|\]~b\]|\]~!b\[|\]![a-z]{1,2}~\[|\[e~\[|\[[gs]?MASK\]"
    # sentencepiece, Gemma, Seed, GLM, Ling, Idefics; the tags of Qwen's native tools, which are tokens too
    r"|</?(?:s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eot|eom|eod|role|start_of_turn|end_of_turn|end_of_utterance"
    r"|fake_token_around_image|seed:[a-z]{1,9}|tool_calls?|tool_response)>"
    # Reserved tokens with a number: T5, Nemotron, Gemma, Baichuan
    r"|<(?:extra_id|SPECIAL|special|unused|reserved|reserved_token)_?[0-9]{1,6}>"
)
_MARK = re.compile(r"\.\.\. ?[0-9,]+ characters left out ?\.\.\.")
_LONGEST = 1000
"""Characters of a line that are normalised. No line of a prompt is longer where it borders on a slot."""
_START = 4 * _LONGEST
"""Characters of a line that are looked at first: most lines show enough of themselves there."""


def quote_lines(text: str, reads_as_ours: Reads) -> str:
    """Return the text with each line quoted that `reads_as_ours`; takes time linear in its length.

    A line ends where any reader may see an end: also at a carriage return or a Unicode line separator.
    """
    lines = text.splitlines(keepends=True)
    quoted = [QUOTE + line if reads_as_ours(visible(line)) else line for line in lines]
    return "".join(quoted)


def visible(line: str) -> str:
    """Return the start of a line as a reader sees it: no invisible characters, compatible ones unified.

    White space at the ends is dropped and other white space is one space; the case is folded.
    """
    seen = _shown(line[:_START])
    if len(seen) <= _LONGEST:
        # What is invisible, or white space, fills the start of the line.
        seen = _shown(line)
    seen = seen[:_LONGEST]
    if not seen.isascii():
        seen = unicodedata.normalize("NFKC", seen)
    return " ".join(seen.split()).casefold()


def _shown(line: str) -> str:
    return " ".join(without_invisible(line).split())


def without_invisible(text: str) -> str:
    """Return the text without control characters and without letters that are drawn as nothing."""
    return _INVISIBLE.sub("", _ESCAPE.sub("", text))


def opens_or_closes_a_fence(line: str) -> bool:
    """Return True for a line that begins with three backticks or more."""
    return line.startswith("```")


def opens_an_output(line: str) -> bool:
    """Return True for a line that opens a fence for the output of a program."""
    return line.startswith("```") and line.lstrip("`").lstrip().startswith("output")


def starts_with(heads: Iterable[str]) -> Reads:
    """Return a function that is True for lines that start with one of these texts."""
    known = tuple(map(visible, heads))
    return lambda line: line.startswith(known)


def quote_control_tokens(text: str, tokens: frozenset[str] = frozenset()) -> str:
    """Return the text with a space in each control token of a known chat template: `< |im_end|>`.

    For text that another program encodes, which may read such tokens in it as the end of a message. `<think>`
    ends none and stays. `tokens`: those of the model's tokenizer, if it is known.
    """
    text = _CONTROL_TOKEN.sub(_spaced, text)
    return _any_of(tokens).sub(_spaced, text) if tokens else text


def _spaced(token: re.Match[str]) -> str:
    return f"{token[0][0]} {token[0][1:]}"


@lru_cache(16)
def _any_of(tokens: frozenset[str]) -> re.Pattern[str]:
    # Longest first, since a token that begins another token would match in place of that.
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))


def cut_middle(text: str, limit: int) -> str:
    """Return the text, or its first and last `limit` / 2 characters around a count of those left out.

    In a text that is cut, a line that reads like this count is quoted: there is one real one.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    mark = f"... {len(text) - limit} characters left out ..."
    return f"{quote_lines(head, _is_mark)}\n{mark}\n{quote_lines(tail, _is_mark)}"


def _is_mark(line: str) -> bool:
    return _MARK.fullmatch(line) is not None
