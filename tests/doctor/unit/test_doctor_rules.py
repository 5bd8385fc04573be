"""The doctor's conclusions from facts: it finds each fault that has hurt a user, and has nothing to say to a healthy server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast.doctor.facts import LEVELS, ConnectionFacts, Facts, KeyCounts, LockPlans
from holdfast.doctor.rules import CHECKS, compare, diagnose

INFO: Mapping[str, str] = {
    "redis_version": "7.2.4",
    "valkey_version": "9.1.2",
    "redis_mode": "standalone",
    "role": "master",
    "run_id": "run",
    "uptime_in_seconds": "5000",
    "loading": "0",
    "maxmemory": "0",
    "used_memory": "900",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "connected_slaves": "0",
    "connected_clients": "3",
    "maxclients": "10000",
}
CONFIG = {
    "appendfsync": "always",
    "timeout": "0",
    "save": "",
    "min-replicas-to-write": "0",
    "stop-writes-on-bgsave-error": "yes",
}
HEALTHY = Facts(
    "db1:6379",
    ConnectionFacts(host="localhost"),
    round_trip=0.0005,
    ahead=0.001,
    doubt=0.0002,
    info=INFO,
    config=CONFIG,
    runs=("a", "a"),
    heard=True,
    listed=True,
    keys=KeyCounts(seen=3, complete=True),
)
ONE = LockPlans()


def info(**changes: str) -> dict[str, Any]:
    return {"info": {**INFO, **changes}}


def config(**changes: str) -> dict[str, Any]:
    return {"config": {**CONFIG, **{name.replace("_", "-"): value for name, value in changes.items()}}}


def way(**changes: Any) -> dict[str, Any]:
    return {"connection": replace(HEALTHY.connection, **changes)}


CASES: list[tuple[dict[str, Any], LockPlans, str, str]] = [
    ({"error": "no server at db1:6379: refused"}, ONE, "problem", "refused.*start the server"),
    ({"error": "db1 closed the connection before it answered"}, ONE, "problem", "rediss://"),
    ({"error": "NOAUTH Authentication required."}, ONE, "problem", "password into the URL"),
    ({"error": "DENIED Redis is running in protected mode"}, ONE, "problem", "set a password on the server"),
    ({"error": "no server at db1: TLS: its certificate has expired"}, ONE, "problem", "ssl_ca_certs"),
    (info(valkey_version="", redis_version="5.0.7"), ONE, "problem", "too old"),
    (info(redis_mode="sentinel"), ONE, "problem", "this is a Sentinel"),
    (info(server_mode="sentinel"), ONE, "problem", "this is a Sentinel"),
    (info(redis_mode="cluster"), ONE, "problem", "one server of a Cluster"),
    (info(role="slave"), ONE, "problem", "this is a replica.*URL of the primary"),
    (info(loading="1"), ONE, "problem", "loading"),
    (info(uptime_in_seconds="7"), ONE, "note", "less than a lease ago"),
    ({"info": None}, ONE, "note", "INFO is refused"),
    ({"config": None}, ONE, "note", "CONFIG is refused"),
    ({"runs": ("a", "b")}, ONE, "problem", "two connections led to two servers"),
    ({"round_trip": 0.9}, ONE, "warning", "answers in 900.*longer ttl"),
    ({"round_trip": 0.06}, LockPlans(ttl=0.5), "warning", "lease of 0.5 s"),
    (way(timeout=0.001), ONE, "warning", "socket_timeout is 0.001"),
    (way(pool=4), ONE, "warning", "a pool of 4"),
    (way(pool=50), ONE, "note", "a pool of 50"),
    (way(pool=50, timeout=float("inf")), ONE, "warning", "socket_timeout is inf s.*at most 10 s"),
    ({"ahead": 40.0}, ONE, "note", "40 s ahead of ours.*NTP"),
    ({"ahead": -40.0}, ONE, "note", "40 s behind ours"),
    (info(maxmemory_policy="allkeys-lru", maxmemory="1000000"), ONE, "problem", "allkeys-lru.*evicts locks"),
    (info(maxmemory_policy="volatile-ttl", maxmemory="1000000"), ONE, "problem", "volatile-ttl"),
    (info(maxmemory_policy="allkeys-lru"), ONE, "note", "nothing is evicted now"),
    (info(maxmemory="1000", used_memory="950"), ONE, "warning", "95 % of maxmemory"),
    (info(aof_enabled="0"), ONE, "warning", "no append-only file: .*after a restart|no append-only file"),
    ({**info(aof_enabled="0"), **config(save="3600 1")}, ONE, "warning", "only snapshots"),
    (config(appendfsync="everysec"), ONE, "note", "appendfsync everysec.*power"),
    (info(rdb_last_bgsave_status="err"), ONE, "problem", "MISCONF"),
    (info(aof_last_write_status="err"), ONE, "problem", "cannot be written.*MISCONF"),
    (info(connected_slaves="1"), ONE, "warning", "cut off.*min-replicas-to-write 1"),
    (
        {**info(connected_slaves="1", min_slaves_good_slaves="1"), **config(min_replicas_to_write="1")},
        ONE,
        "note",
        "asynchronous",
    ),
    (config(min_replicas_to_write="1"), ONE, "problem", "NOREPLICAS"),
    ({"acknowledged": 1}, LockPlans(replicas=2), "problem", "1 of 2 replicas.*require fewer"),
    ({"acknowledged": "NOPERM no"}, LockPlans(replicas=1), "problem", "WAIT is refused: NOPERM no.*allow"),
    (
        {"refused": {"to take a lock": "NOPERM no SET"}},
        ONE,
        "problem",
        "to take a lock is refused: NOPERM no SET.*holdfast acl",
    ),
    ({"refused": {"to take a lock": "ERR ACL failure in script: x"}}, ONE, "problem", "holdfast acl"),
    ({"refused": {"to take a lock": "MOVED 1 h:1"}}, ONE, "problem", "one server of a Cluster"),
    ({"refused": {"to take a lock": "ERR unknown command 'EVALSHA'"}}, ONE, "problem", "rename-command"),
    ({"heard": False}, ONE, "warning", "did not arrive.*asking once a second"),
    ({"listed": False}, ONE, "note", "NUMSUB"),
    (info(connected_clients="9999"), ONE, "warning", "9999 of 10000 connections"),
    (config(timeout="5"), ONE, "warning", "timeout is 5 s"),
    (config(timeout="300"), ONE, "note", "timeout is 300 s"),
    ({"keys": None}, ONE, "note", "SCAN is refused"),
    ({"keys": KeyCounts(9, 2, [b"hf:{a\xff}"])}, ONE, "warning", r"2 keys of locks have no expiry, and.*hf:\{a\\xff\}"),
    (way(tls=True, verified=False), ONE, "warning", "not verified"),
    (way(host="db1", password=True), ONE, "note", "not encrypted.*the password and tokens"),
    (way(host="db1", tls=True), ONE, "note", "no password"),
    (way(db=3), ONE, "note", "database 3"),
]


def said(findings: list[Any]) -> list[tuple[str, str]]:
    return [(finding.level, f"{finding.what}; {finding.why}; {finding.remedy}") for finding in findings]


def test_a_healthy_server_has_nothing_to_be_told() -> None:
    assert {finding.level for finding in diagnose(HEALTHY, ONE)} == {"ok"}
    assert len(diagnose(HEALTHY, ONE)) >= len(CHECKS) - 3


@pytest.mark.parametrize(("changes", "terms", "level", "pattern"), CASES, ids=[case[3][:30] for case in CASES])
def test_what_bites_is_found(changes: dict[str, Any], terms: LockPlans, level: str, pattern: str) -> None:
    findings = diagnose(replace(HEALTHY, **changes), terms)
    bad = [(found, text) for found, text in said(findings) if found != "ok"]
    assert any(found == level and re.search(pattern, text) for found, text in bad), bad
    assert max((found for found, _ in bad), key=LEVELS.index) == level, "worse than it is"
    for finding in findings:
        assert finding.level == "ok" or (finding.why and finding.remedy), finding


def test_what_is_only_wrong_for_one_server_is_fine_for_several() -> None:
    """They bear that one restarts, with its data or without."""
    for kept, level in (("1", "ok"), ("0", "note")):
        restarted = replace(HEALTHY, **info(aof_enabled=kept, uptime_in_seconds="7"), **config(appendfsync="no"), ahead=1.0)
        findings = diagnose(restarted, LockPlans(redlock=True))
        assert {finding.level for finding in findings if finding.topic != "persistence"} == {"ok"}
        (found,) = (finding for finding in findings if finding.topic == "persistence")
        assert found.level == level
        assert ("held locks are lost" in found.why) == (kept == "0")


MARKER = "run", 0.0, 60.0, "digest"
TOGETHER = LockPlans(redlock=True, servers="digest")


def several(*changes: dict[str, Any]) -> list[Facts]:
    return [
        replace(HEALTHY, **{"address": f"db{n}", "runs": (str(n),), "marker": MARKER, "now": 1000.0, **change})
        for n, change in enumerate(changes)
    ]


@pytest.mark.parametrize(
    ("servers", "level", "pattern"),
    [
        (several({}, {}), "problem", "an even number of servers, 2.*3 or 5"),
        (several({}, {"error": "x"}, {"error": "x"}), "problem", "2 of 3 servers are unreachable; there is no majority"),
        (several({}, {}, {"error": "x"}), "warning", "1 of 3 servers are unreachable; 0 more may fail"),
        (several({"runs": ("a",)}, {}, {"runs": ("a",)}), "problem", "db0 and db2 are the same server"),
        (several({}, {"ahead": 3.0}, {}), "problem", r"the clocks of db\d and db1 are 3 s apart"),
        (several({}, {"ahead": -1.0}, {}), "warning", r"the clocks of db1 and db\d are 1 s apart"),
        (several({}, info(valkey_version="8.0.0"), {}), "note", "different versions: Valkey 8.0.0, Valkey 9.1.2"),
        (
            several({"marker": None}, {"marker": None}, {"marker": None}),
            "problem",
            "0 of 3 servers vote, 2 are needed; no lock .* db0 is new, or has lost its data: does not vote yet.*nodes init",
        ),
        (
            several({}, {"marker": (*MARKER[:3], "other")}, {}),
            "warning",
            "2 of 3 servers vote.*db1 its users have agreed on another list",
        ),
    ],
)
def test_what_shows_only_together(servers: list[Facts], level: str, pattern: str) -> None:
    findings = said(compare(servers, TOGETHER))
    assert any(found == level and re.search(pattern, text) for found, text in findings), findings
    assert {found for found, _ in said(compare(several({}, {}, {}), TOGETHER))} == {"ok"}
    assert compare(servers, ONE) == []
