"""Barriers. A fixed number of participants, in any processes, wait for each other. Then all of them go on, or all fail.

The server stores an entry for each waiting participant, which refreshes it. If an entry expires, its participant counts as
dead, and the barrier is broken. Then all participants fail with BarrierBroken, as after a timeout in `threading.Barrier`.

The server stores the outcome for each participant, so a lost reply does no harm. If the barrier has an action, the participant
that arrives last runs it, and the others go on afterwards. During the action, that participant holds a lease, which the keeper
(background thread) renews.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.name_conflict import explained
from holdfast._core.lock.owner import Owner
from holdfast._core.lock.records import Attempt, Grant, HeldLease
from holdfast._core.lock.spec import Spec, margin
from holdfast._core.names import side_key
from holdfast._core.rendezvous.latch import INFINITY, OUTAGE_BUDGET_S, CountMismatch, conflict, patiently
from holdfast._core.requests import (
    Answer,
    Conflict,
    KeepAlive,
    NewToken,
    Now,
    RunScript,
    SendUntilAnswered,
    StopKeepAlive,
    Subscribe,
    Unsubscribe,
    WireError,
)
from holdfast._core.retry import retry_idempotent
from holdfast._core.subscription import Listener, await_notice
from holdfast._lua import Script, codes

PLACE_CHECK_AFTER_S = 0.005
"""Seconds from the expiry of a participant's entry on the server to the request that breaks the barrier."""


@dataclass(frozen=True, slots=True)
class BarrierSpec:
    """The keys, the lease and the limits of a barrier. The object never changes, so that threads may share it."""

    keys: tuple[bytes, ...]
    """Keys of the barrier's state, the waiting participants, the outcomes of the last rounds, and the subscriptions."""
    spec: Spec
    """Specification of the lock that a participant holds while it runs the action.

    Its ``ttl`` is also the lifetime of a participant's entry.
    """
    parties: int
    keep_ms: int

    @property
    def outage_budget(self) -> float:
        """Seconds for which an operation retries while the server does not reply."""
        return max(OUTAGE_BUDGET_S, self.spec.ttl)


class BarrierBroken(Exception):
    """Raised if the barrier is broken, or is broken during the wait. ``why``: the reason in one word."""

    def __init__(self, why: str, process: str) -> None:
        super().__init__(why)
        self.why = why
        self.process = process
        """Public id of the process that broke the barrier; empty if it is unknown."""


class BarrierState(NamedTuple):
    """The state of a barrier: the number of waiting participants, and whether the barrier is broken."""

    waiting: int
    broken: bool


class _BarrierWaiting(NamedTuple):
    left: float
    """Seconds until the next expiry of a participant's entry or of the action's lease, unless these are refreshed."""
    at: int
    """Server time, in microseconds, at which the reply was made."""


class _Passed(NamedTuple):
    number: int


class _Acting(NamedTuple):
    """The server's reply that this participant has arrived last, and has to run the barrier's action."""


class _Occupied(NamedTuple):
    left: float


class _Over(NamedTuple):
    why: str
    process: str


Said = _BarrierWaiting | _Passed | _Acting | _Occupied | _Over | BarrierState | Conflict | CountMismatch


class ActionLease(HeldLease):
    """The lease that a participant holds while it runs the barrier's action.

    If the lease is released before the action has succeeded, the barrier is broken.
    """

    __slots__ = ("barrier_spec",)

    def __init__(self, barrier_spec: BarrierSpec, grant: Grant) -> None:
        super().__init__(grant)
        self.barrier_spec = barrier_spec

    def giving_back(self, *, revoke: bool, timeout: float) -> RunScript[int]:  # noqa: ARG002 - what is broken stays so
        call: RunScript[int] = _run(self.barrier_spec, self.token, "break", "action")  # type: ignore[assignment]
        return call


class Duty(Owner):
    """The obligation of a participant to run the barrier's action, and then to call `passing` (success) or `leave` (failure).

    If the object is garbage-collected before one of these calls, the barrier is broken.
    """

    __slots__ = ("__weakref__", "held_lease")

    def __init__(self, barrier_spec: BarrierSpec, grant: Grant) -> None:
        self.held_lease = ActionLease(barrier_spec, grant)

    def notice_loss(self) -> None:
        """Do nothing when the lease is lost, because the server then breaks the barrier and notifies the other participants."""


