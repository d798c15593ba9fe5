"""The boundary between a judge and the texts of others, which never hold a token of the judge's format.

A judge that copies a text that it was shown, in any style, thus writes no verdict, and its turns are read
without a guess at what they quote. A format declares the tokens from which it reads (`marks`). Prompts pass
through `shown_prompt`, outputs of programs and answers of tools through `JudgeSession`, and descriptions of
tools through `registry.with_tools`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tirjudge_environments.base import Environment, LateText
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.quoting import with_look_alikes, without_look_alikes
from tirjudge_environments.templates import load_template
from tirjudge_environments.types import JudgeTask, Prompt, View

USUAL_MARKS = ("think", "answer", "preference", "score", "score_A", "score_B", "verdict")
"""The tokens of a format that declares none."""
_UNSHOWN = {"id", "label", "domain"}
"""Fields of a task that name it, and that no judge is shown."""


def marks_of(environment: Environment) -> tuple[str, ...]:
    """Return the tokens from which a format reads; see `with_look_alikes`."""
    marks: tuple[str, ...] = getattr(environment, "marks", USUAL_MARKS)
    return marks


def replaced_marks(environment: Environment) -> tuple[str, ...]:
    """Return the tokens that are replaced in texts of others: none where the boundary is off."""
    return marks_of(environment) if getattr(environment, "is_bounded", True) else ()


def shown_prompt(environment: Environment, task: JudgeTask, view: View) -> Prompt:
    """Return the prompt with look-alikes in every text of the task, and a line that says so if there are any.

    No other function calls `Environment.prompt`: a format, which fills its prompt itself, gets a task without
    its tokens.
    """
    marks = replaced_marks(environment)
    prompt = environment.prompt(shown(task, marks), view)
    texts = [message.content for message in prompt.messages] + [tool.description for tool in prompt.tools]
    *others, last = prompt.messages
    content = last.content + _note("".join(texts), marks)
    return replace(prompt, messages=(*others, replace(last, content=content)))


def shown_later(environment: Environment, task: JudgeTask, view: View) -> str:
    """Return the text of `LateText.later_text` as `shown_prompt` shows a prompt; empty for other formats."""
    if not isinstance(environment, LateText):
        return ""
    marks = replaced_marks(environment)
    text = environment.later_text(shown(task, marks), view)
    return text + _note(text, marks)


def _note(text: str, marks: tuple[str, ...]) -> str:
    """Return the line about the look-alikes of a text; empty if it has none."""
    return "" if without_look_alikes(text, marks) == text else f"\n\n{load_template('look-alikes').text}"


def is_exposed(environment: Environment, task: JudgeTask, view: View) -> bool:
    """Return True if the boundary is off and a text of the prompt holds a token of the format."""
    if getattr(environment, "is_bounded", True):
        return False
    return environment.prompt(task, view) != environment.prompt(shown(task, marks_of(environment)), view)


def shown(value: Any, marks: tuple[str, ...]) -> Any:
    """Return a value with look-alikes in all texts in it, as in the messages and files of a task."""
    if not marks:
        return value
    if isinstance(value, str):
        return with_look_alikes(value, marks)
    if isinstance(value, Folder):
        return value.shown(marks)
    if isinstance(value, Mapping):
        return {shown(key, marks): shown(one, marks) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shown(one, marks) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        kept = _UNSHOWN if isinstance(value, JudgeTask) else {"role", "polarity"}
        given = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in kept}
        return replace(value, **{name: shown(one, marks) for name, one in given.items()})
    return value
