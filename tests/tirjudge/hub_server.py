"""A Hugging Face hub on loopback with the few paths that `datasets` requests, from files in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.loopback import served

_COMMIT = "a" * 40


class HubServer:
    """A server of `{owner/name: {path: bytes}}`; anything else does not exist."""

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        self._repositories = repositories
        self.url = ""

    async def handle(self, request: Request) -> Response:
        path = request.url.path.removeprefix("/api").removeprefix("/datasets/")
        owner, name, *rest = path.split("/")
        files = self._repositories.get(f"{owner}/{name}")
        if files is None:
            return _absent("RepoNotFound")
        if rest[:1] == ["tree"]:
            return JSONResponse(_children(files, "/".join(rest[2:])))
        if rest[:1] == ["resolve"]:
            return _file(files.get("/".join(rest[2:])), request.method)
        return JSONResponse({"id": f"{owner}/{name}", "sha": _COMMIT, "private": False, "tags": []})


@contextmanager
def hub(repositories: Mapping[str, Mapping[str, bytes]]) -> Iterator[HubServer]:
    """Run a hub on a free port, in a thread of its own."""
    state = HubServer(repositories)
    with served(Route("/{path:path}", state.handle, methods=["GET", "HEAD", "POST"])) as state.url:
        yield state


def _children(files: Mapping[str, bytes], folder: str) -> list[dict[str, object]]:
    start = f"{folder}/" if folder else ""
    found: dict[str, dict[str, object]] = {}
    for path, content in files.items():
        child, _, deeper = path.removeprefix(start).partition("/")
        if path.startswith(start):
            kind = "directory" if deeper else "file"
            found[child] = {
                "type": kind,
                "path": start + child,
                "size": len(content),
                "oid": _digest(content),
            }
    return list(found.values())


def _file(content: bytes | None, method: str) -> Response:
    if content is None:
        return _absent("EntryNotFound")
    headers = {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": _COMMIT, "Content-Length": str(len(content))}
    return Response(b"" if method == "HEAD" else content, headers=headers)


def _absent(reason: str) -> Response:
    return Response("Not found", 404, headers={"X-Error-Code": reason, "X-Repo-Commit": _COMMIT})


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
