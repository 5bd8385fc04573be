"""One server to run scripts on, and to look at what they leave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import redis

from holdfast._core.lock.replies import ACQUIRE, BLOCK, REFRESH, RELEASE, RENEW
from holdfast._core.lock.ticket import EXCHANGE_TOKEN
from holdfast._lua import Script
from holdfast.fencing import FENCE_CHECK
from support.servers import PrivateServer

LOCK, STATE, QUEUE = KEYS = ("hf:{x}", "hf:{x}:state", "hf:{x}:queue")
SCRIPTS: dict[str, Script[Any]] = {
    script.name.rpartition("/")[2]: script for script in (ACQUIRE, REFRESH, RELEASE, RENEW, EXCHANGE_TOKEN, FENCE_CHECK)
}


MARKER = "hf:guard"


def with_marker(keys: tuple[str, ...], quarantine: int) -> tuple[str, ...]:
    """The keys for a lock with quarantine=, of which ``quarantine`` is the longest lease in ms."""
    return (*keys, MARKER) if quarantine else keys


PREFIXES = ("hf:", "hf:cache:", "hf:schedule:")
"""Those of locks, caches and schedules: a process has an inbox in each that it uses."""


def token(process: str, number: int = 0, *, lingers: bool = False) -> str:
    """A token of a process, which is one letter here."""
    return f"{process * 12}.{number:032x}{'~' * lingers}"


class Box:
    def __init__(self, server: PrivateServer) -> None:
        self.server = server
        self.redis: Any = redis.Redis.from_url(server.url, protocol=2)
        self._inboxes: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self.redis.close()

    def clear(self) -> None:
        for process in list(self._inboxes):
            self.deafen(process)
        self.clear_keys()

    def clear_keys(self) -> None:
        self.redis.flushall()

    # The scripts

    def run(self, name: str, *args: object, keys: tuple[str, ...] = KEYS, before: str = "") -> Any:
        """Raw reply of a script; ``before`` is put before its text."""
        return self.redis.eval(before.encode() + SCRIPTS[name].body, len(keys), *keys, *args)

    def acquire(self, who: str, ttl: int = 30_000, *, join: bool = False, more: int | None = None, quarantine: int = 0) -> Any:
        extra = [more or 0, quarantine] if quarantine else [] if more is None else [more]
        return self.run("acquire", who, ttl, int(join), *extra, keys=with_marker(KEYS, quarantine))

    def release(self, who: str, mode: str = "release", quarantine: int = 0) -> Any:
        return self.run("release", who, mode, *([quarantine] if quarantine else []), keys=with_marker(KEYS, quarantine))

    def renew(self, who: str, ttl: int = 30_000, number: int = 1) -> Any:
        return self.run("renew", who, ttl, number)[0]

    def refresh(self, *who: str, ttl: int = 30_000, inbox: str = "a", quarantine: int = 0) -> Any:
        args = [value for one in who for value in (one, ttl)] + ([quarantine] if quarantine else [])
        return self.run("refresh", self.channel(inbox), *args, keys=with_marker(KEYS * len(who), quarantine))

    def rotate(self, giver: str, heir: str, ttl: int = 30_000, ends: int = 0, quarantine: int = 0) -> Any:
        return self.run(
            "exchange_token", giver, heir, ttl, ends, *([quarantine] if quarantine else []), keys=with_marker(KEYS, quarantine)
        )

    # Inboxes

    @staticmethod
    def channel(process: str, prefix: str = "hf:") -> str:
        return f"{prefix}inbox:{process * 12}"

    def listen(self, *processes: str) -> None:
        """From now on these processes hear what is published to them."""
        for process in processes:
            inbox = self.redis.pubsub(ignore_subscribe_messages=False)
            inbox.subscribe(*(self.channel(process, prefix) for prefix in PREFIXES))
            assert [inbox.get_message(timeout=5)["type"] for _ in PREFIXES] == ["subscribe"] * len(PREFIXES)
            self._inboxes[process] = inbox

    def deafen(self, process: str) -> None:
        inbox = self._inboxes.pop(process)
        inbox.unsubscribe()
        for _ in PREFIXES:
            inbox.get_message(timeout=5)
        inbox.close()

    def heard(self, process: str) -> list[str]:
        """Return the messages that were published to a process since the last call."""
        found = []
        inbox = self._inboxes[process]
        self.redis.publish(self.channel(process), "end")
        while (message := inbox.get_message(timeout=5))["data"] != b"end":
            found.append(message["data"].decode())
        return found

    # The commands that scripts run

    @contextmanager
    def watched(self) -> Iterator[list[list[bytes]]]:
        """The commands that scripts run inside the block, each with its arguments."""
        found: list[list[bytes]] = []
        watcher: Any = redis.Redis(unix_socket_path=self.server.socket, protocol=2)
        connection = watcher.monitor().__enter__().connection
        yield found
        self.redis.echo("end of the block")
        while b"end of the block" not in (line := connection.read_response()):
            if b" lua] " in line:
                found.append(re.findall(rb'"((?:[^"\\\\]|\\\\.)*)"', line.split(b"] ", 1)[1]))
        connection.disconnect()
        watcher.close()

    def keys_in(self, command: list[bytes]) -> set[str]:
        """The keys among the arguments of a command."""
        try:
            keys = self.redis.execute_command("COMMAND GETKEYS", *command)
        except redis.ResponseError:
            return set()  # a command without keys
        return {key if isinstance(key, str) else key.decode() for key in keys}

    # The contents

    def holder(self) -> str | None:
        value = self.redis.get(LOCK)
        return None if value is None else value.decode()

    def line(self) -> list[str]:
        """The tokens in the queue, in order; the state agrees about them."""
        tokens = [one.decode() for one in self.redis.zrange(QUEUE, 0, -1)]
        assert sorted(tokens) == sorted(field[3:] for field in self.state() if field.startswith("at:"))
        return tokens

    def state(self) -> dict[str, str]:
        return {field.decode(): value.decode() for field, value in self.redis.hgetall(STATE).items()}

    def fence(self) -> int:
        """The first number of the block that was drawn last."""
        return self.last() - BLOCK + 1

    def last(self) -> int:
        return int(self.state()["fence"])

    def now_us(self) -> int:
        seconds, micros = self.redis.time()
        return int(seconds) * 1_000_000 + int(micros)

    def dump(self) -> dict[str, object]:
        """Every key with its type and what it holds."""
        read = {
            b"string": self.redis.get,
            b"hash": self.redis.hgetall,
            b"zset": lambda key: self.redis.zrange(key, 0, -1, withscores=True),
            b"list": lambda key: self.redis.lrange(key, 0, -1),
        }
        return {key.decode(): (kind := self.redis.type(key), read[kind](key)) for key in sorted(self.redis.keys())}

    def keys_for_ever(self) -> list[str]:
        """Keys of ours without an expiry."""
        ours = [key for key in self.redis.keys("hf:*") if self.redis.type(key) != b"list" and key != MARKER.encode()]
        return [key.decode() for key in ours if self.redis.pttl(key) == -1]
