"""The registry of environments, and the members that a registered format must declare."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from tirjudge_environments import (
    J1PaV,
    RmR1,
    TirPairwise,
    ToolEnvironment,
    environment_names,
    open_environment,
)
from tirjudge_environments.registry import with_options


class Unlinked:
    """A third-party format that does not say whether its views are linked, and has no card."""

    def __init__(self, **options: object) -> None:
        self.views = self.prompt = self.read = self.questions = self.score = lambda *arguments: ()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which `Unlinked` is registered."""
    found = EntryPoint("unlinked", f"{__name__}:Unlinked", "tirjudge.environments")
    monkeypatch.setattr(EntryPoint, "load", lambda self: Unlinked)
    monkeypatch.setattr("tirjudge_sandbox.registry.plugged_in", lambda group: [found])
    return found.name


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tir-pear", {}, r"^no judge format 'tir-pear'; there are .*tir-listwise, tir-pairwise"),
        ("tir-pointwise", {"order": "both"}, r"^judge format 'tir-pointwise': order: no such option$"),
        ("tir-listwise", {"prompts": "x"}, "no prompts 'x' for listwise; there are mini, smol, tir"),
    ],
)
def test_an_unknown_name_or_option_is_refused_in_one_line(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        open_environment(name, **options)
    assert "\n" not in str(raised.value)


def test_a_format_that_does_not_say_whether_its_views_are_linked_is_refused(registered: str) -> None:
    with pytest.raises(ValueError, match=r"^judge format 'unlinked' lacks linked: see tirjudge_environments"):
        open_environment(registered)


@pytest.mark.parametrize("name", environment_names())
def test_exactly_the_judges_that_run_programs_are_tool_environments(name: str) -> None:
    assert isinstance(open_environment(name), ToolEnvironment) is name.startswith(("tir-", "checks-"))


def test_options_that_a_format_does_not_declare_are_left_out_of_a_copy() -> None:
    changed = with_options(TirPairwise(seed=3), protocol="tool", style="reasoning")
    assert changed == TirPairwise(seed=3, protocol="tool")
    assert with_options(RmR1(seed=3), protocol="tool", style="reasoning") == RmR1(seed=3, style="reasoning")
    assert with_options(J1PaV(), prompts="x") == J1PaV()
