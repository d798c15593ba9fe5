"""Candidates from recorded programs: the list of a judge's `check` is split into functions of one rule each.

Numbers and texts of the code that the rule's words have as well become parameters, so that rules that differ
only in them share a checker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tirjudge.compilation.examples import RuledRow, is_for_choosing
from tirjudge_environments.checkers.file import fault_of_source
from tirjudge_environments.checkers.rules import RulePattern, escaped, number_of

_MOST_CHARACTERS = 10_000
"""Characters of a program that is split."""
_MOST_ITEMS = 12
_WORDS = re.compile(r"[0-9][0-9,]*|[A-Za-z]+")
_KEPT = (ast.Import, ast.ImportFrom, ast.FunctionDef)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A function that may decide the rules that a pattern matches."""

    rule: str
    """The pattern."""
    source: str
    author: str


def recorded_candidates(rows: Iterable[RuledRow], seed: int) -> Iterator[Candidate]:
    """Yield a candidate for each rule and item of a program that judged a row for choosing.

    The program may have judged this rule alone, or the whole row: then each item is tried for each rule.
    """
    for row in rows:
        if row.record is None or not is_for_choosing(row.cluster, seed):
            continue
        recorded = row.record.criteria
        author = f"program of {row.record.model}" if row.record.model else "recorded program"
        for view in row.record.views:
            numbers = range(len(row.criteria)) if view.criterion is None else (view.criterion,)
            ran = [one for one in view.segments if one.kind == "program" and not one.tool]
            for source in (part for one in ran if one.status == "ok" for part in split_program(one.text)):
                for number in numbers:
                    checked = number < len(recorded) and recorded[number].checker
                    if number < len(row.criteria) and not checked:
                        yield generalised(row.criteria[number].text, source, author[:200])


