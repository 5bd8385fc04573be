"""``holdfast demo counter``: two processes add 1 to the same number, and some of it is lost; four ways in which nothing is.

The processes are this module, run with ``python -m``: see `count`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast._core.transaction import TRIES
from holdfast._local.server import private
from holdfast.cli.demo.actors import act, hear, say
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, perform
from holdfast.cli.demo.stage import Actor, Stage, client

if TYPE_CHECKING:
    import redis

PROCESSES = 2
EACH = 1000
"""Times that each process adds 1."""

ROUNDS = 5
"""How often the first way is tried until something is lost. It always was in the first round; but that is chance."""

HEAD_START = 0.05
"""Seconds from the order on, so that all begin together."""

KEPT = 600_000
"""Milliseconds after which the numbers are gone, should the demo be killed."""

WAYS = {
    "naive": "GET, add 1, SET",
    "incr": "one command: INCR",
    "transaction": "WATCH, GET, MULTI, SET, EXEC: holdfast.transaction",
    "script": "a script on the server",
    "lock": "GET, add 1, SET under a lock: holdfast.Lock",
}


def main(*, as_json: bool) -> int:
    """Run it; returns the exit code."""

    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with private() as server, Stage(server.url) as stage:
            screen.line(f"holdfast demo counter: {PROCESSES} processes on {stage.server} add 1 to a number, {EACH} times each")
            actors = [stage.start("count", str(EACH), module=__spec__.name) for _ in range(PROCESSES)]
            for actor in actors:
                actor.hear()
            ways = {way: show(way, stage, actors, screen) for way in WAYS}
        facts = {"server": stage.server, "processes": PROCESSES, "each": EACH, "expected": PROCESSES * EACH, "ways": ways}
        checks = judge(facts)
        screen.line()
        for check in checks:
            screen.check(check)
        return facts, checks

    return perform("demo counter", play, as_json=as_json)


def show(way: str, stage: Stage, actors: list[Actor], screen: Screen) -> Facts:
    """All processes at once, in one way."""
    screen.title(WAYS[way])
    expected = PROCESSES * EACH
    for number in range(1, (ROUNDS if way == "naive" else 1) + 1):
        key = stage.key(f"{way}-{number}")
        start = time.monotonic() + HEAD_START
        for actor in actors:
            actor.tell(way, key, str(start))
        said = [actor.hear(60.0) for actor in actors]
        found = stage.client.get(key)
        counted = int(found) if isinstance(found, bytes) else 0
        if counted != expected:
            break
        if way == "naive":
            screen.line(f"  round {number} of at most {ROUNDS}: nothing was lost, by chance; once more")
    seconds = max(one["ended"] for one in said) - min(one["began"] for one in said)
    most = max(one["tries"] for one in said)
    speed = round(expected / seconds)
    tried = f"; at most {most} tries for one" if way == "transaction" else ""
    screen.line(f"  {counted:5} of {expected} arrived, {expected - counted:4} lost {speed:8} per second{tried}")
    return {"counted": counted, "lost": expected - counted, "per_second": speed, "rounds": number, "most_tries": most}


def judge(facts: Facts) -> list[Check]:
    """Check what must be true."""
    ways = facts["ways"]
    checks = [Check(f"without a cure, additions are lost: {ways['naive']['lost']}", ways["naive"]["lost"] > 0)]
    for way, name in (("incr", "INCR"), ("transaction", "the transaction"), ("script", "the script"), ("lock", "the lock")):
        checks.append(Check(f"with {name}, all {facts['expected']} arrive", ways[way]["lost"] == 0))
    return checks


# The process


def count(url: str, times: str) -> None:
    """Add 1, ``times`` times. Told how, to which key, and when to begin."""
    redis = client(url)
    redis.ping()  # connects
    say(ready=True)
    while words := hear():
        way, key, start = words.split()
        add, most = HOW[way](redis, url, key), 1
        time.sleep(max(0.0, float(start) - time.monotonic()))
        began = time.monotonic()
        for _ in range(int(times)):
            most = max(most, add() or 1)
        say(began=began, ended=time.monotonic(), tries=most)


def naive(redis: redis.Redis, _url: str, key: str) -> Callable[[], Any]:
    """The lock that everybody writes first."""

    def add() -> None:
        number = int(redis.get(key) or 0)
        redis.set(key, number + 1, px=KEPT)

    return add


def incr(redis: redis.Redis, _url: str, key: str) -> Callable[[], Any]:
    """The first cure: a command that does all of it."""

    def add() -> None:
        redis.incr(key)

    redis.set(key, 0, px=KEPT, nx=True)
    return add


def transaction(redis: redis.Redis, _url: str, key: str) -> Callable[[], int]:
    """The second one: again, if somebody else was quicker. Answers how often it was tried."""

    def add() -> int:
        tries = 0

        def add_one(tx: holdfast.Transaction) -> None:
            nonlocal tries
            tries += 1
            number = int(tx.read.get(key) or 0)
            tx.queue.set(key, number + 1, px=KEPT)

        holdfast.transaction(redis, key).run(add_one, tries=TRIES)
        return tries

    return add


def script(redis: redis.Redis, _url: str, key: str) -> Callable[[], Any]:
    """The third one: nobody else's command comes in between."""
    add_one = redis.register_script(Path(__file__).with_name("add_one.lua").read_text(encoding="ascii"))

    def add() -> None:
        add_one(keys=[key], args=[KEPT])

    return add


def lock(redis: redis.Redis, url: str, key: str) -> Callable[[], Any]:
    """The fourth one: the naive way, by one process at a time."""
    add_one = naive(redis, url, key)
    own = holdfast.Lock(url, f"{key}:lock")

    def add() -> None:
        with own:
            add_one()

    return add


HOW: dict[str, Callable[[Any, str, str], Callable[[], Any]]] = {
    "naive": naive,
    "incr": incr,
    "transaction": transaction,
    "script": script,
    "lock": lock,
}


if __name__ == "__main__":
    act({"count": count})
