"""The rules of the doctor: functions that derive findings, with consequences and remedies, from the facts about servers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast._core.lock.spec import answer_within
from holdfast._core.quorum.votes import ServerSet
from holdfast.doctor.facts import Facts, Finding, Level, LockPlans

SKEW = 0.5
"""Two clocks that differ by more seconds than this cause a note or a warning."""

HINT = 2.0
"""A `Redlock` fence, which is a time, is at most this many seconds ahead of a server's clock.

`_lua/quorum/vote.lua` has the same limit.
"""


def diagnose(facts: Facts, terms: LockPlans) -> list[Finding]:
    """Return all findings about one server, in the order of the checks."""
    if facts.error:
        return [_unreachable(facts)]
    return [finding for check in CHECKS for finding in check(facts, terms)]


def compare(servers: Sequence[Facts], terms: LockPlans) -> list[Finding]:
    """Return the findings from a comparison of servers that vote together (`Redlock`); an empty list for other servers."""
    reached = [facts for facts in servers if not facts.error]
    if not terms.redlock:
        return []
    return [*_number(servers), *_votes(servers, terms), *_twice(reached), *_clocks(reached), *_versions(reached)]


def _unreachable(facts: Facts) -> Finding:
    remedy = "start the server, or correct its URL or the network"
    if not facts.connection.tls and ("closed the connection" in facts.error or "reset by peer" in facts.error):
        remedy = "if the server uses TLS, begin its URL with rediss://"
    for sign, what in {
        "NOAUTH": "put user and password into the URL",
        "WRONGPASS": "correct user and password in the URL",
        "DENIED": "set a password on the server, or bind it to an address that only its users can reach",
        "max number of clients": "raise maxclients, or find out which clients keep so many connections",
        "cluster support disabled": "the server is not a Cluster: begin its URL with redis://",
        "TLS": "add ssl_ca_certs to the URL, and ssl_certfile if the server requires a certificate of the client",
    }.items():
        if sign in facts.error:
            remedy = what
    return Finding("problem", "reach", facts.error, "no lock can be acquired there", remedy)


def flavour(facts: Facts) -> str:
    """Return the name and version of the server. The field ``redis_version`` is not enough, because other servers have it,
    too."""
    info = facts.info or {}
    for key, value in info.items():
        if key.endswith("_version") and key.removesuffix("_version") in {"valkey", "dragonfly", "redict", "kvrocks", "garnet"}:
            return f"{key.removesuffix('_version').capitalize()} {value}"
    name = "KeyDB" if "mvcc_depth" in info else "Redis"
    return f"{name} {info['redis_version']}" if "redis_version" in info else "a server of unknown kind"


def _what_it_is(facts: Facts, terms: LockPlans) -> Iterator[Finding]:
    info = facts.info
    if info is None:
        yield Finding("note", "version", "INFO is refused", "role, memory and persistence cannot be checked", "allow +info")
        return
    role = {"master": "primary", "slave": "replica"}.get(info.get("role", ""), "role unknown")
    yield Finding("ok", "version", f"{flavour(facts)}, {role}, up for {facts.number('uptime_in_seconds')} s")
    version = [int(part) for part in info.get("redis_version", "").split(".")[:2] if part.isdecimal()]
    if version and version < [6, 2]:
        why = "the oldest version that holdfast is tested with is 6.2"
        yield Finding("problem", "version", f"{flavour(facts)} is too old", why, "upgrade the server")
    mode = info.get("server_mode", info.get("redis_mode"))  # Valkey uses another field
    if mode == "sentinel":
        remedy = "begin its URL with redis+sentinel://"
        yield Finding("problem", "role", "this is a Sentinel", "it stores no data", remedy)
    if mode == "cluster" and not facts.connection.cluster:
        why = "it stores only some of the locks, and refuses the others"
        yield Finding("problem", "role", "this is one server of a Cluster", why, "begin its URL with redis+cluster://")
    if info.get("role") == "slave":
        why = "a replica refuses writes: no lock can be acquired here"
        yield Finding("problem", "role", "this is a replica", why, "pass the URL of the primary, or of its Sentinels")
    if info.get("loading") == "1":
        yield Finding("problem", "role", "it is loading its data", "it answers when it has finished", "wait")
    if "uptime_in_seconds" in info and facts.number("uptime_in_seconds") < terms.ttl and not terms.redlock:
        why = "it may grant again the locks that it has lost, while their holders believe they hold them"
        yield Finding("note", "version", "it was started less than a lease ago", why, "check fences (holdfast.fencing)")
    if len(set(facts.runs)) > 1:
        why = "locks acquired on one do not exist on the other"
        yield Finding("problem", "reach", "two connections led to two servers", why, "pass the URL of one server")


def _round_trip(facts: Facts, terms: LockPlans) -> Iterator[Finding]:
    trip = facts.round_trip
    if trip is None:
        return
    limit = answer_within(terms.ttl)
    said = f"answers in {trip * 1000:.2f} ms"
    if trip > limit / 4:
        why = f"with a lease of {terms.ttl:g} s a request is repeated if no answer comes within {limit:g} s"
        yield Finding("warning", "round trip", said, why, "use a longer ttl, or a server nearby")
    else:
        yield Finding("ok", "round trip", said)
    timeout = facts.connection.timeout
    if timeout < max(10 * trip, 0.05):
        why = "an answer that comes a little late is lost, and the request is repeated"
        yield Finding("warning", "client", f"socket_timeout is {timeout:g} s", why, "set it to a second or more")
    pool = facts.connection.pool
    if pool is not None:
        why = "holdfast cannot open connections like this client's, so locks share the connections of its pool"
        level: Level = "warning" if pool < 10 else "note"
        remedy = "pass a plain client, or set max_connections to 10 or more"
        yield Finding(level, "client", f"a pool of {pool} connections", why, remedy)
        if timeout > terms.ttl / 3:
            why = "a renewal that hangs for that long leaves no time for a retry"
            yield Finding("warning", "client", f"socket_timeout is {timeout:g} s", why, f"set at most {terms.ttl / 3:g} s")


def _clock(facts: Facts, terms: LockPlans) -> Iterator[Finding]:
    if facts.ahead is None or terms.redlock:
        return
    off = abs(facts.ahead)
    which = "ahead of" if facts.ahead > 0 else "behind"
    said = f"its clock is {off:.3g} s {which} ours" if off > facts.doubt else "its clock agrees with ours"
    if off > SKEW + facts.doubt:
        why = "leases do not depend on this clock, but fences after a failover to another server do"
        yield Finding("note", "clock", said, why, "run NTP on both")
    else:
        yield Finding("ok", "clock", said)


def _memory(facts: Facts, _terms: LockPlans) -> Iterator[Finding]:
    info = facts.info or {}
    policy = info.get("maxmemory_policy") or facts.setting("maxmemory-policy")
    if policy is None:
        why = "a server that evicts keys evicts locks"
        yield Finding("note", "memory", "maxmemory-policy is unknown", why, "set it to noeviction")
        return
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    if policy != "noeviction":
        why = "when memory is full it evicts locks while they are held, and another client gets them"
        remedy = "maxmemory-policy noeviction, or a separate server for locks"
        said = f"maxmemory-policy is {policy}"
        if limit:
            yield Finding("problem", "memory", said, why, remedy)
        else:
            yield Finding("note", "memory", f"{said}; there is no maxmemory, so nothing is evicted now", why, remedy)
        return
    if limit and used > 0.9 * limit:
        said = f"{100 * used // limit} % of maxmemory is used"
        yield Finding("warning", "memory", said, "new locks are refused when memory is full", "raise maxmemory, or free memory")
    else:
        yield Finding("ok", "memory", "nothing is evicted")


def _persistence(facts: Facts, terms: LockPlans) -> Iterator[Finding]:
    info = facts.info
    if info is None:
        return
    if info.get("rdb_last_bgsave_status") == "err" and facts.setting("stop-writes-on-bgsave-error") != "no":
        yield Finding(
            "problem", "persistence", "its last snapshot failed", "it refuses writes (MISCONF), and so every lock",
            "see its log: most often the disk is full, or its directory cannot be written",
        )  # fmt: skip
    if info.get("aof_enabled") == "1" and info.get("aof_last_write_status") == "err":
        yield Finding(
            "problem", "persistence", "its append-only file cannot be written",
            "it refuses writes (MISCONF), and so every lock", "see its log: most often the disk is full",
        )  # fmt: skip
    if terms.redlock:
        # A server that has restarted does not vote until all leases from before have ended. So two clients never hold one lock.
        if info.get("aof_enabled") == "1":
            yield Finding("ok", "persistence", "append-only file: held locks outlive a restart of all servers")
        else:
            why = "if a majority of the servers restarts, held locks are lost; none of them is granted twice"
            yield Finding("note", "persistence", "no append-only file", why, "appendonly yes")
        return
    fences = f"or {_without_memory(facts)}"
    if info.get("aof_enabled") != "1":
        why = "a restart loses the locks, and the server grants them again while they are held"
        snapshots = facts.setting("save")
        said = "no append-only file" + (", only snapshots" if snapshots else "")
        yield Finding("warning", "persistence", said, why, f"appendonly yes; {fences}")
        return
    fsync = facts.setting("appendfsync")
    if fsync == "always":
        yield Finding("ok", "persistence", "append-only file, appendfsync always")
    else:
        why = "a power failure loses the locks of the last second, and they are granted again while they are held"
        said = f"append-only file, appendfsync {fsync or 'unknown'}"
        yield Finding("note", "persistence", said, why, f"appendfsync always; {fences}")


def _without_memory(facts: Facts) -> str:
    """Return the remedies for a server that may lose locks in a restart or failover."""
    return f"{'' if facts.connection.cluster else 'quarantine=, or '}check fences (holdfast.fencing)"


def _replication(facts: Facts, terms: LockPlans) -> Iterator[Finding]:
    attached = facts.number("connected_slaves")
    if terms.replicas:
        yield _acknowledged(facts, terms)
    least = facts.setting("min-replicas-to-write") or facts.setting("min-slaves-to-write")
    good = facts.number("min_slaves_good_slaves")
    if least and least != "0" and good < int(least):
        said = f"min-replicas-to-write is {least}, but only {good} replicas keep up"
        yield Finding("problem", "replicas", said, "it refuses writes (NOREPLICAS), and so every lock", "repair the replicas")
    elif attached and not terms.redlock:
        said = f"{attached} replicas"
        if least == "0":
            why = "a primary that is cut off continues to grant locks, as does the replica promoted in its place"
            yield Finding("warning", "replicas", said, why, "min-replicas-to-write 1, min-replicas-max-lag 10")
        elif not terms.replicas:
            why = "replication is asynchronous: a failover may lose the newest locks"
            yield Finding("note", "replicas", said, why, _without_memory(facts))
    elif facts.connection.cluster and "connected_slaves" in (facts.info or {}):
        why = "while it is down its locks cannot be acquired: no replica takes its place"
        yield Finding("note", "replicas", "no replica", why, "add a replica for each primary")


def _acknowledged(facts: Facts, terms: LockPlans) -> Finding:
    found = facts.acknowledged
    if isinstance(found, int) and found >= terms.replicas:
        return Finding("ok", "replicas", f"{found} replicas have acknowledged a write")
    if isinstance(found, str):
        said, remedy = f"WAIT is refused: {found}", "allow +wait"
    else:
        said, remedy = (
            f"{found or 0} of {terms.replicas} replicas have acknowledged a write",
            "repair the replicas, or require fewer",
        )
    return Finding("problem", "replicas", said, f"a lock with replicas={terms.replicas} cannot be acquired", remedy)


_REMEDIES = {
    "NOPERM": "holdfast acl prints the rights that its user needs",
    "ACL failure": "holdfast acl prints the rights that its user needs",
    "The user executing": "holdfast acl prints the rights that its user needs",
    "NOAUTH": "put user and password into the URL",
    "READONLY": "pass the URL of the primary, or of its Sentinels",
    "MOVED": "this is one server of a Cluster, whose URL begins with redis+cluster://",
    "CROSSSLOT": "this is one server of a Cluster, whose URL begins with redis+cluster://",
    "CLUSTERDOWN": "repair the Cluster",
    "OOM": "raise maxmemory, or free memory",
    "MISCONF": "see its log: most often the disk is full",
    "NOREPLICAS": "repair the replicas, or lower min-replicas-to-write",
    "unknown command": "undo the rename-command of its configuration",
    "LOADING": "wait until it has loaded its data",
    "BUSY": "wait until the running script has ended, or end it with SCRIPT KILL",
}


def _rights(facts: Facts, _terms: LockPlans) -> Iterator[Finding]:
    for operation, said in facts.refused.items():
        remedy = next((text for sign, text in _REMEDIES.items() if sign in said), "see the server's reply")
        yield Finding("problem", "lock", f"{operation} is refused: {said}", "locks do not work there", remedy)
    if not facts.refused:
        yield Finding("ok", "lock", "a lock was acquired, renewed, handed over and released")
    if facts.heard is False and "subscribe" not in facts.refused:
        yield Finding(
            "warning", "messages", "a message that a script published did not arrive",
            "a waiter notices a released lock only by asking once a second, not at once",
            "allow +publish on the channels PREFIXinbox:* (`holdfast acl`); a proxy in between must forward messages",
        )  # fmt: skip
    if facts.listed is False:
        why = "a lost subscription is noticed late"
        yield Finding("note", "messages", "PUBSUB NUMSUB is refused", why, "allow +pubsub|numsub")


def _clients(facts: Facts, _terms: LockPlans) -> Iterator[Finding]:
    clients, most = facts.number("connected_clients"), facts.number("maxclients") or int(facts.setting("maxclients") or 0)
    if most and clients > 0.9 * most:
        said = f"{clients} of {most} connections are in use"
        yield Finding("warning", "connections", said, "further clients cannot connect", "raise maxclients")
    idle = int(facts.setting("timeout") or 0)
    if idle:
        why = "the first request after a pause finds its connection closed, and is repeated"
        level: Level = "warning" if idle < 10 else "note"
        yield Finding(level, "connections", f"timeout is {idle} s", why, "timeout 0")
    if facts.config is None:
        why = "appendfsync, timeout and min-replicas-to-write cannot be checked"
        yield Finding("note", "configuration", "CONFIG is refused, as on managed servers", why, "check them by hand")


def _keys(facts: Facts, _terms: LockPlans) -> Iterator[Finding]:
    keys = facts.keys
    if keys is None:
        yield Finding("note", "keys", "SCAN is refused", "locks without an expiry cannot be found", "allow +scan +pttl")
        return
    part = "" if keys.complete else ", and the server has more keys than were checked"
    if keys.endless:
        few = ", ".join(key.decode(errors="backslashreplace") for key in keys.examples)
        why = "a lock without expiry stays held forever if its holder crashes: another program has written it"
        remedy = "find the program, then DEL; set timeout= for a redis-py lock"
        yield Finding("warning", "keys", f"{keys.endless} keys of locks have no expiry{part}: {few}", why, remedy)
    else:
        yield Finding("ok", "keys", f"{keys.seen} keys of locks, each with an expiry{part}")


def _way(facts: Facts, _terms: LockPlans) -> Iterator[Finding]:
    way = facts.connection
    if way.tls and not way.verified:
        why = "an attacker in between can read the password, and grant locks"
        yield Finding(
            "warning", "TLS", "the server is not verified", why, "leave out ssl_cert_reqs; set ssl_ca_certs to your CA"
        )
    if not way.tls and not way.local:
        what = "the password and" if way.password else "all"
        yield Finding("note", "TLS", "the connection is not encrypted", f"{what} tokens can be read in transit", "rediss://")
    if not way.password and not way.local:
        why = "everybody who reaches the server can acquire and release locks"
        yield Finding("note", "access", "no password", why, "create a user for locks: holdfast acl")
    if way.db:
        why = "clients that use another database of this server do not see these locks"
        yield Finding("note", "database", f"database {way.db}", why, "use the same database for all")


CHECKS = (
    _what_it_is, _rights, _memory, _persistence, _replication, _round_trip, _clock, _clients, _keys, _way,
)  # fmt: skip


def _number(servers: Sequence[Facts]) -> Iterator[Finding]:
    number = len(servers)
    if number % 2 == 0:
        why = f"with {number} servers {(number - 1) // 2} may fail, as many as with {number - 1}"
        yield Finding("problem", "servers", f"an even number of servers, {number}", why, "use an odd number, 3 or 5")
    away = sum(bool(facts.error) for facts in servers)
    if away * 2 >= number:
        said = f"{away} of {number} servers are unreachable"
        yield Finding("problem", "servers", said, "there is no majority: no lock can be acquired", "restart them")
    elif away:
        left = (number - 1) // 2 - away
        said = f"{away} of {number} servers are unreachable"
        yield Finding("warning", "servers", said, f"{left} more may fail", "restart them")


def _votes(servers: Sequence[Facts], terms: LockPlans) -> Iterator[Finding]:
    leases = Counter(facts.marker[2] for facts in servers if facts.marker is not None)
    longest = leases.most_common(1)[0][0] if leases else 0.0
    server_set = ServerSet(tuple(facts.address for facts in servers), terms.servers, longest)
    silent = {facts.address: why for facts in servers for votes, why in [vote(facts, server_set)] if not votes}
    number = len(servers) - len(silent)
    if not silent:
        yield Finding("ok", "votes", f"all {number} servers vote")
        return
    said = f"{number} of {len(servers)} servers vote, {server_set.majority} are needed"
    why = "; ".join(f"{address} {reason}" for address, reason in silent.items())
    remedy = "holdfast nodes says more; declare new servers once, by holdfast nodes init"
    if number < server_set.majority:
        yield Finding("problem", "votes", said, f"no lock can be acquired over these servers: {why}", remedy)
    else:
        yield Finding("warning", "votes", said, why, remedy)


def vote(facts: Facts, server_set: ServerSet) -> tuple[bool, str]:
    """Return True and "votes" if the server takes part in votes. Otherwise return False, and the reason as text."""
    if facts.error:
        return False, facts.error
    if facts.marker is None:
        waits = f"votes {server_set.longest:g} s after the first request" if server_set.longest else "does not vote yet"
        return False, f"is new, or has lost its data: {waits}. Only if it is new: holdfast nodes init"
    run, since, lease, servers = facts.marker
    if lease != server_set.longest:
        return False, f"its users have agreed on max_ttl={lease:g}"
    if servers != server_set.digest:
        return False, "its users have agreed on another list of servers"
    wait = math.ceil(lease * 1010) / 1000 + 0.002
    if facts.info is not None and facts.info.get("run_id") != run:
        return False, f"was restarted: votes {wait:.0f} s after the first request"
    left = since + wait - facts.now
    return (False, f"may have lost votes; votes again in {left:.0f} s") if left > 0 else (True, "votes")


def _twice(servers: Sequence[Facts]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for facts in servers:
        run = facts.runs[0] if facts.runs else ""
        if run and run in seen:
            said = f"{seen[run]} and {facts.address} are the same server"
            yield Finding("problem", "servers", said, "its vote would count twice", "pass each server once")
        seen.setdefault(run, facts.address)


def _clocks(servers: Sequence[Facts]) -> Iterator[Finding]:
    known = sorted((facts.ahead, facts.doubt, facts.address) for facts in servers if facts.ahead is not None)
    if len(known) < 2:
        return
    apart, doubt = known[-1][0] - known[0][0], known[-1][1] + known[0][1]
    said = f"the clocks of {known[0][2]} and {known[-1][2]} are {apart:.3g} s apart"
    if apart > HINT + doubt:
        why = f"a server issues no fence more than {HINT:g} s ahead of its clock, so each lock takes one more round"
        yield Finding("problem", "clock", said, why, "run NTP on all")
    elif apart > SKEW + doubt:
        yield Finding(
            "warning", "clock", said, f"if this grows beyond {HINT:g} s, each lock takes one more round", "run NTP on all"
        )
    else:
        yield Finding("ok", "clock", f"the clocks agree, within {max(apart, doubt):.2g} s")


def _versions(servers: Sequence[Facts]) -> Iterator[Finding]:
    found = sorted({flavour(facts) for facts in servers if facts.info})
    if len(found) > 1:
        yield Finding("note", "version", f"different versions: {', '.join(found)}", "this does no harm to locks", "")
