"""Scripted sockets, in place of the kernel's, with everything that a network may do to a stream of bytes.

A stream keeps its order and never changes a byte, as TCP; but it is late, arrives in pieces, takes only a part of what is
written, and ends anywhere, within a request or within a reply.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.wired.server import Server
    from holdfast.testing.wired.world import World


NETWORK = "network"
"""Title of the network's lane in the drawing of a history."""


@dataclass(slots=True)
class Network:
    """The faults of the network, each with its probability for each piece that is sent. Counts the faults that happened."""

    world: World = field(repr=False)
    rng: random.Random = field(repr=False)
    delay: float
    """Mean seconds of each way."""
    slow: float = 0.0
    """It takes up to half a second longer."""
    late: float = 0.0
    """It takes up to three seconds longer: more than anybody waits for an answer."""
    cut_request: float = 0.0
    """A part of it arrives, then the connection is gone."""
    cut_reply: float = 0.0
    silent: float = 0.0
    """It never arrives, nor does anything behind it, and nobody is told."""
    split: float = 0.0
    """It arrives in pieces, one after the other."""
    full: float = 0.0
    """The kernel takes a part of what is written, and no more for up to two seconds."""
    refused: float = 0.0
    """A connection is refused."""
    closed: float = 0.0
    """The server closes a connection as soon as it is open."""
    counts: Counter[str] = field(default_factory=Counter, repr=False)
    partly_written: set[Socket] = field(default_factory=set, init=False, repr=False)
    """Connections of which the kernel has taken a part of what was written, and nothing since."""

    def happens(self, fault: str) -> bool:
        """Draw whether a fault happens now, and count it if so."""
        probability: float = getattr(self, fault)
        happens = probability > 0 and self.rng.random() < probability
        if happens:
            self.counts[f"wired {fault}"] += 1
            self.world.note("fault", NETWORK, note=fault)
        return happens

    def heal(self) -> None:
        """End all faults: from now on nothing goes wrong, and nothing takes long."""
        self.delay = 0.001
        self.slow = self.late = self.cut_request = self.cut_reply = self.silent = self.split = self.full = self.refused = 0.0
        self.closed = 0.0

    def way(self) -> float:
        """Draw the seconds that something takes on its way."""
        seconds = self.rng.expovariate(1 / self.delay)
        if self.happens("slow"):
            seconds += self.rng.uniform(0, 0.5)
        if self.happens("late"):
            seconds += self.rng.uniform(0.3, 3)
        return seconds


class Way:
    """One direction of a connection."""

    def __init__(self, world: World, network: Network, cut: str, arrive: Callable[[bytes], None], ended: Callable[[], None]):
        self._world, self._network, self._cut = world, network, cut
        self._arrive, self._ended = arrive, ended
        self._free_at = 0.0
        """True time at which all that was sent before has arrived: nothing overtakes it."""
        self.over = False
        """True if nothing that is sent from now on arrives."""

    def send(self, data: bytes) -> None:
        """Send bytes: they arrive some time later, as far as no fault stops them."""
        network = self._network
        if self.over or not data:
            return
        if network.happens("silent"):
            self.over = True
            return
        cut = network.happens(self._cut)
        if cut:
            data = data[: network.rng.randrange(len(data))]
        parts = [data]
        if len(data) > 1 and network.happens("split"):
            at = network.rng.randrange(1, len(data))
            parts = [data[:at], data[at:]]
        for part in parts:
            self._deliver(lambda part=part: self._arrive(part))  # type: ignore[misc]
        if cut:
            self.end()

    def end(self) -> None:
        """Tell the other side that the connection has ended, after all that was sent before."""
        if not self.over:
            self.over = True
            self._deliver(self._ended)

    def _deliver(self, what: Callable[[], None]) -> None:
        self._free_at = max(self._free_at, self._world.now + self._network.way())
        self._world.at(self._free_at, what)


FIRST = 1_000_000
"""Number of the first socket of a history: far above those of real files."""

ROOM = 0.05
"""Seconds within which the rest of a request follows when the kernel takes bytes again."""

SHOWN = 100
"""Bytes of a request or reply that a trace shows, at most."""


class Scripted(socket.socket):
    """A socket by its type alone: nothing of the real one is ever used."""

    type = socket.SOCK_STREAM
    family = socket.AF_UNIX

    def __init__(self, number: int) -> None:  # not the one of socket.socket, which would open a real one
        self._number = number
        self.arrived = bytearray()
        self.ended = False
        """True if nothing more will arrive."""

    def fileno(self) -> int:
        return self._number

    @property
    def readable(self) -> bool:
        """True if there is something to read, or nothing more will come."""
        return bool(self.arrived) or self.ended

    @property
    def writable(self) -> bool:
        """True if it takes bytes."""
        return True

    def _read(self, size: int, flags: int = 0) -> bytes:
        data = bytes(self.arrived[:size])
        if not flags & socket.MSG_PEEK:
            del self.arrived[:size]
        return data

    def setblocking(self, flag: bool) -> None:
        pass


