"""One connection to a server in memory. It parses commands and encodes replies, in RESP2 or RESP3, without sockets.

Commands about the connection itself, such as HELLO, CLIENT, MULTI, WATCH and SUBSCRIBE, are executed here. All other
commands are passed to the server.

Sources: redis.io "Redis serialization protocol specification", "Transactions", "Redis Pub/Sub".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import hiredis

from holdfast.testing.keyspace import ReplyError, Status

OK = Status(b"OK")

_SUBSCRIBED = {b"SUBSCRIBE", b"UNSUBSCRIBE", b"PING", b"QUIT", b"RESET"}
"""Commands that a subscribed RESP2 connection may send. The reply to any other command could be mistaken for a message."""

_numbers = itertools.count(1)


class PushMessage(list[Any]):
    """A message that a RESP3 connection receives without a request."""


class Double(bytes):
    """A reply that is a floating-point number; RESP2 encodes it as a string."""


class NullArray:
    """The reply "no array", in RESP2 ``*-1``. It differs from the reply "no string"."""


def encode(reply: Any, protocol: int) -> bytes:  # noqa: PLR0911 - a table of types
    match reply:
        case Status():
            return b"+%b\r\n" % reply
        case Double() if protocol == 3:
            return b",%b\r\n" % reply
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case None:
            return b"_\r\n" if protocol == 3 else b"$-1\r\n"
        case ReplyError():
            return b"-%b\r\n" % str(reply).encode()
        case NullArray():
            return b"_\r\n" if protocol == 3 else b"*-1\r\n"
        case dict():
            flat = [part for pair in reply.items() for part in pair]
            return _aggregate(b"%", len(reply), flat, 3) if protocol == 3 else _aggregate(b"*", len(flat), flat, 2)
        case set():
            return _aggregate(b"~" if protocol == 3 else b"*", len(reply), reply, protocol)
        case _:
            return _aggregate(b">" if protocol == 3 and isinstance(reply, PushMessage) else b"*", len(reply), reply, protocol)


def _aggregate(mark: bytes, size: int, parts: Iterable[Any], protocol: int) -> bytes:
    return b"%b%d\r\n%b" % (mark, size, b"".join(encode(part, protocol) for part in parts))


def shaped(name: bytes, args: list[bytes], reply: Any) -> Any:
    """Convert a reply from RESP2 types to RESP3 types. For example, the reply to HGETALL becomes a dict."""
    if isinstance(reply, list):
        if name == b"HGETALL":
            return dict(zip(reply[::2], reply[1::2], strict=True))
        if name == b"SMEMBERS":
            return set(reply)
        if b"WITHSCORES" in [arg.upper() for arg in args] or (name == b"ZPOPMIN" and len(args) == 2):
            return [[member, Double(score)] for member, score in zip(reply[::2], reply[1::2], strict=True)]
        if name == b"ZPOPMIN":
            return [part if i % 2 == 0 else Double(part) for i, part in enumerate(reply)]
    if name == b"ZSCORE" and isinstance(reply, bytes):
        return Double(reply)
    return reply


class Backend(Protocol):
    """The part of a server in memory that its connections use."""

    def execute(self, args: list[bytes]) -> Any:
        """Execute a command at the server's present time, deliver the messages that it publishes, and return its reply."""

    def version(self, key: bytes) -> int:
        """Return the version number of a key. It is different after each change of the key."""

    def listen(self, session: Session, channel: bytes, by: int) -> None:
        """Subscribe the connection of a session to a channel if ``by`` is 1, or unsubscribe it if ``by`` is -1."""


