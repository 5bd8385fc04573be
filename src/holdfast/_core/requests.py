"""The requests that an operation may ask of its driver, and the ways in which asking can fail.

An operation is an ``async def`` that awaits these objects and nothing else. Its driver (`_runtime.drivers.sync`,
`_runtime.drivers.aio`, or a simulator under a virtual clock) takes each request from ``.send()``, does it, and sends the reply
back in; time and randomness are requests too. So an algorithm exists once, and mypy knows the type of every reply.

All requests are in this file. Which of them a driver does is said at the end of it (`ServerRequest`, `QuorumRequest`,
`ClientRequest`), and mypy proves that each driver does all of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

from holdfast._core.struct import Struct
from holdfast._lua import codes

if TYPE_CHECKING:
    from holdfast._lua import Script

R = TypeVar("R")
W = TypeVar("W")
"""A waiter or a held lease, of the core above this, handed through to the keeper."""


class Request(Struct, Generic[R]):
    """Something an operation awaits; ``R`` is the type of the reply."""

    __slots__ = ()

    def __await__(self) -> Generator[Self, R, R]:
        return (yield self)


class Instant(Request[R]):
    """One that is done at once, without waiting for anything. So asyncio drivers await nothing for it, and do it also for an
    operation that nobody awaits any more."""

    __slots__ = ()


class Answer(Struct, Generic[R]):
    """Reply of a server, when its request was sent, and when it came (local seconds). Leases count from ``sent``."""

    __slots__ = __match_args__ = ("value", "sent", "came")

    def __init__(self, value: R, sent: float, came: float) -> None:
        self.value = value
        self.sent = sent
        self.came = came


class WireError(Exception):
    """Root of the three ways in which a request can fail. Internal: users see errors of `holdfast.errors`."""

    def __init__(self, message: str, address: str = "", *, silent: bool = False) -> None:
        super().__init__(message)
        self.address = address
        self.silent = silent
        """No answer came in time: the server may be there, and busy."""


class NotSent(WireError):
    """No connection: the server has not seen the request."""


class Unknown(WireError):
    """Sent, but not answered: the server may have done it, may be about to do it, or may never."""


class Refused(WireError):
    """The server answered with an error: it did nothing."""

    def __init__(self, message: str, address: str = "") -> None:
        # "unknown command 'EVALSHA', with args beginning with: ..." repeats what it was sent: a token, or a password.
        message = message.partition(", with args beginning with")[0]
        if message.startswith("ERR Error running script"):
            # Redis 6 wraps what a script ran into: "... (call to f_1c): @user_script:90: @user_script: 90: -READONLY ..."
            message = message.split(": ", 4)[-1].removeprefix("-")
        super().__init__(message, address)
        self.code = message.split(" ", 1)[0].split(":", 1)[0]
        if "ACL failure in script" in message or "executing the script can't" in message:
            self.code = "NOPERM"

    @property
    def transient(self) -> bool:
        """True where the same request may succeed in a moment: the server is starting, busy, or being demoted."""
        in_a_moment = {"LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN"}
        return self.code in in_a_moment or "max number of clients" in str(self)


class Granted(NamedTuple):
    """The lock is ours until local time ``deadline``. ``in_claim_window``: handed over, the lease is only the claim window so
    far."""

    fence: int
    deadline: float
    in_claim_window: bool


class TimedOut(NamedTuple):
    """The driver's outcome, when `until` has passed."""


class Gone(NamedTuple):
    """The waiter has no place in the queue any more."""


class TooFew(Exception):
    """Too few servers can vote. ``nodes``: what each of them said; ``silent``: those without an answer would be enough."""

    def __init__(self, nodes: dict[str, str], *, silent: bool = False) -> None:
        super().__init__("; ".join(f"{name}: {said}" for name, said in nodes.items()))
        self.nodes = nodes
        self.silent = silent


class ConfigMismatch(Exception):
    """The servers are used in two ways that do not go together."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Conflict(NamedTuple):
    """Data of somebody else's, or of another release, is where the lock should be."""

    why: str
    other_kind: bool = False
    """The name is, or was, that of something else: see `_core.lock.name_conflict`."""
    key: bytes = b""
    """The key that holds data of another type, if one does."""