class Poke(Scripted):
    """One end of a pipe by which a thread wakes another at once."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.other = self

    def send(self, data: Any, *_: Any) -> int:
        self.other.arrived += data
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.readable:
            raise BlockingIOError
        return self._read(size, flags)

    def close(self) -> None:
        self.other.ended = True


def pipe(number: int) -> tuple[Poke, Poke]:
    """Return a pair of ends, as ``socket.socketpair()`` does. They have this number and the next."""
    one, other = Poke(number), Poke(number + 1)
    one.other, other.other = other, one
    return one, other


class Socket(Scripted):
    """The client's end of a connection."""

    def __init__(self, number: int, world: World, network: Network, server: Server) -> None:
        super().__init__(number)
        self._world, self._network = world, network
        self._name = f"#{self._number - FIRST}"
        self._patience: float | None = None
        """Seconds for which reading blocks; None: for ever."""
        self._full_until = 0.0
        self._complain = server.complain
        self._down = Way(world, network, "cut_reply", self._come, self._end)
        peer = server.accept(self._down.send, self._hang_up)
        self._up = Way(world, network, "cut_request", peer.receive, self._broken)
        self._peer = peer

    # The side of the kernel

    def _come(self, data: bytes) -> None:
        if self._number >= 0:
            self._trace("answered", data)
            self.arrived += data

    def _end(self) -> None:
        self.ended = True
        self._up.over = True

    def _hang_up(self) -> None:
        """Close the connection at the server's end."""
        self._down.end()

    def _broken(self) -> None:
        """Cut the connection: both sides are told."""
        self._peer.leave()
        self._down.end()

    def close_at_once(self) -> None:
        """Have the server close it before anything was sent."""
        self._peer.leave()
        self._hang_up()

    def reset(self) -> None:
        """End the connection for both sides at once, as if a device between them had dropped it."""
        self._peer.leave()
        self._end()

    def _trace(self, kind: str, data: bytes) -> None:
        if self._world.trace and data:
            said = data if len(data) < SHOWN else data[: SHOWN // 2] + b"..." + data[-SHOWN // 2 :]
            self._world.note(kind, NETWORK, note=f"{self._name} {said!r}")

    # The side of the client

    @property
    def writable(self) -> bool:
        return self._world.now >= self._full_until

    def setblocking(self, flag: bool) -> None:
        self._patience = None if flag else 0.0

    def settimeout(self, value: float | None) -> None:
        self._patience = value

    def setsockopt(self, *args: Any) -> None:
        _, option, value = args
        if option == socket.SO_RCVTIMEO:
            whole, parts = struct.unpack("ll", value)
            self._patience = whole + parts / 1e6

    def recv(self, size: int, flags: int = 0) -> bytes:
        patience = float("inf") if self._patience is None else self._patience
        if not self._world.wait(lambda: self.readable, patience):
            raise BlockingIOError
        return self._read(size, flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        data = self.recv(nbytes or len(buffer), flags)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def sendall(self, data: Any, *_: Any) -> None:
        self._trace("sent", data)
        self._up.send(bytes(data))

    def send(self, data: Any, *_: Any) -> int:
        if self.ended:
            raise BrokenPipeError("Broken pipe")
        if not self.writable:
            raise BlockingIOError
        data = bytes(data)
        self._network.partly_written.discard(self)
        if data and self._network.happens("full"):
            data = data[: self._network.rng.randrange(len(data))]
            self._full_until = self._world.now + self._network.rng.uniform(0, 2)
            self._world.at(self._full_until)
            self._network.partly_written.add(self)
        self._trace("sent", data)
        self._up.send(data)
        return len(data)

    def look_for_the_rest(self) -> None:
        """Complain if the rest of a request should have been written by now."""
        if not self.ended and self._world.now >= self._full_until + ROOM:
            self._complain("the rest of a request is not sent, although there is room for it")

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        return self.send(b"".join(buffers))

    def shutdown(self, *_: Any) -> None:
        self._end()

    def getpeername(self) -> str:
        return "scripted"

    def getsockname(self) -> str:
        return "scripted"

    def close(self) -> None:
        if self._number >= 0:
            self._number = -1
            self._network.partly_written.discard(self)
            self._up.end()


class _Watched(Mapping[Any, selectors.SelectorKey]):
    """The result of ``get_map()``: keys are looked up by the socket or by its number."""

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Selector(selectors.BaseSelector):
    """Watches scripted sockets. Of real ones (asyncio's own pipe), nothing is ever ready."""

    def __init__(self, sockets: Mapping[int, Scripted]) -> None:
        self._sockets = sockets
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if number in self._keys:
            raise KeyError(fileobj)
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(self.get_map()[fileobj].fd)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return _Watched(self._keys)

    def ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the keys that are ready now, with their events."""
        found = []
        for key in self._keys.values():
            sock = self._sockets.get(key.fd)
            if sock is not None:
                events = selectors.EVENT_READ * sock.readable | selectors.EVENT_WRITE * sock.writable
                if events & key.events:
                    found.append((key, events & key.events))
        return found

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise NotImplementedError("a keeper is stepped, and waits for nothing")

    def close(self) -> None:
        self._keys.clear()
