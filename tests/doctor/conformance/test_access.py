"""The rights that `holdfast acl` prints are enough for everything, and without any one of them something fails."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from redis.exceptions import NoPermissionError

import holdfast
import holdfast.aio
from cli.commands import Holdfast
from holdfast import _lua, fencing
from holdfast._api import access
from holdfast._core.lock.ports import InboxAddress
from holdfast._lua import source
from holdfast._net.cluster import Cluster, Shard
from holdfast._net.url import from_url
from holdfast._runtime.keeper.cluster_connection import inbox_address_of
from lock.conformance.test_scripts_everywhere import CASES, arguments
from multilock.conformance.test_multilock_scripts import SEVERAL_CASES
from permit.conformance.test_permit_scripts import PERMIT_CASES
from rendezvous.conformance.test_rendezvous_scripts import MEETING_CASES
from schedule.conformance.test_schedule_scripts import CASES as OF_A_SCHEDULE
from single_flight.conformance.test_single_flight_scripts import FLIGHT_CASES
from single_flight.conformance.test_single_flight_scripts import STATE as FLIGHT_STATE
from support.box import KEYS, LOCK, QUEUE, SCRIPTS, STATE, Box, token
from support.clusters import cluster
from support.conformance import SERVERS
from support.witness import in_thread, until

ROOT = Path(holdfast.__file__).parent
APART = {"bench", "cli", "testing", "_servers", "doctor"}
"""Packages that ask servers what locks do not."""

RULE = access.rule(("lock", "fencing"), fenced=["data"])
USER = "limited"


@pytest.fixture
def limited(box: Box) -> Iterator[Any]:
    """A client of a user who has what is printed and nothing else."""
    box.redis.execute_command("ACL SETUSER", USER, *RULE, ">secret")
    client = redis.Redis(unix_socket_path=box.server.socket, username=USER, password="secret", protocol=2)
    yield client
    client.close()
    box.redis.acl_deluser(USER)


def shape(reply: object) -> object:
    """A reply without times and fences."""
    if isinstance(reply, list):
        return [shape(one) for one in reply]
    if isinstance(reply, bytes) and reply.isdigit():
        return "number"
    if isinstance(reply, bytes):
        return re.sub(rb"\d{13,}", b"number", reply)
    return "number" if isinstance(reply, int) and abs(reply) > 16 else reply


A, B = token("a"), token("b")
HOPE = f"{'b' * 12}.hope"
MARKED = (*KEYS, "hf:marker")


class Case(NamedTuple):
    """A script in a situation."""

    script: str
    keys: tuple[str, ...]
    args: tuple[object, ...]
    prepare: Callable[[Box], object]


def vote(box: Box, who: str, listener_id: str = "") -> object:
    box.redis.eval(source("quorum/declare_new"), 1, "hf:marker", 30_000, "digest", 0)
    return box.redis.eval(source("quorum/vote"), 4, *MARKED, who, 30_000, 0, 30_000, "digest", listener_id, 0, 0)


def told(box: Box) -> None:
    """The lock was given back, and who hopes for it was told so."""
    vote(box, A)
    vote(box, B, HOPE)
    box.redis.eval(source("quorum/release_vote"), 3, *KEYS, A, "release", "")


LOCK_CASES = [Case(*each) for each in SEVERAL_CASES] + [
    Case(SCRIPTS[name].name, ("data", "{data}:fence:raw") if name == "check" else KEYS, arguments(name), prepare)
    for name, prepare in [
        *CASES,
        ("acquire", lambda box: box.redis.rpush(LOCK, "data")),
        ("refresh", lambda box: box.deafen("b")),
    ]
]
VOTE = (B, 30_000, 0, 30_000, "digest", HOPE, 10, 0)
LEGACY_CASES = [
    Case("timestamp/compare_and_set", (LOCK,), ("new", "old"), lambda box: box.redis.set(LOCK, "old")),
    Case("timestamp/compare_and_set", (LOCK,), ("", "old", "older"), lambda box: box.redis.set(LOCK, "older")),
    Case("timestamp/clock", (LOCK,), ("",), Box.clear_keys),
]
REDLOCK_CASES = [
    Case("quorum/declare_new", ("hf:marker",), (30_000, "digest", 1), lambda box: vote(box, A)),
    Case(
        "quorum/vote",
        MARKED,
        VOTE,
        lambda box: box.redis.eval(source("quorum/declare_new"), 1, "hf:marker", 30_000, "digest", 0),
    ),
    Case("quorum/vote", MARKED, VOTE, lambda box: vote(box, A)),
    Case("quorum/vote", MARKED, VOTE, told),
    Case("quorum/confirm", KEYS[:2], (A, 2**52), lambda box: vote(box, A)),
    Case("quorum/release_vote", KEYS, (A, "release", ""), lambda box: (vote(box, A), vote(box, B, HOPE))),
    Case("quorum/release_vote", KEYS, (B, "bury", HOPE), told),
    Case("lock/renew", KEYS, (A, 30_000, 1), lambda box: vote(box, A)),
]
SEEN = (*KEYS, "hf:{x}:hopefuls")
RECORD = "hf:proc:aaaaaaaaaaaa"
INSPECT_CASES = [
    Case("inspect/scan", SEEN, (10,), prepare)
    for prepare in (
        lambda box: (box.acquire(A), box.acquire(B, join=True)),
        lambda box: (
            box.redis.zadd(LOCK, {A: 2**50}),
            box.redis.hset(STATE, mapping={"v": "semaphore 1", f"h:{A}": f"{2**40} 1 0"}),
        ),
        lambda box: box.redis.hset(LOCK, "v", "event 1"),
        lambda box: box.redis.rpush(LOCK, "data"),
    )
] + [Case("inspect/control_records", (RECORD,), (), lambda box: box.redis.set(RECORD, "facts", px=60_000))]
BREAKABLE = (*KEYS, "hf:{x}:hopefuls", "hf:guard")
PERMIT = f"{A}*1"


def mark_of(holder: str) -> str:
    return hashlib.sha1(holder.encode(), usedforsecurity=False).hexdigest()[:16]


def share(box: Box) -> object:
    """A semaphore of one, which is held."""
    box.redis.zadd(LOCK, {PERMIT: 2**50})
    return box.redis.hset(STATE, mapping={"v": "semaphore 1", "limit": 1, "used": 1, "fence": 5, f"h:{PERMIT}": "5 1 0"})


def marker_of(box: Box) -> dict[str, str | int]:
    """The marker of a server whose quarantine has passed."""
    return {"run": box.redis.info("server")["run_id"], "since": 0, "lease": 30_000}


BREAK_LOCK = (mark_of(A), "ops@host")
BREAK_CASES = [
    *INSPECT_CASES,
    *(
        Case("inspect/break_lock", BREAKABLE, BREAK_LOCK, prepare)
        for prepare in (
            lambda box: (box.acquire(A), box.acquire(B, join=True)),
            lambda box: (box.acquire(A), box.redis.zadd("hf:{x}:hopefuls", {HOPE: 1})),
            lambda box: (box.acquire(A), box.acquire(B, join=True), box.redis.hset("hf:guard", "run", "x")),
            lambda box: (box.acquire(A), box.acquire(B, join=True), box.redis.hset("hf:guard", mapping=marker_of(box))),
            lambda box: (box.acquire(A), box.redis.hset(STATE, f"at:{B}", 1), box.redis.zadd(QUEUE, {B: 1})),
            lambda box: box.redis.rpush(LOCK, "data"),
            lambda box: box.redis.set(LOCK, A),
        )
    ),
    Case("election/notify_observers", ("hf:{x}:observers",), (), lambda box: box.redis.zadd("hf:{x}:observers", {HOPE: 2**50})),
    *(
        Case("inspect/break_permits", KEYS, ("ops@host", mark_of(PERMIT)), prepare)
        for prepare in (
            share,
            lambda box: (share(box), box.redis.zadd(QUEUE, {f"{B}*1": 1}), box.redis.hset(STATE, f"at:{B}*1", 2**50)),
            lambda box: (share(box), box.redis.zadd(QUEUE, {f"{B}*1": 1})),
            lambda box: box.redis.rpush(LOCK, "data"),
        )
    ),
]
SCHEDULE_CASES = [Case(script.name, keys, args, prepare) for script, keys, args, prepare in OF_A_SCHEDULE]
QUARANTINED = (*KEYS, "hf:guard")
GUARDED_CASES = [
    *(case for case in LOCK_CASES if case.script != "fencing/check"),
    Case("quorum/declare_new", QUARANTINED[3:], (30_000, "", 0), Box.clear_keys),
    Case("lock/acquire", QUARANTINED, (B, 30_000, 1, 0, 30_000), Box.clear_keys),
    Case("lock/exchange_token", QUARANTINED, (A, B, 30_000, 0, 30_000), lambda box: box.acquire(A)),
    Case("lock/refresh", QUARANTINED, (Box.channel("b"), B, 30_000, 30_000), lambda box: box.acquire(B)),
    Case("lock/release", QUARANTINED, (A, "leave", 30_000), lambda box: (box.acquire(A), box.acquire(B, join=True))),
]


FLIGHTS = [Case(*case) for case in FLIGHT_CASES]
MEETINGS = [Case(*case) for case in MEETING_CASES]
PERMITS = [Case(*case) for case in PERMIT_CASES]


def outcomes(box: Box, client: Any, cases: list[Case]) -> Iterator[object]:
    """Return the answer of each script in each situation to this client, and the data that it leaves behind."""
    for case in cases:
        box.clear_keys()
        if "b" not in box._inboxes:
            box.listen("b")
        case.prepare(box)
        try:
            reply = shape(client.eval(source(case.script), len(case.keys), *case.keys, *case.args))
        except redis.ResponseError as error:
            reply = type(error)
        if case in MEETINGS:
            yield {key: (box.redis.type(key), box.redis.pttl(key) > 0) for key in case.keys}
        if case in FLIGHTS + MEETINGS and isinstance(reply, list):
            reply = reply[0]  # all else are times, and values with times in them
        holder = box.redis.get(LOCK) if box.redis.type(LOCK) == b"string" else None
        told = [re.sub(r"\d{13,}", "number", line) for line in box.heard("b")] if "b" in box._inboxes else []
        yield case.script, reply, holder, sorted(box.redis.hkeys(STATE)), box.redis.zcard(QUEUE), told
        if case in FLIGHTS:
            kinds = {key: box.redis.type(key) for key in sorted(case.keys)}
            yield kinds, sorted(box.redis.hkeys(FLIGHT_STATE)) if kinds.get(FLIGHT_STATE) == b"hash" else []
        if case in FLIGHTS + MEETINGS or case in SCHEDULE_CASES:
            yield box.heard("b")  # the scripts go on where they may not tell: only those who wait to be told miss it


def plain_commands(prefix: str = "hf:") -> dict[str, Callable[[Any], object]]:
    """Commands that locks send outside of scripts."""
    record = f"{prefix}proc:aaaaaaaaaaaa"
    return {
        "EVAL": lambda client: client.eval("return 1", 0),
        "EVALSHA": lambda client: client.evalsha("e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0),
        "PING": lambda client: client.ping(),
        "MGET": lambda client: client.mget(record),
        "SUBSCRIBE": lambda client: subscribe(client, prefix=prefix),
        "EXISTS": lambda client: client.exists(record),
        "GET": lambda client: client.get(record),
        "GETRANGE": lambda client: client.getrange(record, 0, 4096),
        "HSTRLEN": lambda client: client.hstrlen("hf:{x}:state", "fence"),
        "SET": lambda client: client.set(record, "facts", px=1000),
        "DEL": lambda client: client.delete(record),
        "SETNX": lambda client: client.setnx(LOCK, "stamp"),
        "SCAN": lambda client: client.scan(0),
        "TYPE": lambda client: client.type("hf:{x}"),
        "PTTL": lambda client: client.pttl("hf:{x}"),
        "HGET": lambda client: client.hget("hf:{x}:state", "fence"),
        "PUBSUB|NUMSUB": lambda client: client.pubsub_numsub(Box.channel("a", prefix)),
        "ZRANGE": lambda client: client.zrange("hf:schedule:{s}:jobs", 0, -1),
        "ROLE": lambda client: client.role(),
        "WAIT": lambda client: client.wait(0, 1),
        "CLUSTER|SLOTS": lambda client: client.execute_command("CLUSTER SLOTS"),
        "ASKING": lambda client: client.execute_command("ASKING"),
        "SSUBSCRIBE": lambda client: subscribe(client, "SSUBSCRIBE"),
        "PUBSUB|SHARDNUMSUB": lambda client: client.execute_command("PUBSUB SHARDNUMSUB"),
    }


def subscribe(client: Any, command: str = "SUBSCRIBE", prefix: str = "hf:") -> None:
    inbox = client.pubsub()
    try:
        inbox.execute_command(command, Box.channel("b", prefix))
        inbox.parse_response(block=True)
    finally:
        inbox.close()


@pytest.mark.turns
@pytest.mark.parametrize(
    ("features", "cases"),
    [
        (("lock", "fencing"), LOCK_CASES),
        (("lock", "quarantine"), GUARDED_CASES),
        (("redlock",), REDLOCK_CASES),
        (("cache",), FLIGHTS),
        (("events",), MEETINGS),
        (("schedule",), SCHEDULE_CASES),
        (("sentinel", "replicas"), []),
        (("legacy",), LEGACY_CASES),
        (("inspect",), INSPECT_CASES),
        (("break",), BREAK_CASES),
        (("permits",), PERMITS),
    ],
)
def test_the_rights_are_enough_and_none_is_too_much(
    box: Box, limited: Any, features: tuple[str, ...], cases: list[Case]
) -> None:
    stamps = [LOCK, "hf:proc:*"] if "legacy" in features else []
    rights = access.rule(features, fenced=["data"] if "fencing" in features else [], timestamps=stamps)
    box.redis.execute_command("ACL SETUSER", USER, *rights, ">secret")
    assert {case.script for case in cases} == {script for name in features for script in access.FEATURES[name].scripts}
    assert set(plain_commands()) == {name for feature in access.FEATURES.values() for name in feature.commands}
    sent = {name for feature in features for name in access.FEATURES[feature].commands}
    prefix = {"cache": "hf:cache:", "schedule": "hf:schedule:"}.get(features[0], "hf:")
    direct = {name: ask for name, ask in plain_commands(prefix).items() if name in sent}
    for ask in direct.values():
        ask(limited)
    expected = list(outcomes(box, box.redis, cases))
    assert list(outcomes(box, limited, cases)) == expected
    for command in access.commands(features):
        name = command.lower()
        box.redis.execute_command("ACL SETUSER", USER, f"-{name.partition('|')[0]}")
        if command in direct:
            with pytest.raises(NoPermissionError):
                direct[command](limited)
        # Without replicas, PUBLISH says as much; and what is shared by the scripts of permits is not all run by each of them.
        unseen = features == ("break",) and command in {"PUBSUB|NUMSUB", "ZSCORE", "HKEYS"}
        if command in {name for case in cases for name in _lua.commands(case.script)} and not unseen:
            pairs = zip(outcomes(box, limited, cases), expected, strict=True)
            assert any(found != wanted for found, wanted in pairs), f"{command}: nobody misses it"
        box.redis.execute_command("ACL SETUSER", USER, f"+{name}")
    box.clear_keys()


@pytest.mark.parametrize("what", [word for word in RULE if word[0] in "~&" and word != "~data"])
def test_each_pattern_is_needed(box: Box, limited: Any, what: str) -> None:
    words = [word for word in RULE if word != what]
    box.redis.execute_command("ACL SETUSER", USER, *words, ">secret")
    with pytest.raises(NoPermissionError):
        if what == "~{data}:fence:raw":
            limited.eval(source("fencing/check"), 2, "data", "{data}:fence:raw", 5, 60_000, "value", 30_000)
        elif what.startswith("&"):
            subscribe(limited)
        elif what == "~hf:proc:*":
            plain_commands()["SET"](limited)
        else:
            limited.eval(source("lock/acquire"), 3, *KEYS, A, 30_000, 0)


@pytest.fixture(scope="module", params=[kind for kind, program in SERVERS.items() if program])
def alone(request: pytest.FixtureRequest) -> Iterator[Box]:
    """A Cluster of one server."""
    with cluster(1, binary=SERVERS[request.param]) as nodes, Box(nodes.nodes[0]) as box:
        yield box


def test_in_a_cluster_the_rights_are_enough_and_none_is_too_much(alone: Box) -> None:
    """As far as they are other rights than those for a single server."""
    new = alone.redis.execute_command("COMMAND INFO", "SPUBLISH")[0] is not None
    version = access.SHARDED_SINCE if new else access.OLDEST
    rights = access.rule(("lock", "fencing", "cluster"), fenced=["data"], version=version)
    alone.redis.execute_command("ACL SETUSER", USER, *rights, ">secret")
    url = f"redis+cluster://{USER}:secret@127.0.0.1:{alone.server.port}"
    use(url, alone.redis)
    assert alone.redis.acl_log() == []
    special = {"+cluster|slots", "+asking", "+pubsub|shardnumsub"} | ({"+ssubscribe", "+spublish"} if new else set())
    assert special == set(rights) - set(RULE)
    with closing(redis.Redis(unix_socket_path=alone.server.socket, username=USER, password="secret", protocol=2)) as limited:
        for name in (right[1:] for right in special):
            command = name.partition("|")[0]
            alone.redis.execute_command("ACL SETUSER", USER, *rights, ">secret", f"-{command}")
            alone.redis.acl_log_reset()
            if name in {"spublish", "pubsub|shardnumsub"}:  # the script that would use it works without
                hand_over(url, alone.redis)
            else:
                with pytest.raises(NoPermissionError):
                    plain_commands()[name.upper()](limited)
            assert {name, command} & {entry["object"] for entry in alone.redis.acl_log()}, f"{name}: nobody misses it"


def hand_over(url: str, admin: Any) -> None:
    """From one thread to another, by a server that may refuse to tell of it."""
    fair = holdfast.FairLock(url, "x", wait=10)
    with holdfast.Lock(url, "x"):
        waiting = in_thread(fair.acquire)
        until(lambda: admin.zcard("hf:{x}:queue"))
    assert waiting.result(5) is True
    fair.release()


def use(url: str, admin: Any) -> None:
    """All that locks can do, by both APIs."""
    with holdfast.Lock(url, "x", label="me") as lease:
        lease.renew()
        lock = holdfast.Lock(url, "x", wait=0)
        assert lock.locked()
        with pytest.raises(holdfast.LockTimeout, match=r"\(me\)"):
            in_thread(lock.__enter__).result(5)  # in this thread, the message would name the thread, not the label
        assert fencing.fenced_set(url, "data", "value", lease.fence, ttl=10)
        assert fencing.accept(url, "data", lease.fence)
    hand_over(url, admin)
    with holdfast.Lock(url, "lingering", linger=5):
        pass

    async def main() -> None:
        async with holdfast.aio.Lock(url, "y"):
            assert not await holdfast.aio.FairLock(url, "y", wait=0.05).acquire()

    asyncio.run(main())
    holdfast.close()


def test_every_operation_works_with_these_rights(box: Box, limited: Any) -> None:
    url = f"unix://{USER}:secret@{box.server.socket}"
    logged = len(box.redis.acl_log())
    use(url, box.redis)
    holder = Holdfast(url)
    try:
        run = holder.start("job", "--", "sh", "-c", "echo held; read line")
        assert run.stdout is not None
        assert run.stdout.readline() == "held\n"
        other = holder.start("job", "--", "true")
        until(lambda: box.redis.zcard("hf:{job}:queue"))
        run.communicate("\n", timeout=20)
        other.communicate(timeout=20)
        assert (run.returncode, other.returncode) == (0, 0)
    finally:
        holder.end()
    assert len(box.redis.acl_log()) == logged, box.redis.acl_log()


def test_who_lacks_a_right_is_told_which_and_what_to_do(box: Box, limited: Any) -> None:
    url = f"unix://{USER}:secret@{box.server.socket}"
    for missing in ("time", "set", "eval", "evalsha"):
        box.redis.script_flush()
        box.redis.execute_command("ACL SETUSER", USER, *RULE, ">secret", f"-{missing}")
        with pytest.raises(holdfast.ServerError, match="`holdfast acl` prints the rights") as caught:
            holdfast.Lock(url, "x", wait=0).acquire()
        assert missing in str(caught.value) or "can't run this command" in str(caught.value)  # Redis 6.2 does not say which
        with pytest.raises(holdfast.ServerError, match="`holdfast acl --fencing elsewhere` prints the rights"):
            fencing.accept(url, "elsewhere", 1)
        box.redis.delete(*KEYS)
    holdfast.close()


# The table against the sources


def test_each_script_belongs_to_a_feature() -> None:
    scripts = {
        path.relative_to(ROOT / "_lua").with_suffix("").as_posix()
        for path in (ROOT / "_lua").rglob("*.lua")
        if not path.stem.startswith("_")
    }
    assert scripts == {script for feature in access.FEATURES.values() for script in feature.scripts}


def test_no_call_in_a_script_is_overlooked() -> None:
    for path in (ROOT / "_lua").rglob("*.lua"):
        code = re.sub(r"--[^\n]*", "", path.read_text())
        assert len(re.findall(r"redis\.p?call", code)) == len(re.findall(r"redis\.p?call\('[A-Z]", code)), path.name
    assert _lua.commands("lock/refresh") >= {"PUBSUB|NUMSUB", "PUBSUB|SHARDNUMSUB", "GET", "TIME"}


def test_what_is_sent_as_it_is_stands_in_the_table() -> None:
    allowed = {name for feature in access.FEATURES.values() for name in feature.commands} | {"AUTH", "HELLO", "SELECT"}
    patterns = [pattern for feature in access.FEATURES.values() for pattern in (*feature.keys, *feature.channels)]
    keys = [pattern.replace("<prefix>", "hf:") for pattern in patterns]
    sent = set()
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] in APART:
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"Command", "command"} and node.args:
                parts = node.args[0].elts if isinstance(node.args[0], ast.Tuple) else node.args
                first = parts[0]
                if isinstance(first, ast.Constant):
                    longer = "|".join(str(part.value) for part in parts[:2] if isinstance(part, ast.Constant))
                    name = longer if longer in allowed else first.value
                    assert name in allowed, f"{path.name}: {ast.unparse(node)}"
                    sent.add(name)
        if path.name != "_api/access.py":
            for key in re.findall(r'f?"(hf:\w[^"{]*)', text):
                assert any(pattern.startswith(key) for pattern in keys), f"{path.name}: {key}"
    assert allowed - sent <= {"AUTH", "HELLO", "SELECT", "SUBSCRIBE", "SSUBSCRIBE"}, "nobody sends these"
    assert {InboxAddress("").subscribe, inbox_address_of(Shard(_nowhere(), 0, sharded=True), "").subscribe} == {
        "SUBSCRIBE",
        "SSUBSCRIBE",
    }


def _nowhere() -> Cluster:
    found = from_url("redis+cluster://127.0.0.1:1").cluster
    assert isinstance(found, Cluster)
    return found


def test_who_has_no_cluster_gets_no_rights_for_one() -> None:
    for version in ((6, 2), (9, 1)):
        assert not {"+spublish", "+ssubscribe", "+pubsub|shardnumsub", "+asking"} & set(access.rule(version=version))
    assert "+spublish" not in access.rule(["lock", "cluster"], version=(6, 2))
    with pytest.raises(holdfast.ConfigError, match=r"before 6\.2"):
        access.rule(version=(6, 0))
