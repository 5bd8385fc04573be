"""The commands, keys and channels that an ACL rule has to allow. The commands of Lua scripts are read from their texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast import _lua
from holdfast._core.lock.spec import Spec
from holdfast.errors import ConfigError

OLDEST, SHARDED_SINCE = (6, 2), (7, 0)
"""The first server version with ACL patterns for channels, and the first one with sharded pub/sub."""


class Feature(NamedTuple):
    """A feature of holdfast, and the scripts, commands, keys and channels that it uses."""

    scripts: tuple[str, ...]
    commands: tuple[str, ...]
    """Commands that clients send, in addition to those inside the scripts. A subcommand is written as in ``PUBSUB|NUMSUB``."""
    keys: tuple[str, ...] = ()
    """Patterns of keys; ``<prefix>`` stands for the prefix of all locks. No pattern matches keys of another prefix."""
    channels: tuple[str, ...] = ()


_KIND = ("TYPE", "HSTRLEN", "HGET", "PTTL")
"""Commands for an error message. They find out which kind of object uses the name of a lock already."""

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
            "single_flight/take_over",
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
        # EXISTS: when a process stops serving a schedule, it releases its runs by the script for locks. This script checks the
        # queue, although nobody waits in it.
        commands=("EVAL", "EVALSHA", "PING", "SUBSCRIBE", "SET", "DEL", "EXISTS", "ZRANGE"),
        keys=("<prefix>schedule:{*", "<prefix>schedule:proc:*"),
        channels=("<prefix>schedule:inbox:*",),
    ),
    "inspect": Feature(
        scripts=("inspect/scan", "inspect/control_records"),
        # GETRANGE, HGET, HSTRLEN and PUBSUB NUMSUB are for finding deadlocks.
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
"""The scripts, commands, keys and channels of each feature of holdfast. A test compares this table with the sources."""

SHARDED = {"SUBSCRIBE": "SSUBSCRIBE", "PUBLISH": "SPUBLISH", "PUBSUB|NUMSUB": "PUBSUB|SHARDNUMSUB"}
"""Maps each pub/sub command to the command that a Cluster needs instead, which servers before 7.0 do not know."""

UNKNOWN = {"SSUBSCRIBE", "SPUBLISH"}
"""Commands that the oldest supported servers do not know, and therefore refuse in an ACL rule.

``PUBSUB|SHARDNUMSUB`` is not listed, because those servers accept it in a rule. Clients call it to find out whether a server
knows sharded pub/sub.
"""


def commands(features: Iterable[str], version: tuple[int, int] = OLDEST) -> list[str]:
    """Return all commands that these features need on a server of this version, sorted."""
    wanted = set(features)
    needed = {name for feature in wanted for name in FEATURES[feature].commands}
    needed |= {name for feature in wanted for script in FEATURES[feature].scripts for name in _lua.commands(script)}
    if not wanted & {"quarantine", "redlock", "break"}:
        needed -= {"INFO"}  # The scripts of all locks contain INFO, but call it only for these three features.
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
    """Return the words that follow ``ACL SETUSER name``, without the password. Raises ConfigError.

    ``features`` are names in `FEATURES`. ``prefix`` is the prefix of the locks. Three arguments are patterns of keys:
    ``raw_keys`` for locks with ``key=``, ``fenced`` for keys whose fences `holdfast.fencing` checks, and ``timestamps`` for
    timestamp locks. ``select`` allows databases other than 0. ``version`` is the version of the server.
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
            raise ConfigError(f"{pattern!r}: a key pattern must not contain spaces or control characters", parameter="pattern")
    channels = [c.replace("<prefix>", _escaped(prefix)) for feature in features for c in FEATURES[feature].channels]
    allowed = commands(features, version) + (["SELECT"] if select else [])
    # "reset" alone would leave all channels open on a server with acl-pubsub-default allchannels.
    words = ["reset", "resetchannels", "on", *(f"~{key}" for key in keys), *(f"&{channel}" for channel in channels), "-@all"]
    return list(dict.fromkeys(words)) + [f"+{name.lower()}" for name in allowed]


OPTIONS = {
    "cache": "--cache",
    "once": "--once",
    "schedule": "--schedule",
    "election": "--election",
    **dict.fromkeys(("Event", "CountDownLatch", "Barrier"), "--events"),
}
"""Maps the word by which error texts name a kind of object, such as "cache", to the option of ``holdfast acl`` for it."""

ALONE = {"--inspect": "only looks at locks", "--break": "breaks locks"}
"""Options of ``holdfast acl`` for a user that must not acquire locks, and words for error texts: what this user does."""


def options_of(spec: Spec) -> tuple[str, ...]:
    """Return the options of ``holdfast acl`` that print the rights for this lock."""
    given = {
        "--permits": spec.permits is not None,
        "--replicas": spec.replicas > 0,
        "--quarantine": spec.quarantine > 0,
        f"--key {shlex.quote(spec.key)}": bool(spec.home),
    }
    return (*prefix_option(spec.prefix), *(option for option, on in given.items() if on))


def options_for(what: str, key: str) -> tuple[str, ...]:
    """Return the options of ``holdfast acl`` that print the rights for an object that is no lock.

    ``what``: the beginning of error texts about the object. ``key``: its key on the server.
    """
    word = what.partition(" ")[0]
    if word == "fence":
        return (f"--fencing {shlex.quote(key)}",)
    option = OPTIONS.get(word, "")
    prefix = key.partition("{")[0].removesuffix(f"{word}:")
    return (*prefix_option(prefix.encode()), *filter(None, [option]))


def prefix_option(prefix: bytes) -> tuple[str, ...]:
    """Return a tuple with the option of ``holdfast acl`` for this prefix. It is empty if the prefix is ``hf:`` or empty."""
    return () if prefix in {b"", b"hf:"} else (f"--prefix {shlex.quote(prefix.decode(errors='backslashreplace'))}",)


def advice(error: Exception, options: Iterable[str] = ()) -> str:
    """Return a hint about missing access rights, to be added to the text of this error; empty for other errors.

    ``options``: options of ``holdfast acl`` that print the missing rights.
    """
    # If a script must not use a command, only the error's text says so. Redis 6.2 has another text than later versions.
    signs = ("NOPERM", "ACL failure in script", "The user executing the script can't")
    forbidden = any(sign in str(error) for sign in signs)
    if not forbidden:
        return ""
    alone = next((ALONE[option] for option in options if option in ALONE), "")
    own = "--user NAME" if alone else ""
    selects = "--select" if "'select' command" in str(error) else ""
    command = " ".join(filter(None, ["holdfast acl", own, *options, selects]))
    if alone:
        return f"; connect as a user that {alone}: `{command}` prints its rights"
    return f"; `{command}` prints the rights that the user of the server needs"


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def _beside(pattern: str, what: str) -> str:
    """Return the pattern of the keys made by `_core.names.side_key` from ``pattern``. ``what``: "state", "queue" or "fence"."""
    return f"{pattern}:{what}" if re.search(r"\{[^}]+\}", pattern) else f"{{{pattern}}}:{what}:raw"
