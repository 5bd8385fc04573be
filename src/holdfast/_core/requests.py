"""The requests that an operation may await from its driver, and the errors of a request.

An operation is an ``async def`` function that awaits objects of these classes and nothing else. A driver runs the operation: it
receives each request from the coroutine's ``send()``, carries it out, and passes the reply to the next ``send()``. There are a
driver for threads (`_runtime.drivers.sync`), one for asyncio (`_runtime.drivers.aio`), and a simulator with a virtual clock.
Operations also request the time and random numbers, so that the simulator controls both.

The unions at the end of this module list the requests that each sort of driver must carry out, and mypy checks this.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from holdfast._core.struct import NamedTuple, Struct
from holdfast._lua import codes

if TYPE_CHECKING:
    from holdfast._lua import Script

R = TypeVar("R")
W = TypeVar("W")


class Request(Struct, Generic[R]):
    """A request that an operation awaits and its driver carries out. ``R`` is the type of the reply."""

    __slots__ = ()

    def __await__(self) -> Generator[Self, R, R]:
        return (yield self)


class Instant(Request[R]):
    """A request that a driver carries out at once, without waiting, even if the operation's caller does not run any more."""

    __slots__ = ()


class Answer(Struct, Generic[R]):
    """The reply of a server, with the monotonic times, in seconds, at which the request was sent and the reply came.

    A lease that the reply grants begins at ``sent``.
    """

    __slots__ = __match_args__ = ("value", "sent", "came")

    value: R
    sent: float
    came: float

    def __init__(self, value: R, sent: float, came: float) -> None:
        self.value = value
        self.sent = sent
        self.came = came


class WireError(Exception):
    """The base class of the three errors of a request. It is internal. Users get the exceptions of `holdfast.errors`
    instead."""

    def __init__(self, message: str, address: str = "", *, silent: bool = False) -> None:
        super().__init__(message)
        self.address = address
        self.silent = silent
        """True if no reply came in time. The server may be busy or unreachable."""


class NotSent(WireError):
    """Raised if a request could not be sent for lack of a connection. The server has not carried out the request."""


class Unknown(WireError):
    """Raised if a request was sent but not answered. The server may have carried it out, or may still do so."""


class Refused(WireError):
    """Raised if the server replied to a request with an error. The server has not carried out the request."""

    def __init__(self, message: str, address: str = "") -> None:
        # "unknown command 'EVALSHA', with args beginning with: ..." repeats the arguments, which may contain a token or
        # password.
        message = message.partition(", with args beginning with")[0]
        if message.startswith("ERR Error running script"):
            # Redis 6 wraps an error within a script: "... (call to f_1c): @user_script:90: @user_script: 90: -READONLY ..."
            message = message.split(": ", 4)[-1].removeprefix("-")
        super().__init__(message, address)
        self.code = message.split(" ", 1)[0].split(":", 1)[0]
        if "unauthenticated" in message:  # the reply to a long command, for which the server asks for a password first
            self.code = "NOAUTH"
        elif "ACL failure in script" in message or "executing the script can't" in message:
            self.code = "NOPERM"

    @property
    def transient(self) -> bool:
        """Return True if the request may succeed when it is soon repeated, as when the server is starting or busy."""
        in_a_moment = {"LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN"}
        return self.code in in_a_moment or "max number of clients" in str(self)


class Granted(NamedTuple):
    """The result of a wait: the lock is held until monotonic time ``deadline``, in seconds.

    ``in_claim_window``: True if the lease is only the short one that a hand-over grants (the claim window). The first renewal
    extends it to its full length.
    """

    fence: int
    deadline: float
    in_claim_window: bool


class TimedOut(NamedTuple):
    """The result of a wait that reached its time limit."""


class Gone(NamedTuple):
    """The result of a wait whose attempt has lost its position in the server's queue."""


class TooFew(Exception):
    """Raised if too few of the servers can vote. ``nodes``: reply or error of each server, by its name.

    ``silent``: True if the servers that voted, together with those that did not reply in time, are a majority.
    """

    def __init__(self, nodes: dict[str, str], *, silent: bool = False) -> None:
        super().__init__("; ".join(f"{name}: {said}" for name, said in nodes.items()))
        self.nodes = nodes
        self.silent = silent


