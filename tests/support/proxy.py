"""A TCP proxy that loses, cuts, holds and repeats exactly the requests and replies it is told to.

It stands between a client and the unix socket of a server, reads the protocol of both sides, and knows the requests of
holdfast by name (see `name_of`). A `Rule` says which ones it is to harm, and how:

lose        the server does it, but neither this reply nor any later one comes through; the connection stays
cut         the server does it, then the connection is closed instead of a reply
refuse      the connection is closed, the server never sees it
hold        it is kept back until ``rule.go()``, and then delivered even if the client is gone: a late request
stall       the server does it, the reply is kept back until ``rule.go()``
twice       the server gets it twice, the client hears the first reply

Messages of a subscription are requests named "message" here: lose (that one alone), cut and stall apply to them.
Besides, everything may be slow: `Proxy.delay`.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from holdfast._core.lock.replies import ACQUIRE, REFRESH, RELEASE, RENEW
from holdfast._core.lock.ticket import EXCHANGE_TOKEN
from holdfast._core.quorum.votes import CONFIRM, RELEASE_VOTE, VOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import PrivateServer

Action = Literal["pass", "lose", "cut", "refuse", "hold", "stall", "twice"]

_KNOWN = (ACQUIRE, REFRESH, RELEASE, RENEW, EXCHANGE_TOKEN, VOTE, CONFIRM, RELEASE_VOTE)
_SCRIPTS = {key: script.name.rpartition("/")[2] for script in _KNOWN for key in (script.sha.encode(), script.body)}

SCRIPTS = frozenset({"acquire", "join", "refresh", "release", "leave", "bury", "renew", "vote", "confirm"})
"""The requests of a lock, as opposed to the commands that keep connections."""


class Request(NamedTuple):
    name: str
    link: int
    """Number of the connection it came on."""
    packed: bytes


def name_of(parts: list[bytes]) -> str:
    """The script, or the command. Acquire from the queue is "join"; the release of a lock, or of a vote, is
    "release", "leave" or "bury" by its mode."""
    command = parts[0].decode().upper()
    if command not in {"EVAL", "EVALSHA"}:
        return command
    name = _SCRIPTS.get(parts[1], "other")
    args = _arguments(parts)
    if name == "acquire" and args[2] == b"1":
        return "join"
    return args[1].decode() if name in {"release", "release_vote"} else name


def _arguments(parts: list[bytes]) -> list[bytes]:
    return parts[3 + int(parts[2]) :]


def arguments(packed: bytes) -> list[bytes]:
    """Those of a script, of a request as it was sent."""
    return _arguments(_parts(packed))


class Rule:
    """The faults for chosen requests, and the fate of these requests."""

    def __init__(self, names: frozenset[str], action: Action, skip: int, times: int) -> None:
        self.names = names
        self.action = action
        self.skip = skip
        self.left = times
        self.seen = threading.Event()
        """The request was read by the proxy."""
        self.done = threading.Event()
        """The server has answered it (or the message was read), and the harm is done."""
        self.requests: list[Request] = []
        self._local_queue = threading.Event()

    def takes(self, request: Request) -> bool:
        """Whether this one is to be harmed. The proxy's mutex is held."""
        if request.name not in self.names or not self.left:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        self.requests.append(request)
        return True

    def go(self) -> None:
        """Let go of what is held, and harm nothing any more."""
        self.left = 0
        self._local_queue.set()

    def wait_for_go(self) -> None:
        self._local_queue.wait()


class _Buffer:
    """Bytes from a socket, cut into whole protocol values."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = b""

    def values(self) -> Iterator[bytes]:
        """Each value as it was sent; ends with the connection."""
        while True:
            end = _end(self._data, 0)
            while end is None:
                try:
                    data = self._sock.recv(1 << 16)
                except OSError:
                    return
                if not data:
                    return
                self._data += data
                end = _end(self._data, 0)
            value, self._data = self._data[:end], self._data[end:]
            yield value


def _end(data: bytes, at: int) -> int | None:
    """Return the end of the protocol value that starts at ``at``; None if it has not arrived completely."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    kind, end = data[at : at + 1], line + 2
    if kind in b"$*>%~" and kind:
        number = int(data[at + 1 : line])
        if kind == b"$":
            end += number + 2 if number >= 0 else 0
            return end if end <= len(data) else None
        for _ in range(number * (2 if kind == b"%" else 1)):
            inner = _end(data, end)
            if inner is None:
                return None
            end = inner
    return end


def _parts(packed: bytes) -> list[bytes]:
    """The words of a request."""
    words, at = [], packed.index(b"\r\n") + 2
    while at < len(packed):
        line = packed.index(b"\r\n", at)
        size = int(packed[at + 1 : line])
        words.append(packed[line + 2 : line + 2 + size])
        at = line + 4 + size
    return words


