"""The requests that an operation may await from its driver, and the errors of a request.

An operation is an ``async def`` that awaits these objects and nothing else. Its driver (`_runtime.drivers.sync`,
`_runtime.drivers.aio`, or a simulator with a virtual clock) receives each request from ``.send()``, carries it out, and sends
the reply back in. Time and randomness are requests, too. So each algorithm exists once, and mypy knows the type of every reply.

All requests are in this file. The unions at its end (`ServerRequest`, `QuorumRequest`, `ClientRequest`) list the requests of
each sort of driver, and mypy proves that each driver carries out all of its own.
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
"""Type of a waiter or a held lease, which a request passes to the keeper (background thread) as it is."""


class Request(Struct, Generic[R]):
    """A request that an operation awaits and its driver carries out; ``R`` is the type of the reply."""

    __slots__ = ()

    def __await__(self) -> Generator[Self, R, R]:
        return (yield self)


class Instant(Request[R]):
    """A request that is carried out at once, without waiting.

    An asyncio driver awaits nothing for such a request, and carries it out even for an operation that nobody awaits any more.
    """

    __slots__ = ()


class Answer(Struct, Generic[R]):
    """The reply of a server, with the monotonic times, in seconds, at which the request was sent and the reply came.

    Leases count from ``sent``.
    """

    __slots__ = __match_args__ = ("value", "sent", "came")

    def __init__(self, value: R, sent: float, came: float) -> None:
        self.value = value
        self.sent = sent
        self.came = came


class WireError(Exception):
    """The base of the three errors of a request. It is internal: users get the errors of `holdfast.errors`."""

    def __init__(self, message: str, address: str = "", *, silent: bool = False) -> None:
        super().__init__(message)
        self.address = address
        self.silent = silent
        """True if no reply came in time: the server may be reachable, and busy."""


class NotSent(WireError):
    """Raised if there is no connection: the server has not seen the request."""


class Unknown(WireError):
    """Raised if a request was sent but not answered: the server may have carried it out, may still do so, or may never."""


class Refused(WireError):
    """Raised if the server answered a request with an error: it did nothing."""

    def __init__(self, message: str, address: str = "") -> None:
        # "unknown command 'EVALSHA', with args beginning with: ..." repeats the arguments, which may contain a token or
        # password.
        message = message.partition(", with args beginning with")[0]
        if message.startswith("ERR Error running script"):
            # Redis 6 wraps an error within a script: "... (call to f_1c): @user_script:90: @user_script: 90: -READONLY ..."
            message = message.split(": ", 4)[-1].removeprefix("-")
        super().__init__(message, address)
        self.code = message.split(" ", 1)[0].split(":", 1)[0]
        if "ACL failure in script" in message or "executing the script can't" in message:
            self.code = "NOPERM"

    @property
    def transient(self) -> bool:
        """Return True if the same request may succeed soon: the server is starting, busy, or being demoted."""
        in_a_moment = {"LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN"}
        return self.code in in_a_moment or "max number of clients" in str(self)


class Granted(NamedTuple):
    """The outcome that the lock is held until monotonic time ``deadline``, in seconds.

    ``in_claim_window``: the lock was handed over, and its lease is only the short claim window so far.
    """

    fence: int
    deadline: float
    in_claim_window: bool


class TimedOut(NamedTuple):
    """The outcome that the wait has reached its time limit."""


class Gone(NamedTuple):
    """The outcome that the waiter has lost its position in the queue."""


class TooFew(Exception):
    """Raised if too few servers can vote. ``nodes``: reply or error of each server, by its name.

    ``silent``: True if, together with the servers that did not reply, there might have been enough.
    """

    def __init__(self, nodes: dict[str, str], *, silent: bool = False) -> None:
        super().__init__("; ".join(f"{name}: {said}" for name, said in nodes.items()))
        self.nodes = nodes
        self.silent = silent


class ConfigMismatch(Exception):
    """Raised if the servers are used with two configurations that contradict each other."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Conflict(NamedTuple):
    """The finding that a key of the lock holds other data: of another application, another kind of object or another
    release."""

    why: str
    other_kind: bool = False
    """True if the name is, or was, used for another kind of object; see `_core.lock.name_conflict`."""
    key: bytes = b""
    """Key that holds data of another type; empty if the conflict has another cause."""


_ADVICE = {
    b"fence": "set it to a number above every fence that was issued, for example the server's time in microseconds",
    b"lease": "declare the server again (holdfast nodes init --force)",
}
_OTHERWISE = "correct it, or delete the key if nobody uses it"


def in_the_way(raw: object, what: str = " that something else has written") -> Conflict:
    """Return the conflict that a script reported instead of its result; `_lua/shared/_state.lua` has the codes.

    ``what``: end of the message about a key that holds data of another type.
    """
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
    """The outcome that the server was unreachable for too long, or that the wait ends because of another error."""

    error: Exception


Outcome = Granted | TimedOut | Down | Gone | Conflict
"""The outcome of a wait for a lock."""


