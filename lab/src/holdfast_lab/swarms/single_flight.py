"""Seeded histories of single flight with faults: many lookups of one cached key at once. Five rules are checked.

- S1: a lookup that begins after an invalidation finds no older version. No lookup finds a value that expired longer ago than
  it accepts. A client may also store a version directly, without a load. Such a version may replace a newer one only if both
  were written at the same time.
- S2: no two clients believe at the same time that they load the key, unless the key was invalidated in between.
- S3: no client has to load the value before it has expired, unless the client asked for an early reload. Without faults,
  each loaded value is stored, unless the key was invalidated during the load.
- S4: a client waits only while another client loads. A client that accepts a stale value does not wait if there is one.
- S5: the fences of loads rise. Each value that a lookup finds was stored with the fence of its load, and no later lookup
  finds an older value. In the end, no data is left behind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from holdfast._core.requests import Sleep
from holdfast._core.single_flight.flight import LookupPolicy, entry_spec
from holdfast.testing.history import Event, process_of
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import Evidence
from holdfast_lab.judge.excuses import AMNESIA, CLOCK, Upsets
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket
from holdfast_lab.sim.faults import FAULTS
from holdfast_lab.sim.leftovers import told_at_once, write_the_end
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.single_flight_client import CacheClient, Source
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Api, Process, World
from holdfast_lab.swarms.swarm import History, Swarm

TIME_LIMIT = 600.0
"""Seconds of virtual time within which every worker must finish."""

STEPS = 50_000
"""Number of events after which a history is ended as an endless loop."""

KINDS = sorted(FAULTS.keys() - {"amnesia", "flush", "foreign", "stale"})
"""Kinds of faults that a history may have. A loss of data is not among them, because it also loses the invalidations."""

QUIET = {"cut", "crash", "close", "cancel", "deaf", "unplug"}
"""Kinds of faults during which the server still answers waiters. In histories with other kinds, S4 is not judged."""

LATE = {"cut", "silence", "hang", "duplicate", "slow", "lost-reply"}
"""Kinds of faults with which a request may reach the server long after its sender has given up."""

RATE = 0.005
"""Maximum relative difference between the rates of two clocks, plus a margin."""


@dataclass(slots=True)
class PlannedLookup:
    """A planned lookup or write. Times are in seconds."""

    policy: LookupPolicy
    takes: float
    fails: bool
    write: str
    """How the worker invalidates the key after it has written to the source; "": the round is a lookup, not a write."""
    gap: float


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed. Times are in seconds."""

    lease: float
    ttl: float
    stale: float
    latency: float
    slow_share: float
    mishaps: float
    workers: list[tuple[int, list[PlannedLookup]]] = field(default_factory=list)
    """For each worker: the index of its process, and the lookups and writes that it is to make."""
    faults: list[tuple[int, str, float]] = field(default_factory=list)
    """For each fault: the number of events before it, its kind, and its duration."""

    bound: float | None = None
    """Seconds within which waiters learn that a load has ended, even if messages are lost; None: rule S4 computes them."""

    @property
    def kinds(self) -> set[str]:
        return {kind for _, kind, _ in self.faults}


