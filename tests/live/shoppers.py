"""A process of a crowd that wants the same value: started by its test, told when to begin, and to be killed.

Run as a program: it makes a cache, says "ready", and answers each line it reads: how many callers there are to be. It prints
what they got, and what the cache has counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, Self

import redis

import holdfast
from holdfast import aio
from live.databases import MariaDB, Sqlite

KEY = "A1"


class Shoppers:
    """Starts the program; use it in a ``with``. ``way``: "sync", "asyncio", or "naive": without holdfast."""

    def __init__(self, way: str, url: str, name: str, database: MariaDB | Sqlite, **options: Any) -> None:
        arguments = [way, url, name, type(database).__name__, database.path, json.dumps(options)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "live.shoppers", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        assert self.answer() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def begin(self, callers: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{callers}\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"it has ended"')


@contextmanager
def crowd(processes: int, *arguments: Any, **options: Any) -> Iterator[list[Shoppers]]:
    """So many of them. They start at the same time."""
    with ExitStack() as stack:
        made = [Shoppers(*arguments, **options) for _ in range(processes)]
        yield [stack.enter_context(each) for each in made]


def together(crowd: list[Shoppers], callers: int) -> tuple[list[Any], dict[str, int]]:
    """All begin: so many callers in all. What they got, and the sum of the figures."""
    for each in crowd:
        each.begin(callers // len(crowd))
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


def _naive(url: str, name: str, load: Callable[[], int]) -> Callable[[], int]:
    """What people write."""
    client = redis.Redis.from_url(url)

    def call() -> int:
        found = client.get(f"{name}:{KEY}")
        if found is None:
            value = load()
            client.set(f"{name}:{KEY}", value, ex=60)
            return value
        return int(found)  # type: ignore[arg-type]

    return call


def _main(way: str, url: str, name: str, kind: str, path: str, options: str) -> None:
    database = {"MariaDB": MariaDB, "Sqlite": Sqlite}[kind](path)
    cache = None if way == "naive" else holdfast.Cache(url, name, **json.loads(options))
    call = _naive(url, name, database.cents) if cache is None else lambda: cache.get_or_load(KEY, database.cents)
    _say("ready")
    for line in sys.stdin:
        got = _threads(int(line), call)
        _say({"got": got, "figures": {} if cache is None else asdict(cache.statistics())})


async def _main_aio(url: str, name: str, kind: str, path: str, options: str) -> None:
    database = {"MariaDB": MariaDB, "Sqlite": Sqlite}[kind](path)
    cache = aio.Cache(url, name, **json.loads(options))
    loop = asyncio.get_running_loop()

    async def load() -> int:
        return await asyncio.to_thread(database.cents)

    _say("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        calls = (cache.get_or_load(KEY, load) for _ in range(int(line)))
        got = await asyncio.gather(*calls, return_exceptions=True)
        values = [type(value).__name__ if isinstance(value, Exception) else value for value in got]
        _say({"got": values, "figures": asdict(cache.statistics())})


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "asyncio":
        asyncio.run(_main_aio(*sys.argv[2:]))
    else:
        _main(*sys.argv[1:])
