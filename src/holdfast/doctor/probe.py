"""Collect the facts about one server, and try each operation that a lock needs.

If the server refuses a command, the facts that the command would give stay unknown.
"""

from __future__ import annotations

import re
import secrets
import statistics
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from hiredis import ReplyError

from holdfast._api import access
from holdfast._clock import monotonic, wall
from holdfast._core.lock.replies import ACQUIRE, REFRESH, RELEASE, RENEW
from holdfast._core.names import channel, literal, marker_key, quarantine_key, start
from holdfast._core.requests import Command, Refused, RunScript, WireError
from holdfast._lua import Script, codes
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import is_noscript, pack
from holdfast._net.sync_connection import Connection as Blocking
from holdfast.doctor.facts import ConnectionFacts, Facts, KeyCounts, LockPlans
from holdfast.doctor.targets import PATIENCE, Target

LOOK = 0.5
"""Maximum seconds for counting keys, because a server may have hundreds of millions of them."""

SETTINGS = (
    "maxmemory-policy", "maxclients", "timeout", "save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write",
)  # fmt: skip


class ProbeClient(Protocol):
    """A connection to a server, or a client used in its place."""

    def exchange(self, packed: bytes) -> Any: ...


class _Client:
    """A replacement for a connection that sends each command through the user's client.

    It is used if holdfast cannot open connections like those of the client.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        from holdfast._net.client_adapter import ClientCalls

        self._calls = ClientCalls(endpoint)

    def exchange(self, packed: bytes) -> Any:
        return self._calls.exchange(packed, PATIENCE)


class ProbeConnection:
    """A connection that sends commands to a server, and returns error replies instead of raising them."""

    def __init__(self, wire: ProbeClient) -> None:
        self._wire = wire

    def ask(self, *parts: bytes | str | int) -> Any:
        """Send a command and return its reply, which may be a ReplyError. Raises WireError."""
        return self._wire.exchange(pack(Command(parts, PATIENCE)))

    def run(self, script: Script[Any], keys: tuple[bytes, ...], *args: bytes | str | int) -> Any:
        """Run a script and return its raw reply, which may be a ReplyError. Raises WireError."""
        call = RunScript(script, keys, args, PATIENCE)
        reply = self._wire.exchange(pack(call))
        return self._wire.exchange(pack(call, whole=True)) if is_noscript(reply) else reply


def collect_facts(place: Target, terms: LockPlans) -> Facts:
    """Return all facts about a server. If a request fails, raise nothing, and store the reason in `Facts.error`."""
    endpoint = place.endpoint
    facts = Facts(endpoint.address, _way(place))
    first: Blocking | None = None
    try:
        if endpoint.finder is not None:
            found = endpoint.finder.find(PATIENCE)
            place, facts.address, endpoint = replace(place, endpoint=found), endpoint.address, found
            facts.connection = _way(place)
        if endpoint.client is not None:
            line = ProbeConnection(_Client(endpoint))
        else:
            first = Blocking(endpoint, PATIENCE)
            first.set_timeout(min(PATIENCE, endpoint.timeout))
            line = ProbeConnection(first)
        pong = line.ask("PING")
        if isinstance(pong, ReplyError):
            raise Refused(str(pong), endpoint.address)
        _ask_about_itself(line, facts)
        clock(line, facts)
        _try_a_lock(line, place, facts, terms)
        if terms.redlock:
            read_marker(line, facts, marker_key(start(terms.prefix)))
        facts.keys = look_at_keys(line, terms.prefix)
    except WireError as error:
        facts.error = str(error) + access.advice(error)
    except Exception as error:  # noqa: BLE001 - a client of the user's own class may raise anything
        facts.error = f"{type(error).__name__}: {error}"
    finally:
        if first is not None:
            first.close()
    return facts


def _way(place: Target) -> ConnectionFacts:
    endpoint = place.endpoint
    options = dict(endpoint.tls or ())
    if endpoint.client is not None:
        pool = endpoint.client.connection_pool
        options |= getattr(pool, "connection_kwargs", {})
    verified = True
    if endpoint.tls is not None:
        from holdfast._net.tls import unverified

        verified = not unverified(options.get("ssl_cert_reqs", "required")) and options.get("ssl_check_hostname", True)
    return ConnectionFacts(
        host="" if endpoint.path else endpoint.host,
        db=endpoint.db,
        tls=endpoint.tls is not None,
        cluster=place.cluster is not None,
        verified=bool(verified),
        password=bool(endpoint.password or endpoint.credentials or options.get("password")),
        timeout=endpoint.timeout if endpoint.client is None else float(options.get("socket_timeout") or "inf"),
        pool=None if endpoint.client is None else getattr(endpoint.client.connection_pool, "max_connections", None),
    )


def _text(reply: object) -> str:
    return reply.decode(errors="backslashreplace") if isinstance(reply, bytes) else str(reply)


def read_info(reply: object) -> dict[str, str] | None:
    """Return the fields of INFO as a dict; None if INFO was refused."""
    if isinstance(reply, ReplyError):
        return None
    return dict(re.findall(r"^(\w+):(.*?)\r?$", _text(reply), re.MULTILINE))


def _ask_about_itself(line: ProbeConnection, facts: Facts) -> None:
    facts.info = read_info(line.ask("INFO"))
    facts.runs = (facts.info["run_id"],) if facts.info and "run_id" in facts.info else ()
    config = {}
    for name in SETTINGS:  # asked one by one, because several at once need Redis 7
        reply = line.ask("CONFIG", "GET", name)
        if isinstance(reply, ReplyError):
            break
        if isinstance(reply, list) and len(reply) == 2:
            config[name] = _text(reply[1])
    facts.config = config or None


def clock(line: ProbeConnection, facts: Facts) -> None:
    """Measure the round trip and the difference between the server's clock and this machine's, and store both in ``facts``."""
    trips = []
    for _ in range(7):
        start = monotonic()
        line.ask("PING")
        trips.append(monotonic() - start)
    facts.round_trip = statistics.median(trips)
    for _ in range(3):
        start, here = monotonic(), wall()
        reply = line.ask("TIME")
        trip = monotonic() - start
        if isinstance(reply, list) and (facts.ahead is None or trip / 2 < facts.doubt):
            facts.ahead = int(reply[0]) + int(reply[1]) / 1e6 - (here + trip / 2)
            facts.doubt = trip / 2


def read_marker(line: ProbeConnection, facts: Facts, marker: bytes) -> None:
    """Read the marker of a server that votes with others, and the server's time, into ``facts``."""
    facts.now = wall() + (facts.ahead or 0.0)
    fields = line.ask("HMGET", marker, "run", "since", "lease", "servers")
    if isinstance(fields, ReplyError):
        facts.error = str(fields)
    elif None not in fields:
        run, since, lease, servers = map(_text, fields)
        facts.marker = run, int(since) / 1000, int(lease) / 1000, servers


