"""The scenes of the tour: a shared counter, the end of a holder, and hand-over.

Each scene returns the facts that it has measured. A function ``judge_...`` returns the checks of these facts.
"""

from __future__ import annotations

import random
import signal
import statistics
import time

import holdfast
from holdfast._clock import monotonic
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError
from holdfast.cli.demo.stage import PATIENCE, Actor, Stage

PROCESSES = 4
EACH = 250
"""Number of times that each process adds 1 to the counter."""

TTL = 2.0
"""Lease time in the second scene, in seconds."""

SLACK = 0.5
"""When the lease of a killed or stopped holder ends, the next waiter must hold the lock within this many seconds."""

ROUNDS = 9
"""Number of hand-overs that are measured for each lock library."""


def counter(stage: Stage, screen: Screen) -> Facts:
    """Play scene 1: several processes read a number, add 1 and write it back, without a lock and with one."""
    screen.title(f"1. {PROCESSES} processes count together, {EACH} times each: read a number, add 1, write")
    expected = PROCESSES * EACH
    actors = [stage.start("count", f"{stage.name}:count", str(EACH)) for _ in range(PROCESSES)]
    for actor in actors:
        actor.hear()
    facts: Facts = {"processes": PROCESSES, "each": EACH, "expected": expected}
    for how, label in (("unlocked", "without a lock"), ("locked", "with a lock")):
        counted, seconds = _count(stage, actors, how)
        facts[how] = {"counted": counted, "lost": expected - counted, "seconds": round(seconds, 3)}
        screen.line(f"  {label:15} {counted:5} of {expected} arrived, {expected - counted:4} lost {seconds:10.2f} s")
    return facts


def judge_counter(facts: Facts) -> list[Check]:
    return [
        Check("without a lock, additions are lost", facts["unlocked"]["lost"] > 0),
        Check("with the lock, none is", facts["locked"]["lost"] == 0),
    ]


def _count(stage: Stage, actors: list[Actor], how: str) -> tuple[int, float]:
    """Let all processes count. Return the last value of the counter, and the seconds for which any process was counting.

    ``how``: "locked" to count with the lock; any other word to count without it.
    """
    key = stage.key(f"count-{how}")
    for actor in actors:
        actor.tell(how, key)
    spans = [actor.hear(60.0) for actor in actors]
    number = stage.client.get(key)
    assert isinstance(number, bytes)
    return int(number), max(span["ended"] for span in spans) - min(span["began"] for span in spans)


def end_of_holder(stage: Stage, screen: Screen) -> Facts:
    """Play scene 2: one holder is killed, one is stopped for longer than its lease, and the third gets the lock."""
    screen.title(f"2. The holder is killed, and the next one stopped; their lease is {TTL:g} s")
    fenced, plain = stage.key("fenced"), stage.key("plain")
    first, second, third = (stage.start("hold", f"{stage.name}:hold", str(TTL), fenced, plain) for _ in range(3))
    for actor in (first, second, third):
        actor.hear()
    start = monotonic()

    def tell(at: float, text: str, fence: int | None = None) -> None:
        screen.line(f"  {at - start:5.2f} s  {text}" + (f", fence {fence}" if fence else ""))

    first.tell("go")
    one = first.hear()
    tell(one["got"], f"process {first.pid} acquires the lock", one["fence"])
    for number, actor in enumerate((second, third), 1):  # `_in_line` makes sure that they wait in this order
        actor.tell("go")
        _in_line(stage, f"{stage.name}:hold", number)
    time.sleep(0.2)
    killed = first.signal(signal.SIGKILL)
    tell(killed, f"process {first.pid} is killed with -9")
    two = second.hear()
    tell(two["got"], f"process {second.pid} holds the lock after {two['got'] - killed:.2f} s", two["fence"])
    second.tell("second")
    wrote = second.hear()
    stopped = second.signal(signal.SIGSTOP)
    tell(stopped, f"process {second.pid} writes, and is stopped with SIGSTOP")
    three = third.hear()
    tell(three["got"], f"process {third.pid} holds the lock after {three['got'] - stopped:.2f} s", three["fence"])
    third.tell("third")
    third_wrote = third.hear()
    second.tell("second-too-late")
    woken = second.signal(signal.SIGCONT)
    late = second.hear()
    tell(woken, f"process {second.pid} goes on, and writes as if it still held the lock:")
    values = [_text(stage.client.get(key)) for key in (fenced, plain)]
    said = "knows that its lease is lost" if late["lost"] else "does NOT know that its lease is lost"
    screen.line(f"           it {said}; the fence check {'accepts' if late['accepted'] else 'refuses'} its write.")
    screen.line(f"           the key with a fence check: {values[0]!r}; a key without: {values[1]!r}")
    return {
        "ttl": TTL,
        "fences": [one["fence"], two["fence"], three["fence"]],
        "after_kill": round(two["got"] - killed, 4),
        "after_stop": round(three["got"] - stopped, 4),
        "told_lost": late["lost"],
        "timely_writes_accepted": wrote["accepted"] and third_wrote["accepted"],
        "late_write_accepted": late["accepted"],
        "guarded_value": values[0],
        "plain_value": values[1],
    }


