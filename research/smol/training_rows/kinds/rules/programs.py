"""Kinds of rules about code blocks."""

from __future__ import annotations

import re

from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.kinds.rules.base import (
    Rule,
    compared,
    from_range,
    rule,
    wanted,
)
from research.smol.training_rows.kinds.tokens import UNITS
from research.smol.training_rows.writing import Pen

_BLOCKS = UNITS["blocks"]
_CODE = {
    "python": "def {name}({arg}):\n    {line}\n    return {arg}",
    "javascript": "function {name}({arg}) {\n  {line}\n  return {arg};\n}",
    "java": "static int {name}(int {arg}) {\n  {line}\n  return {arg};\n}",
    "go": "func {name}({arg} int) int {\n  {line}\n  return {arg}\n}",
    "bash": "{name}() {\n  {line}\n  echo ${arg}\n}",
    "sql": "SELECT {arg}\nFROM {name}\nWHERE {arg} > 1;",
}


def _block(language: str, name: str, lines: int, pen: Pen, fence: str = "") -> str:
    arg = pen.rng.choice(["x", "n", "value", "count", "total"])
    body = _CODE[language].replace("{name}", name).replace("{arg}", arg).split("\n")
    fillers = [f"{arg} = {arg} + {pen.rng.randint(1, 9)}" for _ in range(20)]
    body = [one.replace("{line}", fillers.pop()) for one in body]
    while len(body) < lines:
        body.insert(1, f"    {fillers.pop()}" if language == "python" else f"  {fillers.pop()}")
    return f"```{fence or language}\n" + "\n".join(body[: max(1, lines)] if lines else body) + "\n```"


def _without_blocks(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("```", "").strip()


def _with_block(text: str, block: str, pen: Pen) -> str:
    return f"{_without_blocks(text)}\n\n{block}" if pen.chance(0.7) else f"{block}\n\n{_without_blocks(text)}"


def _function(pen: Pen) -> str:
    return f"{pen.rng.choice(['get', 'count', 'find', 'read', 'make', 'area', 'sum'])}_{pen.word()}"


def _code_lines(text: str) -> list[int]:
    return [len(block.splitlines()) - 2 for block in _BLOCKS.parts(text)]


PROGRAMS: tuple[Rule, ...] = (
    rule(
        "code_language",
        "code",
        lambda g: f"{literal('```' + g['language'])} in r",
        lambda text, g: re.search(f"```{g['language']}", text) is not None,
        lambda text, g, pen: _with_block(text, _block(g["language"], _function(pen), 0, pen), pen),
        lambda text, g, pen: pen.rng.choice(
            [
                _with_block(
                    text,
                    _block(
                        pen.rng.choice([one for one in _CODE if not one.startswith(g["language"])]),
                        _function(pen),
                        0,
                        pen,
                    ),
                    pen,
                ),
                _with_block(text, _block(g["language"], _function(pen), 0, pen, " "), pen).replace(
                    "``` ", "```"
                ),
                _without_blocks(text),
            ]
        ),
        lambda text, pen: {"language": pen.rng.choice(["python", "javascript", "go", "bash", "sql"])},
    ),
    rule(
        "code_function",
        "code",
        lambda g: f"{literal('def ' + g['name'] + '(')} in r",
        lambda text, g: re.search(rf"def {g['name']}\(", text) is not None,
        lambda text, g, pen: _with_block(text, _block("python", g["name"], 0, pen), pen),
        lambda text, g, pen: pen.rng.choice(
            [
                _with_block(text, _block("python", _function(pen), 0, pen), pen),
                _with_block(text, _block("python", g["name"] + "s", 0, pen), pen),
                _with_block(text, _block("javascript", g["name"], 0, pen), pen),
            ]
        ),
        lambda text, pen: {"name": _function(pen)},
    ),
    rule(
        "code_short",
        "code",
        lambda g: (
            f'len(blocks(r)) > 0 and all(len(b.split("\\n")) - 2 {g["sign"]} {g["n"]} for b in blocks(r))'
        ),
        lambda text, g: bool(_code_lines(text)) and all(compared(one, g) for one in _code_lines(text)),
        lambda text, g, pen: _with_block(
            text, _block("python", _function(pen), wanted(g, pen, True), pen), pen
        ),
        lambda text, g, pen: _with_block(
            text, _block("python", _function(pen), wanted(g, pen, False), pen), pen
        ),
        from_range(4, 9),
        (_BLOCKS,),
    ),
    rule(
        "code_comment",
        "code",
        lambda g: 'any("# " in b for b in blocks(r))',
        lambda text, g: "# " in "".join(_BLOCKS.parts(text)),
        lambda text, g, pen: _with_block(
            text,
            _block("python", _function(pen), 0, pen).replace("):\n", f"):\n    # {pen.word()} first\n", 1),
            pen,
        ),
        lambda text, g, pen: _with_block(
            pen.rng.choice([text, f"# {text}"]), _block("python", _function(pen), 0, pen), pen
        ),
        uses=(_BLOCKS,),
    ),
    rule(
        "code_only",
        "code",
        lambda g: 'r.strip().startswith("```") and r.strip().endswith("```")',
        lambda text, g: text.strip()[:3] == text.strip()[-3:] == "```",
        lambda text, g, pen: _block(pen.rng.choice(list(_CODE)), _function(pen), 0, pen),
        lambda text, g, pen: pen.rng.choice(
            ["{}\n\nIt works.", "Here it is:\n\n{}", "Sure.\n{}\nDone."]
        ).replace("{}", _block("python", _function(pen), 0, pen)),
        order=87,
    ),
    rule(
        "code_without",
        "code",
        lambda g: f"len(blocks(r)) > 0 and not any({literal(g['word'])} in b for b in blocks(r))",
        lambda text, g: bool(_BLOCKS.spans(text)) and g["word"] not in "".join(_BLOCKS.parts(text)),
        lambda text, g, pen: _with_block(text, _block("python", _function(pen), 0, pen), pen),
        lambda text, g, pen: _with_block(
            text,
            _block("python", _function(pen), 0, pen).replace(
                "):\n", f"):\n    {g['word']} {pen.rng.choice(['os', '(x)', 'x'])}\n", 1
            ),
            pen,
        ),
        lambda text, pen: {"word": pen.rng.choice(["import", "print", "lambda", "global", "while", "eval"])},
        (_BLOCKS,),
    ),
)
