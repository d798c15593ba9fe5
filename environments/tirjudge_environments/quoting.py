"""Quoting of untrusted text, so that no part of it reads as part of a prompt, an output or a chat template.

A quoted line begins with `> `, a quoted control token has a space behind its first character, and a tag that
the judge's format reads has look-alikes of its brackets. All other text, which is nearly all text, stays as
it is, byte by byte: prompts of papers and of trained models do not change.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources

QUOTE = "> "
"""The mark of a quoted line, as in a reply by mail."""
Reads = Callable[[str], bool]
"""Returns True for a line, as returned by `visible`, that reads as one of our lines."""

# Control and format characters, and letters that are drawn as nothing: a line that hides a marker behind
# them reads as the marker.
_INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""A terminal's control sequence, which is invisible with its parameters."""
_BLANK = re.compile("[\u2800\u3164\uffa0]")
"""Letters that are drawn as a space."""
_LOOKALIKES = str.maketrans(
    {
        drawn: latin
        for latin, letters in {
            "a": "аαᴀᎪ", "b": "вβʙᏴ", "c": "сᴄᏟ", "d": "ԁᴅᎠ", "e": "еεᴇᎬ", "g": "ɡɢ", "h": "һнʜᎻ",
            "i": "іιıɪᎥ", "j": "јᴊ", "k": "кκᴋᏦ", "l": "ʟӏ", "m": "мᴍᎷ", "n": "пηɴո", "o": "оοσᴏօ",
            "p": "рρᴘᏢ", "q": "ԛ", "r": "гʀᎡ", "s": "ѕꜱᏚ", "t": "тτᴛᎢ", "u": "υᴜս", "v": "ѵνᴠ",
            "w": "ԝωᴡᎳ", "x": "хχ", "y": "уʏүᎩ", "z": "ᴢᏃ",
        }.items()
        for drawn in letters
    }
)  # fmt: skip
"""Letters of other alphabets, and small capitals, that are drawn like Latin letters."""
_EMPHASIS = re.compile(r"^[#=\s]+|[*_~`]+|[#=\s]+$")
"""Marks of Markdown around a heading or a bold text."""
_MARK = re.compile(r"\.\.\. ?[0-9,]+ characters left out ?\.\.\.")
_LONGEST = 1000
"""Characters of a line that are normalised. No line of a prompt is longer where it borders on a slot."""
_START = 4 * _LONGEST
"""Characters of a line that are looked at first: most lines show enough of themselves there."""


_LONGEST_TOKEN = 80
"""Characters of the longest control token, of which patterns bound the names."""


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
        # Invisible characters and white space fill the start of the line.
        seen = _shown(line)
    seen = seen[:_LONGEST]
    if seen.isascii():
        return seen.casefold()
    seen = unicodedata.normalize("NFKC", seen)
    return " ".join(seen.split()).casefold().translate(_LOOKALIKES)


def unmarked(line: str) -> str:
    """Return a line that `visible` returned without white space and marks of emphasis or headings."""
    return "".join(_EMPHASIS.sub("", line).split())


def _shown(line: str) -> str:
    return " ".join(_BLANK.sub(" ", _INVISIBLE.sub("", _ESCAPE.sub("", line))).split())


def opens_or_closes_a_fence(line: str) -> bool:
    """Return True for a line that begins with three backticks or more."""
    return line.startswith("```")


def opens_an_output(line: str) -> bool:
    """Return True for a line that opens a fence for the output of a program."""
    return line.startswith("```") and line.lstrip("`").lstrip().startswith("output")


def starts_with(heads: Iterable[str]) -> Reads:
    """Return a function that is True for lines with one of these starts."""
    known = tuple(map(visible, heads))
    return lambda line: line.startswith(known) or _EMPHASIS.sub("", line).startswith(known)


def quote_control_tokens(text: str, tokens: frozenset[str] = frozenset()) -> str:
    """Return the text with a space in each control token of a known model family: `< |im_end|>`.

    Another program that encodes the text may read a control token as the end of a message. `<think>` ends no
    message and stays. `control_tokens.toml` lists the families. `tokens`: the tokens of the model's
    tokenizer, if known.
    """
    text = _control_token().sub(_spaced, text)
    return _any_of(tokens).sub(_spaced, text) if tokens else text


def without_ends(text: str, tokens: frozenset[str] = frozenset()) -> str:
    """Return the text without the control tokens at its end, such as a policy's end of turn and padding.

    `tokens` are those of the policy's tokenizer, if known. Tags of native tools stay, since they are content.
    """
    end = place = len(text)
    patterns = (_control_token(ends=True), *([_any_of(tokens)] if tokens else []))
    while True:
        place = len(text[max(0, place - _LONGEST) : place].rstrip()) + max(0, place - _LONGEST)
        start = max(0, place - _LONGEST_TOKEN)
        found = [
            token.start()
            for pattern in patterns
            for token in pattern.finditer(text, start, place)
            if token.end() == place
        ]
        if not found:
            return text[:end]
        end = place = min(found)


@cache
def _control_token(*, ends: bool = False) -> re.Pattern[str]:
    file = resources.files("tirjudge_environments") / "control_tokens.toml"
    families = tomllib.loads(file.read_text(encoding="utf-8"))["family"]
    families = [one for one in families if not (ends and one.get("content"))]
    tokens = sorted({token for one in families for token in one.get("tokens", ())}, key=len, reverse=True)
    patterns = [pattern for one in families for pattern in one.get("patterns", ())]
    return re.compile("|".join([*patterns, *map(re.escape, tokens)]))


