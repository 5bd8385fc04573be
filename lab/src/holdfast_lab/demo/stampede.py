"""``holdfast demo stampede``: count the queries to a slow database when many callers want the same expired value.

Each scene returns what it has measured, and a function ``judge_...`` returns the checks. The database is SQLite. Each query
also adds 1 to a counter. The calling processes run `shop`.
"""

from __future__ import annotations

import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast._local.server import private
from holdfast.cli.demo import show
from holdfast.cli.demo.actors import act, hear, say
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError, perform
from holdfast.cli.demo.stage import Actor, Stage, client

if TYPE_CHECKING:
    import redis

PROCESSES, CALLERS = 4, 25
"""Number of processes, and number of calling threads in each."""

QUERY = 0.5
"""Seconds that a query takes."""

LEASE = 2.0
"""Lease time of a load in seconds. If the loading process is killed, another caller loads after this time."""

HEAD_START = 0.1
"""Seconds between the order to begin and the moment at which all callers start."""

OLD, NEW = 100, 200
"""The price before and after its change, in cents."""

KEY = "price:A1"


def main(*, as_json: bool) -> int:
    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with private() as server, tempfile.TemporaryDirectory() as directory, Stage(server.url) as stage:
            cast = Cast(stage, Database(str(Path(directory, "shop.db"))), screen)
            screen.line(f"holdfast demo stampede: {PROCESSES * CALLERS} callers in {PROCESSES} processes on {stage.server},")
            screen.line(f"and a database in which a query takes {QUERY:g} s")
            facts: Facts = {"server": stage.server, "processes": PROCESSES, "callers": PROCESSES * CALLERS, "query": QUERY}
            seen, checks = show.play(screen, SCENES, cast)
            return {**facts, **seen}, checks

    return perform("demo stampede", play, as_json=as_json)