def draw(rng: random.Random) -> Profile:
    choice, uniform = rng.choice, rng.random
    profile = Profile(
        lease=choice((0.3, 1.0, 2.0, 5.0)),
        ttl=choice((0.05, 0.5, 3.0, 30.0)),
        stale=choice((0.0, 0.0, 1.0, 10.0)),
        latency=choice((0.0003, 0.0003, 0.003, 0.02)),
        slow_share=choice((0.0, 0.0, 0.0, 0.02, 0.1)),
        mishaps=choice((0.0, 0.0, 0.01, 0.05, 0.2)),
    )
    takes = choice((0.0, 0.1, 1.0, 1.5)) * profile.lease
    fails, writes = choice((0.0, 0.1, 0.5)), choice((0.0, 0.1, 0.4))
    hows: tuple[str, ...] = choice((("drop",), ("tag",), ("drop", "tag", "all"), ("store",)))
    gap = choice((0.0, 0.001, profile.ttl))
    for process in range(choice((2, 3, 3))):
        for number in range(choice((1, 2, 3))):
            rounds = []
            for _ in range(choice((1, 2, 4))):
                policy = LookupPolicy(
                    wait=choice((None, None, None, 30.0, 1.0, 0.1, 0.0)),
                    stale=choice((0.0, profile.stale)),
                    early=int(2000 * uniform()) if uniform() < 0.15 else 0,
                    load=uniform() < 0.9,
                )
                # Two workers that store values might store in another order than they wrote.
                write = choice(hows) if uniform() < writes and (hows != ("store",) or not process + number) else ""
                rounds.append(PlannedLookup(policy, takes * uniform(), uniform() < fails, write, gap * uniform()))
            profile.workers.append((process, rounds))
    kinds, times = rng.sample(KINDS, choice((0, 1, 1, 2))), (1, 1, 2)
    if uniform() < 0.1:  # only clean-up matters, so that no other fault excuses leftovers
        kinds, times, profile.mishaps, profile.slow_share = ["cancel"], (4, 6, 8), 0.0, 0.0
    for kind in kinds:
        for _ in range(choice(times)):
            lasts, at = choice((0.01, 0.3, 1.0, 3.0)) * uniform() * max(1.0, profile.lease), int(120 * uniform() ** 2)
            profile.faults.append((at, kind, lasts))
    return profile


async def work(client: CacheClient, rounds: list[PlannedLookup]) -> None:
    """Make the planned lookups and writes of a worker, one after the other."""
    for planned in rounds:
        if planned.write:
            await client.write(planned.write)
        else:
            await client.get(planned.policy, planned.takes, fails=planned.fails)
        await Sleep(planned.gap)


class FlightHistory(History[Profile]):
    """A history of many lookups of one key."""

    hangs, fails = "S4", "S0"

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        profile = draw(rng := random.Random(seed))
        theme.redraw(seed, profile, lambda share: int(120 * share**2))
        super().__init__(seed, rng, profile, trace=trace)
        world = self.world
        server = Server(world, rate=1 + rng.choice((0.0, 0.002, -0.002)))
        source = Source(entry_spec("hf:cache:", "c", "x", lease=profile.lease), profile.ttl, profile.stale)
        for number in range(1 + max(process for process, _ in profile.workers)):
            rate = 1 + rng.choice((0.0, 0.002, -0.002))
            api: Api = rng.choice(("threads", "asyncio"))
            Process(world, server, f"c{number + 1}", api=api, offset=1000 * rng.random(), rate=rate)
            if profile.slow_share:
                world.note("fault", world.processes[-1].name, note="slow weather", until=world.now)
        for number, (of, rounds) in enumerate(profile.workers):
            worker = Worker(world.processes[of], str(number + 1))
            worker.start(work(CacheClient(worker, source), rounds))
        for step, kind, lasts in profile.faults:
            world.plan(1 + step, partial(FAULTS[kind], world, rng, lasts))
        theme.begin(seed, world)

    def go(self) -> None:
        world = self.world
        if world.work(EPOCH + TIME_LIMIT, STEPS):
            settle(world, self.profile)
        else:
            self.found.append(Violation("S4", f"still waiting after {world.now - EPOCH:.0f} s and {world.steps} steps"))

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        case = Case(self.world.history, self.profile)
        found = self.found + [violation for rule in RULES for violation in rule(case)]
        if coverage is not None:
            coverage.docket += case.docket
            coverage.add(Evidence(event for event in self.world.history if event.kind in {"fault", "healed"}))
        self.counts = case.counts()
        return found


def settle(world: World, profile: Profile) -> None:
    """End a history whose workers have finished: let all leases expire, and record leftovers.

    If there are no faults except cancellations, also record what is left before the leases expire.
    """
    world.mishap = None
    world.pass_time(20 * profile.latency)
    told_at_once(world)
    healed = max((lasts for _, _, lasts in profile.faults), default=0.0)
    world.pass_time(healed + 2 * profile.lease + 15.0)
    write_the_end(world)


