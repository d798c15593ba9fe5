"""Turns of a conversation that a row holds in lists, in cells of a table, or in its responses alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tirjudge_environments.tasks.cells import RowError, parsed
from tirjudge_environments.tasks.messages import conversation_of, read_messages, role_of

_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]*")
"""The start of a turn in a dialogue that is one text, as in Anthropic's HH-RLHF."""


def unfolded(prompt: Any, responses: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the prompt and the responses, each a text or a list of chat messages.

    Some rows hold them otherwise. A cell of a table is a chat as text. All columns are lists of
    turns with the same length, as in the files of LMSYS: the first turn is the prompt, and a response goes on
    with its own turns and the further ones of the user. Or there is no prompt, and each response is a whole
    conversation, which may be one text with the turns `Human:` and `Assistant:`: what all of them begin with
    is the prompt. Anything else is returned as it is.
    """
    held = _in_cell(prompt)
    if _are_turns(held):
        said = [_in_cell(one) for one in responses]
        if all(_are_turns(one, missing=True) and len(one) == len(held) for one in said):
            return held[0], [_answered(held, one) for one in said]
        return prompt, list(responses)
    if asked := conversation_of(held):
        prompt = asked
    given = [_in_cell(one) for one in responses]
    found = [conversation_of(one if prompt is not None else _spoken(one)) for one in given]
    chats = [one for one in found if one]
    if len(chats) < len(found):
        return prompt, list(responses)
    if prompt is None:
        return _shared(chats)
    # A candidate that reads as turns may be a text, unless the prompt agrees.
    repeat = all(_first_text(one) == prompt for one in chats)
    return prompt, list(chats) if repeat or asked else list(responses)


def _first_text(chat: list[Any]) -> str | None:
    """Return what the first message of a conversation says; None if it cannot be read."""
    try:
        return next((message.content for message in read_messages(chat[:1], "")), None)
    except RowError:
        return None


def _in_cell(value: Any) -> Any:
    """Parse a list that a table's cell holds as text; return any other value."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        found = parsed(value)
        return found if isinstance(found, list) else value
    return value


def _spoken(value: Any) -> Any:
    """Return the messages of a dialogue that is one text, from `Human:` on; any other value as it is."""
    pieces = _SPEAKER.split(value.lstrip()) if isinstance(value, str) else []
    if len(pieces) < 5 or pieces[0] or pieces[1] != "Human":
        return value
    said = zip(pieces[1::2], pieces[2::2], strict=True)
    return [{"role": "user" if who == "Human" else "assistant", "content": text} for who, text in said]


def _are_turns(value: Any, *, missing: bool = False) -> bool:
    """Return True for a list of texts; with `missing`, some may be missing."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(turn, str) or (missing and turn is None) for turn in value)


def _answered(asked: Sequence[str], said: Sequence[str | None]) -> str | list[dict[str, str]]:
    """Return the answer to the first turn, or the conversation that begins with it."""
    if len(said) == 1:
        return said[0] or ""
    messages = [{"role": "assistant", "content": said[0] or ""}]
    for question, answer in zip(asked[1:], said[1:], strict=True):
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer or ""}]
    return messages


def _shared(chats: Sequence[list[Any]]) -> tuple[Any, list[Any]]:
    """Return the messages that all conversations begin with, up to one of the user, and the rest of each."""
    shortest = min(map(len, chats))
    count = next(
        (place for place in range(shortest) if any(chat[place] != chats[0][place] for chat in chats)),
        shortest,
    )
    while count and (count == shortest or role_of(chats[0][count - 1]) != "user"):
        count -= 1
    return chats[0][:count] or None, [chat[count:] for chat in chats]
