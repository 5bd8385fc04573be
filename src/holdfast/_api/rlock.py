"""The common base of `RLock` in both APIs: the owners of reentrant locks, and how often each owner has acquired a lock.

An owner is an asyncio task, or the thread if no task runs in it. The counts are kept in this process; the server does not know
them. When an owner has ended, its counts are dropped, and its locks are no longer renewed.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, Never, TypeVar

from holdfast._api.lease import BaseLease, core_of
from holdfast._api.lease_core import Entered, LeaseCore
from holdfast._api.lock import BaseLock, L
from holdfast._api.options import refuse_mistaken
from holdfast._durations import Seconds
from holdfast._net.clients import Client, Servers
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError, LeaseLost, NotHeld

T = TypeVar("T")

Mark = str
"""A text that identifies one lock for all RLock objects of that lock. It is a str, which computes its hash only once."""

ONE_SERVER = {"linger": 0.0, "replicas": 0, "quarantine": False, "deadlock": "wait"}
SEVERAL = {"max_ttl": None, "answer_within": None}
"""Options that need several servers, with their defaults. ``ONE_SERVER`` has those that need one server."""


class Holding:
    """A lock held by one owner, and how many times the owner has acquired it."""

    guarded = 1
    """Value of ``count`` inside the ``async with`` body that a loss of the lease cancels; 0: there is no such body."""
    leaving = 0
    """Value of ``count`` at the start of a ``with`` exit that is running; 0 outside."""
    saved = 0
    """Value of ``count`` to restore after `Condition.wait`, which releases the lock completely meanwhile."""

    def __init__(self, core: Any, count: int = 1) -> None:
        self.core = core
        """The internal object of the lease."""
        self.count = count

    def again(self, result: T) -> T:
        """Count one more acquisition and return ``result``. The count stays right if a signal handler raises at any line."""
        before = self.count
        try:
            self.count = before + 1
            return result
        except BaseException:
            self.count = before
            raise

    @property
    def over(self) -> bool:
        """True if the lease was released through the `Lease` object, or belongs to the process that forked this one."""
        over: bool = self.core.is_over()
        return over


class Holdings(dict[Mark, Holding]):
    """The locks that one owner (thread or task) holds."""

    __slots__ = ("__weakref__",)

    def mine(self, mark: Mark) -> Holding | None:
        """Return the owner's holding of this lock, to be acquired once more; None if the owner does not hold it.

        Raises LeaseLost if the lease was lost, because the owner's outer code still relies on it.
        """
        holding = self.get(mark)
        if holding is None or holding.over:
            return None
        holding.core.check()
        return holding

    def leave(self, mark: Mark) -> Holding | None:
        """Reduce the number of acquisitions by one and return None. For the last acquisition, return the holding instead,
        whose lease the caller must release.

        Raises KeyError if there is no holding. For all acquisitions but the last, raises LeaseLost if the lease was lost, and
        NotHeld if it was released through the `Lease` object.
        """
        holding = self[mark]
        if holding.count == 1:
            return holding
        if not holding.leaving and holding.over:
            holding.core.check()
        holding.count -= 1
        holding.core.check()
        return None

    def tidy(self, mark: Mark) -> None:
        """Drop a holding whose lease was released."""
        holding = self.get(mark)
        if holding is not None and holding.count == 1 and holding.over:
            del self[mark]

    def left(self, mark: Mark) -> None:
        """End the exit of a ``with`` statement. Only the outermost exit drops the holding, because each exit needs it."""
        holding = self.get(mark)
        if holding is not None:
            last, holding.leaving = holding.leaving == 1, 0
            if last:
                self.tidy(mark)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.holdings = Holdings()


_thread = _Thread()
_tasks: MutableMapping[Any, Holdings] = weakref.WeakKeyDictionary()


_running_loop: Callable[[], Any] | None = None
_current_task: Callable[[Any], Any]


def holdings() -> Holdings:
    """Return the locks held by the task that runs in this thread, or by the thread if no task runs."""
    loop = _running_loop() if _running_loop is not None else _find_asyncio()
    if loop is not None:
        task = _current_task(loop)
        if task is not None:
            found = _tasks.get(task)
            if found is None:
                found = _tasks[task] = Holdings()
            return found
    return _thread.holdings


def _find_asyncio() -> Any:
    """Look up asyncio's functions and return the running event loop; None if the program has not imported asyncio."""
    global _running_loop, _current_task  # noqa: PLW0603 (a lookup at each use would cost as much as all the rest)
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    _current_task = asyncio.current_task
    _running_loop = asyncio._get_running_loop  # noqa: SLF001 - documented, and cheaper than an exception
    return _running_loop()


def depth(lock: Any) -> int:
    """Return how often the calling thread or task has acquired an RLock; 0 for other kinds of locks."""
    count: int = lock._recursion_count() if isinstance(lock, Reentrant) else 0  # noqa: SLF001 - named so by threading.RLock
    return count


