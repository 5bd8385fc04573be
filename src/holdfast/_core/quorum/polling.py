"""What an operation on several servers may ask of whoever drives it; the rest is as in `_core.requests` and
`_core.subscription`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._core.requests import Call, Request, Run

if TYPE_CHECKING:
    from holdfast._core.quorum.votes import Tally

OPENING = 1.0
"""Seconds for which the very first connections are waited for, at most: a busy machine takes its time to open them, and that
says nothing about the servers."""


@dataclass(slots=True)
class Poll(Request[None]):
    """Send a call to each of several servers, all at the same time (None: that one is not asked). Whatever comes, answer or
    WireError, is told to ``tally``, until it says that it has heard enough, all have answered, or ``within`` seconds are over.

    Who has not answered by then stays under way: the next call to that server goes behind it, on the same connection. Errors
    are told, never raised.
    """

    calls: list[Call | None]
    tally: Tally
    within: float
    begins: bool = False
    """These begin something, and take nothing back: a server that owes an answer for longer than ``within`` is not asked."""
    otherwise: Callable[[int], GiveBack] | None = None
    """What the keeper is to send to a server that fails, by its number: also to one that fails when nobody waits any more."""


@dataclass(slots=True)
class GiveBack(Request[None]):
    """Have the keeper send this to one of the servers, again and again until it answers or local time ``until``. Waits for
    nothing."""

    call: Run[int]
    server: int
    until: float