def _try_a_lock(line: ProbeConnection, place: Target, facts: Facts, terms: LockPlans) -> None:
    """Try a lock with two invented process ids. The first acquires the lock, the second waits, and the lock is handed over.

    Also check whether the holder receives the message that another process waits. The lock has keys of its own, which are
    removed at the end. Operations that the server refuses are recorded in ``facts``.
    """
    names = place.names(terms.prefix)
    keys, inbox_name = names.keys, channel(start(terms.prefix), names.ours)
    holder, waiter = (f"{process}.{secrets.token_hex(16)}" for process in (names.ours, names.theirs))
    refused: dict[str, str] = {}
    inbox = _inbox(place.endpoint, names.subscribe, inbox_name, facts, refused)

    def tried(operation: str, reply: Any) -> Any:
        inner = reply[1] if isinstance(reply, list) and len(reply) == 2 else None
        if isinstance(inner, list) and inner[0] == codes.SERVER_ERROR:
            reply = ReplyError(_text(inner[1]))
        if isinstance(reply, ReplyError):
            refused.setdefault(operation, str(reply).partition(", with args beginning with")[0])
        return reply

    try:
        taken = tried("to acquire a lock", line.run(ACQUIRE, keys, holder, 10_000, 0))
        if isinstance(taken, list):
            facts.acknowledged = _acknowledged(line, terms)
            tried("to renew a lock", line.run(RENEW, keys, holder, 10_000, 1))
            tried("to wait for a lock", line.run(ACQUIRE, keys, waiter, 10_000, 1))
            listed = tried("to keep a place in a queue", line.run(REFRESH, keys, inbox_name, waiter, 10_000))
            if inbox is not None and isinstance(listed, list):
                facts.listed = not isinstance(line.ask("PUBSUB", names.numsub, inbox_name), ReplyError)
                facts.heard = None if "to wait for a lock" in refused else _hears(inbox)
            tried("to release a lock", line.run(RELEASE, keys, holder, "release"))
    finally:
        if inbox is not None:
            inbox.close()
        with suppress(WireError):
            for token in (holder, waiter):
                line.run(RELEASE, keys, token, "leave")
            line.ask("DEL", *keys)
    tried("to write a process record", line.ask("SET", names.record, "doctor", "PX", 1000))
    tried("to read who holds a lock", line.ask("GETRANGE", names.record, "0", "4096"))
    tried("to check whether a lock is held", line.ask("EXISTS", keys[0]))
    tried("to delete the process record", line.ask("DEL", names.record))
    facts.refused = refused


