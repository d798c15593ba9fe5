"""The likely reason why a run ended without a single verdict, with the option that may help."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from tirjudge.console_text import printable
from tirjudge.judging.config import JudgeConfig
from tirjudge_environments import Completion, Finish, JudgeTask, Message, Verdict, View
from tirjudge_environments.registry import environment_names, open_environment

_READ_ROWS = 100
"""Rows whose dialogues are read to find the reason."""
_SHOWN_END = 120
"""Characters of an unreadable answer's end that are shown."""

_REMEDIES = (
    (r"prompt_too_long", "--truncate shortens long responses, --shown-chars what the prompt shows of them"),
    (r"no prompt|no responses|no column", "--column maps the columns of the rows"),
    (r"\blabel\b", "--labels translates the label values"),
    (r"\b40[13]\b|[Uu]nauthori[sz]ed|API key", "the key comes from TIRJUDGE_API_KEY or OPENAI_API_KEY"),
    (r"\b404\b|does not exist|not found", "--model is the name by which the endpoint serves the model"),
    (r"sandbox_down", "`tirjudge sandbox doctor` checks the sandbox; --no-tools judges without programs"),
    (r"generator_down", "check --base-url, and that the model's server runs"),
)
"""Patterns of failure reasons, and what to do about them; the first that matches is taken."""


def why_all_failed(reasons: Iterable[str]) -> str:
    """Return the most frequent reason of the failed rows, and what to do about it."""
    counted = Counter(reasons).most_common(1)
    if not counted:
        return "The run stopped before a row was judged"
    ((reason, count),) = counted
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, reason)), "")
    return f"{_rows(count)} failed because: {printable(reason)}" + (f"; {remedy}" if remedy else "")


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def why_no_verdict(rows: Iterable[Mapping[str, Any]], config: JudgeConfig, max_tokens: int) -> str:
    """Return why judged rows have no verdict, and the option that may help; `rows` are result rows.

    `max_tokens` is the limit of a view.
    """
    views = [view for row in islice(rows, _READ_ROWS) for view in row["views"] if view["verdict"] is None]
    ((stop, _),) = Counter(view["stop"] for view in views).most_common(1)
    stopped = [view for view in views if view["stop"] == stop]
    silent = sum(not _answer(view).strip() for view in stopped) * 2 > len(stopped)
    thought = any(_thought(view) for view in stopped)
    if stop == "token_budget":
        about = "thinking used up" if silent and thought else "the answers were cut at"
        return f"{about} the {max_tokens} tokens of a view: raise --max-tokens{_less_thinking(thought)}"
    if stop == "turn_budget":
        return (
            f"the judge did not answer after {config.max_tool_calls} programs: --max-tool-calls allows more, "
            f"--no-tools none{_other_tier(config)}"
        )
    if stop == "cpu_budget":
        return "the programs used up their CPU time: --max-tool-calls allows fewer, --no-tools none"
    if silent:
        return _why_silent(config, thought=thought)
    return _why_unreadable(stopped, config)


def _why_silent(config: JudgeConfig, *, thought: bool) -> str:
    if thought:
        return (
            "the endpoint returned only thinking and a null or empty content: raise --max-tokens, or switch "
            "thinking off with --no-enable-thinking"
        )
    plain = "; --no-tools asks for plain text" if config.tools else ""
    return (
        "the model returned a null or empty content: check its chat template and --max-tokens"
        f"{plain}{_other_tier(config)}"
    )


def _why_unreadable(views: Sequence[Mapping[str, Any]], config: JudgeConfig) -> str:
    texts = [_answer(view) for view in views]
    detail = Counter(view["detail"] for view in views).most_common(1)[0][0]
    if config.tier == "tools" and any("```" in text for text in texts):
        return "the model writes programs as text and not as tool calls: give --tier turns"
    if config.base_url and config.tier != "tools" and any("<tool_call" in text for text in texts):
        return "the model writes tool calls and no text programs: give --tier tools, or --no-tools"
    end = printable(" ".join(texts[0].split())[-_SHOWN_END:])
    found = f"the answers are in another format ({detail}; the first one ends with {end!r})"
    if other := _readable_as(views, config):
        return f"{found}: --format {other} can read them"
    tier = _other_tier(config) if config.tier in ("auto", "completions") else ""
    return f"{found}: choose the --format that the model was trained for, or a stronger --model{tier}"


def _readable_as(views: Sequence[Mapping[str, Any]], config: JudgeConfig) -> str:
    """Return a format that can read most of the answers; empty if there is none."""
    for name in environment_names():
        if name == config.format or name.startswith("tir-"):
            continue
        try:
            environment = open_environment(name)
            read = [isinstance(_reading(environment, view), Verdict) for view in views]
        except Exception:  # a format of another package may need options, or fail for a foreign answer
            continue
        if sum(read) * 2 > len(read):
            return name
    return ""


def _reading(environment: Any, view: Mapping[str, Any]) -> Any:
    order = tuple(view["order"])
    candidates = tuple("?" for _ in order)
    task = JudgeTask(id="?", prompt=(Message("user", "?"),), candidates=candidates)
    # The letters are read as shown; a place in the row is not needed to see whether there is a verdict.
    shown = View(view["view"], tuple(range(len(order))))
    return environment.read(task, shown, Completion(text=_answer(view), finish=Finish.END))


def _answer(view: Mapping[str, Any]) -> str:
    """Return what the judge wrote visibly after its last program."""
    text = ""
    for part in view["segments"]:
        if part["kind"] != "reasoning":
            text = ""
        elif not part.get("hidden"):
            text += str(part["text"])
    return text


def _thought(view: Mapping[str, Any]) -> bool:
    """Return True if the endpoint returned thinking separately from the text."""
    return "hidden thinking" in view["detail"] or any(part.get("hidden") for part in view["segments"])


def _less_thinking(thought: bool) -> str:
    return ", or switch thinking off with --no-enable-thinking" if thought else ""


def _other_tier(config: JudgeConfig) -> str:
    if not config.base_url or config.tier == "turns":
        return ""
    return "; --tier turns suits endpoints that cannot continue an answer"
