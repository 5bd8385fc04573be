"""The page of keys names each key that the objects of the library write."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import redis

import holdfast
from docs.pages import ROOT
from holdfast import fencing

if TYPE_CHECKING:
    from conftest import NewServer


def described() -> list[re.Pattern[str]]:
    """Return the patterns of the keys in the first column of the page's table."""
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    names = [name for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 20
    return [re.compile(re.sub(r"\b(?:N|ID|KEY|JOB)\b", ".+", re.escape(name))) for name in names]


def test_each_key_is_on_the_page(new_server: NewServer) -> None:
    """Also the keys that exist only while a job, a function of `once` or a load of a cache runs."""
    server = new_server()
    runs, seen = threading.Event(), threading.Event()
    found: set[str] = set()
    jobs = holdfast.Schedule(server.url, "ops")

    @jobs.every(0.1)
    def poll() -> None:
        runs.set()
        seen.wait(10)

    def look() -> None:
        with redis.Redis.from_url(server.url) as client:
            found.update(key.decode() for key in client.scan_iter())

    @holdfast.once(server.url, "copy:{number}", keep=60)
    def copy(number: int) -> int:
        look()
        return number

    def load() -> str:
        look()
        return "loaded"

    with holdfast.Lock(server.url, "lock") as lease:
        waiter = threading.Thread(target=lambda: holdfast.Lock(server.url, "lock").acquire(timeout=5))
        waiter.start()
        shop = holdfast.Cache(server.url, "shop")
        shop.set("price", 1, tags=("eu",))
        shop.get_or_load("name", load)
        copy(1)
        fencing.fenced_set(server.url, "content", "text", lease.fence)
        holdfast.CountDownLatch(server.url, "latch", 2).count_down(by="a")
        with holdfast.Semaphore(server.url, "permits", 3), holdfast.Election(server.url, "election"), jobs:
            assert runs.wait(10)
            look()
            seen.set()
            lease.release()
            waiter.join()
    found.discard("content")
    assert len(found) > 15
    records = {key for key in found if re.fullmatch(r"hf:(?:cache|once|schedule):proc:\w+", key)}
    assert [key for key in found - records if not any(pattern.fullmatch(key) for pattern in described())] == []
