"""Scripted sockets, with the faults that a network can cause in a stream of bytes.

As in TCP, bytes arrive in order and unchanged, but perhaps late or in pieces. A write may accept only a part of the data. A
connection may end at any byte of a request or reply.
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
    from holdfast_lab.wired.server import Server
    from holdfast_lab.wired.world import World


NETWORK = "network"
"""Title of the network's column in a drawing."""


@dataclass(slots=True)
class Network:
    """The network of a history, with the probability of each fault. A piece of data is the bytes of one write."""

    world: World = field(repr=False)
    rng: random.Random = field(repr=False)
    delay: float
    """Mean time in seconds that data takes from one end of a connection to the other."""
    slow: float = 0.0
    """Probability that a piece of data takes up to half a second longer."""
    late: float = 0.0
    """Probability that a piece of data takes 0.3 to 3 seconds longer. Often, the client does not wait for so long."""
    cut_request: float = 0.0
    """Probability that the connection is cut after a part of a request has arrived."""
    cut_reply: float = 0.0
    silent: float = 0.0
    """Probability that a piece of data, and all later data in its direction, never arrives. Neither end notices this."""
    split: float = 0.0
    """Probability that a piece of data arrives in two parts."""
    full: float = 0.0
    """Probability that the client's kernel accepts only a part of a write, and nothing more for up to two seconds."""
    refused: float = 0.0
    """Probability that a new connection is refused."""
    closed: float = 0.0
    """Probability that the server closes a new connection as soon as it is open."""
    room: float = 0.05
    """Once the kernel accepts bytes again, a client must send the rest of a request within this many seconds."""
    counts: Counter[str] = field(default_factory=Counter, repr=False)
    partly_written: set[Socket] = field(default_factory=set, init=False, repr=False)
    """Connections whose client has not sent the rest of a write yet."""

    def happens(self, fault: str) -> bool:
        """Draw whether this fault happens now, and count it if so."""
        probability: float = getattr(self, fault)
        happens = probability > 0 and self.rng.random() < probability
        if happens:
            self.counts[f"wired {fault}"] += 1
            self.world.note("fault", NETWORK, note=fault)
        return happens

    def heal(self) -> None:
        self.delay = 0.001
        self.slow = self.late = self.cut_request = self.cut_reply = self.silent = self.split = self.full = self.refused = 0.0
        self.closed = 0.0

    def way(self) -> float:
        """Draw the seconds that a piece of data takes from one end of a connection to the other."""
        seconds = self.rng.expovariate(1 / self.delay)
        if self.happens("slow"):
            seconds += self.rng.uniform(0, 0.5)
        if self.happens("late"):
            seconds += self.rng.uniform(0.3, 3)
        return seconds


class Way:
    """One direction of a connection, which delays, splits, cuts or drops the bytes sent."""

    def __init__(self, world: World, network: Network, cut: str, arrive: Callable[[bytes], None], ended: Callable[[], None]):
        self._world, self._network, self._cut = world, network, cut
        self._arrive, self._ended = arrive, ended
        self._free_at = 0.0
        """Virtual time at which all bytes sent so far have arrived. Later bytes must not overtake them."""
        self.over = False
        """True if bytes that are sent from now on never arrive."""

    def send(self, data: bytes) -> None:
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
        """End the connection. The other end notices this after all bytes sent before have arrived."""
        if not self.over:
            self.over = True
            self._deliver(self._ended)

    def _deliver(self, what: Callable[[], None]) -> None:
        self._free_at = max(self._free_at, self._world.now + self._network.way())
        self._world.at(self._free_at, what)


FIRST = 1_000_000
"""File descriptor of the first scripted socket, larger than that of any real file."""

SHOWN = 100
"""Maximum number of bytes that a trace shows of a request or reply."""


class Scripted(socket.socket):
    """The base class of scripted sockets: a `socket.socket` that opens no real socket."""

    type = socket.SOCK_STREAM
    family = socket.AF_UNIX

    def __init__(self, number: int) -> None:  # without super(), which would open a real socket
        self._number = number
        self.arrived = bytearray()
        self.ended = False
        """True if no more bytes will arrive, because the connection has ended."""

    def fileno(self) -> int:
        return self._number

    @property
    def readable(self) -> bool:
        """True if there are bytes to read, or the connection has ended."""
        return bool(self.arrived) or self.ended

    @property
    def writable(self) -> bool:
        """True if the socket accepts bytes to send."""
        return True

    def _read(self, size: int, flags: int = 0) -> bytes:
        data = bytes(self.arrived[:size])
        if not flags & socket.MSG_PEEK:
            del self.arrived[:size]
        return data

    def setblocking(self, flag: bool) -> None:
        pass


class Poke(Scripted):
    """One end of a pipe by which a thread wakes another thread without delay."""

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
    """Return the two ends of a pipe, as ``socket.socketpair()`` does."""
    one, other = Poke(number), Poke(number + 1)
    one.other, other.other = other, one
    return one, other


class Socket(Scripted):
    """The client's end of a connection to the server."""

    def __init__(self, number: int, world: World, network: Network, server: Server) -> None:
        super().__init__(number)
        self._world, self._network = world, network
        self._name = f"#{self._number - FIRST}"
        self._patience: float | None = None
        """Longest time in seconds for which a read blocks; None: without limit."""
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
        """Close the server's end. The client notices this after all bytes sent before have arrived."""
        self._down.end()

    def _broken(self) -> None:
        """Drop the connection at the server, because the client has closed it or a fault has cut it."""
        self._peer.leave()
        self._down.end()

    def close_at_once(self) -> None:
        """Let the server close the connection before any data was sent."""
        self._peer.leave()
        self._hang_up()

    def reset(self) -> None:
        """End the connection for both ends at once, as if a device on the way had reset it."""
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
        # A socket that never blocks lets no other thread run: its caller may hold a mutex.
        if not (self._world.wait(lambda: self.readable, patience) if patience else self.readable):
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
        """Complain if the client has not sent the rest of a request soon after the kernel accepts bytes again."""
        if not self.ended and self._world.now >= self._full_until + self._network.room:
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
    """The keys of a selector, by the socket or its file descriptor."""

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj if isinstance(fileobj, int) else fileobj.fileno()]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Selector(selectors.BaseSelector):
    """A selector of scripted sockets. It never reports real sockets, such as asyncio's own pipe, as ready."""

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
        """Return the keys of the sockets that are ready now, each with its events."""
        found = []
        for key in self._keys.values():
            sock = self._sockets.get(key.fd)
            if sock is not None:
                events = selectors.EVENT_READ * sock.readable | selectors.EVENT_WRITE * sock.writable
                if events & key.events:
                    found.append((key, events & key.events))
        return found

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise NotImplementedError("the simulated keeper never waits in its selector: call `ready` instead")

    def close(self) -> None:
        self._keys.clear()
