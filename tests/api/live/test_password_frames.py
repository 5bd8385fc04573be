"""Error reporters send the variables of each frame: none of our frames shows a password when an error passes through it."""

from __future__ import annotations

import asyncio
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio, doctor
from support.servers import PrivateServer

CANARY = "canary-7f3a"
SOURCE = str(Path(holdfast.__file__).parent)


def frames_shown(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        told = traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)
        for frame in told.stack:
            if frame.filename.startswith(SOURCE):
                yield f"{frame.filename}:{frame.lineno} {frame.locals}"
        yield f"{error!r} {error}"
        yield from frames_shown(error.__context__)  # shown by debuggers and by some error reporters, beside the cause
        error = error.__cause__


def check(error: BaseException) -> None:
    shown = list(frames_shown(error))
    assert len(shown) > 3, "there are frames to look at"
    for text in shown:
        assert CANARY not in text


@pytest.fixture
def rude() -> Iterator[int]:
    """A server that hangs up as soon as it was told something."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                peer.recv(1000)
                peer.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def urls(server: PrivateServer, rude: int) -> list[str]:
    who = f"user:{CANARY}@127.0.0.1"
    return [
        f"redis://{who}:{server.port}",
        f"redis://{who}:1",
        f"redis://{who}:{rude}",
        f"rediss://{who}:{rude}?socket_timeout=2",
        f"redis+cluster://{who}:{server.port}",
        f"redis+cluster://{who}:{rude}",
        f"redis+sentinel://{who}:{rude}/svc?sentinel_password={CANARY}",
    ]


def test_when_the_server_cannot_be_used(server: PrivateServer, rude: int) -> None:
    async def acquire(url: str) -> None:
        await aio.Lock(url, "frames", wait=0).acquire()

    for url in urls(server, rude):
        lock = holdfast.Lock(url, "frames", wait=0)
        with pytest.raises(holdfast.ServerError) as failed:
            lock.acquire()
        check(failed.value)
        with pytest.raises(holdfast.ServerError) as failed:
            asyncio.run(acquire(url))
        check(failed.value)


def test_coroutine_functions_that_are_passed_a_url(server: PrivateServer, rude: int) -> None:
    for url in [*urls(server, rude), f"redis://u:{CANARY}@h:x"]:
        with pytest.raises(holdfast.HoldfastError) as failed:
            asyncio.run(aio.find_deadlocks(url))
        for text in frames_shown(failed.value):
            assert CANARY not in text


@pytest.mark.parametrize("wrong", ["redis://u:{}@h:x", "redis://u:{}@h?db=1&db=2", "redis://u:{}#@h", "redis://u:%zz{}@h/0"])
def test_when_the_url_cannot_be_read(wrong: str) -> None:
    from holdfast._net.url import from_url

    url = wrong.format(CANARY)
    with pytest.raises(holdfast.ConfigError) as failed:
        from_url(url)
    for text in frames_shown(failed.value):
        assert CANARY not in text


WRONG = ["?foo=1", "/x", "?db=1&db=2"]
MAKERS: dict[str, Callable[[Any, str], object]] = {
    "Lock": lambda api, url: api.Lock(url, "x"),
    "FairLock": lambda api, url: api.FairLock(url, "x"),
    "RLock": lambda api, url: api.RLock(url, "x"),
    "Redlock": lambda api, url: api.Redlock([url, f"{url}&x", f"{url}&y"], "x"),
    "MultiLock": lambda api, url: api.MultiLock(url, ["x", "y"]),
    "Semaphore": lambda api, url: api.Semaphore(url, "x", 2),
    "RWLock": lambda api, url: api.RWLock(url, "x"),
    "Election": lambda api, url: api.Election(url, "x"),
    "Event": lambda api, url: api.Event(url, "x"),
    "CountDownLatch": lambda api, url: api.CountDownLatch(url, "x", 2),
    "Barrier": lambda api, url: api.Barrier(url, "x", 2),
    "Cache": lambda api, url: api.Cache(url, "x"),
    "once": lambda api, url: api.once(url, "x", keep=60),
    "Schedule": lambda api, url: api.Schedule(url, "x"),
    "locked": lambda _, url: holdfast.locked(url, "x")(print),
    "transactional": lambda _, url: holdfast.transactional(url, "x")(lambda _: None),
    "accept": lambda _, url: holdfast.fencing.accept(url, "x", 1),
    "find_deadlocks": lambda _, url: holdfast.find_deadlocks(url),
    "declare_new": lambda _, url: holdfast.declare_new(url),
    "examine": lambda _, url: doctor.examine(url),
    "inspect": lambda api, url: api.Inspector(url),
}


@pytest.mark.parametrize("api", [holdfast, aio], ids=["threads", "asyncio"])
@pytest.mark.parametrize("what", MAKERS)
def test_what_is_made_with_a_url_that_cannot_be_read(what: str, api: Any) -> None:
    for wrong in WRONG:
        with pytest.raises(holdfast.ConfigError) as failed:
            MAKERS[what](api, f"redis://u:{CANARY}@127.0.0.1:1{wrong}")
        for text in frames_shown(failed.value):
            assert CANARY not in text


def test_an_option_that_is_refused_beside_a_good_url() -> None:
    with pytest.raises(holdfast.ConfigError) as failed:
        holdfast.Semaphore(f"redis://u:{CANARY}@127.0.0.1:1", "x", 2, ttl=-1)
    for text in frames_shown(failed.value):
        assert CANARY not in text
