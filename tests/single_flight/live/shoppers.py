"""A process of a crowd that wants the same value: started by its test, told what to do, perhaps killed.

Run as a program it says "ready", and carries out what it reads, a line of JSON each time: so many callers, at the same moment,
in threads or in tasks, with a cache or without. It prints what they got, and what the cache has counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, Self

import redis

import holdfast
from holdfast import aio
from support.databases import DATABASES, Database
from support.loops import use_the_chosen

KEY = "A1"


class Shoppers:
    """Starts the program; use it in a ``with``. ``api``: "sync" or "asyncio"."""

    def __init__(self, api: str, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "single_flight.live.shoppers", api, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def begin(self, callers: int, name: str, database: Database, *, naive: bool = False, **options: Any) -> None:
        assert self.process.stdin is not None
        order = [callers, name, type(database).__name__, database.path, database.query, naive, options]
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"it has ended"')


@contextmanager
def crowd(apis: Sequence[str], url: str) -> Iterator[list[Shoppers]]:
    """One process each."""
    with ExitStack() as stack:
        started = [stack.enter_context(Shoppers(api, url)) for api in apis]
        for each in started:
            assert each.answer() == "ready"
        yield started


def together(crowd: list[Shoppers], callers: int, *order: Any, **options: Any) -> tuple[list[Any], dict[str, int]]:
    """Start that many callers in all. Return their results, and the sum of the figures."""
    for each in crowd:
        each.begin(callers // len(crowd), *order, **options)
    answers = [each.answer() for each in crowd]
    figures = [answer["figures"] for answer in answers]
    return [value for answer in answers for value in answer["got"]], {
        name: sum(figure[name] for figure in figures) for name in figures[0]
    }


def _threads(callers: int, call: Callable[[], Any]) -> list[Any]:
    got: list[Any] = []
    line = threading.Barrier(callers)

    def run() -> None:
        line.wait()
        try:
            got.append(call())
        except Exception as error:
            got.append(type(error).__name__)

    threads = [threading.Thread(target=run) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


async def _tasks(callers: int, cache: aio.Cache, database: Database) -> list[Any]:
    async def load() -> int:
        return await asyncio.to_thread(database.cents)

    got = await asyncio.gather(*(cache.get_or_load(KEY, load) for _ in range(callers)), return_exceptions=True)
    return [type(value).__name__ if isinstance(value, BaseException) else value for value in got]


def _naive(client: redis.Redis, name: str, load: Callable[[], int]) -> int:
    """Code as people write it."""
    found: Any = client.get(f"{name}:{KEY}")
    if found is None:
        value = load()
        client.set(f"{name}:{KEY}", value, ex=60)
        return value
    return int(found)


def _main(api: str, url: str) -> None:
    client = redis.Redis.from_url(url)
    use_the_chosen()
    with asyncio.Runner() as runner:

        def shop(callers: int, name: str, kind: str, path: str, query: float, naive: bool, options: dict[str, Any]) -> None:
            database = DATABASES[kind](path, query)
            cache: Any = None
            if naive:
                got = _threads(callers, lambda: _naive(client, name, database.cents))
            elif api == "asyncio":
                cache = aio.Cache(url, name, **options)
                got = runner.run(_tasks(callers, cache, database))
            else:
                cache = holdfast.Cache(url, name, **options)
                got = _threads(callers, lambda: cache.get_or_load(KEY, database.cents))
            _say({"got": got, "figures": asdict(cache.statistics()) if cache else {}})

        _say("ready")
        for line in sys.stdin:
            shop(*json.loads(line))


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
