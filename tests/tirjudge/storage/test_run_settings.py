"""A run with other settings is refused, whatever kind of file or folder it would go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirjudge.storage.run_settings import OtherSettings, refuse_other_settings

PLACE = Path("runs/0")
RECORDED = {"seed": 0, "rl": {"beta": 0.1, "steps": 2}, "judges": {"a": {"n": 1}, "b": {"n": 2}}}


def test_equal_and_movable_settings_go_on() -> None:
    refuse_other_settings(PLACE, RECORDED, RECORDED)
    moved = {**RECORDED, "rl": {"beta": 0.1, "steps": 9}, "judges": {"a": {"n": 5}, "b": {"n": 6}}}
    refuse_other_settings(PLACE, RECORDED, moved, movable=("rl.steps", "judges.*.n"))
    assert RECORDED["rl"] == {"beta": 0.1, "steps": 2}


def test_the_differences_are_named_by_their_path() -> None:
    with pytest.raises(OtherSettings, match=r"^runs/0 was begun with other settings \(rl\.beta was 0\.1 and"):
        refuse_other_settings(PLACE, RECORDED, {**RECORDED, "rl": {"beta": 0.2, "steps": 2}})
    with pytest.raises(OtherSettings, match=r"\(seed was 0 and is now null\): begin again$"):
        refuse_other_settings(
            PLACE, RECORDED, {"rl": RECORDED["rl"], "judges": RECORDED["judges"]}, remedy="begin again"
        )


def test_a_message_names_only_the_first_of_many_differences() -> None:
    with pytest.raises(OtherSettings, match=r"e was 0 and is now 1, and 2 more\)"):
        refuse_other_settings(PLACE, dict.fromkeys("abcdefg", 0), dict.fromkeys("abcdefg", 1))
