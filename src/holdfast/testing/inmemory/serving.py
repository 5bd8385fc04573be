"""The thread of a server in memory. It serves a unix socket, sets the server's time, and injects delays and lost replies."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hiredis

from holdfast._clock import clock, monotonic, wall
from holdfast.testing.inmemory.front import PushMessage, Session, encode
from holdfast.testing.keyspace import Keyspace, ReplyError

T = TypeVar("T")

log: logging.Logger = logging.getLogger("holdfast.testing")

_SCRIPTS = {b"EVAL", b"EVALSHA"}

_one_at_a_time = threading.Lock()
"""Lock that a server holds while it uses the Lua runtime, which all servers in memory of a process share."""


class ServedConnection:
    """A client connection: its socket, its session, and the replies that have not been sent yet."""

    session: Session

    def __init__(self, serving: Serving, sock: socket.socket) -> None:
        self.sock = sock
        self.session = Session(serving)
        self._serving = serving
        self._out: deque[tuple[float, bytes]] = deque()
        self._full = False
        sock.setblocking(False)

    @property
    def next_at(self) -> float:
        """Real monotonic time in seconds of the next reply; infinity if there is none, or if the socket is full."""
        return self._out[0][0] if self._out and not self._full else float("inf")

    def send(self, reply: Any) -> None:
        self._out.append((monotonic() + self._serving.delay, encode(reply, self.session.protocol)))

    def on_event(self, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = self.sock.recv(65536)
                if not data:
                    self._serving.drop(self)
                    return
                for request in self.session.requests(data):
                    if not self._answer(request):
                        return
            self.flush()
        except BlockingIOError:
            pass
        except (OSError, hiredis.ProtocolError):
            self._serving.drop(self)
        except Exception:
            log.exception("a command to the server in memory failed; its connection was closed, and the server goes on")
            self._serving.drop(self)

    def _answer(self, request: list[bytes]) -> bool:
        """Handle a request and queue its replies. Return False if the connection was closed."""
        replies = self.session.handle(request)
        unknown = isinstance(replies[0], ReplyError) and str(replies[0]).startswith("NOSCRIPT")
        if self._serving.lost_answers and request[0].upper() in _SCRIPTS and not unknown:
            self._serving.lost_answers -= 1
            self.flush()
            self._serving.drop(self)
            return False
        for reply in replies:
            self.send(reply)
        if self.session.leaving:
            self.flush()
            self._serving.drop(self)
        return not self.session.leaving

    def flush(self) -> None:
        """Send the replies that are due, as far as the socket accepts them."""
        now = monotonic()
        self._full = False
        while self._out and self._out[0][0] <= now:
            at, data = self._out[0]
            try:
                sent = self.sock.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self._out[0] = (at, data[sent:])
                self._full = True
                self._serving.wants(self, selectors.EVENT_READ | selectors.EVENT_WRITE)
                return
            self._out.popleft()
        self._serving.wants(self, selectors.EVENT_READ)


class Serving:
    """The thread of a server in memory, and its sockets. Other threads use only `run`, `close`, `delay` and `lost_answers`."""

    delay: float

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keyspace = Keyspace()
        self.delay = 0.0
        """Seconds of real time by which each reply is delayed."""
        self.lost_answers = 0
        """Number of scripts whose replies are still to be lost. Instead of the reply, the connection is cut."""
        self._start = wall() - clock()
        """Seconds to add to this process's monotonic clock to get the server's time, so that both clocks advance together."""
        self._owner = os.getpid()
        self._listener: socket.socket | None = None
        self._connections: dict[socket.socket, ServedConnection] = {}
        self._listeners: dict[bytes, list[Session]] = {}
        self._todo: deque[Callable[[], None]] = deque()
        self._mutex = threading.Lock()
        """Lock that prevents `run` from queueing a function after the thread has ended."""
        self._ended = False
        self._selector = selectors.DefaultSelector()
        self._poke_out, self._poke_in = socket.socketpair()
        self._poke_out.setblocking(False)
        self._selector.register(self._poke_out, selectors.EVENT_READ)
        _alive.add(self)
        self.up()
        self._thread = threading.Thread(target=self._serve, name="holdfast-memory", daemon=True)
        self._thread.start()

    def run(self, what: Callable[[], T]) -> T:
        """Call a function in the server's thread, between two commands, and return its result or raise its exception.

        Raises RuntimeError if the server is closed, or if this is a forked child of the process that started the server.
        """
        if self._owner != os.getpid():
            raise RuntimeError("a server in memory belongs to the process that started it; a forked child can only connect")
        future: Future[T] = Future()

        def do() -> None:
            try:
                future.set_result(what())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)

        with self._mutex:
            if self._ended:
                raise RuntimeError("this server in memory was closed")
            self._todo.append(do)
            self._poke_in.send(b"x")
        return future.result()

    def close(self) -> None:
        """End the thread and all connections. A second call, or a call in a forked child, does nothing."""
        if self._ended or self._owner != os.getpid():
            return
        self.run(self._end)
        self._thread.join()
        self._poke_in.close()

    # Methods that run in the server's thread

    def up(self) -> None:
        if self._listener is None:
            listener = self._listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self.path))
            listener.listen(128)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def down(self) -> None:
        """Close the unix socket and all connections, as if the server were switched off. The data is kept."""
        listener, self._listener = self._listener, None
        if listener is not None:
            self._selector.unregister(listener)
            listener.close()
            self.path.unlink(missing_ok=True)
        for connection in list(self._connections.values()):
            self.drop(connection)

    def drop(self, connection: ServedConnection) -> None:
        if self._connections.pop(connection.sock, None) is not None:
            connection.session.close()
            self._selector.unregister(connection.sock)
            connection.sock.close()

    def wants(self, connection: ServedConnection, events: int) -> None:
        if self._selector.get_key(connection.sock).events != events:
            self._selector.modify(connection.sock, events, connection)

    def execute(self, args: list[bytes]) -> Any:
        """Execute a command at the server's present time, deliver the messages that it publishes, and return its reply."""
        with self._data() as data:
            reply = data.execute(*args)
            published, data.published[:] = list(data.published), []
        for channel, message in published:
            for session in self._listeners.get(channel, []):
                self._push(session, PushMessage([b"message", channel, message]))
        return reply

    def version(self, key: bytes) -> int:
        with self._data() as data:
            return data.version(key)

    @contextmanager
    def _data(self) -> Iterator[Keyspace]:
        """Yield the data, for one use at a time, after setting its clock to the server's time."""
        with _one_at_a_time:
            self._keyspace.now = int((self._start + clock()) * 1e6)
            yield self._keyspace

    def _push(self, session: Session, message: PushMessage) -> None:
        for connection in list(self._connections.values()):
            if connection.session is session:
                connection.send(message)

    def listen(self, session: Session, channel: bytes, by: int) -> None:
        sessions = self._listeners.setdefault(channel, [])
        sessions.append(session) if by > 0 else sessions.remove(session)
        with self._data() as data:
            data.subscribe(channel, by)

    def _serve(self) -> None:
        while True:
            while self._todo:
                self._todo.popleft()()
            if self._ended:
                return
            next_at = min((connection.next_at for connection in self._connections.values()), default=float("inf"))
            timeout = None if next_at == float("inf") else max(0.0, next_at - monotonic())
            for key, events in self._selector.select(timeout):
                if key.fileobj is self._poke_out:
                    self._poke_out.recv(4096)
                elif key.fileobj is self._listener:
                    self._accept(self._listener)
                elif key.fileobj in self._connections:
                    key.data.on_event(events)
            for connection in list(self._connections.values()):
                if connection.next_at <= monotonic():
                    connection.on_event(0)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return  # the client has disconnected
        connection = self._connections[sock] = ServedConnection(self, sock)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _end(self) -> None:
        self.down()
        with self._mutex:
            self._ended = True
        self._selector.close()
        self._poke_out.close()

    def let_go(self) -> None:
        """Close this forked child's copies of all sockets. The parent's connections stay open."""
        ours = [self._listener, self._poke_out, self._poke_in, *self._connections]
        for sock in ours:
            if sock is not None:
                sock.close()
        self._selector.close()


_alive: weakref.WeakSet[Serving] = weakref.WeakSet()


def _let_go() -> None:
    _one_at_a_time.release()
    for serving in _alive:
        serving.let_go()


# A fork waits for the end of a running command; otherwise the child would have a Lua lock that is never released.
os.register_at_fork(before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_let_go)
