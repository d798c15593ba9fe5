"""The sandbox's import policy allows the programs that the miniature learns from."""

from __future__ import annotations

from examples.miniature.scripted_teacher import Habits
from examples.miniature.warmup_corpus import program_example
from tirjudge_sandbox import ImportPolicy
from tirjudge_sandbox.guest import import_policy


def test_the_miniatures_programs_pass() -> None:
    check = import_policy.check(ImportPolicy().imports)
    sources = {program_example(Habits(), index, seed=0)[1] for index in range(2000)}
    assert len(sources) > 100
    for source in sources:
        assert check(source.removeprefix("```python\n").removesuffix("\n```\n").encode()) == "", source
