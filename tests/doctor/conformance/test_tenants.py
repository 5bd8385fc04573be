"""A prefix with a user of its own (`holdfast acl --prefix`) is a boundary: nobody beyond it reads or writes anything within."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

import holdfast
from holdfast._api import access
from holdfast._runtime.process import current
from support.box import Box
from support.clusters import cluster
from support.witness import in_thread, until

ALL = ("lock", "quarantine", "redlock", "cache", "once", "events", "schedule", "inspect", "break", "permits", "election")
RAW = "app:jobs"
"""A key that both tenants use, see ``key=``."""


class Tenant:
    """A user with the rights that `holdfast acl` prints for a prefix."""

    def __init__(self, box: Box, name: str) -> None:
        self.name, self.prefix = name, f"{name}:"
        rights = access.rule(ALL, prefix=self.prefix, raw_keys=["app:*"])
        box.redis.execute_command("ACL SETUSER", name, *rights, ">secret")
        self.url = f"unix://{name}:secret@{box.server.socket}"
        self.client: Any = redis.Redis(unix_socket_path=box.server.socket, username=name, password="secret", protocol=2)

    def lock(self, name: str = "x", **options: Any) -> holdfast.Lock:
        return holdfast.Lock(self.url, name, prefix=self.prefix, **options)


@contextmanager
def tenants(box: Box) -> Iterator[tuple[Tenant, Tenant]]:
    pair = Tenant(box, "a"), Tenant(box, "b")
    try:
        yield pair
    finally:
        holdfast.close()
        for tenant in pair:
            tenant.client.close()
            box.redis.acl_deluser(tenant.name)


def attempts(me: Any, prefix: str, token: str) -> list[Callable[[], object]]:
    """All ways to read, write, hear or tell something under this prefix."""
    process = token.partition(".")[0]
    lock, record, quarantine, marker = f"{prefix}{{x}}", f"{prefix}proc:{process}", f"{prefix}guard", f"{prefix}marker"
    keys = [
        lock,
        f"{lock}:state",
        f"{lock}:queue",
        f"{lock}:hopefuls",
        record,
        quarantine,
        marker,
        f"{prefix}cache:{{c}}:value",
    ]
    tries: list[Callable[[], object]] = []
    for key in keys:
        plain = (("GET",), ("SET", "x"), ("DEL",), ("EXISTS",), ("GETRANGE", "0", "9"), ("MGET",))
        tries += [functools.partial(me.execute_command, name, key, *words) for name, *words in plain]
        tries.append(functools.partial(me.eval, "return redis.call('GET', KEYS[1])", 1, key))
        tries.append(functools.partial(me.eval, f"return redis.call('GET', '{key}')", 0))
    tries.append(functools.partial(me.execute_command, "HGET", f"{lock}:state", "fence"))
    tries.append(functools.partial(me.execute_command, "ZRANGE", f"{lock}:queue", "0", "-1"))
    for place in ("", "cache:", "once:", "schedule:"):
        inbox = f"{prefix}{place}inbox:{process}"
        messages = (f"4 {token} mallory", f"2 {token}", f"1 {token} 1999999999999999")
        tell = "return redis.call('PUBLISH', ARGV[1], ARGV[2])"
        tries += [functools.partial(me.eval, tell, 0, inbox, message) for message in messages]
        tries.append(functools.partial(hear, me, inbox))
    return tries


def hear(me: Any, channel: str) -> None:
    with closing(me.pubsub()) as inbox:
        inbox.subscribe(channel)
        inbox.parse_response(block=True)


def contents(admin: Any, prefix: str) -> dict[bytes, Any]:
    """All that stands under a prefix, apart from its expiry."""
    return {key: admin.dump(key) for key in sorted(admin.scan_iter(f"{prefix}*"))}


def test_no_tenant_reads_or_writes_what_belongs_to_the_other(box: Box) -> None:
    with tenants(box) as pair:
        leases = [tenant.lock(ttl=60, label=f"of {tenant.name}").__enter__() for tenant in pair]
        waiting = [in_thread(tenant.lock(wait=0.2).acquire) for tenant in pair]
        until(lambda: all(box.redis.exists(f"{tenant.prefix}proc:{current().id}") for tenant in pair))
        assert [wait.result(10) for wait in waiting] == [False, False]
        for me, other in (pair, pair[::-1]):
            token = box.redis.get(f"{other.prefix}{{x}}").decode()
            before = contents(box.redis, other.prefix)
            assert before.keys() >= {f"{other.prefix}{{x}}".encode(), f"{other.prefix}proc:{current().id}".encode()}
            tries = attempts(me.client, other.prefix, token)
            assert len(tries) >= 60
            for one in tries:
                with pytest.raises((NoPermissionError, ResponseError), match=r"[Pp]ermission|can't|ACL failure|access"):
                    one()
            assert contents(box.redis, other.prefix) == before
            for one in attempts(other.client, other.prefix, token)[:2]:
                one()  # what the rights are good for: a lock that is broken by its own tenant is checked elsewhere
            box.redis.set(f"{other.prefix}{{x}}", token, px=60_000)
        for lease in leases:
            lease.check()


def test_only_who_may_inspect_lists_names(box: Box) -> None:
    """And of all prefixes: the server knows no pattern for SCAN."""
    with tenants(box) as (a, b), b.lock("secret name"):
        assert b"b:{secret name}" in set(a.client.scan_iter("b:*"))
        for features in (ALL[:7], ("permits", "election")):
            assert not {"+scan", "+keys"} & set(access.rule(features, prefix="a:"))


def test_two_prefixes_share_a_key_and_exclude_each_other(box: Box) -> None:
    """If a client may not notify the other one, that one finds out by its next refresh."""
    with tenants(box) as (a, b):
        turns = 0
        for first, second in ((a, b), (b, a)) * 2:
            with first.lock("mine", key=RAW):
                assert not second.lock("other", key=RAW).acquire(blocking=False)
                lock = second.lock("other", key=RAW, wait=10)
                got = in_thread(lock.acquire)
                until(lambda: box.redis.zcard(f"{{{RAW}}}:queue:raw") == 1)
            assert got.result(10)
            turns += 1
            lock.release()
        assert turns == 4


def test_a_release_grants_in_order_to_those_whom_it_may_not_tell(box: Box) -> None:
    with tenants(box) as (a, b):
        fair = holdfast.FairLock(a.url, "third", key=RAW, prefix=a.prefix, wait=20)
        lock = b.lock("second", key=RAW, wait=20)
        with a.lock("first", key=RAW):
            first = in_thread(lock.acquire)
            until(lambda: box.redis.zcard(f"{{{RAW}}}:queue:raw") == 1)
            second = in_thread(fair.acquire)
            until(lambda: box.redis.zcard(f"{{{RAW}}}:queue:raw") == 2)
        assert first.result(10)
        assert not second.done()
        lock.release()
        assert second.result(10)
        fair.release()


def told(hub: Any) -> list[bytes]:
    """Channels on which a grant was published."""
    found = []
    while (message := hub.get_message(timeout=0.2)) is not None:
        if message["type"] == "pmessage" and message["data"].startswith(b"1 "):
            found.append(message["channel"])
    return found


def test_a_hand_over_of_a_shared_key_goes_to_the_inbox_of_the_waiter_s_prefix(box: Box) -> None:
    with closing(box.redis.pubsub()) as hub:
        hub.psubscribe("*inbox:*")
        lock = holdfast.Lock(box.server.url, "n", key=RAW, prefix="b:", wait=10)
        with holdfast.Lock(box.server.url, "m", key=RAW, prefix="a:"):
            got = in_thread(lock.acquire)
            until(lambda: box.redis.zcard(f"{{{RAW}}}:queue:raw") == 1)
        assert got.result(10)
        assert told(hub) == [f"b:inbox:{current().id}".encode()]
        assert box.redis.get(RAW).startswith(f"{current().id}@{b'b:'.hex()}.".encode())
        lock.release()
    holdfast.close()


def test_two_prefixes_share_a_key_in_a_cluster() -> None:
    with cluster() as three, closing(redis.Redis.from_url(three.primary_of("{jobs}").url)) as look:
        lock = holdfast.Lock(three.url, "n", key="{jobs}:lock", prefix="b:", wait=10)
        for _ in range(2):
            with holdfast.Lock(three.url, "m", key="{jobs}:lock", prefix="a:"):
                assert not holdfast.Lock(three.url, "k", key="{jobs}:lock", prefix="c:").acquire(blocking=False)
                got = in_thread(lock.acquire)
                until(lambda: look.zcard("{jobs}:lock:queue") == 1)
            assert got.result(10)
            lock.release()
        holdfast.close()


def questions(box: Box) -> int:
    """How many scripts the server has run."""
    stats: dict[str, Any] = box.redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("eval", "evalsha"))


@pytest.mark.turns
@pytest.mark.parametrize("renew", [True, False])
def test_a_flood_of_forged_messages_costs_a_question_a_second_and_no_lease(box: Box, renew: bool) -> None:
    lock = holdfast.Lock(box.server.url, "x", ttl=60, renew=renew)
    with lock as lease:
        token = box.redis.get("hf:{x}").decode()
        inbox = f"hf:inbox:{token.partition('.')[0]}"
        until(lambda: box.redis.pubsub_numsub(inbox)[0][1])
        asked, began = questions(box), box.redis.time()
        for _ in range(200):
            for message in (f"4 {token} mallory", "4 " + token, f"1 {token} 1999999999999999", "5 what", "4 ff.00 x"):
                box.redis.publish(inbox, message)
        until(lambda: questions(box) > asked)
        seconds = box.redis.time()[0] - began[0] + 1
        assert questions(box) - asked <= seconds + 1
        lease.check()
    holdfast.close()


def test_who_broke_it_is_still_told(box: Box) -> None:
    with (
        pytest.raises(holdfast.LeaseLost, match="it was broken by ops@host"),
        holdfast.Lock(box.server.url, "x", ttl=60) as lease,
    ):
        token = box.redis.get("hf:{x}").decode()
        until(lambda: box.redis.pubsub_numsub(f"hf:inbox:{token.partition('.')[0]}")[0][1])
        broken = holdfast.Inspector(box.server.url).break_lock("x", by="ops@host")
        assert broken is not None
        assert broken.told
        until(lease.lost.is_set)
    holdfast.close()


def test_one_connection_listens_in_all_prefixes(box: Box) -> None:
    prefixes = [f"p{n}:" for n in range(5)]
    locks = [holdfast.Lock(box.server.url, "x", prefix=prefix, wait=10) for prefix in prefixes]
    others = [holdfast.FairLock(box.server.url, "x", prefix=prefix, wait=10) for prefix in prefixes]
    for lock in locks:
        lock.acquire()
    waiting = [in_thread(other.acquire) for other in others]
    until(lambda: all(box.redis.zcard(f"{prefix}{{x}}:queue") == 1 for prefix in prefixes))
    until(lambda: all(box.redis.exists(f"{prefix}proc:{current().id}") for prefix in prefixes))
    listeners = [client for client in box.redis.client_list() if int(client["sub"])]
    assert [int(client["sub"]) for client in listeners] == [5]
    for lock in locks:
        lock.release()
    assert all(wait.result(10) for wait in waiting)
    for other in others:
        other.release()
    holdfast.close()
    assert not list(box.redis.scan_iter("p*:proc:*"))
