"""The common part of the leases of both APIs: the facts of one acquisition, its renewal by hand, its release, and its loss."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from holdfast._api.error_map import server_error
from holdfast._api.options import MAX_TTL, MIN_TTL, seconds
from holdfast._core.lock import release, renewal
from holdfast._core.lock.records import Attempt, Grant, HeldLease, Queue, Tally
from holdfast._core.requests import Run, WireError
from holdfast._net.endpoint import Endpoint
from holdfast.errors import HoldfastError, LeaseLost, NotHeld, QuorumError, ServerError


class Watch(Protocol):
    """The keeper, as a lease sees it."""

    def watch(self, endpoint: Endpoint, held_lease: HeldLease, *, hurry: bool = True) -> None:
        """Renew this lease until it is forgotten. Not ``hurry``: it may wait for a moment."""

    def forget(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        """Look after it no more."""

    def send_until_answered(self, endpoint: Endpoint, call: Run[int], until: float) -> None:
        """Send this until it is answered, or local time ``until``."""

    def refer(self, owner: Any, on_collected: Callable[[], None]) -> Callable[[], Any]:
        """A weak reference; when its object is gone before it, ``on_collected`` is called soon, in the keeper's thread."""


class Home(Protocol):
    """The process that a lease belongs to, as the lease sees it."""

    @property
    def here(self) -> bool:
        """False in a forked child, and in whatever else is not that process."""

    @property
    def keeper(self) -> Watch:
        """The keeper, started if need be."""

    @property
    def running_keeper(self) -> Watch | None:
        """The keeper, if there is one."""

    def clock(self) -> float:
        """Local time in seconds."""


