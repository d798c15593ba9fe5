"""Diffs of several files, as git writes them of what an agent changed."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tirjudge_environments.files.folder import BadFolder, Folder
from tirjudge_environments.files.reading import read_folder

NAMES = ["a.py", "src/a.py", "src/b c.txt", "src/ü.txt", 'quo"te.txt', "b/b/x", "a/a", "diff", "tab\u00a0.md"]
COPIES = "-M", "-C", "--find-copies-harder"
OPTIONS = [(), ("--no-prefix",), ("--src-prefix=i/", "--dst-prefix=w/"), ("-U0",), COPIES, ("--no-renames",)]


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


def exchange(folder: Path, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Put other files in the place of those of a repository, for its next commit."""
    for path in before:
        (folder / path).unlink()
    write(folder, after)
    git(folder, "add", "-A")


def folder_of(files: Mapping[str, str]) -> Folder:
    return Folder({path: text.encode() for path, text in files.items()})


def text(rng: random.Random) -> str:
    """Return lines of which some look like parts of a diff, with or without a last line feed."""
    odd = ["-- x", "++ y", "@@ -1,1 +1,1 @@", "diff --git a/x b/x", "rename from x", "", "\t", "-- a/x", "ä"]
    lines = [rng.choice([*odd, str(rng.randint(0, 9))]) + "\n" for _ in range(rng.randint(0, 25))]
    return "".join(lines)[: -1 if rng.random() < 0.3 else None]


def changed(files: Mapping[str, str], rng: random.Random) -> dict[str, str]:
    """Return the files after some were deleted, moved or changed, and others added."""
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
    exchange(work, before, after)
    for options in OPTIONS:
        diff = git(work, "diff", "--cached", *options)
        if diff:
            for given in (diff, diff.removesuffix("\n")):
                found = read_folder({"diff": given}, None, folder_of(before))
                assert found.files == folder_of(after).files, options
    git(work, "commit", "-q", "--allow-empty", "-m", "after\n\nrename from a\n--- a/a.py\n+++ /dev/null")
    last = changed(after, rng)
    exchange(work, after, last)
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
NEVER = "1970-01-01 00:00:00.000000000 +0000"
END = "\\ No newline at end of file\n"
MERGE = "diff --cc x.py\nindex 1,2..3\n--- a/x.py\n+++ b/x.py\n@@@ -1,1 -1,1 +1,1 @@@\n--old\n++new\n"
GIT = "diff --git a/x.py b/x.py\n"


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
        (
            ADDED.format("y").replace("b/y", "src/y"),
            "a new file whose path in the diff does not begin with b/",
        ),
        (CHANGED.format("old")[:-5], "x.py: the diff has other lines than it says"),
        (CHANGED.format("old") + "+more\n", "x.py: a line without its place in the diff"),
        (f"{CHANGED.format('old')}@@ -b0,3 +18,b @@\n-x\n", "x.py: a line without its place in the diff"),
        (f"{GIT}imilarity index 100%\nnew mode 100644\n", "x.py: a line that is no part of a diff"),
        (CHANGED.format("old") + "\n@@ -2 +2 @@\n-b\n+c\n", "does not follow the name of its file"),
        (CHANGED.format("old") + "--- a/y\n@@ -2 +2 @@\n-b\n+c\n", "a line without its place in the diff"),
        ("@@ -1 +1 @@\n-old\n+new\n", "does not follow the name of its file"),
        ("--- a/x.py\n+++ /dev/null\n", "no unified diff"),
        (f"{GIT}new file mode 100644\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +b @@\n+x\n", "without its place"),
        (f"diff --git a/y b/y\nnew file mode 122644\n{ADDED.format('y')}", "y: a link or a submodule"),
        (f"{GIT}index 1..2 100644\n", "x.py: the diff ends before its changes"),
        (MERGE, "a diff of a merge"),
        (f"diff --git a/y b/y\nnew file mode 120000\n{ADDED.format('y')}", "y: a link or a submodule"),
        (f"{GIT}index 1..2 160000\n{CHANGED.format('old')}", "x.py: a link or a submodule"),
        (f"{GIT}Binary files a/x.py and b/x.py differ\n", "lacks what a file holds"),
        (f"{GIT}GIT binary patch\nliteral 3\nKc$\n", "lacks what a file holds"),
        (CHANGED.format("old") + "Only in new: y\n", "lacks what a file holds"),
        ("diff --git a/y b/y\n" + CHANGED.format("old"), "the diff gives it several names"),
        (
            f"diff --git a/y b/z\nrename from y\nrename to z\n{CHANGED.format('old')}",
            "gives it several names",
        ),
        (f"{GIT}deleted file mode 100644\n{CHANGED.format('old')}", "several names"),
        (f"{GIT}deleted file mode 100644\n", "the diff deletes it, and leaves lines of it"),
        (
            "--- a/x.py\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n",
            "x.py: the diff deletes it, and leaves lines of it",
        ),
        ("diff --git x.py\nnew file mode 100644\n", "a diff that does not name a file"),
        ('--- "a/\ud800x"\n+++ "b/\ud800x"\n@@ -1 +1 @@\n-a\n+b\n', "a name in the diff that is not UTF-8"),
        ('--- /dev/null\n+++ "b/caf\\351"\n@@ -0,0 +1 @@\n+x\n', "a name in the diff that is not UTF-8"),
        ("--- x.py\n+++ end\n@@ -1 +1 @@\n-old\n+new\n", "the diff may mean end or x.py"),
        (CHANGED.format("old").replace("\n", "\r\n"), "x.py: the diff does not fit"),
        ("--- a/end\n+++ b/end\n@@ -1 +1,2 @@\n a\n+b\n", "end: the diff does not fit"),
        (f"--- a/end\n+++ b/end\n@@ -1 +1,2 @@\n a\n{END}+b\n", "end: the diff does not fit"),
        ("--- a/end\n+++ b/end\n@@ -1,0 +2 @@\n+b\n", "end: the diff does not fit the end"),
        (f"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n{END}+new\n", "x.py: the diff does not fit"),
        ("x\n" * (5 << 20), "a diff of more than 8,388,608 characters"),
        ("".join(ADDED.format(n) for n in range(5001)), "5,001 files or more"),
    ],
)
def test_a_diff_that_cannot_be_applied_is_refused(diff: str, message: str) -> None:
    with pytest.raises(BadFolder, match=message) as refused:
        read_folder({"diff": diff}, None, folder_of({"x.py": "old\n", "end": "a"}))
    assert "\n" not in str(refused.value)


