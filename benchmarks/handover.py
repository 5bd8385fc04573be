"""Hand-over: from the moment the holder begins to release until the one waiting process has the lock.

Both processes read the same clock (CLOCK_MONOTONIC is the machine's). The floor is a bare PUBLISH that wakes a process
blocked in recv(): the same way through the server, without any lock.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection

from benchmarks.bare import Bare, pack
from benchmarks.report import Figure, Section, Times, quantile
from benchmarks.rivals import RIVALS, AnyLock
from benchmarks.wiretap import Seen, Wiretap

WAKE = "bare PUBLISH to a process blocked in recv()"
CHANNEL = "bench:wake"


def measure(url: str, *, rounds: int, watch: float) -> Section:
    """``rounds`` hand-overs each, interleaved; then the commands of ``watch`` seconds of waiting."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    follower = multiprocessing.get_context("spawn").Process(target=_follow, args=(url, theirs), daemon=True)
    follower.start()
    theirs.close()
    times: dict[str, list[float]] = {name: [] for name in (*RIVALS, WAKE)}
    leader = _Leader(url, ours)
    for number in range(rounds + 1):
        for name, found in times.items():
            # The pollers take a tenth of a second each: a third of the rounds is enough for them.
            if name in {"holdfast", WAKE} or number % 3 == 0:
                taken = leader.hand_over(name)
                if number:  # the first one opens connections
                    found.append(taken)
    section = Section("2. Hand-over to one waiting process")
    section.times = [Times.of(name, found) for name, found in times.items() if found]
    medians = {name: quantile(found, 0.5) for name, found in times.items() if found}
    section.figures = [
        Figure("holdfast, median", 1000 * medians["holdfast"], "ms", "≤", 1.0),
        Figure("holdfast / bare wake (median)", medians["holdfast"] / medians[WAKE], "", "≤", 3.0),
    ]
    if "redis-py Lock" in medians:
        section.figures.append(Figure("redis-py Lock / holdfast (median)", medians["redis-py Lock"] / medians["holdfast"]))
    for name in RIVALS:
        seen, others = leader.watch(name, watch)
        figure = f"{name}: commands per second while waiting"
        section.figures.append(Figure(figure, seen, "/s", "≤", 1.0) if name == "holdfast" else Figure(figure, seen, "/s"))
        section.notes += others
    ours.send(None)
    follower.join()
    return section


class _Leader:
    """The holder's side, in this process."""

    def __init__(self, url: str, pipe: Connection) -> None:
        self._url, self._pipe = url, pipe
        self._locks = {name: make(url, f"bench:handover:{name}") for name, make in RIVALS.items()}
        self._bare = Bare(url)

    def hand_over(self, name: str) -> float:
        """Seconds from the beginning of the release (or the PUBLISH) to the follower's awakening."""
        self._await_follower(name)
        # Long enough for it to be waiting; and at random, or a poller would look better or worse than it is.
        time.sleep(0.02 + random.uniform(0, 0.02 if name in {"holdfast", WAKE} else 0.1))
        lock = self._locks.get(name)
        publish = pack("PUBLISH", CHANNEL, "x")
        start = time.monotonic()
        if lock is None:
            self._bare.exchange(publish)
        else:
            lock.release()
        woken: float = self._pipe.recv()
        self._pipe.recv()
        return woken - start

    def watch(self, name: str, seconds: float) -> tuple[float, list[str]]:
        """Commands of a process that waits: requests about the lock per second, and what else there is."""
        self._await_follower(name)
        time.sleep(1.2)  # joining the queue, opening the inbox
        with Wiretap(self._url) as tap:
            time.sleep(seconds)
        self._locks[name].release()
        self._pipe.recv()
        self._pipe.recv()
        asked = [seen.at for seen in tap.seen if seen.source != "lua" and _about_the_lock(seen)]
        rate = (len(asked) - 1) / (asked[-1] - asked[0]) if len(asked) > 1 else len(asked) / seconds
        others = {seen.name for seen in tap.seen if seen.source != "lua" and not _about_the_lock(seen)}
        count = sum(1 for seen in tap.seen if seen.source != "lua" and not _about_the_lock(seen))
        return rate, [f"besides, {name} sent in {seconds:g} s: {count} times {', '.join(sorted(others))}"] if others else []

    def _await_follower(self, name: str) -> None:
        lock = self._locks.get(name)
        if lock is not None:
            assert lock.acquire() is not False
        self._pipe.send(name)
        self._pipe.recv()


def _about_the_lock(seen: Seen) -> bool:
    return any("bench:handover" in argument for argument in seen.arguments)


def _follow(url: str, pipe: Connection) -> None:
    """The waiting process. Tells when it is about to wait, when it woke, and when it has released again."""
    locks: dict[str, AnyLock] = {name: make(url, f"bench:handover:{name}") for name, make in RIVALS.items()}
    bare = Bare(url)
    bare("SUBSCRIBE", CHANNEL)
    while (name := pipe.recv()) is not None:
        pipe.send(None)
        if name == WAKE:
            bare.read()
            woken = time.monotonic()
        else:
            lock = locks[name]
            lock.acquire()
            woken = time.monotonic()
            lock.release()
        pipe.send(woken)
        pipe.send(None)
