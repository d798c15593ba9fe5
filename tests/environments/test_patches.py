"""Diffs of several files, as git writes them of what an agent changed."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tirjudge_environments.files import BadFolder, Folder, read_folder

NAMES = ["a.py", "src/a.py", "src/b c.txt", "src/ü.txt", 'quo"te.txt', "b/b/x", "a/a", "diff", "tab\u00a0.md"]
COPIES = "-M", "-C", "--find-copies-harder"
OPTIONS = [
    (),
    ("--no-prefix",),
    ("--src-prefix=i/", "--dst-prefix=w/"),
    ("-U0",),
    COPIES,
    ("--no-renames",),
    ("--irreversible-delete",),
]


def git(folder: Path, *words: str) -> str:
    """Run git without the settings of whoever runs the tests."""
    alone = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    named = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    run = subprocess.run(["git", *named, *words], cwd=folder, env=alone, capture_output=True, check=True)
    return run.stdout.decode()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, newline="")


def repository(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "before")


def folder_of(files: Mapping[str, str]) -> Folder:
    return Folder({path: text.encode() for path, text in files.items()})


def text(rng: random.Random) -> str:
    """Lines that also look like parts of a diff, with or without a last line feed."""
    odd = ["-- x", "++ y", "@@ -1,1 +1,1 @@", "diff --git a/x b/x", "rename from x", "", "\t", "-- a/x", "ä"]
    lines = [rng.choice([*odd, str(rng.randint(0, 9))]) + "\n" for _ in range(rng.randint(0, 25))]
    return "".join(lines)[: -1 if rng.random() < 0.3 else None]


def changed(files: Mapping[str, str], rng: random.Random) -> dict[str, str]:
    """Files after some were deleted, moved, changed or made anew."""
    after = dict(files)
    for path in files:
        choice = rng.random()
        if choice < 0.15:
            del after[path]
        elif choice < 0.3:
            after[f"moved/{path}"] = after.pop(path)
        elif choice < 0.7:
            lines = files[path].splitlines(keepends=True)
            kept = [line for line in lines if rng.random() < 0.8]
            kept.insert(rng.randint(0, len(kept)), rng.choice(["-- new\n", "++ new\n", "new\n"]))
            after[path] = "".join(kept)
    for path in rng.sample(NAMES, 2):
        after.setdefault(f"new/{path}", text(rng))
    return after


@pytest.mark.parametrize("seed", range(40))
def test_a_diff_by_git_gives_the_files_of_the_working_tree(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    before = {path: text(rng) for path in rng.sample(NAMES, rng.randint(1, 6))}
    after = changed(before, rng)
    work = tmp_path / "work"
    repository(work, before)
    for path in before:
        (work / path).unlink()
    write(work, after)
    git(work, "add", "-A")
    for options in OPTIONS:
        diff = git(work, "diff", "--cached", *options)
        if diff:
            for given in (diff, diff.removesuffix("\n")):
                found = read_folder({"diff": given}, None, folder_of(before))
                assert found.files == folder_of(after).files, options
    git(work, "commit", "-q", "--allow-empty", "-m", "after\n\nrename from a\n@@ -1 +1 @@")
    last = changed(after, rng)
    for path in after:
        (work / path).unlink()
    write(work, last)
    git(work, "add", "-A")
    git(work, "commit", "-q", "--allow-empty", "-m", "last")
    for words in (("format-patch", "-2", "--stdout", *COPIES), ("log", "-p", "-2", "--reverse", *COPIES)):
        (tmp_path / "all.patch").write_text(git(work, *words), newline="")
        assert read_folder("all.patch", tmp_path, folder_of(before)).files == folder_of(last).files


@pytest.mark.parametrize("seed", range(10))
def test_a_diff_of_two_folders_gives_the_second(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    plain = ["a.py", "src/a.py", "b/b/x"]
    before = {path: f"{path}\n{text(rng)}" for path in plain}
    after = {path: changed({path: before[path]}, rng).get(path, before[path]) for path in plain}
    write(tmp_path / "old", before)
    write(tmp_path / "new", after)
    made = subprocess.run(["diff", "-ru", "old", "new"], cwd=tmp_path, capture_output=True, text=True)
    if made.stdout:
        assert read_folder({"diff": made.stdout}, None, folder_of(before)).files == folder_of(after).files


ADDED = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+x\n"
CHANGED = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-{}\n+new\n"


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        ("It works now.", r"no unified diff"),
        (CHANGED.format("other"), "x.py: the diff does not fit"),
        (
            CHANGED.format("old").replace("x.py", "y.py"),
            "y.py: the diff changes it, and prompt_files lack it",
        ),
        (ADDED.format("x.py"), "x.py: the diff adds it, and prompt_files have it"),
        (ADDED.format("../x"), "../x.* is no path below the folder"),
        (ADDED.format("/etc/passwd"), "is no path below the folder"),
        (ADDED.format("x.py/y"), "given twice, or as a file and as a folder"),
        (CHANGED.format("old")[:-5], "x.py: the diff does not fit"),
        (f"diff --git a/y b/y\nnew file mode 120000\n{ADDED.format('y')}", "y: it becomes a link"),
        (
            "diff --git a/x.py b/x.py\nBinary files a/x.py and b/x.py differ\n",
            "x.py: the diff changes it as a binary",
        ),
        (
            "diff --git a/x.py b/x.py\nGIT binary patch\nliteral 3\nKc$\n",
            "x.py: the diff changes it as a binary",
        ),
        (
            "--- a/x.py\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n",
            "x.py: the diff deletes it, and leaves lines of it",
        ),
        ("diff --git x.py\nnew file mode 100644\n", "a diff that does not name a file"),
        ("x\n" * (5 << 20), "a diff of more than 8,388,608 characters"),
        ("".join(ADDED.format(n) for n in range(5001)), "5,001 files or more"),
    ],
)
def test_a_diff_that_cannot_be_applied_is_refused(diff: str, message: str) -> None:
    with pytest.raises(BadFolder, match=message) as refused:
        read_folder({"diff": diff}, None, folder_of({"x.py": "old\n"}))
    assert "\n" not in str(refused.value)


def test_a_diff_that_changes_a_large_file_again_and_again_is_refused() -> None:
    diff = (CHANGED.format("old") + CHANGED.format("new").replace("+new", "+old")) * 1000
    with pytest.raises(BadFolder, match="changes more than"):
        read_folder({"diff": diff}, None, folder_of({"x.py": "old\n" + "x" * (1 << 20)}))


def test_a_file_may_be_named_diff() -> None:
    assert read_folder({"diff": {"text": "x"}}, None).files == {"diff": b"x"}
