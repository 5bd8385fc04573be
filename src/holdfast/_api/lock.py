"""What the faces `locks` and `aio` share: options and their checks, the facts of a lease, errors in the user's words."""

from __future__ import annotations

import functools
import math
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, TypeVar

from holdfast._api.tally import Tally
from holdfast._core import control_records, names
from holdfast._core.lock import acquire, local_acquire
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.local_queue import Gate
from holdfast._core.lock.records import PAUSED, Attempt, Grant, Spec, answer_within
from holdfast._core.lock.replies import CLAIM, Busy
from holdfast._core.names import PROCESS, lock_keys
from holdfast._core.requests import Command, Disagreement, TooFew, WireError
from holdfast._core.retry import insist
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import one_place, resolve
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import Process, current, describe
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, LockTimeout, NotHeld, ServerError

if TYPE_CHECKING:
    from holdfast._api.lease import BaseLease
    from holdfast._api.statistics import LockStatistics
    from holdfast._net.cluster import Cluster, Shard
    from holdfast._net.endpoint import Endpoint

L = TypeVar("L", bound="BaseLease")

Trouble = WireError | KeyConflict | TooFew | Disagreement
"""What may come of taking a lock, as the core says it."""

LONGEST_LEASE = 60.0
"""Seconds of the longest lease where users name none: of guarded locks, and of those on several servers."""

MIN_TTL, MAX_TTL = 0.05, 366 * 86400.0
SHORT = 2.0
"""Seconds of a lease of which users are warned."""


def seconds(value: object, parameter: str, least: float, most: float = MAX_TTL) -> float:
    """A checked number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{parameter} must be a number of seconds, not {value!r}", parameter=parameter)
    if math.isnan(value) or not least <= value <= most:
        raise ConfigError(f"{parameter} must be between {least:g} and {most:g} seconds, not {value!r}", parameter=parameter)
    return float(value)


def whole_number(value: object, parameter: str) -> int:
    """A checked whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{parameter} must be a whole number from 0, not {value!r}", parameter=parameter)
    return value


def _longest(guard: object) -> float:
    """The longest lease that ``guard`` means; 0: none is guarded."""
    if guard is False:
        return 0.0
    # A hand-over is a lease, too: of as many seconds as the winner has to take it up.
    return LONGEST_LEASE if guard is True else seconds(guard, "guard", CLAIM)


def checked_wait(wait: object) -> float | None:
    """A checked ``wait``: None for ever, otherwise seconds."""
    return None if wait is None or wait == math.inf else seconds(wait, "wait", 0, threading.TIMEOUT_MAX)


def acquire_wait(own: float | None, blocking: bool, timeout: float) -> float | None:
    """The wait that threading.Lock's arguments mean, with its errors; without arguments, the object's ``own``."""
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return 0.0
    if timeout == -1:
        return own
    if timeout < 0:
        raise ValueError("timeout value must be a non-negative number")
    if timeout > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    return checked_wait(timeout)


def refuse_mistaken(mistaken: dict[str, Any], cls: str) -> None:
    """Explain ``timeout=``, which is the lease in redis-py and the wait in threading; refuse any other unknown option."""
    if "timeout" in mistaken:
        raise TypeError(
            f"{cls}() has no timeout=: say ttl= for how long the lock outlives a crashed holder (redis-py's timeout), "
            "or wait= for how long to wait for it (threading's timeout)"
        )
    for name in mistaken:
        raise TypeError(f"{cls}() got an unexpected keyword argument {name!r}")


