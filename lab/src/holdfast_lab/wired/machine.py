"""A simulated machine for the library's drivers, with its keeper and event loop. It replaces `holdfast._net.system.SYSTEM`.

One thread runs at a time. When a thread blocks (the sync driver in a read, an event loop in its selector), the world runs
events until the thread may continue. The keeper makes a step when a socket in its selector is ready or its next action is due.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast._net.system import Looper, System
from holdfast._runtime.process import Process as RealProcess
from holdfast_lab.wired.sockets import FIRST, Network, Scripted, Selector, Socket, pipe
from holdfast_lab.wired.world import Bell

if TYPE_CHECKING:
    from holdfast._net.endpoint import Endpoint
    from holdfast_lab.wired.server import Server
    from holdfast_lab.wired.world import World


class Machine(System):
    """A machine with a clock and a network to its servers. The clock runs at ``rate``; 1: as virtual time.

    The port of an endpoint, less ``first_port``, is the index of its server. A single server is reached by every port.
    """

    def __init__(
        self, world: World, network: Network, servers: Sequence[Server], rng: random.Random, rate: float, *, first_port: int = 0
    ) -> None:
        self.world = world
        self.network = network
        self.rate = rate
        self.sockets: dict[int, Scripted] = {}
        """All scripted sockets, by file descriptor."""
        self._servers = servers
        self._first_port = first_port
        self._rng = rng
        self._base = rng.uniform(1000, 1_000_000)
        self.spawns = False
        """True if `start` runs each function in a simulated thread of its own, so that it may block."""
        self.held_up = 0.0
        """Probability that an event loop is held up when it looks at its sockets."""
        self.stalls = 0.0
        """Probability that a thread stalls when it was woken, or an event loop when it looks at its sockets."""
        self.keeper_stalls_until = 0.0
        """Virtual time until which the keeper makes no step."""
        self._in_background = False
        """True while a function passed to `start` runs. It connects in no time, because it began after a delay."""
        self.clock = self.monotonic = lambda: self._base + world.now * rate
        self.sleep = lambda seconds: world.wait(lambda: False, seconds / rate)  # type: ignore[assignment]
        self.urandom = rng.randbytes
        self.lock = self.rlock = lambda: Bell(world)
        self.selector = lambda: _ThreadSelector(self)
        self.socketpair = self._pipe

    def true(self, seconds: float) -> float:
        """Convert seconds of the machine's clock into seconds of virtual time."""
        return seconds / self.rate

    def latency(self) -> float:
        """Draw the seconds that a thread takes to run after it was woken."""
        return self._rng.expovariate(1 / 0.0005)

    def hold_up(self) -> None:
        """Delay an event loop now and then, as its callbacks or other programs do."""
        until = self.world.now + self.stall()
        if self.held_up and self._rng.random() < self.held_up:
            until += 4 * self.network.delay * self._rng.random()
        while self.world.now < until:
            self.world.step(until)

    def stall(self) -> float:
        """Draw the seconds for which a thread or event loop does not run: usually 0, and now and then longer than a lease.

        Sometimes, the keeper does not run in this time either, as in a process that is stopped.
        """
        if not self.stalls or self._rng.random() >= self.stalls:
            return 0.0
        seconds = self._rng.choice((0.3, 5.0)) * self._rng.random()
        if self._rng.random() < 0.5:
            self.keeper_stalls_until = self.world.now + seconds
        return seconds

    def connect(self, port: int) -> Socket:
        """Return a new socket that is connected to the server with this port. No time passes.

        Raises ConnectionRefusedError if the network refuses the connection.
        """
        if self.network.happens("refused"):
            raise ConnectionRefusedError("connection refused")
        number = FIRST + len(self.sockets)
        server = self._servers[port - self._first_port if len(self._servers) > 1 else 0]
        sock = self.sockets[number] = Socket(number, self.world, self.network, server)
        if self.network.happens("closed"):
            sock.close_at_once()
        return sock

    def dial(self, endpoint: Endpoint, timeout: float) -> socket.socket:
        if not self._in_background:
            self.sleep(min(timeout, 2 * self.network.way()))
        return self.connect(endpoint.port)

    def readable(self, sock: socket.socket, seconds: float) -> bool:
        assert isinstance(sock, Scripted)
        return self.world.wait(lambda: sock.readable, self.true(max(0.0, seconds)))

    def start(self, what: Callable[..., object], *args: Any, **_: str) -> None:
        if self.spawns and self.world.callers is not None:
            self.world.callers.start(lambda: what(*args))
            return

        def run() -> None:
            self._in_background = True
            try:
                what(*args)
            finally:
                self._in_background = False

        self.world.after(2 * self.network.way(), run)

    def hang_up(self, sock: socket.socket) -> None:
        sock.shutdown(socket.SHUT_RDWR)

    def keep(self, keeper: Looper) -> threading.Thread:
        Turns(self, keeper)
        return threading.Thread(target=keeper.run)  # never started: `Turns` runs the keeper

    def _pipe(self) -> tuple[socket.socket, socket.socket]:
        ends = pipe(FIRST + len(self.sockets))
        self.sockets.update({end.fileno(): end for end in ends})
        return ends


