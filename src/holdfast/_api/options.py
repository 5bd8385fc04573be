"""Options that locks and what is made of them share: their checks, and the description of a lock that follows."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from typing import Any

from holdfast._core import names
from holdfast._core.lock.records import Spec, answer_within
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.names import lock_keys
from holdfast._log import of_the_user
from holdfast.errors import ConfigError, HoldfastWarning

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


def _longest(quarantine: object) -> float:
    """The longest lease that ``quarantine`` means; 0: there is none."""
    if quarantine is False:
        return 0.0
    # A hand-over is a lease, too: of as many seconds as the winner has to take it up.
    return LONGEST_LEASE if quarantine is True else seconds(quarantine, "quarantine", CLAIM_WINDOW_S)


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
    quarantine: bool | float = False,
    deadlock: str = "wait",
) -> Spec:
    """Checked options of a lock. Raises ConfigError, which names the parameter."""
    keys = lock_keys(name, prefix, key)
    ttl = seconds(ttl, "ttl", MIN_TTL)
    if deadlock not in {"wait", "raise"}:
        raise ConfigError(f"deadlock must be 'wait' or 'raise', not {deadlock!r}", parameter="deadlock")
    longest = _longest(quarantine)
    if longest and ttl > longest:
        raise ConfigError(
            f"ttl={ttl:g} is more than quarantine={longest:g}, the longest lease of such locks on this server: for so long it "
            "grants none after it may have forgotten some; raise quarantine for all its clients, or pass a shorter ttl",
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
