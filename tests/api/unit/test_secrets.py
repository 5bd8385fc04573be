"""A token or a password is in no repr, no message, no pickle of anything a user or a log may see."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator

import hiredis
import pytest

from holdfast import Lock, aio
from holdfast._core.lock.records import Attempt, Grant, HeldLease, Waiter
from holdfast._core.lock.replies import ACQUIRE, Busy
from holdfast._core.lock.server_queue import Refresh
from holdfast._core.requests import Answer, NotSent, Refused, RegisterWaiter, RunScript, Unknown, Wait
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint
from holdfast._net.url import from_url
from holdfast.errors import LeaseLost, LockTimeout, NotHeld, ServerError
from support.driver import Fault, always, spec
from support.stage import Stage, stage

__all__ = ["stage"]

TOKEN = "aaaaaaaaaaaa.c0ffee00c0ffee00c0ffee00c0ffee00"
SECRET = TOKEN.split(".")[1]
PASSWORD = "canary-password"
URL = f"redis://user:{PASSWORD}@localhost:1"


def shown(thing: object) -> Iterator[str]:
    yield repr(thing)
    yield str(thing)
    yield f"{thing}"
    if isinstance(thing, BaseException):
        yield "".join(traceback.format_exception(thing))
        yield repr(thing.__dict__)
        yield repr(pickle.dumps(thing))


def check(thing: object) -> None:
    for text in shown(thing):
        assert SECRET not in text
        assert PASSWORD not in text


def test_what_the_core_passes_around() -> None:
    attempt = Attempt(spec(), TOKEN, may_be_on_server=True, maybe_in_flight=True)
    grant = Grant(attempt, 7, 0.0, 1.0)
    waiter = Waiter(attempt, Busy(1.0, 7, "q", lingers=False))
    run = RunScript(ACQUIRE, attempt.spec.keys, (TOKEN, 30000, 0), 1.0)
    answer = Answer(Busy(1.0, 7, "q", lingers=False), 0.0, 0.0)
    for thing in (
        attempt,
        grant,
        waiter,
        run,
        HeldLease(grant),
        Refresh([waiter]),
        RegisterWaiter(waiter, None),
        Wait(waiter, answer, None),
    ):
        check(thing)


def test_where_the_server_is() -> None:
    for thing in (from_url(URL), from_url(f"unix://:{PASSWORD}@/run/x.sock"), Endpoint(password=PASSWORD)):
        check(thing)
        check(thing.address)


def test_locks() -> None:
    check(Lock(URL, "x"))
    check(aio.Lock(URL, "x"))


@pytest.fixture
def known_token(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    def token() -> str:
        stage.script.tokens.append(TOKEN)
        return TOKEN

    monkeypatch.setattr(stage.process, "token", token)
    return stage


def test_leases_and_their_errors(known_token: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage = known_token
    caplog.set_level(logging.DEBUG)
    lock = Lock(URL, "x")
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    check(lease)
    check(lease.lost)
    other = Lock(URL, "x", wait=0)
    stage.server.take(TOKEN.replace("c0ffee", "decade"), 60)
    with pytest.raises(LockTimeout) as busy, other:
        pass
    check(busy.value)
    with pytest.raises(LeaseLost) as lost:
        lock.release()
    check(lost.value)
    check(lease)
    with pytest.raises(NotHeld) as not_held:
        lock.release()
    check(not_held.value)
    for error in (NotSent("no", "localhost:1"), Unknown("cut", "localhost:1"), Refused("NOPERM no", "localhost:1")):
        stage.script.failing = always(Fault(error), "acquire")
        with pytest.raises(ServerError) as caught:
            other.acquire()
        check(caught.value)
    assert SECRET not in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    "reply",
    [
        f"ERR unknown command 'EVALSHA', with args beginning with: 'abc' '3' 'hf:{{x}}' 'hf:{{x}}:state' '{TOKEN}' ",
        f"ERR unknown command `AUTH`, with args beginning with: `user`, `{PASSWORD}`, ",
    ],
)
def test_servers_that_repeat_what_they_were_sent(reply: str) -> None:
    """A command that was renamed or removed: the server's error quotes the arguments."""
    run = RunScript(ACQUIRE, spec().keys, (TOKEN, 30000, 0), 1.0)
    with pytest.raises(Refused) as caught:
        protocol.value(run, hiredis.ReplyError(reply), from_url(URL))
    check(caught.value)
    assert "unknown command" in str(caught.value)