# Rules


@dataclass(slots=True)
class Lookup:
    """A lookup, and the load that followed from it, if any."""

    want: Event
    end: Event | None = None
    """The outcome of the lookup."""
    over: float = float("inf")
    """Virtual time at which this client's load ended or its process crashed; infinity: neither happened."""


@dataclass(slots=True)
class Invalidation:
    """A write to the source, and the invalidation that follows it."""

    begin: Event
    done: float = float("inf")
    over: float = float("inf")
    """Virtual time at which the invalidation was done or failed, or its process crashed; infinity: none of these."""


class Case:
    """A history with its lookups, stored values and invalidations."""

    def __init__(self, history: list[Event], profile: Profile) -> None:
        self.history = history
        self.profile = profile
        self.docket = Docket()
        self.upsets = Upsets(history)
        self.lookups: dict[str, Lookup] = {}
        self.lands: dict[int, Event] = {}
        """For each fence of a load: the event in which the loader sends the value to the server."""
        self.landed: dict[int, Event] = {}
        """For each fence of a load: the event in which the loader learns that the server has stored the value."""
        self.voids: dict[int, Invalidation] = {}
        """The invalidations, by the version that was written to the source before the invalidation."""
        crashed = {event.who: event.at for event in history if event.kind == "crashed"}
        for event in history:
            self._read(event)
        for lookup in self.lookups.values():
            lookup.over = min(lookup.over, crashed.get(process_of(lookup.want.who), float("inf")))
        for void in self.voids.values():
            void.over = min(void.over, void.done, crashed.get(process_of(void.begin.who), float("inf")))

    def _read(self, event: Event) -> None:
        match event.kind:
            case "want":
                self.lookups[event.attempt] = Lookup(event)
            case "found" | "load" | "busy" | "absent" | "failed" | "cancelled":
                lookup = self.lookups[event.attempt]
                lookup.end = lookup.end or event
                if event.kind == "failed":
                    lookup.over = min(lookup.over, event.at)
            case "land":
                self.lands[event.fence] = event
            case "landed":
                self.lookups[event.attempt].over = event.at
                self.landed |= {} if event.note else {event.fence: event}
            case "aborted":
                self.lookups[event.attempt].over = event.at
            case "void":
                self.voids[event.last] = Invalidation(event)
            case "voided":
                self.voids[event.last].done = event.at
            case "unsure":
                self.voids[event.last].over = event.at

    @property
    def calm(self) -> bool:
        """True if there are no faults except cancellations, and no message is slow or lost."""
        return not (self.profile.mishaps or self.profile.slow_share or self.profile.kinds - {"cancel"})

    def ends(self, kind: str) -> Iterator[tuple[Lookup, Event]]:
        """Yield each lookup with an outcome of this kind, together with the outcome."""
        for lookup in self.lookups.values():
            if lookup.end is not None and lookup.end.kind == kind:
                yield lookup, lookup.end

    def invalidated(self, since: float, until: float) -> bool:
        """Return True if the value may have been invalidated between two virtual times.

        Under some faults, this is always possible. A late copy of an invalidation deletes a value once more, and a value
        expires early if the server's clock is set.
        """
        late = self.profile.mishaps or self.profile.kinds & LATE
        voids = [void for void in self.voids.values() if void.begin.at <= until]
        return "clock" in self.profile.kinds or any(late or void.done >= since for void in voids)

    def settled(self, found: Event) -> float:
        """Return the virtual time from which on a write of a newer version makes the found version invalid.

        If the found version was loaded, return 0, because every write of a newer version counts. If a client stored the found
        version directly, return the end of this store, because two stores at the same time may happen in either order.
        """
        land, put = self.lands.get(found.fence), self.voids.get(found.last)
        loaded = land is not None and land.last == found.last
        return 0.0 if loaded or put is None or put.begin.note != "store" else put.over

    def dropped(self, loading: Lookup) -> float:
        """Return the virtual time at which an invalidation ended the load lease of this lookup; infinity: none did."""
        at = loading.end.at if loading.end is not None else loading.over
        return min(
            (v.done for v in self.voids.values() if v.begin.note in {"drop", "store"} and v.begin.at > at), default=float("inf")
        )

    def had_stale(self, lookup: Lookup) -> bool:
        """Return True if a stale value that this lookup accepts was there from the lookup's start until one second later."""
        at, kept = lookup.want.at, min(lookup.want.until, self.profile.stale)
        return any(
            landed.at < at < self.lands[landed.fence].until + 0.9 * kept
            and not self.invalidated(self.lands[landed.fence].at, at + 1)
            for landed in self.landed.values()
            if kept
        )

    def counts(self) -> Counter[str]:
        counts = Counter(event.kind for event in self.history if event.attempt or event.kind == "voided")
        counts["stale"] = sum(end.note == "stale" for _, end in self.ends("found"))
        counts["refused land"] = counts["landed"] - len(self.landed)
        counts["waited"] = sum(
            end.at - lookup.want.at > 3 * self.profile.latency + 0.5 * self.profile.lease for lookup, end in self.ends("found")
        )
        counts["died loading"] = sum(
            any(event.kind == "crashed" and event.at == lookup.over for event in self.history)
            for lookup, _ in self.ends("load")
        )
        return Counter({f"flight {what}": count for what, count in counts.items()})


