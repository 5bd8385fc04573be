"""The simulator's keyspace keeps the contracts that the scripts keep on servers: the same tests, and the same recorded trace.

And a key expires on it in the same millisecond as on a server.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import redis

from holdfast.testing.keyspace import Keyspace, ReplyError
from holdfast.testing.keyspace.engine import LuaEngine, kinds
from lock.conformance import test_scripts, test_scripts_while_held, test_trace
from single_flight.conformance import test_single_flight_scripts
from support.box import PREFIXES, Box
from support.conformance import SERVERS
from support.servers import private
from support.witness import until


class Client(redis.Redis):
    """redis-py's client, with a keyspace where its connections are. Time goes on by 50 us with each command."""

    def __init__(self, keyspace: Keyspace) -> None:
        super().__init__(protocol=2)
        self.keyspace = keyspace

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.keyspace.now += 50
        reply = self.keyspace.execute(*args)
        if isinstance(reply, ReplyError):
            raise redis.ResponseError(str(reply))
        options.pop("keys", None)  # meant for redis-py's own cache
        callbacks: Any = self.response_callbacks
        return callbacks[args[0]](reply, **options) if args[0] in callbacks else reply


class KeyspaceBox(Box):
    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.redis = Client(keyspace)
        self._inboxes = {}

    def listen(self, *processes: str) -> None:
        for process in processes:
            for prefix in PREFIXES:
                self.keyspace.subscribe(self.channel(process, prefix).encode(), 1)
            self._inboxes[process] = process

    def deafen(self, process: str) -> None:
        del self._inboxes[process]
        for prefix in PREFIXES:
            self.keyspace.subscribe(self.channel(process, prefix).encode(), -1)

    def heard(self, process: str) -> list[str]:
        published, channels = self.keyspace.published, {self.channel(process, prefix).encode() for prefix in PREFIXES}
        found = [message.decode() for at, message in published if at in channels]
        published[:] = [each for each in published if each[0] not in channels]
        return found


ON = {kind: type("On", (Keyspace,), {"__slots__": (), "_engine": LuaEngine(kind)}) for kind in kinds()}


@pytest.fixture(params=ON)
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    keyspace = ON[request.param](1_700_000_000_000_000)
    with KeyspaceBox(keyspace) as box:
        yield box


def contracts(module: ModuleType) -> dict[str, Any]:
    """The tests of a module that are about what is in a box."""
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_") and inspect.isfunction(test)}
    return {name: test for name, test in tests.items() if "box" in inspect.signature(test).parameters}


CONTRACTS = [contracts(module) for module in (test_scripts, test_scripts_while_held, test_trace, test_single_flight_scripts)]
for found in CONTRACTS:
    globals().update(found)


def test_the_contracts_are_run_here_too() -> None:
    assert [len(found) > least for found, least in zip(CONTRACTS, (25, 12, 0, 12), strict=True)] == [True] * 4
    assert all(globals()[name] is test for found in CONTRACTS for name, test in found.items())


POLL = """
local found = redis.call('TIME')
for i, key in ipairs(KEYS) do found[i + 2] = redis.call('EXISTS', key) end
return found
"""


@pytest.mark.turns
@pytest.mark.parametrize("kind", [kind for kind, program in SERVERS.items() if program])
def test_a_key_is_there_in_the_millisecond_in_which_it_expires_and_gone_in_the_next(kind: str) -> None:
    """A server looks at its clock once before a script and again for the script's TIME: the moment that counts for a poll lies
    between the TIME of the poll before and its own.

    The cycle in which newer servers look for expired keys is off, because it removes a key already in the millisecond in which
    it expires. (The margin of a lease is longer than that.)
    """
    version = subprocess.run([str(SERVERS[kind]), "--version"], capture_output=True, text=True, check=True).stdout
    settings = () if " v=6." in version else ("--enable-debug-command", "local")  # Redis 6 has no such setting, and needs none
    keyspace = Keyspace()
    with (
        private(*settings, binary=SERVERS[kind]) as server,
        redis.Redis(unix_socket_path=server.socket, protocol=2) as connected,
    ):
        client: Any = connected
        client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
        poll = client.register_script(POLL)
        until(lambda: polls_in_the_very_millisecond(client, poll, keyspace))


def polls_in_the_very_millisecond(client: Any, poll: Any, keyspace: Keyspace) -> int:
    """Of some keys that expire one after the other: how many polls came just then, which is a matter of luck."""
    keys = [f"k{number}" for number in range(30)]
    seconds, us, *there = map(int, poll(keys=keys))
    first = seconds * 1000 + us // 1000 + 5
    for number, key in enumerate(keys):
        client.set(key, "x", pxat=first + number)
        keyspace.execute("SET", key, "x", "PXAT", first + number)
    edges, now_ms, there = 0, 0, [1]
    while any(there):
        before_ms = now_ms
        seconds, us, *there = map(int, poll(keys=keys))
        keyspace.now = seconds * 1_000_000 + us
        now_ms = keyspace.now // 1000
        for number, key in enumerate(keys):
            if now_ms <= first + number:
                assert there[number] == keyspace.execute("EXISTS", key) == 1
            elif before_ms > first + number:
                assert there[number] == keyspace.execute("EXISTS", key) == 0
            edges += now_ms == first + number
    return edges
