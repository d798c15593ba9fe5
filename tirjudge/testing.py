"""Assertions for test suites: an answer keeps a rule, or a program says why not.

```python
from tirjudge.testing import assert_judged

def test_the_summary_is_short():
    assert_judged("Summarise the report.", summary(), rule="Your answer must have at most 60 words.")
```
"""

from __future__ import annotations

import atexit
import hashlib
import json
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tirjudge.console_text import printable_text
from tirjudge.judge import Judge
from tirjudge.judging.judge_model import local_weights
from tirjudge.judging.questions import Conversation, question
from tirjudge.records.result_row import ResultRow
from tirjudge.records.text import decided_text, program_heading, view_passages
from tirjudge.storage.durable_files import write_atomically
from tirjudge_environments.messages import response_text

VERDICTS = Path(".tirjudge") / "verdicts"
"""Folder of stored verdicts, in the folder in which the tests run."""
_LONGEST_SHOWN = 2000
"""Characters of an answer, a program or an output in a message."""
_starting = threading.Lock()


def assert_judged(
    prompt: Conversation,
    answer: Conversation,
    *,
    rule: str = "",
    reference: str = "",
    verdicts: Path | None = VERDICTS,
    allow_undecided: bool = False,
    **options: Any,
) -> ResultRow:
    """Judge an answer to a prompt; return the row of the verdict if the answer passes.

    Args:
        prompt: the question, a text or chat messages.
        answer: the text or chat messages that are judged.
        rule: what the answer must keep, in words, such as "Your answer must have at least 60 words."
        reference: a right answer that the judge is shown.
        verdicts: folder of verdicts. The same question to the same judge is answered from there, without a
            model; None judges again. Delete it to judge all anew.
        allow_undecided: let an answer pass by a verdict that no program decided. Verdicts of which that is
            not known, as those of a judge without programs, pass as they are.
        options: those of `Judge`, such as `model` and `base_url`; without them the embedded model judges.

    Raises AssertionError for an answer that does not pass, and if the judge only guessed or gives no verdict;
    the message has the program and what it printed. Raises ValueError for options that are wrong, and without
    a rule and a reference, and as `Judge.score` does if the model or the sandbox fails: that says nothing of
    the answer.
    """
    __tracebackhide__ = True
    if not rule and not reference:
        raise ValueError("assert_judged needs a rule or a reference to judge by")
    row = _stored(prompt, answer, rule, reference, verdicts, options)
    guessed = row.verdict_decided is False and not allow_undecided
    if guessed or not _passes(row):
        failing = "undecided: the judge only guessed" if guessed else "the answer does not pass"
        raise AssertionError("\n".join(_lines(row, failing, rule or "agrees with the reference")))
    return row


def _passes(row: ResultRow) -> bool:
    """Return True if all criteria are satisfied; without criteria, if the score is one that passes."""
    if row.criteria:
        return all(one.satisfied and one.satisfied[0] == 1.0 for one in row.criteria)
    score = (row.scores or [None])[0]
    return score is not None and row.satisfied_from is not None and score >= row.satisfied_from


def _stored(
    prompt: Conversation,
    answer: Conversation,
    rule: str,
    reference: str,
    verdicts: Path | None,
    options: dict[str, Any],
) -> ResultRow:
    """Return the row of a verdict, stored or new. Verdicts of another version are not reused."""
    criteria = [rule] if rule else None
    task = question(prompt, {"answer": answer}, criteria, reference)
    judge, (settings, weights) = _judge(json.dumps(options, sort_keys=True, default=repr), **options)
    asked = [version("tirjudge"), settings, weights, repr(task)]
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    file = None if verdicts is None else verdicts / f"{key}.json"
    if file is not None and (found := _read(file)) is not None:
        return found
    judged = judge.score(prompt, answer, criteria=criteria, reference=reference)
    row = judged.row().model_copy(update={"model": judge.options.model or "the embedded judge"})
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(row.to_json(), indent=1))
    return row


def _read(file: Path) -> ResultRow | None:
    """Return a stored row; None for one that is missing or cannot be read."""
    try:
        return ResultRow.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        return None


_Known = tuple[dict[str, Any], str]
_judges: dict[str, tuple[Judge, _Known]] = {}


def _judge(key: str, **options: Any) -> tuple[Judge, _Known]:
    """Return the judge of these options, which all tests share, its settings and the digest of its weights.

    Its first question opens the judge.
    """
    with _starting:
        if key not in _judges:
            judge = Judge(**options)
            _judges[key] = judge, (judge.options.settings(), local_weights(judge.options))
            atexit.register(judge.close)
        return _judges[key]


def _lines(row: ResultRow, failing: str, wanted: str) -> Iterator[str]:
    """Yield why an answer fails: what was wanted, the verdict, each program with its output, the answer."""
    score = (row.scores or [None])[0]
    verdict = f"no verdict: {row.stop} {row.detail}" if score is None else f"score {score:g}"
    yield f"{failing}: {_shown(wanted)}"
    yield ", ".join(filter(None, [f"judge: {_shown(row.model)}", _shown(verdict), decided_text(row)]))
    for view in row.views:
        number = 0
        for passage, _, shown in view_passages(view):
            if passage.kind == "program":
                number += 1
                yield program_heading(passage, number)
                yield _indented(passage.text)
                yield "output"
                yield _indented(shown or passage.stdout or passage.stderr or passage.reason)
        if words := view.last_turn.text:
            yield "judge's last words"
            yield _indented(words)
    yield "answer"
    for response in row.shown_responses:
        yield _indented(response_text(response, _LONGEST_SHOWN))


def _shown(text: str) -> str:
    return printable_text(text[:_LONGEST_SHOWN]) + (" …" if len(text) > _LONGEST_SHOWN else "")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in _shown(text).strip().splitlines())
