"""A server may send a client elsewhere: only in a Cluster, and over TLS only to a host whose certificate proves its name."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import hiredis
import pytest
import trustme

import holdfast
from holdfast import aio

Answer = Callable[[list[bytes]], bytes]


@contextmanager
def fake(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[list[bytes]]]]:
    """A server that answers like this: its port, and the commands that it has been told."""
    told: list[list[bytes]] = []

    def talk(peer: socket.socket) -> None:
        with suppress(OSError), closing(context.wrap_socket(peer, server_side=True) if context else peer) as line:
            reader = hiredis.Reader()
            while data := line.recv(65536):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    told.append(command)
                    line.sendall(answer(command))
        peer.close()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], told
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def redirecting(port: Callable[[], int], elsewhere: str) -> Answer:
    """A server that owns all slots of a Cluster, and sends everybody who asks for a key elsewhere."""

    def answer(command: list[bytes]) -> bytes:
        word = command[0].upper()
        if word == b"CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port()
        if word == b"PUBSUB":
            return b"*0\r\n"
        if word in {b"AUTH", b"PING"}:
            return b"+OK\r\n"
        return b"-MOVED 1 %b\r\n" % elsewhere.encode()

    return answer


def server_side(ca: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(context)
    return context


def attempts(url: str) -> None:
    async def there() -> None:
        await aio.Lock(url, "x", wait=0).acquire()
        await aio.close()

    with pytest.raises(holdfast.ServerError):
        holdfast.Lock(url, "x", wait=0).acquire()
    with pytest.raises(holdfast.ServerError):
        asyncio.run(there())


def test_tls_to_a_host_that_cannot_prove_its_name(tmp_path: Path) -> None:
    ca = trustme.CA()
    trusted = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(trusted))
    with ExitStack() as stack:
        other, heard = stack.enter_context(fake(lambda _: b"+OK\r\n", server_side(ca, "other.example")))
        ports: list[int] = []
        answer = redirecting(lambda: ports[0], f"localhost:{other}")
        port, told = stack.enter_context(fake(answer, server_side(ca, "127.0.0.1")))
        ports.append(port)
        attempts(f"rediss+cluster://:secret@127.0.0.1:{port}?ssl_ca_certs={trusted}&socket_timeout=2")
        assert [b"AUTH", b"secret"] in told, "the one that was asked for has proved its name"
        assert heard == [], "not even the password"


def test_outside_of_a_cluster_nobody_is_sent_elsewhere() -> None:
    with ExitStack() as stack:
        other, heard = stack.enter_context(fake(lambda _: b"+OK\r\n"))
        port, _ = stack.enter_context(fake(redirecting(lambda: 0, f"127.0.0.1:{other}")))
        attempts(f"redis://:secret@127.0.0.1:{port}")
        assert heard == []
