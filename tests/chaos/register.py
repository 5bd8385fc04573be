"""The protected resource: a register in the test's own process, which no fault hits.

It refuses lower fences, and records writes.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Self

from holdfast.testing.history import Event, to_line
from holdfast.testing.recording import Register


class Keeping:
    """The register itself, behind a unix socket in ``folder``; its record is the file "register" there."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "register.sock")
        self._highest: defaultdict[str, int] = defaultdict(int)
        self._mutex = threading.Lock()
        self._file = (folder / "register").open("a", encoding="utf-8")
        keeping = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(b"1\n" if keeping.write(*json.loads(line)) else b"0\n")

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A worker was killed while it was told."""

        self._server = Server(self.path, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="register", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self._mutex:
            self._file.close()

    def write(self, fence: int, who: str, lock: str, attempt: str) -> bool:
        with self._mutex:
            accepted = fence >= self._highest[lock]
            if accepted:
                self._highest[lock] = fence
            note = "accepted" if accepted else "refused"
            self._file.write(to_line(Event(time.monotonic(), "write", who, lock, attempt, fence, note=note)) + "\n")
            return accepted


class Remote(Register):
    """The same, from a worker's process: whoever is stopped in the middle of a write is in nobody's way."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._replies = self._socket.makefile("rb")
        self._mutex = threading.Lock()

    def write(self, fence: int, who: str = "", lock: str = "", attempt: str = "") -> bool:
        with self._mutex:
            self._socket.sendall(json.dumps([fence, who, lock, attempt]).encode() + b"\n")
            return self._replies.readline() == b"1\n"

    def close(self) -> None:
        self._replies.close()
        self._socket.close()