SPACE = "diff --git a/n  b/n \nindex 1..2 100644\n--- a/n \t\n+++ b/n \t\n@@ -1 +1 @@\n-1\n+2\n"
REVISION = "Index: x\n====\n--- x\t(revision 3)\n+++ x\t(working copy)\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("before", "diff", "after"),
    [
        ({"n ": "1\n", "n": "1\n"}, SPACE, {"n ": "2\n", "n": "1\n"}),
        (
            {"y": "1\n"},
            f"diff -ruN old/y new/y\n--- old/y\t2024\n+++ new/y\t{NEVER}\n@@ -1 +0,0 @@\n-1\n",
            {},
        ),
        (
            {},
            f"diff -ruN old/y new/y\n--- old/y\t{NEVER}\n+++ new/y\t2024\n@@ -0,0 +1 @@\n+1\n",
            {"y": "1\n"},
        ),
        ({"x": "a\n"}, "\ufeff--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", {"x": "b\n"}),
        ({"x": "a\n"}, REVISION, {"x": "b\n"}),
        ({"x": "a\r\nb\r\n"}, "--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n a\r\n-b\r\n", {"x": "a\r\n"}),
    ],
)
def test_names_times_and_line_ends_are_read(before: dict[str, str], diff: str, after: dict[str, str]) -> None:
    assert read_folder({"diff": diff}, None, folder_of(before)).files == folder_of(after).files


def mutated(diff: str, rng: random.Random) -> str:
    """Return a diff with lines left out, doubled, moved or changed, as by somebody who writes it by hand."""
    lines = diff.splitlines(keepends=True)
    for _ in range(rng.randint(1, 2)):
        # Git refuses or mistakes a new file without its mode, which other tools read.
        places = [at for at, line in enumerate(lines) if " file mode " not in line]
        at, kind = rng.choice(places), rng.randrange(5)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[at])
        elif kind == 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        elif kind == 3:
            lines[at] = rng.choice(["+", "-", " ", ""]) + lines[at][1:]
        else:
            lines[at] = lines[at].replace(rng.choice("0123456789ab"), rng.choice("0123456789ab"))
    return "".join(lines)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_of_a_damaged_diff_is_what_git_reads(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    before = {path: text(rng) for path in rng.sample(NAMES, 3)}
    work = tmp_path / "work"
    repository(work, before)
    exchange(work, before, changed(before, rng))
    diffs = [git(work, "diff", "--cached", *options) for options in ((), ("--no-renames", "-U1"))]
    for number in range(30):
        given = mutated(rng.choice(diffs), rng)
        try:
            found = read_folder({"diff": given}, None, folder_of(before))
        except BadFolder:
            continue
        place = tmp_path / str(number)
        place.mkdir()
        write(place, before)
        (tmp_path / "given").write_text(given, newline="")
        git(place, "apply", "--whitespace=nowarn", "--unidiff-zero", "../given")
        read = {str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()}
        assert found.files == read, given


def test_a_diff_that_changes_a_large_file_again_and_again_is_refused() -> None:
    diff = (CHANGED.format("old") + CHANGED.format("new").replace("+new", "+old")) * 1000
    with pytest.raises(BadFolder, match="changes more than"):
        read_folder({"diff": diff}, None, folder_of({"x.py": "old\n" + "x" * (1 << 20)}))


def test_a_file_may_be_named_diff() -> None:
    assert read_folder({"diff": {"text": "x"}}, None).files == {"diff": b"x"}
