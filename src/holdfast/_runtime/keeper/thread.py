"""The keeper: one background thread per process, which renews leases, listens for hand-overs and refreshes waiters.

`_core.lock.node` decides which requests the keeper sends to a server. This module has the thread and its sockets. The thread
does not block on any single server. It does not use the program's event loops, so leases are renewed even while a program
blocks its event loop.
"""

from __future__ import annotations

import functools
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast._core.deadlock.abort_wait import abort_wait
from holdfast._core.lock.idle_queues import Loose
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.node import RECORD_AFTER_S, Node
from holdfast._core.lock.owner import Reference, nobody
from holdfast._core.lock.ports import Line
from holdfast._core.lock.records import Attempt, HeldLease, Waiter
from holdfast._core.lock.renewal import register
from holdfast._core.lock.spec import Spec
from holdfast._core.requests import Answer, Command, NotSent, RunScript, Subscriber
from holdfast._log import logger
from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._net.system import SYSTEM, System
from holdfast._runtime.closed_loops import Loops
from holdfast._runtime.keeper import lines
from holdfast._runtime.keeper.foreign_locks import ForeignLocks
from holdfast._runtime.keeper.long_leases import LongLeases

if TYPE_CHECKING:
    from holdfast._core.lock.ports import LockWait
    from holdfast._core.quorum.nodes import QuorumNodes
    from holdfast._core.single_flight.coalesce import Coalescer

log = logger("holdfast.keeper")


