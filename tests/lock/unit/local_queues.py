"""A local queue and those who want its lock, without a server: who holds it passes it on, and all of them are served in the
end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast._core.lock.acquire import register_lease
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.records import AskServer, Attempt, Extend, Grant, HeldLease, Turn, Waiter
from holdfast._core.lock.replies import BLOCK, Busy, Held
from holdfast._core.requests import Answer
from support import driver
from support.driver import slot_of, spec
from support.node import Node

OF_THE_SERVER = 1000
"""The first fence that the server gives; and from one block to the next."""


@dataclass
class Slot(driver.Slot):
    """One that may belong to a closed event loop; ``late``: which is closed just before it is woken."""

    closed: bool = False
    late: bool = False

    def gone(self) -> bool:
        return self.closed

    def put(self, outcome: object, /) -> bool:
        super().put(None)
        self.closed = self.closed or self.late
        return not self.closed


@dataclass
class House:
    """One process."""

    node: Node = field(default_factory=Node)
    asked_of_the_server: int = 0

    def __post_init__(self) -> None:
        self.local_queue = LocalQueue(self.node, b"hf:")

    def attempt(
        self, *, until: float | None = None, closed: bool = False, late: bool = False, ttl: float = 30.0, **options: Any
    ) -> Attempt:
        wanted = spec(ttl=ttl)._replace(**options)
        return Attempt(wanted, until=until, slot=Slot(closed=closed, late=late), local_queue=self.local_queue, node=self.node)

    def in_line(self, **options: Any) -> Attempt:
        """Somebody comes, and has to wait."""
        this = self.attempt(**options)
        assert self.local_queue.enter(this, self.node.now) is None
        assert woken(this) == 0
        return this

    def leader(self, **options: Any) -> Attempt:
        """Somebody comes who asks the server."""
        this = self.attempt(**options)
        turn = self.local_queue.enter(this, self.node.now)
        assert isinstance(turn, AskServer)
        assert turn.place is None
        assert (turn.crowded is not None) is self.local_queue.crowded
        return this

    def taken(self, this: Attempt, *, queued: bool = False) -> HeldLease:
        """The server grants the lock to the leading attempt."""
        self.asked_of_the_server += 1
        first = OF_THE_SERVER * self.asked_of_the_server
        this.token = this.token or f"aaaaaaaaaaaa.{self.asked_of_the_server}" + "~" * (this.spec.linger > 0)
        now = self.node.now
        grant = Grant(this, first, now, now + this.spec.ttl, queued=queued, last=first + BLOCK - 1)
        register_lease(this, grant)
        assert this.held_lease is not None
        return this.held_lease

    def holder(self, **options: Any) -> tuple[Attempt, HeldLease]:
        this = self.leader(**options)
        return this, self.taken(this)

    def place_of(self, this: Attempt) -> Waiter:
        """The leading attempt is in the queue on the server."""
        this.token, this.may_be_on_server = "aaaaaaaaaaaa.9", True
        place = Waiter(this, Busy(5.0, 7, "b", lingers=False))
        self.node.waiting.register_waiter(place, self.node.now)
        self.node.waiting.joined(place, Answer(place.busy, self.node.now, self.node.now), self.node.now)
        return place

    def served(self, *those: Attempt) -> list[tuple[Attempt, int]]:
        """All of these take their turn as soon as they are woken, and are done at once. In which order, and their fences."""
        seen: list[tuple[Attempt, int]] = []
        waiting = list(those)
        while True:
            if self.node.given_back or self.node.revoked:
                self.node.given_back.clear()
                self.node.revoked.clear()
                self.local_queue.on_released()
            ready = [this for this in waiting if woken(this)]
            if not ready:
                return seen
            for this in ready:
                waiting.remove(this)
                seen.append((this, self.has_its_turn(this, self.local_queue.received(this, self.node.now))))

    def extended(self, this: Attempt, lease: HeldLease, first: int, last: int, *, sent: float | None = None) -> Turn | Busy:
        """The server extends the lease, and names these fences."""
        at = self.node.now if sent is None else sent
        return self.local_queue.extended(this, lease, Answer(Held(first, last), at, self.node.now))

    def has_its_turn(self, this: Attempt, given: Turn | Busy) -> int:
        """Somebody takes what it was given, and is done at once. Its fence."""
        if isinstance(given, Extend):
            self.asked_of_the_server += 1
            first = OF_THE_SERVER * self.asked_of_the_server
            given = self.extended(this, given.held_lease, first, first + 500)
        if isinstance(given, Grant):
            assert given.held_lease is not None
            assert not given.held_lease.over
            fence, held_lease = given.fence, given.held_lease
        else:
            assert isinstance(given, AskServer), given
            if given.place is not None:
                assert self.node.waiting.is_waiting(given.place)
                assert given.place.attempt is this
                self.node.waiting.unregister_waiter(given.place)
            held_lease = self.taken(this)
            fence = held_lease.holder_fence
        self.is_done(this, held_lease)
        return fence

    def is_done(self, this: Attempt, held_lease: HeldLease) -> bool:
        """As `Lease.release` does it. True: the lease stays in this process."""
        kept = self.pass_on(this, held_lease)
        assert kept is not None
        if not kept:
            self.ended(held_lease)
            self.local_queue.on_released(this)
        return kept

    def pass_on(self, this: Attempt, held_lease: HeldLease) -> bool | None:
        return self.local_queue.pass_on(this, held_lease, self.node.now)

    def ended(self, held_lease: HeldLease) -> None:
        """It is being given back, or was lost: nobody looks after it any more."""
        held_lease.end()
        self.node.forget(held_lease)

    def lose(self, held_lease: HeldLease) -> None:
        """The keeper learns that it is lost."""
        self.node.forget(held_lease)
        held_lease.lose("its key is gone")

    @property
    def idle(self) -> bool:
        """Nobody holds it, nobody wants it, and there is no trace of those who have."""
        local_queue = self.local_queue
        return not (
            local_queue.turn_of
            or local_queue.queue
            or local_queue.held_lease
            or len(self.node.renewing)
            or len(self.node.waiting)
        )


def woken(this: Attempt) -> int:
    """How often it was woken."""
    return len(slot_of(this).outcomes)