# The interfaces of a waiter for drivers


class Slot(Protocol):
    """The object on which a driver waits for the outcome of an attempt."""

    def put(self, outcome: Outcome | None, /) -> bool | None:
        """Wake the waiting attempt with this outcome. Return False if its event loop is closed.

        None makes the attempt look for its turn in the local queue, or go on because its inbox is subscribed now.
        """

    def gone(self) -> bool:
        """Return True if the event loop of the waiting attempt was closed."""


class Subscriber(Protocol):
    """The interface of a listener, which waits for notifications of a server."""

    listener_id: str
    """Id by which the servers know the listener, generated like a token."""
    slot: Slot | None
    """Object on which the listener waits, set by the driver; None while the listener does not wait."""
    hints: set[object]
    """Servers (their nodes) that have notified the listener since it last looked."""

    @property
    def prefix(self) -> bytes:
        """Return the prefix whose inbox receives the listener's notifications."""

    @property
    def needs_record(self) -> bool:
        """Return True if other clients may look up which process the listener belongs to, because they wait for it."""

    @property
    def majority(self) -> int:
        """Return the number of inboxes that must be subscribed before the listener can rely on notifications."""

    def wake(self) -> None:
        """Wake the listener, because a notification came or may have been missed."""


# Requests to one server


class Run(Request[Answer[R]]):
    """Run a script on the server. Raises NotSent, Unknown or Refused."""

    __slots__ = __match_args__ = ("script", "keys", "args", "timeout")

    def __init__(self, script: Script[R], keys: tuple[bytes, ...], args: tuple[bytes | str | int, ...], timeout: float) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.timeout = timeout
        """Seconds after which a missing reply counts as Unknown."""

    def __repr__(self) -> str:
        return f"Run(script={self.script!r}, keys={self.keys!r}, timeout={self.timeout!r})"  # args contain a token


class Command(Request[Answer[Any]]):
    """Run one plain command on the server. Raises NotSent, Unknown or Refused."""

    __slots__ = ("args", "packed", "timeout")
    __match_args__ = ("args", "timeout")

    def __init__(self, args: tuple[bytes | str | int, ...], timeout: float) -> None:
        self.args = args
        self.timeout = timeout
        self.packed = b""
        """Encoded bytes of the command, kept after the first use for commands that are sent again and again."""


Call = Run[Any] | Command


class Replicate(Request[Answer[tuple[Any, int]]]):
    """Run a script that writes, and wait up to ``timeout`` seconds for ``replicas`` to acknowledge it.

    The reply is that of the script, with the number of replicas that acknowledged it. The request has a connection of its own,
    because WAIT blocks the requests behind it, and counts only the writes of its connection. Raises NotSent, Unknown or
    Refused.
    """

    __slots__ = __match_args__ = ("run", "replicas", "timeout")

    def __init__(self, run: Run[Any], replicas: int, timeout: float) -> None:
        self.run = run
        self.replicas = replicas
        self.timeout = timeout


class AskPlace(Request[Answer[Any]]):
    """Send a call to one of the inspected servers, by its index. Raises NotSent, Unknown or Refused.

    ``all_of``: True: the call is about all keys of that server, so it is sent there whatever slot its own key has.
    """

    __slots__ = __match_args__ = ("place", "call", "all_of")

    def __init__(self, place: int, call: Call, all_of: bool = False) -> None:
        self.place = place
        self.call = call
        self.all_of = all_of


class RunOn(Request[Any]):
    """Run an operation with the driver of another server or set of servers, ``home``. Raises the errors of the operation."""

    __slots__ = __match_args__ = ("home", "operation")

    def __init__(self, home: Any, operation: Coroutine[Any, Any, Any]) -> None:
        self.home = home
        self.operation = operation


# Requests to several servers that vote


class AnswerCount(Protocol):
    """The interface of a counter of the servers' replies, which tells when no further reply is needed."""

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        """Count a server's reply or error. Return True if no further reply is needed."""


CONNECT_WITHIN_S = 1.0
"""Longest wait, in seconds, for the very first connections, because a busy machine opens them slowly."""


class Poll(Request[None]):
    """Send a call to each of several servers, all at the same time (None: that server is not asked).

    Each result, a reply or a WireError, goes to ``counter`` and is never raised. The request ends when the counter needs no
    further reply, when all servers have replied, or after ``within`` seconds.

    A call without a reply by then stays under way: the next call to that server follows it, on the same connection.
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
        """True if the calls start something and undo nothing: a server with a reply overdue for ``within`` seconds is left
        out."""
        self.otherwise = otherwise
        """Function from a server's index to the call that the keeper (background thread) sends to that server if it fails.

        It is also called for a server that fails when nobody waits any more.
        """


class GiveBack(Instant[None]):
    """Have the keeper (background thread) send a call to one server until it replies, or until monotonic time ``until``."""

    __slots__ = __match_args__ = ("call", "server", "until")

    def __init__(self, call: Run[int], server: int, until: float) -> None:
        self.call = call
        self.server = server
        self.until = until


# Requests to a client of redis-py, for transactions


class CallClient(Request[Any]):
    """Call a function of holdfast or of a redis-py client; with asyncio, await its result."""

    __slots__ = __match_args__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


class CallUser(Request[Any]):
    """Call a function of the user; with asyncio, await its result."""

    __slots__ = __match_args__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


# Time and randomness


class Now(Instant[float]):
    """Return the monotonic time in seconds: monotonic, and counting while the machine sleeps."""

    __slots__ = ()


class UnixTime(Instant[float]):
    """Return the Unix time in seconds by this machine's clock, which may differ from that of other machines."""

    __slots__ = ()


