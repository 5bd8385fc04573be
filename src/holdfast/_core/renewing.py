"""Which leases of this process to renew when, on one server: a state object, told what happens, answering what to do.

A lease is good until its local deadline: the send time of the last confirmed request, plus the lease, less the drift
allowance. One failed renewal loses nothing; the deadline does, and so does the server saying that the lock is not ours.
What is lost stays lost: renewal never creates a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from holdfast._core.mutex import Grant, Spec, answer_within, margin

CLAIM_AFTER = 0.05
"""Seconds after a hand-over at which the claim window is turned into the full lease; a lock held for less saves the trip."""

SLOT = 8
"""Renewals are looked up in slots of 1/8 second."""


class Owner(Protocol):
    def notice_loss(self) -> None:
        """The lease is lost; called once, by whoever notices."""


def nobody() -> None:
    return None


class Tenure:
    """One held lock, from the grant to its end. ``lost`` is why it ended before it was given back; empty while it has not."""

    __slots__ = (
        "asked_at",
        "deadline",
        "doubt",
        "dropped",
        "ends_at",
        "fence",
        "lost",
        "over",
        "owner",
        "renew_at",
        "spec",
        "token",
        "ttl",
    )

    def __init__(self, grant: Grant) -> None:
        spec = grant.attempt.spec
        self.spec: Spec = spec
        self.token = grant.attempt.token
        self.doubt = grant.attempt.doubt
        self.fence = grant.fence
        self.ttl = spec.ttl
        self.deadline = grant.deadline
        self.asked_at = 0.0
        """When the last renewal was made, by hand or by the keeper: its number, too."""
        self.ends_at = float("inf") if spec.max_hold is None else grant.taken + spec.max_hold
        self.renew_at = float("inf")
        if spec.renew:
            self.renew_at = grant.taken + (CLAIM_AFTER if grant.claim else min(spec.ttl, grant.deadline - grant.taken) / 3)
        self.lost = ""
        self.over = False
        """Given back, or not to be watched any more."""
        self.dropped: Callable[[object], None] | None = None
        """Called with the weak reference if its owner has vanished."""
        self.owner: Callable[[], Owner | None] = nobody
        """Weak reference to whom to tell of the loss: a lease that nobody holds on to is not kept alive by its renewal."""

    def remaining(self, now: float) -> float:
        """Seconds for which the lease may still be believed."""
        return 0.0 if self.lost or self.over else max(0.0, self.deadline - now)

    @property
    def wants_at(self) -> float:
        """When it wants attention next (local seconds)."""
        return min(self.renew_at, self.deadline, self.ends_at)

    @property
    def why_over(self) -> str:
        """Why the lease is over when its deadline has passed."""
        bounded = self.ends_at - self.deadline <= margin(self.ttl) + 0.001
        return "max_hold has passed" if bounded else "its time ran out before a renewal was confirmed"

    def end(self) -> None:
        """It is being given back: nothing is to be watched or told any more."""
        self.over = True
        self.owner = nobody

    def lose(self, reason: str) -> bool:
        """Mark as lost. True for the first to notice."""
        if self.lost or self.over:
            return False
        self.lost = reason
        return True

    def asks(self, now: float, ttl: float) -> float:
        """A lease of ``ttl`` seconds is about to be asked for. If that is less than what is believed now, it is what can be
        believed from now on: the answer may get lost. Answers when it is made, later than all before: its number."""
        self.asked_at = max(now, self.asked_at + 2e-6)
        self.deadline = min(self.deadline, now + ttl - margin(ttl))
        return self.asked_at

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        """The server confirmed a lease of ``ttl`` seconds, asked for at ``made`` and sent at ``sent`` (local times)."""
        if made < self.asked_at:
            return  # another one is under way, or was answered: it may be shorter, and the server goes by that one
        self.deadline = sent + ttl - margin(ttl)
        if self.spec.renew:
            # The last lease that max_hold allows is not renewed again.
            self.renew_at = sent + ttl / 3 if ttl >= self.ttl else self.deadline


class Renew(NamedTuple):
    """To do: ask for ``ttl`` seconds; then `Renewing.on_answer` or `Renewing.on_failed`."""

    tenure: Tenure
    ttl: float
    made: float


class Renewing:
    """All leases of one process on one server."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, Tenure]] = {}
        self._where: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._where)

    def get(self, token: str) -> Tenure | None:
        """The lease that this token holds."""
        return self._slots.get(self._where.get(token, -1), {}).get(token)

    def tenures(self) -> list[Tenure]:
        return [tenure for slot in self._slots.values() for tenure in slot.values()]

    def watch(self, tenure: Tenure) -> float:
        """Look after a lease, or look at it anew; answers when it wants attention (local seconds)."""
        self.forget(tenure.token)
        number = int(tenure.wants_at * SLOT)
        self._where[tenure.token] = number
        self._slots.setdefault(number, {})[tenure.token] = tenure
        return tenure.wants_at

    def forget(self, token: str) -> None:
        number = self._where.pop(token, None)
        if number is not None:
            slot = self._slots.get(number, {})
            slot.pop(token, None)
            if not slot:
                self._slots.pop(number, None)

    def next_at(self) -> float:
        """When `due` has something to do (local seconds; infinity: never)."""
        first = self._slots[min(self._slots)] if self._slots else {}
        # An empty slot, which an interrupt has left in the middle of `watch`, is for `due` to remove.
        return min((tenure.wants_at for tenure in first.values()), default=0.0 if self._slots else float("inf"))

    def due(self, now: float) -> tuple[list[Renew], list[Tenure]]:
        """The renewals to send now, and the leases that are over: lost, each with its reason."""
        renewals: list[Renew] = []
        lost: list[Tenure] = []
        current = int(now * SLOT)
        for number in [number for number, slot in self._slots.items() if not slot]:
            del self._slots[number]
        for number in sorted(n for n in self._slots if n <= current):
            for tenure in list(self._slots[number].values()):
                if tenure.wants_at > now and not tenure.over:
                    continue
                self.forget(tenure.token)
                self._slots.get(number, {}).pop(tenure.token, None)  # if an interrupt in the middle of `forget` has left it
                if tenure.over or tenure.lost:
                    continue
                if now >= tenure.deadline or now >= tenure.ends_at:
                    if tenure.lose(tenure.why_over):
                        lost.append(tenure)
                    continue
                ttl = min(tenure.ttl, tenure.ends_at - now)
                renewals.append(Renew(tenure, ttl, tenure.asks(now, ttl)))
                tenure.renew_at = now + max(0.05, tenure.ttl / 20) + min(tenure.spec.timeout, answer_within(ttl))
                self.watch(tenure)
        return renewals, lost

    def on_answer(self, renewal: Renew, answer: int, sent: float, now: float) -> bool:
        """The server answered; False: the lease is lost."""
        tenure = renewal.tenure
        if tenure.over or tenure.lost:
            return True
        if answer == 2:
            return True  # overtaken by a renewal by hand, whose answer says how long the lease is
        if answer == 1 and now < tenure.deadline:
            tenure.renewed(renewal.made, sent, renewal.ttl)
            self.watch(tenure)
            return True
        self.forget(tenure.token)
        if answer == 1:
            # Read too late: it had ended. A late copy of our first request may have taken the lock again, after others.
            return not tenure.lose(tenure.why_over)
        return not tenure.lose(
            "somebody else's value is in its key" if answer == -1 else "its key is gone: expired, deleted or flushed"
        )

    def on_failed(self, renewal: Renew, now: float) -> None:
        """No answer: ask again soon, as long as the deadline allows."""
        tenure = renewal.tenure
        if tenure.token in self._where:
            tenure.renew_at = now + max(0.05, tenure.ttl / 20)
            self.watch(tenure)
