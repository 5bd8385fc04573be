"""Locks over several independent servers, for threads. `holdfast.aio` has the same for asyncio."""

from __future__ import annotations

from holdfast._api import options, redlock, sync_lease, sync_lock
from holdfast._api.redlock import BaseQuorumLease, BaseRedlock
from holdfast._net.redaction import hides_client
from holdfast._runtime.drivers.sync_quorum import Driver
from holdfast._runtime.process import current


class Lease(BaseQuorumLease, sync_lock.Lease):
    """One acquisition of a lock over several servers."""


class Redlock(BaseRedlock[Lease], sync_lock.Lock):
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


class Term(BaseQuorumLease, sync_lease.Term):
    """One term of a leader that a majority of the servers has elected."""


class Seat(Redlock):
    """The lock of an election over several servers."""

    _lease_type = Term  # type: ignore[assignment]


@hides_client()
def declare_new(
    servers: object,
    *,
    max_ttl: float = options.LONGEST_LEASE,
    force: bool = False,
    answer_within: float = 2.0,
    prefix: str = "hf:",
) -> dict[str, str]:
    """Declare servers new: they hold no lock that they could have forgotten, and may vote at once; or one server, a client or
    URL, which grants locks with ``quarantine=`` at once.

    To be done once for new servers, never by a program that uses them: one that has lost its memory looks new, too.
    ``max_ttl``: the longest lease, as Redlock's ``max_ttl=``, or ``quarantine=``; ``prefix``: that of the locks, each of which
    has its own mark on a server; ``answer_within``: seconds to wait for the answer of each server. Returns what became of each;
    ``force`` replaces another longest lease, or list of servers, that was agreed on before. Raises ConfigError.
    """
    within = options.seconds(answer_within, "answer_within", 0.001)
    endpoints, server_set = redlock.find_new(servers, options.seconds(max_ttl, "max_ttl", options.MIN_TTL), prefix)
    return Driver(current(), endpoints).run(redlock.declare(server_set, within, force=force))
