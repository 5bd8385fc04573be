"""`Redlock` and `declare_new`, for threads and for asyncio: locks over several independent servers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, Never, TypeVar

from holdfast._api import error_map, options
from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock
from holdfast._api.election_lock import AioLeaderLock, LeaderLock
from holdfast._api.flow import of_asyncio
from holdfast._api.lease import AioLease, AioTerm, BaseLease, Lease, Term
from holdfast._api.lease_core import AioLeaseCore, LeaseCore, SyncLeaseCore
from holdfast._api.options import MIN_TTL, seconds
from holdfast._clock import clock
from holdfast._core import control_records
from holdfast._core.lock.records import HeldLease
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import milliseconds
from holdfast._core.names import PROCESS, home, marker_key, quarantine_key, record_key, side_key, start
from holdfast._core.quorum import acquire
from holdfast._core.quorum.lease import QuorumLease
from holdfast._core.quorum.nodes import QuorumNodes
from holdfast._core.quorum.votes import DECLARE_NEW, AllAnswered, QuorumAttempt, ServerSet, YesCount, list_digest
from holdfast._core.requests import Answer, Command, ConfigMismatch, Poll, RunScript, TooFew, WireError, in_the_way
from holdfast._durations import Seconds
from holdfast._lua import codes
from holdfast._net.clients import AsyncClient, Client, Servers, SyncClient
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several, listed, on_one_server, resolve
from holdfast._runtime.drivers.sync_quorum import Driver
from holdfast._runtime.fanout import fanouts_of
from holdfast._runtime.process import current
from holdfast.errors import ConfigError, HoldfastError, QuorumError

MAX_SERVERS = 99

DECLARED, READY = "declared new: ready now", "ready already"

FORGOTTEN = "may have lost the locks that it granted (force declares it new anyway)"

L = TypeVar("L", bound=BaseLease)


def find(
    servers: object, api: Literal["sync", "asyncio"], max_ttl: float, prefix: str
) -> tuple[tuple[Endpoint, ...], ServerSet]:
    """Return the endpoints of the servers that vote together, and their `ServerSet`. Raises ConfigError if they cannot vote."""
    if isinstance(servers, str | bytes) or not isinstance(servers, Iterable):
        first = "" if "://" in str(servers) else "; they are the first argument, and the name of the lock is the second"
        raise _bad(f"pass a list of clients or URLs, or a dictionary of them with names as keys{first}")
    named = isinstance(servers, Mapping)
    clients = listed(servers) if named else list(servers)
    _check_number(len(clients))
    endpoints = tuple(resolve(client, api) for client in clients)
    addresses = [endpoint.address for endpoint in endpoints]
    names = [str(name) for name in servers] if named else addresses
    for number, endpoint in enumerate(endpoints):
        if endpoint in endpoints[:number] or names[number] in names[:number]:
            raise _bad(f"{names[number]} is in the list twice, so its vote would count twice; remove one of them")
        if endpoint.cluster is not None:
            raise _bad(f"{names[number]} is a Cluster, which cannot vote; pass single servers, or use Lock for a Cluster")
    if len({endpoint.tls is None for endpoint in endpoints if endpoint.path is None}) > 1:
        raise _bad("some use TLS and others do not; use the same for all: rediss:// with TLS, redis:// without")
    return endpoints, ServerSet(tuple(names), list_digest(names), max_ttl, marker_key(start(prefix)))


def declaring(
    servers: object, api: Literal["sync", "asyncio"], *, max_ttl: Seconds, force: bool, answer_within: Seconds, prefix: str
) -> tuple[tuple[Endpoint, ...], Coroutine[Any, Any, dict[str, str]]]:
    """Return the servers to be declared new, and the operation that declares them, for `declare_new`. Raises ConfigError.

    ``servers`` are several servers, which vote together, or one server, which grants locks with a quarantine.
    """
    within = options.seconds(answer_within, "answer_within", 0.001)
    longest = options.seconds(max_ttl, "max_ttl", options.MIN_TTL)
    if are_several(servers):
        endpoints, server_set = find(servers, api, longest, prefix)
    else:
        endpoint = resolve(servers, api)
        if endpoint.cluster is not None:
            raise _bad("locks in a Cluster have no quarantine, so there is no need to declare its servers new")
        endpoints = (endpoint,)
        server_set = ServerSet((endpoint.address,), "", longest, quarantine_key(start(prefix)))
    return endpoints, declare(server_set, within, force=force)


def _bad(why: str) -> ConfigError:
    return ConfigError(f"servers: {why}", parameter="servers")


def _check_number(number: int) -> None:
    if not 1 <= number <= MAX_SERVERS:
        raise _bad(f"expected 3 to {MAX_SERVERS} servers, not {number}")
    if number == 1:
        raise _bad("one server cannot form a majority: use holdfast.Lock, or pass at least three servers")
    if number == 2:
        raise _bad("a lock on two servers needs both, so it fails more often than on one; pass three, or use one")
    if number % 2 == 0:
        raise _bad(
            f"{number} servers tolerate no more failures than {number - 1}, because a majority is needed: pass an odd number "
            "of servers"
        )


class BaseRedlock(BaseLock[L, Client]):
    """The options and the state of a lock on several servers. Base class for threads and for asyncio."""

    _strategy = acquire.ON_SEVERAL_SERVERS

    @hides_client("Redlock.__init__")
    def __init__(
        self,
        servers: Servers[Client],
        name: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        max_passes: int = 32,
        max_pass_time: Seconds = 0.01,
        max_ttl: Seconds = options.LONGEST_LEASE,
        answer_within: Seconds = 0.2,
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, type(self).__name__)
        max_ttl = seconds(max_ttl, "max_ttl", MIN_TTL)
        self._endpoint, self._server_set = find(servers, self._api, max_ttl, prefix)
        if seconds(ttl, "ttl", MIN_TTL) > max_ttl:
            raise ConfigError(
                f"ttl={ttl:g} is more than max_ttl={max_ttl:g}, the longest lease on these servers: pass a shorter ttl, or "
                "raise max_ttl for all clients of these servers",
                parameter="ttl",
            )
        spec = options.make_spec(
            name,
            seconds(answer_within, "answer_within", 0.001),
            ttl=ttl,
            renew=renew,
            max_hold=max_hold,
            progress_within=progress_within,
            prefix=prefix,
            key=key,
            max_passes=max_passes,
            max_pass_time=max_pass_time,
        )
        lock, state, _ = spec.keys
        self._set_up(spec._replace(keys=(lock, state, side_key(lock, b"hopefuls"))), wait, on_lost, label)

    @property
    def _where(self) -> str:
        return ", ".join(self._server_set.names)

    def _new_attempt(self, driver: Any) -> QuorumAttempt:
        process = driver.process
        keeper = process.keeper
        if keeper is not self._keeper:
            nodes = keeper.quorum_nodes(QuorumNodes, self._endpoint)
            with nodes.mutex:
                self._keeper, self._node, self._local_queue = keeper, nodes, nodes.local_queue(self._spec)
        fanouts = fanouts_of(process, self._endpoint)
        return QuorumAttempt(
            self._spec,
            local_queue=self._local_queue,
            node=self._node,
            since=clock(),
            server_set=self._server_set,
            clock_estimate=fanouts.clock_estimate,
            first_contact=fanouts.first_contact,
            tally=self._tally,
        )

    def _user_error(self, error: error_map.Trouble) -> HoldfastError:
        if isinstance(error, TooFew):
            return quorum_error(self._spec.name, self.key, "cannot be acquired", error)
        if isinstance(error, ConfigMismatch):
            return ConfigError(f"lock {self.name!r} cannot be used: {error}; nothing is held", parameter=error.parameter)
        return super()._user_error(error)

    async def _is_locked(self) -> bool:
        server_set = self._server_set
        there, call = (
            YesCount(len(server_set.names), server_set.majority),
            Command(("EXISTS", self._spec.keys[0]), acquire.ANSWER_LIMIT_S),
        )
        await Poll([call] * len(server_set.names), there, self._spec.timeout)
        if there.unsure:
            raise quorum_error(
                self._spec.name,
                self.key,
                "cannot be checked",
                acquire.shortfall(there, server_set, range(len(server_set.names)), "held"),
            )
        for number, answer in there.answers.items():
            if isinstance(answer, Answer) and not answer.value:
                self._found_free(self._endpoint[number], answer.sent)
        return there.reached

    async def _holder(self, busy: Busy) -> bytes | None:
        if busy.process[:PROCESS] == current().id:
            return await error_map.record_of(busy.process, self._spec.keys[0])
        if not busy.named:
            return None
        any_record = _Records(len(self._server_set.names), 1)
        record = record_key(home(busy.process, self._spec.keys[0]), busy.process)
        get = control_records.fetch(record, acquire.ANSWER_LIMIT_S)
        await Poll([get] * len(self._server_set.names), any_record, self._spec.timeout)
        records = (answer.value for answer in any_record.answers.values() if isinstance(answer, Answer))
        return next(filter(None, records), None)


class _Records(YesCount):
    def says_yes(self, answer: Answer[Any]) -> bool:
        return bool(answer.value)


def quorum_error(name: str, key: str, what: str, error: TooFew) -> QuorumError:
    """Return the QuorumError for an internal error. ``what``: text about what failed, such as "cannot be acquired"."""
    from holdfast._api import access  # Imported late: most programs never need it.

    number, hint = len(error.nodes), access.advice(error, ["--redlock"])
    return QuorumError(
        f"lock {name!r} {what}: this needs {number // 2 + 1} of its {number} servers. {error}{hint}",
        name=name,
        key=key,
        nodes=error.nodes,
        _silent=error.silent,
    )


class BaseQuorumCore(LeaseCore):
    """The internal object of a lease on several servers. Base class for threads and for asyncio."""

    held_lease: QuorumLease
    attempt: QuorumAttempt

    @property
    def parts(self) -> tuple[tuple[Endpoint, HeldLease], ...]:
        return tuple((self.endpoint[number], node_lease) for number, node_lease in self.held_lease.node_leases.items())

    def may_hand_over(self) -> None:
        raise on_one_server(
            f"a lock with tickets ({self.name!r} is on several)",
            "if two clients redeemed a ticket at the same time, each could win some of the servers, and neither a majority",
            "release the lock, and let the other process acquire it",
            parameter="ticket",
        )

    async def renew_on_server(self, ttl: Seconds | None) -> None:
        self.check()
        quorum_lease, attempt = self.held_lease, self.attempt
        ttl = quorum_lease.ttl if ttl is None else seconds(ttl, "ttl", MIN_TTL, attempt.server_set.longest)
        now = self.process.clock()
        ttl = min(ttl, quorum_lease.ends_at - now)
        made = quorum_lease.note_request(now, ttl)
        try:
            await acquire.renew(attempt, quorum_lease, ttl, made)
        except TooFew as error:
            raise quorum_error(self.name, self.key, "could not be renewed", error) from error_map.cause(error)
        if self.expired() or quorum_lease.lost:
            self.forget()
            self.notice_loss()
            raise self.lease_lost()
        quorum_lease.ttl = ttl
        for node_lease in quorum_lease.node_leases.values():
            node_lease.ttl = ttl
        self.look_again()

    def may_be_there(self) -> bool:
        return True  # Even if the lease is lost, a minority of the servers may still have it.

    async def release_on_server(self, known: bool | WireError | None = None) -> None:  # noqa: ARG002 - no script releases all votes
        quorum_lease = self.held_lease
        lost = quorum_lease.lost
        quorum_lease.end()
        try:
            if not await acquire.release(self.attempt, quorum_lease):  # Even if it is lost: some servers may still have it.
                quorum_lease.lost = lost or "a majority of the servers no longer had it at the release"
        except TooFew as error:
            if not lost:
                raise quorum_error(self.name, self.key, "could not be released", error) from error_map.cause(error)
        finally:
            self.forget()
            if self.attempt.local_queue is not None:
                self.attempt.local_queue.on_released(self.attempt)
        if quorum_lease.lost:
            self.count_loss()
            raise self.lease_lost()

    async def give_up(self) -> None:
        await acquire.give_back(self.held_lease, self.held_lease.servers())


async def declare(server_set: ServerSet, timeout: float, *, force: bool) -> dict[str, str]:
    """Declare the servers new and return the outcome for each, as text. `declare_new` runs this operation.

    A new server has never granted a lock, so it may vote at once; but a server that has lost its data looks like a new one. So
    servers without data are declared new only if all servers answer, and none was declared before. Otherwise, they start to
    vote by themselves when the longest lease has passed. ``force``: True to declare all servers new nevertheless.
    """
    modes = ["1" if force else "0"] * len(server_set.names)
    if not force and len(modes) > 1:
        found = await _declare(server_set, timeout, ["?"] * len(modes))
        away = [name for name, code in zip(server_set.names, found, strict=True) if isinstance(code, str)]
        if away:
            return {
                name: _declared(code, f"not declared: {', '.join(away)} did not answer, and may store locks")
                for name, code in zip(server_set.names, found, strict=True)
            }
        if any(code[0] == 0 for code in found):
            modes = ["+" if code[0] in {codes.OTHER_LEASE, codes.OTHER_SERVERS} else "?" for code in found]
    return dict(zip(server_set.names, map(_declared, await _declare(server_set, timeout, modes)), strict=True))


async def _declare(server_set: ServerSet, timeout: float, modes: list[str]) -> list[Any]:
    """Ask each server to declare itself new. Return the reply of each, or a text with the reason why it does not answer.

    ``modes``: the mode of each request, which the script `DECLARE_NEW` explains.
    """
    said = AllAnswered(set(range(len(modes))))
    agreed = milliseconds(server_set.longest), server_set.digest
    await Poll([RunScript(DECLARE_NEW, (server_set.marker,), (*agreed, mode), timeout) for mode in modes], said, timeout)
    answers = [said.answers.get(number) for number in range(len(modes))]
    return [a.value if isinstance(a, Answer) else str(a or f"no answer within {timeout:g} s") for a in answers]


def _declared(code: Any, new: str = "") -> str:
    """Return a text for a server's reply. ``new``: the text for a server without data; empty: the text says that other
    servers vote already."""
    match code:
        case str():
            said = code
        case [1]:
            said = DECLARED
        case [0]:
            said = READY
        case [codes.NEW_SERVER]:
            said = new or f"not declared: other servers vote already, so this server {FORGOTTEN}; it will vote by itself later"
        case [codes.QUARANTINED, int(ms)]:
            said = f"not declared: the server {FORGOTTEN}; it will vote by itself in {ms / 1000:.1f} s"
        case [codes.OTHER_LEASE, int(ms)]:
            said = f"not declared: the server was declared with another longest lease, {ms / 1000:g} s"
        case [codes.OTHER_SERVERS, bytes()]:
            said = "not declared: the server belongs to another list of servers"
        case _:
            said = in_the_way(code).why
    return said


class QuorumCore(BaseQuorumCore, SyncLeaseCore):
    """The internal object behind a user's lease on several servers."""


