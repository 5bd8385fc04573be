"""Barriers, latches and events in the simulation: workers run the library's operations, and each step is recorded.

Each call by a worker has a name (field ``attempt``). At a barrier, a worker (participant) records:

- ``come``: the participant arrives. ``until`` is the number of seconds for which it waits (0: without limit).
- ``through``: the participant passes. ``fence`` is the participant's number.
- ``parted``: the participant does not pass. ``note`` is the reason.
- ``acting`` and ``acted``: the barrier's action begins and ends.

The server records ``together`` for each participant that passes. ``fence`` is the participant's number, and ``last`` says how
often participants have passed the barrier together.

At a latch or an event, a worker records:

- ``count``: the worker begins to count down, or to set the event. ``last`` is the decrement, and ``note`` is the name of the
  call.
- ``counted`` or ``uncounted``: this call has succeeded (``fence`` is the count that is left), or has failed.
- ``clear``: the worker begins to reset the latch or to clear the event.
- ``cleared``: the reply to the request that resets or clears has arrived.
- ``await``: the worker begins to wait, until the virtual time ``until`` at the latest (0: without limit).
- ``released``, ``unreleased`` or ``ended``: the wait has ended with success, by a timeout, or with an error or a cancellation.

The server records ``opened`` and ``closed`` when the latch or event opens and closes.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.lock.spec import Spec
from holdfast._core.rendezvous import barrier, latch
from holdfast._core.rendezvous.barrier import BARRIER, BarrierBroken, BarrierSpec, Participant
from holdfast._core.rendezvous.latch import LATCH, Forgotten, LatchSpec
from holdfast._core.requests import Call, RunScript, Sleep, WireError
from holdfast_lab.sim.network import Wire
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.worker import TaskCancelled, Worker

KEEP_MS = 10**7
"""Milliseconds for which the server keeps the state of a barrier, latch or event after its last use."""


def meeting(parties: int, ttl: float, timeout: float, keep_ms: int = KEEP_MS) -> BarrierSpec:
    """Return the spec of a barrier. ``ttl`` and ``timeout`` are in seconds."""
    base = b"hf:{m}"
    action = base + b":action"
    spec = Spec("m", (action, action + b":state", action + b":queue"), ttl, renew=True, max_hold=None, timeout=timeout)
    return BarrierSpec(tuple(base + side for side in (b"", b":places", b":done", b":waiters")), spec, parties, keep_ms)


def flag(kind: str, count: int, timeout: float, keep_ms: int = KEEP_MS) -> LatchSpec:
    """Return the spec of a latch or event. ``kind`` is "latch" or "event", and ``timeout`` is in seconds."""
    base = b"hf:{m}"
    return LatchSpec((base, base + b":waiters", base + b":done"), f"{kind} 1", count, keep_ms, timeout)


class Rendezvous(Server):
    """A server that records who passes a barrier together, and when a latch or event opens or closes."""

    together = 0
    """How often the participants have passed the barrier together."""
    is_open = False
    flag = b""
    """The key of the latch or event; empty until a script uses it."""

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        if not isinstance(call, RunScript) or call.script not in {BARRIER, LATCH}:
            return super().serve(wire, call)
        before = self._places(call)
        answers = super().serve(wire, call)
        self._record_places(call, before)
        return answers

    def visit(self, call: RunScript[Any]) -> None:
        before = self._places(call)
        super().visit(call)
        self._record_places(call, before)

    def _places(self, call: RunScript[Any]) -> list[bytes]:
        return list(self.keyspace.execute("ZRANGE", call.keys[1], 0, -1)) if call.script is BARRIER else []

    def _record_places(self, call: RunScript[Any], before: list[bytes]) -> None:
        key = call.keys[0]
        if call.script is LATCH:
            self.flag = key
            self._record_flag()
            return
        waiting = set(self._places(call))
        found = {}
        for token in {*before, str(call.args[3]).encode()} - waiting:
            outcome = bytes(self.keyspace.execute("HGET", key, token) or b"")
            if outcome.startswith(b"passed") and (token in before or not self._known(token)):
                found[token] = int(outcome.split()[1])
        if found:
            self.together += 1
        for token, number in sorted(found.items(), key=lambda item: item[1]):
            self._met.add(token)
            who = self.whose(token)
            self.world.note("together", self.name, key.decode(), who, fence=number, last=self.together)

    def record_changes(self, *, more: bool = False) -> None:
        super().record_changes(more=more)
        if self.flag:
            self._record_flag()

    def _record_flag(self) -> None:
        is_open = self.keyspace.execute("HGET", self.flag, "left") == b"0"
        if is_open != self.is_open:
            self.is_open = is_open
            self.world.note("opened" if is_open else "closed", self.name, self.flag.decode())

    @property
    def _met(self) -> set[bytes]:
        found: set[bytes] = self.__dict__.setdefault("met", set())
        return found

    def _known(self, token: bytes) -> bool:
        return token in self._met


class RendezvousClient:
    """A client of barriers, latches and events, used by one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._attempts = self._cleared = 0

    def _note(self, kind: str, **facts: Any) -> None:
        worker = self.worker
        worker.process.world.note(kind, worker.name, "m", worker.acquisition, **facts)

    def _begin(self) -> None:
        self._attempts += 1
        self.worker.acquisition = f"{self.worker.name}#{self._attempts}"

    async def meet(
        self, where: BarrierSpec, wait: float | None = None, takes: float | None = None, *, fails: bool = False
    ) -> bool:
        """Wait at the barrier. Return True if all participants passed it, False if it broke or an error occurred.

        The worker waits at most ``wait`` seconds (None: without limit). The barrier's action takes ``takes`` seconds (None: no
        action). If ``fails`` is True, the action fails.
        """
        self._begin()
        self._note("come", until=0.0 if wait is None else wait)
        me = Participant()
        try:
            number = await self._meet(where, me, wait, takes, fails=fails)
        except BarrierBroken as broken:
            self._note("parted", note=broken.why)
            return False
        except WireError:
            self._note("parted", note="away")
            return False
        except TaskCancelled:
            self._note("parted", note="cancelled")
            raise
        self._note("through", fence=number)
        return True

    async def _meet(self, where: BarrierSpec, me: Participant, wait: float | None, takes: float | None, *, fails: bool) -> int:
        worker = self.worker
        try:
            with worker.operation():
                found = await barrier.meet(where, me, wait, acts=takes is not None)
            if isinstance(found, int):
                return found
            self._note("acting")
            await Sleep(takes or 0.0)
            if fails:
                raise BarrierBroken("failed", "")
            self._note("acted")
            with worker.operation():
                return await barrier.passing(where, me)
        except BaseException:
            if me.may_be_on_server:
                with worker.operation():
                    await barrier.leave(where, me, "action" if me.duty else "")
            raise

    async def change(self, where: BarrierSpec, how: str) -> None:
        """Reset or abort the barrier: ``how`` is "reset" or "abort". An error is ignored."""
        try:
            with self.worker.operation():
                await barrier.change(where, how)
        except WireError:
            pass

    async def count(self, what: LatchSpec, by: int = 1, name: str = "") -> None:
        """Count a latch down by ``by``, or set an event. An error is ignored.

        Calls with the same ``name`` count once. With the name "", each call counts.
        """
        self._begin()
        self._note("count", last=by, note=name)
        try:
            with self.worker.operation():
                seen = await latch.down(what, by, name)
        except WireError:
            self._note("uncounted")
        except TaskCancelled:
            self._note("uncounted")
            raise
        else:
            self._note("counted", fence=seen.missing)

    def _note_clear(self, kind: str) -> None:
        self.worker.process.world.note(kind, self.worker.name, "m", f"{self.worker.name}!{self._cleared}")

    async def clear(self, what: LatchSpec) -> None:
        """Reset a latch, or clear an event. An error is ignored."""
        self._cleared += 1
        self._note_clear("clear")
        try:
            with self.worker.operation():
                await latch.reset(what)
        except WireError:
            pass
        else:
            self._note_clear("cleared")

    async def wait(self, what: LatchSpec, wait: float | None) -> None:
        """Wait at most ``wait`` seconds (None: without limit) for a latch or an event."""
        self._begin()
        self._note("await", until=0.0 if wait is None else self.worker.process.world.now + wait)
        try:
            with self.worker.operation():
                released = await latch.wait(what, wait)
        except WireError:
            self._note("ended")
        except Forgotten:
            self._note("ended", note="forgotten")
        except TaskCancelled:
            self._note("ended")
            raise
        else:
            self._note("released" if released else "unreleased")
