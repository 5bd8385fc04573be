"""holdfast without valkey-py, as after `pip install holdfast`, and without redis-py, where only valkey-py is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.servers import PrivateServer

HIDDEN = """
import asyncio, importlib, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
try:
    importlib.import_module(sys.argv[1])
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("it is not hidden")

import holdfast
from holdfast import aio

other, url = ("redis" if sys.argv[1] == "valkey" else "valkey"), sys.argv[2]
library, aio_library = importlib.import_module(other), importlib.import_module(f"{other}.asyncio")
cls = "Redis" if other == "redis" else "Valkey"

def sync_api(client):
    with holdfast.Lock(client, "a"), holdfast.Semaphore(client, "b", 2), holdfast.RWLock(client, "c").read:
        pass
    assert holdfast.Cache(client, "d").get_or_load("key", lambda: 1) == 1
    holdfast.Event(client, "e").set()
    with holdfast.Election(client, "f"):
        pass
    assert list(holdfast.Inspector(client).locks()) == []
    holdfast.connect(client).schedule("g").every("5m")(print)

async def aio_api(client):
    async with aio.Lock(client, "a"), aio.Semaphore(client, "b", 2), aio.RWLock(client, "c").read:
        pass
    if client != url:
        await client.aclose()

def transaction(client):
    holdfast.Transaction(client, "key").run(lambda tx: tx.queue.set("key", 1))

sync_api(url)
asyncio.run(aio_api(url))
asyncio.run(aio_api(getattr(aio_library, cls).from_url(url)))
with getattr(library, cls).from_url(url) as client:
    sync_api(client)
    transaction(client)
try:
    transaction(url)
except holdfast.ConfigError as error:
    print(error)
try:
    holdfast.Lock(library, "x")
except holdfast.ConfigError as error:
    assert str(error).endswith("or a URL, not builtins.module"), error
"""
"""Uses each kind of object with a URL and with a client of the library that is not hidden."""


@pytest.mark.parametrize(
    ("hidden", "printed"),
    [
        ("valkey", ""),
        ("redis", "client: a transaction with a URL needs redis-py: pip install redis, or pass a client of valkey-py\n"),
    ],
)
def test_one_client_library_is_enough(server: PrivateServer, hidden: str, printed: str) -> None:
    command = [sys.executable, "-W", "error", "-c", HIDDEN, hidden, server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
