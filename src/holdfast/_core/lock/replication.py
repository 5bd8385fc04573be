"""A lock that is believed only when replicas have it, too: WAIT after a write, before acquire returns."""

from __future__ import annotations

from holdfast._core.lock.records import Grant, margin
from holdfast._core.lock.renewal import renewal
from holdfast._core.lock.replies import Busy
from holdfast._core.requests import Now, Refused, Replicate
from holdfast._core.retry import retry_idempotent


async def acknowledged(result: Grant | Busy) -> Grant | Busy:
    """The lock that was just taken at the server, once as many replicas have it as its options want; where it was handed over,
    which another connection has written, its lease is no claim any more then. Raises WireError, Refused where they are too few:
    whoever asked gives the lock back then."""
    spec = result.attempt.spec if isinstance(result, Grant) else None
    if spec is None or not spec.replicas:
        return result
    assert isinstance(result, Grant)
    # Renewed first: without a write of its own a connection has nothing to wait for. Replicas have got it in the order in which
    # it was written, so they have the lock as well.
    run = renewal(spec, result.attempt.token, spec.first_ttl, await Now())
    answer = await retry_idempotent(Replicate(run, spec.replicas, spec.timeout))
    (kept,), count = answer.value
    deadline = answer.sent + spec.first_ttl - margin(spec.first_ttl)
    if count < spec.replicas:
        raise Refused(f"{count} of {spec.replicas} replicas acknowledged it within {spec.timeout:.2g} s; nothing is held")
    if kept != 1 or answer.came >= deadline:
        raise Refused("it was lost before the replicas had acknowledged it; nothing is held")
    result.deadline, result.in_claim_window = deadline, False
    return result
