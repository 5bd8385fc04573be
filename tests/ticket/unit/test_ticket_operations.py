"""Handing a lock over by a ticket: what a ticket is as text, and the lease that becomes one, over a scripted server."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import ConfigError, LeaseLost, Lock, NotHeld, ServerError, Ticket, TicketRefused, aio, redeem
from holdfast._api import ticket as texts
from holdfast._api.lease import core_of
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.spec import Spec
from holdfast._core.lock.ticket import TRIES
from holdfast._core.names import lock_keys
from holdfast._core.requests import NotSent, Refused, Unknown
from holdfast.aio import redeem as aio_redeem
from support.driver import OTHER, Fault, always, first, never, some
from support.memory_server import LOCK
from support.stage import Stage, stage

__all__ = ["stage"]

URL = "redis://localhost"
CUT = Fault(Unknown("cut"))
DONE_AND_CUT = Fault(Unknown("cut"), applied=True)
AWAY = Fault(NotSent("nobody there", "localhost:6379"))
SECRET = "5ec2e7" * 5 + "5e"


def made(name: str | bytes = "jobs", **options: Any) -> Ticket:
    keys = lock_keys(name, "hf:", options.pop("key", None))
    text = name if isinstance(name, str) else name.decode(errors="backslashreplace")
    spec = Spec(text, keys, 30.0, renew=True, max_hold=None, timeout=1.0, **options)
    return texts.write(spec, f"{'a' * 12}.{SECRET}", 1_700_000_000_000)


# The text


@pytest.mark.parametrize("name", ["jobs", "a b", "ü{x}%\n", b"\xff" * 512, "é" * 256])
def test_a_ticket_says_what_it_is_for(name: str | bytes) -> None:
    ticket = made(name, quarantine=60.0, replicas=2)
    assert len(ticket) < texts.LONGEST
    told = texts.read(ticket)
    assert told.key == lock_keys(name, "hf:", None)[0]
    assert (told.token, told.ends) == (f"{'a' * 12}.{SECRET}", 1_700_000_000_000)
    assert (told.quarantine, told.replicas) == (60.0, 2)
    assert ticket.isascii()


def test_it_travels_as_any_text_does() -> None:
    ticket = made()
    plain = ticket.reveal()
    assert type(plain) is str
    assert ticket == plain
    assert json.loads(json.dumps({"args": [ticket]})) == {"args": [plain]}
    for again in (pickle.loads(pickle.dumps(ticket)), copy.copy(ticket), copy.deepcopy([ticket])[0]):  # noqa: S301 - ours
        assert type(again) is Ticket
        assert again.reveal() == plain
    for form in (ticket, plain, plain.encode(), ticket + "\n", Ticket(plain)):
        assert texts.read(form) == texts.read(ticket)


def test_what_is_made_for_the_eye_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    ticket = made()
    shown = [repr(ticket), str(ticket), f"{ticket}", f"{ticket:>60}", f"{ticket!r}", "%s %r" % (ticket, [ticket])]  # noqa: UP031
    shown += [repr(texts.read(ticket)), repr(redeem(URL, ticket)), repr({"ticket": ticket})]
    with caplog.at_level(logging.INFO):
        logging.getLogger("test").info("handed over %s", ticket)
    shown.append(caplog.text)
    for text in shown:
        assert "jobs" in text
        assert SECRET not in text
        assert ticket.reveal()[10:40] not in text
    assert str(Ticket("x")) == "<holdfast ticket for nothing>"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (7, "is not text, but of type int"),
        ("", "is not a ticket"),
        ("hft2.e30=", "is not a ticket"),
        (repr(made()), "is the printed form of a ticket"),
        (made().reveal()[:-5], "is damaged"),
        ("hft1.!!!!", "is damaged"),
        ("hft1." + "W10=", "is damaged"),
        ("hft1." + "x" * 9000, "is not a ticket"),
        ("hft1." + "W1tbW1tb" * 900, "is damaged"),
        (b"\xff\xfe", "is not a ticket"),
    ],
)
@pytest.mark.parametrize("cls", [redeem, aio_redeem], ids=["sync", "asyncio"])
def test_what_is_no_ticket_is_refused_before_anything_is_sent(cls: Callable[..., object], given: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        cls(URL, given)
    assert caught.value.parameter == "ticket"
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, "which would show it"


def test_a_key_that_cannot_be_one_is_refused() -> None:
    told = texts.read(made())
    spec = Spec("x", (b"a}b", b"", b""), 30.0, renew=True, max_hold=None, timeout=1.0)
    with pytest.raises(ConfigError, match="is damaged"):
        redeem(URL, texts.write(spec, told.token, told.ends), key="a}b")


@pytest.mark.parametrize("cls", [redeem, aio_redeem], ids=["sync", "asyncio"])
def test_name_key_and_prefix_belong_together(cls: Callable[..., Any]) -> None:
    """A ticket that was made up, or relabelled, would replace the key in it, whatever that is, and delete it."""

    def forged(name: str, key: bytes, token: str = f"{'a' * 12}.{SECRET}") -> Ticket:
        return texts.write(Spec(name, (key, b"", b""), 30.0, renew=True, max_hold=None, timeout=1.0), token, 1_700_000_000_000)

    for ticket, options, why in (
        (forged("invoice:42", b"feature:payments"), {}, "the lock has another key"),
        (forged("invoice:42", b"hf:{mine}"), {}, "the lock has another key"),
        (forged("a", b"hf:{%61}"), {}, "the lock has another key"),
        (forged("mine", b"app:{mine}"), {}, "prefix="),
        (forged("mine", b"hf:{mine}"), {"prefix": "app:"}, "prefix="),
        (forged("mine", b"raw"), {"key": "other"}, "is for the key 'raw', not for key='other'"),
        (forged("mine", b"hf:{mine}"), {"key": "raw"}, "not for key='raw'"),
        (forged("mine", b"hf:{mine}", "1"), {}, "no valid token"),
        (forged("mine", b"hf:{mine}", "aaaaaaaaaaaa.0"), {}, "no valid token"),
        (forged("mine", b"hf:{mine}", f"{'a' * 12}.{SECRET}~"), {}, "no valid token"),
    ):
        with pytest.raises(ConfigError, match=why) as caught:
            cls(URL, ticket, **options)
        assert SECRET not in str(caught.value)
    assert cls(URL, forged("mine", b"app:{mine}"), prefix="app:").name == "mine"
    assert cls(URL, forged("mine", b"raw"), key="raw").name == "mine"
    assert cls(URL, made(b"\xff{%}")).name == "\\xff{%}"


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="ttl"):
        redeem(URL, made(), ttl=0)
    with pytest.raises(ConfigError, match="quarantine=60"):
        redeem(URL, made(quarantine=60.0), ttl=90)
    with pytest.raises(TypeError, match="has no timeout="):
        redeem(URL, made(), timeout=3)  # type: ignore[arg-type]


# The lease


def test_the_giver_has_nothing_any_more(stage: Stage) -> None:
    lock = Lock(URL, "x")
    with lock as lease:
        fence = lease.fence
        mine = stage.server.current()
        ticket = lease.ticket(expires=20)
        assert stage.server.current() == texts.read(ticket).token != mine
        assert stage.server.expires - stage.server.now == pytest.approx(20, abs=0.1)
        assert (lease.remaining(), lock.lease) == (0.0, None)
        assert len(stage.process.keeper.renewing) == 0
        for what in (lease.check, lease.renew, lease.release, lease.ticket):
            with pytest.raises(NotHeld, match=rf"lease of 'x' \(fence {fence}\) was handed over by a ticket"):
                what()
        assert not lease.lost.is_set()
        assert "handed over" in repr(lease)
    assert stage.server.current() == texts.read(ticket).token, "leaving the with has done nothing"
    with redeem(URL, ticket) as heir:
        assert heir.fence > fence
        assert heir.name == "x"
    assert stage.server.current() == ""


def test_the_same_for_asyncio(stage: Stage) -> None:
    async def main() -> None:
        lock = aio.Lock(URL, "x")
        async with lock as lease:
            ticket = await lock.ticket()
            with pytest.raises(NotHeld, match="was handed over by a ticket"):
                lease.check()
            with pytest.raises(NotHeld):
                await lock.ticket()
        assert stage.server.current() == texts.read(ticket).token
        async with aio_redeem(URL, ticket) as heir:
            assert heir.fence > lease.fence
        with pytest.raises(
            TicketRefused, match="for lock 'x' was redeemed before: a ticket can be redeemed only once"
        ) as caught:
            async with aio_redeem(URL, ticket):
                pass
        assert (caught.value.reason, caught.value.name) == ("used", "x")

    asyncio.run(main())


def test_one_that_expires_falls_to_the_next_in_line(stage: Stage) -> None:
    with Lock(URL, "x") as lease:
        stage.server.join(OTHER)
        ticket = lease.ticket(expires=5)
    stage.server.now += 5.1
    with pytest.raises(TicketRefused, match="expired before it was redeemed; the next waiter may hold the lock now") as caught:
        redeem(URL, ticket).acquire()
    assert caught.value.reason == "expired"


def test_one_whose_lock_was_taken_away(stage: Stage) -> None:
    with Lock(URL, "x") as lease:
        ticket = lease.ticket()
    stage.server.take(OTHER, 30)
    with pytest.raises(TicketRefused, match="the lock was broken or deleted") as caught:
        redeem(URL, ticket).acquire()
    assert caught.value.reason == "gone"
    assert stage.server.current() == OTHER


def test_the_next_of_this_process_asks_the_server(stage: Stage) -> None:
    lock = Lock(URL, "x")
    assert lock.acquire()
    lease = lock.lease
    assert lease is not None
    local_queue = core_of(lease).attempt.local_queue
    assert isinstance(local_queue, LocalQueue)
    assert local_queue.held_lease is not None
    lease.ticket()
    assert not local_queue.turn_of
    assert not local_queue.has_lease(core_of(lease).attempt)


@pytest.mark.parametrize("expires", [0, -1, float("nan"), True, "5"])
def test_how_long_it_is_good_for_is_checked_first(stage: Stage, expires: Any) -> None:
    with Lock(URL, "x") as lease:
        with pytest.raises(ConfigError, match="expires"):
            lease.ticket(expires)
        lease.check()


def test_a_lock_that_is_not_held_gives_none(stage: Stage) -> None:
    with pytest.raises(NotHeld):
        Lock(URL, "x").ticket()


# Failures


@pytest.mark.parametrize("fault", [CUT, DONE_AND_CUT], ids=str)
def test_an_answer_that_is_lost_changes_nothing(stage: Stage, fault: Fault) -> None:
    stage.script.failing = first(fault, "exchange_token")
    with Lock(URL, "x") as lease:
        ticket = lease.ticket()
    stage.script.failing = some(fault, range(2, 4), "exchange_token")
    stage.script.counts["exchange_token"] = 2
    with redeem(URL, ticket) as heir:
        assert stage.server.current() != texts.read(ticket).token
        heir.check()
    assert stage.script.nothing_left()
    stage.script.late_copies_arrive()
    assert stage.script.nothing_left(), "late copies do nothing"


@pytest.mark.parametrize("fault", [AWAY, Fault(Refused("READONLY a replica"))], ids=str)
def test_a_server_that_has_not_seen_it_leaves_the_lease_as_it_was(stage: Stage, fault: Fault) -> None:
    with Lock(URL, "x") as lease:
        stage.script.failing = always(fault, "exchange_token")
        with pytest.raises(ServerError, match=r"lock 'x'.*(nobody there|READONLY)"):
            lease.ticket()
        assert stage.script.counts["exchange_token"] == (TRIES if fault is AWAY else 1), "a refusal is an answer"
        lease.check()
        assert len(stage.process.keeper.renewing) == 1, "and it is renewed"
        stage.script.failing = never
        ticket = lease.ticket()
        stage.script.failing = always(fault, "exchange_token")
        with pytest.raises(ServerError):
            redeem(URL, ticket).acquire()
        stage.script.failing = never
        with redeem(URL, ticket) as heir:  # the ticket is as good as it was
            heir.check()


@pytest.mark.parametrize("fault", [CUT, DONE_AND_CUT], ids=str)
def test_where_nobody_knows_all_is_given_back(stage: Stage, fault: Fault) -> None:
    stage.script.failing = always(fault, "exchange_token")
    with (
        pytest.raises(LeaseLost, match="the server did not confirm the ticket, so the lock was released"),
        Lock(URL, "x") as lease,
    ):
        with pytest.raises(LeaseLost):
            lease.ticket()
        assert lease.lost.is_set()
        assert stage.script.nothing_left()
        lease.check()
    stage.script.late_copies_arrive()
    assert stage.script.nothing_left()


def test_a_lock_that_was_lost_gives_none(stage: Stage) -> None:
    with pytest.raises(LeaseLost, match="its key is gone, or another client holds the lock"), Lock(URL, "x") as lease:
        stage.server.take(OTHER, 30)
        lease.ticket()
    assert lease.lost.is_set()
    assert stage.server.current() == OTHER


def test_other_data_in_the_place_of_the_lock(stage: Stage) -> None:
    with pytest.raises(ConfigError, match=r"cannot be handed over: key 'hf:\{x\}' holds a list"), Lock(URL, "x") as lease:
        stage.server.lose()
        stage.server.keyspace.execute("RPUSH", LOCK, "data")
        lease.ticket()


def test_an_answer_that_comes_when_the_lease_is_over(stage: Stage) -> None:
    with Lock(URL, "x") as lease:
        ticket = lease.ticket()
    stage.script.slow = {("exchange_token", 1): 40.0}
    with pytest.raises(TicketRefused, match="the lease had expired when the reply arrived") as caught:
        redeem(URL, ticket, ttl=30).acquire()
    assert caught.value.reason == "late"
    assert stage.script.nothing_left()


@pytest.mark.parametrize("applied", [False, True])
def test_interrupted_at_every_request(stage: Stage, applied: bool) -> None:
    """The lock is free afterwards, or a ticket has it that somebody was given."""
    for number in range(30):
        stage.script.trace.clear()
        stage.script.faults = {number: Fault(KeyboardInterrupt(), applied)}
        given: list[Ticket] = []
        try:
            with Lock(URL, "x") as lease:
                given.append(lease.ticket())
            with redeem(URL, given[0]):
                pass
        except KeyboardInterrupt:
            pass
        else:
            assert number > 5
            break
        stage.script.faults = {}
        stage.script.late_copies_arrive()
        if given and stage.server.current() == texts.read(given[0]).token:
            with redeem(URL, given[0]):
                pass
        assert stage.script.nothing_left(), f"at request {number}"
        assert len(stage.process.keeper.renewing) == 0
    else:
        pytest.fail("it never ends")
