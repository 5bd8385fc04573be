"""Locks over several independent servers, for asyncio: `holdfast.aio.Redlock`."""

from __future__ import annotations

from holdfast._api import aio_lease, aio_lock
from holdfast._api.redlock import BaseQuorumLease, BaseRedlock
from holdfast._runtime.drivers.aio_quorum import Driver
from holdfast._runtime.process import current


class Lease(BaseQuorumLease, aio_lock.Lease):
    """One acquisition of a lock over several servers."""


class Redlock(BaseRedlock[Lease], aio_lock.Lock):
    """A `Lock` that a majority of several independent servers grants: it goes on while a minority of them is away.

    All servers are asked at the same time, and nobody waits for the slow once it is decided (Redlock, redis.io "Distributed
    Locks with Redis"). The fence rises over all of them. A server that may have forgotten what it granted, by a restart for
    example, casts no vote until the longest lease has passed; new servers are declared once (`holdfast.declare_new`, or
    ``holdfast nodes init``). Options and methods are those of `Lock`, without ``linger``, ``replicas`` and ``quarantine``. It
    goes to the process that has waited for longest, as far as the servers agree on that.

    Args:
        servers: three, five or another odd number of clients or URLs; or a dictionary of them by name, if not all who use
            them know them under the same addresses.
        max_ttl: the longest lease on these servers, in seconds; the same for all who use them.
        answer_within: seconds for which a server is waited for in one round, if the others have not decided before.

    Raises:
        ConfigError: an option is out of range, or the servers cannot be used together.
        QuorumError: too few servers can vote; ``nodes`` says what each one answered.
    """

    _lease_type = Lease

    def _new_driver(self) -> Driver:
        return Driver(current(), self._endpoint)


class Term(BaseQuorumLease, aio_lease.Term):
    """One term of a leader that a majority of the servers has elected."""


class Seat(Redlock):
    """The lock of an election over several servers."""

    _lease_type = Term  # type: ignore[assignment]
