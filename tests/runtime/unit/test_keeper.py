"""The keeper's handling of answers and messages on one server, without its thread and without a connection."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._core.lock.acquire import register_lease
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.node import LABELS_EVERY_S, PING_EVERY_S, RECORD_AFTER_S, RECORD_EVERY_S, Node
from holdfast._core.lock.ports import LockWait, Then
from holdfast._core.lock.records import AskServer, Attempt, Grant, HeldLease
from holdfast._core.lock.renewal import CLAIM_LEFT_S, EARLY_HINTS_MAX, renewal
from holdfast._core.lock.replies import CLAIM_WINDOW_S, RELEASE, RENEW
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Answer, Call, Granted, NotSent, Refused, RunScript, Unknown
from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._runtime.keeper.long_leases import LONG_S, LongLeases
from support.driver import Slot, spec
from support.waiters import busy, enlisted, put, waiter

TOKEN = "p.1"


@dataclass
class Line:
    """A connection that is a list of what was sent."""

    stage: Stage
    on_push: Callable[[list[Any]], None] | None
    on_closed: Callable[[], None] | None

    def call(self, call: Call, then: Then) -> None:
        self.stage.sent.append((call, then))

    def overdue(self, now: float) -> None:
        """Nothing is."""

    def next_at(self) -> float:
        return float("inf")

    def has_unread(self) -> bool:
        return False

    def reclaim(self) -> None:
        pass

    def fail(self, why: str) -> None:
        self.stage.failed.append(why)


class Stage:
    """A node, and the keeper that it needs."""

    process_id = "aaaaaaaaaaaa"
    mutex = threading.RLock()
    looks, closing = True, False
    wake_at = float("inf")
    collected = ()

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[Call, Then]] = []
        self.failed: list[str] = []
        self.reported: list[HeldLease] = []
        self.wakes: list[float] = []
        self.wake_by = self.attend = self.wakes.append
        self.report = self.reported.append
        self.node = Node(self, "somewhere", self.line)
        self.nodes = [self.node]
        self.recorded: list[tuple[list[LockWait], dict[bytes, str]]] = []

    def line(self, on_push: Callable[[list[Any]], None] | None = None, on_closed: Callable[[], None] | None = None) -> Line:
        return Line(self, on_push, on_closed)

    def in_change(self) -> bool:
        return bool(self.mutex._is_owned())  # type: ignore[attr-defined]

    def clock(self) -> float:
        return self.now

    def call(self, what: Callable[[], None]) -> None:
        what()

    def nodes_at(self, address: str) -> list[Node]:
        return [node for node in self.nodes if node.address == address]

    def record(self, waits: Sequence[LockWait], labels: Mapping[bytes, str]) -> str:
        self.recorded.append(([*waits], {**labels}))
        return "{}"

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)
        return True

    def turn(self) -> list[str]:
        """Return the requests that are sent now: the names of scripts and commands."""
        before = len(self.sent)
        self.node.turn(self.now)
        return [
            call.script.name.rpartition("/")[2] if isinstance(call, RunScript) else str(call.args[0])
            for call, _ in self.sent[before:]
        ]

    def answer(self, reply: Any, *, to: str | None = None) -> None:
        """Answer the last request, or the last run of a script."""
        then = [
            then
            for call, then in self.sent
            if to is None or (isinstance(call, RunScript) and call.script.name.rpartition("/")[2] == to)
        ][-1]
        then(reply, self.now)

    def queued(self) -> Any:
        """A waiter that listens and stands in line."""
        this = waiter(TOKEN)
        enlisted(self.node.waiting, this, self.now)
        self.node.waiting.on_listening(self.now, b"hf:")
        put(this).clear()
        self.node.waiting.joined(this, Answer(busy(), self.now, self.now), self.now)
        return this


@pytest.fixture
def stage() -> Stage:
    return Stage()


def message(payload: object) -> list[object]:
    return [b"message", b"hf:inbox:aaaaaaaaaaaa", payload]


# Leases that last


class Slow:
    """The keeper as `LongLeases` needs it: what is to be done later is done when the test says so."""

    def __init__(self, stage: Stage) -> None:
        self.mutex, self.clock = stage.mutex, stage.clock
        self.looks = False
        self.due: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.due.append((self.clock() + seconds, what))

    def go_on(self, stage: Stage) -> None:
        at, what = self.due.pop()
        stage.now = at
        what()


def test_both_connections_are_opened_when_a_lease_is_one_second_old(stage: Stage) -> None:
    keeper: Any = Slow(stage)
    lasting = LongLeases(keeper, [stage.node])
    start = stage.now
    for number, after in enumerate((0.0, 0.4)):  # the first one is given back soon
        stage.now = start + after
        held_lease = HeldLease(Grant(Attempt(spec(), f"p.{number}", may_be_on_server=True), 7, stage.now, stage.now + 29))
        stage.node.renewing.watch(held_lease)
        lasting.look_later()
    stage.node.renewing.forget("p.0")
    keeper.go_on(stage)
    assert stage.now == start + LONG_S
    assert "SUBSCRIBE" not in stage.turn()
    assert stage.sent == []
    keeper.go_on(stage)
    assert stage.now == pytest.approx(start + 0.4 + LONG_S)
    assert [call.args[0] for call, _ in stage.sent] == ["EXISTS"]
    assert "SUBSCRIBE" in stage.turn()
    connected = [*stage.sent]
    keeper.go_on(stage)
    assert stage.sent == connected, "once is enough"
    stage.node.renewing.forget("p.1")
    keeper.go_on(stage)
    assert keeper.due == [], "no lease is left to be looked at"


def test_connections_are_asked_for_again_when_a_later_lease_lasts(stage: Stage) -> None:
    """The first lease is given back, and its connections may have ended since."""
    keeper: Any = Slow(stage)
    lasting = LongLeases(keeper, [stage.node])
    for number in range(2):
        held_lease = HeldLease(Grant(Attempt(spec(), f"p.{number}", may_be_on_server=True), 7, stage.now, stage.now + 29))
        stage.node.renewing.watch(held_lease)
        lasting.look_later()
        keeper.go_on(stage)
        assert [call.args[0] for call, _ in stage.sent].count("EXISTS") == number + 1
        stage.node.renewing.forget(held_lease.token)
        keeper.go_on(stage)
        assert keeper.due == [], "nobody looks where nothing is held"


# The inbox


def test_a_sign_of_life_has_the_time_limit_of_who_waits(stage: Stage) -> None:
    this = stage.queued()
    stage.now = this.refresh_at
    assert "refresh" in stage.turn()
    timeouts = [call.timeout for call, _ in stage.sent if isinstance(call, RunScript) and call.script.name == "lock/refresh"]
    assert timeouts == [this.attempt.spec.timeout]


def test_a_sign_of_life_that_could_not_be_sent_is_sent_later(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    this = stage.queued()
    stage.now = this.refresh_at
    monkeypatch.setattr(stage, "safely", lambda *_: False)
    stage.turn()
    assert stage.now < this.refresh_at < stage.now + 1.5


def test_what_nobody_reads_the_answer_to_is_given_up_until_it_cannot_be_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(stage.node, "send_until_answered", lambda _call, until, _local_queue: asked.append(until))
    attempt = Attempt(spec(), TOKEN, may_be_on_server=True)
    local_queue: Any = None
    stage.node.revoke(local_queue, attempt)
    assert asked == [stage.now + attempt.spec.timeout + attempt.spec.first_ttl]


def test_the_inbox_is_opened_for_the_first_who_waits(stage: Stage) -> None:
    assert stage.turn() == []
    this = waiter(TOKEN)
    assert not enlisted(stage.node.waiting, this, stage.now)
    assert stage.turn() == ["SUBSCRIBE"]
    stage.answer([b"subscribe", b"hf:inbox:aaaaaaaaaaaa", 1])
    assert put(this) == [None]


@pytest.mark.fault(25)
def test_a_deaf_inbox_is_closed_and_opened_again(stage: Stage) -> None:
    """Row 25: the server has no such listener any more, though nothing was heard of the connection."""
    stage.queued()
    stage.turn()
    stage.now += 1
    assert "refresh" in stage.turn()
    stage.answer((False, [busy()]), to="refresh")
    assert len(stage.failed) == 1
    for later, failed in ((PING_EVERY_S - 0.1, 1), (1.1, 2)):  # in a Cluster, another server may have replied
        stage.now += later
        assert "refresh" in stage.turn()
        stage.answer((False, [busy()]), to="refresh")
        assert len(stage.failed) == failed


def test_an_inbox_that_is_heard_is_left_alone(stage: Stage) -> None:
    stage.queued()
    stage.turn()
    stage.now += 1
    stage.turn()
    stage.answer((True, [busy()]), to="refresh")
    assert stage.failed == []


def test_a_message_hands_the_lock_over(stage: Stage) -> None:
    this = stage.queued()
    stage.node._on_push(message(b"1 p.1 6"))
    assert put(this) == [Granted(6, stage.now + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S), in_claim_window=True)]


@pytest.mark.fault(28)
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
    stage.node.waiting.unregister_waiter(this)
    this.attempt.may_be_on_server = False
    stage.node._on_push(message(b"1 p.1 6"))
    call, _ = stage.sent[-1]
    assert isinstance(call, RunScript)
    assert call.script is RELEASE
    assert call.args == (TOKEN, "leave")


# Commands


def test_a_script_that_the_server_has_forgotten_is_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 41."""
    answers: list[Any] = []
    ours, server = socket.socketpair()
    with ours, server:
        link = PipelinedConnection(SimpleNamespace(safely=lambda action, *args: action(*args)), Endpoint())
        link.sock = ours
        link.call(renewal(spec(), TOKEN, 30.0, 100.0), lambda answer, _sent: answers.append(answer))
        assert server.recv(10_000).split(b"\r\n")[2] == b"EVALSHA"
        server.sendall(b"-NOSCRIPT No matching script\r\n")
        link.on_readable()
        assert RENEW.body in server.recv(100_000)
        server.sendall(b"*1\r\n:1\r\n")
        link.on_readable()
    assert answers == [[1]]


