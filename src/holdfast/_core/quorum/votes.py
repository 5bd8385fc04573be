"""The answers of several servers: their votes, the sum of these, and the attempt that asks for them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._core.lock.records import Attempt, Queue, Spec
from holdfast._core.lock.replies import UNKNOWN, Busy, read_reply
from holdfast._core.names import PREFIX, marker_key
from holdfast._core.requests import Answer, ConfigMismatch, Conflict, Refused, Slot, WireError
from holdfast._lua import Script, codes, whole_number

if TYPE_CHECKING:
    from holdfast._core.lock.records import Tally as LockTally

CONFIG_ADVICE = (
    "give all who use these servers the same list of them, or the same names for them, and the same max_ttl; to change what "
    "was agreed on, end all who use them and declare them again: holdfast nodes init --force, or declare_new(..., force=True)"
)


class ServerSet(NamedTuple):
    """Servers that vote together."""

    names: tuple[str, ...]
    """Names of the servers in messages."""
    digest: str
    """Digest of the server list. Clients that use the same servers must agree on it."""
    longest: float
    """Seconds of the longest lease: for so long a server that has forgotten its votes grants none."""
    marker: bytes = marker_key(PREFIX)
    """The key with which each of them remembers that it has lost nothing."""

    @property
    def majority(self) -> int:
        return len(self.names) // 2 + 1


class ServerClockEstimate:
    """An estimate of the servers' clocks, by which all servers issue the same fence."""

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead: float | None = None

    def hint(self, now: float, seen: int) -> int:
        """The fence to ask for (server us) at local time ``now``, when ``seen`` has been issued; 0: each as it likes."""
        return 0 if self._ahead is None else max(int(now * 1e6 + self._ahead), seen + 1)

    def learn(self, answers: list[tuple[int, float]]) -> None:
        """Times of servers (us), and when they were read (local seconds)."""
        self._ahead = max((time - came * 1e6 for time, came in answers), default=self._ahead)


class QuorumAttempt(Attempt):
    """One try to get a lock on several servers. Its token is a new one in each round of votes."""

    __slots__ = ("clock_estimate", "hints", "listener_id", "listening_on", "seen", "server_set", "since", "voted")

    def __init__(
        self,
        spec: Spec,
        token: str = "",
        *,
        server_set: ServerSet,
        clock_estimate: ServerClockEstimate | None = None,
        since: float = 0.0,
        slot: Slot | None = None,
        local_queue: Queue | None = None,
        tally: LockTally | None = None,
    ) -> None:
        super().__init__(spec, token, slot=slot, local_queue=local_queue, tally=tally)
        self.server_set = server_set
        self.clock_estimate = clock_estimate or ServerClockEstimate()
        self.listener_id = ""
        """Under which the servers know that it waits,"""
        self.listening_on: set[int] = set()
        """and which of them may."""
        self.hints: set[object] = set()
        """Of which servers it has been told that the lock is free."""
        self.since = since
        """Since when it waits (local seconds)."""
        self.voted: list[str] = []
        """How to undo the last round, by server: a mode of `_lua/quorum/release_vote.lua`; empty for nothing to undo."""
        self.seen = 0
        """Highest fence that was heard of."""

    def asking_again(self, token: str) -> QuorumAttempt:
        """The same, for another round of votes for who has them already, under that token."""
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
        """Have it look at its hints."""
        assert self.slot is not None
        self.slot.put(None)


class Yes(NamedTuple):
    """The server has granted its vote."""

    run: bytes
    first: int
    fence: int
    """The last of those that are the holder's now, and the last that was issued."""
    time: int
    others: bool
    """Others wait for it, too."""


class HeldElsewhere(NamedTuple):
    """Somebody else has it there, or is to have it."""

    run: bytes
    remaining: float | None
    fence: int
    """The last that was issued."""
    process: str
    mark: str
    """The same on each server, for the same holder."""
    time: int


class Quarantined(NamedTuple):
    """The server may have forgotten votes, and casts none for so many seconds."""

    run: bytes
    seconds: float


class ConfigDiffers(NamedTuple):
    """The server was told something else about the servers that vote together."""

    run: bytes
    about: str
    theirs: str


Reply = Yes | HeldElsewhere | Quarantined | ConfigDiffers | Conflict


def _read_vote(raw: object) -> Reply:
    assert isinstance(raw, list)
    reply: Reply
    if raw[1] == 1:  # the usual answer, and a pattern match costs much more
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
    """Of those who say yes. Decided when these are ``needed``, or can be no more."""

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
        """Whichever answers the others give."""
        return self.yes >= self._needed or self.yes + self._open < self._needed

    @property
    def reached(self) -> bool:
        return self.yes >= self._needed

    @property
    def unsure(self) -> bool:
        """Those who have not answered could have made it yes."""
        return not self.reached and self._asked - self.no >= self._needed


class AllAnswered:
    """Decided when these have answered, or failed to."""

    def __init__(self, awaited: set[int]) -> None:
        self.answers: dict[int, Answer[Any] | WireError] = {}
        self.awaited = awaited

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        self.answers[server] = answer
        return self.awaited <= self.answers.keys()


