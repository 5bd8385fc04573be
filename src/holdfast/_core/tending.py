"""What an operation leaves to the keeper of its process: to look after what it holds, and to send what nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from holdfast._core.renewing import Tenure
from holdfast._core.requests import Request, Run


class Held(Protocol):
    """Something that is held under a lease."""

    @property
    def tenure(self) -> Tenure:
        """The lease."""

    def notice_loss(self) -> None:
        """The lease is lost; called once, by whoever notices."""


@dataclass(slots=True)
class Tend(Request[None]):
    """Renew the lease of what is held, as long as somebody refers to it. When nobody does any more, it is given back."""

    held: Held


@dataclass(slots=True)
class Leave(Request[None]):
    """Look after this lease no more."""

    tenure: Tenure


@dataclass(slots=True)
class Send(Request[None]):
    """Send this until it is answered, or local time ``until``."""

    call: Run[Any]
    until: float