@pytest.mark.parametrize("failure", [Unknown("cut"), NotSent("away"), Refused("LOADING the dataset")])
def test_a_renewal_without_an_answer_is_repeated(stage: Stage, failure: Exception) -> None:
    held_lease = HeldLease(Grant(Attempt(spec(), TOKEN, may_be_on_server=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(held_lease)
    stage.now += 10
    stage.turn()
    stage.answer(failure)
    assert stage.reported == []
    stage.now += 2
    assert stage.turn() == ["renew"]


def test_a_renewal_that_finds_nothing_is_a_loss_and_reported_once(stage: Stage) -> None:
    held_lease = HeldLease(Grant(Attempt(spec(), TOKEN, may_be_on_server=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(held_lease)
    stage.now += 10
    stage.turn()
    stage.answer([0])
    assert stage.reported == [held_lease]
    stage.now += 100
    assert stage.turn() == []
    assert stage.reported == [held_lease]


@pytest.mark.parametrize(
    "fault", [Refused("NOPERM No permissions to access a key"), Refused("LOADING the dataset"), Unknown("cut")]
)
def test_a_batch_of_renewals_that_is_refused_is_sent_one_by_one(stage: Stage, fault: Exception) -> None:
    """Perhaps one lock is the reason: it must not take the others with it."""
    held_leases = [
        HeldLease(Grant(Attempt(spec(), f"p.{n}", may_be_on_server=True), 7, stage.now, stage.now + 29)) for n in range(3)
    ]
    for held_lease in held_leases:
        stage.node.renewing.watch(held_lease)
    stage.now += 10
    assert stage.turn() == ["renew"]
    stage.answer(fault)
    alone = [(call.args[0], then) for call, then in stage.sent[1:] if isinstance(call, RunScript)]
    if "NOPERM" not in str(fault):
        assert alone == [], "that will be so for all of them"
        return
    assert [token for token, _ in alone] == ["p.0", "p.1", "p.2"]
    for (_, then), answer in zip(alone, ([1], fault, [0]), strict=True):
        then(answer, stage.now)
    assert stage.reported == [held_leases[2]]
    assert held_leases[0].deadline == stage.now + 30 - margin(30.0)
    assert held_leases[1].deadline < held_leases[0].deadline
    assert len(stage.sent) == 4, "what is refused alone waits for its next turn"


def test_of_a_batch_each_lease_gets_its_own_answer(stage: Stage) -> None:
    held_leases = [
        HeldLease(Grant(Attempt(spec(), f"p.{n}", may_be_on_server=True), 7, stage.now, stage.now + 29)) for n in range(4)
    ]
    for held_lease in held_leases:
        stage.node.renewing.watch(held_lease)
    stage.now += 10
    assert stage.turn() == ["renew"]
    stage.answer([1, 0, -1, 2])
    assert stage.reported == held_leases[1:3]
    assert len(stage.node.renewing) == 2


def test_a_lease_that_ends_unrenewed_is_reported(stage: Stage) -> None:
    held_lease = HeldLease(Grant(Attempt(spec(), TOKEN, may_be_on_server=True), 7, stage.now, stage.now + 29))
    stage.node.renewing.watch(held_lease)
    stage.now += 30
    assert stage.turn() == []
    assert stage.reported == [held_lease]


# Local queues

OTHER = (b"hf:{y}", b"hf:{y}:state", b"hf:{y}:queue")


def taking(stage: Stage, *, linger: float = 0.0) -> tuple[LocalQueue, Attempt, Grant]:
    """The server grants the lock to a leading attempt, whose lease is not registered yet."""
    wanted = spec()._replace(linger=linger)
    local_queue = stage.node.local_queue(wanted)
    this = Attempt(wanted, TOKEN + "~" * (linger > 0), local_queue=local_queue, node=stage.node)
    assert local_queue.enter(this, stage.now) == AskServer()
    return local_queue, this, Grant(this, 7, stage.now, stage.now + 29, last=39)


def lingering(stage: Stage) -> LocalQueue:
    local_queue, this, grant = taking(stage, linger=5.0)
    stage.node.waiting.on_listening(stage.now, b"hf:")
    register_lease(this, grant)
    assert this.held_lease is not None
    assert local_queue.pass_on(this, this.held_lease, stage.now)
    return local_queue


def test_a_local_queue_is_one_for_all_who_want_the_lock_and_gone_with_them(stage: Stage) -> None:
    local_queue = stage.node.local_queue(spec())
    assert stage.node.local_queue(spec()) is local_queue
    assert stage.node.local_queue(spec(keys=OTHER)) is not local_queue
    last = weakref.ref(local_queue)
    del local_queue
    gc.collect()
    assert last() is None


@pytest.mark.parametrize("when", ["before it was registered", "while held"])
def test_somebody_outside_asks(stage: Stage, when: str) -> None:
    """However early the message is, it is not forgotten: or a lease might linger with somebody waiting for it."""
    local_queue, this, grant = taking(stage)
    steps: dict[str, Callable[[], object]] = {
        "before it was registered": lambda: register_lease(this, grant),
        "while held": lambda: None,
    }
    for name, step in steps.items():
        if name == when:
            assert not local_queue.asked
            stage.node._on_push(message(b"2 p.1"))
        step()
    assert local_queue.asked


def test_strangers_who_ask_are_not_remembered_for_ever(stage: Stage) -> None:
    for n in range(10 * EARLY_HINTS_MAX):
        stage.node._on_push(message(b"2 p.%d" % n))
    assert stage.node.asked_for(f"p.{10 * EARLY_HINTS_MAX - 1}")
    assert not stage.node.asked_for(f"p.{10 * EARLY_HINTS_MAX - 1}"), "told once"
    assert not stage.node.asked_for("p.0")
    assert len(stage.node.asked_early) < EARLY_HINTS_MAX


def test_what_lingers_is_given_back_when_somebody_asks(stage: Stage) -> None:
    local_queue = lingering(stage)
    stage.node._on_push(message(b"2 p.1~"))
    call, _ = stage.sent[-1]
    assert isinstance(call, RunScript)
    assert (call.script, call.args) == (RELEASE, ("p.1~", "release"))
    assert len(stage.node.renewing) == 0, "it is renewed no more"
    heir = Attempt(spec(), slot=Slot(), local_queue=local_queue)
    assert local_queue.enter(heir, stage.now) is None, "until it is back"
    stage.answer(1)
    assert local_queue.received(heir, stage.now) == AskServer()


def test_what_lingers_is_given_back_in_time(stage: Stage) -> None:
    lingering(stage)
    until = stage.now + 5
    stage.now += RECORD_AFTER_S
    stage.turn()
    assert stage.node.next_at() == until, "the next thing to do"
    stage.now = until
    assert "release" in stage.turn()
    stage.answer(1, to="release")
    stage.now += 1
    assert "release" not in stage.turn()
    assert stage.node.next_at() > stage.now


def test_the_keeper_is_woken_in_time_for_what_lingers(stage: Stage) -> None:
    stage.wakes.clear()
    lingering(stage)
    assert stage.now + 5 in stage.wakes


@pytest.mark.parametrize("failure", [Unknown("cut"), NotSent("away"), Refused("LOADING the dataset")])
def test_what_cannot_be_given_back_is_tried_again_until_its_end(stage: Stage, failure: Exception) -> None:
    """A copy of the first request may arrive late: the token is revoked. Waiters here ask the server meanwhile."""
    local_queue = lingering(stage)
    stage.node._on_push(message(b"2 p.1~"))
    heir = Attempt(spec(), slot=Slot(), local_queue=local_queue)
    local_queue.enter(heir, stage.now)
    assert heir.turn is None
    stage.answer(failure, to="release")
    assert local_queue.received(heir, stage.now) == AskServer()
    since = stage.now
    while (at := stage.node.next_at()) < float("inf"):
        stage.now = at
        if "release" in stage.turn():
            stage.answer(failure, to="release")
            assert local_queue.turn_of is heir
    modes = [call.args[1] for call, _ in stage.sent if isinstance(call, RunScript) and call.script is RELEASE]
    assert modes[:3] == ["release", "bury", "bury"]
    assert 10 < len(modes) < 45
    assert stage.now >= since + 30, "as long as the server can keep the lease"


def test_what_may_be_kept_for_longer_than_its_holder_believed_is_released_until_then(stage: Stage) -> None:
    """A renewal to a shorter lease was lost: the server still has the longer one."""
    local_queue, this, grant = taking(stage)
    local_queue.settle(this, grant)
    held_lease = HeldLease(grant)
    held_lease.note_request(stage.now, 1.0)
    since = stage.now
    stage.node.give_back(None, held_lease)
    stage.answer(NotSent("away"), to="release")
    while (at := stage.node.next_at()) < float("inf"):
        stage.now = at
        if "release" in stage.turn():
            stage.answer(NotSent("away"), to="release")
    assert stage.now >= since + 30


def test_the_inbox_is_opened_for_who_stands_in_line_here(stage: Stage) -> None:
    local_queue, _, _ = taking(stage)
    assert stage.turn() == []
    local_queue.enter(Attempt(spec(), local_queue=local_queue), stage.now)
    assert stage.now in stage.wakes
    assert stage.turn() == ["SUBSCRIBE"]


def test_a_local_queue_that_is_looked_at_already_is_looked_at_in_time_again(stage: Stage) -> None:
    """It was taken again meanwhile, and lingers anew: the wake-up that was planned first may be past."""
    local_queue = lingering(stage)
    stage.now += RECORD_AFTER_S
    stage.turn()
    stage.now += 4
    stage.wakes.clear()
    this = Attempt(spec()._replace(linger=0.5), local_queue=local_queue)
    grant = local_queue.retake(this)
    assert grant is not None
    assert grant.held_lease is not None
    grant.held_lease.since = stage.now
    assert local_queue.pass_on(this, grant.held_lease, stage.now)
    assert stage.wakes == [stage.now + 0.5]
    assert stage.node.next_at() == stage.now + 0.5


def listens_again(stage: Stage) -> None:
    """The connection of the inbox was lost, and is there again."""
    stage.node._on_silence()
    assert "SUBSCRIBE" in stage.turn()
    stage.answer([b"subscribe", b"hf:inbox:aaaaaaaaaaaa", 1])


def test_whoever_asked_while_nobody_listened_is_taken_to_have_asked(stage: Stage) -> None:
    """At the first subscription and at every other one, and of all locks."""
    local_queue, this, grant = taking(stage)
    other = stage.node.local_queue(spec(keys=OTHER))
    register_lease(this, grant)
    local_queue.enter(Attempt(spec(), slot=Slot(), local_queue=local_queue), stage.now)
    assert stage.turn() == ["SUBSCRIBE"]
    assert not local_queue.asked
    stage.answer([b"subscribe", b"hf:inbox:aaaaaaaaaaaa", 1])
    for _ in range(2):
        assert local_queue.asked
        assert other.asked
        local_queue.asked = other.asked = False
        listens_again(stage)


def test_nobody_is_taken_to_have_asked_while_the_inbox_cannot_be_opened(stage: Stage) -> None:
    local_queue, this, grant = taking(stage)
    register_lease(this, grant)
    local_queue.enter(Attempt(spec(), slot=Slot(), local_queue=local_queue), stage.now)
    stage.turn()
    stage.answer(NotSent("away"))
    assert not local_queue.asked
    assert not stage.node.reachable(b"hf:")


def test_what_lingers_is_given_back_when_the_inbox_was_away(stage: Stage) -> None:
    """Nobody looks at it again before its time is up: who asked for it meanwhile would wait for that."""
    local_queue = lingering(stage)
    stage.node.be_reachable(b"hf:")
    listens_again(stage)
    call, _ = stage.sent[-1]
    assert isinstance(call, RunScript)
    assert (call.script, call.args) == (RELEASE, ("p.1~", "release"))
    stage.answer(1)
    assert local_queue.enter(Attempt(spec(), slot=Slot(), local_queue=local_queue), stage.now) == AskServer()


@pytest.mark.parametrize("options", [{"max_hold": 0.15}, {"progress_within": 0.15}])
def test_the_keeper_is_woken_in_time_for_what_was_handed_over(stage: Stage, options: dict[str, Any]) -> None:
    """It claims the full lease only just before the claim window ends, unless the lease ends before that."""
    ends: list[float] = []
    for wanted in (spec(), spec()._replace(**options)):
        stage.wakes.clear()
        this = Attempt(wanted, f"p.{len(ends)}", may_be_on_server=True, node=stage.node)
        register_lease(this, Grant(this, 7 + len(ends), stage.now, stage.now + 1.978, in_claim_window=True))
        ends.append(max(stage.wakes) - stage.now)
    assert ends[0] == pytest.approx(1.978 - CLAIM_LEFT_S)
    assert ends[1] <= 0.15


# The process record


def holds(stage: Stage, prefix: str, *, label: str | None = None, key: bytes = b"key") -> HeldLease:
    """A lease of a lock with a key of the user's own, which the keeper looks after from now on."""
    this = spec(keys=(key, b"state", b"queue"))._replace(home=prefix.encode(), label=label)
    held_lease = HeldLease(
        Grant(Attempt(this, f"p.{prefix}{stage.now}", may_be_on_server=True), 7, stage.now, stage.now + 2900)
    )
    stage.node.want_record(stage.now, this.prefix)
    stage.node.want_label(stage.now, this, label)
    stage.node.renewing.watch(held_lease)
    return held_lease


def recorded(stage: Stage) -> set[str]:
    """The prefixes whose records are written now."""
    before = len(stage.sent)
    stage.turn()
    sent = [call.args for call, _ in stage.sent[before:] if not isinstance(call, RunScript) and call.args[0] == "SET"]
    return {bytes(args[1]).partition(b"proc:")[0].decode() for args in sent if isinstance(args[1], bytes)}


def one_prefix_of_two_falls_idle(stage: Stage) -> None:
    holds(stage, "a:")
    b = holds(stage, "b:")
    stage.now += RECORD_AFTER_S
    assert recorded(stage) == {"a:", "b:"}
    stage.node.renewing.forget(b.token)


def test_a_record_that_expired_is_written_as_soon_as_its_prefix_is_used_again(stage: Stage) -> None:
    """It was written with the others of the process, up to 20 s later."""
    one_prefix_of_two_falls_idle(stage)
    for _ in range(3):
        stage.now += RECORD_EVERY_S
        assert recorded(stage) == {"a:"}
    stage.now += 1
    holds(stage, "b:")
    assert stage.node.next_at() <= stage.now + RECORD_AFTER_S
    stage.now += RECORD_AFTER_S
    assert recorded(stage) == {"a:", "b:"}


def test_a_record_is_written_before_it_expires(stage: Stage) -> None:
    """There is one still, but not until the others are written."""
    one_prefix_of_two_falls_idle(stage)
    for _ in range(2):
        stage.now += RECORD_EVERY_S
        assert recorded(stage) == {"a:"}
    again = stage.node.next_at()
    holds(stage, "b:")
    assert stage.node.next_at() < again
    stage.now += RECORD_AFTER_S
    assert recorded(stage) == {"a:", "b:"}
    holds(stage, "b:")
    stage.now += RECORD_AFTER_S
    assert recorded(stage) == set(), "it lives long enough"


def test_who_just_holds_a_lock_starts_no_look_for_waits(stage: Stage) -> None:
    """The keeper says once a second that it must be reachable."""
    taken_back: list[None] = []
    stage.node.inbox.reclaim = lambda: taken_back.append(None)  # type: ignore[method-assign]
    for _ in range(3):
        stage.node.be_reachable(b"hf:")
    assert (len(taken_back), stage.node.wait_graph.at) == (1, float("inf"))
    stage.node.somebody_waits()
    assert stage.node.wait_graph.at < float("inf")


def test_records_that_expired_are_forgotten(stage: Stage) -> None:
    holds(stage, "always:")
    for n in range(20):
        held_lease = holds(stage, f"tenant-{n}:")
        stage.now += RECORD_EVERY_S
        assert f"tenant-{n}:" in recorded(stage)
        stage.node.renewing.forget(held_lease.token)
    _, calls = stage.node.farewell()
    deleted = [call.args[1] for call in calls if not isinstance(call, RunScript) and call.args[0] == "DEL"]
    assert set(deleted) == {b"%b:proc:aaaaaaaaaaaa" % which for which in (b"always", b"tenant-17", b"tenant-18", b"tenant-19")}


def test_two_endpoints_of_one_server_write_one_record(stage: Stage) -> None:
    """Their keys are the same, so the second would hide the waits and labels of the first from all who look."""
    other, elsewhere = (Node(stage, address, stage.line) for address in ("somewhere", "elsewhere"))
    stage.nodes += [other, elsewhere]
    waits = [LockWait(f"x{n}", n, 1.0, ("y",), False, (b"a:",)) for n in range(3)]
    for number, node in enumerate(stage.nodes):
        node.wait_graph.waits = (waits[number],)
    holds(stage, "a:", label="first")
    stage.node, first = other, stage.node
    holds(stage, "a:", label="second", key=b"another")
    for stage.node in (first, other):
        stage.now += 2.0
        recorded(stage)
        assert stage.recorded[-1] == (waits[:2], {b"key": "first", b"another": "second"})


def test_a_label_is_written_in_the_record_of_each_prefix(stage: Stage) -> None:
    """One key under two prefixes, with one label: that of the second was taken to be written already."""
    holds(stage, "a:", label="importer")
    b = holds(stage, "b:")
    stage.now += RECORD_AFTER_S
    assert recorded(stage) == {"a:", "b:"}
    stage.node.renewing.forget(b.token)
    stage.now += LABELS_EVERY_S
    holds(stage, "b:", label="importer")
    stage.now += RECORD_AFTER_S
    assert recorded(stage) == {"a:", "b:"}
