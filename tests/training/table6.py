"""TIR's ten sources as small datasets with the real columns, and models that answer their prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.tirjudge.endpoint_server import chat
from tests.training.hub import Hub, Part

Row = dict[str, Any]
TABLE_6 = {
    "tulu-3": ("if", 1500, 1500, 263, 3263),
    "math": ("math", 1000, 1000, 254, 2254),
    "dapo-bigmath": ("math", 2500, 2500, 282, 5282),
    "s1": ("math", 250, 250, 0, 500),
    "ultra-interact": ("code", 2000, 2000, 0, 4000),
    "code-rm": ("code", 1000, 1000, 472, 2472),
    "web-instruct": ("reasoning", 1000, 1000, 91, 2091),
    "loong": ("reasoning", 700, 700, 99, 1499),
    "help-steer-3": ("helpfulness", 2000, 2000, 0, 4000),
    "safe-rlhf": ("safety", 500, 500, 0, 1000),
}
"""The printed rows: domain, pointwise, pairwise, listwise, total (TIR Table 6)."""
TOTAL = (12450, 12450, 1461, 26361)
TOPICS = ("rivers", "clocks", "bread", "maps", "wool", "glass", "bees", "salt")


def fill(hub: Hub, rows: Callable[[str], int]) -> None:
    """Write all ten datasets; `rows` gives the number of rows by the source's name."""
    for name, (dataset, part, row) in SOURCES.items():
        numbers = range(rows(name))
        hub.add(dataset, {part: [row(number) for number in numbers]})


def answer(body: Row) -> Row:
    """Answer as a model: `good` is right at every other seed, others never; each seed has its own words."""
    prompt = body["messages"][-1]["content"]
    right = body["model"] == "good" and body["seed"] % 2 == 0
    return chat(_answer(prompt, right, body["model"], body["seed"]))


def _answer(prompt: str, right: bool, model: str, seed: int) -> str:
    asked = re.search(r"(\d+) plus (\d+)", prompt)
    if asked is not None:
        found = int(asked[1]) + int(asked[2]) + (0 if right else 1 + seed % 89)
        return f"I, {model}, count to {seed}. The answer is \\boxed{{{found}}}."
    return f"words by {model} {seed}" if right else f"words, by {model}, {seed}"


def question(number: int, what: str) -> str:
    topic, other = TOPICS[number % 8], TOPICS[number // 8 % 8]
    return f"Case {number} of {topic} and {other}: {what}"


def _sum(number: int) -> tuple[str, str]:
    return question(number, f"how much is {number} plus {number % 7}?"), str(number + number % 7)


def _tulu(number: int) -> Row:
    prompt = question(number, "say something, with no commas in it.")
    known = {"func_name": "validate_no_commas", "N": None, "keyword_list": None}
    return {
        "messages": [{"role": "user", "content": prompt}],
        "ground_truth": json.dumps(known),
        "dataset": "ifeval",
        "constraint_type": "No Commas",
        "constraint": "In your entire response, refrain from the use of any commas.",
    }


def _math(number: int) -> Row:
    prompt, total = _sum(number)
    solution = f"We add. Hence \\boxed{{{total}}}."
    return {"problem": prompt, "level": "Level 1", "type": "Prealgebra", "solution": solution}


def _dapo(number: int) -> Row:
    prompt, total = _sum(number)
    more = {"data_source": "math_dapo", "ability": "MATH", "source_prompt": [], "extra_info": {"index": "0"}}
    return {"prompt": prompt, "solution": total, **more}


def _s1(number: int) -> Row:
    prompt, total = _sum(number)
    return {
        "question": prompt,
        "solution": f"\\boxed{{{total}}}",
        "cot_type": "math",
        "source_type": "x",
        "metadata": "{}",
        "gemini_attempt": f"right {number}",
        "gemini_grade": "Yes",
        "deepseek_attempt": f"perhaps {number}",
        "deepseek_grade": "No" if number % 3 else "Yes",
    }


def _ultra(number: int) -> Row:
    return {
        "task": "Coding" if number % 4 else "Math_CoT",
        "dataset": "codecontest",
        "trajectory": [{"from": "user", "value": question(number, "write a program.")}],
        "chosen": f"print({number})",
        "rejected": f"print({number}",
        "id": str(number),
        "parent_id": "",
    }


def _code(number: int) -> Row:
    right = f"def add(a, b):\n    return a + b  # {number}"
    wrong = [f"def add(a, b):\n    return a - b - {k}" for k in range(1, 5)]
    test = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        assert add(2, 3) == 5"
    return {
        "task_id": number,
        "question": question(number, "write add(a, b)."),
        "code_ground_truth": right,
        "code_generate": str([{"sol_id": k, "code": code} for k, code in enumerate(wrong)]),
        "unit_tests": str([{"ut_id": 0, "code": test, "FAR": 0.0, "FRR": 0.0}]),
    }


def _web(number: int) -> Row:
    prompt, total = _sum(number)
    kind = "Integer" if number % 5 else "String"
    return {
        "id": number,
        "question": prompt,
        "answer": total,
        "answer_type": kind,
        "category": "Physics",
        "difficulty": "Senior High School",
    }


def _loong(number: int) -> Row:
    prompt, total = _sum(number)
    return {
        "question": prompt,
        "final_answer": total,
        "rationale": "print()",
        "metadata": "{}",
        "domain": "x",
    }


def _helpful(number: int) -> Row:
    return {
        "domain": "general",
        "language": "english",
        "context": [{"role": "user", "content": question(number, "what would you do?")}],
        "response1": f"first {number}",
        "response2": f"second {number}",
        "overall_preference": (-3, -2, -1, 0, 1, 2, 3)[number % 7],
        "individual_preference": [],
    }


def _safe(number: int) -> Row:
    return {
        "prompt": question(number, "is it dangerous?"),
        "response_0": f"no {number}",
        "response_1": f"careful {number}",
        "is_response_0_safe": number % 3 == 0,
        "is_response_1_safe": True,
        "better_response_id": 0,
        "safer_response_id": 1,
    }


SOURCES: dict[str, tuple[str, Part, Callable[[int], Row]]] = {
    "tulu-3": ("allenai/RLVR-IFeval", ("default", "train"), _tulu),
    "math": ("DigitalLearningGmbH/MATH-lighteval", ("default", "train"), _math),
    "dapo-bigmath": ("open-r1/DAPO-Math-17k-Processed", ("en", "train"), _dapo),
    "s1": ("simplescaling/s1K-1.1", ("default", "train"), _s1),
    "ultra-interact": ("openbmb/UltraInteract_pair", ("default", "train"), _ultra),
    "code-rm": ("KAKA22/CodeRM-UnitTest", ("default", "train"), _code),
    "web-instruct": ("TIGER-Lab/WebInstruct-verified", ("default", "train"), _web),
    "loong": ("camel-ai/loong", ("advanced_math", "train"), _loong),
    "help-steer-3": ("nvidia/HelpSteer3", ("preference", "train"), _helpful),
    "safe-rlhf": ("PKU-Alignment/PKU-SafeRLHF", ("default", "train"), _safe),
}
"""Hub id, part and row of each source; the columns are those of the datasets' cards."""