def of_the_user() -> int:
    """For ``warnings.warn``: the level of the line that is not ours."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("holdfast."):
        level, frame = level + 1, frame.f_back
    return level


def warn_of_short(ttl: float) -> None:
    """The keeper may not be in time for it."""
    warnings.warn(
        f"ttl={ttl:g}: a lease of less than {SHORT:g} s may be lost when the machine is busy for a moment",
        HoldfastWarning,
        of_the_user(),
    )


def make_spec(
    name: str | bytes,
    timeout: float,
    *,
    ttl: float,
    renew: bool,
    max_hold: float | None,
    progress_within: float | None,
    prefix: str = "hf:",
    key: str | bytes | None = None,
    linger: float = 0.0,
    max_passes: int = 0,
    max_pass_time: float = 0.0,
    replicas: int = 0,
    guard: bool | float = False,
    deadlock: str = "wait",
) -> Spec:
    """Checked options of a lock. Raises ConfigError, which names the parameter."""
    keys = lock_keys(name, prefix, key)
    ttl = seconds(ttl, "ttl", MIN_TTL)
    if deadlock not in {"wait", "raise"}:
        raise ConfigError(f"deadlock must be 'wait' or 'raise', not {deadlock!r}", parameter="deadlock")
    longest = _longest(guard)
    if longest and ttl > longest:
        raise ConfigError(
            f"ttl={ttl:g} is more than guard={longest:g}, the longest lease of guarded locks on this server: for so long it "
            "grants none after it may have forgotten some; raise guard for all who use the server, or take a shorter lease",
            parameter="ttl",
        )
    if max_hold is not None:
        max_hold = seconds(max_hold, "max_hold", MIN_TTL)
    if progress_within is not None:
        progress_within = seconds(progress_within, "progress_within", MIN_TTL)
        if not renew:
            raise ConfigError(
                "progress_within needs a lease that is renewed: with renew=False each renewal of yours is a check-in",
                parameter="progress_within",
            )
    linger = seconds(linger, "linger", 0.0)
    if linger and not (renew and max_hold is None and progress_within is None):
        raise ConfigError("linger needs a lease that is renewed, no max_hold and no progress_within", parameter="linger")
    if renew and ttl < SHORT and (max_hold is None or max_hold > ttl):
        warn_of_short(ttl)
    return _spec(
        name=name if isinstance(name, str) else name.decode(errors="backslashreplace"),
        keys=keys,
        ttl=ttl,
        renew=renew,
        max_hold=max_hold,
        timeout=min(timeout, answer_within(ttl)),
        linger=linger,
        max_passes=whole_number(max_passes, "max_passes"),
        max_pass_time=seconds(max_pass_time, "max_pass_time", 0.0),
        replicas=whole_number(replicas, "replicas"),
        guard=longest,
        yields=deadlock == "raise",
        progress_within=progress_within,
        home=b"" if key is None else names.start(prefix),
    )


_spec = functools.lru_cache(1024)(Spec)
"""Many locks of the same name and options, as a decorator makes them, have one description."""


class BaseLock(Generic[L]):
    """Options and state of a lock object, for both faces."""

    _face: Literal["sync", "asyncio"]
    _home: Any
    """The driver that was used last."""
    _cluster: Cluster | None = None
    _current: Any
    """The lease of the latest acquisition by this object."""
    _what = "lock"
    """What messages call it."""
    _shared = True
    """What one gets of this process is passed on to others of it."""

    @hides_client("Lock.__init__")
    def __init__(
        self,
        client: object,
        name: str | bytes,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: float | None = None,
        progress_within: float | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        linger: float = 0.0,
        max_passes: int = 32,
        max_pass_time: float = 0.01,
        replicas: int = 0,
        guard: bool | float = False,
        deadlock: Literal["wait", "raise"] = "wait",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._endpoint: Any = resolve(one_place(client, type(self).__name__), self._face)
        self._cluster = self._endpoint.cluster
        if replicas and (self._endpoint.client is not None or self._cluster is not None):
            raise ConfigError(
                "replicas needs connections that holdfast can open itself, to one server: use a plain client, or a URL",
                parameter="replicas",
            )
        if guard is not False and self._cluster is not None:
            raise ConfigError("guard is for locks on one server, or behind Sentinels, not in a Cluster", parameter="guard")
        spec = make_spec(
            name,
            self._endpoint.timeout,
            ttl=ttl,
            renew=renew,
            max_hold=max_hold,
            prefix=prefix,
            key=key,
            linger=linger,
            max_passes=max_passes,
            max_pass_time=max_pass_time,
            replicas=replicas,
            guard=guard,
            deadlock=deadlock,
            progress_within=progress_within,
        )
        self._set_up(spec, wait, on_lost, label)

    def _set_up(self, spec: Spec, wait: object, on_lost: Callable[..., object] | None, label: str | None) -> None:
        self._spec = spec
        self._wait = checked_wait(wait)
        self._keeper: Keeper | None = None
        self._gate: Gate | None = None
        self._tally = Tally()
        if on_lost is not None and not callable(on_lost):
            raise ConfigError("on_lost must be callable", parameter="on_lost")
        self._on_lost = on_lost
        if label is not None:
            if not isinstance(label, str) or len(label) > 200 or not label.isprintable():
                raise ConfigError("label must be printable text of at most 200 characters", parameter="label")
            self._spec = spec._replace(label=label)
        self._start()

    def _start(self) -> None:
        """Nothing is held yet."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Name of the lock, as given."""
        return self._spec.name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        return self._spec.key

    def progress(self) -> None:
        """Check in, where the lock has ``progress_within``, as `Lease.progress` of the lease of the latest acquisition by this
        object. Raises NotHeld, or LeaseLost. Asks no server."""
        if self._current is None:
            raise self._not_held()
        self._current.progress()

    def statistics(self) -> LockStatistics:
        """How often this object was taken, had to wait, was lost; how long it waited, and was held. Asks no server."""
        return self._tally.now()

    def __repr__(self) -> str:
        what = f"holdfast.{'aio.' if self._face == 'asyncio' else ''}{type(self).__name__}"
        if not hasattr(self, "_spec"):  # its options were refused; a debugger or an error reporter asks all the same
            return f"<{what}, not made>"
        return f"<{what} {self.name!r} on {self._where}>"

    @property
    def _where(self) -> str:
        """Of which server or servers, for messages."""
        return str(self._endpoint.address)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a lock cannot be pickled: another process makes its own, with the same name ({self.name!r}); to hand over one "
            "that is held, pass on what its ticket() gives"
        )

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        paused = busy.process == PAUSED
        who = describe(holder, busy.named, self._spec.keys[0])
        # Where there are permits, no process is named when they are all kept for others in the queue.
        foreign = not busy.process and self._spec.permits is None
        left = "its key has no expiry" if busy.remaining is None else f"{busy.remaining:.1f} s of its lease left"
        why = f"busy: held by {who or 'a client of another library'}, {left}"
        if not who and not foreign:
            why = "busy, and no server has said who holds it"
        if paused:
            why = (
                "not granted: its server is new, or may have forgotten who holds it (restarted, flushed, or a replica before), "
                f"and grants none for another {busy.remaining:.1f} s (guard={self._spec.guard:g})"
            )
        return LockTimeout(
            f"{self._what} {self.name!r} is {why}; waited {waited:.1f} s, try again later",
            name=self.name,
            key=self.key,
            waited=waited,
            holder=who,
            foreign=foreign,
            remaining=busy.remaining if who or foreign or paused else None,
        )

    def _not_held(self) -> NotHeld:
        return NotHeld(f"lock {self.name!r} is not held by this object", name=self.name, key=self.key)

    @staticmethod
    def _at_once(attempt: Attempt) -> Grant | Busy | None:
        """A lease that lingers in this process, for a retake that costs as little as possible."""
        return attempt.gate.retake(attempt) if attempt.gate is not None else None

    def _settle(self, cluster: Cluster) -> None:
        """Who of a Cluster, of which something is known, looks after this lock now."""
        shard = self._shard(cluster)
        if shard is not self._endpoint:
            self._endpoint, self._keeper, self._home = shard, None, None  # the gate is another one, too

    def _shard(self, cluster: Cluster) -> Shard:
        from holdfast._net.slots import slot_of  # here: most have none

        return cluster.shard(slot_of(self._spec.keys[0]))

    def _new_attempt(self, process: Process) -> Attempt:
        return self._with_gate(Attempt(self._spec, tally=self._tally), process)

    def _moved(self, attempt: Attempt, process: Process, wait: float | None) -> float | None:
        """An attempt that went astray begins again: how long it may wait."""
        left = None if wait is None or attempt.until is None else max(0.0, attempt.until - process.clock())
        attempt.token, attempt.until, attempt.given = "", None, None
        self._with_gate(attempt, process)
        return left

    def _with_gate(self, attempt: Attempt, process: Process) -> Attempt:
        if self._shared:
            keeper = process.keeper
            if keeper is not self._keeper:
                self._keeper, self._gate = keeper, keeper.gate(self._endpoint, self._spec)
            attempt.gate = self._gate
        return attempt

    def _try(self, attempt: Attempt, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        """Operation behind `acquire` and ``with``; for what it raises see `_user_error`."""
        return local_acquire.acquire(attempt, wait) if self._shared else acquire.acquire(attempt, wait)

    @staticmethod
    def _abandon(attempt: Attempt) -> Coroutine[Any, Any, None]:
        """Operation that leaves nothing of an attempt behind."""
        return local_acquire.abandon(attempt)

    def _user_error(self, error: Trouble) -> HoldfastError:
        if isinstance(error, WireError):
            return server_error(self._spec, error)
        return ConfigError(f"lock {self.name!r} cannot be used: {error}; nothing was changed", parameter="name")

    async def _is_locked(self) -> bool:
        """Operation behind `locked`."""
        try:
            answer = await insist(Command(("EXISTS", self._spec.keys[0]), self._spec.timeout))
        except WireError as error:
            raise server_error(self._spec, error) from error
        if not answer.value:
            self._found_free(self._endpoint, answer.sent)
        return bool(answer.value)

    def _found_free(self, endpoint: Endpoint, sent: float) -> None:
        """The key was gone on a server at local time ``sent`` or later. The owner of a lease of it in this process is told
        before the caller is told that the lock is free."""
        keeper = current().running_keeper
        if keeper is not None:
            keeper.gone(endpoint, self._spec.keys[0], sent)

    async def _holder(self, busy: Busy) -> bytes | None:
        """The record of the holder's process, for a message; None where it cannot be had."""
        return await record_of(busy.named, self._spec.keys[0])


async def record_of(public: str, key: bytes) -> bytes | None:
    """Operation: the record of a process, by the public part of its token for this key; None where it cannot be had."""
    ours = current().id
    process = public[:PROCESS]
    if process == ours:
        keeper = current().running_keeper
        label = keeper.label_of(key) if keeper is not None else None
        return control_records.write(current().facts(), [], {} if label is None else {key: label}).encode()
    try:
        record = names.record_key(names.home(public, key), process)
        return (await control_records.fetch(record, 0.25)).value if process else None
    except WireError:
        return None


def server_error(spec: Spec, error: WireError) -> ServerError:
    """The user's error for an internal one."""
    from holdfast._api.caller import told  # here: most never need it

    return told(error, f"lock {spec.name!r}", spec.key, name=spec.name)
