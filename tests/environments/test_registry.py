"""The registry of environments, and the members that a registered format must declare."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from tirjudge_environments import (
    J1PaV,
    RmR1,
    TirListwise,
    TirPairwise,
    TirPointwise,
    ToolEnvironment,
    environment_names,
    open_environment,
)
from tirjudge_environments.registry import environment_options, judge_cards, with_options


class Unlinked:
    """A third-party format that does not say whether its views are linked, and has no card."""

    def __init__(self, **options: object) -> None:
        self.views = self.prompt = self.read = self.questions = self.score = lambda *arguments: ()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name under which `Unlinked` is registered."""
    found = EntryPoint("unlinked", f"{__name__}:Unlinked", "tirjudge.environments")
    monkeypatch.setattr(EntryPoint, "load", lambda self: Unlinked)
    monkeypatch.setattr("tirjudge_sandbox.registry.entry_points", lambda **chosen: [found])
    return found.name


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tir-pointwise", TirPointwise), ("tir-pairwise", TirPairwise), ("tir-listwise", TirListwise)],
)
def test_each_format_has_a_name(name: str, kind: type) -> None:
    assert name in environment_names()
    assert open_environment(name, exact=True) == kind(exact=True)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tir-pear", {}, r"^no environment 'tir-pear'; there are .*tir-listwise, tir-pairwise"),
        ("tir-pairwise", {"colour": "red"}, r"^environment 'tir-pairwise': colour: no such option$"),
        ("tir-pointwise", {"order": "both"}, r"^environment 'tir-pointwise': order: no such option$"),
        (
            "tir-pairwise",
            {"order": "BA"},
            r"^environment 'tir-pairwise': order: .*'random', 'given' or 'both'$",
        ),
        ("tir-listwise", {"output_chars": 1}, r"^environment 'tir-listwise': output_chars: .*100$"),
        (
            "tir-listwise",
            {"prompts": "x"},
            r"^environment 'tir-listwise': no prompt template 'x-listwise'; .*",
        ),
    ],
)
def test_an_unknown_name_or_option_is_refused_in_one_line(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        open_environment(name, **options)
    assert "\n" not in str(raised.value)


def test_a_format_that_does_not_say_whether_its_views_are_linked_is_refused(registered: str) -> None:
    with pytest.raises(ValueError, match=r"^environment 'unlinked' lacks linked: see tirjudge_environments"):
        open_environment(registered)


def test_a_format_without_fields_and_card_has_no_options_and_no_table_row(registered: str) -> None:
    assert environment_options(registered) == frozenset()
    assert judge_cards() == {}


@pytest.mark.parametrize("name", environment_names())
def test_exactly_the_judges_that_run_programs_are_tool_environments(name: str) -> None:
    assert isinstance(open_environment(name), ToolEnvironment) is name.startswith("tir-")


def test_options_that_a_format_does_not_declare_are_left_out_of_a_copy() -> None:
    changed = with_options(TirPairwise(seed=3), protocol="tool", style="reasoning")
    assert changed == TirPairwise(seed=3, protocol="tool")
    assert with_options(RmR1(seed=3), protocol="tool", style="reasoning") == RmR1(seed=3, style="reasoning")
    assert with_options(J1PaV(), prompts="x") == J1PaV()


def test_a_bad_value_in_a_copy_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^no prompt template 'x-pairwise'; there are [^\n]*$"):
        with_options(TirPairwise(), prompts="x")
    with pytest.raises(ValueError, match=r"^protocol: Input should be 'fence' or 'tool'$"):
        with_options(TirPairwise(), protocol="x")
