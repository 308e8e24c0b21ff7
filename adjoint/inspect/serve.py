"""One page for the browser of this machine: a server on 127.0.0.1 that knows nothing else."""
from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    """Answers ``/`` with the page; every other path, host or method is refused."""

    server: Server
    server_version = "adjoint"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the page."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Send the headers of the page."""
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        # A page of another site may have its own name point here: only our names are answered.
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.send_error(403, "only this machine's own name is served")
            return
        if self.path.split("?")[0].split("#")[0] != "/":
            self.send_error(404)
            return
        self.send_response(200)
        for name, value in (("Content-Type", "text/html; charset=utf-8"),
                            ("Content-Length", str(len(self.server.page))),
                            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
                            ("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer")):
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not reported."""


class Server(ThreadingHTTPServer):
    """Serves `html` on 127.0.0.1; port 0 takes a free one. `url` is its address.

    >>> with Server("<!DOCTYPE html>") as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """

    daemon_threads = True

    def __init__(self, html: str, port: int = 0) -> None:
        self.page = html.encode("utf-8", "replace")
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/"


__all__ = ["HOST", "Server"]