_ADVICE = {
    b"fence": "set it to a number above every fence that was issued, for example the server's time in microseconds",
    b"lease": "declare the server again (holdfast nodes init --force)",
}
_OTHERWISE = "correct it, or delete the key if nobody uses it"


def in_the_way(raw: object, what: str = " of somebody else's") -> Conflict:
    """The finding of a script in the place of the lock: the answers of `refused`, `no_number` and `read_state` in
    `_lua/shared/_state.lua`. ``what``: ends the sentence about a key that holds something else."""
    match raw:
        case [codes.WRONG_TYPE, bytes(key), bytes(kind)]:
            why = f"key {key.decode(errors='backslashreplace')!r} holds a {kind.decode()}{what}"
            return Conflict(why, other_kind=True, key=key)
        case [codes.OTHER_FORMAT, bytes(version)]:
            return Conflict(
                f"its state has format {version.decode(errors='replace')!r}, this release knows format 1", other_kind=True
            )
        case [codes.SERVER_ERROR, bytes(message)]:
            return Conflict(message.decode(errors="replace"))
        case [codes.NO_NUMBER, bytes(key), bytes(field), bytes(text)]:
            name, there = key.decode(errors="backslashreplace"), text.decode(errors="backslashreplace")
            what = f"field {field.decode(errors='backslashreplace')!r} of key {name!r}" if field else f"key {name!r}"
            return Conflict(
                f"{what} holds {there!r}, which is not a number that holdfast writes; {_ADVICE.get(field, _OTHERWISE)}"
            )
        case _:
            return Conflict(f"unexpected answer {raw!r}")


class Down(NamedTuple):
    """The server stayed away for too long; or there is another reason to wait no more."""

    error: Exception


Outcome = Granted | TimedOut | Down | Gone | Conflict
"""End of a wait."""


# A waiter, as drivers see it


class Slot(Protocol):
    """The place where a driver waits for the outcome of an attempt."""

    def put(self, outcome: Outcome | None, /) -> bool | None:
        """Wake it; None: to look at what it was given in line, or because the inbox listens now. False: nobody is there."""

    def gone(self) -> bool:
        """Nobody is there any more: its event loop was closed without ending it."""


class Subscriber(Protocol):
    """The listener."""

    listener_id: str
    """Id that the servers know it by: drawn as a token."""
    slot: Slot | None
    """Place where it waits, set by the driver."""
    hints: set[object]
    """Servers (their nodes) about which it has been told something."""

    @property
    def prefix(self) -> bytes:
        """The prefix whose inbox it is told by."""

    @property
    def needs_record(self) -> bool:
        """Others wait for it: they may ask which process it is."""

    @property
    def majority(self) -> int:
        """How many inboxes have to listen before it can rely on that."""

    def wake(self) -> None:
        """Have it look: it was told something, or may have missed something."""


# Asking a server


class Run(Request[Answer[R]]):
    """Run a script. Raises NotSent, Unknown or Refused."""

    __slots__ = __match_args__ = ("script", "keys", "args", "timeout")

    def __init__(self, script: Script[R], keys: tuple[bytes, ...], args: tuple[bytes | str | int, ...], timeout: float) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.timeout = timeout
        """Seconds until an answer that has not come counts as Unknown."""

    def __repr__(self) -> str:
        return f"Run(script={self.script!r}, keys={self.keys!r}, timeout={self.timeout!r})"  # a token is among the arguments


class Command(Request[Answer[Any]]):
    """Run one plain command. Raises NotSent, Unknown or Refused."""

    __slots__ = ("args", "packed", "timeout")
    __match_args__ = ("args", "timeout")

    def __init__(self, args: tuple[bytes | str | int, ...], timeout: float) -> None:
        self.args = args
        self.timeout = timeout
        self.packed = b""
        """Its bytes, once it was sent: some are sent again and again."""


Call = Run[Any] | Command


