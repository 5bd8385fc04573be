"""What the keeper makes of answers and messages on one server, without its thread and without a connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from holdfast._core.mutex import CLAIM, RELEASE, RENEW, Attempt, Grant, margin
from holdfast._core.renewing import Tenure
from holdfast._core.requests import Answer, Granted, NotSent, Unknown
from holdfast._drive import node as module
from holdfast._drive.node import Node
from holdfast._wire.endpoint import Endpoint
from unit.driver import spec
from unit.waiters import busy, enlisted, put, waiter

TOKEN = "p.1"


class Stage:
    """A node whose connections are lists of what was sent."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.sent: list[tuple[bytes, Callable[[Any, float], None]]] = []
        self.failed: list[str] = []
        self.reported: list[Tenure] = []
        patch.setattr(module, "clock", lambda: self.now)
        keeper: Any = SimpleNamespace(
            process_id="aaaaaaaaaaaa", mutex=threading.Lock(), report=self.reported.append, safely=self.safely
        )
        self.node = Node(keeper, Endpoint())
        patch.setattr(self.node.commands, "send", self.send)
        patch.setattr(self.node.inbox, "send", self.send)
        patch.setattr(self.node.inbox, "fail", self.failed.append)

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)
        return True

    def send(self, packed: bytes, timeout: float, then: Callable[[Any, float], None]) -> None:
        self.sent.append((packed, then))

    def turn(self) -> list[str]:
        """What is sent now: the names of the commands."""
        before = len(self.sent)
        self.node.turn(self.now)
        return [packed.split(b"\r\n")[2].decode() for packed, _ in self.sent[before:]]

    def answer(self, reply: Any, *, number: int = -1) -> None:
        self.sent[number][1](reply, self.now)

    def queued(self) -> Any:
        """A waiter that listens and stands in line."""
        this = waiter(TOKEN)
        enlisted(self.node.waiting, this, self.now)
        self.node.waiting.on_listening(self.now)
        put(this).clear()
        self.node.waiting.joined(this, Answer(busy(), self.now, self.now), self.now)
        return this


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def message(payload: object) -> list[object]:
    return [b"message", b"hf:inbox:aaaaaaaaaaaa", payload]


# The inbox


def test_the_inbox_is_opened_for_the_first_who_waits(stage: Stage) -> None:
    assert stage.turn() == []
    this = waiter(TOKEN)
    assert not enlisted(stage.node.waiting, this, stage.now)
    assert stage.turn() == ["SUBSCRIBE"]
    stage.answer([b"subscribe", b"hf:inbox:aaaaaaaaaaaa", 1])
    assert put(this) == [None]


def test_a_deaf_inbox_is_closed_and_opened_again(stage: Stage) -> None:
    """Row 25: the server has no such listener any more, though nothing was heard of the connection."""
    stage.queued()
    stage.turn()
    stage.now += 1
    assert "EVALSHA" in stage.turn()
    stage.answer([0, [0, 20_000, 5, b"q"]], number=[i for i, (p, _) in enumerate(stage.sent) if b"EVALSHA" in p][-1])
    assert len(stage.failed) == 1


def test_an_inbox_that_is_heard_is_left_alone(stage: Stage) -> None:
    stage.queued()
    stage.turn()
    stage.now += 1
    stage.turn()
    stage.answer([1, [0, 20_000, 5, b"q"]], number=[i for i, (p, _) in enumerate(stage.sent) if b"EVALSHA" in p][-1])
    assert stage.failed == []


def test_a_message_hands_the_lock_over(stage: Stage) -> None:
    this = stage.queued()
    stage.node._on_push(message(b"1 p.1 6"))
    assert put(this) == [Granted(6, stage.now + CLAIM - margin(CLAIM), claim=True)]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"1", b"1 p.1", b"1 p.1 6 7", b"2 p.1 6", b" p.1 6", b"1 p.1 six", b"1 p.1 -6", b"1 p.1 6.5", b"1  6", b"1 p.2 6",
        b"1 p.1 " + b"9" * 1000, b"x" * 10_000, b"\xff\xfe 1 2", b"1 \xff 6", 7, None, [b"1", b"p.1", b"6"], "1 p.1 6",
    ],
    ids=lambda payload: repr(payload)[:20],
)  # fmt: skip
def test_what_is_no_message_of_ours_is_dropped(stage: Stage, payload: object) -> None:
    """Row 28: garbage, another version, a stranger's token, something huge."""
    this = stage.queued()
    sent = len(stage.sent)
    stage.node._on_push(message(payload))
    assert put(this) == []
    assert len(stage.sent) == sent


@pytest.mark.parametrize("reply", [[], [b"message"], [b"message", b"channel"], [b"message", b"channel", b"1 p.1 6", b"more"]])
def test_a_push_of_another_shape_is_dropped(stage: Stage, reply: list[object]) -> None:
    this = stage.queued()
    stage.node._on_push(reply)
    assert put(this) == []


def test_a_grant_for_somebody_who_gave_up_is_handed_on(stage: Stage) -> None:
    this = stage.queued()
    stage.node.waiting.delist(this)
    this.attempt.pending = False
    stage.node._on_push(message(b"1 p.1 6"))
    packed, _ = stage.sent[-1]
    assert RELEASE.sha.encode() in packed
    assert b"leave" in packed


# Commands


def test_a_script_that_the_server_has_forgotten_is_sent_whole(stage: Stage) -> None:
    """Row 41."""
    tenure = Tenure(Grant(Attempt(spec(), TOKEN, pending=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(tenure)
    stage.now += 10
    assert stage.turn() == ["EVALSHA"]
    stage.answer(hiredis.ReplyError("NOSCRIPT No matching script"))
    packed, _ = stage.sent[-1]
    assert RENEW.body in packed
    stage.answer(1)
    assert tenure.remaining(stage.now) > 29


@pytest.mark.parametrize("failure", [Unknown("cut"), NotSent("away"), hiredis.ReplyError("LOADING the dataset")])
def test_a_renewal_without_an_answer_is_repeated(stage: Stage, failure: Exception) -> None:
    tenure = Tenure(Grant(Attempt(spec(), TOKEN, pending=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(tenure)
    stage.now += 10
    stage.turn()
    stage.answer(failure)
    assert stage.reported == []
    stage.now += 2
    assert stage.turn() == ["EVALSHA"]


def test_a_renewal_that_finds_nothing_is_a_loss_and_reported_once(stage: Stage) -> None:
    tenure = Tenure(Grant(Attempt(spec(), TOKEN, pending=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(tenure)
    stage.now += 10
    stage.turn()
    stage.answer(0)
    assert stage.reported == [tenure]
    stage.now += 100
    assert stage.turn() == []
    assert stage.reported == [tenure]


def test_a_lease_that_ends_unrenewed_is_reported(stage: Stage) -> None:
    tenure = Tenure(Grant(Attempt(spec(), TOKEN, pending=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(tenure)
    stage.now += 30
    assert stage.turn() == []
    assert stage.reported == [tenure]
