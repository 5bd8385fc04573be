"""The facts about one server, and the plans of its user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["ok", "note", "warning", "problem"]

LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")
"""From good to bad. A warning: locks work, but not as well, or as surely, as they could. A problem: they do not."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    topic: str
    what: str
    """The finding."""
    why: str = ""
    """Its consequence for locks."""
    remedy: str = ""
    """The remedy, in one line."""


@dataclass(frozen=True)
class Terms:
    """The plans of the user for the locks."""

    ttl: float = 30.0
    """The shortest lease in use, in seconds."""
    replicas: int = 0
    """How many replicas are to have a lock before it counts (``replicas=``)."""
    redlock: bool = False
    """The server is one of several that hold a lock together."""
    prefix: str = "hf:"


@dataclass
class Keys:
    """The result of a look at the keys of locks."""

    seen: int = 0
    endless: int = 0
    """Of those, without an expiry."""
    examples: list[bytes] = field(default_factory=list)
    complete: bool = False
    """Whether all keys of the server were looked at."""


@dataclass
class Connection:
    """How the server is reached."""

    host: str = "localhost"
    """Empty: over a unix socket."""
    db: int = 0
    tls: bool = False
    verified: bool = True
    """Over TLS, whether its certificate is."""
    password: bool = False
    timeout: float = 5.0
    """Seconds that the client waits for an answer (``socket_timeout``)."""
    cluster: bool = False
    """As one of a Cluster."""
    pool: int | None = None
    """Size of the client's pool, where its own connections are used; else None."""

    @property
    def local(self) -> bool:
        return self.host in {"", "localhost", "::1"} or self.host.startswith("127.")


@dataclass
class Facts:
    """The answers of one server. None: it was not asked, or does not tell."""

    address: str
    connection: Connection = field(default_factory=Connection)
    error: str = ""
    """Why it cannot be reached; if so nothing else is known."""
    round_trip: float | None = None
    """Seconds for one command, the median of several."""
    ahead: float | None = None
    """Seconds by which its clock is ahead of ours."""
    doubt: float = 0.0
    """Seconds by which `ahead` may be wrong."""
    info: Mapping[str, str] | None = None
    config: Mapping[str, str] | None = None
    runs: tuple[str, ...] = ()
    """The run ids that two connections have seen."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Operations that the server refused to a lock on a key of our own, each with its reply."""
    heard: bool | None = None
    """Whether a message that a script published has arrived."""
    listed: bool | None = None
    """Whether the server tells who listens to a channel (PUBSUB NUMSUB)."""
    acknowledged: int | str | None = None
    """How many replicas have acknowledged a write (WAIT), or why it was refused."""
    keys: Keys | None = None

    def number(self, name: str) -> int:
        """A number of INFO; 0 if it is not there."""
        text = (self.info or {}).get(name, "")
        return int(text) if text.isdecimal() else 0

    def setting(self, name: str) -> str | None:
        return None if self.config is None else self.config.get(name)
