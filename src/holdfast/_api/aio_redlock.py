"""`Redlock` and `declare_new` for asyncio: locks over several independent servers. `holdfast` has them for threads."""

from __future__ import annotations

from holdfast._api import aio_election_lock, aio_lock, options, redlock
from holdfast._api.lease import AioLease, AioTerm
from holdfast._api.lease_core import AioLeaseCore
from holdfast._api.redlock import BaseQuorumCore, BaseRedlock
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Servers
from holdfast._runtime.drivers.aio_quorum import Driver
from holdfast._runtime.process import current


class QuorumCore(BaseQuorumCore, AioLeaseCore):
    """The internal object behind a user's lease on several servers."""


class Redlock(BaseRedlock[AioLease, AsyncClient], aio_lock.BaseAioLock[AioLease]):
    """A `Lock` that a majority of several independent servers grants. It works while a minority of them is unreachable.

    The lock asks all servers at the same time, and does not wait for slow ones once a majority has decided (the Redlock
    algorithm, redis.io "Distributed Locks with Redis"). Fences rise across all servers. A server that may have lost its data,
    for example by a restart, casts no vote until the longest lease has passed. Therefore new servers have to be declared once,
    by `holdfast.declare_new` or ``holdfast nodes init``. The process that has waited longest gets the lock, as far as the
    servers agree. Options and methods are those of `Lock`, except for the method ``ticket`` and the options ``linger``,
    ``replicas``, ``quarantine`` and ``deadlock``.

    Args:
        servers: three, five or another odd number of clients or URLs; or a dictionary of them with names as keys, if clients
            use different addresses for the same server.
        max_ttl: longest lease in seconds on these servers, the same for all of their clients.
        answer_within: seconds to wait for a server in one round, unless a majority of the servers has decided before.

    Raises:
        ConfigError: an option is out of range, or the servers cannot be used together.
        QuorumError: too few servers can vote; its ``nodes`` has the answer of each.
    """

    _core_type = QuorumCore

    def _new_driver(self) -> Driver:
        return Driver(current(), self._endpoint)


class ElectionLock(aio_election_lock.LeaderLock, Redlock):
    """The lock of an election on several servers. Its holder leads."""

    _lease_type = AioTerm


async def declare_new(
    servers: AsyncClient | Servers[AsyncClient],
    *,
    max_ttl: Seconds = options.LONGEST_LEASE,
    force: bool = False,
    answer_within: Seconds = 2.0,
    prefix: str = "hf:",
) -> dict[str, str]:
    """Declare that servers are new and hold no locks, so that they vote or grant locks at once. Return the outcome for each.

    Call this once for new servers, never from a program that uses them, because a server that has lost its data looks new too.
    Raises ConfigError if an option is out of range or the servers cannot be used together.

    Args:
        servers: the servers of a `Redlock`; or one client or URL, whose server then grants locks with ``quarantine=`` at once.
        max_ttl: longest lease in seconds: the ``max_ttl=`` of the `Redlock`, or the ``quarantine=`` of the locks.
        force: declare every server, even one that may have lost locks, or was declared with another longest lease or list of
            servers.
        answer_within: seconds to wait for the answer of each server.
        prefix: the prefix of the locks; servers are declared for each prefix.
    """
    try:
        endpoints, operation = redlock.declaring(
            servers, "asyncio", max_ttl=max_ttl, force=force, answer_within=answer_within, prefix=prefix
        )
    finally:
        del servers  # Their URLs may contain passwords, and error reporters send the variables of each frame.
    return await Driver(current(), endpoints).run(operation)
