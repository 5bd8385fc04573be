"""The replies of servers to a request for their votes, the counters of these replies, and the attempt that asks for votes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._core.lock.records import Attempt, Queue, Registrar
from holdfast._core.lock.replies import UNKNOWN, Busy, read_reply
from holdfast._core.lock.spec import Spec
from holdfast._core.names import PREFIX, marker_key
from holdfast._core.requests import Answer, ConfigMismatch, Conflict, Refused, Slot, WireError
from holdfast._lua import Script, codes, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast._core.lock.records import Tally as LockTally

CONFIG_ADVICE = (
    "all clients of these servers must pass the same list of servers, with the same names and max_ttl; to change these "
    "settings, stop all clients and declare the servers again: holdfast nodes init --force, or declare_new(..., force=True)"
)

OTHER_LIST = "it belongs to another list of servers"


def list_digest(names: Iterable[str]) -> str:
    """Return a hash of a list of servers, which does not depend on the order of the list.

    It is made of host names, or of names that users pass, because all clients must agree on it.
    """
    known = sorted(re.sub(r"^localhost(?=:)", "127.0.0.1", name) for name in names)
    return hashlib.sha1("\n".join(known).encode(), usedforsecurity=False).hexdigest()[:16]


class ServerSet(NamedTuple):
    """A list of servers that vote together, with the settings that all of their clients must share."""

    names: tuple[str, ...]
    """Names of the servers, in the order of the list, for messages."""
    digest: str
    """Hash of the list of servers, by which the servers notice that a client uses another list."""
    longest: float
    """Longest lease (``max_ttl``), in seconds. A server that may have lost its votes casts no vote for that long."""
    marker: bytes = marker_key(PREFIX)
    """Key of a hash with the server's run id. A server without this hash, or with another run id in it, may have lost votes."""

    @property
    def majority(self) -> int:
        return len(self.names) // 2 + 1


class ServerClockEstimate:
    """An estimate of the time of the server whose clock is ahead of all others.

    Clients ask all servers for a fence that equals this time. All servers then issue the same fence, so that usually no second
    round trip is needed to confirm the highest one.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead: float | None = None

    def hint(self, now: float, seen: int) -> int:
        """Return the fence that all servers are asked for at monotonic time ``now``; 0 before the first reply.

        The fence is higher than ``seen``, the highest fence in a reply so far.
        """
        return 0 if self._ahead is None else max(int(now * 1e6 + self._ahead), seen + 1)

    def learn(self, answers: list[tuple[int, float]]) -> None:
        """Update the estimate from replies.

        ``answers``: server's time in microseconds, and monotonic time in seconds at which the reply arrived, for each reply.
        """
        self._ahead = max((time - came * 1e6 for time, came in answers), default=self._ahead)


class FirstContact:
    """Whether this process still has to ask each server of a list once which list it belongs to.

    A round of votes ends as soon as a majority has decided. So the answer of a server that belongs to another list might always
    come too late.
    """

    __slots__ = ("due",)

    def __init__(self, *, due: bool) -> None:
        self.due = due


MET = FirstContact(due=False)
"""For attempts whose servers are known to belong to one list."""


class QuorumAttempt(Attempt):
    """One attempt to acquire a lock on several servers. It has a new token in each round of votes."""

    __slots__ = (
        "clock_estimate", "first_contact", "hints", "listener_id", "listening_on", "seen", "server_set", "since", "voted",
    )  # fmt: skip

    def __init__(
        self,
        spec: Spec,
        token: str = "",
        *,
        server_set: ServerSet,
        clock_estimate: ServerClockEstimate | None = None,
        first_contact: FirstContact = MET,
        since: float = 0.0,
        slot: Slot | None = None,
        local_queue: Queue | None = None,
        tally: LockTally | None = None,
        node: Registrar | None = None,
    ) -> None:
        super().__init__(spec, token, slot=slot, local_queue=local_queue, tally=tally, node=node)
        self.server_set = server_set
        self.clock_estimate = clock_estimate or ServerClockEstimate()
        self.first_contact = first_contact
        self.listener_id = ""
        """Id under which this waiter has subscribed to the servers' notifications; empty before it subscribes."""
        self.listening_on: set[int] = set()
        """Indices of the servers that may have stored this waiter's subscription."""
        self.hints: set[object] = set()
        """Nodes of the servers that have notified this waiter, since its last round of votes, that the lock is free."""
        self.since = since
        """Monotonic time, in seconds, at which the wait began; 0: when `take` was called."""
        self.voted: list[str] = []
        """For each server, the mode in which `_lua/quorum/release_vote.lua` has to undo the last vote; empty: nothing to
        undo."""
        self.seen = 0
        """Highest fence in any server's reply so far."""

    def asking_again(self, token: str) -> QuorumAttempt:
        """Return a copy of this attempt with the ``token`` of the holder, to ask for a longer lease or further fences."""
        asking = QuorumAttempt(
            self.spec, token, server_set=self.server_set, clock_estimate=self.clock_estimate, since=self.since
        )
        for name in Attempt.__slots__:
            if name != "token":
                setattr(asking, name, getattr(self, name))
        asking.seen = self.seen
        return asking

    @property
    def prefix(self) -> bytes:
        return self.spec.prefix

    @property
    def needs_record(self) -> bool:
        return False

    @property
    def majority(self) -> int:
        return self.server_set.majority

    def wake(self) -> None:
        assert self.slot is not None
        self.slot.put(None)


