"""The keeper: one thread per process that renews leases, listens for hand-overs and refreshes waiters.

It only carries out what the state objects `_core.renewing` and `_core.waiting` decide, and never waits for one server
while another needs it. It depends on nobody's event loop, so a program that blocks its loop keeps its locks.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from holdfast._core.mutex import CLAIM, REFRESH, RELEASE, RENEW, milliseconds, renewal_args
from holdfast._core.renewing import Renew, Renewing, Tenure
from holdfast._core.requests import Answer, Command, NotSent, Refused, Run, WireError
from holdfast._core.waiting import Refresh, Slot, Waiter, Waiting
from holdfast._drive.clock import clock
from holdfast._drive.link import Link
from holdfast._wire.endpoint import Endpoint
from holdfast._wire.resp import Call, forgotten, pack, value

log = logging.getLogger("holdfast.keeper")

RECORD_EVERY = 20.0
"""Seconds between two writings of the process record, which expires after three times that."""

RECORD_AFTER = 0.2
"""Seconds after the first lock at which the record is first written: a quick command never pays for it."""

PING_EVERY = 5.0
"""Seconds of silence after which the inbox is tested: a dropped connection gives no other sign."""


class Node:
    """What the keeper does on one server. Its methods run in the keeper thread, except where they say otherwise."""

    def __init__(self, keeper: Keeper, endpoint: Endpoint) -> None:
        self.keeper = keeper
        self.endpoint = endpoint
        self.waiting = Waiting()
        self.renewing = Renewing()
        self.commands = Link(keeper, endpoint)
        self.inbox = Link(keeper, endpoint, self._on_push, self._on_silence)
        self.channel = f"hf:inbox:{keeper.process_id}"
        self._subscribing = False
        self._inbox_at = 0.0
        self._record_at = float("inf")

    def run(self, call: Call, timeout: float, then: Callable[[Any, float], None]) -> None:
        """Run a script or command; ``then`` gets its typed reply, or the WireError instead."""

        def on_reply(reply: Any, sent: float) -> None:
            if forgotten(reply):
                self.commands.send(pack(call, whole=True), timeout, on_answer)
            else:
                on_answer(reply, sent)

        def on_answer(reply: Any, sent: float) -> None:
            if not isinstance(reply, WireError):
                try:
                    reply = value(call, reply, self.endpoint)
                except WireError as error:
                    reply = error
            then(reply, sent)

        self.commands.send(pack(call), timeout, on_reply)

    # What is to do now

    def active(self) -> bool:
        return bool(len(self.waiting) or len(self.renewing))

    def turn(self, now: float) -> None:
        """Send what is due."""
        for link in (self.commands, self.inbox):
            link.overdue(now)
        with self.keeper.mutex:
            renewals, lost = self.renewing.due(now)
            refreshes = self.waiting.due(now)
            timeout = self.waiting.timeout
            listen = len(self.waiting) > 0
            record = self.active() and now >= self._record_at
            if record:
                self._record_at = now + RECORD_EVERY
        for tenure in lost:
            self.keeper.report(tenure)
        for renewal in renewals:
            self._renew(renewal)
        for refresh in refreshes:
            self._refresh(refresh, timeout)
        if record:
            self._write_record()
        if listen and now >= self._inbox_at:
            self._tend_inbox(now)

    def next_at(self) -> float:
        """When `turn` has something to do; the keeper's mutex is held."""
        at = min(self.renewing.next_at(), self.waiting.next_at(), self.commands.next_at(), self.inbox.next_at())
        if self.active():
            at = min(at, self._record_at)
        return min(at, self._inbox_at) if len(self.waiting) else at

    # Renewal

    def _renew(self, renewal: Renew) -> None:
        tenure = renewal.tenure

        def then(answer: int | WireError, sent: float) -> None:
            with self.keeper.mutex:
                if isinstance(answer, WireError):
                    self.renewing.on_failed(renewal, clock())
                    kept = True
                else:
                    kept = self.renewing.on_answer(renewal, answer, sent)
            if not kept:
                self.keeper.report(tenure)

        call = Run(RENEW, tenure.spec.keys, renewal_args(tenure.token, renewal.ttl), tenure.spec.timeout)
        self.run(call, tenure.spec.timeout, then)

    # Waiting

    def _refresh(self, refresh: Refresh, timeout: float) -> None:
        batch = refresh.batch
        keys = tuple(key for waiter in batch for key in waiter.attempt.spec.keys)
        args: list[str | int] = [self.channel]
        for waiter in batch:
            args += waiter.attempt.token, milliseconds(waiter.attempt.spec.first_ttl)

        def then(answer: tuple[bool, list[Any]] | WireError, sent: float) -> None:
            now = clock()
            with self.keeper.mutex:
                if isinstance(answer, WireError):
                    self.waiting.on_failed(batch, answer, now)
                    return
                self.waiting.on_refreshed(batch, answer[1], sent, now)
                deaf = self.waiting.listening and not answer[0]
            if deaf:
                self.inbox.fail("the server does not know this listener any more")

        self.run(Run(REFRESH, keys, tuple(args), timeout), timeout, then)

    def _tend_inbox(self, now: float) -> None:
        """Subscribe, or test that the subscription is alive."""
        self._inbox_at = now + PING_EVERY
        if self._subscribing:
            return
        if not self.waiting.listening:
            self._subscribing = True
            self.inbox.send(pack(Command(("SUBSCRIBE", self.channel), 2.0)), 2.0, self._on_subscribed)
        else:
            self.inbox.send(pack(Command(("PING",), 2.0)), 2.0, lambda _reply, _sent: None)

    def _on_subscribed(self, reply: Any, _sent: float) -> None:
        self._subscribing = False
        now = clock()
        error = reply if isinstance(reply, WireError) else None
        if isinstance(reply, hiredis.ReplyError):
            error = Refused(str(reply), self.endpoint.address)
        with self.keeper.mutex:
            if error is None:
                self.waiting.on_listening(now)
                self._inbox_at = now + PING_EVERY
            else:
                self.waiting.on_unreachable(error, now)
                self._inbox_at = now + 0.1

    def _on_silence(self, why: str) -> None:
        """The inbox is lost: subscribe anew. The refresh that follows makes up for messages missed meanwhile."""
        log.debug("inbox on %s lost: %s", self.endpoint.address, why)
        with self.keeper.mutex:
            self.waiting.on_silence()
        self._inbox_at = clock()

    def _on_push(self, reply: list[Any]) -> bool:
        """A message: only a hint, so whatever cannot be read is dropped. False: an ordinary reply."""
        if len(reply) != 3 or reply[0] != b"message":
            return False
        payload = reply[2]
        fields = payload.split(b" ") if isinstance(payload, bytes) and len(payload) <= 256 else []
        if len(fields) != 3 or fields[0] != b"1" or not fields[2].isdigit():
            return True
        token, fence = fields[1].decode("ascii", "replace"), int(fields[2])
        with self.keeper.mutex:
            leave = self.waiting.on_message(token, fence, clock())
        if leave is not None:
            self.run(leave, leave.timeout, lambda _answer, _sent: None)
        return True

    # The process record

    def _write_record(self) -> None:
        keeper = self.keeper
        record = Command(("SET", f"hf:proc:{keeper.process_id}", keeper.record(), "PX", milliseconds(3 * RECORD_EVERY)), CLAIM)
        self.run(record, CLAIM, lambda _answer, _sent: None)

    def want_record(self, now: float) -> None:
        """Called with the keeper's mutex held, by any thread."""
        if self._record_at == float("inf"):
            self._record_at = now + RECORD_AFTER

    def farewell(self) -> list[Call]:
        """What to send when this process ends: held locks are given back, the record is removed."""
        calls: list[Call] = [
            Run(RELEASE, t.spec.keys, (t.token, "release"), 0.5) for t in self.renewing.tenures() if t.lose("the process ends")
        ]
        if self._record_at != float("inf"):
            calls.append(Command(("DEL", f"hf:proc:{self.keeper.process_id}"), 0.5))
        return calls