def s1_nothing_void_is_found(case: Case) -> Iterator[Violation]:
    """S1: no lookup finds a version that was invalidated before, or a value that expired longer ago than it accepts."""
    for lookup, found in case.ends("found"):
        done = [(v, void) for v, void in case.voids.items() if void.done < lookup.want.at]
        since = case.settled(found)
        counts = [v for v, void in done if not case.upsets.between(void.begin.at, found.at, AMNESIA) and void.begin.at >= since]
        floor = max(counts, default=0)
        case.docket.decide("S1")
        if found.last < floor:
            said = f"{found.who} found version {found.last} after version {floor} was written and the key invalidated"
            yield Violation("S1", said, (lookup.want, found))
        landed = case.landed.get(found.fence)
        if landed is None or case.docket.decide("S1 old", "clock" in case.profile.kinds):
            continue
        old = lookup.want.at - landed.at - case.profile.ttl * (1 + RATE) - 0.002
        if old > lookup.want.until or (old > 0 and found.note != "stale"):
            yield Violation("S1", f"{found.who} found a value that has been stale for {old:.3f} s", (lookup.want, found))


def s2_one_loads(case: Case) -> Iterator[Violation]:
    """S2: no client gets the load lease while another one believes that it loads.

    Excused: the key was invalidated, or the server lost its data, after the earlier lookup began.
    """
    for lookup, load in case.ends("load"):
        others = [case.lookups[name] for name in load.note.split()]
        if not others:
            case.docket.decide("S2")
        for other in others:
            # The process may have slept since the server's reply. Then the other load is the later one.
            earlier = lookup if other.end is not None and load.fence < other.end.fence else other
            forgot = case.upsets.between(earlier.want.at, load.at, AMNESIA)
            if not case.docket.decide("S2", forgot or case.invalidated(earlier.want.at, load.at)):
                said = f"{load.who} got the load lease while {other.want.who} believed that it loads"
                yield Violation("S2", said, (other.want, load))


def s3_nothing_fresh_is_loaded(case: Case) -> Iterator[Violation]:
    """S3: no client gets the load lease before the value has expired, or loses the load lease without a fault.

    Excused: the client asked for an early reload, the key was invalidated, or the server lost its data.
    """
    for lookup, load in case.ends("load"):
        for landed in case.landed.values():
            sent = case.lands[landed.fence].at
            fresh = landed.until - RATE * case.profile.ttl - 0.002
            if not landed.at < lookup.want.at or lookup.want.fence:
                continue
            forgot = case.upsets.between(sent, load.at, AMNESIA)
            if not case.docket.decide("S3", forgot or case.invalidated(sent, load.at)) and load.at < fresh:
                yield Violation("S3", f"{load.who} is to load a value that {landed.who} has just stored", (landed, load))
    for lookup, load in case.ends("load"):
        if not case.docket.decide("S3 lost", not case.calm):
            refused = any(event.attempt == load.attempt and event.note == "refused" for event in case.history)
            if refused and not case.invalidated(lookup.want.at, lookup.over):
                yield Violation("S3", f"{load.who} lost its load lease without a fault", (load,))


