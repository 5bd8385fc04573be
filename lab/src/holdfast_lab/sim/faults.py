"""The faults of a simulated history: a function for each fault, and `mishaps` for faults of single requests.

Each fault begins at once and is recorded. A fault with a duration ends by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast._lua import codes
from holdfast_lab.sim.network import PublishedMessage, Wire
from holdfast_lab.sim.world import World

if TYPE_CHECKING:
    from holdfast._core.requests import Call
    from holdfast_lab.sim.server import Server
    from holdfast_lab.sim.world import Process

Fault = Callable[[World, random.Random, float], None]
"""A function that injects a fault into a world.

It gets random numbers for the details, and a duration in seconds, which some faults ignore.
"""


def _told(
    world: World,
    what: str,
    who: str,
    lasts: float,
    heal: Callable[[], object] | None = None,
    *,
    lock: str = "",
    lease: str = "",
) -> None:
    """Record a fault. After ``lasts`` seconds, call ``heal`` and record the end of the fault.

    If ``heal`` is None, the fault has no duration. ``who`` is the process, server or worker that it hits. ``lock`` is the key
    of the lock that it concerns, and ``lease`` has the names of the leases; "" stands for any lock or lease.
    """
    world.note("fault", who, lock, until=world.now + lasts if heal is not None else world.now, note=what, lease=lease)
    if heal is not None:

        def healed() -> None:
            heal()
            world.note("healed", who, lock, note=what)

        world.at(world.now + lasts, healed)


def _wire(world: World, rng: random.Random) -> Wire | None:
    wires = [wire for server in world.servers for wire in server.wires if wire.open]
    return rng.choice(wires) if wires else None


def _process(world: World, rng: random.Random) -> Process | None:
    alive = [process for process in world.processes if process.here]
    return rng.choice(alive) if alive else None


def cut(world: World, rng: random.Random, _lasts: float) -> None:
    wire = _wire(world, rng)
    if wire is not None:
        _told(world, "cut", wire.process.name, 0.0)
        wire.cut(requests_arrive=rng.random() < 0.5)


def silence(world: World, rng: random.Random, _lasts: float) -> None:
    """No message arrives any more on a random connection, and neither end notices."""
    wire = _wire(world, rng)
    if wire is not None and not wire.silent:
        world.note("fault", wire.process.name, note="silence")
        wire.silent = True


def pause(world: World, rng: random.Random, lasts: float) -> None:
    """Pause a random process, as SIGSTOP does."""
    process = _process(world, rng)
    if process is not None:
        _told(world, "pause", process.name, lasts, process.resume)
        process.pause()


def crash(world: World, rng: random.Random, _lasts: float) -> None:
    process = _process(world, rng)
    if process is not None:
        _told(world, "crash", process.name, 0.0)
        process.crash()


def close(world: World, rng: random.Random, _lasts: float) -> None:
    """Close a random process in an orderly way: it releases its locks, then exits."""
    process = _process(world, rng)
    if process is not None and not process.is_paused:
        _told(world, "crash: closed", process.name, 0.0)
        process.close()


def cancel(world: World, rng: random.Random, _lasts: float) -> None:
    """Cancel a random waiting task, or interrupt a random waiting thread."""
    workers = [w for process in world.processes if process.here for w in process.workers if not w.done and w.asked is not None]
    if workers:
        worker = rng.choice(workers)
        _told(world, "cancel", worker.name, 0.0)
        world.soon(worker.cancel)


def restart(world: World, rng: random.Random, lasts: float) -> None:
    """Stop a random server, then restart it with all its data."""
    _down(world, rng.choice(world.servers), "restart", lasts, 0.0)


def amnesia(world: World, rng: random.Random, lasts: float) -> None:
    """Stop a random server, then restart it without its data or without the last writes.

    On a real server, the last writes are lost if the append-only file was not synced to disk, or if a replica that lacks them
    becomes the primary.
    """
    forgets = rng.choice((float("inf"), 1.0, 0.2))
    _down(world, rng.choice(world.servers), f"amnesia of {forgets:g} s", lasts, forgets)


def _down(world: World, server: Server, what: str, lasts: float, forgets: float) -> None:
    if server.reachable:
        _told(world, what, server.name, lasts, lambda: server.start(forgets=forgets))
        server.crash()


def flush(world: World, rng: random.Random, _lasts: float) -> None:
    """Delete all keys of a random server, as FLUSHALL does. No broken connection shows the loss."""
    server = rng.choice(world.servers)
    _told(world, "amnesia: flushed", server.name, 0.0)
    server.flush()


def hang(world: World, rng: random.Random, lasts: float) -> None:
    """Suspend a random server. When it resumes, it carries out the requests that have arrived."""
    server = rng.choice(world.servers)
    if not server.hung and server.reachable:
        _told(world, "slow: server stopped", server.name, lasts, server.wake)
        server.hang()


def refuse(world: World, rng: random.Random, lasts: float) -> None:
    """A random server answers every request except SUBSCRIBE with the same error."""
    server = rng.choice(world.servers)
    text = rng.choice(
        ("LOADING the dataset", "BUSY running a script", "READONLY a replica", "MISCONF no snapshots", "NOPERM no")
    )
    _told(world, f"refused: {text}", server.name, lasts, lambda: setattr(server, "refusing", ""))
    server.refusing = text


def move(world: World, server: Server, lasts: float) -> None:
    """Move the Cluster slot of all keys. During the move, the server refuses requests with several keys."""
    if not server.moving:
        _told(world, "refused: the slot is moved", server.name, lasts, lambda: setattr(server, "moving", False))
        server.moving = True
        server.moves += 1


def turn_away(world: World, process: Process, lasts: float) -> None:
    """Refuse new connections of a process, as a server does that has reached its ``maxclients``."""
    if not process.turned_away:
        _told(world, "refused: no new connection", process.name, lasts, lambda: setattr(process, "turned_away", False))
        process.turned_away = True


def full(world: World, rng: random.Random, lasts: float) -> None:
    """Fill the memory of a random server, so that it refuses commands that may need memory."""
    server = rng.choice(world.servers)
    _told(world, "refused: memory is full", server.name, lasts, lambda: setattr(server.keyspace, "full", False))
    server.keyspace.full = True


def partition(world: World, rng: random.Random, lasts: float) -> None:
    """Cut some processes off from some servers. Neither side notices. The messages arrive when the fault ends."""
    processes = [process for process in world.processes if process.here and rng.random() < 0.5]
    servers = rng.sample(world.servers, rng.randint(1, len(world.servers)))
    for process in processes:
        _told(
            world,
            "silence: cut off from " + ", ".join(server.name for server in servers),
            process.name,
            lasts,
            partial(_mend, process),
        )
        process.cut_off_from.update(servers)
        for wire in _between(process):
            wire.silent = True


def _mend(process: Process) -> None:
    for wire in _between(process):
        wire.mend()
    process.cut_off_from.clear()


def _between(process: Process) -> list[Wire]:
    return [
        wire
        for server in process.world.servers
        if server in process.cut_off_from
        for wire in server.wires
        if wire.process is process
    ]


def deaf(world: World, rng: random.Random, lasts: float) -> None:
    """Lose all messages that a random server publishes. Its PUBLISH still counts the subscribers as receivers."""
    server = rng.choice(world.servers)
    _told(world, "deaf", server.name, lasts, lambda: setattr(server, "deaf", False))
    server.deaf = True


def unplug(world: World, rng: random.Random, _lasts: float) -> None:
    """Cut a random process's connection for notifications. Notifications are lost until the process subscribes again."""
    inboxes = [wire for wire in _inboxes(world) if wire.open]
    if inboxes:
        wire = rng.choice(inboxes)
        _told(world, "cut", wire.process.name, 0.0)
        wire.cut()


