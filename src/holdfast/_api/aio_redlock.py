"""`Redlock` for asyncio: locks over several independent servers. `holdfast` has the class for threads."""

from __future__ import annotations

from holdfast._api import aio_election_lock, aio_lease, aio_lock
from holdfast._api.redlock import BaseQuorumCore, BaseRedlock
from holdfast._runtime.drivers.aio_quorum import Driver
from holdfast._runtime.process import current


class QuorumCore(BaseQuorumCore, aio_lease.LeaseCore):
    """The internal object of a lease over several servers."""


class Redlock(BaseRedlock[aio_lease.Lease], aio_lock.BaseAioLock[aio_lease.Lease]):
    """A `Lock` that a majority of several independent servers grants. It works while a minority of them is unreachable.

    All servers are asked at the same time, without waiting for slow ones once a majority has decided (the Redlock algorithm,
    redis.io "Distributed Locks with Redis"). Fences rise across all servers. A server that may have lost its data, for example
    by a restart, casts no vote until the longest lease has passed. Therefore new servers have to be declared once, by
    `holdfast.declare_new` or ``holdfast nodes init``. The lock is granted to the process that has waited longest, as far as the
    servers agree. Options and methods are those of `Lock`, except for ``linger``, ``replicas``, ``quarantine`` and
    ``deadlock``.

    Args:
        servers: three, five or another odd number of clients or URLs; or a dictionary of them with names as keys, if clients
            use different addresses for the same server.
        max_ttl: longest lease in seconds on these servers, the same for all of their clients.
        answer_within: seconds to wait in one round for a server, if the others have not decided before.

    Raises:
        ConfigError: an option is out of range, or the servers cannot be used together.
        QuorumError: too few servers can vote; its ``nodes`` has the answer of each.
    """

    _core_type = QuorumCore

    def _new_driver(self) -> Driver:
        return Driver(current(), self._endpoint)


class ElectionLock(aio_election_lock.LeaderLock, Redlock):
    """The lock of an election over several servers. Its holder leads."""

    _lease_type = aio_lease.Term
