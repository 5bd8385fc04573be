"""A driver for tests: carries out an operation on `server.Server` under virtual time, and goes wrong where it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast._core.lock.records import Attempt, Waiter
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replies import REFRESH
from holdfast._core.lock.server_queue import Waiting
from holdfast._core.lock.spec import Spec, milliseconds
from holdfast._core.requests import (
    Answer,
    Command,
    NewToken,
    NotSent,
    Now,
    Outcome,
    Refused,
    RegisterWaiter,
    Request,
    RunScript,
    SendUntilAnswered,
    Sleep,
    TimedOut,
    Unknown,
    UnregisterWaiter,
    Wait,
    WaitLocally,
)
from support.memory_server import KEYS, Server
from support.node import Node

T = TypeVar("T")

ME = "aaaaaaaaaaaa"
OTHER = "bbbbbbbbbbbb.0"


def spec(
    *,
    ttl: float = 30.0,
    renew: bool = True,
    max_hold: float | None = None,
    keys: tuple[bytes, bytes, bytes] = KEYS,
    replicas: int = 0,
) -> Spec:
    timeout = min(5.0, max(ttl / 10, min(ttl / 3, 0.2)))
    return Spec(name="x", keys=keys, ttl=ttl, renew=renew, max_hold=max_hold, timeout=timeout, replicas=replicas)


def an_attempt(wanted: Spec) -> Attempt:
    """An attempt with a node that registers its lease."""
    return Attempt(wanted, node=Node())


@dataclass(frozen=True)
class Fault:
    """The fault of one request. ``applied``: the request was carried out all the same."""

    error: BaseException
    applied: bool = False

    def __str__(self) -> str:
        code = f"({self.error.code})" if isinstance(self.error, Refused) else ""
        return f"{type(self.error).__name__}{code}{' applied' if self.applied else ''}"


def kind_of(request: Request[Any]) -> str:
    """Name of the script, or of the request's class."""
    return request.script.name.rpartition("/")[2] if isinstance(request, RunScript) else type(request).__name__


Failing = Callable[[str, int], Fault | None]
"""The faults of requests, by the kind of the request and the number of earlier ones of that kind."""


def never(_kind: str, _nth: int) -> None:
    """Nothing goes wrong."""


def always(fault: Fault, *kinds: str) -> Failing:
    """This goes wrong with all requests of these kinds."""
    return some(fault, range(10**9), *kinds)


def some(fault: Fault, which: range, *kinds: str) -> Failing:
    """This goes wrong with some requests of these kinds."""
    return lambda kind, nth: fault if kind in kinds and nth in which else None


def first(fault: Fault, kind: str) -> Failing:
    """This goes wrong once."""
    return some(fault, range(1), kind)


@dataclass
class Slot:
    """A slot with the outcome that `Waiting`, or a local queue, has put for an attempt."""

    outcomes: list[Outcome | None] = field(default_factory=list)

    def gone(self) -> bool:
        return False

    def put(self, outcome: Outcome | None, /) -> bool:
        self.outcomes.append(outcome)
        return True


def slot_of(attempt: Attempt) -> Slot:
    """The slot for the outcome of an attempt."""
    if attempt.slot is None:
        attempt.slot = Slot()
    assert isinstance(attempt.slot, Slot)
    return attempt.slot


