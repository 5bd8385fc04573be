"""The part of the keeper (background thread) that serves one server: its waiters, renewals and local queues.

Waiters, renewals and local queues decide what has to be asked. A `Node` turns these decisions into requests, and sends them
over two connections: one for commands, the other for published messages. The thread and its sockets are in
`_runtime.keeper.thread` and `_net.pipelined_connection`. The simulator passes simulated connections.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from holdfast._core.deadlock.wait_graph import WaitGraph
from holdfast._core.lock.idle_queues import Loose
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.ports import InboxAddress, Line, Lines, LockWait, NodeKeeper, PendingUndo, ReleaseListener
from holdfast._core.lock.records import Attempt, HeldLease, Queue, Waiter
from holdfast._core.lock.release import revocation
from holdfast._core.lock.renewal import EARLY_HINTS_MAX, Renew, Renewing, register, renewals
from holdfast._core.lock.server_queue import SlotMoved, Waiting, refreshment
from holdfast._core.lock.spec import Spec, milliseconds
from holdfast._core.names import channel, record_key
from holdfast._core.requests import Call, Command, Down, NotSent, Refused, RunScript, Subscriber, WireError
from holdfast._lua import codes

RECORD_EVERY_S = 20.0
"""Seconds between two updates of the process record, which tells other clients the host, pid and label of this process."""

RECORD_LIVES_S = 3 * RECORD_EVERY_S
"""Seconds after which a process record expires unless it is written again."""

LABELS_EVERY_S = 1.0
"""Minimum seconds between two updates of the process record that are caused by new labels of locks."""

RECORD_AFTER_S = 0.02
"""Seconds from the first lock of this process to the first process record; a command that ends earlier never writes one."""

ANSWER_WITHIN_S = 2.0
"""Maximum seconds to wait for a reply that no lease depends on: to a subscription, a PING or a process record."""

PING_EVERY_S = 5.0
"""Seconds between two PINGs on the connection for messages; otherwise the loss of that connection might not be noticed."""


class Node:
    """The keeper's state for one server: the leases, waiters and local queues of this process there.

    The methods run in the keeper (background thread) unless their docstring says otherwise.
    """

    mutex: AbstractContextManager[object]
    clock: Callable[[], float]
    in_change: Callable[[], bool]
    later: Callable[[Callable[[], None]], None]
    waiting: Waiting
    renewing: Renewing
    commands: Line
    inbox: Line
    wait_graph: WaitGraph
    record_at: float

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
        """Monotonic time, in seconds, at which to call `on_time` of each local queue; a queue without a timer is missing."""
        self._pending_undos: list[PendingUndo] = []
        self.asked_early: dict[str, None] = {}
        self.listeners: dict[str, Subscriber] = {}
        """Listeners by `listener_id`. Each listener waits for a notification from the server."""
        self._needs_record = False
        """True if other clients may look up the process of a listener, so that the process record must be written."""
        self._reachable_prefixes: set[bytes] = set()
        """Prefixes whose inboxes (pub/sub channels) must be subscribed even if no attempt waits in the server's queue."""
        self._inbox_at: dict[bytes, float] = {}
        """Monotonic time, in seconds, of the next try to subscribe the inbox of each prefix; without an entry: at once."""
        self._ping_at = self._deaf_until = 0.0
        self.record_at = float("inf")
        self._introduced: set[bytes] = set()
        """Prefixes under which the record of this process has to be written, because it is missing or expires soon."""
        self.records: dict[bytes, float] = {}
        """Monotonic time, in seconds, at which the process record of each prefix expires."""
        self._written_at = -LABELS_EVERY_S
        self.labels: dict[bytes, dict[bytes, str]] = {}
        """Labels of locks as last written to the process records (at `_written_at`), by prefix and key of the lock."""
        self._told: set[bytes] = set()
        """Prefixes whose process records, as last written, contained waits for locks."""
        self.wait_graph = WaitGraph(self)

    # One pass of the keeper's loop

    def active(self) -> bool:
        waits = len(self.waiting) or self.wait_graph.untold or (self._needs_record and self.listeners)
        return bool(waits or len(self.renewing))

    def channel(self, prefix: bytes) -> bytes:
        """Return the name of this node's inbox (pub/sub channel) under a key prefix."""
        return channel(prefix, self._inbox_address.inbox)

    def _wanted(self) -> set[bytes]:
        """Return the prefixes whose inboxes (pub/sub channels) should be subscribed. The caller holds the mutex."""
        wanted = self._reachable_prefixes.union(self.waiting.prefixes())
        for listener in self.listeners.values():
            wanted.add(listener.prefix)
        return wanted

    def _tend_at(self) -> float:
        """Return the monotonic time, in seconds, at which to subscribe an inbox next, or to test its connection by a PING.

        The caller holds the mutex.
        """
        at = float("inf")
        for prefix in self._wanted():
            at = min(at, self._ping_at if self.waiting.listens(prefix) else self._inbox_at.get(prefix, 0.0))
        return at

    def turn(self, now: float) -> None:
        """Send the requests that are due at monotonic time ``now``, and notify the owners of lost leases."""
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
            record = self.active() and now >= self.record_at
            if record:
                self.record_at = now + RECORD_EVERY_S
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
        """Remove a waiter whose event loop was closed. The next waiter of this process, if any, inherits its server-queue
        position."""
        attempt, local_queue = waiter.attempt, waiter.attempt.local_queue
        if local_queue is not None and local_queue.pass_abandoned_place_on(attempt, waiter):
            return
        self.waiting.unregister_waiter(waiter)
        leave = revocation(attempt)
        self.keeper.call(lambda: self.commands.call(leave, lambda _answer, _sent: None))
        attempt.may_be_on_server = False
        if local_queue is not None:
            local_queue.settle(attempt, None)
        attempt.slot = None  # otherwise the remembered attempt would keep its task and event loop alive

    def _look_after(self, now: float) -> None:
        for local_queue in [local_queue for local_queue, at in self._looked_after.items() if at <= now]:
            self._looked_after[local_queue] = at = local_queue.on_time(now)
            if at == float("inf"):
                del self._looked_after[local_queue]

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, at which `turn` must be called next. The caller holds the mutex."""
        at = min(
            self.renewing.next_at(),
            self.waiting.next_at(),
            self.commands.next_at(),
            self.inbox.next_at(),
            self.wait_graph.at,
            self._tend_at(),
            *self._looked_after.values(),
            *[pending_undo.at for pending_undo in self._pending_undos],
        )
        return self.record_at if self.record_at < at and self.active() else at

    def state(self) -> tuple[object, ...]:
        """Return the part of the state that no other object has, and that decides what the next calls of `turn` do.

        The simulator's search of all schedules compares it, to recognize a state that it has explored.
        """
        timers = self._inbox_at, self._ping_at, self.record_at
        return *timers, self._reachable_prefixes, self.asked_early, self._pending_undos

    def register_waiter(self, waiter: Waiter, now: float) -> bool:
        """Register a waiter, and have the process record written. Return True if the inbox of its prefix is subscribed.

        Otherwise return False. The waiter is woken once the inbox is subscribed. If the lock's Cluster slot has moved to
        another server, also return False, and end the wait with the error SlotMoved. The caller holds the mutex.
        """
        spec = waiter.attempt.spec
        self.want_record(now, spec.prefix)
        self.want_label(now, spec, spec.label)
        self.wait_graph.somebody_waits(now)
        if waiter.attempt.local_queue is None:
            self._ask(waiter.attempt.spec)  # an attempt outside of the lock's local queue counts as another client
        if self._inbox_address.strays(waiter.attempt.spec.keys[0]):
            waiter.awaits_inbox = True
            waiter.put(Down(SlotMoved("the lock's Cluster slot has moved to another server", self.address)))
            return False
        return self.waiting.register_waiter(waiter, now)

    def register(self, held_lease: HeldLease, now: float, *, hurry: bool = True) -> list[HeldLease]:
        """Renew a lease from monotonic time ``now`` on, until `forget` is called.

        Return the older leases that the grant of this one proves to be lost. ``hurry``: as in `_core.lock.renewal.register`.
        Any thread may call this method, with the mutex held.
        """
        return register(self, held_lease, now, hurry=hurry)

    def forget(self, held_lease: HeldLease) -> None:
        """Stop renewing a lease. Any thread may call this method."""
        with self.mutex:
            self.renewing.forget(held_lease.token)

    def close(self, error: WireError) -> None:
        """End the wait of all attempts on this server, because this process stops. The caller holds the mutex."""
        for local_queue in self.local_queues():
            local_queue.close(error)
        self.waiting.close(error)

    # The interface for local queues (`QueuePort`)

    def local_queues(self) -> list[LocalQueue]:
        """Return the local queues that are in use; the caller holds the mutex."""
        return self._local_queues.values()

    def in_line(self) -> list[Attempt]:
        """Return the attempts that wait in the local queues; the caller holds the mutex."""
        return [attempt for local_queue in self.local_queues() for attempt in local_queue.queue]

    def local_queue(self, spec: Spec) -> LocalQueue:
        """Return the queue of this process for a lock; create it if there is none. The caller holds the mutex.

        If one ``key=`` is used under two prefixes, the key has two queues, because each prefix has its own inbox.
        """
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
        """Open the connection over which the lease of this key will be renewed.

        The keeper calls this, with its mutex held.
        """
        self.keeper.call(lambda: self.commands.call(Command(("EXISTS", key), ANSWER_WITHIN_S), lambda _reply, _sent: None))

    def asked_for(self, token: str) -> bool:
        if token in self.asked_early:
            del self.asked_early[token]
            return True
        return False

    def look_at(self, local_queue: Queue, at: float) -> None:
        self._looked_after[local_queue] = min(at, self._looked_after.get(local_queue, at))
        self.inbox.reclaim()
        self.keeper.wake_by(at)

    def looks_at(self, local_queue: Queue) -> float | None:
        """Return the monotonic time, in seconds, at which `on_time` of this local queue is called; None: it has no timer."""
        return self._looked_after.get(local_queue)

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
        self.keeper.call(lambda: self._give_back(PendingUndo(self.clock(), give, revoke, held_lease.latest, local_queue)))

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        spec = attempt.spec
        self.send_until_answered(revocation(attempt), self.clock() + spec.timeout + spec.first_ttl, local_queue)

    def send_until_answered(self, call: RunScript[int], until: float, local_queue: ReleaseListener | None = None) -> None:
        """Have the keeper thread send a call until the server replies, or until monotonic time ``until``.

        ``local_queue``: object to notify after the first reply or failure; None: no object. Any thread may call this.
        """
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
                # Notified even after a failure. The next waiter then asks the server, and waits there if the lock is still
                # held.
                due.local_queue.on_released()

        self.commands.call(due.again if due.failures else due.call, then)

    # Renewing leases

    def _renew_safely(self, due: list[Renew], now: float) -> None:
        for spec in [renew.held_lease.spec for renew in due]:
            if self._inbox_address.strays(spec.keys[0]):
                with self.mutex:
                    self._ask(spec)  # waiters of other processes cannot reach this inbox, so assume that one of them waits
        for batch in self._inbox_address.together(due, lambda renew: renew.held_lease.spec):
            if not self.keeper.safely(self._renew, batch):
                with self.mutex:
                    for renew in batch:
                        self.renewing.on_failed(renew, now)

    def _renew(self, batch: list[Renew]) -> None:
        def then(answers: list[int] | WireError, sent: float) -> None:
            alone = isinstance(answers, Refused) and (not answers.transient or answers.code == "TRYAGAIN")
            if alone and len(batch) > 1:
                for renew in batch:  # a single lock may have caused the refusal of the whole batch
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
            local_queues = [self._local_queue_of(renew.held_lease) for renew in batch]
        for held_lease in lost:
            self.keeper.safely(self.keeper.report, held_lease)
        for renew, local_queue in zip(batch, local_queues, strict=True):
            if local_queue is not None and local_queue.awaits_check:
                known = not (isinstance(answers, WireError) or renew.held_lease.lost)
                local_queue.answered(renew.held_lease.token, renew.made, known=known)

    # Waiters and the inbox

    def _refresh_safely(self, due: list[Waiter], timeout: float, now: float) -> None:
        strays = [waiter for waiter in due if self._inbox_address.strays(waiter.attempt.spec.keys[0])]
        if strays:
            with self.mutex:
                self.waiting.close(SlotMoved("the lock's Cluster slot has moved to another server", self.address), strays)
            due = [waiter for waiter in due if waiter not in strays]
        for batch in self._inbox_address.together(due, lambda waiter: waiter.attempt.spec):
            if not self.keeper.safely(self._refresh, batch, timeout):
                with self.mutex:
                    self.waiting.on_failed(batch, NotSent("the keeper thread failed to send the refresh", self.address), now)

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
                if deaf:  # in a Cluster, another server than the inbox's may have replied, so reconnect rarely
                    self._deaf_until = now + PING_EVERY_S
            if deaf:
                self.inbox.fail("the server no longer counts this inbox as subscribed")

        self.commands.call(refreshment(batch, self.channel(prefix), timeout), then)

    def _tend_inboxes(self, now: float) -> None:
        """Subscribe the inboxes that are not subscribed yet. If any inbox is subscribed, test the connection with a PING."""
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
        """Note that an inbox is subscribed, and act as if a message had been missed before. The caller holds the mutex."""
        self.waiting.on_listening(now, prefix)
        local_queues = [*self.local_queues(), *(held.local_queue for held in self.renewing.held_leases() if held.local_queue)]
        for local_queue in [local_queue for local_queue in local_queues if local_queue.prefix == prefix]:
            local_queue.on_asked()  # a waiter's notification may have been missed without the subscription
        for listener in self.listeners.values():
            if listener.prefix == prefix:
                listener.wake()
        self._ping_at = now + PING_EVERY_S

    def _on_silence(self) -> None:
        """Note that the connection for messages is lost.

        The inboxes are then subscribed again, and the periodic refresh makes up for the messages that were missed.
        """
        with self.mutex:
            self.waiting.on_silence()
        self._inbox_at.clear()

    def _on_push(self, reply: list[Any]) -> None:
        """Handle a message that was published to the inbox. A message in an unknown format is ignored."""
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
        """Handle a message of the kind ``what`` about ``whom``.

        WANTED means that a client waits for the lock that the token ``whom`` holds. CHANGED means that the object that the
        listener ``whom`` watches may have changed.
        """
        if what == codes.WANTED:
            self._on_asked(whom)
        elif what == codes.CHANGED and whom in self.listeners:
            self.listeners[whom].hints.add(self)
            self.listeners[whom].wake()
            self._forget_closed_listeners()

    def _forget_closed_listeners(self) -> None:
        """Remove the listeners whose event loop was closed. The caller holds the mutex."""
        self.listeners = {
            listener_id: one for listener_id, one in self.listeners.items() if one.slot is None or not one.slot.gone()
        }

    def _on_asked(self, token: str) -> None:
        held_lease = self.renewing.get(token)
        if held_lease is not None:
            local_queue = self._local_queue_of(held_lease)
            if local_queue is not None:
                local_queue.on_asked()
            return
        self.asked_early[token] = None
        if len(self.asked_early) > EARLY_HINTS_MAX:
            del self.asked_early[next(iter(self.asked_early))]

    def _local_queue_of(self, held_lease: HeldLease) -> Queue | None:
        """Return the local queue for the lock of a lease; None if the lock has no such queue. The caller holds the mutex."""
        return held_lease.local_queue or self._local_queues.get((held_lease.spec.keys[0], held_lease.spec.prefix))

    def _ask(self, spec: Spec) -> None:
        local_queue = self._local_queues.get((spec.keys[0], spec.prefix))
        if local_queue is not None:
            local_queue.on_asked()

    # The process record

    def _write_records(self) -> None:
        """Write one process record under each prefix in use, because an ACL may permit a reader the keys of one prefix only.

        The nodes of two endpoints with one address, such as those with two time limits, write the same key. So the record
        lists the waits and labels of all of them.
        """
        with self.mutex:
            waits = sorted({wait for node in self.keeper.nodes_at(self.address) for wait in node.waits})
            told, self._told = self._told, {prefix for wait in waits for prefix in wait.prefixes}
            used = self._introduced | self._prefixes_in_use() | told | self._told
            self._introduced = set()
            self._written_at = now = self.clock()
            self.labels = labels = self.labels_in_use()
            standing = {prefix: ends for prefix, ends in self.records.items() if ends > now}
            self.records = {**standing, **dict.fromkeys(used, now + RECORD_LIVES_S)}
        keeper, self.wait_graph.untold = self.keeper, False
        for prefix in used:
            text = keeper.record([wait for wait in waits if prefix in wait.prefixes], labels.get(prefix, {}))
            key = record_key(prefix, keeper.process_id)
            record = Command(("SET", key, text, "PX", milliseconds(RECORD_LIVES_S)), ANSWER_WITHIN_S)
            self.commands.call(record, lambda _answer, _sent: None)

    def _prefixes_in_use(self) -> set[bytes]:
        """Return the key prefixes of all leases, of all waiters, and of the listeners that need a process record.

        The caller holds the mutex.
        """
        meeting = [listener.prefix for listener in self.listeners.values() if listener.needs_record]
        return {*meeting, *self.waiting.prefixes(), *(held_lease.spec.prefix for held_lease in self.renewing.held_leases())}

    @property
    def waits(self) -> tuple[LockWait, ...]:
        """Return the waits of this process that may be part of a deadlock, and have lasted long enough to be published."""
        return self.wait_graph.waits

    def labels_in_use(self) -> dict[bytes, dict[bytes, str]]:
        """Return the labels of the locks on this server that this process holds or waits for, by prefix and key.

        The caller holds the mutex.
        """
        found: dict[bytes, dict[bytes, str]] = {}
        for node in self.keeper.nodes_at(self.address):
            waiting = [(waiter.attempt.spec, waiter.attempt.spec.label) for waiter in node.waiting.waiters()]
            for spec, label in [*waiting, *((held_lease.spec, held_lease.label) for held_lease in node.renewing.held_leases())]:
                if label is not None:
                    found.setdefault(spec.prefix, {})[spec.keys[0]] = label
        return found

    def want_label(self, now: float, spec: Spec, label: str | None) -> None:
        """Have the process record written soon, if it does not contain this label of a lock yet (None: the lock has no label).

        Because of labels, the record is written at most once in `LABELS_EVERY_S` seconds. Any thread may call this method, with
        the mutex held.
        """
        if label == self.labels.get(spec.prefix, {}).get(spec.keys[0]):
            return
        at = max(now + RECORD_AFTER_S, self._written_at + LABELS_EVERY_S)
        if at < self.record_at < float("inf"):
            self.record_at = at
            self.keeper.wake_by(at)

    def want_record(self, now: float, prefix: bytes, *, needs_record: bool = False) -> None:
        """Have the process record under a prefix written soon, unless it is up to date.

        ``needs_record``: True if other clients may look up the process of a listener. The record is then kept up to date. Any
        thread may call this method, with the mutex held.
        """
        self._needs_record = self._needs_record or needs_record
        if self.records.get(prefix, 0.0) <= max(now, self.record_at):  # no record, or it expires before the next update
            self._introduced.add(prefix)
            if self.record_at == float("inf"):
                self.record_at = now + RECORD_AFTER_S
            else:
                self.facts_changed(now)
                self.keeper.wake_by(self.record_at)

    def facts_changed(self, now: float) -> None:
        """Have the process records written soon, because the waits or labels in them have changed.

        Any thread may call this method, with the mutex held.
        """
        if self.record_at != float("inf"):
            self.record_at = min(self.record_at, now + RECORD_AFTER_S)

    def farewell(self) -> tuple[list[HeldLease], list[Call]]:
        """Mark all leases of this process as lost, because the process ends. Return these leases, and the calls to send.

        The calls release the leases and delete the process records. The caller holds the mutex, sends the calls and notifies
        the owners of the leases.
        """
        lost = [held_lease for held_lease in self.renewing.held_leases() if held_lease.lose("the process ends")]
        calls: list[Call] = [held_lease.giving_back(revoke=held_lease.maybe_in_flight, timeout=0.5) for held_lease in lost]
        calls += [Command(("DEL", record_key(prefix, self.keeper.process_id)), 0.5) for prefix in self.records]
        return lost, calls