class Yes(NamedTuple):
    """A server's vote for this client. ``first`` and ``fence`` are the lowest and the highest granted fence."""

    run: bytes
    first: int
    fence: int
    """Highest of the granted fences. The server has never issued a higher one."""
    time: int
    others: bool
    """True if other clients wait for the lock on this server."""


class HeldElsewhere(NamedTuple):
    """A server's reply that it does not vote for this client, because another client holds the lock or is to get it next."""

    run: bytes
    remaining: float | None
    """Seconds until the holder's lease expires, unless it is renewed; None: it never expires."""
    fence: int
    """Highest fence that the server has issued for the lock."""
    process: str
    mark: str
    """Hash of the holder's token, which shows whether two servers name the same holder; empty if the lock is not held."""
    time: int


class Quarantined(NamedTuple):
    """A server's reply that it casts no votes for ``seconds`` seconds, because it is new or may have lost its votes."""

    run: bytes
    seconds: float


class ConfigDiffers(NamedTuple):
    """A server's reply that its other clients use another list of servers, or another longest lease (``max_ttl``).

    ``about``: name of the parameter that differs. ``theirs``: value that the other clients use.
    """

    run: bytes
    about: str
    theirs: str


Reply = Yes | HeldElsewhere | Quarantined | ConfigDiffers | Conflict


def _read_vote(raw: object) -> Reply:
    assert isinstance(raw, list)
    reply: Reply
    if raw[1] == 1:  # the usual reply first, because a pattern match costs much more
        return Yes(raw[0], raw[2], raw[3], raw[4], raw[5] == 1)
    match raw:
        case [bytes(run), 0, int(ms), int(last), bytes(process), bytes(mark), int(time)]:
            reply = HeldElsewhere(run, None if ms == -1 else max(0, ms) / 1000, last, process.decode(), mark.decode(), time)
        case [bytes(run), codes.QUARANTINED, int(ms)]:
            reply = Quarantined(run, ms / 1000)
        case [bytes(run), codes.OTHER_LEASE, int(ms)]:
            reply = ConfigDiffers(run, "max_ttl", f"{ms / 1000:g} s")
        case [bytes(run), codes.OTHER_SERVERS, bytes(digest)]:
            reply = ConfigDiffers(run, "servers", digest.decode(errors="replace"))
        case [bytes(), codes.WRONG_TYPE | codes.OTHER_FORMAT | codes.NO_NUMBER, *_]:
            other = read_reply(raw[1:])
            assert isinstance(other, Conflict)
            reply = other
        case _:
            reply = Conflict(f"unexpected answer {raw!r}")
    return reply


def _read_declared(raw: object) -> list[Any]:
    assert isinstance(raw, list)
    return raw


VOTE: Script[Reply] = Script("quorum/vote", _read_vote)
CONFIRM: Script[int] = Script("quorum/confirm", whole_number)
RELEASE_VOTE: Script[int] = Script("quorum/release_vote", whole_number)
DECLARE_NEW: Script[list[Any]] = Script("quorum/declare_new", _read_declared)