class Participant(Listener):
    """One participant in one round of a barrier. Its `listener_id` is also its token, by which the server names it."""

    __slots__ = ("duty", "may_be_on_server", "seen")

    def __init__(self) -> None:
        super().__init__()
        self.may_be_on_server = False
        """True if the server may have an entry of this participant."""
        self.duty: Duty | None = None
        self.seen = 0
        """Server time, in microseconds, of the last reply that told this participant to wait."""

    @property
    def needs_record(self) -> bool:
        return True


def _read(raw: object) -> Said:
    said: Said
    match raw:
        case [0, int(ms), int(at)]:
            said = _BarrierWaiting(ms / 1000, at)
        case [1, int(number)]:
            said = _Passed(number)
        case [codes.ACTING]:
            said = _Acting()
        case [codes.BROKEN_UP, bytes(why), bytes(process)]:
            said = _Over(why.decode(), process.decode())
        case [codes.STANDING, int(count), int(broken)]:
            said = BarrierState(count, bool(broken))
        case [codes.OCCUPIED, int(ms)]:
            said = _Occupied(max(0, ms) / 1000)
        case _:
            said = conflict(raw)
    return said


BARRIER: Script[Said] = Script("rendezvous/barrier", _read)


def _run(barrier_spec: BarrierSpec, token: str, *what: str | int) -> RunScript[Said]:
    spec = barrier_spec.spec
    args = (barrier_spec.parties, spec.first_ms, barrier_spec.keep_ms, token, *what)
    return RunScript(BARRIER, (*barrier_spec.keys, spec.keys[0]), args, spec.timeout)


async def _said(barrier_spec: BarrierSpec, answer: Answer[Said]) -> Said:
    if isinstance(answer.value, Conflict):
        key = barrier_spec.keys[0]
        raise KeyConflict(await explained(answer.value, key, side_key(key, b"state"), barrier_spec.spec.timeout))
    if isinstance(answer.value, CountMismatch):
        raise answer.value
    return answer.value


async def read_state(barrier_spec: BarrierSpec) -> BarrierState:
    """Return the barrier's current state. Raises WireError, KeyConflict or CountMismatch."""
    return await _standing(barrier_spec, await retry_idempotent(_run(barrier_spec, "", "look")))


async def change(barrier_spec: BarrierSpec, how: str) -> BarrierState:
    """Change the barrier's state, and return the new state. ``how``: "abort" (break the barrier) or "reset".

    If the barrier has another number of participants, "abort" raises CountMismatch, and "reset" sets the number. Both raise
    WireError or KeyConflict.
    """
    return await _standing(barrier_spec, await retry_idempotent(_run(barrier_spec, await NewToken(), how)))


async def _standing(barrier_spec: BarrierSpec, answer: Answer[Said]) -> BarrierState:
    said = await _said(barrier_spec, answer)
    assert isinstance(said, BarrierState)
    return said


async def meet(barrier_spec: BarrierSpec, me: Participant, wait: float | None, *, acts: bool) -> int | Duty:
    """Wait at the barrier until all participants have arrived. Return the number of this participant, from 0 on.

    If this participant arrives last and ``acts`` is true, return a Duty instead. The participant then has to run the action.
    ``wait``: seconds after which this participant breaks the barrier (None: never).

    Raises BarrierBroken, WireError, KeyConflict or CountMismatch.
    """
    began = await Now()
    until = INFINITY if wait is None else began + wait
    me.listener_id, me.prefix = await NewToken(), barrier_spec.spec.prefix
    try:
        await Subscribe(me, min(until, began + barrier_spec.spec.timeout))
        me.hints.clear()
        return await _meet(barrier_spec, me, until, acts=acts)
    except BaseException as error:
        me.may_be_on_server = me.may_be_on_server and not isinstance(error, KeyConflict)
        await leave(barrier_spec, me)
        raise
    finally:
        await Unsubscribe(me)