@dataclass
class Driver:
    server: Server
    faults: dict[int, Fault] = field(default_factory=dict)
    """By the number of the request, from 0."""
    failing: Failing = never
    before: Callable[[str, int], None] = never
    for_keeper: list[RunScript[Any]] = field(default_factory=list)
    """Requests that the keeper is to send until they are answered. It does not send them by itself."""
    """Called just before a request is carried out, as ``failing`` is."""
    slow: dict[tuple[str, int], float] = field(default_factory=dict)
    """Seconds an answer takes, by kind and number within it; otherwise a millisecond each way."""
    events: list[Callable[[Server], None]] = field(default_factory=list)
    """Events at the server during each wait, one after the other."""
    inbox_opens: bool = True
    enlist_outcome: Outcome | None = None
    waiting: Waiting = field(default_factory=Waiting)
    trace: list[Request[Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    late: list[RunScript[Any]] = field(default_factory=list)
    """Sent and not answered: a copy may arrive at any time."""
    tokens: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.listen(ME)

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """As the drivers in `_runtime`: whatever goes wrong is thrown into the operation."""
        try:
            request = operation.send(None)
            while True:
                number = len(self.trace)
                assert number < 2000, "the operation never ends"
                self.trace.append(request)
                try:
                    reply = self._perform(number, request)
                except BaseException as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _perform(self, number: int, request: Request[Any]) -> Any:
        kind = kind_of(request)
        nth = self.counts[kind]
        self.counts[kind] += 1
        fault = self.faults.get(number) or self.failing(kind, nth)
        self.before(kind, nth)
        if fault is None:
            return self._do(request, self.slow.get((kind, nth), 0.001))
        if isinstance(request, RunScript) and not isinstance(fault.error, NotSent | Refused):
            self.late.append(request)
        if fault.applied:
            self._do(request)
        if isinstance(fault.error, Unknown) and isinstance(request, RunScript):
            self.server.now += request.timeout
        raise fault.error

    def _do(self, request: Request[Any], takes: float = 0.001) -> Any:  # noqa: C901, PLR0911 - one for each kind of request
        server = self.server
        match request:
            case Now():
                return server.now
            case NewToken():
                self.tokens.append(f"{ME}.{len(self.tokens):032x}")
                return self.tokens[-1]
            case Sleep(seconds):
                server.now += max(seconds, 1e-6)
                return None
            case RunScript():
                sent = server.now
                server.now += 0.001
                value = server.perform(request)
                server.now += takes
                self.deliver()
                return Answer(value, sent, server.now)
            case Command():
                return Answer(None, server.now, server.now)
            case WaitLocally(attempt):
                return self._wait_locally(attempt, attempt.until)
            case RegisterWaiter(waiter, until):
                return self._register_waiter(waiter, until)
            case Wait(waiter, answer, until):
                if answer is not None:
                    self.waiting.joined(waiter, answer, server.now)
                return self._wait(waiter, until)
            case UnregisterWaiter(waiter):
                self.waiting.unregister_waiter(waiter)
                return None
            case SendUntilAnswered(call, _):
                self.for_keeper.append(call)
                return None
        raise AssertionError(request)

    # The part of the keeper

    def deliver(self) -> None:
        """Messages reach the inbox; what nobody waits for any more is handed on."""
        while self.server.published:
            channel, message = self.server.published.pop(0)
            if channel == f"hf:inbox:{ME}".encode():
                kind, token, *fence = message.decode().split()
                if kind == "2":
                    continue  # somebody waits
                leave = self.waiting.on_message(token, int(fence[0]), self.server.now)
                if leave is not None:
                    self.server.perform(leave)

    def _wait_locally(self, attempt: Attempt, until: float | None) -> None:
        if attempt.turn is None:
            assert until is not None, "waits for ever: there is nobody else here"
            self.server.now = max(self.server.now, until)

    def _register_waiter(self, waiter: Waiter, until: float | None) -> Outcome | None:
        slot = slot_of(waiter.attempt)
        if self.waiting.register_waiter(waiter, self.server.now):
            return None
        if self.enlist_outcome is not None:
            return self.enlist_outcome
        if not self.inbox_opens:
            assert until is not None
            self.server.now = until
            return TimedOut()
        self.waiting.on_listening(self.server.now, b"hf:")
        assert not waiter.awaits_inbox
        return slot.outcomes.pop(0)

    def _wait(self, waiter: Waiter, until: float | None) -> Outcome:
        slot = slot_of(waiter.attempt)
        if self.events and not slot.outcomes:
            self.events.pop(0)(self.server)
            self.deliver()
        while not slot.outcomes:
            at = min(self.waiting.next_at(), float("inf") if until is None else until)
            assert at != float("inf"), "waits for ever"
            self.server.now = max(self.server.now, at)
            if until is not None and self.server.now >= until:
                return TimedOut()
            self._refresh()
        outcome = slot.outcomes.pop(0)
        return TimedOut() if outcome is None else outcome

    def _refresh(self) -> None:
        for refresh in self.waiting.due(self.server.now):
            sent = self.server.now
            keys = tuple(key for waiter in refresh.batch for key in waiter.attempt.spec.keys)
            args: list[str | int] = [f"hf:inbox:{ME}"]
            for waiter in refresh.batch:
                args += waiter.attempt.token, milliseconds(waiter.attempt.spec.first_ttl)
            _, replies = self.server.perform(RunScript(REFRESH, keys, tuple(args), self.waiting.timeout))
            self.server.now += 0.001
            self.waiting.on_refreshed(refresh.batch, replies, sent, self.server.now)
        self.deliver()

    # Afterwards

    def undo(self, attempt: Attempt) -> None:
        """Do what both APIs do after an interrupted acquisition."""
        self.faults, self.failing = {}, never
        if attempt.may_be_on_server:
            self.run(give_up(attempt))
        self.deliver()

    def nothing_left(self) -> bool:
        """Neither lock nor place of ours at the server."""
        return self.server.present().isdisjoint(self.tokens)

    def late_copies_arrive(self) -> None:
        self.deliver()
        for request in self.late:
            self.server.perform(request)
        self.deliver()
