"""Several servers in memory, and who asks them: the real scripts, virtual time, answers that come late, never, or as errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast._core.lock.acquire import acquire as acquired
from holdfast._core.lock.records import Grant
from holdfast._core.lock.renewal import Renewing, renewals
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import Spec, milliseconds
from holdfast._core.names import lock_keys, side_key
from holdfast._core.quorum import acquire
from holdfast._core.quorum.lease import NodeLease, QuorumLease
from holdfast._core.quorum.votes import DECLARE_NEW, VOTE, QuorumAttempt, ServerSet
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    Call,
    Command,
    GiveBack,
    NewToken,
    Now,
    Poll,
    Refused,
    Request,
    RunScript,
    Subscribe,
    Unknown,
    Unsubscribe,
    WireError,
)
from holdfast.testing.keyspace import Keyspace, ReplyError
from support.node import Node

T = TypeVar("T")

ME = "aaaaaaaaaaaa"
OTHER = "bbbbbbbbbbbb." + "0" * 32
LONGEST = 60.0
_lock, _state, _ = lock_keys("x", "hf:", None)
KEYS = LOCK, STATE, HOPEFULS = _lock, _state, side_key(_lock, b"hopefuls")


class Lost:
    """The request gets lost, and nobody says so."""


class Slow:
    """Carried out, but no answer comes in time."""


Fate = Lost | Slow | float | WireError | None
"""The fate of a request: a number is the seconds that its answer takes; None: a millisecond."""


@dataclass
class Servers:
    """``fates`` is asked about each request: kind, how many requests of this kind that server had before, server."""

    count: int = 3
    now: float = 1000.0
    fates: Callable[[str, int, int], Fate] = lambda _kind, _nth, _server: None
    ahead: dict[int, int] = field(default_factory=dict)
    """By how many us the clock of a server is ahead."""
    resent: dict[int, float] = field(default_factory=dict)
    """How many seconds later a server was sent its request than others: it had to be told the script first."""
    harks: list[Callable[[Any], None]] = field(default_factory=list)
    """Events while the attempt waits for a chance, one after the other."""
    trace: list[Request[Any]] = field(default_factory=list)
    seen: list[tuple[str, int]] = field(default_factory=list)
    """Kind and server of each request that was sent."""
    late: list[tuple[int, Call]] = field(default_factory=list)
    """Requests that may still be carried out at any time."""
    given_back: list[GiveBack] = field(default_factory=list)
    hoping: list[Any] = field(default_factory=list)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    tokens: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server_set = ServerSet(tuple(f"s{n}" for n in range(self.count)), "digest", LONGEST)
        self.nodes = [Keyspace() for _ in range(self.count)]
        for number, node in enumerate(self.nodes):
            node.run_id = b"%040x" % (number + 1)
            node.subscribe(f"hf:inbox:{ME}".encode(), 1)
            self.perform(
                number,
                RunScript(DECLARE_NEW, (self.server_set.marker,), (milliseconds(LONGEST), self.server_set.digest, 0), 1.0),
            )

    # The state

    def node(self, server: int) -> Keyspace:
        self.nodes[server].now = round(self.now * 1e6) + self.ahead.get(server, 0)
        return self.nodes[server]

    def perform(self, server: int, call: Call) -> Any:
        node = self.node(server)
        raw = node.run(call.script, call.keys, call.args) if isinstance(call, RunScript) else node.execute(*call.args)
        if isinstance(raw, ReplyError):
            raise Refused(str(raw), f"s{server}")
        return call.script.parse(raw) if isinstance(call, RunScript) else raw

    def holders(self) -> list[str]:
        """Return the holder on each server; empty if the lock is free there."""
        return [self.node(n).peek(LOCK)[0].decode() for n in range(self.count)]

    def fence(self, server: int) -> int:
        return int(self.node(server).execute("HGET", STATE, "fence") or 0)

    def listener_ids(self) -> list[list[str]]:
        return [
            [listener_id.decode() for listener_id in self.node(n).execute("ZRANGE", HOPEFULS, 0, -1)] for n in range(self.count)
        ]

    def clean(self) -> bool:
        """Nothing of ours is left."""
        left = {*self.holders(), *(listener_id for listener_ids in self.listener_ids() for listener_id in listener_ids)} & set(
            self.tokens
        )
        return not left and not self.hoping

    def take(self, server: int, token: str = OTHER, seconds: float = 30.0) -> int:
        """Somebody gets the vote of a server."""
        args = (token, milliseconds(seconds), 0, milliseconds(LONGEST), self.server_set.digest, "", 0, 0)
        return int(self.perform(server, RunScript(VOTE, (*KEYS, self.server_set.marker), args, 1.0)).fence)

    def forget(self, server: int) -> None:
        """It is restarted, and empty."""
        self.nodes[server].clear()
        self.nodes[server].run_id = b"%040x" % (int(self.nodes[server].run_id, 16) + 100)

    def late_ones_arrive(self) -> None:
        while self.late:
            self.perform(*self.late.pop(0))

    def keeper_insists(self) -> None:
        """All locks that were to be released are free."""
        while self.given_back:
            give = self.given_back.pop(0)
            self.perform(give.server, give.call)

    # Actions of this process

    def attempt(self, *, ttl: float = 30.0, renew: bool = True, max_hold: float | None = None) -> QuorumAttempt:
        spec = Spec("x", KEYS, ttl, renew, max_hold, min(0.2, ttl / 3))
        return QuorumAttempt(spec, server_set=self.server_set, node=Node())

    def acquire(self, wait: float | None = 0.0, attempt: QuorumAttempt | None = None) -> Grant | Busy:
        return self.run(acquired(attempt or self.attempt(), wait, acquire.ON_SEVERAL_SERVERS))

    def taken(self, attempt: QuorumAttempt | None = None) -> QuorumLease:
        """The lease, which is to be had at once."""
        grant = self.acquire(0.0, attempt)
        assert isinstance(grant, Grant)
        assert isinstance(grant.held_lease, QuorumLease)
        return grant.held_lease

    def release(self, quorum_lease: QuorumLease, attempt: QuorumAttempt | None = None) -> bool:
        quorum_lease.end()
        return self.run(acquire.release(attempt or self.attempt(), quorum_lease))

    def run(self, operation: Coroutine[Any, Any, T], *, cancel: int = -1, applied: bool = False) -> T:
        """Drive an operation to its end. ``cancel``: the number of the request that is interrupted; ``applied``: its calls are
        carried out all the same, else some time later."""
        number = 0
        try:
            request = operation.send(None)
            while True:
                assert number < 2000, "the operation never ends"
                self.trace.append(request)
                try:
                    if number == cancel:
                        self._interrupted(request, applied)
                        raise KeyboardInterrupt
                    reply = self._perform(request)
                except BaseException as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(reply)
                number += 1
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _interrupted(self, request: Request[Any], applied: bool) -> None:
        if isinstance(request, Poll):
            self.late += [(n, call) for n, call in enumerate(request.calls) if call is not None]
            if applied:
                self.late_ones_arrive()

    def _perform(self, request: Request[Any]) -> Any:  # noqa: PLR0911 - one for each kind of request
        match request:
            case Now():
                return self.now
            case NewToken():
                self.tokens.append(f"{ME}.{len(self.tokens):032x}")
                return self.tokens[-1]
            case Poll():
                return self._poll(request)
            case Subscribe(candidate, _):
                self.now += 0.001
                return self.hoping.append(candidate)
            case Unsubscribe(candidate):
                self.hoping = [other for other in self.hoping if other is not candidate]
                return None
            case GiveBack():
                return self.given_back.append(request)
            case AwaitNotice(candidate, until):
                if self.harks:
                    return self.harks.pop(0)(candidate)
                self.now = max(self.now, until)
                return None
        raise AssertionError(request)

    def _poll(self, poll: Poll) -> None:
        sent = self.now
        answers: list[tuple[float, int, Answer[Any] | WireError]] = []
        asked = [number for number, call in enumerate(poll.calls) if call is not None]
        for number in asked:
            call = poll.calls[number]
            assert isinstance(call, RunScript | Command)
            kind = call.script.name.rpartition("/")[2] if isinstance(call, RunScript) else str(call.args[0])
            fate = self.fates(kind, self.counts[kind, number], number)
            self.counts[kind, number] += 1
            self.seen.append((kind, number))
            if isinstance(fate, Lost | Unknown):
                self.late.append((number, call))
            elif not isinstance(fate, WireError):
                takes = 9.9 if isinstance(fate, Slow) else fate or 0.001
                answers.append(
                    (takes, number, Answer(self.perform(number, call), sent + self.resent.get(number, 0.0), sent + takes))
                )
            if isinstance(fate, WireError):
                answers.append((0.001, number, fate))
                if poll.otherwise is not None:
                    self.given_back.append(poll.otherwise(number))
        for takes, number, answer in sorted(answers, key=lambda item: item[:2]):
            if takes > poll.within:
                break
            self.now = max(self.now, sent + takes)
            asked.remove(number)
            if poll.counter.on_answer(number, answer):
                return
        if asked:
            self.now = max(self.now, sent + poll.within)

    # The keeper's part

    def renewing(self, quorum_lease: QuorumLease) -> dict[int, Renewing]:
        """The books of the keeper, by server."""
        books = {number: Renewing() for number in quorum_lease.node_leases}
        for number, node_lease in quorum_lease.node_leases.items():
            books[number].watch(node_lease)
        return books

    def keep(self, books: dict[int, Renewing], *, away: frozenset[int] = frozenset()) -> list[QuorumLease]:
        """Run the keeper now, server after server, and return the leases that it finds lost."""
        found: list[QuorumLease] = []
        for number, book in books.items():
            due, lost = book.due(self.now)
            for renew in due:
                if number in away:
                    book.on_failed(renew, self.now)
                elif not book.on_answer(renew, self.perform(number, renewals([renew]))[0], self.now, self.now):
                    lost.append(renew.held_lease)
            for node_lease in lost:
                assert isinstance(node_lease, NodeLease)
                whole = node_lease.lost_with_it()
                if isinstance(whole, QuorumLease):
                    found.append(whole)
        return found

    def kept_for(self, seconds: float, books: dict[int, Renewing], *, away: frozenset[int] = frozenset()) -> list[QuorumLease]:
        """Time passes, and the keeper does what is due."""
        end, found = self.now + seconds, []
        while (at := min(book.next_at() for book in books.values())) <= end:
            self.now = max(self.now, at)
            found += self.keep(books, away=away)
        self.now = end
        return found
