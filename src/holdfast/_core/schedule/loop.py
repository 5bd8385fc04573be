"""Serving a schedule: which ticks to claim when, what came of it, which runs to begin and to end.

Every process that serves a schedule claims each tick when it is due, in one request for all its jobs; the server gives it to
the first. All times of ticks are the server's: a process knows it from the last answer, plus what has passed since by its own
monotonic clock. As the answer was some time on its way, that is never ahead: nobody comes too early, however wrong
his wall clock is, and who comes late is refused, because a tick is named by its scheduled time.

`_core.schedule.state` is the state, and `turn` the operation that is driven again and again. What it answers is for the face to
do, which begins runs, in threads or tasks, and says `Book.end` when they have ended.
"""

from __future__ import annotations

from holdfast._core.names import prefix_of
from holdfast._core.requests import Draw, Hark, Now, Run, WireError, Withdraw
from holdfast._core.schedule.job import REGISTER, Registered, Rival, Unusable
from holdfast._core.schedule.records import Seat, Todo
from holdfast._core.schedule.state import BATCH, HERE, REACHABLE, Book
from holdfast._core.subscription import listen
from holdfast.errors import ConfigError


async def register(book: Book) -> None:
    """Make its jobs known. Raises WireError."""
    more = True
    while more:
        seats = book.unregistered()[:BATCH]
        call = _register(book, seats, "strict" if book.strict else "")
        answer = await call
        book.learn(answer.value[0], answer.came)
        book.registered(seats, answer.value[1])
        more = bool(book.unregistered())


def _register(book: Book, seats: list[Seat], mode: str) -> Run[tuple[int, list[Registered | Unusable] | Rival]]:
    keys = (book.keys.base, book.keys.serving, book.keys.jobs, *(seat.keys.job for seat in seats))
    facts = [fact for seat in seats for fact in (seat.name, seat.definition, seat.timetable, seat.agreed or seat.origin)]
    head = (book.listener.hope, int(REACHABLE * 1000), book.host, mode)
    return Run(REGISTER, keys, (*head, len(seats), *facts), book.timeout)


async def begin(book: Book) -> None:
    """Before the first `turn`, and when that is to begin anew in another loop. Raises WireError. Raises ConfigError, before
    anything is registered, where the book is strict and other code is being served under the name of one of its jobs."""
    book.listener = await listen(await Now() + 1.0, prefix_of(book.keys.base))
    try:
        if book.strict:
            await _look_for_rivals(book)
        await register(book)
    except BaseException:
        await leave(book)
        raise


async def _look_for_rivals(book: Book) -> None:
    """Raises ConfigError, WireError."""
    seats = book.unregistered()
    for at in range(0, len(seats), BATCH):
        batch = seats[at : at + BATCH]
        call = _register(book, batch, "look")
        found = (await call).value[1]
        if isinstance(found, Rival):
            raise ConfigError(f"{book.told_of(batch[found.job], found)}; refused, because of strict=True", parameter="strict")


async def turn(book: Book) -> list[Todo] | None:
    """Ask and wait, until there is something for the face to do. None: the book is done; `Withdraw` its listener."""
    while True:
        now = await Now()
        book.look_around(now)
        if book.todo:
            todo, book.todo = book.todo, []
            return todo
        try:
            if not await ask(book, now):
                if book.done:
                    return None
                await _wait(book)
        except WireError as error:
            book.failed(error, await Now())


async def ask(book: Book, now: float) -> bool:
    """Ask what there is to ask. Raises WireError."""
    if book.unregistered() and now >= book.retry_at:
        await register(book)
        return True
    items = book.gather(now)
    if items is None:
        return False
    room = book.room
    for item in sorted(items, key=lambda item: item.end is not None):  # whose run has just ended can wait for others
        if not item.token and room > 0:
            item.token, room = await Draw(), room - 1
    call = book.request(items, now)
    book.answered(await call)
    return True


async def _wait(book: Book) -> None:
    listener = book.listener
    if not listener.hints:
        await Hark(listener, book.next_at())
    told = set()
    while listener.hints:  # one by one: another thread may add to them meanwhile
        told.add(listener.hints.pop())
    if told - {HERE}:
        book.beat_at = 0.0  # whatever there is to look at, the next answer says so


async def leave(book: Book) -> None:
    """Be told nothing any more."""
    await Withdraw(book.listener)
