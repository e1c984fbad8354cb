"""The explorer's page on this machine alone, and the judge of changed kernels.

In:  a ``Page``. Out: HTTP on the loopback interface, at an address with a token.

Any page that a browser has open can send requests to this machine. So a request counts only if it
has the token, which is drawn anew at each start, and names this server as its host. A request to
judge a text must also come from this server's own page (its ``Origin``). All others get 403. A
request holds at most ``MOST_BYTES``, and nothing in it is executed: the text goes to the stepper,
which reads kernel language alone and has limits.
"""

import hmac
import json
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from . import Page

HOST = "127.0.0.1"  # loopback: no other machine reaches it
MOST_BYTES = 64_000  # of a request
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
           "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
           "Content-Security-Policy": "frame-ancestors 'none'", "Connection": "close"}


class ExplorerServer(ThreadingHTTPServer):
    """Serves one page until it is shut down. ``url`` is where."""

    daemon_threads = True

    def __init__(self, exploration: Page, port: int = 0) -> None:
        super().__init__((HOST, port), _ExplorerHandler)
        self.page, self.trials = exploration.page().encode(), exploration.trials
        self.token, self.judging = secrets.token_urlsafe(16), Lock()

    @property
    def origin(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/?token={self.token}"

    def verdict(self, asked: Any) -> dict[str, Any]:
        """The verdict on ``{"kernel": 0, "text": "..."}``. Raises ValueError for anything else."""
        match asked:
            case {"kernel": int(number), "text": str(text)} if 0 <= number < len(self.trials):
                with self.judging:  # one at a time: fast clicks must not take all cores
                    return self.trials[number].verdict(text)
        raise ValueError(f'write {{"kernel": 0, "text": "..."}}; kernels: {len(self.trials)}')


class _ExplorerHandler(BaseHTTPRequestHandler):
    server: ExplorerServer
    timeout = 10  # seconds that a request may take to arrive
    server_version, sys_version = "minisitch", ""

    def do_GET(self) -> None:
        """The page."""
        asked = urlsplit(self.path)
        if not self._is_ours(parse_qs(asked.query).get("token", [""])[-1]):
            self._answer(403, b"wrong host or token")
        elif asked.path != "/":
            self._answer(404, b"the page is at /")
        else:
            self._answer(200, self.server.page, "text/html")

    def do_POST(self) -> None:
        """A verdict on a changed text."""
        length = self.headers.get("Content-Length", "")
        if (self.headers.get_all("Origin") != [self.server.origin]
                or not self._is_ours(self.headers.get("X-Token", ""))):
            self._answer(403, b"wrong host, origin or token")
        elif self.path != "/verdict":
            self._answer(404, b"verdicts are at /verdict")
        elif not (length.isascii() and length.isdigit()) or int(length) > MOST_BYTES:
            self._answer(413, f"a request has at most {MOST_BYTES} bytes".encode())
        else:
            try:
                found = self.server.verdict(json.loads(self.rfile.read(int(length))))
                self._answer(200, json.dumps(found, allow_nan=False).encode(), "application/json")
            except (ValueError, RecursionError) as problem:
                self._answer(400, str(problem).encode())

    def _is_ours(self, token: str) -> bool:
        """Whether a request is for this server, from somebody who has seen its address."""
        hosts = self.headers.get_all("Host")
        right = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        return right and hosts == [f"{HOST}:{self.server.server_port}"]

    def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        kinds = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**HEADERS, **kinds}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Nothing: the terminal shows the address alone."""
