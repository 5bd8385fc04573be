"""End deadlocks, by ending one wait of each with an error.

The option ``deadlock=`` says which waits may be ended. Of these waits in a deadlock, the one that began last is ended. The
keeper (background thread) searches for deadlocks over its own connection, because the waiting threads are blocked. All
processes read the same records. So they choose the same wait, and the process of that wait ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast._core.deadlock.abort_wait import abort_wait
from holdfast._core.deadlock.cycles import Chain, Evidence, Link, links, shown, suspected, youngest
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import Answer, Command, WireError
from holdfast.errors import Deadlock

if TYPE_CHECKING:
    from holdfast._core.lock.ports import Line, LockWait, Watched

FIRST_LOOK_AFTER_S = 1.0
"""This process searches for deadlocks that contain a wait only after the wait has lasted for this many seconds."""

LOOK_EVERY_S = 0.5
"""Seconds between two searches for deadlocks."""


class DeadlockDetector:
    """The search for deadlocks that contain waits of this process, on one server. Waits that may not be ended are left out."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[Chain, Evidence]] = {}
        """Cycles that the last search found, by a thread or task of this process and the lock for which it waits.

        If the next search finds such a cycle again, the wait that began last is ended, if it is a wait of this process.
        """
        self._look_at = 0.0
        self._looking = False

    def turn(self, node: Watched, waits: dict[LockWait, Attempt], now: float) -> None:
        """Search for deadlocks that contain one of ``waits``, if `LOOK_EVERY_S` seconds have passed since the last search.

        The keeper (background thread) calls this method. ``now``: monotonic time in seconds.
        """
        late = [wait for wait in waits if wait.yields and now - wait.since >= FIRST_LOOK_AFTER_S]
        if not late:
            self._seen.clear()
        if self._looking or now < self._look_at or not late:
            return
        self._look_at, self._looking = now + LOOK_EVERY_S, True
        with node.mutex:  # The labels must match those in the records on the server, or these links would compare as different.
            labels = {key: label for of_prefix in node.labels_in_use().values() for key, label in of_prefix.items()}
        mine = links(node.keeper.process_id, node.keeper.record(late, labels))
        attempts = {(f"{wait.owner:x}", wait.lock): waits[wait] for wait in late}  # by key, as the record may lack some waits

        def then(found: list[tuple[Chain, Evidence] | None] | None) -> None:
            self._looking = False
            self._compare(node, attempts, list(zip(mine, found or [], strict=False)))

        drive(node.commands, _look(mine), then)

    def _compare(
        self, node: Watched, attempts: dict[tuple[str, str], Attempt], found: list[tuple[Link, tuple[Chain, Evidence] | None]]
    ) -> None:
        before, self._seen = self._seen, {}
        for link, seen in found:
            attempt = attempts.get((link.owner, link.lock))
            if seen is None or attempt is None:
                continue
            self._seen[link.owner, link.lock] = seen
            if before.get((link.owner, link.lock)) == seen and youngest(seen[0]) == link:
                with node.mutex:
                    abort_wait(node.waiting, attempt, _error(attempt, seen[0]))


async def _look(mine: list[Link]) -> list[tuple[Chain, Evidence] | None]:
    return [await suspected(link) for link in mine]


def _error(attempt: Attempt, cycle: Chain) -> Deadlock:
    name, found = attempt.spec.name, shown(cycle)
    return Deadlock(
        f"the wait for lock {name!r} was ended, because it closes a cycle of waits (a deadlock) and began last. "
        f"Release the locks that you hold and try again, or use MultiLock. {found}",
        name=name,
        key=attempt.spec.key,
        cycle=found,
    )


def drive(line: Line, operation: Coroutine[Any, Any, Any], then: Callable[[Any], None]) -> None:
    """Run an operation over ``line``, a connection of the keeper (background thread), and call ``then`` with its result.

    The result is None if the operation failed. It is also None if the operation awaited anything but a command to the server,
    for example a pause before a retry. The operation is then ended.
    """

    def go_on(reply: Any, _sent: float = 0.0) -> None:
        try:
            call = operation.throw(reply) if isinstance(reply, WireError) else operation.send(reply)
        except StopIteration as stop:
            then(stop.value)
        except WireError:
            then(None)
        else:
            if isinstance(call, Command):
                line.call(call, lambda value, sent: go_on(value if isinstance(value, WireError) else Answer(value, sent, sent)))
            else:
                operation.close()  # the operation wants to retry after a pause; the next search replaces the retry
                then(None)

    go_on(None)
