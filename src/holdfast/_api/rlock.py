"""The common part of `RLock` in both APIs: its owners, and how often each has acquired it. Kept in the process: no server is
asked for it.

An owner is a thread, or an asyncio task where one runs. Its locks are kept with it, and dropped with it: the lock of a thread
that has died is renewed no more, like that of a lock object that is collected.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, Generic, Literal, Never

from holdfast._api.lease import BaseLease, Entered
from holdfast._api.lock import BaseLock, L
from holdfast._api.options import refuse_mistaken
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError, LeaseLost, NotHeld

Mark = str
"""Identifies a lock: all objects of one API for the same lock share it. A text, as its hash is computed only once."""

ONE_SERVER = {"linger": 0.0, "replicas": 0, "quarantine": False, "deadlock": "wait"}
SEVERAL = {"max_ttl": None, "answer_within": None}
"""Options for one server only, and for several only; with what they are when they are not given."""


class Holding(Generic[L]):
    """A lock with its owner, and how often the owner has acquired it."""

    guarded = 1
    """Count at the entry of the body that is cancelled if the lease is lost."""
    leaving = 0
    """Count at the end of a ``with`` that is being left."""
    saved = 0
    """Count to restore after `Condition.wait`, which releases the lock completely meanwhile."""

    def __init__(self, lease: L, count: int = 1) -> None:
        self.lease = lease
        self.count = count

    def again(self) -> L:
        """Once more. Survives an interrupt at each line."""
        before = self.count
        try:
            self.count = before + 1
            return self.lease
        except BaseException:
            self.count = before
            raise

    @property
    def over(self) -> bool:
        """The lease was given back by hand, or is that of the process which forked this one."""
        return self.lease._is_over()  # noqa: SLF001


class Holdings(dict[Mark, Holding[Any]]):
    """The locks of one owner."""

    __slots__ = ("__weakref__",)

    def mine(self, mark: Mark) -> Holding[Any] | None:
        """To be taken again; None: it has to be taken. Raises LeaseLost if it was lost: it is not taken anew behind the back
        of who believes to have it."""
        holding = self.get(mark)
        if holding is None or holding.over:
            return None
        holding.lease.check()
        return holding

    def leave(self, mark: Mark) -> Holding[Any] | None:
        """Count one acquisition less. Return the holding if that was the last: its lease has to be released then.

        Raises KeyError if there is no holding, LeaseLost if it was lost before, and, at the end of a ``with`` only, NotHeld if
        it was released by hand.
        """
        holding = self[mark]
        if holding.count == 1:
            return holding
        if not holding.leaving and holding.over:
            holding.lease.check()
        holding.count -= 1
        holding.lease.check()
        return None

    def tidy(self, mark: Mark) -> None:
        """Forget a lease that was given back."""
        holding = self.get(mark)
        if holding is not None and holding.count == 1 and holding.over:
            del self[mark]

    def left(self, mark: Mark) -> None:
        """The end of a ``with`` is over. Only the outermost forgets the lease: others would not know that they were entered."""
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
    """Those of the task that runs in this thread, or of the thread."""
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
    """It is not imported for this: where nobody has, no task runs."""
    global _running_loop, _current_task  # noqa: PLW0603 (looked up once; at each use it would cost as much as all the rest)
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    _current_task = asyncio.current_task
    _running_loop = asyncio._get_running_loop  # noqa: SLF001 - documented, and cheaper than an exception
    return _running_loop()


def depth(lock: Any) -> int:
    """How often who asks has taken an RLock; 0 for other locks."""
    count: int = lock._recursion_count() if isinstance(lock, Reentrant) else 0  # noqa: SLF001
    return count


def unfinished(lock: object, lease: BaseLease | None, before: int) -> bool:
    """Whether the end of a ``with`` did not give back what its beginning took: for a frame of ours around it.

    So it is after an interrupt (KeyboardInterrupt, or what a signal handler raises) at its first instruction, where nothing of
    the lock's can catch it. ``before``: the `depth` before the ``with``.
    """
    if lease is None:
        return False
    return depth(lock) > before if isinstance(lock, Reentrant) else not lease._is_over()  # noqa: SLF001


class OwnedLease(BaseLease):
    """One acquisition of an RLock."""

    def _may_hand_over(self) -> None:
        """A ticket is made by the owner, and where nobody further out believes to hold the lock still."""
        mine = next((holding for holding in holdings().values() if holding.lease is self), None)
        why = ""
        if mine is None:
            why = "another thread or task has it"
        elif mine.count != 1:
            why = f"it was taken {mine.count} times, and who took it first believes to have it still"
        if why:
            raise NotHeld(f"cannot hand over lock {self.name!r}: {why}", name=self.name, key=self.key)


class Unlisted(Entered[L]):
    """An RLock knows by itself whose ``with`` it is in, and does not keep leases alive whose thread has died."""

    __slots__ = ()

    def push(self, owner: int, lease: L) -> None:
        lease._owner = owner  # noqa: SLF001


class Reentrant(BaseLock[L]):
    """The part that makes a lock an `RLock`, for both APIs."""

    _several = False

    @hides_client("RLock.__init__")
    def __init__(
        self,
        client: object,
        name: str | bytes,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: float | None = None,
        progress_within: float | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        linger: float = 0.0,
        max_passes: int = 32,
        max_pass_time: float = 0.01,
        replicas: int = 0,
        quarantine: bool | float = False,
        deadlock: Literal["wait", "raise"] = "wait",
        max_ttl: float | None = None,
        answer_within: float | None = None,
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        options = {
            "ttl": ttl, "wait": wait, "renew": renew, "on_lost": on_lost, "max_hold": max_hold, "label": label, "key": key,
            "prefix": prefix, "linger": linger, "max_passes": max_passes, "max_pass_time": max_pass_time,
            "quarantine": quarantine, "replicas": replicas, "max_ttl": max_ttl, "answer_within": answer_within,
            "progress_within": progress_within, "deadlock": deadlock,
        }  # fmt: skip
        super().__init__(client, name, **self._fitting(options))

    def _start(self) -> None:
        super()._start()
        self._entered: Any = Unlisted[L]()
        # An endpoint, or a Cluster, is the same object for all who mean it, and who has a lease of it keeps it alive.
        place = self._cluster or self._endpoint
        places = place if isinstance(place, tuple) else (place,)
        self._mark: Mark = " ".join((self._face, *(f"{id(one):x}" for one in places), self._spec.keys[0].decode("latin-1")))

    def _fitting(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options that apply to one server, or to several. Raises ConfigError for the others."""
        for name, default in (ONE_SERVER if self._several else SEVERAL).items():
            if options.pop(name) != default:
                only = "one server" if self._several else "several servers"
                raise ConfigError(f"{name} is for an RLock on {only}", parameter=name)
        return {name: value for name, value in options.items() if not (name in SEVERAL and value is None)}

    @property
    def lease(self) -> L | None:
        """The lease that this thread or task has, until it is given back."""
        holding = holdings().get(self._mark)
        return None if holding is None or holding.over else holding.lease

    def _took(self, lease: L | None) -> None:
        if lease is not None:
            mine = holdings()
            before = mine.get(self._mark)
            mine[self._mark] = Holding(lease, 1 if before is None else before.saved or 1)

    _current: Any = property(lambda self: self.lease, _took)
    """A lease belongs to the thread or task that acquired it, not to this object."""

    def _held(self) -> Holding[L]:
        """Return the locks of this thread or task. Raises NotHeld."""
        holding = holdings().get(self._mark)
        if holding is None or holding.over:
            raise self._not_held()
        return holding

    def _inside(self) -> Holding[L]:
        """The same at the end of a ``with``, where the lease may have been given back in the body."""
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
        """The end of a ``with`` that is not the outermost: nothing is given back."""
        try:
            holdings().leave(self._mark)
        except NotHeld:
            pass  # given back inside the body
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    def _is_owned(self) -> bool:
        """Return whether the caller holds the lock: threading.Condition asks, as it asks a threading.RLock."""
        return self.lease is not None

    def _recursion_count(self) -> int:
        """Return how often this thread or task has acquired the lock, as a threading.RLock does."""
        holding = holdings().get(self._mark)
        return 0 if holding is None or holding.over else holding.count
