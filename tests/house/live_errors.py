"""Provokes the errors that only a running server gives, for errors.txt: see `house.public`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import redis

import holdfast
from support.servers import PrivateServer, private

PASSWORD = "secret-of-test"


def _enter(lock: holdfast.Lock) -> None:
    with lock:
        pass


def _enter_twice(url: str) -> None:
    with holdfast.Lock(url, "nested"), holdfast.Lock(url, "nested"):
        pass


def _lose(url: str, admin: redis.Redis) -> None:
    lock = holdfast.Lock(url, "lost")
    lock.acquire()
    admin.delete("hf:{lost}")
    assert lock.lease is not None
    lock.lease.verify()


def _mistakes(server: PrivateServer, admin: redis.Redis) -> Iterator[Callable[[], None]]:
    at = f"127.0.0.1:{server.port}"
    url = f"redis://:{PASSWORD}@{at}"
    yield lambda: _enter(holdfast.Lock("redis://127.0.0.1:1", "x"))
    yield lambda: _enter(holdfast.Lock(f"redis://:wrong@{at}", "x"))
    yield lambda: _enter(holdfast.Lock(f"redis://{at}", "x"))
    admin.execute_command("ACL", "SETUSER", "narrow", "on", ">narrow", "~hf:*", "&*", "+ping")  # type: ignore[no-untyped-call]
    yield lambda: _enter(holdfast.Lock(f"redis://narrow:narrow@{at}", "x"))
    yield lambda: _enter(holdfast.Lock(f"rediss://:{PASSWORD}@{at}", "x"))
    yield lambda: _enter(holdfast.Lock(f"{url}/99", "x"))
    yield lambda: _enter(holdfast.Lock(f"redis+cluster://:{PASSWORD}@{at}", "x"))
    with holdfast.Lock(url, "busy"):
        yield lambda: _enter(holdfast.Lock(url, "busy", wait=0))
    yield lambda: _enter_twice(url)
    yield lambda: _lose(url, admin)
    admin.hset("hf:{taken}", "field", "value")
    yield lambda: _enter(holdfast.Lock(url, "taken", wait=0))
    admin.delete("hf:{taken}")


def texts() -> Iterator[str]:
    """Yield the text of each error, with words in place of ports, fences and times."""
    with (
        private(port=True, password=PASSWORD) as server,
        redis.Redis.from_url(f"redis://:{PASSWORD}@127.0.0.1:{server.port}") as admin,
    ):
        for mistake in _mistakes(server, admin):
            try:
                mistake()
            except (holdfast.HoldfastError, RuntimeError) as error:
                text = f"{type(error).__name__}: {error}".replace(str(server.port), "PORT")
                text = re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "N s", text)
                yield re.sub(r"\b\d{16}\b", "FENCE", text)
            else:
                raise AssertionError("no error")