class Replicate(Request[Answer[tuple[Any, int]]]):
    """Run a script that writes, and wait for ``replicas`` to acknowledge that, for ``timeout`` seconds: its reply, and how many
    have. On a connection that nobody else uses: WAIT holds up what is behind it, and counts what was written on the same one.
    Raises NotSent, Unknown or Refused."""

    __slots__ = __match_args__ = ("run", "replicas", "timeout")

    def __init__(self, run: Run[Any], replicas: int, timeout: float) -> None:
        self.run = run
        self.replicas = replicas
        self.timeout = timeout


class AskPlace(Request[Answer[Any]]):
    """Send a call to one of the servers that are looked at, by its number. ``all_of``: to that part of a Cluster, whose key is
    whichever. Raises NotSent, Unknown or Refused."""

    __slots__ = __match_args__ = ("place", "call", "all_of")

    def __init__(self, place: int, call: Call, all_of: bool = False) -> None:
        self.place = place
        self.call = call
        self.all_of = all_of


class RunOn(Request[Any]):
    """Drive an operation where another server is asked: by its driver, ``home``. Raises what it raises."""

    __slots__ = __match_args__ = ("home", "operation")

    def __init__(self, home: Any, operation: Coroutine[Any, Any, Any]) -> None:
        self.home = home
        self.operation = operation


# Asking several servers that vote together


class AnswerCount(Protocol):
    """Counts what servers answer."""

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        """True: enough is known."""


CONNECT_WITHIN_S = 1.0
"""Seconds for which the very first connections are waited for, at most: a busy machine takes its time to open them, and that
says nothing about the servers."""


class Poll(Request[None]):
    """Send a call to each of several servers, all at the same time (None: that server is not asked).

    Each result, an answer or a WireError, goes to ``counter``. The request ends when the counter has heard enough, when all
    servers have answered, or after ``within`` seconds.

    A request without an answer by then stays under way: the next call to that server follows it, on the same connection. Errors
    are told, never raised.
    """

    __slots__ = __match_args__ = ("calls", "counter", "within", "begins", "otherwise")

    def __init__(
        self,
        calls: list[Call | None],
        counter: AnswerCount,
        within: float,
        begins: bool = False,
        otherwise: Callable[[int], GiveBack] | None = None,
    ) -> None:
        self.calls = calls
        self.counter = counter
        self.within = within
        self.begins = begins
        """These begin something, and take nothing back: a server that owes an answer for longer than ``within`` is left out."""
        self.otherwise = otherwise
        """Call that the keeper sends to a server that fails, by its number: also to one that fails when nobody waits any
        more."""


class GiveBack(Instant[None]):
    """Have the keeper send this to one of the servers, again and again until it answers or local time ``until``. Waits for
    nothing."""

    __slots__ = __match_args__ = ("call", "server", "until")

    def __init__(self, call: Run[int], server: int, until: float) -> None:
        self.call = call
        self.server = server
        self.until = until


# Asking a client of redis-py, for transactions


class CallClient(Request[Any]):
    """Call something of the client's, or of ours; in asyncio, await what it gives."""

    __slots__ = __match_args__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


class CallUser(Request[Any]):
    """Call something of the user's; in asyncio, await what it gives."""

    __slots__ = __match_args__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


# Time and chance


class Now(Instant[float]):
    """Local time in seconds: monotonic, and counting while the machine sleeps."""

    __slots__ = ()


class UnixTime(Instant[float]):
    """Unix time in seconds, as this machine's clock shows it: others may show another one."""

    __slots__ = ()


class NewToken(Instant[str]):
    """A new token: ``<process id>.<random>``."""

    __slots__ = ()


class RandomFraction(Instant[float]):
    """A random number from 0 to 1."""

    __slots__ = ()


class Sleep(Request[None]):
    __slots__ = __match_args__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


# Waiting for a lock


class WaitLocally(Request[None], Generic[W]):
    """Stand in line in this process (`_core.lock.local_queue`): returns when there may be something to look at, at the latest
    at `Attempt.until`. Never raises."""

    __slots__ = __match_args__ = ("attempt",)

    def __init__(self, attempt: W) -> None:
        self.attempt = attempt

    def __await__(self) -> Any:
        return iter((self,))  # ten thousand may stand in line, and a generator takes twice the memory