class Keeper:
    """The keeper thread, with its selector and its state for each server (the nodes).

    Other threads may call the methods that this class defines before `_node`, and also `wake_by`, `report` and `safely`.
    """

    clock: Callable[[], float]
    mutex: threading.RLock
    selector: selectors.BaseSelector
    loops: Loops
    foreign_locks: ForeignLocks
    thread: threading.Thread
    closing: bool
    ended: bool
    wake_at: float

    def __init__(
        self, process_id: str, record: Callable[[Sequence[LockWait], Mapping[bytes, str]], str], system: System = SYSTEM
    ) -> None:
        self.system = system
        self.clock = system.clock
        self.process_id = process_id
        self.record = record
        """Function that returns the record of this process, which other processes read from the server."""
        self.mutex = threading.RLock()  # re-entrant, because a signal handler may use locks, too
        self.in_change: Callable[[], bool] = self.mutex._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 - as Condition asks
        self.selector = system.selector()
        self._nodes: dict[Endpoint, Node] = {}
        self._quorum_nodes: dict[tuple[Endpoint, ...], QuorumNodes] = {}
        self._coalescers: Loose[tuple[Endpoint, bytes, int], Coalescer] = Loose()
        self._links: list[lines.AnyLine] = []
        self._calls: deque[Callable[[], None]] = deque()
        self.collected: deque[Reference] = deque()
        """References to garbage-collected owners of leases that the thread has not handled yet."""
        self.wake_at = 0.0
        """Monotonic time, in seconds, at which the thread wakes next."""
        self._later: list[tuple[float, Callable[[], None]]] = []
        """Functions to call later, each with the monotonic time of its call, in seconds."""
        self.looks = False
        """True while the next check of `LongLeases`, for leases held for more than a second, is scheduled."""
        self._long_leases = LongLeases(self, self._nodes.values())
        self.loops = Loops(self)
        self.foreign_locks = ForeignLocks(self)
        self.closing = False
        """True once `stop` was called, and in a forked child. Then no new lease may be given to this keeper."""
        self._stopping = False
        self.ended = False
        self._poke_out, self._poke_in = system.socketpair()
        self._poke_out.setblocking(False)
        self._poke_in.setblocking(False)
        self.selector.register(self._poke_out, selectors.EVENT_READ)
        self.thread = system.keep(self)

    def watch(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        """Renew a lease until `forget` is called for it.

        If the grant of this lease shows that an older lease of this process is lost, the older lease's owner is notified before
        the method returns.
        """
        with self.mutex:
            outdated = register(self._node(endpoint), held_lease, self.clock())
        for lost in outdated:
            self.safely(self.report, lost)

    def attend(self, at: float) -> None:
        """Have the thread wake by monotonic time ``at``, in seconds, for a new lease. The caller holds the mutex."""
        self._long_leases.look_later()
        if self.collected:
            self._poke()
        self.wake_by(at)

    def gone(self, endpoint: Endpoint, key: bytes, sent: float) -> None:
        """Treat this process's lease of a lock as lost, because the server does not have the lock's key.

        ``sent``: monotonic time, in seconds, at which the request that showed this was sent. A lease granted later is not lost.
        The owner of the lease is notified before the method returns.
        """
        with self.mutex:
            lost = self._node(endpoint).renewing.gone(key, sent)
        if lost is not None:
            self.safely(self.report, lost)

    def forget(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        with self.mutex:
            self._node(endpoint).renewing.forget(held_lease.token)

    def label_of(self, key: bytes) -> str | None:
        """Return the label of the lock object that holds this lock, on any server; None if this process does not hold it."""
        with self.mutex:
            held = (held_lease for node in self._nodes.values() for held_lease in node.renewing.held_leases())
            return next((held_lease.label for held_lease in held if held_lease.spec.keys[0] == key), None)

    def knows(self, endpoint: Endpoint) -> bool:
        """Return True if the keeper has state for this server. It has none for a server that is not used."""
        return endpoint in self._nodes

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, of the next request that is due on a server; infinity: none."""
        with self.mutex:
            return min((node.next_at() for node in self._nodes.values()), default=float("inf"))

    @property
    def busy(self) -> bool:
        """True while the keeper waits for the reply to a request."""
        return any(link.busy for link in self._links)

    def lease_of(self, endpoint: Endpoint, key: bytes) -> HeldLease | None:
        """Return the lease that this process holds for ``key`` on a server; None if it holds none.

        Clients with other settings, such as another time limit, may have acquired it. They have a node each, with one address.
        """
        with self.mutex:
            nodes = [node for other, node in self._nodes.items() if other.address == endpoint.address]
            return next((node.renewing.holders[key] for node in nodes if key in node.renewing.holders), None)

    def local_queue(self, endpoint: Endpoint, spec: Spec) -> LocalQueue:
        with self.mutex:
            return self._node(endpoint).local_queue(spec)

    def quorum_nodes(self, kind: type[QuorumNodes], endpoints: tuple[Endpoint, ...]) -> QuorumNodes:
        """Return the keeper's state for several servers that vote together.

        ``kind``: the class `QuorumNodes`. It is a parameter, so that processes that use a single server need not import it.
        """
        with self.mutex:
            quorum_nodes = self._quorum_nodes.get(endpoints)
            if quorum_nodes is None:
                quorum_nodes = self._quorum_nodes.setdefault(
                    endpoints, kind(tuple(self._node(endpoint) for endpoint in endpoints))
                )
            return quorum_nodes

    def register_waiter(self, endpoint: Endpoint, waiter: Waiter) -> bool:
        """Register a waiter for notifications from this server. Return True if the process is already subscribed there.

        Otherwise return False. The waiter's slot then gets None once the subscription is made.
        """
        now = self.clock()
        with self.mutex:
            node = self._node(endpoint)
            ready = node.register_waiter(waiter, now)
            inbox = self._inbox(node)
            if inbox is not None:
                inbox.reclaim()
            if not ready:
                self.wake_by(now)
        return ready

    def joined(self, endpoint: Endpoint, waiter: Waiter, answer: Answer[Any]) -> None:
        """Start refreshing the entry of a waiter in the server's queue. ``answer``: reply to the request that added the
        entry."""
        with self.mutex:
            waiting = self._node(endpoint).waiting
            waiting.joined(waiter, answer, self.clock())
            self.wake_by(min(waiting.round_at, waiter.refresh_at))

    def unregister_waiter(self, endpoint: Endpoint, waiter: Waiter) -> None:
        with self.mutex:
            self._node(endpoint).waiting.unregister_waiter(waiter)

    def abort_wait(self, endpoint: Endpoint | tuple[Endpoint, ...], attempt: Attempt, error: Exception) -> None:
        """End the wait of an attempt by raising ``error`` in its thread or task. Do nothing if the attempt is not waiting."""
        with self.mutex:
            abort_wait(self._node(endpoint).waiting if isinstance(endpoint, Endpoint) else None, attempt, error)

    def lend_socket(self, endpoint: Endpoint, waiter: Waiter) -> socket.socket | None:
        """Lend a waiter the socket on which a server's notifications arrive, so that the waiter can watch the socket.

        Return None if other waiters need the socket, too, or if the socket cannot be lent.
        """
        with self.mutex:
            node = self._node(endpoint)
            inbox = self._inbox(node)
            only = len(node.waiting) == 1 and node.reachable(waiter.attempt.spec.prefix) and node.waiting.is_waiting(waiter)
            return inbox.lend_socket(waiter) if only and inbox is not None else None

    def return_socket(self, endpoint: Endpoint, waiter: Waiter, *, soon: bool) -> None:
        """Take back a socket from a waiter that no longer watches it.

        With ``soon``, the keeper wakes and watches the socket at once. Otherwise the waiter has its outcome, and the keeper's
        next regular wake-up, within a second, is early enough.
        """
        with self.mutex:
            inbox = self._inbox(self._node(endpoint))
            if inbox is not None and inbox.lent_to(waiter):
                inbox.returned = True
                if soon:
                    inbox.reclaim()

    def on_handover_seen(self, endpoint: Endpoint, waiter: Waiter, fence: int) -> None:
        """Put the outcome of a hand-over, which a waiter has seen in the lent socket, into the waiter's slot.

        The keeper will also read that message, and ignore it.
        """
        with self.mutex:
            self._node(endpoint).waiting.on_message(waiter.attempt.token, fence, self.clock())
            self.wake_by(waiter.refresh_at)

    def subscribe(self, endpoint: Endpoint, listener: Subscriber) -> bool:
        """Notify a listener of messages from this server, from now on. Return True if the process is already subscribed there.

        Otherwise return False. The listener is then woken once the subscription is made.
        """
        with self.mutex:
            node = self._node(endpoint)
            node.want_record(self.clock(), listener.prefix, needs_record=listener.needs_record)
            if listener.listener_id not in node.listeners:
                node.listeners[listener.listener_id] = listener
                self.wake_by(self.clock())
            return node.reachable(listener.prefix)

    def unsubscribe(self, endpoint: Endpoint, listener: Subscriber) -> None:
        with self.mutex:
            self._node(endpoint).listeners.pop(listener.listener_id, None)

    def coalescer(self, endpoint: Endpoint, key: bytes, loop: int) -> Coalescer:
        """Return the coalescer of a key: the callers that share one load.

        ``loop``: id of the callers' event loop; 0: the callers are threads. Each loop has a coalescer of its own, so that a
        blocked loop does not delay callers elsewhere.
        """
        # Imported here, because programs with plain locks do not need it.
        from holdfast._core.single_flight.coalesce import Coalescer

        with self.mutex:
            coalescer = self._coalescers.get((endpoint, key, loop))
            if coalescer is None:
                coalescer = self._coalescers.setdefault((endpoint, key, loop), Coalescer(self.mutex))
            return coalescer

    def send_until_answered(self, endpoint: Endpoint, call: RunScript[int], until: float) -> None:
        """Send a call again and again until it is answered, or until monotonic time ``until``, in seconds."""
        with self.mutex:
            self._node(endpoint).send_until_answered(call, until)

    def facts_changed(self) -> None:
        """Rewrite the record of this process soon on every server that has it."""
        now = self.clock()
        with self.mutex:
            for node in [*self._nodes.values()]:
                node.facts_changed(now)
            self.wake_by(now + RECORD_AFTER_S)

    def call(self, what: Callable[[], None]) -> None:
        self._calls.append(what)
        self._poke()

    def refer(self, owner: Any, on_collected: Callable[[], None]) -> Callable[[], Any]:
        """Return a weak reference to the owner of a lease. If the owner is garbage-collected, the keeper calls
        ``on_collected``.

        A collection does not wake the keeper thread, because waking it takes Python code. CPython could run a signal handler
        in this code, and would then ignore the handler's exception, such as a KeyboardInterrupt.
        """
        reference = Reference(owner, self.collected.append)
        reference.on_collected = on_collected
        return reference

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call ``what`` in the keeper thread after ``seconds`` seconds."""
        with self.mutex:
            self._later.append((self.clock() + seconds, what))
            self.wake_by(self._later[-1][0])

    def end_loops(self, timeout: float) -> None:
        """End the operations whose event loop was closed, in at most ``timeout`` seconds.

        Call this before `stop`. The clean-up of these operations queues requests, such as releases, which `stop` then sends.
        """
        if self.loops:
            done = threading.Event()
            self.call(self.loops.end)
            self.call(done.set)
            done.wait(timeout)

    def stop(self, timeout: float) -> None:
        """Have the thread release all locks, close all connections and end, after at most ``timeout`` seconds."""
        self.closing = True
        self.call(lambda: self._farewell(timeout))

    def node(self, endpoint: Endpoint) -> Node:
        with self.mutex:
            return self._node(endpoint)

    # The thread

    def nodes_at(self, address: str) -> list[Node]:
        return [node for node in [*self._nodes.values()] if node.address == address]

    def _node(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            node = Node(
                self,
                endpoint.address,
                functools.partial(self._link, endpoint),
                lines.inbox_address_of(endpoint, self.process_id),
            )
            for other in [*self._nodes] if endpoint.cluster is not None else ():
                if other.cluster is endpoint.cluster:
                    node.wait_graph = node.wait_graph.join(self._nodes[other].wait_graph)
                    break
            node = self._nodes.setdefault(endpoint, node)  # a signal handler may have created another one meanwhile
        return node

    def line_to(self, endpoint: Endpoint) -> Line:
        """Return the keeper's connection for requests to a server. Only the keeper thread calls this."""
        with self.mutex:
            return self._node(endpoint).commands

    @staticmethod
    def _inbox(node: Node) -> PipelinedConnection | None:
        """Return a server's connection for notifications if its socket can be lent to a waiter, otherwise None."""
        return node.inbox if isinstance(node.inbox, PipelinedConnection) else None

    def _link(
        self,
        endpoint: Endpoint,
        on_push: Callable[[list[Any]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> Line:
        self._links.append(lines.line_to(self, endpoint, on_push, on_closed, self.system))
        if self.ended:  # nobody would close a connection that a late request opens
            self._links[-1].close()
        return self._links[-1]

    def moved(self, endpoint: Endpoint, place: Any) -> None:
        """Close the connections to this endpoint that lead to an old primary.

        ``place``: address of the present primary, which a new connection has found; None: close all connections to the
        endpoint.
        """
        for link in self._links:
            if isinstance(link, PipelinedConnection) and link.serves(endpoint):
                link.leave_for(place)

    def drop(self, endpoint: Endpoint, why: str) -> None:
        """Drop a server that does not come back: its waiters fail, its leases are lost, its connections are closed.

        ``why``: text for the errors. Only the keeper thread calls this.
        """
        with self.mutex:
            node = self._nodes.pop(endpoint)
            node.close(NotSent(why, endpoint.address))
            lost = [held_lease for held_lease in node.renewing.held_leases() if held_lease.lose(why)]
        for link in [link for link in self._links if isinstance(link, PipelinedConnection) and link.serves(endpoint)]:
            self._links.remove(link)
            link.close()
        for held_lease in lost:
            self.safely(self.report, held_lease)

    def wake_by(self, at: float) -> None:
        """Make the thread wake up at monotonic time ``at`` at the latest. The caller holds the mutex."""
        if at < self.wake_at:
            self.wake_at = at
            self._poke()

    def _poke(self) -> None:
        try:
            self._poke_in.send(b"x")
        except OSError:
            pass  # the pipe is full, and the thread will wake; or it is closed, and the thread has ended

    def report(self, held_lease: HeldLease) -> None:
        """Log that a lease, or one server's vote, is lost. Notify the owner of a lost lease. The caller does not hold the
        mutex."""
        whole = held_lease.lost_with_it()
        if whole is None:
            log.debug("a vote for %r lost: %s", held_lease.spec.name, held_lease.lost)
            return
        log.info("lock %r lost: %s", whole.spec.name, whole.lost)
        owner = whole.owner()
        if owner is not None:
            owner.notice_loss()

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action``. If it raises an exception, log it and return False, so that other leases are not affected."""
        try:
            action(*args)
        except Exception:
            log.exception("an error in the keeper thread; the keeper continues")
            return False
        return True

    def run(self) -> None:
        """Run the keeper's loop until `stop` is called, in the keeper's own thread."""
        while not self._stopping:
            try:
                self._turns()
            except BaseException:
                log.exception(
                    "an error in the keeper thread; the keeper continues"
                )  # an interrupt came while the inner loop handled an exception
        self._end()

    def _turns(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except BaseException:
                log.exception("an error in the keeper thread; the keeper continues")
                threading.Event().wait(0.05)

    def _end(self) -> None:
        self.ended = True
        for link in self._links:
            link.close()
        while self._calls:  # a connection may just have been opened; this closes it again
            self.safely(self._calls.popleft())
        self.selector.close()
        self._poke_out.close()
        self._poke_in.close()

    def _turn(self) -> None:
        self.after_wait(self.selector.select(self.before_wait()))

    def before_wait(self) -> float | None:
        """Do the work that is due, and return for how many seconds to wait for the selector. None: no limit."""
        self._do_what_is_left_to_it()
        if self._stopping:
            return 0.0  # the keeper ends, so it opens no more connections
        now = self.clock()
        for node in list(self._nodes.values()):
            inbox = self._inbox(node)
            if inbox is not None and inbox.returned:
                with self.mutex:
                    inbox.reclaim()
            node.turn(now)
        self._do_what_is_due(now)
        with self.mutex:
            # A planned wake-up stays even if its lease was released. Otherwise the next lease would have to wake the thread.
            planned = self.wake_at if self.wake_at > now else float("inf")
            wanted = [*(node.next_at() for node in self._nodes.values()), *(at for at, _ in self._later)]
            self.wake_at = wake_at = now if self.collected else min([planned, *wanted])
        return None if wake_at == float("inf") else max(0.0, wake_at - self.clock())

    def after_wait(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> None:
        """Read from and write to the sockets in ``ready``, which the selector has reported."""
        for key, events in ready:
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

    def _do_what_is_left_to_it(self) -> None:
        while self._calls:  # calls first, because one may release a lease that was dropped together with its task
            self.safely(self._calls.popleft())
        while self.collected:
            reference = self.collected.popleft()
            self.safely(getattr(reference, "on_collected", nobody))  # `refer` may have been interrupted before it was set

    def _do_what_is_due(self, now: float) -> None:
        for due in [due for due in list(self._later) if due[0] <= now]:
            self._later.remove(due)
            self.safely(due[1])

    def _farewell(self, timeout: float) -> None:
        self.later(timeout, self._halt)
        left_behind = self.loops.lately()
        self.loops.close()
        with self.mutex:
            for node in self._nodes.values():
                node.close(NotSent("holdfast was closed", node.address))
            for quorum_nodes in self._quorum_nodes.values():
                quorum_nodes.close(NotSent("holdfast was closed"))
            parts = [(node, *node.farewell()) for node in self._nodes.values()]
        for _, lost, _ in parts:
            for held_lease in lost:  # reported first, so that the code under the lock stops before another client gets the lock
                self.safely(self.report, held_lease)
        left_behind = left_behind or bool(self._calls)
        self._do_what_is_left_to_it()  # requests of ended operations and local queues go out before `todo`
        todo = [(node, call) for node, _, calls in parts for call in calls]
        if left_behind:
            # The answer to PING shows that the earlier requests were answered.
            todo += [(node, Command(("PING",), 0.5)) for node in list(self._nodes.values())]
        left = len(todo)
        if not left:
            self._halt()

        def then(_answer: object, _sent: float) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._halt()

        for node, call in todo:
            node.commands.call(call, then)

    def _halt(self) -> None:
        self._stopping = True
        self._poke()  # otherwise the selector would wait once more

    def sockets(self) -> list[socket.socket]:
        return [link.sock for link in self._links if link.sock is not None] + [self._poke_out, self._poke_in]
