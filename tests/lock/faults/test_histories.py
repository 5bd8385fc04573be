"""Several processes contend for a lock while something is broken, again and again; what they wrote down is judged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.testing import history
from holdfast_lab.checkers import Coverage, check
from support.apis import Admin, until
from support.proxy import Proxy
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

TTL = 0.3

ACTOR = """
import asyncio, random, sys, threading, time
from pathlib import Path
import holdfast, holdfast.aio
from holdfast.testing.recording import Recorder, Register

url, name, folder, me, ttl = *sys.argv[1:3], Path(sys.argv[3]), sys.argv[4], float(sys.argv[5])
stop, highest = folder / "stop", folder / "highest"

def accept(fence):
    before = int(highest.read_text()) if highest.exists() else 0
    highest.write_text(str(max(fence, before)))
    return fence >= before

register = Register(folder / "register", accept)

def work(record):
    lock = holdfast.Lock(url, name, ttl=ttl, wait=1)
    while not stop.exists():
        try:
            with record.holding(lock) as lease:
                record.write(lease, register)
                time.sleep(random.random() * 0.05)
                record.write(lease, register)
        except holdfast.HoldfastError:
            pass

async def work_too(record):
    lock = holdfast.aio.Lock(url, name, ttl=ttl, wait=1)
    while not stop.exists():
        try:
            async with record.holding(lock) as lease:
                await asyncio.to_thread(record.write, lease, register)
                await asyncio.sleep(random.random() * 0.05)
                await asyncio.to_thread(record.write, lease, register)
        except holdfast.HoldfastError:
            pass

async def tasks(record):
    await asyncio.gather(work_too(record), work_too(record))
    await holdfast.aio.close()

with Recorder(folder / me) as record:
    thread = threading.Thread(target=work, args=(record,))
    thread.start()
    asyncio.run(tasks(record))
    thread.join()
"""

Harm = Callable[[PrivateServer, Proxy, random.Random], object]


def lose(_: PrivateServer, proxy: Proxy, dice: random.Random) -> None:
    """Any request, or its answer, or any message."""
    proxy.on(*dice.choice([(), ("message",)]), action=dice.choice(["lose", "cut", "cut", "refuse", "twice"]))


def slow(_: PrivateServer, proxy: Proxy, dice: random.Random) -> None:
    """Mostly a little; at times for longer than the lease."""
    proxy.delay = lambda: dice.expovariate(300)
    if dice.random() < 0.15:
        proxy.freeze()
        time.sleep(1.3 * TTL)
        proxy.thaw()


def stop(server: PrivateServer, proxy: Proxy, dice: random.Random) -> None:
    """SIGSTOP, up to twice the lease."""
    server.pause()
    time.sleep(dice.random() * 2 * TTL)
    server.resume()


def restart(server: PrivateServer, proxy: Proxy, dice: random.Random) -> None:
    """kill -9, and back with what it has written down."""
    server.kill()
    server.restart()


def forget(server: PrivateServer, proxy: Proxy, dice: random.Random) -> None:
    with closing(Admin(server, "any")) as admin:
        admin.redis.flushall()


def any_of_these(server: PrivateServer, proxy: Proxy, dice: random.Random) -> None:
    dice.choice([lose, lose, lose, slow, slow, stop, restart])(server, proxy, dice)


HARMS: dict[str, tuple[Harm, float, set[str] | None]] = {
    "any": (any_of_these, 0.08, None),
    "lose": (lose, 0.08, None),
    "slow": (slow, 0.05, None),
    "stop": (stop, 0.2, None),
    "restart": (restart, 0.3, None),
    # Two may believe until the next renewal, and the fences that one of them passes on in its process are those of before:
    # what is written under them is refused.
    "forget": (forget, 0.15, {"R2", "R4", "R12", "R15"}),
}
"""The action, the seconds until it is repeated, and the rules that still hold (None: all)."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    (tmp_path / "stop").touch()


@pytest.mark.turns
@pytest.mark.fault(16, 17, 18, 19, 20, 25, 31, 34, 39)
@pytest.mark.parametrize(
    ("harm", "seconds"),
    [("any", 2.5), ("forget", 1.2), *(pytest.param(harm, 20, marks=pytest.mark.soak) for harm in HARMS if harm != "any")],
)
def test_histories(new_server: NewServer, folder: Path, name: str, harm: str, seconds: float) -> None:
    """One holder at a time, fences in order, late writes refused, nobody waits in vain, nothing left behind."""
    do, pause, rules = HARMS[harm]
    dice = random.Random(harm)
    server = new_server(appendonly=True)
    with Proxy(server) as proxy:
        arguments = [proxy.url, name, str(folder)]
        actors = [
            subprocess.Popen([sys.executable, "-W", "ignore", "-c", ACTOR, *arguments, f"actor-{number}", str(TTL)])
            for number in range(3)
        ]
        try:
            until(lambda: all((folder / f"actor-{number}").exists() for number in range(3)))
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(dice.random() * 2 * pause)
                do(server, proxy, dice)
            proxy.delay = None
            time.sleep(0.3)
            (folder / "stop").touch()
            assert [actor.wait(10) for actor in actors] == [0, 0, 0]
        finally:
            for actor in actors:
                actor.kill()
                actor.wait()
    events = history.merge(*(history.read(path) for path in sorted(folder.iterdir()) if path.name not in {"stop", "highest"}))
    coverage = Coverage()
    violations = check(events, only=rules, coverage=coverage)
    assert violations == [], "\n".join(violation.text for violation in violations[:5])
    assert coverage.missing({"taken": 5, "contended": 3}) == [], str(coverage)