class ConfigMismatch(Exception):
    """Raised if the settings of clients that use the same servers contradict each other. ``parameter``: name of the setting."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Conflict(NamedTuple):
    """A reply that a key of the lock cannot be used, because something else has written it. ``why``: explanation for the user.

    Another application, another kind of object or an incompatible release may have written the key.
    """

    why: str
    other_kind: bool = False
    """True if another kind of object may use this name, or have used it lately; `_core.lock.name_conflict` tells which."""
    key: bytes = b""
    """Key that holds data of another Redis type; empty if the conflict has another cause."""


_ADVICE = {
    b"fence": "set the field to a number above every fence that was issued, for example the server's time in microseconds",
    b"lease": "declare the server again (holdfast nodes init --force)",
}
_OTHERWISE = "correct the number, or delete the key if nobody uses it"


def in_the_way(raw: object, what: str = " that another program has written") -> Conflict:
    """Read a script's reply ``raw``, which begins with one of the codes of `_lua.codes`, as a Conflict.

    ``what``: end of the sentence about a key that holds data of another type.
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
    """The result of a wait that ended with an error, for example because the server was unreachable for too long."""

    error: Exception


Outcome = Granted | TimedOut | Down | Gone | Conflict
"""The result of a wait for a lock."""


# The interfaces of a waiter for drivers


class Slot(Protocol):
    """The object on which a thread or task waits for the result of an attempt, and through which other threads wake it."""

    def put(self, outcome: Outcome | None, /) -> bool | None:
        """Wake the waiting attempt, with the result of its wait. Return False if the event loop of the attempt is closed.

        The outcome None only wakes the attempt, which then checks whether it has the turn in the queue of its process, or
        whether its inbox is subscribed. If not, it waits again.
        """

    def gone(self) -> bool:
        """Return True if the event loop of the waiting attempt was closed."""


class Subscriber(Protocol):
    """An object that waits for a server's notifications, as drivers and the keeper (background thread) use it."""

    listener_id: str
    """Id of the listener, generated like a token. Servers name the listener by it in notifications."""
    slot: Slot | None
    """Object through which the waiting thread or task is woken. The driver sets it at the first wait; None before that."""
    hints: set[object]
    """Objects, such as the nodes of servers, that have notified the listener since its hints were last cleared."""

    @property
    def prefix(self) -> bytes:
        """Return the key prefix of the inbox (pub/sub channel) that receives the listener's notifications."""

    @property
    def needs_record(self) -> bool:
        """Return True if the process must have a process record because of this listener.

        Other clients then look up to which process the listener belongs.
        """

    @property
    def majority(self) -> int:
        """Return the number of servers on which the inbox must be subscribed before the listener can rely on notifications."""

    def wake(self) -> None:
        """Wake the waiting thread or task, because a notification has arrived or may have been missed."""


# Requests to one server


class RunScript(Request[Answer[R]]):
    """Request to run a script on the server. Raises NotSent, Unknown or Refused if it gets no reply or an error."""

    __slots__ = __match_args__ = ("script", "keys", "args", "timeout")

    script: Script[R]
    keys: tuple[bytes, ...]
    args: tuple[bytes | str | int, ...]
    timeout: float

    def __init__(self, script: Script[R], keys: tuple[bytes, ...], args: tuple[bytes | str | int, ...], timeout: float) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.timeout = timeout
        """Seconds to wait for the reply. Without a reply by then, the request raises Unknown."""

    def __repr__(self) -> str:
        return f"RunScript(script={self.script!r}, keys={self.keys!r}, timeout={self.timeout!r})"  # args contain a token


class Frame:
    """A request to run a script that is sent again and again, each time with another token as its first argument.

    A driver encodes the rest of the request once, and keeps the bytes here.
    """

    __slots__ = ("after", "before", "keys", "rest", "script", "size", "timeout")

    def __init__(
        self, script: Script[Any], keys: tuple[bytes, ...], rest: tuple[bytes | str | int, ...], timeout: float
    ) -> None:
        self.script = script
        self.keys = keys
        self.rest = rest
        self.timeout = timeout
        """Seconds to wait for the reply, as in `RunScript`."""
        self.size = -1
        """Length, in characters, of the tokens for which ``before`` and ``after`` are encoded; -1: they are not encoded yet."""
        self.before = self.after = b""
        """Bytes of the request before and after the token."""

    def run(self, token: str) -> RunScript[Any]:
        """Return the same request, with this token, for drivers that do not send bytes."""
        return RunScript(self.script, self.keys, (token, *self.rest), self.timeout)


