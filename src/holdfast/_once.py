"""What both faces of `once` share: its options, what stored results mean, and what a running call may know of itself."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from holdfast import _face, codecs
from holdfast._caller import told
from holdfast._core import flight
from holdfast._core.attempt import Grant
from holdfast._core.flight import Load, Loading, Record, Site, Wish
from holdfast._core.requests import WireError
from holdfast._drive.process import describe
from holdfast._lease import BaseLease
from holdfast._template import Filled, fields_of
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, InProgress, LeaseLost, NotHeld, ServerError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MIN_KEEP = 0.001

VALUE, ERROR = "value", "error"
"""The kinds of what is stored."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """What a call came to."""

    value: T_co
    """None if it was skipped."""
    how: Literal["ran", "replayed", "skipped"]
    """It ran now; or it ran before, and this is what was stored; or it runs elsewhere, with ``busy="skip"``."""
    fence: int
    """Of the run that made the value; 0 if it was skipped."""


class Job(NamedTuple):
    """What one call is about."""

    name: str
    """The key as the user knows it: filled in."""
    site: Site

    @property
    def key(self) -> bytes:
        """On the server."""
        return self.site.value

    @property
    def what(self) -> str:
        """For messages."""
        return f"once {self.name!r}"


class OnceLease(BaseLease):
    """The lease of a call that runs."""

    def _lease_lost(self) -> LeaseLost:
        reason = self._tenure.lost
        return LeaseLost(
            f"once {self.name!r} (fence {self.fence}) has lost its lease while it ran: {reason}; nothing was stored, and it "
            "may run again elsewhere",
            name=self.name,
            key=self.key,
            fence=self.fence,
            reason=reason,
        )


class Running:
    """A call that runs, as it sees itself: ``once.current()``. Asks no server."""

    def __init__(self, me: object, job: Job, lease: BaseLease) -> None:
        self._entry = (me, lease._endpoint, job.key)  # noqa: SLF001
        self._lease = lease
        self._outer = _running.get()

    def __enter__(self) -> None:
        _running.set(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _running.set(self._outer)

    def __repr__(self) -> str:
        return f"<holdfast once {self.name!r}, fence {self.fence}, {self.remaining():.1f} s left>"

    @property
    def name(self) -> str:
        """The key, filled in."""
        return self._lease.name

    @property
    def fence(self) -> int:
        """Greater than that of every earlier run. Pass it on to what the function writes to, which refuses lower ones."""
        return self._lease.fence

    @property
    def lost(self) -> Any:
        """An Event, of threading or of asyncio: set when the lease is lost, and it may run again elsewhere."""
        return self._lease.lost  # type: ignore[attr-defined]

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost, NotHeld if the call is over."""
        self._lease.check()

    def remaining(self) -> float:
        """Seconds for which the lease may still be relied on; 0.0 when it is lost or the call is over."""
        return self._lease.remaining()


_running: ContextVar[Running | None] = ContextVar("holdfast_once", default=None)


def current() -> Running:
    """The innermost call that this is part of: its fence, and whether its lease is lost. Raises NotHeld outside of any."""
    running = _running.get()
    if running is None:
        raise NotHeld("no function of once runs here", name="", key="")
    return running


