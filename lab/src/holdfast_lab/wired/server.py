"""The server behind scripted sockets. It receives RESP bytes, and runs the real Lua scripts on data in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import hiredis

from holdfast.testing.inmemory.front import PushMessage, Session, encode
from holdfast.testing.keyspace import Keyspace, ReplyError

START = 1_700_000_000.0
"""Time in seconds that the server's clock shows at the beginning of a history."""


class Peer:
    """The server's end of a connection."""

    def __init__(self, server: Server, send: Callable[[bytes], None], hang_up: Callable[[], None]) -> None:
        self._server = server
        self._send = send
        self._hang_up = hang_up
        self.session = Session(server)
        self._left = False

    def receive(self, data: bytes) -> None:
        """Carry out each complete request, and send the replies."""
        try:
            for request in self.session.requests(data):
                if self._left:
                    return
                self._server.calls += 1
                for reply in self.replies(request):
                    if isinstance(reply, ReplyError) and str(reply).startswith("ERR unknown command"):
                        self._server.complain(f"the server was sent the unknown command {request[0]!r}")
                    self.send(reply)
        except hiredis.ProtocolError as error:
            self._server.complain(f"the server received something that is not a request: {error}")
            self.leave()
            self._hang_up()

    def replies(self, request: list[bytes]) -> list[Any]:
        self._server.note(request)
        return self.session.handle(request)

    def send(self, reply: Any) -> None:
        if not self._left:
            self._send(encode(reply, self.session.protocol))

    def leave(self) -> None:
        """End the server's session, with its subscriptions, because the connection has ended."""
        if not self._left:
            self._left = True
            self.session.close()


class TrueTime(Protocol):
    """The part of the world that a server uses."""

    now: float
    """Virtual time in seconds."""
    servers: list[Server]


class Server:
    """A server with a clock that runs at ``rate``; 1: as virtual time."""

    def __init__(self, world: TrueTime, rate: float, complain: Callable[[str], None]) -> None:
        self._world = world
        self.rate = rate
        self.complain = complain
        """Function to call if a client breaks the protocol, or sends the same ECHO twice."""
        self.keyspace = Keyspace()
        self.calls = 0
        """Number of commands that the server has received."""
        self.asked_for: Counter[str] = Counter()
        """How often the server has received each command."""
        self._questions: set[bytes] = set()
        self._peers: dict[Session, Peer] = {}
        self._listeners: dict[bytes, list[Session]] = {}
        world.servers.append(self)

    def note(self, request: list[bytes]) -> None:
        """Count a request. Complain if the server has received the same ECHO before."""
        self.asked_for[request[0].decode("ascii", "replace")] += 1
        if request[0] == b"ECHO":
            if request[1] in self._questions:
                self.complain(f"the server received ECHO {request[1]!r} twice")
            self._questions.add(request[1])

    def accept(self, send: Callable[[bytes], None], hang_up: Callable[[], None]) -> Peer:
        """Accept a connection, and return the server's end of it.

        ``send`` sends bytes to the client, and ``hang_up`` closes the connection.
        """
        peer = Peer(self, send, hang_up)
        self._peers[peer.session] = peer
        return peer

    def keeps(self, key: bytes, token: str) -> float:
        """Return the virtual time at which the lease with this token expires; infinity: never.

        Return minus infinity if this lease does not hold the lock.
        """
        self._tick()
        value, expires = self.keyspace.peek(key)
        if value != token.encode():
            return float("-inf")
        return float("inf") if expires is None else (expires / 1000 - START) / self.rate

    def holder(self, key: bytes) -> str | None:
        self._tick()
        value, _ = self.keyspace.peek(key)
        return value.decode() if value else None

    def declare_new(self, script: Any, keys: tuple[bytes, ...], args: tuple[int | str, ...]) -> None:
        """Run the script that declares this server new, so that it votes at once."""
        self._tick()
        self.keyspace.run_id = b"%040d" % self._world.servers.index(self)
        self.keyspace.run(script, keys, args)

    # Called by the server's sessions (`front.Backend`)

    def execute(self, args: list[bytes]) -> Any:
        """Run a command, and send the messages that it publishes."""
        self._tick()
        reply = self.keyspace.execute(*args)
        published, self.keyspace.published[:] = list(self.keyspace.published), []
        for channel, message in published:
            for session in self._listeners.get(channel, []):
                self._peers[session].send(PushMessage([b"message", channel, message]))
        return reply

    def version(self, key: bytes) -> int:
        """Return a number that differs after each change of the key, for WATCH."""
        self._tick()
        return self.keyspace.version(key)

    def listen(self, session: Session, channel: bytes, by: int) -> None:
        """Subscribe a session to a channel if ``by`` is 1, or unsubscribe it if ``by`` is -1."""
        sessions = self._listeners.setdefault(channel, [])
        sessions.append(session) if by > 0 else sessions.remove(session)
        self.keyspace.subscribe(channel, by)

    def _tick(self) -> None:
        self.keyspace.now = int((START + self._world.now * self.rate) * 1e6)
