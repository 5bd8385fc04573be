"""The registry of one process: its id, its keeper, its connections. A forked child starts with none of it."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast._core.lock.ports import Wait
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
    """The registry of a process: what it owns."""

    def clear(self) -> None:
        """Close those that are idle."""

    def sockets(self) -> list[socket.socket]:
        """All of them, for a forked child to let go of."""


C = TypeVar("C", bound=Connections)


class Process:
    """The coordination side of this process."""

    def __init__(self, system: System = SYSTEM) -> None:
        self.system = system
        self.clock = system.clock
        self.pid = os.getpid()
        self.id = system.urandom(6).hex()
        self.label: str | None = None
        self.started = time.time()
        self._tokens: list[str] = []
        self._mutex = threading.RLock()  # a signal handler may use locks, too, in the middle of any line below
        self._pools: dict[Endpoint, Pool | ClientCalls] = {}
        self._owned: dict[Hashable, Any] = {}
        self._clients: dict[Hashable, Any] = {}
        self._keepers: list[Keeper] = []
        """The first is the keeper; a list, so that a signal handler and whom it interrupts never replace each other's."""
        self.drivers: dict[asyncio.AbstractEventLoop, dict[Endpoint, LoopDriver]] = {}
        """Of the asyncio face, with their connections, by the loop they belong to."""

    @property
    def here(self) -> bool:
        """False in a forked child, to which all this means nothing."""
        return self is _current

    def token(self) -> str:
        """A new token: a public part, which says whose it is, and a secret one."""
        try:
            return self._tokens.pop()
        except IndexError:
            return self._many_tokens()

    def _many_tokens(self) -> str:
        """The first of many that are made at once: a system call each costs more than all else about a token."""
        random = self.system.urandom(16 * 64).hex()
        tokens = [f"{self.id}.{random[at : at + 32]}" for at in range(0, len(random), 32)]
        self._tokens.extend(tokens[1:])
        return tokens[0]

    def set_label(self, label: str) -> None:
        """Label those of its locks that have no label of their own, from now on."""
        if label != self.label:
            self.label = label
            if self._keeper is not None:
                self._keeper.facts_changed()

    def facts(self) -> dict[str, Any]:
        """Return the public facts about this process."""
        return {"host": socket.gethostname(), "pid": self.pid, "label": self.label, "start": round(self.started, 3)}

    def record(self, waits: Sequence[Wait], labels: Mapping[bytes, str]) -> str:
        """The record of this process, with these waits in it, and the labels of locks by their keys."""
        from holdfast._core import control_records  # here: most commands are over before the first record is written

        told: list[dict[str, Any]] = []
        if waits:
            from holdfast._runtime.keeper import wait_report  # here: hardly anybody waits so

            told = [wait_report.describe_wait(wait, [*self.drivers]) for wait in waits]
        return control_records.write(self.facts(), told, labels)

    def pool(self, endpoint: Endpoint) -> Pool | ClientCalls:
        with self._mutex:
            pool = self._pools.get(endpoint)
            if pool is None:
                pool = self._pools.setdefault(endpoint, pool_to(endpoint, self.system))
            return pool

    def own(self, key: Hashable, make: Callable[[], C]) -> C:
        """Connections of another kind, made when they are first wanted."""
        with self._mutex:
            owned = self._owned.get(key)
            return self._owned.setdefault(key, make()) if owned is None else owned  # type: ignore[no-any-return]

    def client(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """A client of redis-py that is ours, made when it is first wanted."""
        with self._mutex:
            client = self._clients.get(key)
            return self._clients.setdefault(key, make()) if client is None else client

    @property
    def _keeper(self) -> Keeper | None:
        return next(iter(self._keepers), None)

    @property
    def keeper(self) -> Keeper:
        """The keeper, started on first use."""
        keeper = self._keeper
        if keeper is None or keeper.ended:
            with self._mutex:
                if self._keeper is None or self._keeper.ended:
                    _warn_where_threads_stall()
                    keeper = Keeper(self.id, self.record, self.system)
                    for ended in [one for one in self._keepers if one.ended]:
                        self._keepers.remove(ended)
                    self._keepers.append(keeper)
                    if self._keepers[0] is not keeper:  # a signal handler has just started another one, and uses it
                        self._keepers.remove(keeper)
                        keeper.stop(0.0)
                keeper = self._keepers[0]
        return keeper

    @property
    def running_keeper(self) -> Keeper | None:
        """The keeper, if there is one: for what needs none if there is none."""
        return self._keeper

    def subscribe(self, endpoints: tuple[Endpoint, ...], listener: Subscriber) -> bool:
        """True if as many of the servers as it relies on can tell the listener something; else it is woken when one can."""
        return sum(self.keeper.subscribe(endpoint, listener) for endpoint in endpoints) >= listener.majority

    def send_until_answered(self, endpoints: tuple[Endpoint, ...], give: GiveBack) -> None:
        """Have the keeper send this. If everything was closed meanwhile, nothing is opened anew for that."""
        keeper = self._keeper
        if keeper is not None:
            keeper.send_until_answered(endpoints[give.server], give.call, give.until)

    def unsubscribe(self, endpoints: tuple[Endpoint, ...], listener: Subscriber) -> None:
        """Tell the listener nothing any more."""
        if self._keeper is not None and listener.listener_id:
            for endpoint in endpoints:
                self._keeper.unsubscribe(endpoint, listener)

    def close(self) -> None:
        """Give back held locks, end the keeper, close the connections; at most about a second."""
        keeper = self._keeper
        if keeper is not None:
            keeper.end_loops(0.5)
        with self._mutex:
            keeper = self._keeper
            if keeper is not None:
                keeper.stop(0.5)  # first: from here on it ends also if this is interrupted
            self._keepers = []
            pools = [*self._pools.values(), *self._owned.values()]
            clients, self._clients = [*self._clients.values()], {}
        for client in clients:
            from holdfast._net.own_clients import closable  # here: most have none

            for one in closable(client):
                one.close()
        if keeper is not None:
            keeper.thread.join(1)
        for pool in pools:
            pool.clear()
        self.drivers = {loop: drivers for loop, drivers in self.drivers.items() if not loop.is_closed()}

    def let_go(self) -> None:
        """In a forked child: put /dev/null in the place of every inherited socket.

        Closing alone would do for the server to see the parent's end, but the objects that own the sockets are copies too
        and would close whatever gets the same number later. Nothing is shut down: the parent goes on using the connection.
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
    """Renewal needs a thread that runs whatever the application does."""
    uwsgi = sys.modules.get("uwsgi")
    options = getattr(uwsgi, "opt", {})
    if uwsgi is not None and not (options.get("enable-threads") or options.get(b"enable-threads")):
        warnings.warn("uWSGI runs without threads: leases are not renewed; start it with --enable-threads", HoldfastWarning, 3)
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        warnings.warn(
            "gevent has patched threading: leases are renewed only while the hub runs; keep the ttl well above the longest "
            "time between two switches",
            HoldfastWarning,
            3,
        )


_current = Process()


def current() -> Process:
    """This process; after a fork, the child's own."""
    return _current


def _after_fork() -> None:
    global _current
    parent, _current = _current, Process()
    _current.label = parent.label
    parent.let_go()


def close() -> None:
    """Give back what this process holds and close its connections. Runs by itself at exit; takes about a second at most.

    The connections of asyncio close with their event loop, or by `holdfast.aio.close`.
    """
    _current.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)


def describe(record: bytes | None, process: str, key: bytes = b"") -> str | None:
    """Return ``host:pid (label)`` from a process record, or the bare id where there is none that can be read."""
    if not process:
        return None
    from holdfast._core import control_records  # here: most never need it

    said = control_records.read(record)
    if said is None:
        return f"process {process[:PROCESS]}"
    label = said.label_of(key)  # that of the lock with this key
    text = f"{said.host}:{said.pid}" + (f" ({label})" if label else "")
    # A client that can write the record chooses these characters, and a terminal may obey some of them.
    return "".join(c if c.isprintable() else "?" for c in text[:300])
