"""Serves the live page on this machine alone: the standard library's threading server, news as server-sent events.

A request from a page of another site is refused by its Host and Origin. To stop a run takes a token, which is in the
part of the printed address that browsers send to nobody.
"""

import json
import os
import secrets
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from fedfdp.core.errors import FedFDPError, SettingError
from fedfdp.report.contents import document
from fedfdp.report.page import render
from fedfdp.watch.board import FRESH, Board
from fedfdp.watch.page import live_page
from fedfdp.watch.prometheus import TYPE, exposition

HOST, PORT = "127.0.0.1", 8765
TICK, KEEP_ALIVE = 0.5, 15.0  # seconds: between looks for news, and until a silent connection is tried
MOST_VIEWERS = 64
TOKEN_HEADER = "X-Fedfdp-Token"
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


class WatchServer(ThreadingHTTPServer):
    """One board for all viewers."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, board: Board, port: int, token: str) -> None:
        super().__init__((HOST, port), _Handler)
        self.board, self.token, self.page = board, token, live_page().encode()
        self.closing = threading.Event()
        self.viewers = threading.BoundedSemaphore(MOST_VIEWERS)
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def watched(self) -> bool:
        """Whether somebody is listening for news."""
        return self.viewers._value < MOST_VIEWERS

    @property
    def address(self) -> str:
        """Where the page is, with the right to stop a run."""
        return f"http://{HOST}:{self.server_port}/#stop={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    protocol_version = "HTTP/1.1"
    timeout = 60
    server_version, sys_version = "fedfdp", ""

    def do_GET(self) -> None:
        """Everything that only shows."""
        parts = urlsplit(self.path)
        found = self.GETS.get(parts.path)
        if not self._from_here():
            return
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, TEXT, b"there is no such page\n")
        else:
            found(self, parse_qs(parts.query).get("run", [None])[0])

    def do_POST(self) -> None:
        """Asks a run to stop."""
        length = self.headers.get("Content-Length", "")
        self.rfile.read(min(int(length), 4096) if length.isdecimal() else 0)  # of −1 it would read without end
        self.close_connection = True
        parts = urlsplit(self.path)
        if not self._from_here():
            return
        if parts.path != "/stop":
            self._send(HTTPStatus.NOT_FOUND, TEXT, b"there is no such page\n")
            return
        token = self.headers.get(TOKEN_HEADER, "").encode("latin-1", "replace")
        if not secrets.compare_digest(token, self.server.token.encode()):
            self._answer(
                HTTPStatus.FORBIDDEN, "only the address that was printed where fedfdp watch was started may stop it"
            )
            return
        name = parse_qs(parts.query).get("run", [None])[0]
        found = self.server.board.find(name) if name is not None else None
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND, "there is no such run")
        elif not found[1].running:
            self._answer(HTTPStatus.CONFLICT, "the run is not running")
        else:
            try:
                found[1].ask_to_stop()
            except FedFDPError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
                return
            self._answer(HTTPStatus.ACCEPTED, "the run ends after the round that it is in")

    def _page(self, run: str | None) -> None:
        self._send(HTTPStatus.OK, HTML, self.server.page)

    def _state(self, run: str | None) -> None:
        self._send(HTTPStatus.OK, JSON, self.server.board.shown(run).text.encode())

    def _metrics(self, run: str | None) -> None:
        self._send(HTTPStatus.OK, TYPE, exposition(self.server.board.records()))

    def _report(self, run: str | None) -> None:
        found = self.server.board.find(run)
        try:
            page = render(document([found[1]])) if found else None
        except FedFDPError as error:
            self._send(HTTPStatus.CONFLICT, TEXT, f"{error}\n".encode())
            return
        if page is None:
            self._send(HTTPStatus.NOT_FOUND, TEXT, b"there is no such run\n")
        else:
            self._send(HTTPStatus.OK, HTML, page.encode("utf-8", "replace"))

    def _events(self, run: str | None) -> None:
        """The state whenever it is new, until the viewer leaves."""
        if not self.server.viewers.acquire(blocking=False):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"too many viewers\n")
            return
        try:
            self._headers(HTTPStatus.OK, "text/event-stream")
            self.end_headers()
            self.close_connection = True
            sent, quiet = "", 0.0
            while not self.server.closing.is_set():
                shown = self.server.board.shown(run)
                if shown.tag != sent:
                    self.wfile.write(f"retry: 1000\ndata: {shown.text}\n\n".encode())
                    sent, quiet = shown.tag, 0.0
                elif quiet >= KEEP_ALIVE:
                    self.wfile.write(b": still here\n\n")
                    quiet = 0.0
                self.server.closing.wait(TICK)
                quiet += TICK
        except OSError:
            pass  # the viewer left
        finally:
            self.server.viewers.release()

    GETS: ClassVar[dict[str, Callable[["_Handler", str | None], None]]] = {
        "/": _page,
        "/events": _events,
        "/state": _state,
        "/metrics": _metrics,
        "/report": _report,
    }

    def _from_here(self) -> bool:
        """Whether the request is for this address and, if a page made it, from a page of this address.

        A link from elsewhere may lead here; nothing else of another site gets an answer.
        """
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        site, mode = self.headers.get("Sec-Fetch-Site", "none"), self.headers.get("Sec-Fetch-Mode")
        followed = self.command == "GET" and mode == "navigate"
        own = site in ("none", "same-origin") and origin in (None, f"http://{host}")
        if host in self.server.hosts and (own or followed):
            return True
        self._send(HTTPStatus.FORBIDDEN, TEXT, b"this is for pages of this machine alone\n")
        return False

    def _answer(self, status: HTTPStatus, text: str) -> None:
        self._send(status, JSON, json.dumps({"said": text}).encode())

    def _headers(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        with suppress(OSError):
            self._headers(status, kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the terminal belongs to the run."""


def open_server(place: Path, port: int | None) -> WatchServer:
    """A server for the runs in a folder. Without a port it takes the usual one, or a free one if that is taken."""
    if port is not None and not 0 <= port < 2**16:
        raise SettingError("--port", port, "0 to 65535")
    board, token = Board(place), own_token()
    try:
        return WatchServer(board, PORT if port is None else port, token)
    except OSError as error:
        if port is None:
            return WatchServer(board, 0, token)
        raise SettingError("--port", port, f"cannot be listened on: {error.strerror}", "give another") from None


@contextmanager
def watching(place: Path, port: int | None, *, show: bool = False) -> Iterator[WatchServer]:
    """Serves while the block runs; `show` opens the page in a browser."""
    server = open_server(place, port)
    thread = threading.Thread(target=server.serve_forever, name="watch", daemon=True)
    thread.start()
    try:
        if show:
            webbrowser.open(server.address)
        yield server
    finally:
        if server.watched:  # let them see how it ended
            server.closing.wait(2 * TICK + FRESH)
        server.closing.set()
        server.shutdown()
        server.server_close()


def own_token(file: Path | None = None) -> str:
    """This user's token, kept where only they can read it, so that an open page lasts beyond a restart."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    file = file or state / "fedfdp" / "watch.token"
    with suppress(OSError, UnicodeDecodeError):
        if file.stat().st_mode & 0o077 == 0 and len(token := file.read_text().strip()) >= 32:
            return token
    token = secrets.token_urlsafe(32)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(token)
    return token
