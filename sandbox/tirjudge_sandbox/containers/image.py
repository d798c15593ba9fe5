"""The image that containers run: build it, and find it by a digest of everything that it is made of."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tirjudge_sandbox import guest
from tirjudge_sandbox.base import SandboxUnavailable
from tirjudge_sandbox.containers.client import EngineFailed

LABEL = "tirjudge.sandbox"
"""Label with the digest of everything that the image was made of; derived images inherit it."""
TAG = "tirjudge-sandbox"

_DOCKERFILE = "Dockerfile.sandbox"
_HERE = Path(__file__).parent


def digest() -> str:
    """Return the SHA-256, in hexadecimal, of the Dockerfile, the packages' lock file and the guest's code."""
    return _digest(_sources())


def find(client: Any, reference: str | None = None) -> str:
    """Return the id of this version's image, or of the image `reference`, which must be derived from it.

    Raises SandboxUnavailable if there is none.
    """
    if reference is None:
        if (found := _labelled(client, digest())) is None:
            raise SandboxUnavailable(
                "the Docker engine has no image of this version's sandbox: run `tirjudge sandbox build`"
            )
        return found
    from docker.errors import ImageNotFound

    try:
        named = client.images.get(reference)
    except ImageNotFound:
        raise SandboxUnavailable(f"the Docker engine has no image {reference!r}") from None
    if named.labels.get(LABEL) != digest():
        raise SandboxUnavailable(
            f"the image {reference!r} is not derived from this version's sandbox image: "
            f"run `tirjudge sandbox build`, and build it again FROM {TAG}"
        )
    return str(named.id)


def build(client: Any, log: Callable[[str], None]) -> tuple[str, bool]:
    """Build the image unless it exists; return its id, and True if it was built.

    Each line of the engine's output goes to `log`. Raises EngineFailed with the line that reports the error.
    """
    # Read once, so that the built content and its label agree even if a file changes meanwhile.
    sources = _sources()
    wanted = _digest(sources)
    if found := _labelled(client, wanted):
        return found, False
    answers = client.api.build(
        fileobj=io.BytesIO(_context(sources)),
        custom_context=True,
        dockerfile=_DOCKERFILE,
        tag=TAG,
        labels={LABEL: wanted},
        # pip uses the network of the engine's machine, through which the package index can be reached.
        network_mode="host",
        rm=True,
        forcerm=True,
        decode=True,
    )
    for answer in answers:
        if "error" in answer:
            raise EngineFailed(f"the image could not be built: {answer['error'].strip()}")
        if text := answer.get("stream", "").strip():
            log(text)
    if found := _labelled(client, wanted):
        return found, True
    raise EngineFailed("the image was built, but the engine does not find it")


def _labelled(client: Any, wanted: str) -> str | None:
    found = client.api.images(all=True, filters={"label": f"{LABEL}={wanted}"})
    # Derived images have the label too, and are younger.
    return str(min(found, key=lambda image: image["Created"])["Id"]) if found else None


def _context(sources: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of the files that the Dockerfile copies, identical on every machine."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sources.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(sources: Mapping[str, bytes]) -> str:
    sha = hashlib.sha256()
    for name, content in sources.items():
        sha.update(f"{name}\0{len(content)}\0".encode() + content)
    return sha.hexdigest()


def _sources() -> dict[str, bytes]:
    """Return the name in the repository and the content of every file that the image is made of."""
    package = "sandbox/tirjudge_sandbox"
    modules = sorted(Path(guest.__path__[0]).glob("*.py"))
    return {
        _DOCKERFILE: (_HERE / _DOCKERFILE).read_bytes(),
        f"{package}/containers/requirements.lock": (_HERE / "requirements.lock").read_bytes(),
        **{f"{package}/guest/{path.name}": path.read_bytes() for path in modules},
    }
