"""The registry of one process: its id, its keeper (background thread) and its connections.

A forked child gets a new registry.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast._clock import wall
from holdfast._core.lock.ports import LockWait
from holdfast._core.names import PROCESS
from holdfast._net.endpoint import Endpoint
from holdfast._net.system import SYSTEM, System
from holdfast._net.transport import pool_to
from holdfast._runtime.keeper.thread import Keeper
from holdfast.errors import HoldfastWarning

if TYPE_CHECKING:
    import asyncio

    from holdfast._core.requests import GiveBack, Subscriber
    from holdfast._net.client_adapter import ClientCalls
    from holdfast._net.sync_pool import Pool
    from holdfast._runtime.closed_loops import LoopDriver


class Connections(Protocol):
    """Connections that the registry of a process owns."""

    def clear(self) -> None: ...

    def sockets(self) -> list[socket.socket]:
        """Return the sockets of all connections. A forked child replaces them by /dev/null (`Process.let_go`)."""


C = TypeVar("C", bound=Connections)


class Process:
    """The registry of this process: its id and tokens, its keeper, its connections and its event-loop drivers."""

    clock: Callable[[], float]
    pid: int
    id: str
    started: float

    def __init__(self, system: System = SYSTEM) -> None:
        self.system = system
        self.clock = system.clock
        self.pid = os.getpid()
        self.id = system.urandom(6).hex()
        self.label: str | None = None
        self.started = wall()
        self.here = True
        """True if this is the registry of the present process. In a forked child, it is False for the parent's registry."""
        self.tokens: list[str] = []
        """Tokens that were created in advance, and not used yet."""
        # Re-entrant, because a signal handler may use locks, too, in the middle of any line below.
        self._mutex = threading.RLock()
        self._waits_for_itself: set[LockWait] = set()
        """Waits of threads and tasks for locks that they hold themselves, about which a warning was logged."""
        self._pools: dict[Endpoint, Pool | ClientCalls] = {}
        self._owned: dict[Hashable, Any] = {}
        self._clients: dict[Hashable, Any] = {}
        self._keepers: list[Keeper] = []
        """The keeper, as the first element; empty if it was not started.

        If a signal handler and the code that it interrupts both start a keeper, the first in the list is used.
        """
        self.drivers: dict[asyncio.AbstractEventLoop, dict[Endpoint, LoopDriver]] = {}
        """Drivers of the asyncio API, with their connections, by event loop and endpoint."""

    def token(self) -> str:
        """Return a new token. It has a public part that identifies this process, and a secret part."""
        try:
            return self.tokens.pop()
        except IndexError:
            return self._many_tokens()

    def _many_tokens(self) -> str:
        """Create many tokens with one system call, which is the most expensive step. Return the first, and store the others."""
        random = self.system.urandom(16 * 64).hex()
        tokens = [f"{self.id}.{random[at : at + 32]}" for at in range(0, len(random), 32)]
        self.tokens.extend(tokens[1:])
        return tokens[0]

    def set_label(self, label: str) -> None:
        """Set the label of this process, for locks without a label of their own."""
        if label != self.label:
            self.label = label
            if self._keeper is not None:
                self._keeper.facts_changed()

    def facts(self) -> dict[str, Any]:
        """Return the facts about this process that other clients may see."""
        return {"host": socket.gethostname(), "pid": self.pid, "label": self.label, "start": round(self.started, 3)}

    def record(self, waits: Sequence[LockWait], labels: Mapping[bytes, str]) -> str:
        """Return the record of this process, which other processes read from the server.

        ``waits``: waits of threads and tasks that hold other locks. ``labels``: labels of locks, by key.
        """
        # Imported here, because most commands are over before the first record is written.
        from holdfast._core import control_records

        told: list[dict[str, Any]] = []
        if waits:
            from holdfast._runtime.keeper import wait_report  # imported here, because few processes wait while they hold a lock

            wait_report.warn_of_own(waits, self._waits_for_itself)
            told = [wait_report.describe_wait(wait, [*self.drivers]) for wait in waits]
        return control_records.write(self.facts(), told, labels)

    def pool(self, endpoint: Endpoint) -> Pool | ClientCalls:
        with self._mutex:
            pool = self._pools.get(endpoint)
            if pool is None:
                pool = self._pools.setdefault(endpoint, pool_to(endpoint, self.system))
            return pool

    def own(self, key: Hashable, make: Callable[[], C]) -> C:
        """Return the connections stored under ``key``. ``make`` creates them at the first call for this key."""
        with self._mutex:
            owned = self._owned.get(key)
            return self._owned.setdefault(key, make()) if owned is None else owned  # type: ignore[no-any-return]

    def client(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return holdfast's own redis-py client for ``key``. ``make`` creates it at the first call for this key."""
        with self._mutex:
            client = self._clients.get(key)
            return self._clients.setdefault(key, make()) if client is None else client

    @property
    def _keeper(self) -> Keeper | None:
        return next(iter(self._keepers), None)

    @property
    def keeper(self) -> Keeper:
        """Return the keeper. Start it if it is not running."""
        keeper = self._keeper
        if keeper is None or keeper.ended:
            with self._mutex:
                if self._keeper is None or self._keeper.ended:
                    _warn_where_threads_stall()
                    keeper = Keeper(self.id, self.record, self.system)
                    for ended in [one for one in self._keepers if one.ended]:
                        self._keepers.remove(ended)
                    self._keepers.append(keeper)
                    if self._keepers[0] is not keeper:  # a signal handler has just started another keeper, and uses it
                        self._keepers.remove(keeper)
                        keeper.stop(0.0)
                keeper = self._keepers[0]
        return keeper

    @property
    def running_keeper(self) -> Keeper | None:
        """Return the keeper if it was started, otherwise None."""
        return self._keeper

    def subscribe(self, endpoints: tuple[Endpoint, ...], listener: Subscriber) -> bool:
        """Subscribe a listener to notifications of these servers.

        Return True if as many of these servers as the listener needs can already notify the process. Otherwise, the listener is
        woken each time that one more server can do so.
        """
        return sum(self.keeper.subscribe(endpoint, listener) for endpoint in endpoints) >= listener.majority

    def send_until_answered(self, endpoints: tuple[Endpoint, ...], give: GiveBack) -> None:
        """Have the keeper send the request in ``give`` until it is answered. Do nothing if there is no keeper."""
        keeper = self._keeper
        if keeper is not None:
            keeper.send_until_answered(endpoints[give.server], give.call, give.until)

    def unsubscribe(self, endpoints: tuple[Endpoint, ...], listener: Subscriber) -> None:
        if self._keeper is not None and listener.listener_id:
            for endpoint in endpoints:
                self._keeper.unsubscribe(endpoint, listener)

    def close_idle(self, endpoints: Sequence[Endpoint]) -> None:
        """Close the connections of threads to these servers.

        If a server belongs to a Cluster, the connections to all servers of the Cluster are closed. A connection in use is
        closed after its use.
        """
        with self._mutex:
            pools = [pool for endpoint, pool in self._pools.items() if endpoint.is_among(endpoints)]
        for pool in pools:
            pool.clear()

    def drop_pool(self, endpoint: Endpoint) -> None:
        """Close the connections of threads to a server that does not come back."""
        with self._mutex:
            pool = self._pools.pop(endpoint, None)
        if pool is not None:
            pool.clear()

    def close(self) -> None:
        """Release the held locks, end the keeper and close the connections. See `holdfast.close`."""
        keeper = self._keeper
        if keeper is not None:
            keeper.end_loops(0.5)
        with self._mutex:
            keeper = self._keeper
            if keeper is not None:
                keeper.stop(0.5)  # the keeper is stopped first, so that it ends even if the rest is interrupted
            self._keepers = []
            pools = [*self._pools.values(), *self._owned.values()]
            clients, self._clients = [*self._clients.values()], {}
        for client in clients:
            from holdfast._net.own_clients import closable  # imported here, because most programs have no such client

            for one in closable(client):
                one.close()
        if keeper is not None:
            keeper.thread.join(1)
        for pool in pools:
            pool.clear()
        self.drivers = {loop: drivers for loop, drivers in self.drivers.items() if not loop.is_closed()}

    def let_go(self) -> None:
        """Replace every inherited socket by /dev/null, in a forked child.

        If the child only closed the sockets, their file descriptors would be reused, and the objects that own the sockets would
        later close those other files. The connections themselves stay open, because the parent uses them.
        """
        sockets = [sock for pool in [*self._pools.values(), *self._owned.values()] for sock in pool.sockets()]
        if self._keeper is not None:
            sockets += self._keeper.sockets()
        sockets += [s for drivers in self.drivers.values() for driver in drivers.values() for s in driver.stream.sockets()]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for sock in sockets:
            if sock.fileno() >= 0:
                os.dup2(null, sock.fileno(), inheritable=False)
        os.close(null)


def _warn_where_threads_stall() -> None:
    """Warn if uWSGI or gevent keeps the keeper from running. Leases are then not renewed in time."""
    uwsgi = sys.modules.get("uwsgi")
    options = getattr(uwsgi, "opt", {})
    if uwsgi is not None and not (options.get("enable-threads") or options.get(b"enable-threads")):
        warnings.warn("uWSGI runs without threads, so no lease is renewed: start it with --enable-threads", HoldfastWarning, 3)
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        warnings.warn(
            "gevent has patched threading, so leases are renewed only while its hub runs: set ttl well above the longest "
            "time between two switches",
            HoldfastWarning,
            3,
        )


_current = Process()


def current() -> Process:
    """Return the registry of the calling process. A forked child gets a new one."""
    return _current


def _after_fork() -> None:
    global _current
    parent, _current = _current, Process()
    parent.here = False
    keeper = parent.running_keeper
    if keeper is not None:
        keeper.closing = True
    _current.label = parent.label
    parent.let_go()


def close() -> None:
    """Release all locks that this process holds, and close its connections. Called automatically when the process exits.

    This waits for the servers for at most 1.5 seconds. Connections of the asyncio API are closed when their event loop ends, or
    by `holdfast.aio.close`.
    """
    _current.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)


def describe(record: bytes | None, process: str, key: bytes = b"") -> str | None:
    """Return ``host:pid (label)`` from the record of a process, or ``process ID`` if the record is None or unreadable.

    Return None if ``process``, the id of the process, is empty. ``key``: key of the lock whose label is shown.
    """
    if not process:
        return None
    from holdfast._core import control_records  # imported here, because most programs never need it

    said = control_records.read(record)
    if said is None:
        return f"process {process[:PROCESS]}"
    label = said.label_of(key)
    text = f"{said.host}:{said.pid}" + (f" ({label})" if label else "")
    # Any client that can write the record chooses these characters, and a terminal may execute some of them.
    return "".join(c if c.isprintable() else "?" for c in text[:300])
