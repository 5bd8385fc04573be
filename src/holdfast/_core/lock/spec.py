"""The specification of a lock, which all its operations get: name, keys and options, and values computed from these."""

from __future__ import annotations

from holdfast._core.lock.replies import MUTEX, Scripts
from holdfast._core.names import prefix_of, quarantine_key
from holdfast._core.requests import Frame
from holdfast._core.struct import NamedTuple, cached_property

GRID = 16
"""Number of time slots per second for renewals of leases longer than 8 s. The renewals of one slot are sent together."""


def margin(ttl: float) -> float:
    """Return the drift margin in seconds. The holder does not use this last part of a lease, because clocks differ in speed.

    The margin is 1% of ``ttl`` plus 2 ms, as in Redlock.
    """
    return ttl * 0.01 + 0.002


def whole(believed: float) -> float:
    """Return the length, in seconds, of a lease that a holder can use for ``believed`` seconds. The rest is the `margin`."""
    return (believed + 0.002) / 0.99


class Permits(NamedTuple):
    """The permits that one attempt acquires of a semaphore or read-write lock."""

    scripts: Scripts
    kind: str
    """Format of the object on the server: "semaphore 1" or "rwlock 1"."""
    wanted: int
    limit: int | None
    """Total number of permits of the semaphore; None: the number that other clients have set on the server."""
    fixed: bool = False
    """True if the total number of permits can never change, as for a read-write lock."""


class _Spec(NamedTuple):
    """The fields of a `Spec`, which adds the values that are computed from these fields."""

    name: str
    keys: tuple[bytes, bytes, bytes]
    ttl: float
    renew: bool
    max_hold: float | None
    """The lease is renewed for this many seconds after a grant; None: without limit."""
    timeout: float
    """Maximum seconds to wait for one reply; at most a third of ``ttl``, so that there is time to send the request again."""
    linger: float = 0.0
    """Seconds for which the lease is kept for quick reuse after its release, unless another client wants the lock; 0: not
    kept."""
    max_passes: int = 32
    """Maximum number of times to hand the lock on inside this process after a grant, if other processes wait for the lock."""
    max_pass_time: float = 0.01
    """Maximum seconds after a grant to hand the lock on inside this process, if other processes wait for the lock."""
    replicas: int = 0
    """Number of replicas that must acknowledge the lock before it counts as acquired; 0: none."""
    quarantine: float = 0.0
    """Seconds for which a server that may have lost its data grants no lock (quarantine); 0: no quarantine."""
    progress_within: float | None = None
    """Maximum seconds between two calls of ``progress()``; None: no limit.

    If the holder exceeds the limit, it counts as hung and loses the lease.
    """
    yields: bool = False
    """True if a wait for this lock may be ended with the error Deadlock, to break a cycle of waiters."""
    permits: Permits | None = None
    """Permits to acquire, of a semaphore or read-write lock; None: a plain lock with one holder."""
    home: bytes = b""
    """Key prefix of the holder's inbox and process record, for a lock with ``key=``; otherwise empty."""
    label: str | None = None
    """Label (text for people) of the lock's user, shown to other processes; None: the label of the process is shown."""


class Spec(_Spec):
    """A lock with its options, as all operations on the lock use it. All times are in seconds."""

    @property
    def key(self) -> str:
        """Return the main key of the lock as text, for messages."""
        return self.keys[0].decode(errors="backslashreplace")

    @cached_property
    def granting(self) -> tuple[bytes, ...]:
        """Return the keys for scripts that may grant the lock to a client. With ``quarantine=``, a fourth key is among them."""
        return (*self.keys, quarantine_key(self.prefix)) if self.quarantine else self.keys

    @cached_property
    def prefix(self) -> bytes:
        """Return the key prefix of the inbox and process record of this lock's users, and of the quarantine's key."""
        return self.home or prefix_of(self.keys[0])

    def signed(self, drawn: str) -> str:
        """Return the random token ``drawn``, with `home` inserted if that is set.

        From the token, scripts read the prefix of the holder's inbox and process record.
        """
        return drawn.replace(".", f"@{self.home.hex()}.", 1) if self.home else drawn

    def token(self, drawn: str) -> str:
        """Return the token of a new attempt: the random text ``drawn``, with `home` inserted if set, and `token_suffix`."""
        return self.signed(drawn) + self.token_suffix

    @cached_property
    def quarantine_args(self) -> tuple[int, ...]:
        """Return the quarantine in milliseconds, as the last argument of a script; an empty tuple without a quarantine."""
        return (milliseconds(self.quarantine),) if self.quarantine else ()

    @cached_property
    def is_passable(self) -> bool:
        """Return True if a lease of this lock may be handed on inside the process.

        This needs ``renew``, and neither ``max_hold`` nor ``progress_within``.
        """
        return self.renew and self.max_hold is None and self.progress_within is None

    @cached_property
    def token_suffix(self) -> str:
        """Return the text at the end of each token.

        For permits, it is ``*`` and their number. For a lock that may linger (be kept after its release), it is ``~``. For
        other locks, it is empty.
        """
        return f"*{self.permits.wanted}" if self.permits else "~" if self.linger else ""

    @cached_property
    def terms(self) -> tuple[str | int, ...]:
        """Return the script arguments that describe permits (format and limit); an empty tuple for a plain lock."""
        if self.permits is None:
            return ()
        return (self.permits.kind, "" if self.permits.limit is None else self.permits.limit)

    @cached_property
    def first_ttl(self) -> float:
        return self.ttl if self.max_hold is None else min(self.ttl, self.max_hold)

    @cached_property
    def first_valid(self) -> float:
        """Return for how many seconds, counted from the sending of the request, a new lease can be relied on."""
        return self.first_ttl - margin(self.first_ttl)

    @cached_property
    def last_after(self) -> float:
        """Return how many seconds after a grant the server has surely ended the lease, if it was not renewed."""
        return self.timeout + self.ttl + margin(self.ttl)

    @cached_property
    def acquire_frame(self) -> Frame:
        """Return the request that acquires the lock if it is free, to be sent with a new token each time."""
        extra = (0, *self.quarantine_args) if self.quarantine else self.terms
        return Frame(scripts(self).acquire, self.granting, (self.first_ms, 0, *extra), max(0.05, self.timeout))

    @cached_property
    def release_frame(self) -> Frame:
        """Return the request that releases the lock, to be sent with the token of each lease."""
        return Frame(scripts(self).release, self.granting, ("release", *self.quarantine_args), self.timeout)

    @cached_property
    def renew_grid(self) -> int:
        """Return the number of time slots per second to which renewal times are rounded, see `GRID`."""
        return GRID << int(8 / self.ttl).bit_length()

    @cached_property
    def renew_part(self) -> float:
        """Return the fraction of a lease after which it is renewed, between 7/24 and 1/3, depending on the key.

        Leases of different locks that were acquired at the same time are thus renewed at different times.
        """
        return (1 - int.from_bytes(self.keys[0][-8:], "big") % 61 / 488) / 3

    @cached_property
    def first_ms(self) -> int:
        return milliseconds(self.first_ttl)


def answer_within(ttl: float) -> float:
    """Return the seconds to wait for a reply about a lease of ``ttl`` seconds, so few that time is left for retries."""
    return max(ttl / 10, min(ttl / 3, 0.2))


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def scripts(spec: Spec) -> Scripts:
    """Return the server scripts for a lock, which are those for plain locks or those for permits."""
    return MUTEX if spec.permits is None else spec.permits.scripts
