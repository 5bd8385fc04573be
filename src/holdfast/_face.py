"""What the faces `locks` and `aio` share: options and their checks, the facts of a lease, errors in the user's words."""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, NoReturn, TypeVar

from holdfast._core import mutex
from holdfast._core.acquire import KeyConflict, acquire
from holdfast._core.mutex import Attempt, Busy, Grant, Spec, answer_within, give_up, insist
from holdfast._core.names import lock_keys
from holdfast._core.renewing import Tenure
from holdfast._core.requests import Command, Refused, WireError
from holdfast._drive.clock import clock
from holdfast._drive.process import Process, current, describe
from holdfast._wire.endpoint import Endpoint, resolve
from holdfast.errors import ConfigError, HoldfastWarning, LeaseLost, LockTimeout, NotHeld, ServerError

MIN_TTL = 0.05
MAX_TTL = 366 * 86400.0


def seconds(value: object, parameter: str, least: float, most: float = MAX_TTL) -> float:
    """A checked number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{parameter} must be a number of seconds, not {value!r}", parameter=parameter)
    if math.isnan(value) or not least <= value <= most:
        raise ConfigError(f"{parameter} must be between {least:g} and {most:g} seconds, not {value!r}", parameter=parameter)
    return float(value)


def checked_wait(wait: object) -> float | None:
    """A checked ``wait``: None for ever, otherwise seconds."""
    return None if wait is None or wait == math.inf else seconds(wait, "wait", 0, threading.TIMEOUT_MAX)


def refuse_mistaken(mistaken: dict[str, Any], cls: str) -> None:
    """Explain ``timeout=``, which is the lease in redis-py and the wait in threading; refuse any other unknown option."""
    if "timeout" in mistaken:
        raise TypeError(
            f"{cls}() has no timeout=: say ttl= for how long the lock outlives a crashed holder (redis-py's timeout), "
            "or wait= for how long to wait for it (threading's timeout)"
        )
    for name in mistaken:
        raise TypeError(f"{cls}() got an unexpected keyword argument {name!r}")


def make_spec(
    name: str | bytes,
    endpoint: Endpoint,
    *,
    ttl: float,
    renew: bool,
    max_hold: float | None,
    prefix: str,
    key: str | bytes | None,
) -> Spec:
    """Checked options of a lock. Raises ConfigError, which names the parameter."""
    keys = lock_keys(name, prefix, key)
    ttl = seconds(ttl, "ttl", MIN_TTL)
    if max_hold is not None:
        max_hold = seconds(max_hold, "max_hold", MIN_TTL)
    if renew and ttl < 2 and (max_hold is None or max_hold > ttl):
        warnings.warn(
            f"ttl={ttl:g}: a lease of less than 2 s may be lost when the machine is busy for a moment",
            HoldfastWarning,
            4,
        )
    return Spec(
        name=name if isinstance(name, str) else name.decode(errors="backslashreplace"),
        keys=keys,
        ttl=ttl,
        renew=renew,
        max_hold=max_hold,
        timeout=min(endpoint.timeout, answer_within(ttl)),
    )


class BaseLock:
    """Options and state of a lock object, for both faces."""

    _face: Literal["sync", "asyncio"]

    def __init__(
        self,
        client: object,
        name: str | bytes,
        *,
        ttl: float,
        wait: float | None,
        renew: bool,
        on_lost: Callable[..., object] | None,
        max_hold: float | None,
        label: str | None,
        prefix: str,
        key: str | bytes | None,
    ) -> None:
        self._endpoint = resolve(client, self._face)
        self._spec = make_spec(name, self._endpoint, ttl=ttl, renew=renew, max_hold=max_hold, prefix=prefix, key=key)
        self._wait = checked_wait(wait)
        if on_lost is not None and not callable(on_lost):
            raise ConfigError("on_lost must be callable", parameter="on_lost")
        self._on_lost = on_lost
        if label is not None:
            if not isinstance(label, str) or len(label) > 200 or not label.isprintable():
                raise ConfigError("label must be printable text of at most 200 characters", parameter="label")
            current().set_label(label)

    @property
    def name(self) -> str:
        """Name of the lock, as given."""
        return self._spec.name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        return self._spec.key

    def __repr__(self) -> str:
        return f"<holdfast.{'aio.' if self._face == 'asyncio' else ''}Lock {self.name!r} on {self._endpoint.address}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a lock cannot be pickled: another process makes its own, with the same name ({self.name!r}); to hand over one "
            "that is held, let the receiver wait for it"
        )

    def _acquire_wait(self, blocking: bool, timeout: float) -> float | None:
        """The wait that threading.Lock's arguments mean, with its errors; -1 is this object's own ``wait``."""
        if not blocking:
            if timeout != -1:
                raise ValueError("can't specify a timeout for a non-blocking call")
            return 0.0
        if timeout == -1:
            return self._wait
        if timeout < 0:
            raise ValueError("timeout value must be a non-negative number")
        if timeout > threading.TIMEOUT_MAX:
            raise OverflowError("timeout value is too large")
        return checked_wait(timeout)

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        who = describe(holder, busy.process)
        left = "its key has no expiry" if busy.remaining is None else f"{busy.remaining:.1f} s of its lease left"
        return LockTimeout(
            f"lock {self.name!r} is busy: held by {who or 'a peer that is not holdfast'}, {left}; "
            f"waited {waited:.1f} s, try again later",
            name=self.name,
            key=self.key,
            waited=waited,
            holder=who,
            remaining=busy.remaining,
        )

    def _not_held(self) -> NotHeld:
        return NotHeld(f"lock {self.name!r} is not held by this object", name=self.name, key=self.key)

    async def _try(self, attempt: Attempt, wait: float | None) -> Grant | Busy:
        """Operation behind `acquire` and ``with``."""
        try:
            return await acquire(attempt, wait)
        except WireError as error:
            raise server_error(self._spec, error) from error
        except KeyConflict as error:
            raise ConfigError(f"lock {self.name!r} cannot be used: {error}; nothing was changed", parameter="name") from error

    async def _is_locked(self) -> bool:
        """Operation behind `locked`."""
        try:
            return bool((await insist(Command(("EXISTS", self._spec.keys[0]), self._spec.timeout))).value)
        except WireError as error:
            raise server_error(self._spec, error) from error

    async def _holder(self, busy: Busy) -> bytes | None:
        """The record of the holder's process, for a message; None where it cannot be had."""
        try:
            return (await Command(("GET", f"hf:proc:{busy.process}"), 0.25)).value if busy.process else None
        except WireError:
            return None


