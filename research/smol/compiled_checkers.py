"""Checkers of IFEval's instructions, compiled on half of its prompts and measured on the other half.

    python -m research.smol.compiled_checkers rows --output FOLDER
    tirjudge judge FOLDER/programs.jsonl --order given --output FOLDER/judged.jsonl
    tirjudge compile FOLDER/judged.jsonl FOLDER/choosing.jsonl -o FOLDER/embedded.toml
    python -m research.smol.compiled_checkers scripted --output FOLDER
    python -m research.smol.compiled_checkers measure --output FOLDER

A rule is an instruction as IFEval's registry describes it, and a row is GPT-4's stored answer, or an edit of
it, with that one rule and the result of the released check as its label (`instruction_checks` gives the same
results, see `tests/environments/instruction_checks/test_oracle.py`). `rows` writes `choosing.jsonl`, from the
development half of the prompts, and `programs.jsonl`: a pair for each instruction of the prompts on which
`tirjudge compile` chooses, for the embedded judge to write a program about. `scripted` compiles with an
author that knows most kinds of instructions: an upper bound. `measure` prints, of `embedded.toml` and
`scripted.toml`, by kind the share of the instructions of the test half that admitted checkers decide, and
their agreement with the released checks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from research.smol.ifeval_pairs import Asked, asked, breaks, harmless, repaired
from research.smol.sources import Fields, read_lines
from research.smol.splits import Split, rank
from tirjudge.compilation.authors import Author
from tirjudge.compilation.compiler import compile_rows, ruled_row
from tirjudge.compilation.examples import is_for_choosing
from tirjudge.data.rows import Row
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.statistics import Proportion, prompt_cluster
from tirjudge_environments import Context
from tirjudge_environments.checkers import Case, CheckerFile, CheckerRunner
from tirjudge_environments.instruction_checks import followed
from tirjudge_sandbox import open_sandbox

_EDITS = 6
"""Broken edits of an answer that are made."""


@dataclass(frozen=True)
class Instance:
    """An instruction of a prompt with answers, and whether each follows it by the released check."""

    asked: Asked
    number: int
    rule: str
    answers: tuple[tuple[str, bool], ...]

    @property
    def kind(self) -> str:
        return self.asked.families[self.number]

    @property
    def id(self) -> str:
        return f"{self.asked.key}-{self.number}"


def described(kind: str, arguments: dict[str, Any]) -> str:
    """Return an instruction in the words of IFEval's registry."""
    from if_verifiable.ifeval import instructions_registry

    built: str = instructions_registry.INSTRUCTION_DICT[kind](kind).build_description(**arguments)
    return built.strip()


def instances(split: Split) -> Iterator[Instance]:
    """Yield the instructions of a half of the prompts with GPT-4's answer and its edits.

    Left out are two instructions about characters that are no letters, in whose place the registry draws one.
    """
    for one in asked():
        if one.split != split:
            continue
        edits = [*islice(breaks(one, one.answer), _EDITS)] if all(one.holds) else []
        mended = None if all(one.holds) else repaired(one)
        kept = harmless(one, one.answer, edits[0]) if edits else None
        texts = [one.answer, *(edit.text for edit in (*edits, mended, kept) if edit is not None)]
        results = [followed(one.verifiers, text).strict for text in texts]
        for number, kind in enumerate(one.families):
            if not str(one.arguments[number].get("letter", "a")).isalpha():
                continue
            found = dict(zip(texts, (result[number] for result in results), strict=True))
            yield Instance(one, number, described(kind, one.arguments[number]), tuple(found.items()))


def _cluster(prompt: str) -> str:
    return prompt_cluster([{"role": "user", "content": prompt}])


def choosing_rows() -> Iterator[Fields]:
    """Yield labelled rows of one response and one rule from the development half."""
    for one in instances("development"):
        for place, (text, follows) in enumerate(one.answers):
            yield {
                "id": f"{one.id}-{place}",
                "prompt": one.asked.prompt,
                "response": text,
                "label": follows,
                "criteria": [one.rule],
            }


def program_rows() -> Iterator[Fields]:
    """Yield a pair for each instruction of the prompts for choosing, in which one answer follows it."""
    for one in instances("development"):
        passing = [text for text, follows in one.answers if follows]
        failing = [text for text, follows in one.answers if not follows]
        if is_for_choosing(_cluster(one.asked.prompt)) and passing and failing:
            place = rank("compiled", one.id) % 2
            responses = [failing[0], passing[0]] if place else [passing[0], failing[0]]
            row = {"id": one.id, "prompt": one.asked.prompt, "responses": responses, "label": place}
            yield row | {"criteria": [one.rule]}


def measuring_rows() -> Iterator[Fields]:
    """Yield each instruction of the test half with its answers and the results of the released check."""
    for one in instances("test"):
        texts, follow = zip(*one.answers, strict=True)
        row = {"id": one.id, "kind": one.kind, "prompt": one.asked.prompt, "rule": one.rule}
        yield row | {"answers": list(texts), "follow": list(follow)}