class YesCount:
    """A counter of the servers that have carried out a request.

    The count is decided once ``needed`` servers have carried out the request, or once it is certain that fewer servers will.
    """

    def __init__(self, asked: int, needed: int) -> None:
        self.answers: dict[int, Answer[Any] | WireError] = {}
        self._needed = needed
        self._open = self._asked = asked
        self.yes = self.no = 0

    def says_yes(self, answer: Answer[Any]) -> bool:
        return bool(answer.value == 1)

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        self.answers[server] = answer
        self._open -= 1
        if isinstance(answer, Answer):
            yes = self.says_yes(answer)
            self.yes += yes
            self.no += not yes
        return self.decided

    @property
    def decided(self) -> bool:
        return self.yes >= self._needed or self.yes + self._open < self._needed

    @property
    def reached(self) -> bool:
        return self.yes >= self._needed

    @property
    def unsure(self) -> bool:
        """True if too few servers confirm the request, but the servers that have not replied might have carried it out."""
        return not self.reached and self._asked - self.no >= self._needed


class AllAnswered:
    """A counter of replies that ends the wait when each server in ``awaited`` (indices) has replied or failed."""

    def __init__(self, awaited: set[int]) -> None:
        self.answers: dict[int, Answer[Any] | WireError] = {}
        self.awaited = awaited

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        self.answers[server] = answer
        return self.awaited <= self.answers.keys()


class RenewalCount(YesCount):
    """A counter of the servers that have renewed a lease.

    On some servers, a later renewal by the keeper (background thread), perhaps for a shorter lease, may be in effect. They have
    the lease, too. But they do not count for the majority that ends the wait while other servers may still reply.
    """

    def __init__(self, asked: int, needed: int, is_latest: Callable[[int], bool]) -> None:
        """``is_latest``: returns True if no later renewal was sent to the server with this index."""
        super().__init__(asked, needed)
        self._is_latest = is_latest
        self.overtaken = 0

    def says_yes(self, answer: Answer[Any]) -> bool:
        return bool(answer.value[0] > 0)

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        if isinstance(answer, Answer) and self.says_yes(answer) and not self._is_latest(server):
            self.overtaken += 1
        return super().on_answer(server, answer)

    @property
    def decided(self) -> bool:
        return self.yes - self.overtaken >= self._needed or self._open == 0 or (super().decided and not self.reached)


