"""``holdfast demo counter``: two processes add 1 to the same number, first without any care, then with each of four cures.

The processes run this module with ``python -m``; see `count`.
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
"""How often each process adds 1."""

ROUNDS = 5
"""Maximum number of rounds without a cure. No further round runs after an addition was lost, which depends on chance."""

HEAD_START = 0.05
"""Seconds between the order to count and the moment at which all processes start."""

KEPT = 600_000
"""Milliseconds after which the keys expire, in case the demonstration is killed."""

WAYS = {
    "naive": "GET, add 1, SET",
    "incr": "one command: INCR",
    "transaction": "WATCH, GET, MULTI, SET, EXEC: holdfast.transaction",
    "script": "a script on the server",
    "lock": "GET, add 1, SET under a lock: holdfast.Lock",
}


def main(*, as_json: bool) -> int:
    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with private() as server, Stage(server.url) as stage:
            screen.line(f"holdfast demo counter: {PROCESSES} processes on {stage.server} add 1 to a number {EACH} times")
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
    """Let all processes count at the same time, in one of `WAYS`.

    With the way "naive", repeat this until an addition is lost, at most `ROUNDS` times.
    """
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
            screen.line(f"  round {number} of at most {ROUNDS}: nothing was lost, by chance; trying again")
    seconds = max(one["ended"] for one in said) - min(one["began"] for one in said)
    most = max(one["tries"] for one in said)
    speed = round(expected / seconds)
    tried = f"; at most {most} tries each" if way == "transaction" else ""
    screen.line(f"  {counted:5} of {expected} arrived, {expected - counted:4} lost {speed:8} per second{tried}")
    return {"counted": counted, "lost": expected - counted, "per_second": speed, "rounds": number, "most_tries": most}


def judge(facts: Facts) -> list[Check]:
    ways = facts["ways"]
    checks = [Check(f"without a cure, additions are lost: {ways['naive']['lost']}", ways["naive"]["lost"] > 0)]
    for way, name in (("incr", "INCR"), ("transaction", "the transaction"), ("script", "the script"), ("lock", "the lock")):
        checks.append(Check(f"with {name}, all {facts['expected']} arrive", ways[way]["lost"] == 0))
    return checks


# The processes


def count(url: str, times: str) -> None:
    """Run a counting process. For each line on stdin, it adds 1 ``times`` times.

    A line has the way to count, the key, and the time to start.
    """
    redis = client(url)
    redis.ping()  # connect before the measurement
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
    """Return a function that adds 1 with GET and SET. Another process may write between the two."""

    def add() -> None:
        number = int(redis.get(key) or 0)
        redis.set(key, number + 1, px=KEPT)

    return add


def incr(redis: redis.Redis, _url: str, key: str) -> Callable[[], Any]:
    def add() -> None:
        redis.incr(key)

    redis.set(key, 0, px=KEPT, nx=True)
    return add


def transaction(redis: redis.Redis, _url: str, key: str) -> Callable[[], int]:
    """Return a function that adds 1 in a transaction, and returns the number of tries. It tries again after a conflict."""

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
    """Return a function that adds 1 with a Lua script. The server runs no other command during a script."""
    add_one = redis.register_script(Path(__file__).with_name("add_one.lua").read_text(encoding="ascii"))

    def add() -> None:
        add_one(keys=[key], args=[KEPT])

    return add


def lock(redis: redis.Redis, url: str, key: str) -> Callable[[], Any]:
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
