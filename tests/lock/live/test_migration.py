"""A program with redis-py's lock and one of ours with `key=`, as on the page for users of redis-py."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError

import holdfast

if TYPE_CHECKING:
    from support.servers import PrivateServer


@pytest.mark.parametrize("extends", [True, False])
def test_work_that_takes_longer_than_the_timeout(server: PrivateServer, name: str, look: redis.Redis, extends: bool) -> None:
    """redis-py does not renew: after `timeout`, a program with our lock gets in, unless the old program extends its lock."""
    theirs, ours = look.lock(name, timeout=0.5), holdfast.Lock(server.url, name, key=name)
    assert theirs.acquire()
    assert not ours.acquire(blocking=False)
    if extends:
        theirs.extend(60)
    time.sleep(0.6)
    assert ours.acquire(blocking=False) is not extends
    if extends:
        theirs.release()
        return
    with pytest.raises(LockNotOwnedError) as caught:
        theirs.release()
    assert isinstance(caught.value, LockError)
    ours.release()


def test_a_lost_lease_is_no_lock_timeout(server: PrivateServer, name: str, look: redis.Redis) -> None:
    """So `except LockTimeout` does not catch what `except LockError` has caught."""
    lock = holdfast.Lock(server.url, name, key=name)
    assert lock.acquire()
    assert lock.lease is not None
    look.delete(name)
    with pytest.raises(holdfast.LeaseLost) as caught:
        lock.release()
    assert not isinstance(caught.value, holdfast.LockTimeout | LockError)
