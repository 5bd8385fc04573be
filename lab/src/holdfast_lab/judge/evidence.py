"""A history arranged for judging: attempts to acquire, holders with their times, events of servers, and faults.

`Evidence` answers questions of the rules. For example: Which faults may a process have felt? By when must an event happen, if
its time limit begins again after each fault? A worker does one thing at a time. So an attempt (event ``ask``) ends with the
next outcome of the same worker on the same lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from holdfast.testing.history import Event, process_of
from holdfast_lab.judge.verdicts import Docket

INFINITY = float("inf")

ROUNDING = 1e-6
"""Seconds by which two computations of the same time may differ."""

MILLISECOND = 0.001
"""A millisecond in seconds. Servers measure leases in whole milliseconds."""

DRIFT = 1.005
"""Largest ratio of true time to the time of a slow clock, with a small margin."""

LASTING = frozenset(("silence", "slow", "restart", "refused", "pause", "hung"))
"""Kinds of faults that last until an event ``healed`` or ``resumed``, unless the event of the fault states an end.

Faults of other kinds end at once, unless their event states an end.
"""

SERVER = frozenset(("granted", "extended", "freed", "asked"))
"""Kinds of events that a server records about a lease."""

UNSETTLING = frozenset(("amnesia", "clock", "foreign"))
"""Faults after which a server may contradict its earlier answers: loss of data, set clock, changed keys."""

PASSING = frozenset(("cut", "lost-request", "lost-reply", "duplicate", "cancel"))
"""Faults of one message or connection. The next request finds the server unchanged."""


PROMPT = 0.1
"""Shortest time in seconds after which a process may stop waiting for a reply."""

RECONNECTED = 1.0
"""Maximum seconds until a lost connection is open again, if its server can be reached."""

SIGN_OF_LIFE = 1.0
"""If a process sends no request for this many seconds, the server may skip the waiters of the process in the queue."""


def kind_of(note: str) -> str:
    """Return the kind of a fault, which is the first word of its note."""
    return note.partition(" ")[0].rstrip(":")


def _forward(clock: Fault) -> float:
    """Return the seconds by which this fault set a clock forward; 0 if it did not."""
    words = clock.event.note.split()
    return float(words[3]) if words[1:3] == ["forward", "by"] else 0.0


class Ask:
    """An attempt of a worker to acquire a lock, with its outcome."""

    __slots__ = ("contended", "ended", "event", "outcome", "top")

    def __init__(self, event: Event, top: Hold | None, contended: bool) -> None:
        self.event = event
        self.top = top
        """The acquisition with the highest fence before this attempt; None: no earlier acquisition."""
        self.contended = contended
        """True if another worker held or acquired the lock during this attempt."""
        self.ended = INFINITY
        self.outcome = ""


class Hold:
    """An acquisition, until its holder no longer relies on it (`end`)."""

    __slots__ = (
        "ask", "attempt", "ended", "fence", "how", "lease", "lock", "process", "received", "since", "taken", "until", "who"
    )  # fmt: skip

    def __init__(self, taken: Event, ask: Ask | None, received: bool) -> None:
        self.taken = taken
        self.ask = ask
        self.since, _, self.who, self.lock, self.attempt, self.fence, self.until = taken[:7]
        self.lease = taken.lease or self.attempt
        self.received = received
        """True if the lease was handed on by another worker of the process."""
        self.process = process_of(self.who)
        self.ended = INFINITY
        """Time at which the holder released the lock, noticed its loss, or died; infinity: none of these."""
        self.how = ""

    @property
    def end(self) -> float:
        """Time at which the holder stops relying on the lock: at `ended`, or when its lease ends."""
        return min(self.until, self.ended)

    def stop(self, at: float, how: str) -> None:
        if self.ended == INFINITY:
            self.ended = at
            self.how = how


class Fault:
    """A fault, with its times and what it concerns."""

    __slots__ = ("at", "end", "event", "kind", "leases", "lock", "process")

    def __init__(self, event: Event, kind: str) -> None:
        self.event = event
        self.kind = kind
        self.at = event.at
        self.end = event.until or (INFINITY if kind in LASTING else event.at)
        self.process = process_of(event.who)
        self.lock = event.lock
        self.leases = frozenset(event.lease.split())
        """Leases that the fault concerns; empty if it may concern any lease."""

    @property
    def weather(self) -> bool:
        """True if the fault is a period in which any message may be slow."""
        return self.event.note == "slow weather"

    def ends(self, echo: float) -> float:
        """Return the latest time at which a process may feel the fault.

        A fault that delays messages may be felt for ``echo`` seconds, which is the longest delay of a message.
        """
        return max(self.end, self.at + echo) if self.kind == "slow" else self.end

    def concerns(self, lease: str) -> bool:
        return not self.leases or lease in self.leases

    def strikes(self, event: Event) -> bool:
        """Return whether this fault may have caused this event of a server."""
        if self.process != event.who or self.lock not in {"", event.lock} or not self.concerns(event.lease or event.attempt):
            return False
        return event.at in {self.at, self.end} or (bool(self.leases) and self.at <= event.at <= self.end)


class Place:
    """A position in the server's queue. A waiter that gives up may leave its position to another waiter of its process."""

    __slots__ = ("event", "owners")

    def __init__(self, event: Event) -> None:
        self.event = event
        """The event ``queued``, in which the waiter learns that it has this position."""
        self.owners: list[Ask | None] = []

    @property
    def last(self) -> Ask | None:
        return self.owners[-1]

    @property
    def ended(self) -> float:
        """Time at which the last waiter with this position stops waiting."""
        return self.event.at if self.last is None else self.last.ended


