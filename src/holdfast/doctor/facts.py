"""The facts about one server, the findings about it, and the user's plans for locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["ok", "note", "warning", "problem"]

LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")
"""Levels of findings, from good to bad.

An ok finding needs no action. A note is worth knowing. With a warning, locks work, but less well or less safely. With a
problem, locks do not work, or a held lock may be granted to another client.
"""


@dataclass(frozen=True)
class Finding:
    """One result of a check of a server: what was checked, how serious the result is, and the remedy."""

    level: Level
    topic: str
    what: str
    """The finding, in a few words."""
    why: str = ""
    """Consequence of the finding for locks."""
    remedy: str = ""
    """Remedy in one line."""


@dataclass(frozen=True)
class LockPlans:
    """The user's plans for locks on the checked servers."""

    ttl: float = 30.0
    """The shortest lease in use, in seconds."""
    replicas: int = 0
    """Number of replicas that must acknowledge a lock before it counts as acquired (the option ``replicas=``)."""
    redlock: bool = False
    """True if the server is one of several that vote together (`Redlock`)."""
    prefix: str = "hf:"
    servers: str = ""
    """Hash of the list of the servers that vote together; empty for one server."""


@dataclass
class KeyCounts:
    """The number of keys on a server that begin with the prefix of the locks, with examples of those that never expire."""

    seen: int = 0
    endless: int = 0
    """Number of the counted keys that never expire."""
    examples: list[bytes] = field(default_factory=list)
    complete: bool = False
    """True if all keys with the prefix were counted; False if the time for counting ran out before."""


@dataclass
class ConnectionFacts:
    """The way in which the server is reached."""

    host: str = "localhost"
    """Host of the server; empty for a Unix socket."""
    db: int = 0
    tls: bool = False
    verified: bool = True
    """False if TLS is used, but the server's certificate or its host name is not verified."""
    password: bool = False
    timeout: float = 5.0
    """Seconds that the client waits for an answer (``socket_timeout``)."""
    cluster: bool = False
    """True if the server is part of a Cluster."""
    pool: int | None = None
    """Maximum number of connections of the user's client, if requests go through that client; otherwise None."""

    @property
    def local(self) -> bool:
        return self.host in {"", "localhost", "::1"} or self.host.startswith("127.")


@dataclass
class Facts:
    """The facts about one server, from its replies.

    A fact is None or empty if the server was not asked, or refused to answer.
    """

    address: str
    connection: ConnectionFacts = field(default_factory=ConnectionFacts)
    error: str = ""
    """Reason why the server could not be reached, or why a later request failed; empty if all requests were answered.

    After such a failure, the facts from the requests that were not made are missing.
    """
    round_trip: float | None = None
    """Seconds for the round trip of one command, the median of several."""
    ahead: float | None = None
    """Seconds by which the server's clock is ahead of this machine's clock."""
    doubt: float = 0.0
    """Seconds by which `ahead` may be wrong."""
    info: Mapping[str, str] | None = None
    config: Mapping[str, str] | None = None
    runs: tuple[str, ...] = ()
    """The server's run ids, one from each connection. If two of them differ, the address leads to several servers."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Operations that the server refused during the trial of a lock, each with the error reply."""
    heard: bool | None = None
    """True if a message that a script published has arrived at a subscriber; None if this could not be tried."""
    listed: bool | None = None
    """True if the server reports the subscribers of a channel (PUBSUB NUMSUB)."""
    acknowledged: int | str | None = None
    """Number of replicas that have acknowledged a write (WAIT), or the error by which WAIT was refused."""
    keys: KeyCounts | None = None
    marker: tuple[str, float, float, str] | None = None
    """The marker of a server that votes with others, by which clients notice that the server has lost its data.

    The fields are the server's run id, the start of its quarantine in Unix seconds by its own clock (0: the server was declared
    new), the longest lease in seconds (``max_ttl``), and a hash of the list of servers.
    """
    now: float = 0.0
    """Unix time, in seconds, by the server's clock, or by this machine's clock if the server does not tell its time."""

    def number(self, name: str) -> int:
        """Return the number in a field of the server's INFO; 0 if there is no such field or number."""
        text = (self.info or {}).get(name, "")
        return int(text) if text.isdecimal() else 0

    def setting(self, name: str) -> str | None:
        return None if self.config is None else self.config.get(name)