class Redlock(BaseRedlock[Lease, SyncClient], BaseSyncLock[Lease]):
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


class QuorumElectionLock(LeaderLock, Redlock):
    """The lock of an election on several servers. Its holder leads."""

    _lease_type = Term


@hides_client(words=options.explain_words)
def declare_new(
    servers: SyncClient | Servers[SyncClient],
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
    endpoints, operation = declaring(servers, "sync", max_ttl=max_ttl, force=force, answer_within=answer_within, prefix=prefix)
    return Driver(current(), endpoints).run(operation)


class AioQuorumCore(BaseQuorumCore, AioLeaseCore):
    """The internal object behind a user's lease on several servers."""


@of_asyncio
class AioRedlock(BaseRedlock[AioLease, AsyncClient], BaseAioLock[AioLease]):
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

    _core_type = AioQuorumCore

    def _new_driver(self) -> Any:
        from holdfast._runtime.drivers.aio_quorum import Driver  # Imported late: programs of threads need no asyncio.

        return Driver(current(), self._endpoint)


class AioQuorumElectionLock(AioLeaderLock, AioRedlock):
    """The lock of an election on several servers. Its holder leads."""

    _lease_type = AioTerm


@of_asyncio
@hides_client("declare_new", words=options.explain_words)
async def aio_declare_new(
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
    from holdfast._runtime.drivers.aio_quorum import Driver  # Imported late: programs of threads need no asyncio.

    try:
        endpoints, operation = declaring(
            servers, "asyncio", max_ttl=max_ttl, force=force, answer_within=answer_within, prefix=prefix
        )
    finally:
        del servers  # Their URLs may contain passwords, and error reporters send the variables of each frame.
    return await Driver(current(), endpoints).run(operation)
