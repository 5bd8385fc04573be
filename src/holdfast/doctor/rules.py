"""From facts to findings: what they mean for locks, and what to do. Asks nobody anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast._core.lock.records import answer_within
from holdfast.doctor.facts import Facts, Finding, Level, Terms

SKEW = 0.5
"""Seconds of difference between clocks that are worth a word."""

HINT = 2.0
"""Seconds by which the fence of several servers may be ahead of the clock of any of them, as in `_lua/quorum/vote.lua`."""


def judge(facts: Facts, terms: Terms) -> list[Finding]:
    """All findings about one server, the worst last."""
    if facts.error:
        return [_unreachable(facts)]
    return [finding for check in CHECKS for finding in check(facts, terms)]


def compare(servers: Sequence[Facts], terms: Terms) -> list[Finding]:
    """Rules that need a look at several servers together."""
    reached = [facts for facts in servers if not facts.error]
    return [*_number(servers), *_twice(reached), *_clocks(reached), *_versions(reached)] if terms.redlock else []


def _unreachable(facts: Facts) -> Finding:
    remedy = "start it, or mend its URL, or the way to it"
    if not facts.connection.tls and ("closed the connection" in facts.error or "reset by peer" in facts.error):
        remedy = "if it speaks TLS, its URL starts with rediss://"
    for sign, what in {
        "NOAUTH": "put user and password into the URL",
        "WRONGPASS": "mend user and password in the URL",
        "DENIED": "set a password on the server, or bind it to an address that only its users reach",
        "max number of clients": "raise maxclients, or find out who keeps so many connections",
        "cluster support disabled": "it is no Cluster: its URL starts with redis://",
        "TLS": "see the page on servers, TLS",
    }.items():
        if sign in facts.error:
            remedy = what
    return Finding("problem", "reach", facts.error, "no lock can be taken there", remedy)


def flavour(facts: Facts) -> str:
    """Name and version. ``redis_version`` alone says nothing: others show that of the Redis they are compatible with."""
    info = facts.info or {}
    for key, value in info.items():
        if key.endswith("_version") and key.removesuffix("_version") in {"valkey", "dragonfly", "redict", "kvrocks", "garnet"}:
            return f"{key.removesuffix('_version').capitalize()} {value}"
    name = "KeyDB" if "mvcc_depth" in info else "Redis"
    return f"{name} {info['redis_version']}" if "redis_version" in info else "a server that does not say what it is"


def _what_it_is(facts: Facts, terms: Terms) -> Iterator[Finding]:
    info = facts.info
    if info is None:
        yield Finding("note", "version", "INFO is refused", "role, memory and persistence cannot be looked at", "allow +info")
        return
    role = {"master": "primary", "slave": "replica"}.get(info.get("role", ""), "role unknown")
    yield Finding("ok", "version", f"{flavour(facts)}, {role}, up for {facts.number('uptime_in_seconds')} s")
    version = [int(part) for part in info.get("redis_version", "").split(".")[:2] if part.isdecimal()]
    if version and version < [6, 2]:
        why = "the oldest that holdfast is tested on is 6.2"
        yield Finding("problem", "version", f"{flavour(facts)} is too old", why, "upgrade the server")
    mode = info.get("server_mode", info.get("redis_mode"))  # Valkey has its own name for it
    if mode == "sentinel":
        yield Finding("problem", "role", "this is a Sentinel", "it keeps no data", "name it as a Sentinel, not as the server")
    if mode == "cluster" and not facts.connection.cluster:
        why = "it has some of the locks only, and refuses the others"
        yield Finding("problem", "role", "this is one server of a Cluster", why, "name all of it: redis+cluster://host:port")
    if info.get("role") == "slave":
        why = "a replica takes no writes: no lock can be had here"
        yield Finding("problem", "role", "this is a replica", why, "name the primary, or the Sentinels that know it")
    if info.get("loading") == "1":
        yield Finding("problem", "role", "it is loading its data", "it answers when it has done so", "wait")
    if "uptime_in_seconds" in info and facts.number("uptime_in_seconds") < terms.ttl and not terms.redlock:
        why = "locks that it has forgotten are given away again, while their holders may still believe in them"
        yield Finding("note", "version", "it was started less than a lease ago", why, "check fences, see the page on promises")
    if len(set(facts.runs)) > 1:
        why = "locks taken on one do not exist on the other"
        yield Finding(
            "problem", "reach", "two connections led to two servers", why, "name one server, not a balancer of several"
        )


def _round_trip(facts: Facts, terms: Terms) -> Iterator[Finding]:
    trip = facts.round_trip
    if trip is None:
        return
    limit = answer_within(terms.ttl)
    said = f"answers in {trip * 1000:.2f} ms"
    if trip > limit / 4:
        why = f"with a lease of {terms.ttl:g} s an answer has to come within {limit:g} s, or is asked for again"
        yield Finding("warning", "round trip", said, why, "use a longer ttl, or a server that is nearer")
    else:
        yield Finding("ok", "round trip", said)
    timeout = facts.connection.timeout
    if timeout < max(10 * trip, 0.05):
        why = "an answer that comes a little late counts as none, and is asked for again"
        yield Finding("warning", "client", f"socket_timeout is {timeout:g} s", why, "give it a second or more")
    pool = facts.connection.pool
    if pool is not None:
        why = "holdfast cannot open connections of this client's kind, so locks compete for those in its pool"
        level: Level = "warning" if pool < 10 else "note"
        yield Finding(level, "client", f"a pool of {pool} connections", why, "a plain client, or max_connections of 10 or more")
        if timeout > terms.ttl / 3:
            why = "a renewal that hangs for so long leaves no time to try again"
            yield Finding("warning", "client", f"socket_timeout is {timeout:g} s", why, f"at most {terms.ttl / 3:g} s")


def _clock(facts: Facts, terms: Terms) -> Iterator[Finding]:
    if facts.ahead is None or terms.redlock:
        return
    off = abs(facts.ahead)
    which = "ahead of" if facts.ahead > 0 else "behind"
    said = f"its clock is {off:.3g} s {which} ours" if off > facts.doubt else "its clock is as ours"
    if off > SKEW + facts.doubt:
        why = "leases do not depend on it, but fences after a fail-over to another server do"
        yield Finding("note", "clock", said, why, "run NTP on both")
    else:
        yield Finding("ok", "clock", said)


def _memory(facts: Facts, _terms: Terms) -> Iterator[Finding]:
    info = facts.info or {}
    policy = info.get("maxmemory_policy") or facts.setting("maxmemory-policy")
    if policy is None:
        why = "a server that evicts keys evicts locks"
        yield Finding("note", "memory", "maxmemory-policy is not told", why, "make sure that it is noeviction")
        return
    limit, used = facts.number("maxmemory"), facts.number("used_memory")
    if policy != "noeviction":
        why = "when memory is full it throws locks away while they are held, and somebody else gets them"
        remedy = "maxmemory-policy noeviction, or a server of their own for locks"
        said = f"maxmemory-policy is {policy}"
        if limit:
            yield Finding("problem", "memory", said, why, remedy)
        else:
            yield Finding("note", "memory", f"{said}; there is no maxmemory, so it does not evict now", why, remedy)
        return
    if limit and used > 0.9 * limit:
        said = f"{100 * used // limit} % of maxmemory are used"
        yield Finding("warning", "memory", said, "new locks are refused when it is full", "raise maxmemory, or make room")
    else:
        yield Finding("ok", "memory", "nothing is evicted")


def _persistence(facts: Facts, terms: Terms) -> Iterator[Finding]:
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
        yield Finding("ok", "persistence", "may be as it is: a server that was started again does not vote for a while")
        return
    fences = f"or {_without_memory(facts)}"
    if info.get("aof_enabled") != "1":
        why = "after a restart it has forgotten its locks, and gives them away while they are held"
        snapshots = facts.setting("save")
        said = "no append-only file" + (", only snapshots" if snapshots else "")
        yield Finding("warning", "persistence", said, why, f"appendonly yes; {fences}")
        return
    fsync = facts.setting("appendfsync")
    if fsync == "always":
        yield Finding("ok", "persistence", "append-only file, appendfsync always")
    else:
        why = "the locks of the last second are lost with its power, and given away while they are held"
        said = f"append-only file, appendfsync {fsync or 'not told'}"
        yield Finding("note", "persistence", said, why, f"appendfsync always; {fences}")


def _without_memory(facts: Facts) -> str:
    """Return the remedies where a server may lose locks."""
    return f"{'' if facts.connection.cluster else 'quarantine=, or '}check fences: see the page on promises"


def _replication(facts: Facts, terms: Terms) -> Iterator[Finding]:
    attached = facts.number("connected_slaves")
    if terms.replicas:
        yield _acknowledged(facts, terms)
    least = facts.setting("min-replicas-to-write") or facts.setting("min-slaves-to-write")
    good = facts.number("min_slaves_good_slaves")
    if least and least != "0" and good < int(least):
        said = f"min-replicas-to-write is {least}, but only {good} replicas keep up"
        yield Finding("problem", "replicas", said, "it refuses writes (NOREPLICAS), and so every lock", "mend the replicas")
    elif attached and not terms.redlock:
        said = f"{attached} replicas"
        if least == "0":
            why = "a primary that is cut off goes on granting locks, beside the one that was made in its place"
            yield Finding("warning", "replicas", said, why, "min-replicas-to-write 1, min-replicas-max-lag 10")
        elif not terms.replicas:
            why = "replication is asynchronous: a fail-over may lose the newest locks"
            yield Finding("note", "replicas", said, why, _without_memory(facts))
    elif facts.connection.cluster and "connected_slaves" in (facts.info or {}):
        why = "while it is away its locks cannot be had: nobody takes its place"
        yield Finding("note", "replicas", "no replica", why, "a replica for each primary")


def _acknowledged(facts: Facts, terms: Terms) -> Finding:
    found = facts.acknowledged
    if isinstance(found, int) and found >= terms.replicas:
        return Finding("ok", "replicas", f"{found} replicas have acknowledged a write")
    if isinstance(found, str):
        said, remedy = f"WAIT is refused: {found}", "allow +wait"
    else:
        said, remedy = (
            f"{found or 0} of {terms.replicas} replicas have acknowledged a write",
            "mend the replicas, or ask for fewer",
        )
    return Finding("problem", "replicas", said, f"a lock with replicas={terms.replicas} cannot be had", remedy)


_REMEDIES = {
    "NOPERM": "holdfast acl prints the rights that its user needs",
    "ACL failure": "holdfast acl prints the rights that its user needs",
    "The user executing": "holdfast acl prints the rights that its user needs",
    "NOAUTH": "put user and password into the URL",
    "READONLY": "name the primary, or the Sentinels that know it",
    "MOVED": "this is a node of a cluster: name it as a cluster",
    "CROSSSLOT": "this is a node of a cluster: name it as a cluster",
    "CLUSTERDOWN": "mend the cluster",
    "OOM": "raise maxmemory, or make room",
    "MISCONF": "see its log: most often the disk is full",
    "NOREPLICAS": "mend the replicas, or lower min-replicas-to-write",
    "unknown command": "undo the rename-command of its configuration",
    "LOADING": "wait until it has loaded its data",
    "BUSY": "wait until the script that runs there has ended, or SCRIPT KILL",
}


def _rights(facts: Facts, _terms: Terms) -> Iterator[Finding]:
    for operation, said in facts.refused.items():
        remedy = next((text for sign, text in _REMEDIES.items() if sign in said), "see what it says")
        yield Finding("problem", "lock", f"{operation} is refused: {said}", "locks do not work there", remedy)
    if not facts.refused:
        yield Finding("ok", "lock", "a lock was taken, renewed, handed over and given back")
    if facts.heard is False and "subscribe" not in facts.refused:
        yield Finding(
            "warning", "messages", "a message that a script published did not arrive",
            "who waits for a lock finds out by asking once a second, instead of at once",
            "allow +publish on the channels PREFIXinbox:* (`holdfast acl`); a proxy in between must pass on messages",
        )  # fmt: skip
    if facts.listed is False:
        why = "a listener that got lost is found out late"
        yield Finding("note", "messages", "PUBSUB NUMSUB is refused", why, "allow +pubsub|numsub")


def _clients(facts: Facts, _terms: Terms) -> Iterator[Finding]:
    clients, most = facts.number("connected_clients"), facts.number("maxclients") or int(facts.setting("maxclients") or 0)
    if most and clients > 0.9 * most:
        said = f"{clients} of {most} connections are in use"
        yield Finding("warning", "connections", said, "who comes last cannot connect", "raise maxclients")
    idle = int(facts.setting("timeout") or 0)
    if idle:
        why = "the first request after a pause finds its connection closed, and is sent again"
        level: Level = "warning" if idle < 10 else "note"
        yield Finding(level, "connections", f"timeout is {idle} s", why, "timeout 0")
    if facts.config is None:
        why = "appendfsync, timeout and min-replicas-to-write cannot be looked at"
        yield Finding("note", "configuration", "CONFIG is refused, as on managed servers", why, "look there by hand")


def _keys(facts: Facts, _terms: Terms) -> Iterator[Finding]:
    keys = facts.keys
    if keys is None:
        yield Finding("note", "keys", "SCAN is refused", "locks that never end cannot be looked for", "allow +scan +pttl")
        return
    part = "" if keys.complete else " among the first; the server has more keys than were looked at"
    if keys.endless:
        few = ", ".join(key.decode(errors="backslashreplace") for key in keys.examples)
        why = "a lock without one is taken for ever if its holder crashes: somebody has written it with another program"
        remedy = "see who it is, then DEL; a redis-py lock wants timeout="
        yield Finding("warning", "keys", f"{keys.endless} keys of locks have no expiry{part}: {few}", why, remedy)
    else:
        yield Finding("ok", "keys", f"{keys.seen} keys of locks, each with an expiry{part}")


def _way(facts: Facts, _terms: Terms) -> Iterator[Finding]:
    way = facts.connection
    if way.tls and not way.verified:
        why = "whoever is in between can read the password, and grant locks"
        yield Finding(
            "warning", "TLS", "the server is not verified", why, "leave out ssl_cert_reqs; give your CA as ssl_ca_certs"
        )
    if not way.tls and not way.local:
        what = "the password and" if way.password else "all"
        yield Finding("note", "TLS", "the connection is not encrypted", f"{what} tokens can be read on the way", "rediss://")
    if not way.password and not way.local:
        why = "whoever reaches the server can take and release locks"
        yield Finding("note", "access", "no password", why, "a user of its own: holdfast acl")
    if way.db:
        why = "who uses another database of this server does not see these locks"
        yield Finding("note", "database", f"database {way.db}", why, "the same one for all")


CHECKS = (
    _what_it_is, _rights, _memory, _persistence, _replication, _round_trip, _clock, _clients, _keys, _way,
)  # fmt: skip


def _number(servers: Sequence[Facts]) -> Iterator[Finding]:
    number = len(servers)
    if number % 2 == 0:
        why = f"{number} bear the loss of {(number - 1) // 2}, as {number - 1} do"
        yield Finding("problem", "servers", f"an even number of servers, {number}", why, "an odd number, 3 or 5")
    away = sum(bool(facts.error) for facts in servers)
    if away * 2 >= number:
        said = f"{away} of {number} servers are away"
        yield Finding("problem", "servers", said, "there is no majority: no lock can be had", "bring them back")
    elif away:
        left = (number - 1) // 2 - away
        yield Finding("warning", "servers", f"{away} of {number} servers are away", f"{left} more may fail", "bring them back")


def _twice(servers: Sequence[Facts]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for facts in servers:
        run = facts.runs[0] if facts.runs else ""
        if run and run in seen:
            said = f"{seen[run]} and {facts.address} are the same server"
            yield Finding("problem", "servers", said, "its vote would count twice", "name each server once")
        seen.setdefault(run, facts.address)


def _clocks(servers: Sequence[Facts]) -> Iterator[Finding]:
    known = sorted((facts.ahead, facts.doubt, facts.address) for facts in servers if facts.ahead is not None)
    if len(known) < 2:
        return
    apart, doubt = known[-1][0] - known[0][0], known[-1][1] + known[0][1]
    said = f"the clocks of {known[0][2]} and {known[-1][2]} are {apart:.3g} s apart"
    if apart > HINT + doubt:
        why = f"fences are agreed on only up to {HINT:g} s ahead of each clock, so each lock takes one more round"
        yield Finding("problem", "clock", said, why, "run NTP on all")
    elif apart > SKEW + doubt:
        yield Finding("warning", "clock", said, f"beyond {HINT:g} s each lock takes one more round", "run NTP on all")
    else:
        yield Finding("ok", "clock", f"the clocks are together, within {max(apart, doubt):.2g} s")


def _versions(servers: Sequence[Facts]) -> Iterator[Finding]:
    found = sorted({flavour(facts) for facts in servers if facts.info})
    if len(found) > 1:
        yield Finding("note", "version", f"different ones: {', '.join(found)}", "it does no harm to locks", "")