class Keeper:
    """The thread, its selector, and the nodes it looks after. Other threads use the methods of the first block only."""

    def __init__(self, process_id: str, facts: dict[str, Any]) -> None:
        self.process_id = process_id
        self.facts = facts
        self.mutex = threading.Lock()
        self.selector = selectors.DefaultSelector()
        self._nodes: dict[Endpoint, Node] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_at = 0.0
        self._stopping = False
        self.ended = False
        self._poke_out, self._poke_in = socket.socketpair()
        self._poke_out.setblocking(False)
        self._poke_in.setblocking(False)
        self.selector.register(self._poke_out, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._run, name="holdfast-keeper", daemon=True)
        self.thread.start()

    def watch(self, endpoint: Endpoint, tenure: Tenure) -> None:
        """Renew this lease until it is forgotten."""
        with self.mutex:
            node = self._node(endpoint)
            at = node.renewing.watch(tenure)
            node.want_record(at - tenure.spec.ttl)
            self._wake_by(at)

    def forget(self, endpoint: Endpoint, tenure: Tenure) -> None:
        with self.mutex:
            self._node(endpoint).renewing.forget(tenure.token)

    def rewatch(self, endpoint: Endpoint, tenure: Tenure) -> None:
        """The lease has changed by hand."""
        with self.mutex:
            renewing = self._node(endpoint).renewing
            renewing.forget(tenure.token)
            self._wake_by(renewing.watch(tenure))

    def enlist(self, endpoint: Endpoint, waiter: Waiter, slot: Slot) -> bool:
        """Make a waiter known; True if the inbox listens, else the slot gets None when it does."""
        waiter.slot = slot
        now = clock()
        with self.mutex:
            node = self._node(endpoint)
            node.want_record(now)
            ready = node.waiting.enlist(waiter, now)
            if not ready:
                self._wake_by(now)
        return ready

    def joined(self, endpoint: Endpoint, waiter: Waiter, answer: Answer[Any]) -> None:
        """The waiter is in the server's queue."""
        with self.mutex:
            self._node(endpoint).waiting.joined(waiter, answer, clock())
            self._wake_by(waiter.refresh_at)

    def delist(self, endpoint: Endpoint, waiter: Waiter) -> None:
        with self.mutex:
            self._node(endpoint).waiting.delist(waiter)

    def call(self, what: Callable[[], None]) -> None:
        """Have the keeper thread call this soon."""
        self._calls.append(what)
        self._poke()

    def stop(self, timeout: float) -> None:
        """Give back all locks, close all connections, end the thread; at most ``timeout`` seconds."""
        done = threading.Event()
        self.call(lambda: self._farewell(done))
        done.wait(timeout)
        self._stopping = True
        self._poke()
        self.thread.join(timeout)

    # The thread

    def _node(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            node = self._nodes[endpoint] = Node(self, endpoint)
        return node

    def _wake_by(self, at: float) -> None:
        """Wake the thread if it means to sleep longer; the mutex is held. An uncontended acquire hardly ever has to: its lease
        is due later than the wake-up that an earlier one has caused."""
        if at < self._wake_at:
            self._wake_at = at
            self._poke()

    def _poke(self) -> None:
        try:
            self._poke_in.send(b"x")
        except OSError:
            pass  # full: it will wake; or closed: it has ended

    def record(self) -> str:
        return json.dumps(self.facts)

    def report(self, tenure: Tenure) -> None:
        """Tell the owner that his lease is lost; the mutex is not held."""
        log.info("lock %r lost: %s", tenure.spec.name, tenure.lost)
        owner = tenure.owner()
        if owner is not None:
            owner.notice_loss()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:
                # A defect must not end the renewals of everybody else; the local deadlines hold in any case.
                log.exception("the keeper stumbled, and goes on")
                threading.Event().wait(0.05)
        self.ended = True
        for node in self._nodes.values():
            node.commands.close()
            node.inbox.close()
        self.selector.close()
        self._poke_out.close()
        self._poke_in.close()

    def _turn(self) -> None:
        while self._calls:
            self._calls.popleft()()
        now = clock()
        for node in list(self._nodes.values()):
            node.turn(now)
        with self.mutex:
            # A wake-up once planned stays, even if its lease was given back meanwhile: or the next lease had to poke again.
            planned = self._wake_at if self._wake_at > now else float("inf")
            self._wake_at = min((node.next_at() for node in self._nodes.values()), default=float("inf"))
            self._wake_at = now if self._calls else min(self._wake_at, planned)
            wake_at = self._wake_at
        timeout = None if wake_at == float("inf") else max(0.0, wake_at - clock())
        for key, events in self.selector.select(timeout):
            if key.data is None:
                try:
                    while self._poke_out.recv(4096):
                        pass
                except BlockingIOError:
                    pass
                continue
            if events & selectors.EVENT_WRITE:
                key.data.on_writable()
            if events & selectors.EVENT_READ:
                key.data.on_readable()

    def _farewell(self, done: threading.Event) -> None:
        with self.mutex:
            for node in self._nodes.values():
                node.waiting.close(NotSent("holdfast was closed", node.endpoint.address))
            todo = [(node, call) for node in self._nodes.values() for call in node.farewell()]
        left = len(todo)
        if not left:
            done.set()

        def then(_answer: object, _sent: float) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        for node, call in todo:
            node.run(call, 0.5, then)

    def sockets(self) -> list[socket.socket]:
        """All of ours, for a forked child to let go of."""
        links = [link for node in self._nodes.values() for link in (node.commands, node.inbox)]
        return [link.sock for link in links if link.sock is not None] + [self._poke_out, self._poke_in]