def server_error(spec: Spec, error: WireError) -> ServerError:
    """The user's error for an internal one."""
    what = "refused" if isinstance(error, Refused) else "failed"
    return ServerError(f"lock {spec.name!r}: {what}: {error}", address=error.address, name=spec.name, key=spec.key)


class BaseLease:
    """Facts of one acquisition, for both faces."""

    def __init__(self, process: Process, endpoint: Endpoint, grant: Grant, on_lost: Callable[..., object] | None) -> None:
        keeper = process.keeper  # first of all: it may fail to start
        self._process = process
        self._endpoint = endpoint
        self._tenure = tenure = Tenure(grant)
        self._owner = 0
        """Thread or task that took it."""
        self._on_lost = on_lost
        self.fence: int = grant.fence
        """Greater than that of every earlier holder. Pass it on to what the lock protects, which refuses lower ones."""
        keeper.watch(endpoint, tenure)
        # Called if the lease is collected while the tenure still refers to it: nobody has given it back then.
        tenure.owner = weakref.ref(self, lambda _: _dropped(tenure, process, endpoint))

    @property
    def name(self) -> str:
        """Name of the lock."""
        return self._tenure.spec.name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        return self._tenure.spec.key

    def __repr__(self) -> str:
        tenure = self._tenure
        state = f"lost: {tenure.lost}" if tenure.lost else "given back" if tenure.over else f"{self.remaining():.1f} s left"
        return f"<holdfast lease of {self.name!r}, fence {self.fence}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lease cannot be pickled: it belongs to the process that took the lock {self.name!r}")

    def remaining(self) -> float:
        """Seconds for which the lease may still be relied on; 0.0 when it is lost or given back. Asks no server."""
        return 0.0 if self._process is not current() else self._tenure.remaining(clock())

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost, NotHeld if it was given back. Asks no server."""
        if self._is_over():
            raise self._not_held()
        if self._expired():
            raise self._lease_lost()

    def notice_loss(self) -> None:
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Given back; or held by the process that forked this one."""
        return self._tenure.over or self._process is not current()

    def _expired(self) -> bool:
        """True if lost; notices an end that the keeper has had no time to notice, as after a pause of the whole process."""
        tenure = self._tenure
        if self._process is not current():
            return True  # a forked child holds nothing
        due = not tenure.over and not tenure.lost and clock() >= tenure.deadline
        if due and tenure.lose(tenure.why_over):
            self._forget()
            self.notice_loss()
        return bool(tenure.lost)

    def _forget(self) -> None:
        """Nobody looks after this lease any more."""
        keeper = self._process.running_keeper
        if keeper is not None:
            keeper.forget(self._endpoint, self._tenure)

    def _renewed(self, kept: bool, sent: float, ttl: float) -> bool:
        """Take note of a renewal by hand; False if the lease is lost."""
        tenure = self._tenure
        if kept:
            tenure.ttl = ttl
            tenure.renewed(sent, ttl)
            self._process.keeper.watch(self._endpoint, tenure)
        elif tenure.lose("its key is gone or somebody else's"):
            self._forget()
            self.notice_loss()
        return kept

    async def _renew(self, ttl: float | None) -> None:
        """Operation behind `renew`."""
        self.check()
        tenure = self._tenure
        ttl = tenure.ttl if ttl is None else seconds(ttl, "ttl", MIN_TTL)
        now = clock()
        ttl = min(ttl, tenure.ends_at - now)
        tenure.shorten(now, ttl)
        try:
            kept, sent = await mutex.renew(tenure.spec, tenure.token, ttl)
        except WireError as error:
            raise server_error(tenure.spec, error) from error
        if not self._renewed(kept, sent, ttl):
            raise self._lease_lost()

    async def _release(self) -> None:
        """Operation behind `release`."""
        tenure = self._tenure
        try:
            if self._begin_release() and not await mutex.release(tenure.spec, tenure.token, not tenure.lost, tenure.doubt):
                tenure.lost = tenure.lost or "it was somebody else's, or nobody's, when it was given back"
        except WireError as error:
            if not tenure.lost:
                raise server_error(tenure.spec, error) from error
        if tenure.lost:
            raise self._lease_lost()

    def _begin_release(self) -> bool:
        """Stop the renewals. Raises NotHeld; False if the lease is lost already and the server knows."""
        tenure = self._tenure
        if self._is_over():
            raise self._not_held()
        self._expired()
        tenure.end()
        self._forget()
        return not tenure.lost or clock() >= tenure.deadline

    def _not_held(self) -> NotHeld:
        why = "belongs to the process that forked this one" if self._process is not current() else "was given back already"
        return NotHeld(f"lease of {self.name!r} (fence {self.fence}) {why}", name=self.name, key=self.key)

    def _lease_lost(self) -> LeaseLost:
        reason = self._tenure.lost
        return LeaseLost(
            f"lease of {self.name!r} (fence {self.fence}) was lost: {reason}; somebody else may hold the lock now",
            name=self.name,
            key=self.key,
            fence=self.fence,
            reason=reason,
        )


