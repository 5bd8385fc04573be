"""A TCP proxy that knows nothing of the protocol: bytes are late, lost, or arrive in part, and connections break.

`support.proxy` is for faults of single requests and replies; this proxy hits whatever is under way.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self


class _Link:
    """One connection through the proxy."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.heard: int | None = None
        """Bytes that its client still gets to hear; None: all."""

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class Middle:
    """In front of a server's unix socket. Use it in a ``with``; ``url`` is where clients find it.

    Each of `slow`, `frozen` and `deaf` is a fault for as long as its ``with`` lasts.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._links: set[_Link] = set()
        self._delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="middle", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break all connections."""
        self._do(self._cut)

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Maximum seconds by which data is delayed, each way."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    @contextmanager
    def frozen(self, late: bool) -> Iterator[None]:
        """Connections stay open, new ones too, and nothing comes through. Afterwards it does, ``late``; or they break."""
        self._do(self._thawed.clear)
        try:
            yield
        finally:
            if not late:
                self.cut()
            self._do(self._thawed.set)

    @contextmanager
    def deaf(self, rng: random.Random) -> Iterator[None]:
        """The server hears all; of its replies a few bytes come through on each connection, and then none any more."""

        def deafen() -> None:
            for link in self._links:
                link.heard = rng.randrange(64)

        self._do(deafen)
        try:
            yield
        finally:
            self.cut()

    def _cut(self) -> None:
        for link in self._links:
            link.cut()

    def _do(self, what: Callable[[], object]) -> None:
        """Have it done in the loop; returns when it is."""

        async def done() -> None:
            what()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(5)

    async def _listen(self) -> asyncio.Server:
        self._thawed = asyncio.Event()
        self._thawed.set()
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._thawed.set()
        self._server.close()
        for link in list(self._links):
            link.cut()
        while self._links:
            await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            their_reader, their_writer = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link((writer, their_writer))
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, reader, their_writer, replies=False), self._pump(link, their_reader, writer, replies=True)
            )
        finally:
            self._links.discard(link)

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._delay:
                    await asyncio.sleep(random.uniform(0, self._delay))
                await self._thawed.wait()
                if replies and link.heard is not None:
                    data = data[: link.heard]
                    link.heard -= len(data)
                writer.write(data)
        link.cut()  # one side has gone: nothing here is worth half a connection
