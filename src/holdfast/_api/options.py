"""Checks of the options that all kinds of locks share, and the `Spec` (description of a lock) built from them."""

from __future__ import annotations

import functools
import math
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from types import CodeType
from typing import Any

from holdfast._core import names
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.lock.spec import Spec, answer_within
from holdfast._core.names import lock_keys
from holdfast._durations import WANTED, Seconds, as_number
from holdfast._log import of_the_user
from holdfast.errors import ConfigError, HoldfastWarning

LONGEST_LEASE = 60.0
"""Default for the longest lease, in seconds, that clients may use with ``quarantine=True`` or on several servers."""

MIN_TTL, MAX_TTL = 0.05, 366 * 86400.0
"""Shortest and longest lease, in seconds."""
SHORT = 2.0
"""Length of a lease, in seconds, below which users are warned that a short pause of the machine may lose it."""

MILLISECONDS = 5000.0
"""A ``ttl`` of at least this many seconds was probably meant in milliseconds, if it is a multiple of 1,000 and not a whole
number of hours."""


def seconds(value: object, parameter: str, least: float, most: float = MAX_TTL) -> float:
    """Return a duration (`holdfast._durations`) as seconds. Raises ConfigError unless it is from ``least`` to ``most``."""
    number = value
    if isinstance(value, bool) or not isinstance(value, int | float):
        number = as_number(value)
        if not isinstance(number, float):
            raise ConfigError(f"{parameter} must be {WANTED}, not {value!r}", parameter=parameter)
    assert isinstance(number, int | float)
    if math.isnan(number) or not least <= number <= most:
        raise ConfigError(f"{parameter} must be between {least:g} and {most:.0f} seconds, not {value!r}", parameter=parameter)
    return float(number)


