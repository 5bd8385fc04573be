"""Ending a cycle of waiters: where the locks of one of them say so, the one who began to wait last gives way.

The keeper looks, over the line that it has anyway: nobody who waits has time for that. All processes see the same records, and
choose the same wait; only its own process ends it.
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
    from holdfast._core.lock.ports import Line, Wait, Watched

FIRST_LOOK_AFTER_S = 1.0
"""Seconds of waiting after which somebody looks for a cycle."""

LOOK_EVERY_S = 0.5
"""Seconds between two looks."""


class DeadlockDetector:
    """The looks of a process at the cycles that those who may give way are in, on one server."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[Chain, Evidence]] = {}
        """Cycles that the last look has found, by the owner and the lock of the link that waits."""
        self._look_at = 0.0
        self._looking = False

    def turn(self, node: Watched, waits: dict[Wait, Attempt], now: float) -> None:
        """Look, if it is time. In the keeper's thread."""
        late = [wait for wait in waits if wait.yields and now - wait.since >= FIRST_LOOK_AFTER_S]
        if not late:
            self._seen.clear()
        if self._looking or now < self._look_at or not late:
            return
        self._look_at, self._looking = now + LOOK_EVERY_S, True
        with node.mutex:  # with the labels, or these links would not be the ones that the server's records show
            labels = {key: label for of_prefix in node.labels_in_use().values() for key, label in of_prefix.items()}
        mine = links(node.keeper.process_id, node.keeper.record(late, labels))
        attempts = {(f"{wait.owner:x}", wait.lock): waits[wait] for wait in late}  # a record leaves out those that do not fit

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
        f"lock {name!r} can never be had: those who wait for each other wait in a cycle, and this is the one who began last. "
        f"Give back what you hold, and try again. {found}",
        name=name,
        key=attempt.spec.key,
        cycle=found,
    )


def drive(line: Line, operation: Coroutine[Any, Any, Any], then: Callable[[Any], None]) -> None:
    """Carry an operation out over a line of the keeper, that asks for commands alone; None where that fails."""

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
                operation.close()  # it would ask again after a pause: the next look will do
                then(None)

    go_on(None)