def s4_who_waits_is_told(case: Case) -> Iterator[Violation]:
    """S4: no lookup waits too long while no client loads, or although there is a stale value that it accepts.

    The time limit is short in histories without faults except cancellations. In other histories, a waiter may wait until the
    load lease has expired.
    """
    profile = case.profile
    if profile.kinds - QUIET:
        case.docket.excused["S4"] += len(case.lookups)
        return
    case.docket.judged["S4"] += len(case.lookups)
    bound = profile.bound or (0.1 + 40 * profile.latency if case.calm else 1.1 * profile.lease + 8.0)
    for lookup in case.lookups.values():
        since = lookup.want.at
        until = lookup.end.at if lookup.end is not None else min(lookup.over, case.history[-1].at)
        for loading, _ in sorted(case.ends("load"), key=lambda each: each[0].want.at):
            if loading is lookup or loading.over < since:
                continue
            if loading.want.at > since + bound:
                break
            since = max(since, min(loading.over, case.dropped(loading)))
        if until > since + bound:
            said = f"{lookup.want.who} waited for {until - since:.3f} s while no client loaded"
            yield Violation("S4", said, (lookup.want,))
        if case.calm and until > lookup.want.at + bound and case.had_stale(lookup):
            yield Violation("S4", f"{lookup.want.who} waited although it accepts a stale value", (lookup.want,))


def s5_all_is_in_order(case: Case) -> Iterator[Violation]:
    """S5: fences rise, a lookup finds a stored value, and none that is older than earlier ones. Nothing is left behind.

    Excused, for the fences: the server lost its data, and its clock was set.
    """
    set_back = bool(case.upsets.of(AMNESIA) and case.upsets.of(CLOCK))
    loads = sorted(case.ends("load"), key=lambda each: each[1].at)
    for lookup, load in loads:
        if case.docket.decide("S5", set_back):
            continue
        if any(other.at < lookup.want.at and other.fence >= load.fence for _, other in loads):
            yield Violation("S5", f"the fence of {load.who}'s load is not above all earlier ones", (load,))
    stored = {version for version, void in case.voids.items() if void.begin.note == "store"}
    finds = list(case.ends("found"))
    for lookup, found in finds:
        case.docket.decide("S5")
        land = case.lands.get(found.fence)
        if found.last not in stored and (land is None or land.last != found.last):
            yield Violation("S5", f"{found.who} found a value that no client has stored", (found,))
        newer = [other for _, other in finds if other.at < lookup.want.at and other.fence > found.fence]
        if any(not case.upsets.between(other.at, found.at, AMNESIA) for other in newer):
            yield Violation("S5", f"{found.who} found an older value than an earlier lookup", (found,))
    yield from (Violation("S5", f"left behind: {event.note}", (event,)) for event in case.history if event.kind == "left")


RULES = (
    s1_nothing_void_is_found,
    s2_one_loads,
    s3_nothing_fresh_is_loaded,
    s4_who_waits_is_told,
    s5_all_is_in_order,
)

ENOUGH = {
    "flight found": 2000,
    "flight load": 1000,
    "flight waited": 200,
    "flight stale": 20,
    "flight refused land": 100,
    "flight aborted": 200,
    "flight voided": 200,
    "flight died loading": 10,
    **{f"script single_flight/{name}": 200 for name in ("get_or_lease", "store", "cancel_load")},
    **{f"script single_flight/{name}": 50 for name in ("delete", "invalidate")},
}
"""Minimum counts of events in 1,000 histories of single flight."""

SWARM = Swarm(FlightHistory, ENOUGH, ("S1", "S1 old", "S2", "S3", "S3 lost", "S4", "S5"))
