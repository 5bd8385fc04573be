"""Release a lock, or remove everything that an attempt to acquire it left on the server."""

from __future__ import annotations

from holdfast._core.lock.records import INFINITY, Attempt
from holdfast._core.lock.spec import Spec, scripts
from holdfast._core.operation import Dropped
from holdfast._core.requests import Answer, NotSent, Now, Refused, RunScript, SendUntilAnswered, Sleep, Unknown, WireError


async def give_up(attempt: Attempt, latest: float = -INFINITY) -> None:
    """Remove the lock or the queue position that the server stores for an attempt. Never raises a WireError.

    If a copy of the attempt's request may still arrive, the token is revoked, so that the server refuses the copy. If the
    revocation fails, the keeper (background thread) repeats it until the lease has ended. ``latest``: `HeldLease.latest` of the
    attempt's lease, if it has one.
    """
    if not attempt.may_be_on_server:
        return
    spec, mode = attempt.spec, "bury" if attempt.maybe_in_flight else "leave"
    try:
        for limit in (0.2, 0.1):  # with `GRACE_S`, an attempt that gives up ends less than a second after its time
            try:
                await RunScript(
                    scripts(spec).release, spec.granting, (attempt.token, mode, *spec.quarantine_args), min(spec.timeout, limit)
                )
            except (NotSent, Unknown):
                mode = "bury"
            except Refused as error:
                if not error.transient:
                    if attempt.maybe_in_flight:
                        await _leave_to_keeper(attempt, latest)
                    break
            else:
                break
            await Sleep(0.02)
        else:
            await _leave_to_keeper(attempt, latest)
    except Dropped:
        await _leave_to_keeper(attempt, latest)
        attempt.may_be_on_server = False
        raise
    attempt.may_be_on_server = False


async def _leave_to_keeper(attempt: Attempt, latest: float) -> None:
    """Have the keeper (background thread) send a revocation, until the server replies or the lease has ended.

    ``latest``: as in `give_up`.
    """
    spec = attempt.spec
    await SendUntilAnswered(revocation(attempt), max(latest, await Now() + spec.timeout + spec.first_ttl))


def revocation(attempt: Attempt) -> RunScript[int]:
    """Return the request that revokes an attempt's token.

    The server then removes the attempt's lock or queue position, and refuses late copies of its requests.
    """
    spec = attempt.spec
    return RunScript(scripts(spec).release, spec.granting, (attempt.token, "bury", *spec.quarantine_args), spec.timeout)


async def release(spec: Spec, token: str, in_time: bool, maybe_in_flight: bool, attempt: Attempt | None = None) -> bool:
    """Release the lock and hand it over to the first waiter in the queue. Return False if it was no longer held.

    ``in_time``: True if the lease's deadline has not passed. ``maybe_in_flight``: True if a copy of the acquire request may
    still arrive; the server then refuses that copy. ``attempt``: attempt whose `Attempt.first` is the outcome of a first try by
    `_core.lock.uncontended`; None: there was no such try. Raises WireError if the server is unreachable.
    """
    resent = False
    failures = 0
    first: Answer[int] | WireError | None = None
    if attempt is not None:
        first, attempt.first = attempt.first, None
    try:
        while True:
            try:
                timeout = spec.timeout if not failures else min(spec.timeout, 0.5)
                how = "bury" if maybe_in_flight else "release"
                if isinstance(first, WireError):
                    raise first
                if first is None:
                    first = await RunScript(scripts(spec).release, spec.granting, (token, how, *spec.quarantine_args), timeout)
            except WireError as error:
                first = None
                resent = resent or isinstance(error, Unknown)
                failures += 1
                if failures == 3 or (isinstance(error, Refused) and not error.transient):
                    raise
                await Sleep(0.02 * failures)
            else:
                # A repeated request may find a lock that the first copy released, or that was lost before. `in_time` decides.
                return first.value == 1 or (resent and in_time)
    except WireError:
        raise
    except BaseException:
        # Cancelled or interrupted. Nobody knows whether the request arrived. Sending it once more is harmless.
        await give_up(Attempt(spec, token, may_be_on_server=True, maybe_in_flight=True))
        raise