def write(folder: Path) -> None:
    """Write the rows of all kinds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (
        ("choosing", choosing_rows),
        ("programs", program_rows),
        ("measuring", measuring_rows),
    ):
        found = list(rows())
        lines = "".join(json.dumps(row) + "\n" for row in found)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        print(f"{name}: {len(found)} rows of {len({row['prompt'] for row in found})} prompts")


async def scripted(folder: Path) -> None:
    """Compile with the scripted author."""

    def answer(context: Context) -> str:
        text = context.prompt.messages[-1].content
        rule = text.split("--------\n", 1)[1].split("\n--------", 1)[0]
        parts = ((*opening.partition("|"), written) for opening, written in SCRIPT.items())
        fitting = (written for start, _, word, written in parts if rule.startswith(start) and word in rule)
        return next(fitting, "NONE")

    choosing = read_lines(folder / "choosing.jsonl")
    rows = [ruled_row(Row(row["id"], row["id"], row)) for row in choosing]
    async with open_sandbox("local") as sandbox:
        author = Author(ScriptedGenerator(answer, model="scripted author"))
        found = await compile_rows(rows, CheckerRunner(sandbox), author=author)
    (folder / "scripted.toml").write_text(found.file.text(), encoding="utf-8")
    for heading, line in found.lines():
        print(f"{heading:<10}{line}")


async def measure(folder: Path) -> None:
    """Print what the admitted checkers of both files decide on the test half."""
    found = read_lines(folder / "measuring.jsonl")
    async with open_sandbox("local") as sandbox:
        for name in ("embedded.toml", "scripted.toml"):
            file, runner = CheckerFile.read(folder / name), CheckerRunner(sandbox)
            print(f"\n{name}: {len(file.admitted)} of {len(file.checkers)} checkers admitted")
            await _print_decided(file, runner, found)


async def _print_decided(file: CheckerFile, runner: CheckerRunner, found: Sequence[Fields]) -> None:
    rights: dict[str, dict[str, list[bool]]] = {}
    decided: dict[str, set[str]] = {}
    abstained = 0
    for one in found:
        match = file.match(one["rule"])
        if match is None:
            continue
        cases = [Case(text, one["prompt"], match.values) for text in one["answers"]]
        outcomes = await runner.run(match.checker, cases)
        for outcome, follows in zip(outcomes, one["follow"], strict=True):
            if outcome.passed is None:
                abstained += 1
                continue
            decided.setdefault(one["kind"], set()).add(one["id"])
            right = outcome.passed is follows
            rights.setdefault(one["kind"], {}).setdefault(one["prompt"], []).append(right)
    print(f"{'kind':<46}{'decided':>12}  agreement with the released check")
    for kind in sorted({one["kind"] for one in found}):
        several = sum(one["kind"] == kind for one in found)
        line = f"{kind:<46}{f'{len(decided.get(kind, ()))} of {several}':>12}"
        print(f"{line}  {_share(rights[kind])}" if kind in rights else line)
    known = sum(map(len, decided.values()))
    print(f"instructions decided: {known} of {len(found)}, {known / len(found):.1%}")
    everyone: dict[str, list[bool]] = {}
    for prompts in rights.values():
        for prompt, values in prompts.items():
            everyone.setdefault(prompt, []).extend(values)
    total, wrong = (sum(map(count, everyone.values())) for count in (len, lambda values: values.count(False)))
    print(f"decisions: {total}, {wrong} wrong ({wrong / max(1, total):.2%}), {abstained} abstentions")
    print(f"agreement by prompt: {_share(everyone)}" if everyone else "nothing is decided")


def _share(rights: dict[str, list[bool]]) -> str:
    """Return the mean agreement of prompts with its interval, and the number of decisions."""
    share = Proportion.of_rows(np.array([np.mean(values) for values in rights.values()]))
    low, high = share.interval
    decisions = sum(map(len, rights.values()))
    return f"{share.rate:.1%} [{low:.1%}, {high:.1%}], n = {decisions} answers to {share.n} prompts"


def _written(rule: str, body: str, fields: str = "") -> str:
    parameters = "".join(f", {name}" for name in fields.split())
    return (
        f"RULE: {rule}\n```python\nimport json, re\n\ndef check(response, prompt{parameters}):\n"
        f"    if not response.strip():\n        return False\n    {body}\n```"
    )


_JSON = """text = response.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except ValueError:
        return False
    return True"""
_LIST = "words = re.findall(r\"'([^']*)'\", words)\n    "
SCRIPT: dict[str, str] = {
    "In your entire response, refrain": _written(
        "In your entire response, refrain from the use of any commas.", "return ',' not in response"
    ),
    "Highlight at least": _written(
        "Highlight at least {n:number} sections in your answer with markdown, i.e. *highlighted section*.",
        r"found = re.findall(r'\*([^\n*]*)\*', response) + re.findall(r'\*\*([^\n*]*)\*\*', response)"
        "\n    return sum(bool(one.strip()) for one in found) >= n",
        "n",
    ),
    "Answer with at least": _written(
        "Answer with at least {n:number} words.", r"return len(re.findall(r'\w+', response)) >= n", "n"
    ),
    "Answer with less than": _written(
        "Answer with less than {n:number} words.", r"return len(re.findall(r'\w+', response)) < n", "n"
    ),
    "The response must contain at least": _written(
        "The response must contain at least {n:number} placeholders represented by square brackets, such as "
        "[address].",
        r"return len(re.findall(r'\[[^\n]*?\]', response)) >= n",
        "n",
    ),
    "Your answer must contain a title": _written(
        "Your answer must contain a title, wrapped in double angular brackets, such as <<poem of joy>>.",
        r"return any(one.strip('<>').strip() for one in re.findall(r'<<[^\n]+>>', response))",
    ),
    "Your entire response should be in English, and in all lowercase": _written(
        "Your entire response should be in English, and in all lowercase letters. No capital letters are "
        "allowed.",
        "return response.islower()",
    ),
    "Your entire response should be in English, and in all capital": _written(
        "Your entire response should be in English, and in all capital letters.", "return response.isupper()"
    ),
    "Your answer must contain exactly": _written(
        "Your answer must contain exactly {n:number} bullet points. Use the markdown bullet points such as:",
        "return None",
        "n",
    ),
    "In your response, words with all capital letters should appear less than": _written(
        "In your response, words with all capital letters should appear less than {n:number} times.",
        r"""return sum(one.isupper() for one in re.findall(r"[\w-]+", response)) < n""",
        "n",
    ),
    "In your response, words with all capital letters should appear at least": _written(
        "In your response, words with all capital letters should appear at least {n:number} times.",
        r"""return sum(one.isupper() for one in re.findall(r"[\w-]+", response)) >= n""",
        "n",
    ),
    "Wrap your entire response": _written(
        "Wrap your entire response with double quotation marks.",
        "text = response.strip()\n    return len(text) > 1 and text[0] == text[-1] == '\"'",
    ),
    "Include keywords": _written(
        "Include keywords [{words}] in the response.",
        f"{_LIST}return all(word.lower() in response.lower() for word in words)",
        "words",
    ),
    "Do not include keywords": _written(
        "Do not include keywords [{words}] in the response.",
        f"{_LIST}return not any(re.search(r'(?<!\\w)' + re.escape(word) + r'(?!\\w)', response, re.I) "
        "for word in words)",
        "words",
    ),
    "Entire output should be wrapped in JSON": _written(
        "Entire output should be wrapped in JSON format. You can use markdown ticks such as ```.", _JSON
    ),
    "There should be": _written(
        "There should be {n:number} paragraphs. Paragraphs are separated with the markdown divider: ***",
        "parts = [bool(one.strip()) for one in response.split('***')]\n"
        "    return all(parts[1:-1]) and sum(parts) == n",
        "n",
    ),
    "Give two different responses": _written(
        "Give two different responses. Responses and only responses should be separated by 6 asterisk "
        "symbols: ******.",
        "parts = [one.strip() for one in response.split('******')]\n"
        "    parts = parts[1:] if parts and not parts[0] else parts\n"
        "    parts = parts[:-1] if parts and not parts[-1] else parts\n"
        "    return len(parts) == 2 and all(parts) and parts[0] != parts[1]",
    ),
    "Finish your response": _written(
        "Finish your response with this exact phrase {end}. No other words should follow this phrase.",
        "return response.strip().strip('\"').lower().endswith(end.strip().lower())",
        "end",
    ),
    "At the end of your response": _written(
        "At the end of your response, please explicitly add a postscript starting with {mark}",
        r"return re.search(r'\s?'.join(map(re.escape, re.findall(r'\w\.?', mark.lower()))), "
        "response.lower()) is not None",
        "mark",
    ),
    "Answer with one of": _written(
        "Answer with one of the following options: ('My answer is yes.', 'My answer is no.', 'My answer is "
        "maybe.')",
        "return any(f'My answer is {one}.' in response for one in ('yes', 'no', 'maybe'))",
    ),
    "There should be 4 paragraphs. Paragraphs and only": "NONE",
}
"""The checker that the scripted author writes for a rule, by the words with which the rule begins.

The author has no checker for rules about languages or sentences.
"""
for _relation, _sign in (("at least", ">="), ("less than", "<")):
    SCRIPT |= {
        f"In your response, the word|{_relation}": _written(
            f"In your response, the word {{word}} should appear {_relation} {{n:number}} times.",
            f"return response.lower().count(word.lower()) {_sign} n",
            "word n",
        ),
        f"In your response, the letter|{_relation}": _written(
            f"In your response, the letter {{letter:word}} should appear {_relation} {{n:number}} times.",
            f"return response.lower().count(letter.lower()) {_sign} n",
            "letter n",
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("rows", "scripted", "measure"):
        commands.add_parser(name).add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "rows":
        write(given.output)
    else:
        asyncio.run((scripted if given.command == "scripted" else measure)(given.output))


if __name__ == "__main__":
    main()