class Scene:
    """The events about one lock, by kind."""

    __slots__ = ("holds", "limits", "lined", "passed", "queued", "server", "top", "writes")

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.queued: dict[str, Place] = {}
        """Positions in the server's queue, by the lease that the waiter asks for."""
        self.lined: list[tuple[Event, Ask | None]] = []
        """Waiters in local queues, each with its event ``lined`` and its attempt."""
        self.passed: dict[str, list[Event]] = {}
        """Events ``passed``, in which a process hands a lease on, by the name of the lease."""
        self.writes: list[Event] = []
        self.server: list[Event] = []
        self.limits: list[Event] = []
        """Events ``limit``, which state the limit of permits from then on."""
        self.top: Hold | None = None


class Evidence:
    """A whole history, arranged by locks, leases and processes."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.docket = Docket()
        self.scenes: dict[str, Scene] = {}
        self.asks: list[Ask] = []
        self.leases: dict[str, list[Event]] = {}
        """Events about each lease, in order."""
        self.faults: list[Fault] = []
        self.struck: list[tuple[str, bool]] = []
        """The faults, each with its kind, and True if a worker held a lock when the fault began."""
        self.left: list[Event] = []
        self.processes: set[str] = set()
        """Names of the client processes. All other names are those of servers."""
        self.finished: dict[str, float] = {}
        """Time at which the history of each process ends; the key "" stands for the whole history."""
        self.crashed: dict[str, float] = {}
        self.start = self.last = 0.0
        self.size = self.renewals = 0
        self._asked: dict[str, float] = {}
        """Time at which each attempt began, by its name."""
        self._pending: dict[tuple[str, str], Ask] = {}
        self._open: dict[str, Hold] = {}
        self._read(events)
        self._of_servers = [fault for fault in self.faults if fault.process not in self.processes]
        self._touching: dict[str, list[Fault]] = {}
        """Results of `touching`, by process."""

    def _read(self, events: Iterable[Event]) -> None:
        readers: dict[str, Callable[[Event], object]] = {
            "ask": self._ask,
            "lined": self._lined,
            "queued": self._queued,
            "passed": self._passed,
            "taken": self._taken,
            "renewed": self._renewed,
            "release": self._stopped,
            "lost": self._stopped,
            "released": self._noted,
            "again": self._noted,
            "inner": self._noted,
            "granted": self._server,
            "extended": self._server,
            "freed": self._server,
            "asked": self._server,
            "limit": self._limit,
            "downgraded": self._noted,
            "lowered": self._noted,
            "write": self._write,
            "busy": self._outcome,
            "failed": self._outcome,
            "cancelled": self._outcome,
            "fault": self._fault,
            "healed": self._healed,
            "paused": self._paused,
            "resumed": self._resumed,
            "crashed": self._crashed,
            "left": self.left.append,
            "end": self._end,
        }
        event = None
        for event in events:
            if not self.size:
                self.start = event.at
            self.size += 1
            reader = readers.get(event.kind)
            if reader is not None:
                reader(event)
        if event is not None:
            self.last = event.at

    def asked(self, hold: Hold) -> float:
        """Return the time at which a lease was requested. If the lease was handed on, its first holder requested it."""
        return self._asked.get(hold.lease, hold.since)

    def said(self, hold: Hold) -> list[Event]:
        """Return the events of the holder, and those of the server about its lease."""
        return [event for event in self.leases[hold.lease] if event.attempt == hold.attempt or event.kind in SERVER]

    def holds(self) -> list[Hold]:
        return [hold for scene in self.scenes.values() for hold in scene.holds]

    def ms(self, at: float) -> str:
        """Format a time for a message, in milliseconds since the history began."""
        return f"{(at - self.start) * 1000:.3f} ms"

    # Faults that excuse events

    def late(self, rule: str, end: float, since: float, seconds: float, faults: Iterable[Fault]) -> bool:
        """Return whether ``end`` comes too late, and count the verdict under ``rule``.

        An end more than ``seconds`` after ``since`` is too late. This time limit begins again after each fault. A case that is
        in time only because of faults counts as excused.
        """
        if end <= since + seconds + ROUNDING:
            self.docket.decide(rule)
            return False
        return not self.docket.decide(rule, end <= self.due(since, seconds, faults) + ROUNDING)

    def granted(self, hold: Hold) -> float | None:
        """Return the time at which the server granted the lock for this acquisition.

        Return None if this time is unknown, or if several servers granted the lock.
        """
        grants = [event for event in self.leases[hold.lease] if event.kind == "granted" and event.at <= hold.since]
        return grants[-1].at if len({event.who for event in grants}) == 1 else None

    def unsettled(self, earlier: Hold, later: Hold, kinds: Collection[str] = UNSETTLING) -> bool:
        """Return whether a server fault between two acquisitions may have made the server grant the lock twice.

        The period begins when the server granted the lock for ``earlier``. If that time is unknown, it begins at the request
        for this lock. The period ends when the server granted the lock for ``later`` or, if unknown, when its holder got it.
        """
        if earlier.lease == later.lease:
            return False  # a worker that hands its lock on no longer relies on it
        since = self.granted(earlier)
        if since is None:
            since = self._asked.get(earlier.lease, float("-inf"))
        until = self.granted(later)
        return self.disturbed(since, later.since if until is None else until, earlier.lock, kinds)

    def apart(self, one: Hold, other: Hold, kinds: Collection[str] = UNSETTLING) -> bool:
        """Return whether a fault made a server free the lock of one acquisition early, and grant it to the other acquisition.

        If the history does not have the server's grant to the later acquisition, a fault between the two acquisitions is
        enough.
        """
        return self._robbed(one, other, kinds) or self._robbed(other, one, kinds)

    def _robbed(self, earlier: Hold, later: Hold, kinds: Collection[str]) -> bool:
        if earlier.lease == later.lease:
            return False  # a worker that hands its lock on no longer relies on it
        given = {
            event.who: event.at for event in self.leases[later.lease] if event.kind == "granted" and event.at <= later.since
        }
        if not given:
            return self.unsettled(earlier, later, kinds)
        return any(self._taken_away(earlier.lease, server, by, kinds) for server, by in given.items())

    def _taken_away(self, lease: str, server: str, by: float, kinds: Collection[str]) -> bool:
        """Return whether, by the time ``by``, a fault of these kinds made this server free the lease early.

        A server that lost its data grants nothing for a while, by its clock. If the clock was set meanwhile, the server may
        grant too early. So a loss of data then counts even if ``kinds`` does not contain it.
        """
        there = [fault for fault in self.faults if fault.process == server and fault.at <= by]
        faults = [fault for fault in there if fault.kind in kinds]
        kept: Event | None = None
        for event in self.leases[lease] if faults else ():
            if event.who != server or event.at > by:
                continue
            if event.kind in {"granted", "extended"}:
                kept = event
            elif event.kind == "freed" and kept is not None:
                since = kept.at
                clock = [fault for fault in faults if fault.kind == "clock" and fault.at >= since]
                striking = there if clock else faults
                if any(fault.kind in UNSETTLING and (fault.strikes(event) or fault.strikes(kept)) for fault in striking):
                    return True
                forward = DRIFT * sum(map(_forward, clock)) + MILLISECOND
                if kept.until - forward <= event.at < kept.until - ROUNDING:
                    return True
        return False

    def disturbed(self, since: float, until: float, lock: str, kinds: Collection[str] = UNSETTLING) -> bool:
        """Return whether a server fault of these kinds, on this lock or all locks, began or lasted in this period."""
        for fault in self._of_servers:  # a loop, because every rule asks this for nearly every event
            if fault.at <= until and fault.end >= since and fault.kind in kinds and (not fault.lock or fault.lock == lock):
                return True
        return False

    def felt(self, process: str, since: float, until: float, echo: float) -> list[Fault]:
        """Return the faults, except cancellations, that this process may have felt in the period from ``since`` to ``until``.

        A delayed message may arrive ``echo`` seconds after its fault, and a process may notice the loss of a connection
        `PROMPT` seconds after it. A time of slow messages matters only if the period is longer than `PROMPT` seconds.
        """
        slow = until > since + PROMPT
        felt = [fault for fault in self.touching(process) if fault.at <= until and fault.kind != "cancel"]
        return [fault for fault in felt if (slow if fault.weather else fault.ends(echo) + PROMPT >= since)]

    def lasting(self, process: str, since: float, until: float, echo: float) -> list[Fault]:
        """Return the faults that may have cost a waiter of this process its position in the period.

        A fault of a single message cannot do so. A longer fault can, until all connections are open again, `RECONNECTED`
        seconds after its end. A time of slow messages matters only if the period, from ``since`` to ``until``, is longer
        than `SIGN_OF_LIFE` seconds.
        """
        slow = until > since + SIGN_OF_LIFE
        felt = [fault for fault in self.touching(process) if fault.at <= until and fault.kind not in PASSING]
        return [fault for fault in felt if (slow if fault.weather else fault.ends(echo) + RECONNECTED >= since)]

    def mute(self, process: str, at: float) -> bool:
        """Return whether the server may skip the process's waiters at this time, because the process sends no requests."""
        own = [fault for fault in self.faults if fault.process == process and fault.kind in LASTING]
        return any(fault.at + SIGN_OF_LIFE <= at < fault.end + RECONNECTED for fault in own)

    def deafened(self, process: str, at: float) -> bool:
        """Return whether the process may have just lost its connection for notifications. The server then skips its waiters."""
        return any(fault.kind in PASSING and fault.at <= at <= fault.at + RECONNECTED for fault in self.touching(process))

    def was_deaf(self, process: str, hold: Hold) -> bool:
        """Return whether this process was not subscribed when this hold was granted, and slow messages may be the reason.

        When messages are slow, it may take several seconds to notice a lost connection and to subscribe again.
        """
        slow = any(fault.weather for fault in self.touching(process))
        grants = [event for event in self.leases[hold.lease] if event.kind == "granted" and event.at <= hold.since]
        return slow and bool(grants) and process in grants[-1].note.split()[1:]

    def touching(self, process: str) -> list[Fault]:
        """Return the faults that may affect this process: its own, and those of servers and of the network."""
        found = self._touching.get(process)
        if found is None:
            found = [fault for fault in self.faults if fault.process == process or fault.process not in self.processes]
            self._touching[process] = found
        return found

    @staticmethod
    def due(since: float, seconds: float, faults: Iterable[Fault]) -> float:
        """Return the latest allowed time of an event, ``seconds`` after ``since``.

        A fault that begins before this time starts the limit again at the end of the fault.
        """
        due = since + seconds
        for fault in faults:
            if fault.at > due:
                break
            due = max(due, fault.end + seconds)
        return due

    # Reading

    def _scene(self, lock: str) -> Scene:
        scene = self.scenes.get(lock)
        if scene is None:
            scene = self.scenes[lock] = Scene()
        return scene

    def _about(self, event: Event) -> None:
        lease = event.lease or event.attempt
        said = self.leases.get(lease)
        if said is None:
            self.leases[lease] = [event]
        else:
            said.append(event)

    def _ask(self, event: Event) -> None:
        scene = self._scene(event.lock)
        contended = any(hold.lock == event.lock and hold.until > event.at for hold in self._open.values())
        ask = self._pending[event.who, event.lock] = Ask(event, scene.top, contended)
        self.asks.append(ask)
        self._asked[event.attempt] = event.at
        self.processes.add(process_of(event.who))

    def _queued(self, event: Event) -> None:
        queued = self._scene(event.lock).queued
        place = queued.setdefault(event.lease or event.attempt, Place(event))
        if not event.lease:
            place.event = event
        place.owners.append(self._pending.get((event.who, event.lock)))

    def _lined(self, event: Event) -> None:
        self._scene(event.lock).lined.append((event, self._pending.get((event.who, event.lock))))

    def _passed(self, event: Event) -> None:
        self._scene(event.lock).passed.setdefault(event.lease, []).append(event)
        self._about(event)

    def _outcome(self, event: Event) -> Ask | None:
        ask = self._pending.pop((event.who, event.lock), None)
        if ask is not None:
            ask.ended = event.at
            ask.outcome = event.kind
        return ask

    def _taken(self, event: Event) -> None:
        scene = self._scene(event.lock)
        lease = event.lease or event.attempt
        received = bool(event.lease) and (lease in scene.passed or any(hold.lease == lease for hold in reversed(scene.holds)))
        hold = Hold(event, self._outcome(event), received)
        self.processes.add(hold.process)
        if hold.ask is not None and scene.holds and scene.holds[-1].since > hold.ask.event.at:
            hold.ask.contended = True
        scene.holds.append(hold)
        self._open[event.attempt] = hold
        if scene.top is None or scene.top.fence < hold.fence:
            scene.top = hold
        self._about(event)

    def _renewed(self, event: Event) -> None:
        hold = self._open.get(event.attempt)
        if hold is not None:
            # If the new end is in the past, the holder relied on the lease until it learned of that end, now at the
            # latest.
            learned = event.since or event.at
            hold.until = event.until if event.until > event.at else min(hold.until, max(event.until, learned))
        self.renewals += 1
        self._about(event)

    def _stopped(self, event: Event) -> None:
        hold = self._open.pop(event.attempt, None)
        if hold is not None:
            hold.stop(event.at, event.kind)
        self._about(event)

    def _noted(self, event: Event) -> None:
        self._about(event)

    def _server(self, event: Event) -> None:
        self._scene(event.lock).server.append(event)
        self._about(event)

    def _limit(self, event: Event) -> None:
        self._scene(event.lock).limits.append(event)

    def _write(self, event: Event) -> None:
        self._scene(event.lock).writes.append(event)

    def _strike(self, event: Event, kind: str) -> None:
        self.struck.append((kind, any(hold.until > event.at for hold in self._open.values())))
        self.faults.append(Fault(event, kind))

    def _fault(self, event: Event) -> None:
        self._strike(event, kind_of(event.note))

    def _known(self, event: Event, kind: str) -> bool:
        """Return whether an earlier fault of this kind, on the same process, still lasts."""
        return any(fault.kind == kind and fault.event.who == event.who and fault.end >= event.at for fault in self.faults)

    def _paused(self, event: Event) -> None:
        self.processes.add(process_of(event.who))
        if not self._known(event, "pause"):
            self._strike(event, "pause")

    def _resumed(self, event: Event) -> None:
        self._healed(event._replace(note="pause"))

    def _healed(self, event: Event) -> None:
        for fault in self.faults:
            of_it = event.who in {"", fault.event.who} and event.note in {"", fault.kind, fault.event.note}
            of_it = of_it and event.lock in {"", fault.lock} and event.lease in {"", fault.event.lease}
            if fault.end == INFINITY and of_it:
                fault.end = event.at
                if event.note == "silence":
                    break  # each connection is healed separately

    def _crashed(self, event: Event) -> None:
        self.processes.add(process_of(event.who))
        self.crashed.setdefault(event.who, event.at)
        if not self._known(event, "crash"):
            self._strike(event, "crash")
        for attempt, hold in list(self._open.items()):
            if hold.process == event.who:
                del self._open[attempt]
                hold.stop(event.at, "crashed")
        for key, ask in list(self._pending.items()):
            if process_of(ask.event.who) == event.who:
                del self._pending[key]
                ask.ended = event.at
                ask.outcome = "crashed"

    def _end(self, event: Event) -> None:
        self.finished[event.who] = event.at
