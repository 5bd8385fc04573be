"""The doctor on real servers, each with something wrong: it finds that, and nothing that is not there, and leaves nothing."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast._api import access
from holdfast.doctor import Report, examine
from support.servers import PrivateServer, private
from support.witness import until

if TYPE_CHECKING:
    from conftest import NewServer

GOOD = ("--appendfsync", "always")


def bad(report: Report) -> list[tuple[str, str]]:
    """Level and text of all that is not fine."""
    return [(f.level, f"{f.topic}: {f.what}; {f.why}; {f.remedy}") for f in report.findings if f.level != "ok"]


def found(report: Report, level: str, pattern: str) -> bool:
    return any(one == level and re.search(pattern, text) for one, text in bad(report))


def admin(server: PrivateServer) -> Any:
    return redis.Redis(unix_socket_path=server.socket)


def test_a_server_that_is_fit_is_called_so_and_left_as_it_was(new_server: NewServer) -> None:
    server = new_server(*GOOD, appendonly=True)
    with closing(admin(server)) as look, holdfast.Lock(server.url, "held"):
        report = examine(server.url)
        ((level, text),) = bad(report)
        assert (level, text.partition(";")[0]) == ("note", "version: it was started less than a lease ago")
        (facts,) = report.facts.values()
        assert facts.refused == {}
        assert facts.heard is facts.listed is True
        assert facts.keys is not None
        assert facts.keys.complete
        assert len(set(facts.runs)) == 1
        assert facts.ahead is not None
        assert abs(facts.ahead) < 0.5
        assert not [key for key in look.keys("*") if b"doctor" in key]
    holdfast.close()


def test_clients_are_looked_at_as_they_are_set(server: PrivateServer) -> None:
    class Special(redis.ConnectionPool):
        """Nobody knows how it connects."""

    pool = Special.from_url(server.url, max_connections=3, socket_timeout=60)
    with closing(redis.Redis(connection_pool=pool)) as client:
        report = examine(client)
        assert found(report, "warning", "a pool of 3 connections")
        assert found(report, "warning", "socket_timeout is 60 s")
        assert not found(report, "problem", "")
    pool.disconnect()
    with closing(redis.Redis.from_url(server.url, socket_timeout=0.01)) as client:
        (facts,) = examine(client).facts.values()
        assert facts.connection.timeout == 0.01  # too short to rely on answers; what is said of it, `test_doctor_rules` knows
    assert not found(examine(redis.asyncio.Redis.from_url(server.url)), "problem", "")
    with pytest.raises(holdfast.ConfigError, match="client must be"):
        examine(None)  # type: ignore[arg-type]


def test_what_evicts_forgets_and_never_ends(new_server: NewServer) -> None:
    server = new_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with closing(admin(server)) as client:
        client.set("hf:{for ever}", "a peer without a timeout")
        client.hset("hf:marker", "run", "is to stay")
        report = examine(server.url)
        assert found(report, "problem", "maxmemory-policy is allkeys-lru")
        assert found(report, "warning", "no append-only file")
        assert found(report, "warning", r"keys: 1 keys of locks have no expiry: hf:\{for ever\}")
        client.flushall()


def test_a_full_server(new_server: NewServer) -> None:
    server = new_server("--maxmemory", "100b")
    report = examine(server.url)
    assert found(report, "problem", "to acquire a lock is refused: .*OOM.*raise maxmemory")


@pytest.mark.parametrize(
    ("missing", "level", "pattern"),
    [
        ("-set", "problem", "to acquire a lock is refused: .*('set'|can't run this command).*holdfast acl"),
        ("-zadd", "problem", "to wait for a lock is refused: .*('zadd'|can't run this command)"),
        ("-subscribe", "problem", "to subscribe is refused: NOPERM"),
        ("-exists", "problem", "to check whether a lock is held is refused"),
        ("-publish", "warning", "a message that a script published did not arrive"),
        ("-pubsub", "note", "NUMSUB is refused"),
        ("-ping", "problem", "reach: NOPERM .*`holdfast acl` prints"),
        ("-info", "note", "INFO is refused"),
        ("-config", "note", "CONFIG is refused"),
        ("-scan", "note", "SCAN is refused"),
    ],
)
def test_each_right_that_is_missing_is_found(server: PrivateServer, missing: str, level: str, pattern: str) -> None:
    with closing(admin(server)) as client:
        extra = ["~hf:*", "+info", "+config|get", "+scan", "+pttl"]
        client.execute_command("ACL SETUSER", "patient", *access.rule(), *extra, ">canary-1", missing)
        report = examine(server.url.replace("//", "//patient:canary-1@"))
        assert found(report, level, pattern), bad(report)
        assert "canary" not in repr(report)
        client.acl_deluser("patient")
        assert not [key for key in client.keys("*") if b"doctor" in key]


def test_with_the_rights_of_locks_alone_nothing_is_wrong(server: PrivateServer) -> None:
    with closing(admin(server)) as client:
        client.execute_command("ACL SETUSER", "patient", *access.rule(), ">canary-1")
        report = examine(server.url.replace("//", "//patient:canary-1@"))
        client.acl_deluser("patient")
    assert {level for level, _ in bad(report)} == {"note"}


def test_replicas() -> None:
    with private(*GOOD, "--repl-diskless-sync-delay", "0", port=True, password="", appendonly=True) as primary:
        with private("--replicaof", "127.0.0.1", str(primary.port)) as replica, closing(admin(primary)) as client:
            until(lambda: "online" in str(client.info("replication").get("slave0")))
            assert found(examine(primary.url), "warning", "1 replicas; a primary that is cut off")
            client.config_set("min-replicas-to-write", 1)
            report = examine(primary.url, replicas=1)
            assert report.level == "note"
            assert ("ok", "1 replicas have acknowledged a write") in [(f.level, f.what) for f in report.findings]
            report = examine(replica.url)
            assert found(report, "problem", "this is a replica")
            assert found(report, "problem", "to acquire a lock is refused: .*READONLY.*URL of the primary")
            assert found(examine(primary.url, replicas=2), "problem", "1 of 2 replicas have acknowledged")
        until(lambda: client.info("replication")["connected_slaves"] == 0)
        report = examine(primary.url)
        assert found(report, "problem", "min-replicas-to-write is 1, but only 0 replicas keep up")
        assert found(report, "problem", "to acquire a lock is refused: .*NOREPLICAS.*repair the replicas")


def test_who_cannot_be_reached(server: PrivateServer, new_server: NewServer) -> None:
    locked = new_server(port=True, password="canary-2")
    stopped = new_server()
    stopped.pause()
    reasons = {
        "redis://127.0.0.1:1": "Connection refused",
        f"redis://127.0.0.1:{locked.port}": "NOAUTH.*put user and password",
        f"redis://:canary-3@127.0.0.1:{locked.port}": "WRONGPASS.*correct user and password",
        f"{stopped.url}?socket_timeout=0.2": "no answer",
    }
    report = examine([*reasons, server.url])
    stopped.resume()
    assert "canary" not in repr(report)
    for findings, pattern in zip(report.servers.values(), reasons.values(), strict=False):
        (finding,) = findings
        assert (finding.level, finding.topic) == ("problem", "reach")
        assert re.search(pattern, f"{finding.what}; {finding.remedy}"), finding
    assert found(report, "problem", "4 of 5 servers are unreachable; there is no majority")


def test_the_same_server_twice(server: PrivateServer) -> None:
    report = examine([server.url, f"unix://{server.socket}", server.url])
    assert found(report, "problem", "are the same server")
    assert len(report.servers) == 3
    named = examine({"one": server.url, "two": f"unix://{server.socket}", "three": server.url})
    assert list(named.servers) == list(report.servers)
