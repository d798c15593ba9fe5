"""Settings of runs: other ones are refused, earlier versions' ones are not, hostile ones cost no time."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from tirjudge.storage.run_settings import MOVABLE, OtherSettings, hashed, refuse_other_settings
from tirjudge.storage.settings_text import MOST_BYTES, json_file, json_value, toml_value
from tirjudge_environments.types import Later

PLACE = Path("runs/0")
RECORDED = {"seed": 0, "rl": {"beta": 0.1, "steps": 2}, "judges": {"a": {"n": 1}, "b": {"n": 2}}}


class Rl(BaseModel):
    beta: float
    steps: Annotated[int, MOVABLE]


class Judge(BaseModel):
    n: Annotated[int, MOVABLE]
    margin: Annotated[float, Later(0.0)] = 0.1


class Run(BaseModel):
    seed: int | None
    rl: Rl
    judges: Mapping[str, Judge] | None


class NewRun(Run):
    """What a later version adds: an option, a table, and an option of a table in a list."""

    margin: Annotated[float, Later(0.0)] = 0.1
    limits: Annotated[Judge, Later({"n": 3})] = Judge(n=9, margin=0.0)
    steps: list[Judge] = []


def refuse(wanted: Mapping[str, Any], kind: type[BaseModel] = Run, **more: Any) -> None:
    refuse_other_settings(PLACE, more.pop("recorded", RECORDED), wanted, kind, **more)


def test_equal_and_movable_settings_go_on() -> None:
    refuse(RECORDED)
    refuse({**RECORDED, "rl": {"beta": 0.1, "steps": 9}, "judges": {"a": {"n": 5}, "b": {"n": 6}}})
    assert RECORDED["rl"] == {"beta": 0.1, "steps": 2}


def test_the_differences_are_named_by_their_path() -> None:
    with pytest.raises(OtherSettings, match=r"^runs/0 was begun with other settings \(rl\.beta was 0\.1 and"):
        refuse({**RECORDED, "rl": {"beta": 0.2, "steps": 2}})
    with pytest.raises(OtherSettings, match=r"\(seed was 0 and is now null\): begin again$"):
        refuse({"rl": RECORDED["rl"], "judges": RECORDED["judges"]}, remedy="begin again")


def test_a_message_names_only_the_first_of_many_differences() -> None:
    with pytest.raises(OtherSettings, match=r"e was 0 and is now 1, and 2 more\)"):
        refuse(dict.fromkeys("abcdefg", 1), recorded=dict.fromkeys("abcdefg", 0))


def test_a_run_recorded_without_an_option_had_its_earlier_behaviour() -> None:
    added = {"margin": 0.0, "limits": {"n": 4, "margin": 0.0}, "steps": []}
    refuse({**RECORDED, **added, "steps": None}, NewRun)
    for key, value, named in (
        ("margin", 0.1, "margin was 0.0 and is now 0.1"),
        ("limits", {"n": 3, "margin": 0.2}, "limits.margin was 0.0 and is now 0.2"),
        ("judges", {"a": {"n": 1, "margin": 0.3}, "b": {"n": 2}}, "judges.a.margin was 0.0 and is now 0.3"),
    ):
        with pytest.raises(OtherSettings) as refused:
            refuse({**RECORDED, **added, "steps": None, key: value}, NewRun)
        assert f"({named}):" in str(refused.value)


def test_a_later_option_of_a_table_in_a_list() -> None:
    recorded = {**RECORDED, "steps": [{"n": 1}]}
    refuse({**RECORDED, "steps": [{"n": 2, "margin": 0.0}]}, NewRun, recorded=recorded)
    with pytest.raises(OtherSettings, match="steps was"):
        refuse({**RECORDED, "steps": [{"n": 1, "margin": 0.1}]}, NewRun, recorded=recorded)


def test_a_recorded_option_is_compared_whatever_its_default_is() -> None:
    """A run that was recorded with the option goes by its record, also after the default has changed."""
    recorded = {**RECORDED, "margin": 0.1}
    refuse({**RECORDED, "margin": 0.1}, NewRun, recorded=recorded)
    with pytest.raises(OtherSettings, match=r"margin was 0\.1 and is now 0\.0"):
        refuse({**RECORDED, "margin": 0.0}, NewRun, recorded=recorded)


@dataclass(frozen=True)
class Drawn:
    top_p: float = 1.0


@dataclass(frozen=True)
class NewDrawn(Drawn):
    margin: Annotated[float, Later(0.0)] = 0.1


def test_a_hash_leaves_a_later_field_out_while_it_changes_nothing() -> None:
    before = hashed({"drawn": (Drawn(0.9),), "judge": None})
    assert before == {"drawn": [{"top_p": 0.9}], "judge": None}
    assert hashed({"drawn": (NewDrawn(0.9, 0.0),), "judge": None}) == before
    assert hashed(NewDrawn(0.9)) == {"top_p": 0.9, "margin": 0.1}
    assert hashed([Judge(n=1, margin=0.0), Judge(n=1)]) == [{"n": 1}, {"n": 1, "margin": 0.1}]


LONG = "a key may have 200 parts"
DEEP = "its values are nested too deeply"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a." * 29_000 + "b = 1", f"line 1: {LONG}"),
        ("x = 1\n[" + "a." * 29_000 + "b]\n", f"line 2: {LONG}"),
        ("x = {" + '"a" . ' * 29_000 + "b = 1}", f"line 1: {LONG}"),
        ("a = " + "[" * 5000, DEEP),
        ("a = " + "{b = " * 5000, DEEP),
        ("a" * (MOST_BYTES + 1), "it may have 16 MiB"),
    ],
)
def test_a_text_that_takes_long_or_nests_deeply_is_no_toml(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        toml_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c = 1",
        'a = """' + "word. of. two words " * 500 + '"""',
        'a = "' + "x.y " * 500 + '"',
        "[a.b]\nc = 1.5",
    ],
)
def test_other_toml_is_read(text: str) -> None:
    assert toml_value(text) == tomllib.loads(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["a" * 300_000, "a " * 150_000, "'" * 300_000, '"a' * 150_000, "a." * 150_000]
)
def test_a_long_text_without_a_key_is_refused_in_linear_time(text: str) -> None:
    with pytest.raises(ValueError, match="key"):
        toml_value(text)


def test_deep_json_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "note.json"
    file.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=f"^{DEEP}$"):
        json_file(file)
    assert json_value('{"a": [1]}') == {"a": [1]}
