"""A scripted model behind an endpoint: it reads the prompt, writes a program and believes its output."""

from __future__ import annotations

import re
from typing import Any

from tests.tirjudge.endpoint_server import chat

TABLES = """import csv
from decimal import Decimal, InvalidOperation

def rows(folder, path):
    with open(f"{folder}/{path}", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))

wanted = {}
for row in rows(prompt_files, "orders.csv"):
    if row["status"] == "paid":
        wanted[row["customer"]] = wanted.get(row["customer"], 0) + Decimal(row["amount"])
for name, folder in zip("AB", (files_a, files_b)):
    try:
        found = [(row["customer"], Decimal(row["total"])) for row in rows(folder, "report/totals.csv")]
    except (OSError, KeyError, TypeError, ValueError, InvalidOperation) as error:
        print(name, 0, "of", len(wanted), type(error).__name__)
        continue
    right = sum(found.count(one) == 1 for one in wanted.items())
    print(name, max(0, right - (len(found) - right)), "of", len(wanted))
"""
DOCUMENTS = """import json

def document(folder, path):
    with open(f"{folder}/{path}", encoding="utf-8") as file:
        return json.load(file)

def merged(base, override):
    made = dict(base)
    for key, value in override.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            before = base.get(key)
            made[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            made[key] = value
    return made

def typed(value):
    return json.dumps(value, sort_keys=True)

wanted = merged(document(prompt_files, "base.json"), document(prompt_files, "override.json"))
for name, folder in zip("AB", (files_a, files_b)):
    try:
        found = document(folder, "merged.json")
    except (OSError, ValueError) as error:
        print(name, 0, "of", len(wanted), type(error).__name__)
        continue
    right = sum(key in found and typed(found[key]) == typed(value) for key, value in wanted.items())
    print(name, max(0, right - len(found.keys() - wanted.keys())), "of", len(wanted))
"""
CODE = """import isolated, json

with open(f"{prompt_files}/task.json", encoding="utf-8") as file:
    task = json.load(file)
CALLS = '''
import json
def attempt(function, arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__
print(json.dumps([attempt(globals()[name], one) for one in asked]))
'''
asked = [case["arguments"] for case in task["cases"]]
for name, folder in zip("AB", (files_a, files_b)):
    try:
        with open(f"{folder}/{task['module']}", encoding="utf-8") as file:
            source = file.read()
        outcome = isolated.run(source + CALLS, bindings={"asked": asked, "name": task["function"]})
        results = json.loads(outcome.stdout)
    except (OSError, ValueError) as error:
        results = []
    right = sum(found == case["result"] for found, case in zip(results, task["cases"]))
    print(name, right, "of", len(asked))
"""
PROGRAMS = {"orders.csv": TABLES, "override.json": DOCUMENTS, "task.json": CODE}
"""Programs by the file that a prompt speaks of."""
_COUNT = re.compile(r"^([AB]) (\d+) of \d+", re.MULTILINE)


def turn(body: dict[str, Any]) -> dict[str, Any]:
    """Return the model's next turn: the program that the prompt calls for, then the verdict of its counts."""
    messages = body["messages"]
    if len(messages) == 1:
        asked = messages[0]["content"]
        program = next(source for file, source in PROGRAMS.items() if file in asked)
        return chat(f"I compare the files by a program.\n```python\n{program}```\n")
    counts = dict(_COUNT.findall(messages[-1]["content"]))
    if set(counts) != {"A", "B"}:
        return chat("The program did not say.")
    better = max("AB", key=lambda letter: int(counts[letter]))
    return chat(f"The counts are {counts}.\n<preference>{better}</preference>")
