"""TLS in front of a server that speaks none: ends it, and passes on what is inside."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Self

from holdfast._net.silent_socket import silent


class Terminator:
    """Listens on ``port`` of 127.0.0.1 with the certificate of ``context``; passes on to ``target``, a unix socket or an
    address."""

    def __init__(self, context: ssl.SSLContext, target: str | tuple[str, int]) -> None:
        self._context, self._target = context, target
        context.sslsocket_class = silent(ssl.SSLSocket)  # `wrap_socket` leaves a socket open that the client has reset
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self.thawed = threading.Event()
        """While it is not set, nothing is read and nothing is answered, as if the other side had vanished."""
        self.thawed.set()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thawed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                thread = threading.Thread(target=self._serve, args=(sock,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
        with server, sock, contextlib.suppress(OSError):
            sock.settimeout(5)
            with self._context.wrap_socket(sock, server_side=True) as client:
                server.connect(self._target)
                self._open += client, server
                source: socket.socket
                target: socket.socket
                while True:
                    if client.pending() or client in select.select([client, server], [], [])[0]:
                        source, target = client, server
                    else:
                        source, target = server, client
                    self.thawed.wait()
                    data = source.recv(65536)
                    if not data:
                        return
                    target.sendall(data)
