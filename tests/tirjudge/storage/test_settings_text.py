"""Settings, recipes and notes of other people: one line for what would take minutes or gigabytes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tirjudge.storage.settings_text import MOST_BYTES, json_file, json_value, toml_value

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