class BaseLease:
    """Facts of one acquisition, for both faces."""

    _whole: Any = None
    """Told of its loss, too: it is part of several."""

    def __init__(self, process: Home, endpoint: Any, grant: Grant, on_lost: Callable[..., object] | None) -> None:
        keeper = process.keeper  # first of all: it may fail to start
        self._process = process
        self._endpoint = endpoint
        self._attempt = attempt = grant.attempt
        self._passed = False
        """Given back to others of this process."""
        self._told_loss = False
        """Its owner knows that it is lost."""
        self._handed_over = False
        """A ticket was made of it."""
        self._held_lease = held_lease = grant.held_lease or grant.whole or HeldLease(grant)
        self._parts = self._looked_after()
        self._taken: float | None = grant.taken
        """Local time of the acquisition; None once its end is counted."""
        self._owner = 0
        """Thread or task that took it."""
        self._on_lost = on_lost
        self.fence: int = grant.fence
        """Greater than that of every earlier holder. Pass it on to what the lock protects, which refuses lower ones."""
        attempt.unclaimed = self  # before anybody else knows of it
        if grant.held_lease is None:
            for where, part in self._parts:
                keeper.watch(where, part, hurry=not grant.in_claim_window)
            if attempt.local_queue is not None:
                attempt.local_queue.note_lease(attempt, held_lease)
        # If a lease is collected while the lease refers to it, nobody has given it back.
        on_collected = functools.partial(_dropped, keeper, held_lease, attempt.local_queue, attempt.tally, self._parts)
        held_lease.owner = keeper.refer(self, on_collected)
        if attempt.tally is not None:
            attempt.tally.acquisitions += 1
        if held_lease.lost:
            self.notice_loss()  # while it was passed on, when there was nobody to be told

    def _looked_after(self) -> tuple[tuple[Endpoint, HeldLease], ...]:
        """The lease as the keeper renews it, and its server."""
        return ((self._endpoint, self._held_lease),)

    @property
    def name(self) -> str:
        """Name of the lock."""
        return self._held_lease.spec.name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        return self._held_lease.spec.key

    def __repr__(self) -> str:
        held_lease = self._held_lease
        over = self._passed or held_lease.over
        ended = "handed over" if self._handed_over else "given back"
        state = f"lost: {held_lease.lost}" if self._expired() else ended if over else f"{self.remaining():.1f} s left"
        return f"<holdfast lease of {self.name!r}, fence {self.fence}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a lease cannot be pickled: it belongs to the process that took the lock {self.name!r}; to hand it over, pass on "
            "what its ticket() gives"
        )

    def remaining(self) -> float:
        """Seconds for which the lease may still be relied on; 0.0 when it is lost or given back. Asks no server."""
        return 0.0 if self._is_over() else self._held_lease.remaining(self._process.clock())

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost, NotHeld if it was given back. Asks no server."""
        if self._is_over():
            raise self._not_held()
        if self._expired():
            raise self._lease_lost()

    def progress(self) -> None:
        """Check in, where the lock has ``progress_within``: raises as `check`, and gives the holder that time anew. Asks no
        server."""
        self.check()
        self._held_lease.progressed(self._process.clock())

    def _begin(self) -> None:
        """All that it is part of are held: from now on its holder can check in."""
        if self._held_lease.spec.progress_within is not None:
            self._held_lease.progressed(self._process.clock())
            self._look_again()

    def notice_loss(self) -> None:
        raise NotImplementedError

    def _may_hand_over(self) -> None:
        """Raise where no ticket can be made of it."""

    def _is_over(self) -> bool:
        """Given back; or held by the process that forked this one."""
        return self._passed or self._held_lease.over or not self._process.here

    def _expired(self) -> bool:
        """True if lost; notices an end that the keeper has had no time to notice, as after a pause of the whole process."""
        held_lease = self._held_lease
        if not self._process.here:
            return True  # a forked child holds nothing
        if self._passed:
            return False
        due = not held_lease.over and not held_lease.lost and self._process.clock() >= held_lease.good_until
        if due and held_lease.lose(held_lease.why_over):
            self._forget()
            self.notice_loss()
        return bool(held_lease.lost)

    def _forget(self) -> None:
        """Nobody looks after this lease any more."""
        keeper = self._process.running_keeper
        if keeper is not None:
            for where, part in self._parts:
                keeper.forget(where, part)

    def _renewed(self, kept: bool, made: float, sent: float, ttl: float) -> bool:
        """Take note of the answer to a renewal by hand; False if the lease is lost, or was over before the answer was read."""
        held_lease = self._held_lease
        if self._expired():
            return False
        if kept:
            held_lease.ttl = ttl
            held_lease.renewed(made, sent, ttl)
            self._look_again()
        elif held_lease.lose("its key is gone or somebody else's"):
            self._forget()
            self.notice_loss()
        return kept

    def _look_again(self) -> None:
        """Have the keeper look when it is to be renewed next."""
        for where, part in self._parts:
            self._process.keeper.watch(where, part)

    async def _renew(self, ttl: float | None) -> None:
        """Operation behind `renew`."""
        self.check()
        held_lease = self._held_lease
        ttl = held_lease.ttl if ttl is None else seconds(ttl, "ttl", MIN_TTL, held_lease.spec.guard or MAX_TTL)
        now = self._process.clock()
        ttl = min(ttl, held_lease.ends_at - now)
        made = held_lease.note_request(now, ttl)
        try:
            kept, sent = await renewal.renew(held_lease.spec, held_lease.token, ttl, made)
        except WireError as error:
            raise server_error(held_lease.spec, error) from error
        if not self._renewed(kept, made, sent, ttl):
            raise self._lease_lost()

    def _hand_on(self) -> bool:
        """Pass the lease on to the next one of this process, or let it linger: True if that was all. Raises NotHeld."""
        held_lease = self._held_lease
        if self._passed or held_lease.over or not self._process.here:
            raise self._not_held()
        now = self._process.clock()
        if now >= held_lease.good_until:
            self._expired()
        self._count(now)
        local_queue = self._attempt.local_queue
        if local_queue is None:
            return False
        kept = local_queue.pass_on(self._attempt, held_lease, now)
        if kept is None:
            raise self._not_held()
        self._passed = kept
        return kept

    def _may_be_there(self) -> bool:
        """A server may have it still: also if it is lost to its holder only, or nobody has asked since its time was over."""
        held_lease = self._held_lease
        return not held_lease.lost or held_lease.stalled or self._process.clock() >= held_lease.deadline

    async def _release(self, known: bool | WireError | None = None) -> None:
        """Operation behind `release`, unless `_hand_on` was all. ``known``: what came of it, where several were given back at
        once."""
        held_lease, attempt = self._held_lease, self._attempt
        local_queue = attempt.local_queue
        held_lease.end()
        try:
            if self._may_be_there():
                if isinstance(known, WireError):
                    raise known
                if known is None:
                    known = await release.release(
                        held_lease.spec, held_lease.token, not held_lease.lost, held_lease.maybe_in_flight
                    )
                if not known:
                    held_lease.lost = held_lease.lost or "it was somebody else's, or nobody's, when it was given back"
        except WireError as error:
            if not held_lease.lost:
                raise server_error(held_lease.spec, error) from error
        finally:
            self._forget()  # not before the trip: others wait for it
            if local_queue is not None:
                local_queue.on_released(attempt)
        if held_lease.lost:
            self._count_loss()
            raise self._lease_lost()

    def _leave_to_keeper(self) -> None:
        """Give it back where nothing can be awaited: the keeper does that as soon as it can. Raises NotHeld, LeaseLost."""
        if self._hand_on():
            return
        held_lease, local_queue = self._held_lease, self._attempt.local_queue
        held_lease.end()
        self._forget()
        if local_queue is not None and not held_lease.lost:
            local_queue.give_back(self._attempt, held_lease)
            return
        for where, part in self._parts if self._may_be_there() else ():
            self._process.keeper.send_until_answered(
                where, part.giving_back(revoke=part.maybe_in_flight, timeout=part.spec.timeout), part.deadline
            )
        if held_lease.lost:
            if local_queue is not None:
                local_queue.on_released(self._attempt)
            self._count_loss()
            raise self._lease_lost()

    async def _let_go(self) -> None:
        """Operation: give it back; where the server is away, the keeper does that as soon as it can. Nobody needs to know."""
        if self._is_over():  # a release has begun, and nobody knows how far it has come
            await self._abandoned()
            return
        try:
            if not self._hand_on():
                await self._release()
        except (ServerError, QuorumError):
            for where, part in self._parts:
                self._process.keeper.send_until_answered(
                    where, part.giving_back(revoke=True, timeout=part.spec.timeout), part.deadline
                )
        except HoldfastError:
            pass  # lost meanwhile
        except BaseException:
            await self._abandoned()
            raise

    async def _abandoned(self) -> None:
        """Return the operation to run when the end of a ``with`` was interrupted, and nobody knows how far it had come."""
        held_lease, attempt = self._held_lease, self._attempt
        self._passed = True
        if not self._process.here:
            return
        self._count(self._process.clock())
        if attempt.local_queue is not None:
            attempt.local_queue.withdraw(attempt)
        if attempt.local_queue is None or held_lease.lost:  # a late renewal may have made it longer at the server
            held_lease.end()
        if held_lease.over:
            self._forget()
            await self._give_up()

    async def _give_up(self) -> None:
        """Leave nothing of it at the server, whatever is there."""
        await release.give_up(
            Attempt(self._held_lease.spec, self._held_lease.token, may_be_on_server=True, maybe_in_flight=True)
        )

    def _count(self, now: float) -> None:
        """It was held until now (local seconds)."""
        taken, tally = self._taken, self._attempt.tally
        if taken is not None and tally is not None:
            self._taken = None
            tally.held(now - taken)

    def _count_loss(self) -> None:
        """Before anybody is told of it."""
        tally = self._attempt.tally
        if tally is not None and not self._told_loss:
            tally.losses += 1

    def _make_way(self) -> None:
        """The lease is lost, and its owner was told: those who wait in this process need not wait for it to give anything back.
        Not before: the next holder here shall not begin while this one has not been told."""
        if self._attempt.local_queue is not None:
            self._attempt.local_queue.on_released(self._attempt)

    def _first_to_tell(self) -> bool:
        """The lease is lost. False: its owner was told before."""
        self._count_loss()
        self._count(self._process.clock())
        told, self._told_loss = self._told_loss, True
        if self._whole is not None and not told:
            self._whole.on_loss()
        return not told

    def _not_held(self) -> NotHeld:
        why = "was handed over by a ticket" if self._handed_over else "was given back already"
        why = why if self._process.here else "belongs to the process that forked this one"
        return NotHeld(f"lease of {self.name!r} (fence {self.fence}) {why}", name=self.name, key=self.key)

    def _lease_lost(self) -> LeaseLost:
        reason = self._held_lease.lost
        return LeaseLost(
            f"lease of {self.name!r} (fence {self.fence}) was lost: {reason}; somebody else may hold the lock now",
            name=self.name,
            key=self.key,
            fence=self.fence,
            reason=reason,
        )


def _dropped(
    keeper: Watch,
    held_lease: HeldLease,
    local_queue: Queue | None,
    tally: Tally | None,
    parts: tuple[tuple[Endpoint, HeldLease], ...],
) -> None:
    """A lease was collected that nobody has given back."""
    if held_lease.over:
        return
    held_lease.end()
    for where, part in parts:
        keeper.forget(where, part)
    if tally is not None and not held_lease.lost:
        tally.ended += 1
    if local_queue is not None:
        local_queue.on_collected(held_lease)
    if not held_lease.lost:
        warnings.warn(
            f"lease of {held_lease.spec.name!r} was dropped without release; it is renewed no more and ends by itself",
            ResourceWarning,
            stacklevel=1,
        )


def discard_unreturned(attempt: Attempt) -> None:
    """An acquisition was interrupted before its lease reached the caller: what it has got is `local_acquire.abandon`'s."""
    lease: BaseLease | None = attempt.unclaimed
    if lease is not None:
        lease._passed = True  # noqa: SLF001
        lease._count(lease._taken or 0.0)  # noqa: SLF001
        if attempt.local_queue is None or not attempt.local_queue.has_lease(attempt):
            lease._held_lease.end()  # noqa: SLF001
            lease._forget()  # noqa: SLF001


class Owned(Protocol):
    """A lease of whatever kind."""

    _owner: int
    """Thread or task that took it."""


L = TypeVar("L", bound=Owned)


class Entered(Generic[L]):
    """The leases whose ``with`` is not left yet, by the thread or task that entered it: a lock object may be shared."""

    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: list[L] | None = None  # most of ten thousand locks that are waited for were never entered

    def push(self, owner: int, lease: L) -> None:
        lease._owner = owner  # noqa: SLF001
        self._leases = [*(self._leases or []), lease]

    def innermost(self, owner: int) -> L:
        """The innermost lease of this owner. If ``with`` was entered elsewhere, as by a fixture that is torn down in another
        task, the last one entered."""
        mine = [lease for lease in self._leases or [] if lease._owner == owner] or self._leases  # noqa: SLF001
        if not mine:
            raise RuntimeError("the end of a with statement that was never entered")
        return mine[-1]

    def remove(self, lease: L) -> None:
        assert self._leases is not None
        self._leases.remove(lease)