async def _meet(barrier_spec: BarrierSpec, me: Participant, until: float, *, acts: bool) -> int | Duty:
    coming = _run(barrier_spec, me.listener_id, "come", int(acts))
    me.may_be_on_server = True
    answer = await retry_idempotent(coming)
    while True:
        said, now = await _said(barrier_spec, answer), answer.came
        if isinstance(said, _Acting):
            if await _take_up(barrier_spec, me, answer):
                assert me.duty is not None
                return me.duty
            raise BarrierBroken("died", "")
        if not isinstance(said, _BarrierWaiting | _Occupied):
            return _outcome(me, said)
        if now >= until:
            return await _run_out(barrier_spec, me)
        at = now + said.left + PLACE_CHECK_AFTER_S
        call = coming
        if isinstance(said, _BarrierWaiting):
            me.seen = said.at
            call = _run(barrier_spec, me.listener_id, "wait", me.seen)
            at = min(at, now + barrier_spec.spec.ttl / 3)
        await await_notice(me, min(until, at))
        found = await patiently(call, until, barrier_spec.outage_budget)
        if found is None:
            return await _run_out(barrier_spec, me)
        answer = found


async def _take_up(barrier_spec: BarrierSpec, me: Participant, answer: Answer[Said]) -> bool:
    """Accept the duty to run the barrier's action, with a lease that the keeper (background thread) renews from now on.

    Return False if the lease had already ended when the reply arrived.
    """
    ttl = barrier_spec.spec.first_ttl
    deadline = answer.sent + ttl - margin(ttl)
    if answer.came >= deadline:
        return False
    attempt = Attempt(barrier_spec.spec, me.listener_id, maybe_in_flight=True)
    me.duty = Duty(barrier_spec, Grant(attempt, 0, answer.came, deadline))
    await KeepAlive(me.duty)
    return True


async def _run_out(barrier_spec: BarrierSpec, me: Participant) -> int:
    """Break the barrier because this participant's time is up, and raise BarrierBroken.

    If all participants had arrived just before, return this participant's number instead.
    """
    try:
        return _outcome(
            me, await _said(barrier_spec, await retry_idempotent(_run(barrier_spec, me.listener_id, "break", "timeout")))
        )
    except WireError:
        await leave(barrier_spec, me, "timeout")
        raise BarrierBroken("timeout", _process(me)) from None


def _outcome(me: Participant, said: Said) -> int:
    me.may_be_on_server = False
    if isinstance(said, _Passed):
        return said.number
    assert isinstance(said, _Over)
    # "left": this participant had no place yet, because the action of the last round was still running.
    raise BarrierBroken("timeout", _process(me)) if said.why == "left" else BarrierBroken(said.why, said.process)


def _process(me: Participant) -> str:
    return me.listener_id.partition(".")[0]


# Ending


async def passing(barrier_spec: BarrierSpec, me: Participant) -> int:
    """Report that the action has succeeded, so that all participants go on. Return this participant's number.

    Raises BarrierBroken if the action's lease was lost, or WireError.
    """
    await _end_duty(me)
    return _outcome(me, await _said(barrier_spec, await retry_idempotent(_run(barrier_spec, me.listener_id, "pass"))))


async def leave(barrier_spec: BarrierSpec, me: Participant, why: str = "") -> None:
    """Remove this participant from the barrier, whatever its state. If it has an unfinished Duty, the barrier is broken.

    ``why``: word that names the reason for which a waiting participant breaks the barrier; empty: a waiting participant leaves
    without breaking the barrier. Raises no WireError, because the keeper (background thread) repeats a request that has failed.
    """
    await _end_duty(me)
    if not me.may_be_on_server:
        return
    call = _run(barrier_spec, me.listener_id, "break", why) if why else _run(barrier_spec, me.listener_id, "leave")
    try:
        await call
    except WireError:
        await _leave_to_the_keeper(barrier_spec, call)
    except BaseException:
        await _leave_to_the_keeper(barrier_spec, call)
        me.may_be_on_server = False
        raise
    me.may_be_on_server = False  # not earlier, because an interrupted caller has to leave again


async def _leave_to_the_keeper(barrier_spec: BarrierSpec, call: RunScript[Said]) -> None:
    await SendUntilAnswered(call, await Now() + barrier_spec.spec.timeout + barrier_spec.spec.ttl)


async def _end_duty(me: Participant) -> None:
    duty, me.duty = me.duty, None
    if duty is not None:
        duty.held_lease.end()
        await StopKeepAlive(duty.held_lease)
