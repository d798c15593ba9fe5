"""The image that containers run: what it is made of, how it is built, and how it is found again."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tirjudge_sandbox import guest
from tirjudge_sandbox.base import SandboxUnavailable
from tirjudge_sandbox.containers.engine import EngineFailed

LABEL = "tirjudge.sandbox"
"""Its value is the digest of all that the image was made of; images derived from ours inherit it."""
TAG = "tirjudge-sandbox"

_DOCKERFILE = "Dockerfile.sandbox"
_HERE = Path(__file__).parent


def digest() -> str:
    """SHA-256, in hexadecimal, of the Dockerfile, the packages' lock and the guest's code."""
    return _digest(_sources())


def find(client: Any, reference: str | None = None) -> str:
    """Id of the image of this version; of the image `reference`, which must be derived from it.

    Raises SandboxUnavailable where there is none.
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
    """The image's id, and whether it had to be built. Each line of the engine's goes to `log`.

    Raises EngineFailed with the line that tells what went wrong.
    """
    # Read once: what is built, labelled and looked for is the same, whatever changes meanwhile.
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
        # The packages come over the engine's own network, wherever their index is to be reached from.
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
    # Images derived from ours have the label too, and are younger.
    return str(min(found, key=lambda image: image["Created"])["Id"]) if found else None


def _context(sources: Mapping[str, bytes]) -> bytes:
    """A tar archive of what the Dockerfile copies, the same to the bit wherever it is made."""
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
    """Name in the repository and content of every file that the image is made of."""
    package = "sandbox/tirjudge_sandbox"
    modules = sorted(Path(guest.__path__[0]).glob("*.py"))
    return {
        _DOCKERFILE: (_HERE / _DOCKERFILE).read_bytes(),
        f"{package}/containers/requirements.lock": (_HERE / "requirements.lock").read_bytes(),
        **{f"{package}/guest/{path.name}": path.read_bytes() for path in modules},
    }
