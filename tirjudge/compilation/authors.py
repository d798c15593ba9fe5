"""Candidates from a model: it writes the checker of a rule, and lists the rules of a prompt.

Rules and prompts are somebody's text, and so is the answer: nothing that a model writes runs outside the
sandbox, and no rule is taken that is not in the prompt word for word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tirjudge.compilation.candidates import Candidate
from tirjudge.generation.base import Generator, Sampling
from tirjudge.judging.criteria import listed
from tirjudge_environments import Context, Message, Prompt
from tirjudge_environments.checkers.file import fault_of_source
from tirjudge_environments.checkers.rules import RulePattern, escaped
from tirjudge_environments.quoting import with_look_alikes, without_look_alikes
from tirjudge_environments.templates import load_template
from tirjudge_environments.turn_reader import behind_thinking

MOST_RULES = 8
_RULE = re.compile(r"^RULE:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LONGEST_ANSWER = 40_000
_MARKS = ("think",)
"""The tokens from which an answer is read."""


@dataclass(frozen=True, slots=True)
class Author:
    """A model that writes checkers."""

    generator: Generator
    max_tokens: int = 2048

    async def candidate(self, rule: str) -> Candidate | None:
        """Return the checker that the model writes for a rule; None if it writes none that can be read.

        Raises GeneratorFailed.
        """
        fields = {
            "rule": with_look_alikes(rule.strip(), _MARKS),
            "number-field": "{n:number}",
            "text-field": "{text}",
        }
        return written(
            await self._ask(load_template("checker").with_values(fields)), rule, self.generator.model
        )

    async def rules(self, prompt: str) -> list[str]:
        """Return the rules that the model finds in a prompt, each of which is in it word for word.

        Raises GeneratorFailed.
        """
        shown = with_look_alikes(prompt, _MARKS)
        asked = load_template("checker-rules").with_values({"count": str(MOST_RULES), "prompt": shown})
        found = [without_look_alikes(rule, _MARKS) for rule in listed(await self._ask(asked))]
        return [rule for rule in dict.fromkeys(found) if rule in prompt][:MOST_RULES]

    async def _ask(self, text: str) -> str:
        prompt, ids = Prompt(messages=(Message("user", text),)), None
        if (encoder := self.generator.encoder) is not None:
            prompt = replace(prompt, prefill=encoder.opening(prompt))
            ids = tuple(encoder.prompt(prompt))
        sampling = Sampling(max_tokens=self.max_tokens)
        completion = await self.generator.generate(Context(prompt, ids=ids), sampling)
        return (prompt.prefill + completion.text)[:_LONGEST_ANSWER]


def written(answer: str, rule: str, author: str) -> Candidate | None:
    """Return the candidate in a model's answer; None if it has no function that can be a checker.

    A pattern that does not match the rule, or whose fields the function does not take, is replaced by the
    exact text.
    """
    answer = without_look_alikes(behind_thinking(answer) or "", _MARKS)
    fence = _FENCE.search(answer)
    if fence is None:
        return None
    source = fence[1].strip("\n") + "\n"
    named = _RULE.search(answer[: fence.start()])
    for pattern in [*([named[1]] if named else []), escaped(rule.strip())]:
        try:
            parsed = RulePattern.parse(pattern)
        except ValueError:
            continue
        if parsed.values(rule) is not None and not fault_of_source(source, [*parsed.kinds]):
            return Candidate(pattern, source, author[:200])
    return None