def _acknowledged(line: ProbeConnection, terms: LockPlans) -> int | str | None:
    """Return the number of replicas that have acknowledged the last write, or the error by which the server refuses WAIT.

    Return None if ``terms`` requires no replicas.
    """
    if not terms.replicas:
        return None
    reply = line.ask("WAIT", terms.replicas, 1000)
    return str(reply) if isinstance(reply, ReplyError) else int(reply)


def _inbox(endpoint: Endpoint, how: str, inbox: bytes, facts: Facts, refused: dict[str, str]) -> Blocking | None:
    """Open a second connection, and subscribe it to the channel ``inbox`` with the command ``how`` (SUBSCRIBE or SSUBSCRIBE).

    Return None if the server refuses the command, and record the error in ``refused``. Return None also if requests must go
    through the user's client, because holdfast cannot open connections like those of the client.
    """
    if endpoint.client is not None:
        return None
    connection = Blocking(endpoint, PATIENCE)
    try:
        connection.set_timeout(PATIENCE)
        info = read_info(ProbeConnection(connection).ask("INFO", "server")) or {}
        if "run_id" in info:
            facts.runs += (info["run_id"],)
        reply = ProbeConnection(connection).ask(how, inbox)
    except BaseException:
        connection.close()
        raise
    if isinstance(reply, ReplyError):
        refused["to subscribe"] = str(reply)
        connection.close()
        return None
    return connection


def _hears(inbox: Blocking) -> bool:
    """Return True if the message that was published when the waiter joined the queue arrives within a second."""
    inbox.set_timeout(1.0)
    try:
        return any(isinstance(reply, list) and reply[0] in {b"message", b"smessage"} for reply in inbox.receive())
    except WireError:
        return False


def look_at_keys(line: ProbeConnection, prefix: str) -> KeyCounts | None:
    """Count the keys that begin with ``prefix``, for at most LOOK seconds. Return None if the server refuses a command."""
    found, cursor, end = KeyCounts(), b"0", monotonic() + LOOK
    markers = {marker_key(start(prefix)), quarantine_key(start(prefix))}
    while monotonic() < end:
        reply = line.ask("SCAN", cursor, "MATCH", literal(prefix.encode()) + b"*", "COUNT", 1000)
        if isinstance(reply, ReplyError):
            return None
        cursor, page = reply
        for key in page:
            if key in markers:  # the marker of the longest lease has no expiry on purpose
                continue
            left = line.ask("PTTL", key)
            if isinstance(left, ReplyError):
                return None
            found.seen += left != -2
            if left == -1:
                found.endless += 1
                found.examples = [*found.examples, key][:3]
            if monotonic() > end:
                return found
        if cursor == b"0":
            found.complete = True
            break
    return found
