"""Wait, with the command WAIT, until replicas have acknowledged a lock that was just acquired."""

from __future__ import annotations

from holdfast._core.lock.records import Grant
from holdfast._core.lock.renewal import renewal
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import margin
from holdfast._core.requests import Now, Refused, Replicate
from holdfast._core.retry import retry_idempotent


async def acknowledged(result: Grant | Busy) -> Grant | Busy:
    """Wait until replicas have acknowledged a lock that was just acquired, if its option ``replicas`` asks for that.

    Return the grant, which then has a full lease. Return Busy unchanged. Raises Refused if too few replicas acknowledged the
    lock or if the lock was lost meanwhile, or another WireError. After an error, the caller releases the lock.
    """
    spec = result.attempt.spec if isinstance(result, Grant) else None
    if spec is None or not spec.replicas:
        return result
    assert isinstance(result, Grant)
    # Renew first, because WAIT counts only the writes of its own connection. Replicas receive writes in order, so those that
    # have the renewal have the lock as well.
    run = renewal(spec, result.attempt.token, spec.first_ttl, await Now())
    answer = await retry_idempotent(Replicate(run, spec.replicas, spec.timeout))
    (kept,), count = answer.value
    deadline = answer.sent + spec.first_ttl - margin(spec.first_ttl)
    if count < spec.replicas:
        raise Refused(f"{count} of {spec.replicas} replicas acknowledged the lock within {spec.timeout:.2g} s; nothing is held")
    if kept != 1 or answer.came >= deadline:
        raise Refused("the lock was lost before the replicas acknowledged it; nothing is held")
    result.deadline, result.in_claim_window = deadline, False
    return result
