"""The models on this machine: those with a short name, and the converted GGUF files in the cache."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tirjudge.model_folder import MODELS, embedded_model, embedded_name
from tirjudge.models.base import ModelUnavailable, cache_folder
from tirjudge.models.gguf_file import SOURCE_FILE, remove_converted
from tirjudge.models.resolve import KNOWN, MINI, KnownModel, hub_folder, resolve_model

logger = logging.getLogger(__name__)


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
        """Bytes of its files; 0 for an absent one."""
        if self.path is None:
            return 0
        files = [self.path] if self.path.is_file() else self.path.glob("*")
        return sum(file.stat().st_size for file in files if file.is_file())


def local_models() -> Iterator[LocalModel]:
    """Yield the models of this package, those with a short name, and then the other converted files."""
    yield LocalModel(embedded_name(), "embedded", Path(embedded_model()))
    if embedded_model() != str(MODELS / MINI):
        yield LocalModel(MINI, "embedded", MODELS / MINI)
    for model in KNOWN.values():
        yield _known(model)
    known = {model.folder() for model in KNOWN.values()}
    for note in sorted(cache_folder().glob(f"*/{SOURCE_FILE}")):
        # A partial folder, which begins with a dot, is no model yet.
        if note.parent not in known and not note.parent.name.startswith("."):
            source = json.loads(note.read_text(encoding="utf-8"))
            yield LocalModel(note.parent.name, "converted", note.parent, source["sha256"])


def fetch_model(name: str, say: Callable[[str], None] = logger.warning) -> str:
    """Convert or download a model, so that judging finds it here, and return its folder.

    `name` is what `resolve_model` accepts. Raises ModelUnavailable, in one line with the remedy.
    """
    found = resolve_model(name, say)
    return found if Path(found).is_dir() else hub_folder(found, say)


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


def _known(model: KnownModel) -> LocalModel:
    file = model.installed_file()
    if model.folder().is_dir():
        return LocalModel(model.name, "converted", model.folder(), model.sha256)
    if file is not None:
        return LocalModel(model.name, "installed", file, model.sha256)
    try:
        return LocalModel(model.name, "downloaded", Path(hub_folder(model.hub, None)))
    except ModelUnavailable:
        return LocalModel(model.name, "absent", None, remedy=model.install)