class BaseOnce:
    """Options of `once`, and what they mean for a call, for both faces."""

    _caller: Any
    _on_lost: Callable[..., object] | None = None
    """As a lock's. Who runs asks, or is cancelled."""

    def __init__(
        self,
        template: str,
        *,
        keep: float,
        busy: str,
        wait: float | None,
        ttl: float,
        max_hold: float | None,
        remember: Any,
        codec: Any,
        prefix: str,
    ) -> None:
        if busy not in {"wait", "raise", "skip"}:
            raise ConfigError(f"busy must be 'raise', 'skip' or 'wait', not {busy!r}", parameter="busy")
        self._template, self._busy, self._prefix = template, busy, prefix
        self._fields = list(dict.fromkeys(fields_of(template, None)))
        self._keep = _face.seconds(keep, "keep", MIN_KEEP)
        self._wish = Wish(wait=_face.checked_wait(0.0 if wait is None and busy != "wait" else wait))
        self._ttl = _face.seconds(ttl, "ttl", _face.MIN_TTL)
        self._max_hold = None if max_hold is None else _face.seconds(max_hold, "max_hold", _face.MIN_TTL)
        self._remember = codecs.exception_types(remember, "remember")
        self._codec = codecs.find(codec)
        self._job(template)  # refuses a bad key, and a bad prefix, now and not at the first call

    def __repr__(self) -> str:
        return f"<holdfast once {self._template!r} on {self._caller.address}>"

    def _job(self, name: str) -> Job:
        """What a call with this key is about. Raises ConfigError."""
        site = flight.site(f"{self._prefix}once:", name, "", lease=self._ttl, timeout=self._caller.timeout)
        return Job(name, replace(site, spec=replace(site.spec, name=name, max_hold=self._max_hold)))

    def _filled(self, function: Callable[..., object]) -> Filled:
        """What fills the key from the arguments of a function. Raises ConfigError where that cannot be done."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(
                f"{function.__qualname__} is a generator: it would run after the call, and has no result to be kept",
                parameter="function",
            )
        return Filled(function, self._template)

    def _named(self, fields: dict[str, object]) -> Job:
        """What a call is about whose fields are given by name."""
        if fields.keys() != set(self._fields):
            raise TypeError(f"once {self._template!r} is filled from {self._fields}, not from {sorted(fields)}")
        return self._job(self._template.format(**fields))

    def _refuse_itself(self, me: object, job: Job) -> None:
        """A call inside itself would wait for itself."""
        running = _running.get()
        while running is not None:
            # The endpoint is that of the lease; in a Cluster, that of a shard: the key will do.
            if (running._entry[0], running._entry[2]) == (me, job.key) and running._lease.remaining():  # noqa: SLF001
                raise ConfigError(
                    f"{job.what} runs in this very call already: calling it again inside would wait for itself; move what both "
                    "need into a function without the decorator",
                    parameter="template",
                )
            running = running._outer  # noqa: SLF001

    # What is there

    def _replayed(self, job: Job, record: Record) -> Outcome[Any]:
        """What a stored result means. Raises what was remembered."""
        try:
            if record.kind == VALUE:
                return Outcome(self._codec.decode(record.data), "replayed", record.fence)
            error: Exception = codecs.decode_error(record.data, (*self._remember, ConfigError))
        except codecs.Undecodable as unreadable:
            raise HoldfastError(
                f"{job.what} ran before, and what was stored cannot be read here: {unreadable}; nothing has run now. It is "
                f"kept for another {max(0.0, record.left):.0f} s, or until you forget it",
                name=job.name,
                key=job.site.spec.key,
            ) from None
        error.add_note(f"{job.what} ran before, and this was remembered: nothing has run now")
        raise error

    def _in_progress(self, job: Job, loading: Loading, who: bytes | None, waited: float) -> Outcome[Any]:
        """What a call gets that another one keeps out."""
        if self._busy == "skip":
            return Outcome(None, "skipped", 0)
        holder = describe(who, loading.process)
        raise InProgress(
            f"{job.what} is in progress: {holder or 'somebody'} has been at it for {loading.since:.1f} s; waited {waited:.1f} "
            "s, try again later",
            name=job.name,
            key=job.site.spec.key,
            waited=waited,
            holder=holder,
            remaining=loading.remaining,
            since=loading.since,
        )

    @staticmethod
    def _grant(load: Load) -> Grant:
        """The load's lease, for whoever has it renewed."""
        return replace(load.grant, whole=load._tenure)  # noqa: SLF001

    # What becomes of a run: operations

    async def _succeeded(self, job: Job, lease: BaseLease, load: Load, value: object) -> None:
        """Store the result. Raises LeaseLost if it may not be stored, ConfigError if it cannot."""
        try:
            kind, data, refused = VALUE, self._codec.encode(value, job.what), None
        except ConfigError as error:
            # It has run, and is not to run again: whoever calls it is told the same.
            refused = ConfigError(f"{error}. The function has run, and its result is lost", parameter="codec")
            kind, data = ERROR, codecs.encode_error(refused)
        try:
            if not await self._land(lease, load, kind, data):
                raise lease._lease_lost()  # noqa: SLF001
        except WireError as error:
            _warn(job, error)
        if refused is not None:
            raise refused

    async def _failed(self, job: Job, lease: BaseLease, load: Load, error: BaseException) -> None:
        """Remember the exception, or let the next one run. Raises nothing of its own: the exception goes on."""
        if isinstance(error, Exception) and isinstance(error, self._remember):
            try:
                if not await self._land(lease, load, ERROR, codecs.encode_error(error)):
                    error.add_note(str(lease._lease_lost()))  # noqa: SLF001
            except WireError as unreachable:
                _warn(job, unreachable)
            return
        if lease._expired() and not isinstance(error, LeaseLost):  # noqa: SLF001
            error.add_note(str(lease._lease_lost()))  # noqa: SLF001
        await self._abort(lease, load)

    async def _land(self, lease: BaseLease, load: Load, kind: str, data: bytes) -> bool:
        """Store what came of it; False if that is not for this run to say any more. Raises WireError."""
        if lease._expired():  # noqa: SLF001
            await self._abort(lease, load)
            return False
        lease._tenure.end()  # noqa: SLF001
        try:
            kept = await flight.land(load, kind, data, ttl=self._keep)
        except WireError:
            raise
        except BaseException:  # cancelled or interrupted, and nobody knows whether it arrived: then the abort does nothing
            await flight.abort(load)
            raise
        finally:
            lease._forget()  # noqa: SLF001
        if not kept:
            lease._tenure.lost = "it was forgotten meanwhile, or its key is somebody else's"  # noqa: SLF001
        return kept

    @staticmethod
    async def _abort(lease: BaseLease, load: Load) -> None:
        lease._tenure.end()  # noqa: SLF001
        lease._forget()  # noqa: SLF001
        await flight.abort(load)


def _warn(job: Job, error: WireError) -> None:
    problem: ServerError = told(error, job.what, job.site.spec.key)
    warnings.warn(
        f"{problem}; the function has run, and its result could not be stored: once its lease has ended, it may run again",
        HoldfastWarning,
        _face.of_the_user(),
    )