class RenewalCount(YesCount):
    """Of the servers that have renewed a lease, or have let another renewal overtake."""

    def says_yes(self, answer: Answer[Any]) -> bool:
        return bool(answer.value[0] > 0)


class VoteRound(YesCount):
    """One round of votes."""

    def __init__(self, server_set: ServerSet) -> None:
        super().__init__(len(server_set.names), server_set.majority)
        self.server_set = server_set

    def says_yes(self, answer: Answer[Any]) -> bool:
        return type(answer.value) is Yes

    @property
    def voters(self) -> int:
        """Of those who have answered, how many can vote; perhaps for somebody else."""
        return self.yes + len(self.replies(HeldElsewhere))

    @property
    def decided(self) -> bool:
        """If it is not to be had: also whether that is because it is busy, or because too few servers are there."""
        if super().decided:
            return self.reached or self.voters >= self._needed or self.voters + self._open < self._needed
        return False

    @property
    def silent(self) -> bool:
        """Whether those that can vote would be enough with those that have not answered in time."""
        silent = sum(isinstance(answer, WireError) and answer.silent for answer in self.answers.values())
        return self.voters + self._open + silent >= self._needed

    def replies(self, kind: type[Any]) -> list[Any]:
        found = (answer.value for answer in self.answers.values() if isinstance(answer, Answer))
        return [reply for reply in found if isinstance(reply, kind)]

    def granted(self) -> dict[int, Answer[Yes]]:
        return {n: a for n, a in self.answers.items() if isinstance(a, Answer) and type(a.value) is Yes}

    def verdicts(self) -> dict[str, str]:
        """Return the answer of each server, for a reader."""
        return {name: verdict(self.answers.get(n), decided=self.decided) for n, name in enumerate(self.server_set.names)}

    def remaining(self) -> float | None:
        """Seconds after which a majority is free, unless renewed; None: at no time."""
        held = [reply.remaining for reply in self.replies(HeldElsewhere)]
        left = sorted([0.0] * self.yes + [seconds for seconds in held if seconds is not None])
        return left[self.server_set.majority - 1] if len(left) >= self.server_set.majority else None

    def holder(self) -> tuple[str, int]:
        """The mark of who has the most votes, and how many."""
        marks = Counter(reply.mark for reply in self.replies(HeldElsewhere) if reply.mark)
        return marks.most_common(1)[0] if marks else ("", 0)

    def busy(self) -> Busy:
        """The holder that is in the way."""
        taken = self.replies(HeldElsewhere)
        mark, _ = self.holder()
        process = next((reply.process for reply in taken if reply.mark == mark), "") if mark else UNKNOWN
        last = max((reply.fence for reply in taken), default=0)
        return Busy(self.remaining(), last, process, lingers=False)

    def conflict(self) -> tuple[int, Conflict] | None:
        """Return the obstacle on so many servers that the others are no majority: that of the first of them, and its number."""
        found = [(n, a.value) for n, a in self.answers.items() if isinstance(a, Answer) and isinstance(a.value, Conflict)]
        return min(found) if len(self.server_set.names) - len(found) < self.server_set.majority else None

    def check(self) -> None:
        """Raises Disagreement where two of the servers are one, or are used in two ways."""
        answers = [(n, a.value.run) for n, a in self.answers.items() if isinstance(a, Answer) and hasattr(a.value, "run")]
        seen: dict[bytes, int] = {}
        for number, run in answers:
            other = seen.setdefault(run, number)
            if other != number:
                pair = f"{self.server_set.names[other]} and {self.server_set.names[number]}"
                raise ConfigMismatch(f"{pair} are the same server (same run id): its votes would count twice", "servers")
        others = self.replies(ConfigDiffers)
        if len(self.server_set.names) - len(others) < self.server_set.majority:
            said = "; ".join(f"{name}: {text}" for name, text in self.verdicts().items())
            raise ConfigMismatch(
                f"other users of these servers have agreed on something else: {said}; {CONFIG_ADVICE}", others[0].about
            )


def verdict(answer: Answer[Reply] | WireError | None, *, decided: bool) -> str:
    """Return the answer of a server, for a reader. ``decided``: before all had answered."""
    if answer is None:
        return "was not waited for" if decided else "no answer in time"
    if isinstance(answer, WireError):
        said = str(answer).removeprefix(f"{answer.address}: ")  # it stands before the verdict
        return f"refused: {said}" if isinstance(answer, Refused) else said
    match answer.value:
        case Yes():
            said = "granted"
        case HeldElsewhere(process=process, mark=mark):
            said = f"busy: held by {process or 'a client of another library'}" if mark else "busy: kept for one that waits"
        case Quarantined(seconds=seconds):
            said = (
                f"does not vote for another {seconds:.1f} s: it is new, or may have forgotten what it granted (restarted or "
                "flushed); new servers are declared with: holdfast nodes init"
            )
        case ConfigDiffers(about="max_ttl", theirs=theirs):
            said = f"its longest lease (max_ttl) is {theirs}"
        case ConfigDiffers():
            said = "it belongs to another list of servers"
        case Conflict(why):
            said = why
    return said