def stale(world: World, rng: random.Random, _lasts: float) -> None:
    """Send a random waiter an outdated grant of its lock. Its fence is the last one that the waiter has learned of."""
    waiting = [(wire, waiter) for wire in _inboxes(world) for waiter in wire.process.node.waiting.waiters()]
    if waiting:
        wire, waiter = rng.choice(waiting)
        _told(world, "duplicate", wire.process.name, 0.0)
        payload = f"{codes.GRANTED} {waiter.attempt.token} {waiter.busy.last_fence}"
        wire.down.send(PublishedMessage(min(wire.channels), payload.encode()))


def _inboxes(world: World) -> list[Wire]:
    return [wire for server in world.servers for wire in server.wires if wire.channels]


def clock(world: World, rng: random.Random, _lasts: float) -> None:
    """Set the clock of a random server forward or back."""
    server = rng.choice(world.servers)
    by = rng.choice((-1, 1)) * rng.choice((0.05, 1.0, 5.0))
    _told(world, f"clock {'back' if by < 0 else 'forward'} by {abs(by):g} s", server.name, 0.0)
    server.step_clock(by)


def foreign(world: World, rng: random.Random, lasts: float) -> None:
    """Change the key of a random lock, as another program might. Delete it later if it has no expiry."""
    server = rng.choice(world.servers)
    if server.locks:
        key = rng.choice(sorted(server.locks))
        command: tuple[str | bytes | int, ...] = rng.choice(
            (("DEL", key), ("SET", key, b"foreign", b"PX", 700), ("PERSIST", key), ("PEXPIRE", key, 50))
        )
        _told(world, f"foreign {command[0]!s}", server.name, lasts, lambda: server.remove_endless(key), lock=key.decode())
        server.meddle(*command)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        cut, silence, pause, crash, close, cancel, restart, amnesia, flush, hang, refuse, full, deaf, unplug, stale, clock,
        foreign,
    )
}  # fmt: skip
"""The faults of histories with one server, by name."""

QUORUM_FAULTS: dict[str, Fault] = {**FAULTS, "partition": partition}
"""The faults of histories with several servers, by name."""


def _leases(world: World, call: Call) -> str:
    """Return the names of the leases whose tokens are arguments of a request, separated by spaces."""
    tokens = [arg for arg in call.args if isinstance(arg, str)]
    return " ".join(name for token in tokens if (name := world.drawn_for(token)) != token)


MISHAPS = ("lost-request", "lost-reply", "lost-reply", "duplicate", "slow")


def mishaps(world: World, share: float, kinds: Sequence[str] = MISHAPS) -> Callable[[Wire, Call], bool]:
    """Return a function that injects one of ``kinds`` into the given share of the requests that arrive at servers.

    A lost request or reply also cuts the connection. The function returns True if the server must not carry out the request
    now: it is lost, delayed, or carried out already.
    """
    rng = world.rng

    def mishap(wire: Wire, call: Call) -> bool:
        if rng.random() >= share:
            return False
        what = rng.choice(kinds)
        _told(world, what, wire.process.name, 0.0, lease=_leases(world, call) if what == "duplicate" else "")
        if what == "lost-request":
            wire.cut()
        elif what == "lost-reply":
            wire.server.serve(wire, call)
            wire.cut(requests_arrive=rng.random() < 0.5)
        elif what == "duplicate":
            world.at(world.now + rng.choice((0.001, 0.3, 3.0)) * rng.random(), wire.server.again, wire, call)
            return False
        else:
            wire.up.stall(call, rng.choice((0.01, 0.5, 3.0)) * rng.random())
        return True

    return mishap
