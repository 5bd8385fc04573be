"""The keeper's part on one server: it carries out the decisions of the queue, the renewals and the local queues.

It is told what happens and sends requests over two lines, and does no more: the thread and its sockets are
`_runtime.keeper.thread` and `_net.pipelined_connection`, and the simulator has lines of its own.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.deadlock.wait_graph import WaitGraph
from holdfast._core.lock.idle_queues import Loose
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.ports import InboxAddress, Lines, NodeKeeper, PendingUndo, ReleaseListener
from holdfast._core.lock.records import Attempt, HeldLease, Queue, Spec, Waiter, milliseconds
from holdfast._core.lock.release import revocation
from holdfast._core.lock.renewal import EARLY_HINTS_MAX, Renew, Renewing, renewals
from holdfast._core.lock.server_queue import SlotMoved, Waiting, refreshment
from holdfast._core.names import channel, record_key
from holdfast._core.requests import Call, Command, Down, NotSent, Refused, Run, Subscriber, WireError
from holdfast._lua import codes

RECORD_EVERY_S = 20.0
"""Seconds between two writings of the process record."""

RECORD_LIVES_S = 3 * RECORD_EVERY_S
"""Seconds after which a record expires that is not written again."""

LABELS_EVERY_S = 1.0
"""Seconds between two writings of the record because of new labels, at least."""

RECORD_AFTER_S = 0.02
"""Seconds after the first lock at which the record is first written: a quick command never pays for it."""

ANSWER_WITHIN_S = 2.0
"""Seconds to wait for answers on which no lease depends: subscription, test of the inbox, process record."""

PING_EVERY_S = 5.0
"""Seconds of silence after which the inbox is tested: a dropped connection gives no other sign."""


class Node:
    """The keeper's part on one server. Its methods run in the keeper thread, except where they say otherwise."""

    def __init__(self, keeper: NodeKeeper, address: str, lines: Lines, place: InboxAddress | None = None) -> None:
        self.keeper = keeper
        self.mutex = keeper.mutex
        self.clock = keeper.clock
        self.in_change = keeper.in_change
        self.later = keeper.call
        self.address = address
        self.waiting = Waiting()
        self.renewing = Renewing()
        self.commands = lines()
        self.inbox = lines(self._on_push, self._on_silence)
        self._inbox_address = place or InboxAddress(keeper.process_id)
        self._local_queues: Loose[tuple[bytes, bytes], LocalQueue] = Loose()
        self._looked_after: dict[Queue, float] = {}
        """When to call their `on_time`."""
        self._pending_undos: list[PendingUndo] = []
        self._asked_early: dict[str, None] = {}
        self.listeners: dict[str, Subscriber] = {}
        """Listeners that wait for a notification, by the id that the servers know."""
        self._needs_record = False
        """Others may ask which process it is that listens."""
        self._reachable_prefixes: set[bytes] = set()
        """Prefixes whose inboxes are to be open even if nobody waits at the server."""
        self._inbox_at: dict[bytes, float] = {}
        """When to subscribe the inbox of a prefix next, where that was tried."""
        self._ping_at = self._deaf_until = 0.0
        self._record_at = float("inf")
        self._introduced: set[bytes] = set()
        """Prefixes whose users are to be told which process this is."""
        self._records: dict[bytes, float] = {}
        """When the record of a prefix expires (local seconds), where it was written."""
        self._written_at = -LABELS_EVERY_S
        self._labels: dict[bytes, dict[bytes, str]] = {}
        """As of that time (local seconds), by prefix and key of the lock."""
        self._told: set[bytes] = set()
        """Prefixes whose users were told of waits when the records were written last."""
        self.wait_graph = WaitGraph(self)

    # Work that is due

    def active(self) -> bool:
        waits = len(self.waiting) or self.wait_graph.untold or (self._needs_record and self.listeners)
        return bool(waits or len(self.renewing))

    def channel(self, prefix: bytes) -> bytes:
        """The channel of the inbox of a prefix."""
        return channel(prefix, self._inbox_address.inbox)

    def _wanted(self) -> set[bytes]:
        """The prefixes whose inboxes are wanted; the mutex is held."""
        return {*self.waiting.prefixes(), *self._reachable_prefixes, *(listener.prefix for listener in self.listeners.values())}

    def _tend_at(self) -> float:
        """When an inbox wants attention next (local seconds); the mutex is held."""
        wanted = self._wanted()
        times = [self._inbox_at.get(prefix, 0.0) for prefix in wanted if not self.waiting.listens(prefix)]
        if len(times) < len(wanted):
            times.append(self._ping_at)
        return min(times, default=float("inf"))

    def turn(self, now: float) -> None:
        """Send what is due."""
        for link in (self.commands, self.inbox):
            link.overdue(now)
        self.wait_graph.turn(now)
        with self.mutex:
            due, lost = self.renewing.due(now)
            refreshes = self.waiting.due(now)
            timeout = self.waiting.timeout
            self._look_after(now)
            for waiter in self.waiting.abandoned() if refreshes else []:
                self._clear_away(waiter)
            again = [pending_undo for pending_undo in self._pending_undos if pending_undo.at <= now]
            self._pending_undos = [pending_undo for pending_undo in self._pending_undos if pending_undo.at > now]
            tend = now >= self._tend_at()
            record = self.active() and now >= self._record_at
            if record:
                self._record_at = now + RECORD_EVERY_S
        safely = self.keeper.safely
        for held_lease in lost:
            safely(self.keeper.report, held_lease)
        self._renew_safely(due, now)
        for pending_undo in again:
            safely(self._give_back, pending_undo)
        for refresh in refreshes:
            self._refresh_safely(refresh.batch, timeout, now)
        if record:
            safely(self._write_records)
        if tend:
            safely(self._tend_inboxes, now)

    def _clear_away(self, waiter: Waiter) -> None:
        """Its event loop was closed without ending it: the next one of this process has its place, or nobody."""
        attempt, local_queue = waiter.attempt, waiter.attempt.local_queue
        if local_queue is not None and local_queue.pass_abandoned_place_on(attempt, waiter):
            return
        self.waiting.unregister_waiter(waiter)
        leave = revocation(attempt)
        self.keeper.call(lambda: self.commands.call(leave, lambda _answer, _sent: None))
        attempt.may_be_on_server = False
        if local_queue is not None:
            local_queue.withdraw(attempt)
        attempt.slot = None  # it would keep the task, and its loop, for as long as the attempt is remembered

    def _look_after(self, now: float) -> None:
        """Let the local queues do what is due in them."""
        for local_queue in [local_queue for local_queue, at in self._looked_after.items() if at <= now]:
            self._looked_after[local_queue] = at = local_queue.on_time(now)
            if at == float("inf"):
                del self._looked_after[local_queue]

    def next_at(self) -> float:
        """When `turn` has something to do; the keeper's mutex is held."""
        at = min(
            self.renewing.next_at(), self.waiting.next_at(), self.commands.next_at(), self.inbox.next_at(), self.wait_graph.at
        )
        if self.active():
            at = min(at, self._record_at)
        at = min(at, *self._looked_after.values()) if self._looked_after else at
        at = min(at, *(pending_undo.at for pending_undo in self._pending_undos)) if self._pending_undos else at
        return min(at, self._tend_at())

    def register_waiter(self, waiter: Waiter, now: float) -> bool:
        """As `Waiting.register_waiter`; the keeper's mutex is held."""
        spec = waiter.attempt.spec
        self.want_record(now, spec.prefix)
        self.want_label(now, spec, spec.label)
        self.wait_graph.somebody_waits(now)
        if waiter.attempt.local_queue is None:
            self._ask(waiter.attempt.spec)  # one of us, and still an outsider to those who share the lock
        if self._inbox_address.strays(waiter.attempt.spec.keys[0]):
            waiter.awaits_inbox = True
            waiter.put(Down(SlotMoved("its slot was moved", self.address)))
            return False
        return self.waiting.register_waiter(waiter, now)

    def close(self, error: WireError) -> None:
        """This process stops: nobody waits any more; the keeper's mutex is held."""
        for local_queue in self.local_queues():
            local_queue.close(error)
        self.waiting.close(error)

    # The part that local queues need

    def local_queues(self) -> list[LocalQueue]:
        """Those that there are; the keeper's mutex is held."""
        return self._local_queues.values()

    def in_line(self) -> list[Attempt]:
        """Those who stand in the lines of the local queues; the keeper's mutex is held."""
        return [attempt for local_queue in self.local_queues() for attempt in local_queue.queue]

    def local_queue(self, spec: Spec) -> LocalQueue:
        """The local queue of a lock; the keeper's mutex is held. A key of the user's own that is used under two prefixes has
        two: the notification about each comes to the inbox of its own prefix."""
        which = spec.keys[0], spec.prefix
        local_queue = self._local_queues.get(which)
        if local_queue is None:
            local_queue = self._local_queues.setdefault(which, LocalQueue(self, spec.prefix))
        return local_queue

    def reachable(self, prefix: bytes) -> bool:
        return self.waiting.listens(prefix)

    def has_unread(self) -> bool:
        return self.inbox.has_unread()

    def be_reachable(self, prefix: bytes) -> None:
        if prefix not in self._reachable_prefixes:
            self.inbox.reclaim()
            self._reachable_prefixes.add(prefix)
            self.keeper.wake_by(self.clock())

    def somebody_waits(self) -> None:
        self.wait_graph.somebody_waits(self.clock())

    def label_changed(self, held_lease: HeldLease) -> None:
        self.want_label(self.clock(), held_lease.spec, held_lease.label)

    def connect(self, key: bytes) -> None:
        """Open the connection for renewals, which is that of this key; called by the keeper, with its mutex held."""
        self.keeper.call(lambda: self.commands.call(Command(("EXISTS", key), ANSWER_WITHIN_S), lambda _reply, _sent: None))

    def asked_for(self, token: str) -> bool:
        if token in self._asked_early:
            del self._asked_early[token]
            return True
        return False

    def look_at(self, local_queue: Queue, at: float) -> None:
        self._looked_after[local_queue] = min(at, self._looked_after.get(local_queue, at))
        self.inbox.reclaim()
        self.keeper.wake_by(at)

    def question(self, held_lease: HeldLease) -> tuple[int, int]:
        if self.renewing.get(held_lease.token) is not held_lease:
            return 0, 0
        self.keeper.wake_by(self.renewing.question(held_lease, self.clock()))
        return 1, 1

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        held_lease.end()
        self.renewing.forget(held_lease.token)
        timeout = held_lease.spec.timeout
        give, revoke = (held_lease.giving_back(revoke=how, timeout=timeout) for how in (held_lease.maybe_in_flight, True))
        self.keeper.call(lambda: self._give_back(PendingUndo(self.clock(), give, revoke, held_lease.deadline, local_queue)))

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        spec = attempt.spec
        self.send_until_answered(revocation(attempt), self.clock() + spec.timeout + spec.first_ttl, local_queue)

    def send_until_answered(self, call: Run[int], until: float, local_queue: ReleaseListener | None = None) -> None:
        """Send this until it is answered, or local time ``until``; ``local_queue`` is told of the first answer, or failure. Any
        thread may say so."""
        self.keeper.call(lambda: self._give_back(PendingUndo(self.clock(), call, call, until, local_queue)))

    def _give_back(self, due: PendingUndo) -> None:
        def then(answer: int | WireError, _sent: float) -> None:
            with self.mutex:
                now = self.clock()
                if isinstance(answer, WireError) and now < due.until:
                    pause = min(1.0, 0.02 * 2**due.failures)
                    self._pending_undos.append(due._replace(at=now + pause, local_queue=None, failures=due.failures + 1))
                    self.keeper.wake_by(now + pause)
            if due.local_queue is not None:
                # even if nobody knows whether it is back: who is next asks, and waits for it if need be
                due.local_queue.on_released()

        self.commands.call(due.again if due.failures else due.call, then)

    # Renewal

    def _renew_safely(self, due: list[Renew], now: float) -> None:
        for spec in [renew.held_lease.spec for renew in due]:
            if self._inbox_address.strays(spec.keys[0]):
                with self.mutex:
                    self._ask(spec)  # the client outside cannot tell us
        for batch in self._inbox_address.together(due, lambda renew: renew.held_lease.spec):
            if not self.keeper.safely(self._renew, batch):
                with self.mutex:
                    for renew in batch:
                        self.renewing.on_failed(renew, now)

    def _renew(self, batch: list[Renew]) -> None:
        def then(answers: list[int] | WireError, sent: float) -> None:
            alone = isinstance(answers, Refused) and (not answers.transient or answers.code == "TRYAGAIN")
            if alone and len(batch) > 1:
                for renew in batch:  # perhaps it is one lock that is refused, and all others with it
                    self._renew([renew])
                return
            self._on_renewed(batch, answers, sent)

        self.commands.call(renewals(batch), then)

    def _on_renewed(self, batch: list[Renew], answers: list[int] | WireError, sent: float) -> None:
        lost = []
        with self.mutex:
            now = self.clock()
            if isinstance(answers, WireError):
                for renew in batch:
                    self.renewing.on_failed(renew, now)
            else:
                for renew, answer in zip(batch, answers, strict=True):
                    if not self.renewing.on_answer(renew, answer, sent, now):
                        lost.append(renew.held_lease)
            local_queues = [self._gate_of(renew.held_lease) for renew in batch]
        for held_lease in lost:
            self.keeper.safely(self.keeper.report, held_lease)
        for renew, local_queue in zip(batch, local_queues, strict=True):
            if local_queue is not None and local_queue.question is not None:
                known = not (isinstance(answers, WireError) or renew.held_lease.lost)
                local_queue.answered(renew.held_lease.token, renew.made, known=known)

    # Waiting

    def _refresh_safely(self, due: list[Waiter], timeout: float, now: float) -> None:
        strays = [waiter for waiter in due if self._inbox_address.strays(waiter.attempt.spec.keys[0])]
        if strays:
            with self.mutex:
                self.waiting.close(SlotMoved("its slot was moved", self.address), strays)
            due = [waiter for waiter in due if waiter not in strays]
        for batch in self._inbox_address.together(due, lambda waiter: waiter.attempt.spec):
            if not self.keeper.safely(self._refresh, batch, timeout):
                with self.mutex:
                    self.waiting.on_failed(batch, NotSent("the keeper stumbled", self.address), now)

    def _refresh(self, batch: list[Waiter], timeout: float) -> None:
        prefix = batch[0].attempt.spec.prefix

        def then(answer: tuple[bool, list[Any]] | WireError, sent: float) -> None:
            now = self.clock()
            with self.mutex:
                if isinstance(answer, WireError):
                    self.waiting.on_failed(batch, answer, now)
                    return
                self.waiting.on_refreshed(batch, answer[1], sent, now)
                deaf = self.waiting.listens(prefix) and not answer[0] and now >= self._deaf_until
                if deaf:
                    self._deaf_until = now + PING_EVERY_S  # in a Cluster another server may have answered: no reason to hurry
            if deaf:
                self.inbox.fail("the server does not know this listener any more")

        self.commands.call(refreshment(batch, self.channel(prefix), timeout), then)

    def _tend_inboxes(self, now: float) -> None:
        """Subscribe those that are wanted, and test that the connection of those that listen is alive."""
        with self.mutex:
            self._forget_closed_listeners()
            missing = [prefix for prefix in self._wanted() if not self.waiting.listens(prefix)]
        for prefix in missing:
            if now >= self._inbox_at.get(prefix, 0.0):
                self._inbox_at[prefix] = now + 1.0
                self._subscribe(prefix)
        if self.waiting.listening and now >= self._ping_at:
            self._ping_at = now + PING_EVERY_S
            if not self.active():
                self._reachable_prefixes.clear()
            self.inbox.call(Command(("PING",), ANSWER_WITHIN_S), lambda _reply, _sent: None)

    def _subscribe(self, prefix: bytes) -> None:
        def then(reply: Any, _sent: float) -> None:
            now = self.clock()
            with self.mutex:
                if isinstance(reply, WireError):
                    self.waiting.on_unreachable(reply, now, prefix)
                    self._inbox_at[prefix] = now + 0.1
                else:
                    self._on_subscribed(prefix, now)

        self.inbox.call(Command((self._inbox_address.subscribe, self.channel(prefix)), ANSWER_WITHIN_S), then)

    def _on_subscribed(self, prefix: bytes, now: float) -> None:
        """The mutex is held."""
        self.waiting.on_listening(now, prefix)
        local_queues = [*self.local_queues(), *(held.local_queue for held in self.renewing.held_leases() if held.local_queue)]
        for local_queue in [local_queue for local_queue in local_queues if local_queue.prefix == prefix]:
            local_queue.on_asked()  # somebody may have said so while nobody listened
        for listener in self.listeners.values():
            if listener.prefix == prefix:
                listener.wake()
        self._ping_at = now + PING_EVERY_S

    def _on_silence(self) -> None:
        """The connection is lost: subscribe anew. The refresh that follows makes up for messages missed meanwhile."""
        with self.mutex:
            self.waiting.on_silence()
        self._inbox_at.clear()

    def _on_push(self, reply: list[Any]) -> None:
        """A message: only a hint, so whatever cannot be read is dropped."""
        payload = reply[2] if len(reply) == 3 else None
        fields = payload.decode("ascii", "replace").split(" ") if isinstance(payload, bytes) and len(payload) <= 256 else []
        what, whom, more = fields if len(fields) == 3 else (*fields, "") if len(fields) == 2 else ("", "", "")
        leave = None
        with self.mutex:
            if what == codes.GRANTED and more.isdigit():
                leave = self.waiting.on_message(whom, int(more), self.clock())
            elif what == codes.BROKEN:
                self.renewing.hinted(whom, more, self.clock())
            elif not more:
                self._on_told(what, whom)
        if leave is not None:
            self.commands.call(leave, lambda _answer, _sent: None)

    def _on_told(self, what: str, whom: str) -> None:
        """Somebody outside waits for the lock that this token holds; or there is something to look at on this server."""
        if what == codes.WANTED:
            self._on_asked(whom)
        elif what == codes.CHANGED and whom in self.listeners:
            self.listeners[whom].hints.add(self)
            self.listeners[whom].wake()
            self._forget_closed_listeners()

    def _forget_closed_listeners(self) -> None:
        """Those whose event loop was closed without ending them; the mutex is held."""
        self.listeners = {
            listener_id: one for listener_id, one in self.listeners.items() if one.slot is None or not one.slot.gone()
        }

    def _on_asked(self, token: str) -> None:
        held_lease = self.renewing.get(token)
        if held_lease is not None:
            local_queue = self._gate_of(held_lease)
            if local_queue is not None:
                local_queue.on_asked()
            return
        self._asked_early[token] = None
        if len(self._asked_early) > EARLY_HINTS_MAX:
            del self._asked_early[next(iter(self._asked_early))]

    def _gate_of(self, held_lease: HeldLease) -> Queue | None:
        """The local queue of a lease, if there ever was one; the mutex is held."""
        return held_lease.local_queue or self._local_queues.get((held_lease.spec.keys[0], held_lease.spec.prefix))

    def _ask(self, spec: Spec) -> None:
        local_queue = self._local_queues.get((spec.keys[0], spec.prefix))
        if local_queue is not None:
            local_queue.on_asked()

    # The process record

    def _write_records(self) -> None:
        """One in each prefix that is used: a user of one cannot read the record in another."""
        with self.mutex:
            waits = self.wait_graph.waits
            told, self._told = self._told, {prefix for wait in waits for prefix in wait.prefixes}
            used = self._introduced | self._prefixes_in_use() | told | self._told
            self._introduced = set()
            self._written_at = now = self.clock()
            self._labels = labels = self.labels_in_use()
            standing = {prefix: ends for prefix, ends in self._records.items() if ends > now}
            self._records = {**standing, **dict.fromkeys(used, now + RECORD_LIVES_S)}
        keeper, self.wait_graph.untold = self.keeper, False
        for prefix in used:
            text = keeper.record([wait for wait in waits if prefix in wait.prefixes], labels.get(prefix, {}))
            key = record_key(prefix, keeper.process_id)
            record = Command(("SET", key, text, "PX", milliseconds(RECORD_LIVES_S)), ANSWER_WITHIN_S)
            self.commands.call(record, lambda _answer, _sent: None)

    def _prefixes_in_use(self) -> set[bytes]:
        """The mutex is held."""
        meeting = [listener.prefix for listener in self.listeners.values() if listener.needs_record]
        return {*meeting, *self.waiting.prefixes(), *(held_lease.spec.prefix for held_lease in self.renewing.held_leases())}

    def labels_in_use(self) -> dict[bytes, dict[bytes, str]]:
        """Of the locks that are held or waited for, by prefix and key. The mutex is held."""
        found: dict[bytes, dict[bytes, str]] = {}
        waiting = [(waiter.attempt.spec, waiter.attempt.spec.label) for waiter in self.waiting.waiters()]
        for spec, label in [*waiting, *((held_lease.spec, held_lease.label) for held_lease in self.renewing.held_leases())]:
            if label is not None:
                found.setdefault(spec.prefix, {})[spec.keys[0]] = label
        return found

    def want_label(self, now: float, spec: Spec, label: str | None) -> None:
        """The label of a lock is to be told soon: by the keeper, so that taking the lock costs nothing, and not more often than
        once in `LABELS_EVERY_S` seconds. Called with the keeper's mutex held, by any thread."""
        if label == self._labels.get(spec.prefix, {}).get(spec.keys[0]):
            return
        at = max(now + RECORD_AFTER_S, self._written_at + LABELS_EVERY_S)
        if at < self._record_at < float("inf"):
            self._record_at = at
            self.keeper.wake_by(at)

    def want_record(self, now: float, prefix: bytes, *, needs_record: bool = False) -> None:
        """The users of a prefix are to know which process this is. Called with the keeper's mutex held, by any thread."""
        self._needs_record = self._needs_record or needs_record
        if self._records.get(prefix, 0.0) <= max(now, self._record_at):  # there is none, or it ends before it is written again
            self._introduced.add(prefix)
            if self._record_at == float("inf"):
                self._record_at = now + RECORD_AFTER_S
            else:
                self.facts_changed(now)
                self.keeper.wake_by(self._record_at)

    def facts_changed(self, now: float) -> None:
        """Called with the keeper's mutex held, by any thread."""
        if self._record_at != float("inf"):
            self._record_at = min(self._record_at, now + RECORD_AFTER_S)

    def farewell(self) -> tuple[list[HeldLease], list[Call]]:
        """When this process ends: the leases that are lost by that, whose owners are to be told; and what to send. Held locks
        are given back, the record is removed. Called with the keeper's mutex held."""
        lost = [held_lease for held_lease in self.renewing.held_leases() if held_lease.lose("the process ends")]
        calls: list[Call] = [held_lease.giving_back(revoke=held_lease.maybe_in_flight, timeout=0.5) for held_lease in lost]
        calls += [Command(("DEL", record_key(prefix, self.keeper.process_id)), 0.5) for prefix in self._records]
        return lost, calls