def unfinished(lock: object, lease: BaseLease | None, before: int) -> bool:
    """Return True if the end of a ``with`` statement did not release what its start had acquired.

    An interrupt at the first instruction of ``__exit__`` can cause this, so the code around the ``with`` has to check for it.
    ``lease``: lease that the ``with`` returned. ``before``: `depth` of the lock before the ``with``.
    """
    if lease is None:
        return False
    return depth(lock) > before if isinstance(lock, Reentrant) else not core_of(lease).is_over()


class BaseOwnedCore(LeaseCore):
    """The internal object of the lease of an RLock, which its owner (a thread or task) acquired."""

    def may_hand_over(self) -> None:
        """Raise NotHeld unless the caller owns the lock and has acquired it once, because other code may rely on the lock."""
        mine = next((holding for holding in holdings().values() if holding.core is self), None)
        why = ""
        if mine is None:
            why = "another thread or task holds it; issue the ticket there"
        elif mine.count != 1:
            why = f"this thread or task has acquired it {mine.count} times; release it down to one acquisition first"
        if why:
            raise NotHeld(f"cannot hand over lock {self.name!r}: {why}", name=self.name, key=self.key)


class Unlisted(Entered[Any]):
    """A list that stays empty, because an RLock finds its lease by the owner, and a list would keep leases of dead threads."""

    __slots__ = ()

    def push(self, owner: int, core: Any) -> None:
        core.owner, core.inside = owner, True


class Reentrant(BaseLock[L, Client]):
    """A mixin with the options and state that make a lock reentrant, for both APIs."""

    _several = False

    @hides_client("RLock.__init__")
    def __init__(
        self,
        client: Client | Servers[Client],
        name: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        linger: Seconds = 0.0,
        max_passes: int = 32,
        max_pass_time: Seconds = 0.01,
        replicas: int = 0,
        quarantine: bool | Seconds = False,
        deadlock: Literal["wait", "raise"] = "wait",
        max_ttl: Seconds | None = None,
        answer_within: Seconds | None = None,
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        options = {
            "ttl": ttl, "wait": wait, "renew": renew, "on_lost": on_lost, "max_hold": max_hold, "label": label, "key": key,
            "prefix": prefix, "linger": linger, "max_passes": max_passes, "max_pass_time": max_pass_time,
            "quarantine": quarantine, "replicas": replicas, "max_ttl": max_ttl, "answer_within": answer_within,
            "progress_within": progress_within, "deadlock": deadlock,
        }  # fmt: skip
        super().__init__(client, name, **self._fitting(options))  # type: ignore[arg-type]  # super() may be a BaseRedlock

    def _start(self) -> None:
        super()._start()
        self._entered: Any = Unlisted()
        # All lock objects for one server share one endpoint or Cluster object, and each lease keeps it alive, so its id is
        # unique.
        place = self._cluster or self._endpoint
        places = place if isinstance(place, tuple) else (place,)
        self._mark: Mark = " ".join((self._face, *(f"{id(one):x}" for one in places), self._spec.keys[0].decode("latin-1")))

    def _fitting(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options that fit the servers, which are one or several. Raises ConfigError if another option is set."""
        for name, default in (ONE_SERVER if self._several else SEVERAL).items():
            if options.pop(name) != default:
                only = "one server" if self._several else "several servers"
                raise ConfigError(f"{name} works only with an RLock on {only}", parameter=name)
        return {name: value for name, value in options.items() if not (name in SEVERAL and value is None)}

    def _live(self) -> Any:
        holding = holdings().get(self._mark)
        return None if holding is None or holding.over else holding.core

    @property
    def lease(self) -> L | None:
        """The lease that the calling thread or task holds; None if it holds none."""
        core = self._live()
        return None if core is None else core.user_lease()

    def _took(self, core: Any) -> None:
        if core is not None:
            mine = holdings()
            before = mine.get(self._mark)
            mine[self._mark] = Holding(core, 1 if before is None else before.saved or 1)

    _current: Any = property(_live, _took)
    """The lease of the calling thread or task. Setting it stores the lease with its owner, not in this lock object."""

    def _held(self) -> Holding:
        """Return the holding of the calling thread or task. Raises NotHeld if it has none."""
        holding = holdings().get(self._mark)
        if holding is None or holding.over:
            raise self._not_held()
        return holding

    def _inside(self) -> Holding:
        """Return the caller's holding at the end of a ``with``, even if its lease was released in the body."""
        holding = holdings().get(self._mark)
        if holding is None:
            raise self._not_held()
        return holding

    def _not_held(self) -> NotHeld:
        return NotHeld(
            f"cannot release un-acquired lock {self.name!r}: this thread or task does not hold it",
            name=self.name,
            key=self.key,
        )

    def _step_out(self, error: BaseException | None) -> None:
        """Count one acquisition less at the end of an inner ``with``. The lock stays held."""
        try:
            holdings().leave(self._mark)
        except NotHeld:
            pass  # The lease was released inside the body.
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    def _is_owned(self) -> bool:
        """Return True if the calling thread or task holds the lock. threading.Condition calls this, as on a threading.RLock."""
        return self._live() is not None

    def _recursion_count(self) -> int:
        """Return how often this thread or task has acquired the lock, as a threading.RLock does."""
        holding = holdings().get(self._mark)
        return 0 if holding is None or holding.over else holding.count
