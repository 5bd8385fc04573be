"""Random traces give the same answers, and leave the same keys, on the simulator's keyspace and on every server.

A trace is a list of commands and scripts, drawn from a seed. It goes through a server as one pipeline, with a TIME before
each step: that is the keyspace's time for it. Times in answers may differ by what passes in between, and what waits for
nobody is compared as it is.
"""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast._lua import codes
from holdfast.testing.keyspace import Keyspace, ReplyError
from holdfast.testing.keyspace.engine import LuaEngine, kinds
from support.box import SCRIPTS
from support.conformance import SERVERS
from support.servers import private
from testing.conformance.keyspace_steps import COMMANDS, FULL, HEARD, SMALL_SCRIPTS, Step, trace

SLACK_MS = 3_000
"""Seconds that a machine may take for one trace: times may differ by that."""

TRACES, STEPS, SEEN = 160, 120, 20


class Wire:
    """A connection to a server."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self._reader: Any = hiredis.Reader(replyError=ReplyError)

    def ask(self, *steps: Step) -> list[Any]:
        """The replies to steps that are sent all at once."""
        pack: Any = hiredis.pack_command
        self.socket.sendall(b"".join(pack(tuple(step)) for step in steps))
        return [self.read() for _ in steps]

    def read(self) -> Any:
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self.socket.recv(65536))
        return reply


class Server:
    """A real server, with a listener on some channels."""

    def __init__(self, kind: str, path: str) -> None:
        self.kind = kind
        self.wire, self.listener = Wire(path), Wire(path)
        self.listener.ask([b"SUBSCRIBE", HEARD[0]], [b"SUBSCRIBE", HEARD[1]])
        version = self.wire.ask([b"INFO", b"server"])[0].split(b"redis_version:")[1].split(b".")
        self.since_7 = int(version[0]) >= 7
        self.is_7_0 = kind == "redis-on-path" and version[:2] == [b"7", b"0"]

    def heard(self) -> list[list[bytes]]:
        self.wire.ask([b"PUBLISH", HEARD[0], b"the end"])
        found = []
        while (message := self.listener.read())[2] != b"the end":
            found.append(message[1:])
        return found

    def dump(self) -> list[Any]:
        """Each key with its type, its content, and ms that are left."""
        read: dict[bytes, Callable[[bytes], Step]] = {
            b"string": lambda key: [b"GET", key],
            b"hash": lambda key: [b"HGETALL", key],
            b"zset": lambda key: [b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
            b"list": lambda key: [b"LRANGE", key, b"0", b"-1"],
            b"set": lambda key: [b"SMEMBERS", key],
        }
        keys = sorted(self.wire.ask([b"KEYS", b"*"])[0])
        types = self.wire.ask(*([b"TYPE", key] for key in keys))
        values = self.wire.ask(*(read[kind](key) for key, kind in zip(keys, types, strict=True)))
        left = self.wire.ask(*([b"PTTL", key] for key in keys))
        values = [in_order(read[kind](b"x"), value) for kind, value in zip(types, values, strict=True)]
        return [list(each) for each in zip(keys, types, values, left, strict=True)]


ENGINES = [type("On", (Keyspace,), {"__slots__": (), "_engine": LuaEngine(kind)}) for kind in kinds()]


def in_order(step: Step, reply: Any) -> Any:
    """A reply whose order means nothing, sorted."""
    name = b" ".join(step[:2] if step[0].upper() == b"PUBSUB" else step[:1]).upper()
    if not isinstance(reply, list):
        return reply
    if name == b"HGETALL":
        return [list(pair) for pair in sorted(zip(reply[::2], reply[1::2], strict=True))]
    if name == b"SCAN":
        return [reply[0], sorted(reply[1])]
    return sorted(reply) if name in {b"KEYS", b"SMEMBERS", b"HKEYS", b"HVALS", b"PUBSUB CHANNELS"} else reply


class Comparison:
    """Of one trace on a server and on a keyspace: whether values agree, with times as wildcards."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._times: dict[tuple[bool, int], int] = {}
        self.scores = False
        """True while the compared value contains scores.

        They are compared separately: the last fence of a block may be the very microsecond in which a waiter joins the queue.
        """

    def agree(self, step: Step, theirs: Any, ours: Any) -> bool:
        name = step[0].upper()
        self.scores = name.startswith(b"Z")
        slack = {b"PTTL": SLACK_MS, b"TTL": SLACK_MS // 1000, b"EXPIRETIME": SLACK_MS // 1000}.get(name)
        if slack and isinstance(theirs, int) and isinstance(ours, int):
            return theirs == ours or (min(theirs, ours) > 0 and abs(theirs - ours) <= slack)
        in_script = name in {b"EVAL", b"EVALSHA", b"SCRIPT"}
        return self.same(in_order(step, theirs), in_order(step, ours), in_script)

    def same(self, theirs: Any, ours: Any, in_script: bool = False) -> bool:
        match theirs, ours:
            case ReplyError(), ReplyError():
                return self._same_error(theirs, ours, in_script)
            case [0, int(left), _, _, _], [0, int(our_left), _, _, _] if in_script:  # waiting, see lock/acquire.lua
                return abs(left - our_left) < SLACK_MS and self.same(theirs[2:], ours[2:], in_script)
            case list(), list():
                return len(theirs) == len(ours) and all(map(partial(self.same, in_script=in_script), theirs, ours))
            case int(), int():
                return theirs == ours or self._same_time(theirs, ours)
            case bytes(), bytes():
                words, our_words = theirs.split(b" "), ours.split(b" ")
                return theirs == ours or (len(words) == len(our_words) and all(map(self._same_word, words, our_words)))
            case _:
                return theirs is None and ours is None

    def _same_error(self, theirs: ReplyError, ours: ReplyError, in_script: bool) -> bool:
        """Our words are those of Redis 7.0; later releases word some errors anew. In 6.2, errors that end a script have no code
        of their own."""
        if self.server.is_7_0 and not in_script:
            return str(theirs) == str(ours)
        return theirs.code == ours.code or (in_script and not self.server.since_7)

    def _same_word(self, theirs: bytes, ours: bytes) -> bool:
        return theirs == ours or (theirs.isdigit() and ours.isdigit() and self._same_time(int(theirs), int(ours)))

    def _same_time(self, theirs: int, ours: int) -> bool:
        """A server time in us stands for the same one wherever it is; one in ms is about the same."""
        if min(theirs, ours) > 10**15:
            return abs(theirs - ours) < SLACK_MS * 1000 and self._times.setdefault((self.scores, theirs), ours) == ours
        return min(theirs, ours) > 10**12 and abs(theirs - ours) < SLACK_MS


def contents(keyspace: Keyspace) -> list[Any]:
    """Return the contents of a keyspace, as `Server.dump` returns them."""
    found: list[Any] = []
    for key, kind, value, expires in keyspace.dump():
        if kind == b"zset":
            shown: Any = keyspace.execute("ZRANGE", key, 0, -1, "WITHSCORES")
        elif kind == b"hash":
            shown = [list(pair) for pair in value]
        else:
            shown = value if kind == b"string" else list(value)
        found.append([key, kind, shown, -1 if expires is None else expires - keyspace.now // 1000])
    return found


def compare(server: Server, steps: list[Step]) -> Counter[str]:
    """Runs a trace on both sides. Returns how often each command, script and kind of reply was compared."""
    sent = [each for step in steps for each in ([b"TIME"], step)]
    replies = server.wire.ask(*sent)
    heard, dump = server.heard(), server.dump()
    counted: Counter[str] = Counter()
    for engine in ENGINES:
        keyspace = engine()
        comparison = Comparison(server)
        for channel in HEARD:
            keyspace.subscribe(channel, 1)
        for number, step in enumerate(steps):
            (seconds, us), theirs = replies[2 * number : 2 * number + 2]
            keyspace.now = int(seconds) * 1_000_000 + int(us)
            if step[0] == b"CONFIG":
                keyspace.full = step == FULL
                continue
            ours = keyspace.execute(*step)
            before = b"\n".join(b" ".join(each)[-200:] for each in steps[max(0, number - 5) : number + 1])
            assert comparison.agree(step, theirs, ours), f"{server.kind}: {theirs!r}, keyspace: {ours!r}, after\n{before!r}"
            counted += tally(step, ours)
        comparison.scores = False
        assert comparison.same(heard, [list(message) for message in keyspace.published if message[0] in HEARD])
        held = contents(keyspace)
        for theirs, ours in zip(dump, held, strict=True):
            comparison.scores = theirs[1] == b"zset"
            assert comparison.same(theirs[:3], ours[:3]), f"{server.kind}: {theirs!r}, keyspace: {ours!r}"
            assert comparison.agree([b"PTTL"], theirs[3], ours[3]), f"{server.kind}: {theirs!r}, keyspace: {ours!r}"
    return counted


BODIES = {script.body: name for name, script in SCRIPTS.items()} | dict.fromkeys(SMALL_SCRIPTS, "small script")


def tally(step: Step, reply: Any) -> Counter[str]:
    """Return what was covered: the command or script, the kind of reply, and the answer of a script."""
    name = step[0].decode().upper()
    if name == "EVAL" and len(step) > 2:
        name = BODIES[step[1]]
        answer = reply[0] if name in SCRIPTS and isinstance(reply, list) else reply
        if name == "refresh" and isinstance(reply, list):
            answer = reply[1][0]
        answered = f"{name} -> {answer}" if isinstance(answer, int) else name
    else:
        name = answered = b" ".join(step[: 1 + (name in {"PUBSUB", "SCRIPT"})]).decode().upper()
    kind = reply.code if isinstance(reply, ReplyError) else type(reply).__name__
    return Counter([f"reply {kind}", answered, f"{name} -> {'error' if isinstance(reply, ReplyError) else 'answer'}"])


ANSWERS = {
    "acquire": (1, 0, codes.NO_CLAIM, codes.WRONG_TYPE, codes.OTHER_FORMAT),
    "release": (1, 0, -1),
    "renew": (1, 2, 0, -1),
    "refresh": (1, 0, codes.NO_CLAIM, codes.WRONG_TYPE, codes.OTHER_FORMAT),
    "check": (1, 0),
}


@pytest.fixture(scope="module", params=[kind for kind in SERVERS if SERVERS[kind] or kind != "valkey-on-path"])
def real(request: pytest.FixtureRequest) -> Iterator[Server]:
    if not SERVERS[request.param]:
        pytest.skip(f"THE SIMULATOR'S KEYSPACE IS NOT COMPARED WITH {request.param}: there is no such server here")
    with private(binary=SERVERS[request.param]) as started:
        server = Server(request.param, started.socket)
        with server.wire.socket, server.listener.socket:
            yield server


@pytest.mark.turns
def test_random_traces(real: Server) -> None:
    counted: Counter[str] = Counter()
    for seed in range(TRACES):
        counted += compare(real, trace(random.Random(seed), STEPS, since_7=real.since_7))
    wanted = {f"{name} -> answer" for name in [*COMMANDS, *SCRIPTS] if name not in {"SET GET", "NONSENSE"}}
    wanted |= {f"{name} -> {answer}" for name, answers in ANSWERS.items() for answer in answers}
    wanted |= {f"reply {kind}" for kind in ("int", "bytes", "NoneType", "list", "Status")}
    wanted |= {f"reply {code}" for code in ("ERR", "WRONGTYPE", "NOSCRIPT", "OOM", "MY")}
    assert {name: counted[name] for name in wanted if counted[name] < SEEN} == {}


@pytest.mark.turns
@given(st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_traces_that_shrink(real: Server, draw: random.Random) -> None:
    compare(real, trace(draw, 20, since_7=real.since_7))