def whole_number(value: object, parameter: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{parameter} must be a whole number from 0, not {value!r}", parameter=parameter)
    return value


def plain_number(value: object, parameter: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ConfigError(f"{parameter} must be a number from 0 to {most:g}, not {value!r}", parameter=parameter)
    return value


def _longest(quarantine: object) -> float:
    """Return the longest lease in seconds that the ``quarantine`` option allows; 0 without quarantine."""
    if quarantine is False:
        return 0.0
    # A lock that is handed over has a lease, too, until the new holder confirms it. A quarantine must not be shorter than that.
    return LONGEST_LEASE if quarantine is True else seconds(quarantine, "quarantine", CLAIM_WINDOW_S)


def checked_wait(wait: object, parameter: str = "wait") -> float | None:
    """Return the ``wait`` option as seconds, or None for no limit. Raises ConfigError if it is negative or no duration."""
    return None if wait is None or wait == math.inf else seconds(wait, parameter, 0, threading.TIMEOUT_MAX)


def checked_timeout(timeout: object) -> float | None:
    """Return a ``timeout`` argument, as methods of threading have it, in seconds; None: no limit. Negative values count as 0.

    Raises ConfigError if ``timeout`` is no duration.
    """
    number = as_number(timeout)
    return checked_wait(0.0 if isinstance(number, int | float) and number < 0 else timeout, "timeout")


def acquire_wait(own: float | None, blocking: bool, timeout: Seconds) -> float | None:
    """Convert arguments of threading.Lock.acquire to seconds to wait (None: no limit). ``own``: the result without arguments.

    Raises ValueError, OverflowError or TypeError, as threading.Lock does.
    """
    refuse_number(blocking)
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return 0.0
    if timeout == -1:
        return own
    number = as_number(timeout)
    if not isinstance(number, int | float):
        raise TypeError(f"timeout must be {WANTED}, not {timeout!r}")
    if number < 0:
        raise ValueError(f"timeout must be 0 or more seconds, or -1 for the wait= of the lock itself, not {timeout!r}")
    if number > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    return checked_wait(number)


def refuse_number(blocking: object) -> None:
    """Raise TypeError if ``blocking`` is a number of seconds or permits, which threading.Lock takes for True."""
    if not isinstance(blocking, bool) and blocking not in (0, 1):
        raise TypeError(
            f"acquire({blocking!r}): the first argument, blocking, must be True or False; for seconds to wait, pass "
            f"timeout={blocking!r}; for several permits of a semaphore, pass weight={blocking!r} to the Semaphore itself"
        )


def refuse_mistaken(mistaken: dict[str, Any], cls: str) -> None:
    """Raise TypeError if ``mistaken``, the unknown options of the calling function, is not empty.

    For an option of another class of holdfast, the error gives the reason. For a word of another library, it has a hint. For
    other words, it names a similar option. ``cls``: name of the class or function.
    """
    for name in mistaken:
        from holdfast._api.absent_options import why_absent  # imported here, because only errors need it

        taken = _parameters(sys._getframe(1).f_code)  # noqa: SLF001 - the parameters of the caller are the options
        if why := why_absent(name, cls, taken):
            raise TypeError(why)
        import difflib  # imported here, because only errors need it

        near = difflib.get_close_matches(name, taken, 1)
        raise TypeError(
            f"{cls}() got an unexpected keyword argument {name!r}" + (f"; did you mean {near[0]}=?" if near else "")
        )


def explain_words(function: Callable[..., object], given: Collection[str]) -> str:
    """Return the text of an error for the first option of a call that is a known word but no option of ``function``.

    Empty if there is none. It is for functions that Python calls with missing or unknown arguments (`hides_client`).
    """
    from holdfast._api.absent_options import why_absent  # imported here, because only errors need it

    taken, cls = _parameters(function.__code__), function.__qualname__.removesuffix(".__init__")
    return next(filter(None, (why_absent(name, cls, taken) for name in given if name not in taken)), "")


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def warn_of_short(ttl: float) -> None:
    warnings.warn(
        f"ttl={ttl:g}: a lease of less than {SHORT:g} s may be lost when the machine is busy for a moment",
        HoldfastWarning,
        of_the_user(),
    )


def warn_of_milliseconds(ttl: Any) -> None:
    """Warn of a ``ttl`` that is probably meant in milliseconds, such as 30000. A duration with a unit causes no warning."""
    if type(ttl) in {int, float} and ttl >= MILLISECONDS and ttl % 1000 == 0 and ttl % 3600:
        warnings.warn(
            f"ttl={ttl:.0f} is a lease of {ttl / 3600:.1f} hours, because ttl is in seconds: pass {ttl / 1000:.0f} for "
            f'{ttl:.0f} milliseconds, or "{ttl:.0f}s" if you mean it',
            HoldfastWarning,
            of_the_user(),
        )


def make_spec(
    name: str | bytes,
    timeout: float,
    *,
    ttl: Seconds,
    renew: bool,
    max_hold: Seconds | None,
    progress_within: Seconds | None,
    prefix: str = "hf:",
    key: str | bytes | None = None,
    linger: Seconds = 0.0,
    max_passes: int = 0,
    max_pass_time: Seconds = 0.0,
    replicas: int = 0,
    quarantine: bool | Seconds = False,
    deadlock: str = "wait",
) -> Spec:
    """Check the options of a lock and return its `Spec`. ``timeout``: the client's limit for an answer, in seconds.

    Raises ConfigError, which names the parameter.
    """
    keys = lock_keys(name, prefix, key)
    given, ttl = ttl, seconds(ttl, "ttl", MIN_TTL)
    warn_of_milliseconds(given)
    if deadlock not in {"wait", "raise"}:
        raise ConfigError(f"deadlock must be 'wait' or 'raise', not {deadlock!r}", parameter="deadlock")
    longest = _longest(quarantine)
    if longest and ttl > longest:
        raise ConfigError(
            f"ttl={ttl:g} is more than quarantine={longest:g}, the longest lease for which a server waits if it may have "
            "lost data; raise quarantine for all clients of the lock, or pass a shorter ttl",
            parameter="ttl",
        )
    if max_hold is not None:
        max_hold = seconds(max_hold, "max_hold", MIN_TTL)
    if progress_within is not None:
        progress_within = seconds(progress_within, "progress_within", MIN_TTL)
        if not renew:
            raise ConfigError(
                "progress_within needs renew=True: with renew=False, the holder shows progress by renewing the lease itself",
                parameter="progress_within",
            )
    linger = seconds(linger, "linger", 0.0)
    if linger and not (renew and max_hold is None and progress_within is None):
        raise ConfigError("linger needs renew=True, and neither max_hold nor progress_within", parameter="linger")
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
        quarantine=longest,
        yields=deadlock == "raise",
        progress_within=progress_within,
        home=b"" if key is None else names.start(prefix),
    )


_spec = functools.lru_cache(1024)(Spec)
"""Cached constructor of `Spec`. Decorators create many locks of the same name and options, and these locks share one `Spec`."""