class Command(Request[Answer[Any]]):
    """Request to run one plain command on the server. Raises NotSent, Unknown or Refused if it gets no reply or an error."""

    __slots__ = ("args", "packed", "timeout")
    __match_args__ = ("args", "timeout")

    args: tuple[bytes | str | int, ...]
    timeout: float
    packed: bytes

    def __init__(self, args: tuple[bytes | str | int, ...], timeout: float) -> None:
        self.args = args
        self.timeout = timeout
        self.packed = b""
        """The command as encoded for the connection, for commands that are sent again and again; empty before the first use."""


Call = RunScript[Any] | Command


class Replicate(Request[Answer[tuple[Any, int]]]):
    """Request to run a script, and then to wait until ``replicas`` replicas have acknowledged its writes.

    The wait lasts up to ``timeout`` seconds. The reply contains the script's reply and the number of replicas that have
    acknowledged. The request uses a connection of its own, because WAIT blocks later requests on its connection. Raises
    NotSent, Unknown or Refused if it gets no reply or an error.
    """

    __slots__ = __match_args__ = ("run", "replicas", "timeout")

    def __init__(self, run: RunScript[Any], replicas: int, timeout: float) -> None:
        self.run = run
        self.replicas = replicas
        self.timeout = timeout


class AskPlace(Request[Answer[Any]]):
    """Request to send a call to one of the servers that are inspected. ``place``: index of the server.

    ``all_of``: True if the call is about all keys on that server, as SCAN is, so that a Cluster client must not route it by a
    key. Raises NotSent, Unknown or Refused if it gets no reply or an error.
    """

    __slots__ = __match_args__ = ("place", "call", "all_of")

    def __init__(self, place: int, call: Call, all_of: bool = False) -> None:
        self.place = place
        self.call = call
        self.all_of = all_of


class RunOn(Request[Any]):
    """Request to run an operation with ``home``, the driver of another server or set of servers. Raises the operation's
    errors."""

    __slots__ = __match_args__ = ("home", "operation")

    def __init__(self, home: Any, operation: Coroutine[Any, Any, Any]) -> None:
        self.home = home
        self.operation = operation


# Requests to several servers that vote


class AnswerCount(Protocol):
    """A counter of the replies of servers, which knows when further replies cannot change the result."""

    def on_answer(self, server: int, answer: Answer[Any] | WireError) -> bool:
        """Count the reply or the error of this server. Return True if further replies cannot change the result."""


CONNECT_WITHIN_S = 1.0
"""Maximum seconds to wait until the first connections to the servers are open; a busy machine opens them slowly."""


class Poll(Request[None]):
    """Request to send calls to several servers at the same time. ``calls``: the call for each server; None: send none.

    ``counter`` gets the reply or the WireError of each server. No error is raised. The request ends when the counter needs no
    further reply, when all servers have replied, or after ``within`` seconds. The connections of servers that have not replied
    by then stay open, so the next call to such a server is carried out after this one.
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
        """True if the calls ask for votes; False if they undo something.

        A call for a vote is not sent to a server that has owed the reply to an earlier call for more than ``within`` seconds.
        """
        self.otherwise = otherwise
        """Function that returns a call, which the keeper (background thread) sends if one of ``calls`` fails; None: no call.

        Its argument is the index of the server. One of ``calls`` may also fail after this request has ended.
        """


class GiveBack(Instant[None]):
    """Request that the keeper (background thread) sends a call to one server until it replies.

    ``server``: index of the server. ``until``: monotonic time, in seconds, after which the keeper stops.
    """

    __slots__ = __match_args__ = ("call", "server", "until")

    call: RunScript[int]
    server: int
    until: float

    def __init__(self, call: RunScript[int], server: int, until: float) -> None:
        self.call = call
        self.server = server
        self.until = until


# Requests to a client of redis-py, for transactions


class CallClient(Request[Any]):
    """Request to call a function of holdfast or of a redis-py client. With asyncio, its result is awaited."""

    __slots__ = __match_args__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


class CallUser(Request[Any]):
    """Request to call a function of the user. With asyncio, its result is awaited."""

    __slots__ = __match_args__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


# Time and randomness


class Now(Instant[float]):
    """Request for the monotonic time in seconds, from a clock that goes on while the machine sleeps."""

    __slots__ = ()


class UnixTime(Instant[float]):
    """Request for the Unix time in seconds, from the clock of this machine, which may differ from other machines' clocks."""

    __slots__ = ()


class NewToken(Instant[str]):
    """Request for a new random token, ``<process id>.<random>``."""

    __slots__ = ()


class RandomFraction(Instant[float]):
    """Request for a random number from 0 to 1."""

    __slots__ = ()


class Sleep(Request[None]):
    __slots__ = __match_args__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


# Waiting for a lock