class Database:
    """A SQLite file with the price of one article, and the number of queries for it."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    def set_up(self) -> None:
        with self._connected() as connection:
            connection.execute("CREATE TABLE price (sku TEXT, cents INTEGER, asked INTEGER)")
            connection.execute("INSERT INTO price VALUES ('A1', ?, 0)", (OLD,))

    def cents(self) -> int:
        """Query the price. The query is counted, and takes `QUERY` seconds."""
        with self._connected() as connection:
            statement = "UPDATE price SET asked = asked + 1 WHERE sku = 'A1' RETURNING cents"
            found: int = connection.execute(statement).fetchone()[0]
        time.sleep(QUERY)
        return found

    def change(self, cents: int) -> None:
        with self._connected() as connection:
            connection.execute("UPDATE price SET cents = ?", (cents,))

    def asked(self) -> int:
        with self._connected() as connection:
            found: int = connection.execute("SELECT asked FROM price").fetchone()[0]
        return found

    def until_asked(self, before: int) -> None:
        """Wait until there are more than ``before`` queries. Raises ShowError after 10 seconds."""
        deadline = time.monotonic() + 10
        while self.asked() == before:
            if time.monotonic() > deadline:
                raise ShowError("no process queried the database within 10 s")
            time.sleep(0.005)


class Cast:
    """The database, the processes and the caches of all scenes."""

    def __init__(self, stage: Stage, database: Database, screen: Screen) -> None:
        self.stage, self.database, self.screen = stage, database, screen
        database.set_up()
        self.processes = [self.start() for _ in range(PROCESSES)]
        for process in self.processes:
            process.hear()

    def start(self) -> Actor:
        return self.stage.start("shop", self.database.path, module=__spec__.name)

    def cache(self, scene: str, **options: Any) -> holdfast.Cache:
        return holdfast.Cache(self.stage.url, f"{self.stage.name}-{scene}", **options)

    def expired(self, cache: holdfast.Cache) -> None:
        """Put an expired value into the cache."""
        cache.set(KEY, OLD, ttl=0.001)
        time.sleep(0.02)

    def crowd(self, way: str, scene: str) -> Facts:
        """Let all callers ask for the price at the same time, and print the result. ``way`` is "naive", "cache" or "stale"."""
        before = self.database.asked()
        start = str(time.monotonic() + HEAD_START)
        for process in self.processes:
            process.tell(way, f"{self.stage.name}-{scene}", str(CALLERS), start)
        heard = [process.hear(30.0) for process in self.processes]
        waits = sorted(wait for said in heard for wait in said["waits"])
        facts = {
            "queries": self.database.asked() - before,
            "answers": sum(len(said["got"]) for said in heard),
            "median": round(waits[len(waits) // 2], 3),
            "longest": round(waits[-1], 3),
        }
        queries = "1 query" if facts["queries"] == 1 else f"{facts['queries']} queries"
        self.screen.line(
            f"  {queries} for {facts['answers']} callers; half of them waited for at most {facts['median']:.2f} s,"
        )
        self.screen.line(f"  all for at most {facts['longest']:.2f} s")
        return facts


def without(cast: Cast) -> Facts:
    """Scene 1: all callers use GET. If the key is missing, they query the database, and SET the key."""
    cast.screen.title("1. GET; if there is nothing, query the database, and SET")
    return cast.crowd("naive", "naive")


def judge_without(facts: Facts) -> list[Check]:
    return [Check("more than 10 of the callers query the database", facts["queries"] > 10)]


def together(cast: Cast) -> Facts:
    """Scene 2: all callers use a cache whose value has expired."""
    cast.screen.title("2. holdfast.Cache: one caller queries, the others get its result")
    cast.expired(cast.cache("together"))
    return cast.crowd("cache", "together")


def judge_together(facts: Facts) -> list[Check]:
    return [
        Check("exactly one query", facts["queries"] == 1),
        Check("every caller has the price", facts["answers"] == PROCESSES * CALLERS),
    ]


def stale(cast: Cast) -> Facts:
    """Scene 3: callers accept the expired value while one of them loads a new one."""
    cast.screen.title("3. stale=60: the others get the old price meanwhile")
    cache = cast.cache("stale", stale=60)
    cast.expired(cache)
    return cast.crowd("stale", "stale")


def judge_stale(facts: Facts) -> list[Check]:
    return [
        Check("exactly one query", facts["queries"] == 1),
        Check("the other callers do not wait for the query", facts["median"] < QUERY),
    ]


def killed(cast: Cast) -> Facts:
    """Scene 4: the process that queries the database is killed while all others wait for its result."""
    cast.screen.title("4. The process that queries the database is killed (kill -9)")
    first = cast.start()
    first.hear()
    before = cast.database.asked()
    name = f"{cast.stage.name}-killed"
    first.tell("cache", name, "1", "0")
    cast.database.until_asked(before)
    for process in cast.processes:
        process.tell("cache", name, str(CALLERS), "0")
    time.sleep(0.1)  # let the callers begin to wait
    at = first.signal(signal.SIGKILL)
    heard = [process.hear(30.0) for process in cast.processes]
    facts = {
        "queries": cast.database.asked() - before,
        "answers": sum(len(said["got"]) for said in heard),
        "lease": LEASE,
        "seconds": round(max(said["ended"] for said in heard) - at, 3),
    }
    cast.screen.line(f"  {facts['queries']} queries; {facts['answers']} callers have the price {facts['seconds']:.2f} s later")
    return facts


def judge_killed(facts: Facts) -> list[Check]:
    return [
        Check("exactly one more query", facts["queries"] == 2),
        Check("every caller has the price", facts["answers"] == PROCESSES * CALLERS),
        Check(f"soon after the lease of {LEASE:g} s, and one query, are over", facts["seconds"] < LEASE + QUERY + 2),
    ]


def changed(cast: Cast) -> Facts:
    """Scene 5: the price changes during a query. Then SET stores the old price, but the cache does not."""
    cast.screen.title("5. The price changes during a query")
    process = cast.processes[0]
    kept: dict[str, int | None] = {}
    cache = cast.cache("cache")
    name = f"{cast.stage.name}-naive-changed"
    ways: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
        "naive": (name, lambda: cast.stage.client.delete(name), lambda: cast.stage.client.get(name)),
        "cache": (cache.name, lambda: cache.invalidate(KEY), lambda: cache.get(KEY)),
    }
    for way, (where, invalidate, look) in ways.items():
        cast.database.change(OLD)
        before = cast.database.asked()
        process.tell(way, where, "1", "0")
        cast.database.until_asked(before)
        cast.database.change(NEW)
        invalidate()
        process.hear()
        found = look()
        kept[way] = None if found is None else int(found)
    then = cache.get_or_load(KEY, cast.database.cents)
    cast.screen.line(f"  GET and SET: the cache says {kept['naive']}, the database {NEW}")
    cast.screen.line(f"  holdfast.Cache: {kept['cache'] or 'nothing'} is stored, and the next caller gets {then}")
    return {"kept": kept, "then": then}


def judge_changed(facts: Facts) -> list[Check]:
    return [
        Check("GET and SET: the old price stays", facts["kept"]["naive"] == OLD),
        Check(
            "holdfast.Cache: it is not stored, and the next caller gets the new",
            facts["kept"]["cache"] is None and facts["then"] == NEW,
        ),
    ]


SCENES = [
    (without, judge_without),
    (together, judge_together),
    (stale, judge_stale),
    (killed, judge_killed),
    (changed, judge_changed),
]


# The processes


def shop(url: str, path: str) -> None:
    """Run a calling process. For each line on stdin, threads ask for the price at the same time.

    A line has the way to get the price ("naive", "cache" or "stale"), a name, the number of threads, and the time to start. The
    name is the key of the price for "naive", otherwise the name of the cache.
    """
    database, plain = Database(path), client(url)
    plain.ping()  # connect before the measurement
    say(ready=True)
    while words := hear():
        way, name, callers, start = words.split()
        options: dict[str, float] = {"stale": 60} if way == "stale" else {}
        cache = holdfast.Cache(url, name, load_ttl=LEASE, **options)  # type: ignore[arg-type]
        call = _naive(plain, name, database) if way == "naive" else _cached(cache, database)
        got: list[int] = []
        waits: list[float] = []

        def one(call: Callable[[], int] = call, got: list[int] = got, waits: list[float] = waits) -> None:
            began = time.monotonic()
            got.append(call())
            waits.append(time.monotonic() - began)

        threads = [threading.Thread(target=one) for _ in range(int(callers))]
        time.sleep(max(0.0, float(start) - time.monotonic()))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(got=got, waits=waits, ended=time.monotonic())


def _naive(plain: redis.Redis, name: str, database: Database) -> Callable[[], int]:
    def call() -> int:
        found: Any = plain.get(name)
        if found is None:
            found = database.cents()
            plain.set(name, found, ex=600)
        return int(found)

    return call


def _cached(cache: holdfast.Cache, database: Database) -> Callable[[], int]:
    return lambda: cache.get_or_load(KEY, database.cents)


if __name__ == "__main__":
    act({"shop": shop})