def _in_line(stage: Stage, name: str, number: int) -> None:
    """Wait until ``number`` processes wait for the lock. Raises ShowError after `PATIENCE` seconds."""
    deadline = monotonic() + PATIENCE
    while holdfast.Inspector(stage.url).show(name).waiters < number:
        if monotonic() > deadline:
            raise ShowError(f"not enough processes wait for lock {name}")
        time.sleep(0.01)


def judge_end_of_holder(facts: Facts) -> list[Check]:
    one, two, three = facts["fences"]
    latest = facts["ttl"] + SLACK
    refused = not facts["late_write_accepted"] and facts["guarded_value"] == "third"
    return [
        Check(f"a killed holder is replaced within its ttl + {SLACK:g} s", facts["after_kill"] <= latest),
        Check(f"a stopped holder is replaced within its ttl + {SLACK:g} s", facts["after_stop"] <= latest),
        Check("each holder has a higher fence than the one before", one < two < three),
        Check("a holder that was stopped for too long finds its lease lost", facts["told_lost"]),
        Check("the fence check accepts the writes of holders", facts["timely_writes_accepted"]),
        Check("the fence check refuses the write of a former holder", refused),
    ]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def hand_over(stage: Stage, screen: Screen) -> Facts:
    """Play scene 3: measure the time from a release until a waiting process holds the lock, with holdfast and redis-py."""
    screen.title(f"3. Hand-over: from a release until the waiter holds the lock, {ROUNDS} times each")
    name = f"{stage.name}:wait"
    waiter = stage.start("wait", name)
    waiter.hear()
    locks = {"holdfast": holdfast.Lock(stage.url, name), "redis-py": stage.client.lock(f"{name}:redis-py", timeout=30)}
    taken: dict[str, list[float]] = {kind: [] for kind in locks}
    for number in range(ROUNDS + 1):
        for kind, lock in locks.items():
            lock.acquire()
            waiter.tell(kind)
            waiter.hear()
            # The pause is random, because a fixed one would make a lock that polls ten times a second look better or worse.
            time.sleep(0.02 + random.uniform(0, 0.1))  # noqa: S311
            released = monotonic()
            lock.release()
            got = waiter.hear()["got"]
            if number:  # the first round opens connections, so it is not counted
                taken[kind].append(1000 * (got - released))
    medians = {kind: statistics.median(times) for kind, times in taken.items()}
    labels = {"holdfast": "holdfast", "redis-py": "redis-py's own Lock"}
    for kind, median in medians.items():
        screen.line(f"  {labels[kind]:20} median {median:8.2f} ms, longest {max(taken[kind]):8.2f} ms")
    return {
        "rounds": ROUNDS,
        **{
            f"{kind.replace('-', '_')}_ms": {"median": round(medians[kind], 3), "longest": round(max(times), 3)}
            for kind, times in taken.items()
        },
    }


def judge_hand_over(facts: Facts) -> list[Check]:
    sooner = facts["holdfast_ms"]["median"] < facts["redis_py_ms"]["median"]
    return [Check("holdfast hands over sooner than redis-py's Lock", sooner)]


SCENES = [(counter, judge_counter), (end_of_holder, judge_end_of_holder), (hand_over, judge_hand_over)]
