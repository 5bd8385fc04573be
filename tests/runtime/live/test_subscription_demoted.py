"""A replica passes on what is published at its primary, to listeners whom the primary does not count: as one is that has been
demoted while somebody listened there. Found by chaos: two believed to hold a lock, one of them passed over and told all the
same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import redis

from holdfast._core.lock.replies import ACQUIRE, RELEASE
from holdfast._core.names import lock_keys

if TYPE_CHECKING:
    from conftest import NewServer

KEYS = lock_keys("elsewhere", "hf:", None)


def test_who_is_passed_over_is_not_told_that_he_has_the_lock(new_server: NewServer) -> None:
    primary, replica = (new_server("--repl-diskless-sync-delay", "0", port=True) for _ in range(2))
    with redis.Redis.from_url(primary.url) as here, redis.Redis.from_url(replica.url) as there:
        there.replicaof("127.0.0.1", str(primary.port))
        while there.info("replication").get("master_link_status") != "up":
            time.sleep(0.01)
        with there.pubsub() as elsewhere, here.pubsub() as listening:
            elsewhere.subscribe("hf:inbox:bb")
            listening.subscribe("hf:inbox:cc")
            assert [inbox.get_message(timeout=5)["type"] for inbox in (elsewhere, listening)] == ["subscribe"] * 2
            for token, join in (("aa.1", 0), ("bb.2", 1), ("cc.3", 1)):
                here.eval(ACQUIRE.body, 3, *KEYS, token, 5000, join)
            here.eval(RELEASE.body, 3, *KEYS, "aa.1", "release")
            assert here.get(KEYS[0]) == b"cc.3"
            assert listening.get_message(timeout=5)["data"].startswith(b"1 cc.3 ")
            here.publish("hf:inbox:bb", "the end")
            assert elsewhere.get_message(timeout=5)["data"] == b"the end"
