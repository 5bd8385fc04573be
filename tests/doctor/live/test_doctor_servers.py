"""The doctor where one name means several servers: a Cluster, and a primary behind Sentinels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from doctor.live.test_doctor import admin, bad, found
from holdfast._api import access
from holdfast.doctor import examine
from support.clusters import Cluster, cluster
from support.sentinels import Sentinels
from support.servers import PrivateServer


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    # A node that stops for a moment does not count as failed, which would be the others' trouble, too.
    with cluster(3, 0, "--appendonly", "yes", "--appendfsync", "always", node_timeout=15) as nodes:
        yield nodes
    holdfast.close()


def addresses(nodes: Cluster) -> set[str]:
    return {f"127.0.0.1:{node.port}" for node in nodes.nodes}


def left_behind(node: PrivateServer) -> list[bytes]:
    with closing(admin(node)) as look:
        return [key for key in look.keys("*") if b"doctor" in key or b"hf:proc" in key]


def test_each_primary_of_a_cluster_is_looked_at(three: Cluster) -> None:
    host, port = three.address
    clients: list[Any] = [redis.RedisCluster(host=host, port=port), redis.asyncio.RedisCluster(host=host, port=port)]
    for client in (three.url, clients[0], clients[1]):
        report = examine(client)
        assert set(report.servers) == addresses(three)
        assert {text.partition(";")[0] for _, text in bad(report)} <= {
            "replicas: no replica",
            "version: it was started less than a lease ago",
        }
        assert [finding.what for finding in report.together] == ["3 primaries own all slots"]
        assert all(facts.heard and facts.listed for facts in report.facts.values())
    clients[0].close()
    assert [left_behind(node) for node in three.nodes] == [[], [], []]


def test_what_is_wrong_with_one_of_them_is_found(three: Cluster) -> None:
    worse, away, _ = three.nodes
    with closing(admin(worse)) as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        away.pause()
        report = examine(three.url)
        away.resume()
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "0")
    levels = {address: {f"{f.level} {f.topic}" for f in findings} for address, findings in report.servers.items()}
    assert "problem memory" in levels[f"127.0.0.1:{worse.port}"]
    assert levels[f"127.0.0.1:{away.port}"] == {"problem reach"}
    assert sum("problem" in str(found) for found in levels.values()) == 2
    three.wait_ok()


def test_with_the_rights_for_a_cluster_nothing_is_wrong_there(three: Cluster) -> None:
    if "redis_version:6" in three.call(three.nodes[0], "INFO", "server"):
        pytest.skip("no sharded channels before Redis 7.0")
    rights = access.rule(("lock", "cluster"), version=access.SHARDED_SINCE)
    for node in three.nodes:
        three.call(node, "ACL", "SETUSER", "patient", *rights, ">canary-1")
    report = examine(three.url.replace("//", "//patient:canary-1@"))
    assert {level for level, _ in bad(report)} == {"note"}
    assert all(facts.heard for facts in report.facts.values())
    assert "canary" not in repr(report)


def test_slots_that_nobody_has_are_missed(three: Cluster) -> None:
    node = three.primary_of(7)
    three.call(node, "CLUSTER", "DELSLOTS", "7")
    try:
        with closing(redis.RedisCluster(host="127.0.0.1", port=int(str(node.port)), require_full_coverage=False)) as client:
            report = examine(client)
        assert found(report, "problem", "1 of its 16384 slots have no owner")
    finally:
        three.call(node, "CLUSTER", "ADDSLOTS", "7")
        three.wait_ok()


def test_a_cluster_is_not_taken_for_a_server_nor_a_server_for_a_cluster(three: Cluster, server: PrivateServer) -> None:
    assert found(examine(f"redis://127.0.0.1:{three.nodes[0].port}"), "problem", "one server of a Cluster.*redis.cluster://")
    report = examine(f"redis+cluster://127.0.0.1:{server.port}")
    assert found(report, "problem", "reach: .*cluster support disabled.*begin its URL with redis://")
    assert found(examine("redis+cluster://127.0.0.1:1"), "problem", "reach: cluster at 127.0.0.1:1: no server answers")
    for clients, replicas in (([three.url, server.url], 0), (three.url, 1)):
        with pytest.raises(holdfast.ConfigError, match="Cluster must be checked alone"):
            examine(clients, replicas=replicas)


def test_behind_sentinels_the_primary_is_looked_at() -> None:
    with Sentinels("--appendonly", "yes", down_after=5) as sentinels:
        sentinels.replicated()
        report = examine(sentinels.url, replicas=1)
        ((address, facts),) = report.facts.items()
        assert address == f"sentinel:main (at 127.0.0.1:{sentinels.servers[0].port})"
        assert facts.acknowledged == 1
        assert facts.heard
        assert not found(report, "problem", "")
        assert found(examine(f"redis://127.0.0.1:{sentinels.watchers[0].port}"), "problem", "this is a Sentinel")
        for watcher in sentinels.watchers:
            watcher.kill()
        assert found(examine(sentinels.url), "problem", "no Sentinel answers")
