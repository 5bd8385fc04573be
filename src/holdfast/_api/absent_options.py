"""Options that a class or function does not take although others of holdfast do, and the reasons.

An error about such an option gives the reason, and never names an option that is only spelled like it. The table of the page
docs/glossary.md has the rows of `ROWS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast._api.foreign_words import hint_for, is_foreign


class AbsentOptions(NamedTuple):
    """A reason for which some classes or functions do not take some options."""

    classes: str
    """Names of the classes and functions, separated by spaces."""
    options: str
    """Names of the options, separated by spaces."""
    why: str
    """The reason, and what to do instead."""


_HAND_ON = "linger max_passes max_pass_time"
_SAFETY = "replicas quarantine deadlock"
_SERVERS = "max_ttl answer_within"
_LEASE = "on_lost max_hold progress_within label"
_LOCK = f"key {_HAND_ON} {_SAFETY} {_SERVERS}"
_RENDEZVOUS = "Event CountDownLatch"
_PERMITS = "Semaphore BoundedSemaphore RWLock"

ROWS = (
    AbsentOptions(f"Lock FairLock {_PERMITS}", _SERVERS, "only locks on several servers have this option: use Redlock"),
    AbsentOptions(
        "FairLock",
        _HAND_ON,
        "a FairLock is never handed on inside a process, because each waiter has its own place in the queue of the server",
    ),
    AbsentOptions("Redlock", "linger", "it is not implemented for several servers"),
    AbsentOptions("Redlock", "replicas", "a majority of servers must grant the lock, which replaces the wait for replicas"),
    AbsentOptions("Redlock", "quarantine", "a server that may have lost data casts no vote, also without this option"),
    AbsentOptions("Redlock", "deadlock", "no server sees all waiters, so none can find a deadlock"),
    AbsentOptions(_PERMITS, "key", "the option is for locks of other libraries, and their permits have another format"),
    AbsentOptions(_PERMITS, _HAND_ON, "the server counts permits, and grants them in strict order of arrival"),
    AbsentOptions(_PERMITS, _SAFETY, "it is not implemented for permits"),
    AbsentOptions(
        "MultiLock",
        f"progress_within {_LOCK}",
        "it cannot be passed for all locks together; pass lock objects with this option instead of names",
    ),
    AbsentOptions("Election", "renew max_hold progress_within", "a leader leads until it resigns or its lease is lost"),
    AbsentOptions("Election", "label", "a candidate is shown by its name: pass candidate="),
    AbsentOptions("Election", _HAND_ON, "each candidate waits on the server, and a term is never handed on inside a process"),
    AbsentOptions("Election", "key replicas deadlock answer_within", "it is not implemented for elections"),
    AbsentOptions(
        "locked",
        f"progress_within {_LOCK}",
        "the decorator has the most common options only; for this one, use a lock object in the function",
    ),
    AbsentOptions("once", "renew", "the lease of a call is always renewed while its function runs"),
    AbsentOptions("once", "on_lost", "the function can call Once.current().check(), which raises LeaseLost after a loss"),
    AbsentOptions("once Cache", "progress_within", "pass max_hold= for how long the lease is renewed"),
    AbsentOptions("once", "label", "the process that runs the function is shown by host and pid only"),
    AbsentOptions("once", "key", "the template names the key, such as 'pay:{order_id}'"),
    AbsentOptions("once", _HAND_ON, "waiting calls do not get the lease of a call that succeeds; they get its result"),
    AbsentOptions("once", f"{_SAFETY} {_SERVERS}", "it is not implemented for results of calls"),
    AbsentOptions("redeem", "wait deadlock", "a ticket is accepted or refused at once"),
    AbsentOptions("redeem", "replicas quarantine", "a ticket contains this option of its lock"),
    AbsentOptions("redeem", _HAND_ON, "a redeemed lock is never handed on inside a process"),
    AbsentOptions("redeem", _SERVERS, "only a lock on one server has tickets"),
    AbsentOptions("Cache", "renew", "the lease of a load is always renewed while the load runs"),
    AbsentOptions("Cache", "on_lost", "a load that has lost its lease costs one more load, and its value is not stored"),
    AbsentOptions("Cache", "label", "the process that loads a value is shown by host and pid only"),
    AbsentOptions("Cache", "key", "the methods take the key, as in get_or_load(key, loader)"),
    AbsentOptions("Cache", _HAND_ON, "waiting calls do not get the lease of a load that succeeds; they get its value"),
    AbsentOptions(
        "Cache", f"{_SAFETY} {_SERVERS}", "it is not implemented for caches; a load that has lost its lease costs one more load"
    ),
    AbsentOptions(
        "Cache.get_or_load Cache.memoize Cache.set",
        "codec beta errors error_ttl load_ttl max_hold down prefix max_size",
        "it is the same for all calls: pass it to the Cache itself",
    ),
    AbsentOptions(_RENDEZVOUS, "ttl", "nobody holds it; pass keep= for how long the server keeps it after the last call"),
    AbsentOptions(_RENDEZVOUS, "timeout wait", "pass timeout= to wait(), for how long to wait"),
    AbsentOptions("Barrier", "wait", "pass timeout= for how long to wait for the other participants"),
    AbsentOptions(
        f"{_RENDEZVOUS} Barrier", "key", "the option is for locks of other libraries, and their events have another format"
    ),
    AbsentOptions(_RENDEZVOUS, f"renew {_LEASE} {_HAND_ON} deadlock", "nobody holds it, so it has no lease"),
    AbsentOptions(
        "Barrier", f"renew {_LEASE} {_HAND_ON} deadlock", "nobody holds it; a waiting participant sends signs of life by itself"
    ),
    AbsentOptions(f"{_RENDEZVOUS} Barrier", f"replicas quarantine {_SERVERS}", "it is implemented for locks only"),
    AbsentOptions(
        "Schedule",
        "ttl min_runtime overlap misfire grace on_crash max_runtime",
        "it is an option of a job: pass it to every(), cron() or add()",
    ),
    AbsentOptions("Schedule", "wait", "pass overlap= to a job, for what happens if a run is due during another"),
    AbsentOptions(
        "Schedule", f"renew {_LEASE}", "each run of a job has a lease of its own, which the options of the job limit"
    ),
    AbsentOptions("Schedule", _LOCK, "it is implemented for locks only"),
    AbsentOptions("acquire", f"renew {_LEASE} prefix {_LOCK}", "it is the same for all calls: pass it to the lock itself"),
    AbsentOptions(
        "campaign",
        "candidate value ttl on_lost prefix quarantine max_ttl",
        "it is the same for all calls: pass it to the Election itself",
    ),
)
"""All reasons, in the order of the classes. No class or function has two for the same option."""

_TAKEN_BY = {
    **dict.fromkeys(("ttl", "wait", "renew", *_LEASE.split(), "key", *_HAND_ON.split(), *_SAFETY.split()), "Lock"),
    **dict.fromkeys(_SERVERS.split(), "Redlock"),
    **dict.fromkeys(("limit", "weight"), "Semaphore"),
    **dict.fromkeys(("candidate", "value"), "Election"),
    **dict.fromkeys(("stale", "codec", "beta", "error_ttl", "load_ttl", "down", "max_size", "tags"), "Cache"),
    **dict.fromkeys(("errors", "ignore"), "once and Cache"),
    **dict.fromkeys(("parties", "action"), "Barrier"),
    **dict.fromkeys(("features", "concurrency", "strict"), "Schedule"),
    **dict.fromkeys(
        ("overlap", "misfire", "grace", "on_crash", "max_runtime", "min_runtime", "jitter", "tz"), "jobs of a Schedule"
    ),
    "busy": "locked, once and Cache",
    "count": "CountDownLatch",
    "keep": "once, Event, CountDownLatch and Barrier",
    "prefix": "all locks",
    "reentrant": "locked",
    "timeout": "Barrier",
}
"""For each option, where to find it."""


def reason_against(option: str, cls: str) -> str:
    """Return why a class or function, named ``cls``, does not take an option that others of holdfast take. Empty: unknown."""
    for row in ROWS:
        if cls in row.classes.split() and option in row.options.split():
            return row.why
    return ""


def taken_by(option: str) -> str:
    """Return which classes or functions of holdfast take an option, as the end of an error; empty if none of them does."""
    return f"it is an option of {_TAKEN_BY[option]}" if option in _TAKEN_BY else ""


def why_absent(option: str, cls: str, taken: Iterable[str]) -> str:
    """Return the text of the error about an option that a class or function, named ``cls``, does not have.

    Empty if no class of holdfast has the option, and no table has it as a word of another library. ``taken``: the options that
    ``cls`` has.
    """
    hint = reason_against(option, cls) or hint_for(option, cls) or taken_by(option)
    if not hint and is_foreign(option):
        there = [name for name in taken if name not in {"self", "client", "servers"}]
        hint = f"nothing here corresponds to it; {cls} takes {', '.join(there) or 'no options'}"
    return f"{cls}() has no {option}=: {hint}" if hint else ""
