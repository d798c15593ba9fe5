"""Settings of a worker, which its processes receive on their command lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True)
class Preparation:
    """The preparation that a supervisor makes once for all its programs."""

    preload: tuple[str, ...] = ()
    """Modules to load, where they are installed."""
    unix_sockets: bool = False
    """Allow programs to make AF_UNIX sockets among themselves; none leads out of the worker."""
    imports: tuple[str, ...] | None = None
    """Modules that the import policy allows; None without a policy."""
    prepared_bytes: int = 0
    """Address space of the prepared program, which the host sends; 0 if there is none."""


@dataclass(frozen=True)
class Inside:
    """Settings of the supervisor. Programs can read the settings, so they must hold no path of the host."""

    scratch: str
    """The writable folder."""
    own_root: bool
    """True if the root folder shows nothing of the host but Python."""
    sites: list[str]
    """Folders of installed packages."""
    preparation: Preparation

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**{**fields, "preparation": Preparation(**fields["preparation"])})


@dataclass(frozen=True)
class Outside:
    """Settings of the launcher, which programs cannot see."""

    placement: str
    folder: str
    """Mount options of the writable folder."""
    binds: list[tuple[str, str]]
    """Pairs of a file or folder of the host, without symbolic links, and its read-only path inside."""
    command: list[str]
    """Command line of the supervisor with its settings; the numbers of its descriptors are appended."""
    environment: dict[str, str]
    control: int
    """Descriptor of the control socket."""
    scratch: str
    """The writable folder."""
    unix_sockets: bool
    """See `Preparation`."""
    temporary: str = ""
    """A folder to remove at the end, since the host may have been killed; empty for none."""
    hidden: Sequence[str] = ()
    """Files, as paths inside, that programs find empty."""
    memory_group: str = ""
    """File by which a process joins the worker's memory control group; empty without one."""
    memory_kills: str = ""
    """File that counts the group's processes that were killed for lack of memory."""

    def to_code(self) -> str:
        """Return Python code of an object with these attributes, in a module that has imported `types`.

        Loading data classes and JSON would take most of the launcher's time.
        """
        return f"types.SimpleNamespace(**{asdict(self)!r})"
