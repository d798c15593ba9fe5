"""Rules of e-mails as people write them: right checkers are admitted by thirty labelled rows a rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, command, write_rows
from tirjudge_environments.checkers.file import CheckerFile

SUBJECTS = ("your invoice", "the late parcel", "your new chair", "the broken lamp", "our opening hours")
NAMES = ("Anna", "Boris", "Chloe", "David", "Esra")
PLAIN = ("We look into it this week.", "A colleague will call you.", "The parts are on their way.")


def mail(number: int, *parts: str, greeting: str = "Dear Ms Lee,", close: str = "Kind regards,") -> str:
    about = f"this is about {SUBJECTS[number % 5]}. {PLAIN[number % 3]}"
    return "\n\n".join([greeting, about, *parts, f"{close}\n{NAMES[number % 5]}"])


class MailRule(NamedTuple):
    """A rule, an answer that follows it and one that breaks it, and the checker that its author writes."""

    rule: str
    good: Callable[[int], str]
    bad: Callable[[int], str]
    body: str
    pattern: str = ""
    fields: str = ""


RULES = (
    MailRule(
        "Do not use exclamation marks.",
        mail,
        lambda n: mail(n, "What a day!"),
        "return bool(response.strip()) and '!' not in response",
    ),
    MailRule(
        "Do not use digits.",
        mail,
        lambda n: mail(n, f"It costs {n + 3} euros."),
        "return bool(response.strip()) and not re.search('[0-9]', response)",
    ),
    MailRule(
        "Mention the ticket number, such as TK-1234.",
        lambda n: mail(n, f"Your ticket is TK-{4000 + 7 * n}."),
        lambda n: mail(n, f"Your ticket is {4000 + 7 * n}."),
        r"return re.search(r'\bTK-[0-9]{4}\b', response) is not None",
    ),
    MailRule(
        "Keep it under 60 words.",
        lambda n: mail(n, *PLAIN[: n % 3]),
        lambda n: mail(n, *(PLAIN * 4)[: 9 + n % 3]),
        "return 0 < len(response.split()) < n",
        "Keep it under {n:number} words.",
        ", n",
    ),
    MailRule(
        'Start with a greeting such as "Hello" or "Dear Ms Lee".',
        lambda n: mail(n, greeting=("Hello,", "Dear Ms Lee,", "Hi Tom,", "Good morning,")[n % 4]),
        lambda n: mail(n, greeting=("Listen:", "We have news.")[n % 2]),
        "return re.match(r'\\s*(hello|hi|dear|good (morning|evening))\\b', response, re.I) is not None",
    ),
    MailRule(
        'End with "Kind regards" and your first name.',
        mail,
        lambda n: mail(n, close=("Bye,", "See you,")[n % 2]),
        r"return re.search(r'Kind regards,?\s+[A-Z][a-z]+\s*$', response) is not None",
    ),
    MailRule(
        "Thank the customer.",
        lambda n: mail(n, ("Thank you for writing.", "Many thanks for your patience.")[n % 2]),
        mail,
        r"return re.search(r'\bthank', response, re.I) is not None",
    ),
    MailRule(
        "Don't promise a refund!",
        mail,
        lambda n: mail(n, ("You will get a refund.", "We refund the price.")[n % 2]),
        r"return bool(response.strip()) and not re.search(r'\brefund', response, re.I)",
    ),
    MailRule(
        "Use at most five paragraphs.",
        lambda n: mail(n, *PLAIN[: n % 3]),
        lambda n: mail(n, *(PLAIN * 2)[: 3 + n % 3]),
        "return 0 < len([one for one in response.split('\\n\\n') if one.strip()]) <= n",
        "Use at most {n:number} paragraphs.",
        ", n",
    ),
    MailRule(
        "No bullet points, please.",
        mail,
        lambda n: mail(n, "- the lamp\n- the chair" if n % 2 else "* the lamp\n* the chair"),
        r"return bool(response.strip()) and not re.search(r'^\s*[-*•] ', response, re.M)",
    ),
    MailRule(
        "Ask at most 1 question.",
        lambda n: mail(n, *["May we call you?"][: n % 2]),
        lambda n: mail(n, "May we call you? When?"),
        "return bool(response.strip()) and response.count('?') <= n",
        "Ask at most {n:number} question.",
        ", n",
    ),
    MailRule(
        "Apologise for the delay.",
        lambda n: mail(n, ("We apologise for this.", "We are sorry that it took so long.")[n % 2]),
        mail,
        "return re.search(r'apolog|sorry', response, re.I) is not None",
    ),
)


def rows() -> list[dict[str, Any]]:
    """Return thirty rows of each rule, half of them with an answer that breaks it."""
    return [
        {
            "id": f"{place}-{number}",
            "prompt": f"Write to customer {number} of shop {place}.",
            "response": one.good(number // 2) if number % 2 else one.bad(number // 2),
            "label": bool(number % 2),
            "criteria": [one.rule],
        }
        for place, one in enumerate(RULES)
        for number in range(30)
    ]


def author(body: dict[str, Any]) -> Any:
    """Play a model that writes the right checker of each rule."""
    asked = re.search(r"-{8}\n(.*)\n-{8}", body["messages"][0]["content"])
    assert asked
    one = next(one for one in RULES if one.rule == asked[1])
    code = f"import re\n\ndef check(response, prompt{one.fields}):\n    {one.body}\n"
    return chat(f"RULE: {one.pattern or one.rule}\n```python\n{code}```")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_right_checkers_of_ten_of_twelve_rules_are_admitted(server: EndpointServer, tmp_path: Path) -> None:
    server.script = author
    given, file = write_rows(tmp_path / "rows.jsonl", rows()), tmp_path / "checkers.toml"
    words = ("compile", given, "-o", file, "--base-url", server.url, "--model", "writer", *FAST)
    run = command(*words)
    print(run.output)
    assert run.exit_code == 0, run.output
    found = CheckerFile.read(file)
    assert len(found.checkers) == len(RULES) == 12
    assert all(one.measured and one.measured.agreement == 1.0 for one in found.checkers)
    assert len(found.admitted) >= 10