class Turns:
    """The keeper on a simulated machine. Its steps are planned events."""

    def __init__(self, machine: Machine, keeper: Looper) -> None:
        self._machine = machine
        self._keeper = keeper
        self._wake_at = machine.world.now
        self._begun = False
        self._coming = False
        """True while the next step is planned."""
        machine.world.watchers.append(self._look)
        machine.world.at(machine.world.now)

    def _look(self) -> None:
        selector = self._keeper.selector
        assert isinstance(selector, Selector)
        if not self._coming and (self._machine.world.now >= self._wake_at or selector.ready()):
            self._coming = True
            self._machine.world.after(self._machine.latency(), self._turn)

    def _turn(self) -> None:
        if self._machine.world.now < self._machine.keeper_stalls_until:
            self._machine.world.at(self._machine.keeper_stalls_until + self._machine.latency(), self._turn)
            return
        selector = self._keeper.selector
        assert isinstance(selector, Selector)
        self._coming = False
        if self._begun:
            self._keeper.after_wait(selector.ready())
        self._begun = True
        seconds = self._keeper.before_wait()
        world = self._machine.world
        self._wake_at = float("inf") if seconds is None else world.now + max(1e-6, self._machine.true(seconds))
        if seconds is not None:
            world.at(self._wake_at)


class Process(RealProcess):
    """The library's registry of a process, on a simulated machine."""

    def facts(self) -> dict[str, Any]:
        """Return the same facts on every machine.

        Requests contain them, and a fault may cut a request at a random byte, so their length must not vary.
        """
        return {"host": "scripted", "pid": 1, "label": None, "start": 0.0}


class _ThreadSelector(Selector):
    """A selector for the keeper, and for a thread that uses several servers."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.sockets)
        self._machine = machine

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        seconds = float("inf") if timeout is None else self._machine.true(max(0.0, timeout))
        self._machine.world.wait(lambda: bool(self.ready()), seconds)
        return self.ready()


class _LoopSelector(Selector):
    """A selector for the event loop."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.sockets)
        self._machine = machine

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._machine.hold_up()
        ready, world = self.ready(), self._machine.world
        if not ready and (timeout is None or timeout > 0) and world.callers is not None:
            steps, seconds = world.steps, float("inf") if timeout is None else max(1e-6, self._machine.true(timeout))
            world.wait(lambda: world.steps > steps or bool(self.ready()), seconds)  # as below, one event only
            ready = self.ready()
        elif not ready and (timeout is None or timeout > 0):
            # Run one event only: it may have scheduled a callback, which must run before the next event.
            world.step(float("inf") if timeout is None else world.now + max(1e-6, self._machine.true(timeout)))
            ready = self.ready()
        return ready


class Loop(asyncio.SelectorEventLoop):
    """asyncio's own event loop and transports, with scripted sockets and virtual time."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        super().__init__(_LoopSelector(machine))

    def time(self) -> float:
        return self._machine.monotonic()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function. If `Machine.spawns` is True, it runs in a simulated thread, which may block."""
        if not self._machine.spawns:
            return super().run_in_executor(executor, func, *args)
        future = self.create_future()

        def settle(put: Callable[[Any], None], result: Any) -> None:
            if not future.done():
                put(result)

        def run() -> None:
            outcome: tuple[Callable[[Any], None], Any]
            try:
                outcome = future.set_result, func(*args)
            except Exception as error:  # noqa: BLE001 - raised where the future is awaited
                outcome = future.set_exception, error
            if not self.is_closed():
                self.call_soon_threadsafe(settle, *outcome)

        self._machine.start(run)
        return future

    def let_go(self) -> list[Scripted]:
        """Detach the scripted sockets from the loop's transports, and return them.

        A loop that is closed before its connections leaves their sockets to the garbage collector, which would warn of each.
        """
        found: list[Scripted] = []
        for transport in list(self._transports.values()):  # type: ignore[attr-defined]
            sock, transport._sock = transport._sock, None  # noqa: SLF001 - asyncio has no other way to detach a socket
            if sock is not None:
                found.append(sock)
        return found

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = 0, **_: Any) -> Any:  # noqa: ARG002
        await asyncio.sleep(2 * self._machine.network.way())
        opened = await super().create_connection(protocol_factory, sock=self._machine.connect(port))
        if self._machine.network.closed:  # as long as a login, in which the connection may end
            await asyncio.sleep(2 * self._machine.network.way())
        return opened
