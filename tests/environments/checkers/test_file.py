"""The file of checkers: it is read as written, edits make it unmeasured, and bad files are refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tirjudge_environments.checkers.file import Checker, CheckerFile, Measurement

WORDS = 'import re\n\ndef check(response, prompt, n):\n    return len(re.findall(r"\\w+", response)) >= n\n'


def admitted(name: str, rule: str, source: str) -> Checker:
    plain = Checker(name=name, rule=rule, source=source)
    measured = Measurement(digest=plain.digest, admitted=True, agreement=1.0, low=0.9, high=1.0, n=40)
    return plain.model_copy(update={"measured": measured})


@pytest.mark.parametrize(
    "source",
    [
        WORDS,
        "def check(response, prompt, n):\n    return '''x''' in response\n",
        'def check(response, prompt, n):\n    return "\\x7f\\u2028é" in response\n',
        "def check(response, prompt, n):\n\treturn None  # \x7f\n",
    ],
)
def test_a_file_is_read_as_it_was_written_and_its_python_is_readable(source: str, tmp_path: Path) -> None:
    path = tmp_path / "checkers.toml"
    file = CheckerFile(checkers=(admitted("words", 'at least {n:number} "words"\t\x7f', source),))
    path.write_text(file.text(), encoding="utf-8")
    assert CheckerFile.read(path) == file
    assert CheckerFile.read(path).digest == file.digest
    if source == WORDS:
        assert WORDS in path.read_text()
        assert tomllib.loads(path.read_text())["checkers"][0]["measured"]["n"] == 40


def test_an_edited_checker_is_unmeasured_and_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "checkers.toml"
    path.write_text(CheckerFile(checkers=(admitted("words", "at least {n:number} words", WORDS),)).text())
    found = CheckerFile.read(path).match("at least 5 words")
    assert found is not None
    assert (found.checker.name, found.values) == ("words", {"n": 5})
    for before, after in ((">= n", "> n"), ("at least {n", "at the least {n")):
        edited = tmp_path / "edited.toml"
        edited.write_text(path.read_text().replace(before, after))
        file = CheckerFile.read(edited)
        assert [one.is_measured for one in file.checkers] == [False]
        assert file.match("at least 5 words") is file.match("at the least 5 words") is None


def test_a_rule_belongs_to_the_exact_text_before_a_pattern_and_to_one_pattern_only() -> None:
    plain = "def check(response, prompt):\n    return True\n"
    one = "def check(response, prompt, w):\n    return True\n"
    file = CheckerFile(
        checkers=(
            admitted("exact", "say cat", plain),
            admitted("pattern", "say {w}", one),
            admitted("quiet", "whisper {w}", one),
            admitted("quieter", "{w} it", one),
        )
    )
    names = {rule: (found := file.match(rule)) and found.checker.name for rule in ("say cat", "say dog")}
    assert names == {"say cat": "exact", "say dog": "pattern"}
    assert file.match("whisper it") is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("version = 2", "version"),
        ("checkers = 3", "checkers"),
        ("x = [", "is no file of checkers"),
        ('[[checkers]]\nname = "A b"\nrule = "r"\nsource = "x"', "checkers.0.name"),
        ('[[checkers]]\nname = "a"\nrule = "{r"\nsource = "x"', "begins or ends no field"),
        ('[[checkers]]\nname = "a"\nrule = "r"\nsource = "x"\nshell = "rm"', "shell"),
        ('[[checkers]]\nname = "a"\nrule = "r"\nsource = "x"\n' * 2, "two checkers are called a"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_name(text: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "checkers.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"checkers\.toml") as raised:
        CheckerFile.read(path)
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=r"missing\.toml cannot be read: No such file"):
        CheckerFile.read(tmp_path / "missing.toml")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["a." * 29_000 + "b = 1", "[" + "a." * 29_000 + "b]", "x = " + "[" * 5000])
def test_a_strangers_file_that_takes_long_to_read_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "checkers.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"checkers\.toml is no file of checkers: .*(200 parts|too deeply)$"):
        CheckerFile.read(path)


def test_two_admitted_checkers_of_one_exact_rule_are_refused() -> None:
    """The digest does not know their order, and so the order may not decide."""
    yes, no = (f"def check(response, prompt):\n    return {value}\n" for value in (True, False))
    first, second = admitted("first", "say {{cat}}", yes), admitted("second", " say {{cat}}\n", no)
    for checkers in ((first, second), (second, first)):
        with pytest.raises(ValueError, match=r"first and second|second and first") as raised:
            CheckerFile(checkers=checkers)
        assert "the same rule" in str(raised.value)
    bare = second.model_copy(update={"measured": None})
    found = CheckerFile(checkers=(first, bare)).match("say {cat}")
    assert found is not None
    assert found.checker.name == "first"


def test_the_digest_tells_rules_apart() -> None:
    checker = admitted("c", "a rule", "def check(response, prompt):\n    return True\n")
    files = [
        CheckerFile(rules=("a\nb",)),
        CheckerFile(rules=("a", "b")),
        CheckerFile(rules=(checker.digest,)),
        CheckerFile(checkers=(checker,)),
    ]
    assert len({file.digest for file in files}) == len(files)