class Session:
    """The state of one client connection: its protocol version, name, subscriptions and transaction."""

    protocol: int
    leaving: bool

    def __init__(self, server: Backend) -> None:
        self._server = server
        self._reader = hiredis.Reader()  # a request has the form of a reply that is an array of strings
        self._id = next(_numbers)
        self._name = b""
        self.protocol = 2
        self.channels: list[bytes] = []
        self._queued: list[list[bytes]] | None = None
        """Commands queued since MULTI; None outside a transaction."""
        self._broken = False
        """True if a command since MULTI was refused. EXEC then executes none of the commands."""
        self._watched: dict[bytes, int] = {}
        """Version numbers of the watched keys at the time of WATCH."""
        self.leaving = False
        self._own: dict[bytes, Callable[[list[bytes]], list[Any]]] = {
            b"HELLO": self._hello,
            b"CLIENT": self._client,
            b"SUBSCRIBE": self._subscribe,
            b"UNSUBSCRIBE": self._unsubscribe,
            b"MULTI": self._multi,
            b"EXEC": self._exec,
            b"DISCARD": self._discard,
            b"WATCH": self._watch,
            b"UNWATCH": self._unwatch,
            b"QUIT": self._quit,
        }

    def requests(self, data: bytes) -> Iterable[list[bytes]]:
        """Parse received bytes, and yield the complete commands. Raises hiredis.ProtocolError."""
        self._reader.feed(data)
        while (request := self._reader.gets()) is not False:
            if not isinstance(request, list) or not request or not all(isinstance(part, bytes) for part in request):
                raise hiredis.ProtocolError("a request must be an array of strings")
            yield request

    def handle(self, request: list[bytes]) -> list[Any]:
        """Handle one command, and return its replies: one, or for SUBSCRIBE and UNSUBSCRIBE one per channel."""
        name, args = request[0].upper(), request[1:]
        if self.channels and self.protocol == 2 and name not in _SUBSCRIBED:
            return [
                _error(f"Can't execute '{_text(name).lower()}': only (P)SUBSCRIBE / PING / QUIT are allowed in this context")
            ]
        if name == b"PING" and self.channels and self.protocol == 2:
            return [[b"pong", args[0] if args else b""]]
        if self._queued is not None and name not in {b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"QUIT"}:
            self._queued.append(request)
            return [Status(b"QUEUED")]
        own = self._own.get(name)
        return own(args) if own is not None else [self._execute(request)]

    def _execute(self, request: list[bytes]) -> Any:
        reply = self._server.execute(request)
        return shaped(request[0].upper(), request[1:], reply) if self.protocol == 3 else reply

    # The connection

    def _hello(self, args: list[bytes]) -> list[Any]:
        if args:
            if args[0] not in {b"2", b"3"}:
                return [ReplyError("NOPROTO unsupported protocol version")]
            self.protocol = int(args[0])
        return [
            {
                b"server": b"redis",
                b"version": b"7.0.0",
                b"proto": self.protocol,
                b"id": self._id,
                b"mode": b"standalone",
                b"role": b"master",
                b"modules": [],
            }
        ]

    def _client(self, args: list[bytes]) -> list[Any]:
        match [args[0].upper(), *args[1:]] if args else []:
            case [b"ID"]:
                return [self._id]
            case [b"GETNAME"]:
                return [self._name or None]
            case [b"SETNAME", name]:
                self._name = name
                return [OK]
            case [b"SETINFO", _, _] | [b"NO-EVICT" | b"NO-TOUCH", _]:
                return [OK]
        return [_error(f"unknown subcommand of CLIENT: {_text(b' '.join(args[:1]))}")]

    def _quit(self, _args: list[bytes]) -> list[Any]:
        self.leaving = True
        return [OK]

    # Messages

    def _subscribe(self, channels: list[bytes]) -> list[Any]:
        if not channels:
            return [_arity("subscribe")]
        answers = []
        for channel in channels:
            if channel not in self.channels:
                self.channels.append(channel)
                self._server.listen(self, channel, 1)
            answers.append(PushMessage([b"subscribe", channel, len(self.channels)]))
        return answers

    def _unsubscribe(self, channels: list[bytes]) -> list[Any]:
        answers = []
        nothing: list[bytes | None] = [None]
        for channel in channels or list(self.channels) or nothing:
            if channel is not None and channel in self.channels:
                self.channels.remove(channel)
                self._server.listen(self, channel, -1)
            answers.append(PushMessage([b"unsubscribe", channel, len(self.channels)]))
        return answers

    def close(self) -> None:
        """End the subscriptions of a closed connection."""
        self._unsubscribe([])

    # Transactions

    def _multi(self, _args: list[bytes]) -> list[Any]:
        if self._queued is not None:
            self._broken = True
            return [_error("MULTI calls can not be nested")]
        self._queued, self._broken = [], False
        return [OK]

    def _exec(self, _args: list[bytes]) -> list[Any]:
        if self._queued is None:
            return [_error("EXEC without MULTI")]
        queued, watched = self._queued, self._watched
        self._discard([])
        if self._broken:
            return [ReplyError("EXECABORT Transaction discarded because of previous errors.")]
        if any(self._server.version(key) != before for key, before in watched.items()):
            return [NullArray()]
        return [[reply for request in queued for reply in self.handle(request)]]

    def _discard(self, _args: list[bytes]) -> list[Any]:
        if self._queued is None:
            return [_error("DISCARD without MULTI")]
        self._queued, self._watched = None, {}
        return [OK]

    def _watch(self, keys: list[bytes]) -> list[Any]:
        if self._queued is not None:
            self._broken = True
            return [_error("WATCH inside MULTI is not allowed")]
        if not keys:
            return [_arity("watch")]
        for key in keys:
            self._watched.setdefault(key, self._server.version(key))
        return [OK]

    def _unwatch(self, _args: list[bytes]) -> list[Any]:
        self._watched = {}
        return [OK]


def _text(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace")


def _error(message: str) -> ReplyError:
    return ReplyError(f"ERR {message}")


def _arity(name: str) -> ReplyError:
    return _error(f"wrong number of arguments for '{name}' command")
