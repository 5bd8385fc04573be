"""What an operation may ask of whoever drives it, and the ways in which asking can fail.

An operation is an ``async def`` that awaits these objects and nothing else. Its driver (`_runtime.drivers.sync`,
`_runtime.drivers.aio`, or a simulator under a virtual clock) takes each request from ``.send()``, does it, and sends the reply
back in; time and randomness are requests too. So an algorithm exists once, and mypy knows the type of every reply.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from holdfast._core.struct import Struct

if TYPE_CHECKING:
    from holdfast._core.lock.records import Attempt
    from holdfast._core.lock.server_queue import Waiter
    from holdfast._core.single_flight.coalesce import Crowd  # noqa: F401 (what `Meet` answers)
    from holdfast._lua import Script

R = TypeVar("R")


class Request(Struct, Generic[R]):
    """Something an operation awaits; ``R`` is the type of the reply."""

    __slots__ = ()

    def __await__(self) -> Generator[Self, R, R]:
        return (yield self)


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
    """The lock is ours until local time ``deadline``. ``claim``: handed over, the lease is only the claim window so far."""

    fence: int
    deadline: float
    claim: bool


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


class Disagreement(Exception):
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
    """What a script has found where the lock should be: what `refused`, `no_number` and `read_state` answer, which are in
    `_lua/shared/_state.lua`. ``what``: ends the sentence about a key that holds something else."""
    match raw:
        case [-2, bytes(key), bytes(kind)]:
            why = f"key {key.decode(errors='backslashreplace')!r} holds a {kind.decode()}{what}"
            return Conflict(why, other_kind=True, key=key)
        case [-3, bytes(version)]:
            return Conflict(
                f"its state has format {version.decode(errors='replace')!r}, this release knows format 1", other_kind=True
            )
        case [-4, bytes(message)]:
            return Conflict(message.decode(errors="replace"))
        case [-8, bytes(key), bytes(field), bytes(text)]:
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
"""What becomes of a waiter."""


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


class Send(Request[None]):
    """Have the keeper send this until it is answered, or local time ``until``. Waits for nothing."""

    __slots__ = __match_args__ = ("call", "until")

    def __init__(self, call: Run[Any], until: float) -> None:
        self.call = call
        self.until = until


Call = Run[Any] | Command


class Now(Request[float]):
    """Local time in seconds: monotonic, and counting while the machine sleeps."""

    __slots__ = ()


class Wall(Request[float]):
    """Unix time in seconds, as this machine's clock shows it: others may show another one."""

    __slots__ = ()


class Draw(Request[str]):
    """A new token: ``<process id>.<random>``."""

    __slots__ = ()


class Sleep(Request[None]):
    __slots__ = __match_args__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Park(Request[None]):
    """Stand in line in this process (`_core.lock.local_queue`): returns when there may be something to look at, at the latest
    at `Attempt.until`. Never raises."""

    __slots__ = __match_args__ = ("attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def __await__(self) -> Any:
        return iter((self,))  # ten thousand may stand in line, and a generator takes twice the memory


class Enlist(Request[Outcome | None]):
    """Make this waiter known to the process's inbox; returns when the inbox listens on the server.

    None when it listens; otherwise the outcome (time is up, or the server is down).
    """

    __slots__ = __match_args__ = ("waiter", "until")

    def __init__(self, waiter: Waiter, until: float | None) -> None:
        self.waiter = waiter
        self.until = until


class Meet(Request["Crowd"]):
    """Those of this process who wait for ``key`` on this server."""

    __slots__ = __match_args__ = ("key",)

    def __init__(self, key: bytes) -> None:
        self.key = key


class Wait(Request[Outcome]):
    """Wait for what becomes of a waiter, until local time ``until`` (None: for ever). ``answer``: what it was just told; None
    where another one was, whose place it has."""

    __slots__ = __match_args__ = ("waiter", "answer", "until")

    def __init__(self, waiter: Waiter, answer: Answer[Any] | None, until: float | None) -> None:
        self.waiter = waiter
        self.answer = answer
        self.until = until


class Delist(Request[None]):
    """The waiter waits no more, whatever came of it."""

    __slots__ = __match_args__ = ("waiter",)

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