def split_program(text: str) -> list[str]:
    """Return the items of the list that a program's function `check` returns, each as a checker's source.

    A function that returns anything else is one item. Empty for any other program.
    """
    if len(text) > _MOST_CHARACTERS:
        return []
    try:
        tree = ast.parse(text)
        found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "check"]
        if not found or len(found[-1].args.args) != 1 or not isinstance(found[-1].body[-1], ast.Return):
            return []
        function, returned = found[-1], found[-1].body[-1].value
        items = returned.elts if isinstance(returned, ast.List | ast.Tuple) else [returned]
        kept = [one for one in tree.body if isinstance(one, _KEPT) and one not in found]
        return [_source(kept, function, item) for item in items[:_MOST_ITEMS] if isinstance(item, ast.expr)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _source(kept: Sequence[ast.stmt], function: ast.FunctionDef, item: ast.expr) -> str:
    name = function.args.args[0].arg
    tested = ast.parse(f"if not {name}.strip():\n    return False\n").body
    opening = ast.parse(f"{name} = response").body if name != "response" else []
    ending = ast.Return(ast.Call(ast.Name("bool"), [item], []))
    check = ast.parse("def check(response, prompt): pass").body[0]
    assert isinstance(check, ast.FunctionDef)
    check.body = [*opening, *tested, *function.body[:-1], ending]
    used = _names(check)
    # A function may use another one that was defined before it.
    for one in reversed(kept):
        if isinstance(one, ast.FunctionDef) and one.name in used:
            used |= _names(one)
    needed = [found for one in kept if (found := _needed(one, used)) is not None]
    module = ast.Module([*needed, check], [])
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _names(tree: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}


def _needed(part: ast.stmt, used: set[str]) -> ast.stmt | None:
    """Return the names of an import, or the function, that the code uses; None if it uses none."""
    if isinstance(part, ast.FunctionDef):
        return part if part.name in used else None
    if isinstance(part, ast.Import):
        names = [one for one in part.names if (one.asname or one.name.partition(".")[0]) in used]
        return ast.Import(names) if names else None
    return part


def generalised(rule: str, source: str, author: str) -> Candidate:
    """Return a candidate in which what the rule and the code have in common is a parameter.

    Where the code has a number or text of the rule, both get a field. The rule is the exact text if they have
    nothing in common, or if the pattern would not match the rule in one way.
    """
    rule = rule.strip()
    exact = Candidate(escaped(rule), source, author)
    tree = ast.parse(source)
    check = next(one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "check")
    taken = _names(tree) | {"response", "prompt"}
    swap = _Parameters(rule, taken)
    # The first statements are those that `split_program` adds.
    check.body = [swap.visit(one) for one in check.body]
    if not swap.spans:
        return exact
    check.args.args += [ast.arg(name) for name in swap.names]
    pattern = _with_fields(rule, swap.spans)
    source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    try:
        parsed = RulePattern.parse(pattern)
    except ValueError:
        return exact
    if parsed.values(rule) is None or fault_of_source(source, [*parsed.kinds]):
        return exact
    return Candidate(pattern, source, author)


class _Parameters(ast.NodeTransformer):
    """Replaces constants that a rule has as well by names, and collects where the rule has them."""

    def __init__(self, rule: str, taken: set[str]) -> None:
        self.rule, self.taken = rule, taken
        self.spans: dict[tuple[int, int], tuple[str, str]] = {}
        """Place in the rule to name and kind."""
        self.names: list[str] = []
        self._by_value: dict[object, str] = {}

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool):
            return node
        if isinstance(node.value, int):
            return self._number(node.value) or node
        return self._text(node.value) or node if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return node

    def _number(self, value: int) -> ast.expr | None:
        for off in (0, 1, -1):
            places = [
                found.span() for found in _WORDS.finditer(self.rule) if number_of(found[0]) == value + off
            ]
            # A small number next to a bound, such as an index, is more often the program's own.
            if off and abs(value) < 5:
                continue
            if places and (name := self._field(value + off, places, "number")):
                shown = ast.Name(name)
                return (
                    ast.BinOp(shown, ast.Sub() if off > 0 else ast.Add(), ast.Constant(1)) if off else shown
                )
        return None

    def _text(self, value: str) -> ast.expr | None:
        if not value.strip() or value != value.strip() or len(value) > 500:
            return None
        for text, flags in ((value, re.NOFLAG), (value, re.IGNORECASE)):
            ends = r"(?<!\w)" if text[0].isalnum() else "", r"(?!\w)" if text[-1].isalnum() else ""
            places = [
                found.span()
                for found in re.finditer(f"{ends[0]}{re.escape(text)}{ends[1]}", self.rule, flags)
            ]
            # A mark such as a comma or a short word is the rule's own, unless the rule quotes it.
            if len(text) < 4:
                places = [span for span in places if _is_quoted(self.rule, span)]
            shown = {self.rule[slice(*span)] for span in places}
            if len(shown) == 1 and (name := self._field(shown.pop(), places, "text")):
                called = ast.Name(name)
                if flags is re.NOFLAG:
                    return called
                return ast.Call(ast.Attribute(called, "lower"), [], []) if value == value.lower() else None
        return None

    def _field(self, value: object, places: Sequence[tuple[int, int]], kind: str) -> str:
        """Return the name of a field for a value at these places of the rule; empty if others overlap."""
        if value in self._by_value:
            return self._by_value[value]
        if any(a < end and start < b for start, end in places for a, b in self.spans):
            return ""
        stem = "n" if kind == "number" else "text"
        name = next(
            name
            for number in range(1, 100)
            if (name := stem if number == 1 else f"{stem}{number}") not in self.taken
        )
        self.taken.add(name)
        self.names.append(name)
        self._by_value[value] = name
        self.spans |= dict.fromkeys(places, (name, kind))
        return name


def _is_quoted(rule: str, span: tuple[int, int]) -> bool:
    """Return True for a text in quotation marks, or that the rule calls a letter, word or character."""
    if re.search(r"\b(?:letter|word|keyword|character|symbol) $", rule[: span[0]]):
        return True
    before, after = rule[: span[0]][-1:], rule[span[1] :][:1]
    return bool(before and after) and before in "\"'`“‘«" and after in "\"'`”’»"


def _with_fields(rule: str, spans: dict[tuple[int, int], tuple[str, str]]) -> str:
    parts, position = list[str](), 0
    for (start, end), (name, kind) in sorted(spans.items()):
        parts += [escaped(rule[position:start]), f"{{{name}}}" if kind == "text" else f"{{{name}:{kind}}}"]
        position = end
    return "".join([*parts, escaped(rule[position:])])
