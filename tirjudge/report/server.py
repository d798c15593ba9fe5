"""A page of a run over HTTP, for this machine's user alone, built again when the run's files change."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tirjudge_sandbox.server.guard import is_loopback

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
_REFRESH_SECONDS = "3"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d{1,5})?")


class LivePage:
    """A page that is built again once one of its files has another size or time."""

    def __init__(self, files: Callable[[], Iterable[Path]], build: Callable[[str], bytes]) -> None:
        """`build` returns the page, given the tag of its version."""
        self._files, self._build = files, build
        self._lock = threading.Lock()
        self._tag, self._html = "", b""

    def newest(self) -> tuple[str, bytes]:
        """Return the tag and the page. Raises OSError and ValueError if no page could ever be built."""
        # One request at a time builds; the others wait for its page.
        with self._lock:
            tag = self._version()
            if tag != self._tag:
                try:
                    self._html = self._build(tag)
                except (OSError, ValueError):
                    # A run that was deleted or is being rewritten keeps its last page.
                    if not self._html:
                        raise
                self._tag = tag
            return self._tag, self._html

    def _version(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self._files()):
            try:
                stat = path.stat()
            except OSError:
                continue
            digest.update(repr((str(path), stat.st_size, stat.st_mtime_ns)).encode(errors="replace"))
        return f'"{digest.hexdigest()[:32]}"'


class PageServer(ThreadingHTTPServer):
    """Serves a page at a URL with a random token; every other path is not found."""

    daemon_threads = True

    def __init__(self, page: LivePage, host: str, port: int) -> None:
        """Raises OSError for an address that is taken or that this machine does not have."""
        self.page, self.host = page, host
        self.token = secrets.token_urlsafe(24)
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{self.host}:{self.server_address[1]}/{self.token}/"

    def accepts(self, host: str | None) -> bool:
        """Return True for a host name of this server.

        Other names are refused because of DNS rebinding: a page whose own name was made to point to this
        server sends that name.
        """
        match = _HOST.fullmatch(host or "")
        if match is None:
            return False
        name = match[1].lower()
        return is_loopback(name) or (not is_loopback(self.host) and name.replace(".", "").isdecimal())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that go away in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "tirjudge", ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if not self.server.accepts(self.headers.get("Host")):
            self._send(HTTPStatus.FORBIDDEN, b"this server does not accept that host name\n", with_body)
            return
        wanted = f"/{self.server.token}/".encode()
        path = self.path.partition("?")[0].encode(errors="replace")
        if not hmac.compare_digest(path, wanted):
            self._send(
                HTTPStatus.NOT_FOUND, b"not found: use the address that tirjudge view printed\n", with_body
            )
            return
        try:
            tag, html = self.server.page.newest()
        except (OSError, ValueError) as error:
            reason = f"{' '.join(str(error).split())}\n".encode(errors="backslashreplace")
            # The browser asks again, until a run that has only begun has a row.
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, reason, with_body, {"Refresh": _REFRESH_SECONDS})
            return
        if self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", False, {"ETag": tag})
        else:
            self._send(
                HTTPStatus.OK, html, with_body, {"ETag": tag, "Content-Type": "text/html; charset=utf-8"}
            )

    def _send(
        self, status: HTTPStatus, body: bytes, with_body: bool, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        found = {"Content-Type": "text/plain; charset=utf-8", **_HEADERS, **(headers or {})}
        for name, value in found.items():
            self.send_header(name, value)
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: it would hold the token."""