class VoteRound(YesCount):
    """The replies of all servers in one round of votes for a lock, and conclusions from them."""

    def __init__(self, server_set: ServerSet) -> None:
        super().__init__(len(server_set.names), server_set.majority)
        self.server_set = server_set
        self.mismatch: ConfigMismatch | None = None
        """The error if a server has told only later that it belongs to another list."""

    def says_yes(self, answer: Answer[Any]) -> bool:
        return type(answer.value) is Yes

    @property
    def voters(self) -> int:
        """Number of servers that have voted in this round, for this client or for another one."""
        return self.yes + len(self.replies(HeldElsewhere))

    @property
    def decided(self) -> bool:
        """True if the missing replies can change neither the result nor the reason of a refusal.

        The reason is either that another client holds the lock, or that too few servers can vote.
        """
        if super().decided:
            return self.reached or self.voters >= self._needed or self.voters + self._open < self._needed
        return False

    @property
    def silent(self) -> bool:
        """True if the servers that voted, together with those that have not replied in time, are a majority."""
        silent = sum(isinstance(answer, WireError) and answer.silent for answer in self.answers.values())
        return self.voters + self._open + silent >= self._needed

    def replies(self, kind: type[Any]) -> list[Any]:
        found = (answer.value for answer in self.answers.values() if isinstance(answer, Answer))
        return [reply for reply in found if isinstance(reply, kind)]

    def granted(self) -> dict[int, Answer[Yes]]:
        return {n: a for n, a in self.answers.items() if isinstance(a, Answer) and type(a.value) is Yes}

    def verdicts(self) -> dict[str, str]:
        """Return the reply of each server as text for a message, by the name of the server."""
        return {name: verdict(self.answers.get(n), decided=self.decided) for n, name in enumerate(self.server_set.names)}

    def remaining(self) -> float | None:
        """Return the seconds until the lease has expired on enough servers for a majority; None if unknown."""
        held = [reply.remaining for reply in self.replies(HeldElsewhere)]
        left = sorted([0.0] * self.yes + [seconds for seconds in held if seconds is not None])
        return left[self.server_set.majority - 1] if len(left) >= self.server_set.majority else None

    def holder(self) -> tuple[str, int]:
        """Return the hash of the other client's token with the largest number of votes, and this number.

        Return "" and 0 if there is no such token.
        """
        marks = Counter(reply.mark for reply in self.replies(HeldElsewhere) if reply.mark)
        return marks.most_common(1)[0] if marks else ("", 0)

    def busy(self) -> Busy:
        """Return a Busy reply that names the process of the client with the largest number of votes.

        This number need not be a majority. If no server names a client, the process is `UNKNOWN`.
        """
        taken = self.replies(HeldElsewhere)
        mark, _ = self.holder()
        process = next((reply.process for reply in taken if reply.mark == mark), "") if mark else UNKNOWN
        last = max((reply.fence for reply in taken), default=0)
        return Busy(self.remaining(), last, process, lingers=False)

    def conflict(self) -> tuple[int, Conflict] | None:
        """Return the index of the first server that reports a Conflict, and this Conflict.

        Return None if the servers without a Conflict are a majority.
        """
        found = [(n, a.value) for n, a in self.answers.items() if isinstance(a, Answer) and isinstance(a.value, Conflict)]
        return min(found) if len(self.server_set.names) - len(found) < self.server_set.majority else None

    def misfit(self) -> ConfigMismatch | None:
        """Return an error if two names stand for the same server, or if servers have other settings; otherwise None.

        One server of another list is enough: a client with that list may have a majority without the other servers of this one.
        Servers with another ``max_ttl`` refuse their votes, and no more, as long as the others can be a majority.
        """
        answers = [(n, a.value.run) for n, a in self.answers.items() if isinstance(a, Answer) and hasattr(a.value, "run")]
        seen: dict[bytes, int] = {}
        for number, run in answers:
            other = seen.setdefault(run, number)
            if other != number:
                pair = f"{self.server_set.names[other]} and {self.server_set.names[number]}"
                return ConfigMismatch(f"{pair} are the same server (same run id): its votes would count twice", "servers")
        others = self.replies(ConfigDiffers)
        other_lists = [reply for reply in others if reply.about == "servers"]
        if other_lists or len(self.server_set.names) - len(others) < self.server_set.majority:
            return config_mismatch(self.verdicts(), (other_lists or others)[0].about)
        return self.mismatch


def config_mismatch(verdicts: dict[str, str], parameter: str) -> ConfigMismatch:
    """Return the error for servers whose other clients have agreed on another value of ``parameter``.

    ``verdicts``: the reply of each server as text, by the name of the server.
    """
    said = "; ".join(f"{name}: {text}" for name, text in verdicts.items())
    return ConfigMismatch(f"other clients of these servers have agreed on other settings: {said}; {CONFIG_ADVICE}", parameter)


def verdict(answer: Answer[Reply] | WireError | None, *, decided: bool) -> str:
    """Return the reply of one server (None: no reply) as text for a message.

    ``decided``: True if nobody waited for this reply any more.
    """
    if answer is None:
        return "not waited for" if decided else "no answer in time"
    if isinstance(answer, WireError):
        said = str(answer).removeprefix(f"{answer.address}: ")  # messages show the address before this text
        return f"refused: {said}" if isinstance(answer, Refused) else said
    match answer.value:
        case Yes():
            said = "granted"
        case HeldElsewhere(process=process, mark=mark):
            said = f"busy: held by {process or 'a client of another library'}" if mark else "busy: reserved for a waiter"
        case Quarantined(seconds=seconds):
            said = (
                f"does not vote for another {seconds:.1f} s: it is new, or may have lost its votes (restarted or "
                "flushed); declare new servers once, by holdfast.declare_new(servers) or `holdfast nodes init`"
            )
        case ConfigDiffers(about="max_ttl", theirs=theirs):
            said = f"its longest lease (max_ttl) is {theirs}"
        case ConfigDiffers():
            said = OTHER_LIST
        case Conflict(why):
            said = why
    return said