def _shut(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        sock.shutdown(how)


class _Link:
    """One connection through the proxy: a thread for each direction."""

    def __init__(self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.number, self.client, self.server = proxy, number, client, server
        self._fates: deque[tuple[Rule | None, Action]] = deque()
        self._deaf = False
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._requests, self._replies)]
        for thread in self.threads:
            thread.start()

    def cut(self) -> None:
        _shut(self.client)
        _shut(self.server)

    def _requests(self) -> None:
        for packed in _Buffer(self.client).values():
            self.proxy.linger()
            request = Request(name_of(_parts(packed)), self.number, packed)
            rule = self.proxy.rule_for(request)
            action: Action = rule.action if rule else "pass"
            if rule:
                rule.seen.set()
            if rule and action == "refuse":
                self.cut()
                rule.done.set()
                return
            if rule and action == "hold":
                rule.wait_for_go()
            self._fates.append((rule, action))
            if action == "twice":
                self._fates.append((rule, "lose"))
            with suppress(OSError):
                self.server.sendall(packed * (2 if action == "twice" else 1))
        _shut(self.server, socket.SHUT_WR)  # what the server still owes is read to its end

    def _replies(self) -> None:
        for packed in _Buffer(self.server).values():
            self.proxy.linger()
            if packed.startswith(b"*3\r\n$7\r\nmessage\r\n"):
                rule = self.proxy.rule_for(Request("message", self.number, packed))
                action: Action = rule.action if rule else "pass"
                if rule:
                    rule.seen.set()
            else:
                rule, action = self._fates.popleft() if self._fates else (None, "pass")
                # Data after a lost reply is lost too: a stream has no holes.
                self._deaf = self._deaf or (action == "lose" and rule is not None and rule.action == "lose")
            if rule and action == "stall":
                rule.done.set()
                rule.wait_for_go()
            if action == "cut":
                self.cut()
            elif action != "lose" and not self._deaf:
                with suppress(OSError):
                    self.client.sendall(self.proxy.amend(packed))
            if rule:
                rule.done.set()
        _shut(self.client)


class Proxy:
    """Use it in a ``with``. ``url`` is where clients find it; ``log`` is every request and message that came by."""

    def __init__(self, server: PrivateServer) -> None:
        self._target = server.socket
        self._mutex = threading.Lock()
        self._rules: list[Rule] = []
        self._links: list[_Link] = []
        self._refusing = False
        self._numbers = itertools.count()
        self.thawed = threading.Event()
        self.thawed.set()
        self.delay: Callable[[], float] | None = None
        """Called for each request, reply and message: for how many seconds it is kept back, and all behind it."""
        self.log: list[Request] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thawed.set()
        with self._mutex:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.go()
        _shut(self._listener)
        self._listener.close()
        self._thread.join()
        self.cut()
        for link in self._links:
            for thread in link.threads:
                thread.join()
            link.client.close()
            link.server.close()

    def on(self, *names: str, action: Action, skip: int = 0, times: int = 1) -> Rule:
        """Harm ``times`` of the requests so named (default: any script), after ``skip`` of them have passed."""
        rule = Rule(frozenset(names) or SCRIPTS, action, skip, times)
        with self._mutex:
            self._rules.append(rule)
        return rule

    def names(self, *only: str) -> list[str]:
        """Names of the requests that came by (default: scripts)."""
        wanted = frozenset(only) or SCRIPTS
        with self._mutex:
            return [request.name for request in self.log if request.name in wanted]

    def replay(self, request: Request) -> None:
        """Deliver a request that came by once more, late, and return when the server has done it."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(self._target)
            sock.sendall(request.packed)
            assert next(_Buffer(sock).values(), b"")[:1] not in {b"", b"-"}

    def cut(self) -> None:
        """Close all connections. New ones are accepted."""
        with self._mutex:
            links = list(self._links)
        for link in links:
            link.cut()

    def drop_client(self, number: int) -> None:
        """Close the client's side of a connection; what is held of it is delivered all the same."""
        _shut(next(link for link in self._links if link.number == number).client)

    def down(self) -> None:
        """As if the server were away: connections are closed, new ones at once too."""
        with self._mutex:
            self._refusing = True
        self.cut()

    def up(self) -> None:
        self._refusing = False

    def freeze(self) -> None:
        """As if the other side had vanished: connections stay open, also new ones, and nothing comes through."""
        self.thawed.clear()

    def thaw(self) -> None:
        self.thawed.set()

    def linger(self) -> None:
        """Something is on its way: for as long as it takes."""
        self.thawed.wait()
        if self.delay is not None:
            time.sleep(self.delay())

    def rule_for(self, request: Request) -> Rule | None:
        with self._mutex:
            self.log.append(request)
            return next((rule for rule in self._rules if rule.takes(request)), None)

    def amend(self, packed: bytes) -> bytes:
        """Return the data that the client gets instead of a reply; for subclasses."""
        return packed

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            with self._mutex:
                try:
                    if self._refusing:
                        raise ConnectionRefusedError
                    server.connect(self._target)
                except OSError:
                    client.close()
                    server.close()
                    continue
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._links.append(_Link(self, next(self._numbers), client, server))