class WaitLocally(Request[None], Generic[W]):
    """Request to wait until the attempt gets the turn in the queue of its process (`_core.lock.local_queue`).

    The turn is the right to hold the lock, or to ask the server for it. The request ends at `Attempt.until` at the latest, but
    may end early, so the caller checks whether it has the turn. Raises RuntimeError if the calling thread must not wait.
    """

    __slots__ = __match_args__ = ("attempt",)

    def __init__(self, attempt: W) -> None:
        self.attempt = attempt

    def __await__(self) -> Any:
        return iter((self,))  # a generator would take twice the memory, and ten thousand attempts may wait


class RegisterWaiter(Request[Outcome | None], Generic[W]):
    """Request to register a waiter for hand-over messages, and to wait until the inbox of its process is subscribed.

    The inbox is the channel for messages to the process. The reply is None once the inbox is subscribed. Otherwise the reply is
    the result of the whole wait: monotonic time ``until`` (None: never) has passed, or the server is unreachable.
    """

    __slots__ = __match_args__ = ("waiter", "until")

    def __init__(self, waiter: W, until: float | None) -> None:
        self.waiter = waiter
        self.until = until


class Wait(Request[Outcome], Generic[W]):
    """Request to wait until a registered waiter has its result, or monotonic time ``until`` has passed (None: without limit).

    ``answer``: the server's reply that it has put the waiter into its queue; None: the waiter has inherited its position from
    another attempt.
    """

    __slots__ = __match_args__ = ("waiter", "answer", "until")

    def __init__(self, waiter: W, answer: Answer[Any] | None, until: float | None) -> None:
        self.waiter = waiter
        self.answer = answer
        self.until = until


class UnregisterWaiter(Instant[None], Generic[W]):
    """Request to remove a waiter that was registered with `RegisterWaiter`, whatever the result of its wait."""

    __slots__ = __match_args__ = ("waiter",)

    def __init__(self, waiter: W) -> None:
        self.waiter = waiter


# Notifications, see `_core.subscription`


class Subscribe(Request[None]):
    """Request to register a listener, and to wait until its inboxes (pub/sub channels) are subscribed.

    The request ends at monotonic time ``until`` at the latest.
    """

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Subscriber, until: float) -> None:
        self.listener = listener
        self.until = until


class AwaitNotice(Request[None]):
    """Request to wait until a listener is notified, or until monotonic time ``until`` has passed."""

    __slots__ = __match_args__ = ("listener", "until")

    def __init__(self, listener: Subscriber, until: float) -> None:
        self.listener = listener
        self.until = until


class Unsubscribe(Instant[None]):
    """Request to remove a listener, which then gets no further notifications."""

    __slots__ = __match_args__ = ("listener",)

    def __init__(self, listener: Subscriber) -> None:
        self.listener = listener


class GetCoalescer(Instant[Any]):
    """Request for the `Coalescer` of ``key``, the group of all callers in this process that wait for this key of the server."""

    __slots__ = __match_args__ = ("key",)

    def __init__(self, key: bytes) -> None:
        self.key = key


# Requests that leave work to the keeper


class KeepAlive(Instant[None], Generic[W]):
    """Request that the keeper (background thread) renews a held lease.

    If the object that owns the lease is garbage-collected, the keeper ends the lease.
    """

    __slots__ = __match_args__ = ("held",)

    def __init__(self, held: W) -> None:
        self.held = held


class StopKeepAlive(Instant[None], Generic[W]):
    """Request that the keeper (background thread) no longer renews a lease."""

    __slots__ = __match_args__ = ("held_lease",)

    def __init__(self, held_lease: W) -> None:
        self.held_lease = held_lease


class SendUntilAnswered(Instant[None]):
    """Request that the keeper (background thread) sends a call until the server replies, or until monotonic time ``until``."""

    __slots__ = __match_args__ = ("call", "until")

    def __init__(self, call: RunScript[Any], until: float) -> None:
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
    RunScript[Any]
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
"""A request that an operation on one server, or in a Cluster, may await."""

QuorumInstant = Now | NewToken | GiveBack | Unsubscribe
QuorumAwaited = Poll | RunOn | Sleep | WaitLocally[Any] | Subscribe | AwaitNotice
QuorumRequest = QuorumInstant | QuorumAwaited
"""A request that an operation on several voting servers may await."""

ClientInstant = Now | RandomFraction
ClientAwaited = CallClient | CallUser | Sleep
ClientRequest = ClientInstant | ClientAwaited
"""A request that a transaction may await."""
