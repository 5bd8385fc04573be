"""What the keeper does on one server: carries out what `_core.renewing` and `_core.waiting` decide."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import hiredis

from holdfast._core.mutex import REFRESH, RELEASE, milliseconds, renewal
from holdfast._core.renewing import Renew, Renewing
from holdfast._core.requests import Command, NotSent, Refused, Run, WireError
from holdfast._core.waiting import Refresh, Waiting
from holdfast._drive.clock import clock
from holdfast._drive.link import Link

if TYPE_CHECKING:
    from holdfast._drive.keeper import Keeper
from holdfast._wire.endpoint import Endpoint
from holdfast._wire.resp import Call, forgotten, pack, value

log = logging.getLogger("holdfast.keeper")

RECORD_EVERY = 20.0
"""Seconds between two writings of the process record, which expires after three times that."""

RECORD_AFTER = 0.02
"""Seconds after the first lock at which the record is first written: a quick command never pays for it."""

ANSWER_WITHIN = 2.0
"""Seconds to wait for answers on which no lease depends: subscription, test of the inbox, process record."""

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
        self._inbox_at = 0.0
        self._record_at = float("inf")
        self._record_written = False

    def run(self, call: Call, then: Callable[[Any, float], None]) -> None:
        """Run a script or command; ``then`` gets its typed reply, or the WireError instead."""

        def on_reply(reply: Any, sent: float) -> None:
            if forgotten(reply):
                self.commands.send(pack(call, whole=True), call.timeout, on_answer)
            else:
                on_answer(reply, sent)

        def on_answer(reply: Any, sent: float) -> None:
            if not isinstance(reply, WireError):
                try:
                    reply = value(call, reply, self.endpoint)
                except WireError as error:
                    reply = error
            then(reply, sent)

        self.commands.send(pack(call), call.timeout, on_reply)

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
        safely = self.keeper.safely
        for tenure in lost:
            safely(self.keeper.report, tenure)
        for renew in renewals:
            safely(self._renew, renew)
        for refresh in refreshes:
            if not safely(self._refresh, refresh, timeout):
                with self.keeper.mutex:
                    self.waiting.on_failed(refresh.batch, NotSent("the keeper stumbled", self.endpoint.address), now)
        if record:
            safely(self._write_record)
        if listen and now >= self._inbox_at:
            safely(self._tend_inbox, now)

    def next_at(self) -> float:
        """When `turn` has something to do; the keeper's mutex is held."""
        at = min(self.renewing.next_at(), self.waiting.next_at(), self.commands.next_at(), self.inbox.next_at())
        if self.active():
            at = min(at, self._record_at)
        return min(at, self._inbox_at) if len(self.waiting) else at

    # Renewal

    def _renew(self, renew: Renew) -> None:
        tenure = renew.tenure

        def then(answer: int | WireError, sent: float) -> None:
            with self.keeper.mutex:
                if isinstance(answer, WireError):
                    self.renewing.on_failed(renew, clock())
                    kept = True
                else:
                    kept = self.renewing.on_answer(renew, answer, sent)
            if not kept:
                self.keeper.report(tenure)

        self.run(renewal(tenure.spec, tenure.token, renew.ttl, clock()), then)

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

        self.run(Run(REFRESH, keys, tuple(args), timeout), then)

    def _tend_inbox(self, now: float) -> None:
        """Subscribe, or test that the subscription is alive."""
        self._inbox_at = now + (PING_EVERY if self.waiting.listening else 1.0)
        if not self.waiting.listening:
            self.inbox.send(pack(Command(("SUBSCRIBE", self.channel), ANSWER_WITHIN)), ANSWER_WITHIN, self._on_subscribed)
        else:
            self.inbox.send(pack(Command(("PING",), ANSWER_WITHIN)), ANSWER_WITHIN, lambda _reply, _sent: None)

    def _on_subscribed(self, reply: Any, _sent: float) -> None:
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

    def _on_push(self, reply: list[Any]) -> None:
        """A message: only a hint, so whatever cannot be read is dropped."""
        payload = reply[2] if len(reply) == 3 else None
        fields = payload.split(b" ") if isinstance(payload, bytes) and len(payload) <= 256 else []
        if len(fields) != 3 or fields[0] != b"1" or not fields[2].isdigit():
            return
        token, fence = fields[1].decode("ascii", "replace"), int(fields[2])
        with self.keeper.mutex:
            leave = self.waiting.on_message(token, fence, clock())
        if leave is not None:
            self.run(leave, lambda _answer, _sent: None)

    # The process record

    def _write_record(self) -> None:
        self._record_written = True
        keeper = self.keeper
        record = Command(
            ("SET", f"hf:proc:{keeper.process_id}", keeper.record(), "PX", milliseconds(3 * RECORD_EVERY)), ANSWER_WITHIN
        )
        self.run(record, lambda _answer, _sent: None)

    def want_record(self, now: float) -> None:
        """Called with the keeper's mutex held, by any thread."""
        if self._record_at == float("inf"):
            self._record_at = now + RECORD_AFTER

    def facts_changed(self, now: float) -> None:
        """Called with the keeper's mutex held, by any thread."""
        if self._record_at != float("inf"):
            self._record_at = min(self._record_at, now + RECORD_AFTER)

    def farewell(self) -> list[Call]:
        """What to send when this process ends: held locks are given back, the record is removed."""
        calls: list[Call] = [
            Run(RELEASE, t.spec.keys, (t.token, "release"), 0.5) for t in self.renewing.tenures() if t.lose("the process ends")
        ]
        if self._record_written:
            calls.append(Command(("DEL", f"hf:proc:{self.keeper.process_id}"), 0.5))
        return calls