def _dropped(tenure: Tenure, process: Process, endpoint: Endpoint) -> None:
    """A lease was collected that nobody has given back."""
    if tenure.over or tenure.lost or process is not current():
        return
    tenure.over = True
    # Without the keeper's mutex: garbage may be collected anywhere, also while this very thread holds it.
    process.keeper.call(lambda: process.keeper.forget(endpoint, tenure))
    warnings.warn(
        f"lease of {tenure.spec.name!r} was dropped without release; it is renewed no more and ends by itself",
        ResourceWarning,
        stacklevel=3,
    )


def disown(attempt: Attempt, lease: BaseLease | None) -> None:
    """An acquisition was interrupted before its lease reached the caller: stop looking after it."""
    if lease is not None and lease._tenure.token == attempt.token:  # noqa: SLF001
        lease._tenure.end()  # noqa: SLF001
        lease._forget()  # noqa: SLF001


L = TypeVar("L", bound=BaseLease)


class Entered(Generic[L]):
    """The leases whose ``with`` is not left yet, by the thread or task that entered it: a lock object may be shared."""

    def __init__(self) -> None:
        self._leases: list[L] = []

    def push(self, owner: int, lease: L) -> None:
        lease._owner = owner  # noqa: SLF001
        self._leases.append(lease)

    def innermost(self, owner: int) -> L:
        """The innermost lease of this owner. Where ``with`` was entered elsewhere, as by a fixture that is torn down in
        another task, the last one entered."""
        mine = [lease for lease in self._leases if lease._owner == owner] or self._leases  # noqa: SLF001
        if not mine:
            raise RuntimeError("the end of a with statement that was never entered")
        return mine[-1]

    def remove(self, lease: L) -> None:
        self._leases.remove(lease)


def abandoned(lease: BaseLease) -> Coroutine[Any, Any, None]:
    """What to drive when the end of a ``with`` was interrupted, and nobody knows how far it had come."""
    tenure = lease._tenure  # noqa: SLF001
    tenure.end()
    lease._forget()  # noqa: SLF001
    return give_up(Attempt(tenure.spec, tenure.token, pending=lease._process is current(), doubt=True))  # noqa: SLF001