class NewToken(Instant[str]):
    """Return a new token: ``<process id>.<random>``."""

    __slots__ = ()


class RandomFraction(Instant[float]):
    """Return a random number from 0 to 1."""

    __slots__ = ()


class Sleep(Request[None]):
    """Wait for this many seconds."""

    __slots__ = __match_args__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


# Waiting for a lock


class WaitLocally(Request[None], Generic[W]):
    """Wait in the local queue of this process (`_core.lock.local_queue`) until it is this attempt's turn. Never raises.

    The request ends at `Attempt.until` at the latest, and may end early without a turn.
    """

    __slots__ = __match_args__ = ("attempt",)

    def __init__(self, attempt: W) -> None:
        self.attempt = attempt

    def __await__(self) -> Any:
        return iter((self,))  # a generator would take twice the memory, and ten thousand attempts may wait


class RegisterWaiter(Request[Outcome | None], Generic[W]):
    """Register a waiter for hand-overs, and wait until the inbox of its process is subscribed on the server.

    The reply is None once the inbox is subscribed, otherwise the outcome of the wait (timeout, or the server is unreachable).
    """

    __slots__ = __match_args__ = ("waiter", "until")

    def __init__(self, waiter: W, until: float | None) -> None:
        self.waiter = waiter
        self.until = until


class Wait(Request[Outcome], Generic[W]):
    """Wait for the outcome of a waiter, until monotonic time ``until`` (None: without limit).

    ``answer``: the reply that put the waiter into the queue; None if it inherited the queue position of another attempt.
    """

    __slots__ = __match_args__ = ("waiter", "answer", "until")

    def __init__(self, waiter: W, answer: Answer[Any] | None, until: float | None) -> None:
        self.waiter = waiter
        self.answer = answer
        self.until = until


class UnregisterWaiter(Instant[None], Generic[W]):
    """Remove a waiter that `RegisterWaiter` has registered, whatever its outcome."""

    __slots__ = __match_args__ = ("waiter",)

    def __init__(self, waiter: W) -> None:
        self.waiter = waiter


# Notifications, see `_core.subscription`


class Subscribe(Request[None]):
    """Register a listener, and wait until its inboxes are subscribed, at most until monotonic time ``until``."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Subscriber, until: float) -> None:
        self.listener = listener
        self.until = until


class AwaitNotice(Request[None]):
    """Wait until a listener is notified, at most until monotonic time ``until``."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Subscriber, until: float) -> None:
        self.listener = listener
        self.until = until


class Unsubscribe(Instant[None]):
    """Unregister a listener, which gets no further notifications."""

    __slots__ = __match_args__ = ("listener",)

    def __init__(self, listener: Subscriber) -> None:
        self.listener = listener


class GetCoalescer(Instant[Any]):
    """Return the `Coalescer`: the group of callers in this process that wait for ``key`` on this server."""

    __slots__ = __match_args__ = ("key",)

    def __init__(self, key: bytes) -> None:
        self.key = key


# Requests that leave work to the keeper


class KeepAlive(Instant[None], Generic[W]):
    """Have the keeper (background thread) renew a held lease, and release it once nothing refers to its owner."""

    __slots__ = __match_args__ = ("held",)

    def __init__(self, held: W) -> None:
        self.held = held


class StopKeepAlive(Instant[None], Generic[W]):
    """Have the keeper (background thread) stop renewing a lease."""

    __slots__ = __match_args__ = ("held_lease",)

    def __init__(self, held_lease: W) -> None:
        self.held_lease = held_lease


class SendUntilAnswered(Instant[None]):
    """Have the keeper (background thread) send a call until it is answered, or until monotonic time ``until``."""

    __slots__ = __match_args__ = ("call", "until")

    def __init__(self, call: Run[Any], until: float) -> None:
        self.call = call
        self.until = until


# The requests of each sort of driver

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
"""A request of an operation on one server, or in a Cluster."""

QuorumInstant = Now | NewToken | GiveBack | Unsubscribe
QuorumAwaited = Poll | RunOn | Sleep | WaitLocally[Any] | Subscribe | AwaitNotice
QuorumRequest = QuorumInstant | QuorumAwaited
"""A request of an operation on several servers that vote."""

ClientInstant = Now | RandomFraction
ClientAwaited = CallClient | CallUser | Sleep
ClientRequest = ClientInstant | ClientAwaited
"""A request of a transaction."""
