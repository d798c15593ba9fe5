"""Environments by name."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from tirjudge_environments import TirListwise, TirPairwise, TirPointwise, environment_names, open_environment


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
def test_what_is_wrong_is_said_in_one_line(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        open_environment(name, **options)
    assert "\n" not in str(raised.value)


def test_the_entry_points_load() -> None:
    for entry in entry_points(group="tirjudge.environments"):
        assert entry.load()
