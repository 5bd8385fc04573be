"""The commands and keys that access control has to allow. They are read from the scripts, so they cannot be out of date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast import _lua
from holdfast.errors import ConfigError

OLDEST, SHARDED_SINCE = (6, 2), (7, 0)
"""The first server versions with patterns for channels, and with sharded pub/sub."""


class Feature(NamedTuple):
    """Something that can be done with a server, and what that needs."""

    scripts: tuple[str, ...]
    commands: tuple[str, ...]
    """Those sent as they are, apart from those in the scripts. A subcommand as in ``PUBSUB|NUMSUB``."""
    keys: tuple[str, ...] = ()
    """Patterns; ``<prefix>`` stands for the prefix of all locks. None matches a key or channel of another prefix."""
    channels: tuple[str, ...] = ()


_KIND = ("TYPE", "HSTRLEN", "HGET", "PTTL")
"""Commands behind the message that a name is used for another kind of lock."""

FEATURES = {
    "lock": Feature(
        scripts=(
            "lock/acquire",
            "lock/multi_acquire",
            "lock/release",
            "lock/multi_release",
            "lock/renew",
            "lock/refresh",
            "lock/exchange_token",
        ),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "EXISTS", "GETRANGE", "SET", "DEL", *_KIND),
        keys=("<prefix>{*", "<prefix>proc:*"),
        channels=("<prefix>inbox:*",),
    ),
    "quarantine": Feature(
        scripts=("lock/acquire", "lock/release", "lock/refresh", "lock/exchange_token", "quorum/declare_new"),
        commands=(),
        keys=("<prefix>guard",),
    ),
    "redlock": Feature(
        scripts=("quorum/declare_new", "quorum/vote", "quorum/confirm", "quorum/release_vote", "lock/renew"),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "EXISTS", "GETRANGE", "SET", "DEL", *_KIND),
        keys=("<prefix>{*", "<prefix>proc:*", "<prefix>marker"),
        channels=("<prefix>inbox:*",),
    ),
    "cache": Feature(
        scripts=(
            "single_flight/get_or_lease",
            "single_flight/store",
            "single_flight/cancel_load",
            "single_flight/delete",
            "single_flight/invalidate",
            "lock/renew",
        ),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "GETRANGE", "SET", "DEL", "MGET"),
        keys=("<prefix>cache:{*", "<prefix>cache:proc:*"),
        channels=("<prefix>cache:inbox:*",),
    ),
    "once": Feature(
        scripts=(
            "single_flight/get_or_lease",
            "single_flight/store",
            "single_flight/cancel_load",
            "single_flight/delete",
            "lock/renew",
        ),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "GETRANGE", "SET", "DEL", "MGET"),
        keys=("<prefix>once:{*", "<prefix>once:proc:*"),
        channels=("<prefix>once:inbox:*",),
    ),
    "events": Feature(
        scripts=("rendezvous/latch", "rendezvous/barrier", "lock/renew"),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "GETRANGE", "SET", "DEL", *_KIND),
        keys=("<prefix>{*", "<prefix>proc:*"),
        channels=("<prefix>inbox:*",),
    ),
    "schedule": Feature(
        scripts=("schedule/serve", "schedule/register", "schedule/command", "schedule/jobs", "lock/renew"),
        # EXISTS: a process that ends gives runs back as locks, in whose line nobody ever stands
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "SET", "DEL", "EXISTS", "ZRANGE"),
        keys=("<prefix>schedule:{*", "<prefix>schedule:proc:*"),
        channels=("<prefix>schedule:inbox:*",),
    ),
    "inspect": Feature(
        scripts=("inspect/scan", "inspect/control_records"),
        # for the deadlocks, besides
        commands=("EVAL", "EVALSHA", "PING", "SCAN", "GETRANGE", "HGET", "HSTRLEN", "PUBSUB|NUMSUB"),
        keys=("<prefix>{*", "<prefix>proc:*"),
        channels=("<prefix>inbox:*",),
    ),
    "break": Feature(
        scripts=(
            "inspect/scan",
            "inspect/control_records",
            "inspect/break_lock",
            "inspect/break_permits",
            "election/notify_observers",
        ),
        commands=("EVAL", "EVALSHA", "PING", "SCAN"),
        keys=("<prefix>{*", "<prefix>proc:*", "<prefix>guard"),
        channels=("<prefix>inbox:*",),
    ),
    "permits": Feature(
        scripts=(
            "permit/acquire",
            "permit/release",
            "permit/refresh",
            "permit/renew",
            "permit/change",
            "permit/limit",
            "permit/migrating",
        ),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "GETRANGE", "SET", "DEL", *_KIND),
        keys=("<prefix>{*", "<prefix>proc:*"),
        channels=("<prefix>inbox:*",),
    ),
    "election": Feature(
        scripts=(
            "lock/acquire",
            "lock/release",
            "lock/renew",
            "lock/refresh",
            "election/join",
            "election/proclaim",
            "election/observe",
            "election/transfer",
            "election/notify_observers",
        ),
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "EXISTS", "GETRANGE", "SET", "DEL", *_KIND),
        keys=("<prefix>{*", "<prefix>proc:*"),
        channels=("<prefix>inbox:*",),
    ),
    "fencing": Feature(scripts=("fencing/check",), commands=("EVAL", "EVALSHA")),
    "legacy": Feature(scripts=("timestamp/compare_and_set", "timestamp/clock"), commands=("EVAL", "EVALSHA", "SETNX", "GET")),
    "sentinel": Feature(scripts=(), commands=("ROLE",)),
    "replicas": Feature(scripts=(), commands=("WAIT",)),
    "cluster": Feature(scripts=("lock/migrating",), commands=("CLUSTER|SLOTS", "ASKING", "SSUBSCRIBE", "PUBSUB|SHARDNUMSUB")),
}
"""A test holds this against the sources: each script is here, and each command, key and channel that they name."""

SHARDED = {"SUBSCRIBE": "SSUBSCRIBE", "PUBLISH": "SPUBLISH", "PUBSUB|NUMSUB": "PUBSUB|SHARDNUMSUB"}
"""Commands that a Cluster needs instead. The oldest servers know none of these."""

UNKNOWN = {"SSUBSCRIBE", "SPUBLISH"}
"""To those, which refuse a rule as a whole that names one. The third they are asked about, to find that out."""


def commands(features: Iterable[str], version: tuple[int, int] = OLDEST) -> list[str]:
    """All that these features need on a server of this version."""
    wanted = set(features)
    needed = {name for feature in wanted for name in FEATURES[feature].commands}
    needed |= {name for feature in wanted for script in FEATURES[feature].scripts for name in _lua.commands(script)}
    if not wanted & {"quarantine", "redlock"}:
        needed -= {"INFO"}  # in scripts that all locks run, but only these get so far
    if "cluster" not in wanted:
        return sorted(needed - set(SHARDED.values()))
    return sorted(needed - (UNKNOWN if version < SHARDED_SINCE else set(SHARDED)))


def rule(
    features: Sequence[str] = ("lock",),
    *,
    prefix: str = "hf:",
    raw_keys: Iterable[str] = (),
    fenced: Iterable[str] = (),
    timestamps: Iterable[str] = (),
    select: bool = False,
    version: tuple[int, int] = OLDEST,
) -> list[str]:
    """The words that follow ``ACL SETUSER name``, but for the password. Raises ConfigError.

    ``raw_keys``: patterns of the keys of locks that were given ``key=``; ``fenced``: of the keys whose fences
    `holdfast.fencing` checks; ``timestamps``: of those of timestamp locks; ``select``: in other databases than 0.
    """
    if version < OLDEST:
        raise ConfigError(f"servers before {OLDEST[0]}.{OLDEST[1]} are not supported", parameter="version")
    keys = [k.replace("<prefix>", _escaped(prefix)) for feature in features for k in FEATURES[feature].keys]
    for pattern in raw_keys:
        keys += [pattern, *(_beside(pattern, what) for what in ("state", "queue"))]
    for pattern in fenced:
        keys += [pattern, _beside(pattern, "fence")]
    keys += timestamps
    for pattern in keys:
        if not pattern.isprintable() or " " in pattern:
            raise ConfigError(f"{pattern!r}: a pattern of keys cannot have spaces in it", parameter="pattern")
    channels = [c.replace("<prefix>", _escaped(prefix)) for feature in features for c in FEATURES[feature].channels]
    allowed = commands(features, version) + (["SELECT"] if select else [])
    # "reset" alone leaves all channels open on a server that is set so.
    words = ["reset", "resetchannels", "on", *(f"~{key}" for key in keys), *(f"&{channel}" for channel in channels), "-@all"]
    return list(dict.fromkeys(words)) + [f"+{name.lower()}" for name in allowed]


def advice(error: Exception) -> str:
    """Return the advice for this error, as the end of a sentence, or nothing."""
    # Only the text names the command that a script may not use: the text of Redis 7 and Valkey, and that of 6.2.
    signs = ("NOPERM", "ACL failure in script", "The user executing the script can't")
    forbidden = any(sign in str(error) for sign in signs)
    return "; `holdfast acl` prints the rights that the user of the server needs" if forbidden else ""


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def _beside(pattern: str, what: str) -> str:
    """The pattern of a key beside those of a pattern, as `_core.names.side_key` makes them."""
    return f"{pattern}:{what}" if re.search(r"\{[^}]+\}", pattern) else f"{{{pattern}}}:{what}:raw"
