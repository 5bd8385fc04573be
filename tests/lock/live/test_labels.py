"""``label=`` is one of a lock, not of its process: wherever others see who holds or wants it."""

from __future__ import annotations

import asyncio

import pytest
import redis

import holdfast
from holdfast import Lock, LockTimeout, aio
from support.servers import PrivateServer
from support.witness import in_thread, until


def seen(server: PrivateServer, name: str) -> str | None:
    holder = holdfast.Inspector(server.url).show(name).holder
    return None if holder is None else holder.label


def test_each_lock_is_shown_with_its_own_label(server: PrivateServer, name: str) -> None:
    """One lock's label used to relabel all locks of the process."""
    first, second, third = (f"{name}-{n}" for n in range(3))
    with Lock(server.url, first, label="importer"), Lock(server.url, second, label="mailer"), Lock(server.url, third):
        until(lambda: [seen(server, one) for one in (first, second, third)] == ["importer", "mailer", None])
        for one, shown in ((first, r" \(importer\), "), (second, r" \(mailer\), "), (third, r":\d+, ")):
            with pytest.raises(LockTimeout, match=shown):
                in_thread(Lock(server.url, one, wait=0, label="another").__enter__).result(5)


def test_a_label_comes_and_goes_with_its_lock(server: PrivateServer, name: str) -> None:
    with Lock(server.url, name, label="first"):
        until(lambda: seen(server, name) == "first")
    with Lock(server.url, name, label="second"):
        until(lambda: seen(server, name) == "second")
    with Lock(server.url, name):
        until(lambda: seen(server, name) is None)


def test_the_label_of_who_waits_is_shown(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = holdfast.FairLock(server.url, name, label="waiter", wait=20)
    with Lock(server.url, name, label="holder"):
        waiting = in_thread(lock.acquire)
        until(lambda: look.zcard(f"hf:{{{name}}}:queue"))
        line = holdfast.Inspector(server.url).show(name).line
        assert line is not None
        assert len(line) == 1
    assert waiting.result(20)
    until(lambda: seen(server, name) == "waiter")
    lock.release()


def test_in_asyncio(server: PrivateServer, name: str) -> None:
    names = [f"{name}-{n}" for n in range(2)]

    async def main() -> None:
        async with aio.Lock(server.url, names[0], label="importer"), aio.Lock(server.url, names[1], label="mailer"):
            while [await asyncio.to_thread(seen, server, one) for one in names] != ["importer", "mailer"]:
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(main(), 20))