def _spaced(token: re.Match[str]) -> str:
    return f"{token[0][0]} {token[0][1:]}"


@lru_cache(16)
def _any_of(tokens: frozenset[str]) -> re.Pattern[str]:
    # Longest first, since a token that begins another token would match in place of that.
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))


def with_look_alikes(text: str, marks: tuple[str, ...]) -> str:
    """Return the text without tokens that a judge could copy into its answer, in linear time.

    `marks` are names of tags, and commands such as `\\boxed`. A tag becomes `‹name›`, and a command gets a
    space behind its backslash. Every spelling that a model may tidy counts: other case, spaces, attributes,
    escapes, entities, compatible and invisible characters.
    """
    return _replaced(text, *_written(marks)) if marks else text


def without_look_alikes(text: str, marks: tuple[str, ...]) -> str:
    """Return the text with the look-alikes of `with_look_alikes` turned back into tokens."""
    return _replaced(text, *_made(marks)) if marks and ("‹" in text or "\\ " in text) else text


_UNSEEN = r"\\u(?:00ad|034f|061c|180.|20[0-6].|fe0.|feff|fff.)"
"""Invisible characters as JSON escapes them."""
_GAP = rf"(?:[\s\u200b*`~]|{_UNSEEN}){{0,4}}"
"""Characters within a name that a reader does not see, or drops."""
_MARGIN = rf"(?:[^\w<>]|{_UNSEEN}){{0,8}}?"
"""Characters between a bracket and a name."""
_AND = r"&(?:amp;|#0{0,6}38;|#x0{0,6}26;){0,8}"


def _escaped(sign: str, name: str) -> str:
    """Return a pattern for the spellings of a sign: plain, or as an escape of HTML, JSON, Python or a URL."""
    code = ord(sign)
    entity = rf"{_AND}(?:{name}|#0{{0,6}}{code}|#x0{{0,6}}{code:x});?"
    escape = rf"\\(?:u\{{?0{{0,6}}{code:x}\}}?|x{code:x}|0?{code:o})"
    return rf"(?:{re.escape(sign)}|{entity}|{escape}|%(?:25){{0,8}}{code:x})"


def _replaced(text: str, pattern: re.Pattern[str], signs: Mapping[str, str]) -> str:
    parts, done = [], 0
    for found in pattern.finditer(text.lower() if text.isascii() else text.translate(_FOLDED)):
        for group, sign in signs.items():
            start, end = found.span(group)
            if start >= 0:
                parts += [text[done:start], sign]
                done = end
    return "".join((*parts, text[done:]))


@lru_cache(64)
def _written(marks: tuple[str, ...]) -> tuple[re.Pattern[str], Mapping[str, str]]:
    signs = {"open": "‹", "close": "›", "command": "\\ "}
    return _tokens(marks, _escaped("<", "lt"), _escaped(">", "gt"), _escaped("\\", "bsol")), signs


@lru_cache(64)
def _made(marks: tuple[str, ...]) -> tuple[re.Pattern[str], Mapping[str, str]]:
    return _tokens(marks, "‹", "›", r"\\ "), {"open": "<", "close": ">", "command": "\\"}


def _tokens(marks: tuple[str, ...], opens: str, closes: str, command: str) -> re.Pattern[str]:
    """Return a pattern of folded text for these tokens between these signs."""

    def spelled(names: Iterable[str]) -> str:
        return "|".join(_GAP.join(map(re.escape, name.lower())) for name in names) or "(?!)"

    tags = spelled(mark for mark in marks if mark[0] != "\\")
    commands = spelled(mark[1:] for mark in marks if mark[0] == "\\")
    slash = rf"(?:{_escaped('/', 'sol')}{_MARGIN})?"
    # A name behind a space may be a variable that is compared.
    return re.compile(
        rf"(?P<open>{opens})(?:(?P<loose>\s)|(?!\s)){_MARGIN}{slash}_{{0,2}}(?:{tags})(?!-?_*[a-z0-9])"
        rf"(?(loose){_MARGIN}|[^<‹]{{0,200}}?)(?P<close>{closes})"
        rf"|(?P<command>{command})(?=\u200b{{0,4}}(?:{commands}))"
    )


class _Folded(dict[int, str]):
    """Each character as one character: compatible letters, and letters drawn like Latin ones, in one case."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        folded = unicodedata.normalize("NFKC", character).casefold().translate(_LOOKALIKES)
        if _INVISIBLE.fullmatch(character):
            folded = "\u200b"
        self[code] = folded if len(folded) == 1 else character
        return self[code]


_FOLDED = _Folded()


def cut_middle(text: str, limit: int) -> str:
    """Return the text, or its first and last `limit` / 2 characters around a count of omitted ones.

    In a cut text, a line that reads like the count is quoted: only one count is real.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    mark = f"... {len(text) - limit} characters left out ..."
    return f"{quote_lines(head, _is_mark)}\n{mark}\n{quote_lines(tail, _is_mark)}"


def _is_mark(line: str) -> bool:
    return _MARK.fullmatch(line) is not None
