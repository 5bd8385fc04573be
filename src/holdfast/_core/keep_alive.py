"""What an operation leaves to the keeper of its process: to look after what it holds."""

from __future__ import annotations

from typing import Protocol

from holdfast._core.lock.renewal import Tenure
from holdfast._core.requests import Request


class Held(Protocol):
    """Something that is held under a lease."""

    @property
    def tenure(self) -> Tenure:
        """The lease."""

    def notice_loss(self) -> None:
        """The lease is lost; called once, by whoever notices."""


class Tend(Request[None]):
    """Renew the lease of what is held, as long as somebody refers to it. When nobody does any more, it is given back."""

    __slots__ = __match_args__ = ("held",)

    def __init__(self, held: Held) -> None:
        self.held = held


class Leave(Request[None]):
    """Look after this lease no more."""

    __slots__ = __match_args__ = ("tenure",)

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
