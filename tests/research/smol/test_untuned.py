"""The untuned baselines: dialogues shown before a prompt, and the choice over both orders."""

from __future__ import annotations

from typing import Any

from research.smol.untuned import FewShotPairwise, demonstrations, forced_choices
from tirjudge_environments.tasks import read_task
from tirjudge_sandbox import open_sandbox

PROGRAM = "for name, r in zip('AB', responses):\n    print(name, int(',' not in r), 'of 1', 'kept')"


def row(number: int, label: int) -> dict[str, Any]:
    responses = ["right", "wrong,"]
    return {
        "id": f"{number}",
        "prompt": f"Say {number} without a comma.",
        "responses": responses[::-1] if label else responses,
        "label": label,
        "environment": "tir-pairwise",
        "demonstration": {"program": PROGRAM, "kept": [1 - label, label], "of": 1},
    }


async def test_dialogues_of_both_labels_come_before_the_prompt():
    rows = [row(number, number % 2) for number in range(6)]
    # Programs about a single response have no second one.
    rows += [{**one, "environment": "tir-pointwise"} for one in rows]
    async with open_sandbox("local") as sandbox:
        shown = await demonstrations(rows, sandbox)
    assert [message.role for message in shown] == ["user", "assistant", "user", "assistant"]
    first, second = shown[1].content, shown[3].content
    assert first.startswith(f"```python\n{PROGRAM}\n```\n```output\nA 1 of 1 kept\nB 0 of 1 kept\n```\n")
    assert first.endswith("Response A keeps 1 of 1.\n<preference>A</preference>")
    assert second.endswith("<preference>B</preference>")
    assert "without a comma." in shown[0].content
    assert "right" in shown[0].content
    format = FewShotPairwise(prompts="smol", shown_chars=64, dialogues=shown)
    task = read_task(row(9, 0), default_id="")
    messages = format.prompt(task, format.views(task)[0]).messages
    assert messages[:4] == shown
    assert "Say 9 without" in messages[4].content


def test_a_choice_is_the_response_that_both_orders_together_prefer():
    def prefers_no_comma(prompt: str) -> float:
        return 2.0 if prompt.index("right") < prompt.index("wrong,") else -1.0

    rows = [row(number, number % 2) for number in range(4)]
    assert forced_choices(prefers_no_comma, rows) == [1.0] * 4
    assert forced_choices(lambda prompt: -prefers_no_comma(prompt), rows) == [0.0] * 4
