"""A primary, its replicas, and three Sentinels that watch them: real servers of a test's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest

from holdfast._local.server.supervisor import SocketConnection
from support.servers import PrivateServer, private

HASTE = {
    "info-period": 500,
    "ping-period": 300,  # who has told nothing for five times as long is not elected, and in trouble one is asked each second
    "ask-period": 100,
    # Four times that is what the others may take to hear of a new primary, or they make it a replica again. Whether it was
    # promoted is looked up once a second, which cannot be changed.
    "publish-period": 500,
    "min-link-reconnect-period": 100,
    "election-timeout": 1000,
}
"""Milliseconds of what Sentinel otherwise does once in one to ten seconds; a test has no time for that."""

PATIENCE = 60.0
"""Seconds after which something that does not happen is an error."""


class Sentinels:
    """In a ``with``: servers on free ports of 127.0.0.1, all ended with it::

        with Sentinels(replicas=2) as sentinels:
            lock = holdfast.Lock(sentinels.url, "name")      # or sentinels.addresses and sentinels.service for a client
            sentinels.replicated()                           # what was written is on the replicas, too
            sentinels.kill_primary()                         # kill -9; the others elect a new one meanwhile
            sentinels.await_primary()                        # there is one again

    ``replicas``: how many; ``watchers``: how many Sentinels, a majority of which decides; ``down_after``: seconds without an
    answer after which they hold a server for dead. ``args``: settings of the data servers. ``password``: of those too.

    ``servers`` are the data servers, whatever they are just now; ``watchers`` the Sentinels. All of them are PrivateServers:
    `pause`, `kill` and `restart` them at will. One that is restarted comes back as a primary without data, until the Sentinels
    make it a replica (`rejoined` waits for that).
    """

    service = "main"

    def __init__(
        self, *args: str, replicas: int = 1, watchers: int = 3, down_after: float = 0.4, password: str | None = None
    ) -> None:
        self.down_after = down_after
        self.password = password
        settings = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5", *args)
        if password:
            settings += ("--masterauth", password)
        self._stack = contextlib.ExitStack()
        try:
            with ThreadPoolExecutor(4) as pool:
                data = [pool.submit(private, *settings, port=True, password=password or "") for _ in range(replicas + 1)]
                watching = [pool.submit(private, "--sentinel", port=True, password="") for _ in range(watchers)]
            self.servers = [self._stack.enter_context(started.result()) for started in data]
            self.watchers = [self._stack.enter_context(started.result()) for started in watching]
            if "redis_version:6" in self.command(self.watchers[0], "INFO", "server"):
                pytest.skip("Sentinels before Redis 7.0 cannot be hurried")
            self._assemble()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _assemble(self) -> None:
        first, *replicas = self.servers
        for replica in replicas:
            self.command(replica, "REPLICAOF", "127.0.0.1", str(first.port))
        _until(lambda: self._online(first) == len(replicas), "the replicas do not follow")
        for watcher in self.watchers:
            self.watch(watcher, first)
        _until(lambda: all(self._complete(watcher) for watcher in self.watchers), "the Sentinels do not find each other")

    def watch(self, watcher: PrivateServer, primary: PrivateServer) -> None:
        """Have a Sentinel (one that was restarted, say) look after the service."""
        for parameter, value in HASTE.items():
            self.command(watcher, "SENTINEL", "DEBUG", parameter, str(value))
        quorum = str(len(self.watchers) // 2 + 1)
        self.command(watcher, "SENTINEL", "MONITOR", self.service, "127.0.0.1", str(primary.port), quorum)
        # Not all at the same moment: of several that stand for election then, none may win, and it is repeated seconds later.
        later = 0.15 * (self.watchers.index(watcher) - len(self.watchers) // 2)
        options = {"down-after-milliseconds": str(int(1000 * (self.down_after + later))), "failover-timeout": "3000"}
        if self.password:
            options["auth-pass"] = self.password
        for option, wanted in options.items():
            self.command(watcher, "SENTINEL", "SET", self.service, option, wanted)

    def command(self, server: PrivateServer, *words: str) -> Any:
        """The reply of one of the servers; OSError if it refuses, or is not there."""
        with contextlib.closing(SocketConnection(server.socket, 5)) as connection:
            if self.password and server in self.servers:
                connection("AUTH", self.password)
            return connection(*words)

    # The addresses

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of the Sentinels, as clients take them."""
        return [("127.0.0.1", watcher.port or 0) for watcher in self.watchers]

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis+sentinel://{login}{','.join(f'{host}:{port}' for host, port in self.addresses)}/{self.service}"

    @property
    def primary(self) -> PrivateServer:
        """The server that the first Sentinel that answers calls the primary; it may be dead by now."""
        for watcher in self.watchers:
            with contextlib.suppress(OSError):
                return self._named_by(watcher)
        raise OSError("no Sentinel answers")

    @property
    def replicas(self) -> list[PrivateServer]:
        """All data servers but the primary."""
        return [server for server in self.servers if server is not self.primary]

    def role(self, server: PrivateServer) -> str:
        """``master`` or ``slave``, as the server says itself; empty if it says nothing."""
        with contextlib.suppress(OSError):
            return str(self.command(server, "ROLE")[0])
        return ""

    def _named_by(self, watcher: PrivateServer) -> PrivateServer:
        _, port = self.command(watcher, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if str(server.port) == port)

    # The faults

    def kill_primary(self) -> PrivateServer:
        """Kill the primary with -9: that server, for `restart`. The Sentinels need about `down_after` to elect another one."""
        primary = self.primary
        primary.kill()
        return primary

    def failover(self) -> PrivateServer:
        """Have a replica promoted without anybody dying, the old primary demoted: the new primary, when it is that."""
        old = self.primary
        return self.await_primary(instead_of=old, meanwhile=lambda: self._ask_for_failover(old))

    def await_primary(
        self, instead_of: PrivateServer | None = None, meanwhile: Callable[[], None] = lambda: None
    ) -> PrivateServer:
        """Wait until a majority of the Sentinels names the same primary (another than ``instead_of``), and it says so too."""
        found: list[PrivateServer] = []

        def agreed() -> bool:
            named = []
            for watcher in self.watchers:
                with contextlib.suppress(OSError):
                    named.append(self._named_by(watcher))
            found[:] = [
                server
                for server in self.servers
                if named.count(server) > len(self.watchers) // 2 and server is not instead_of and self.role(server) == "master"
            ]
            if not found:
                meanwhile()
            return bool(found)

        _until(agreed, "there is no new primary")
        return found[0]

    def rejoined(self) -> None:
        """Wait until all data servers but the primary are replicas of it, and the Sentinels know them as such."""
        _until(lambda: self._online(self.await_primary()) == len(self.servers) - 1, "a server does not become a replica")
        _until(lambda: all(self._complete(watcher) for watcher in self.watchers), "the Sentinels do not see the replicas")

    def replicated(self) -> None:
        """Wait until the replicas that are alive have all that was written to the primary before."""
        primary = self.primary
        with contextlib.closing(SocketConnection(primary.socket, PATIENCE)) as connection:
            if self.password:
                connection("AUTH", self.password)
            # On an idle connection WAIT proves nothing: it waits for what was written on the same one.
            connection("SET", "sentinels:replicated", "1", "PX", "10000")
            online = self._online(primary)
            if connection("WAIT", str(online), str(int(1000 * PATIENCE))) < online:
                raise AssertionError("the replicas do not keep up")

    def _ask_for_failover(self, old: PrivateServer) -> None:
        """Again and again: refused, or given up, while an earlier one is not done, or no replica was heard of since."""
        watcher = self.watchers[0]
        with contextlib.suppress(OSError):
            if self._named_by(watcher) is old:
                self.command(watcher, "SENTINEL", "FAILOVER", self.service)

    def _online(self, primary: PrivateServer) -> int:
        """How many replicas follow; 0 while it closes all connections, as one does that becomes a replica itself."""
        with contextlib.suppress(OSError), contextlib.closing(SocketConnection(primary.socket, 5)) as connection:
            if self.password:
                connection("AUTH", self.password)
            return sum("state=online" in value for value in connection.info("replication").values())
        return 0

    def _complete(self, watcher: PrivateServer) -> bool:
        """This Sentinel knows all others, and all replicas as such that could be promoted."""
        others = self.command(watcher, "SENTINEL", "SENTINELS", self.service)
        replicas = [_pairs(one) for one in self.command(watcher, "SENTINEL", "REPLICAS", self.service)]
        ready = [one for one in replicas if one["flags"] == "slave" and one["master-link-status"] == "ok"]
        # The Sentinels' view of the primary is in these flags, too, and outlasts a failover.
        known = [one for one in map(_pairs, others) if not {"s_down", "disconnected"} & set(one["flags"].split(","))]
        return len(known) == len(self.watchers) - 1 and len(ready) == len(self.servers) - 1


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _until(done: Callable[[], bool], otherwise: str) -> None:
    """Look until it is so: these servers tell nobody of it."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.01)