class RegisterWaiter(Request[Outcome | None], Generic[W]):
    """Make this waiter known to the process's inbox; returns when the inbox listens on the server.

    None when it listens; otherwise the outcome (time is up, or the server is down).
    """

    __slots__ = __match_args__ = ("waiter", "until")

    def __init__(self, waiter: W, until: float | None) -> None:
        self.waiter = waiter
        self.until = until


class Wait(Request[Outcome], Generic[W]):
    """Wait for what becomes of a waiter, until local time ``until`` (None: for ever). ``answer``: what it was just told; None
    where another one was, whose place it has."""

    __slots__ = __match_args__ = ("waiter", "answer", "until")

    def __init__(self, waiter: W, answer: Answer[Any] | None, until: float | None) -> None:
        self.waiter = waiter
        self.answer = answer
        self.until = until


class UnregisterWaiter(Instant[None], Generic[W]):
    """The waiter waits no more, whatever came of it."""

    __slots__ = __match_args__ = ("waiter",)

    def __init__(self, waiter: W) -> None:
        self.waiter = waiter


# Being told something, see `_core.subscription`


class Subscribe(Request[None]):
    """Have a listener told: returns when the inboxes that it relies on listen, at local time ``until`` at the latest."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Subscriber, until: float) -> None:
        self.listener = listener
        self.until = until


class AwaitNotice(Request[None]):
    """Wait until a listener is woken, until local time ``until`` at the latest."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Subscriber, until: float) -> None:
        self.listener = listener
        self.until = until


class Unsubscribe(Instant[None]):
    """The listener wants to be told nothing any more."""

    __slots__ = __match_args__ = ("listener",)

    def __init__(self, listener: Subscriber) -> None:
        self.listener = listener


class GetCoalescer(Instant[Any]):
    """Those of this process who wait for ``key`` on this server: a `_core.single_flight.coalesce.Crowd`."""

    __slots__ = __match_args__ = ("key",)

    def __init__(self, key: bytes) -> None:
        self.key = key


# Requests that leave work to the keeper


class KeepAlive(Instant[None], Generic[W]):
    """Renew the lease of what is held, as long as somebody refers to it. When nobody does any more, it is given back."""

    __slots__ = __match_args__ = ("held",)

    def __init__(self, held: W) -> None:
        self.held = held


class StopKeepAlive(Instant[None], Generic[W]):
    """Look after this lease no more."""

    __slots__ = __match_args__ = ("held_lease",)

    def __init__(self, held_lease: W) -> None:
        self.held_lease = held_lease


class SendUntilAnswered(Instant[None]):
    """Have the keeper send this until it is answered, or local time ``until``."""

    __slots__ = __match_args__ = ("call", "until")

    def __init__(self, call: Run[Any], until: float) -> None:
        self.call = call
        self.until = until


# Which requests drivers do

ServerInstant = (
    Now
    | UnixTime
    | NewToken
    | UnregisterWaiter[Any]
    | Unsubscribe
    | GetCoalescer
    | KeepAlive[Any]
    | StopKeepAlive[Any]
    | SendUntilAnswered
)
ServerAwaited = (
    Run[Any]
    | Command
    | Replicate
    | RunOn
    | Sleep
    | WaitLocally[Any]
    | RegisterWaiter[Any]
    | Wait[Any]
    | Subscribe
    | AwaitNotice
)
ServerRequest = ServerInstant | ServerAwaited
"""Of an operation on one server, or in a Cluster."""

QuorumInstant = Now | NewToken | GiveBack | Unsubscribe
QuorumAwaited = Poll | RunOn | Sleep | WaitLocally[Any] | Subscribe | AwaitNotice
QuorumRequest = QuorumInstant | QuorumAwaited
"""Of an operation on several servers that vote together."""

ClientInstant = Now | RandomFraction
ClientAwaited = CallClient | CallUser | Sleep
ClientRequest = ClientInstant | ClientAwaited
"""Of a transaction."""
