"""What a gate (`_core.gate`) needs of the node it belongs to (`_core.node`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast._core.gate import Gate
    from holdfast._core.renewing import Tenure
    from holdfast._core.waiting import Waiting


class Surroundings(Protocol):
    """What a gate needs of the node it belongs to."""

    waiting: Waiting

    def forget(self, tenure: Tenure) -> None:
        """Renew this lease no more; the mutex is held."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Guards the gate, and the books of the keeper."""

    @property
    def reachable(self) -> bool:
        """The inbox listens: who waits outside can say so."""

    def clock(self) -> float:
        """Local time in seconds."""

    def stirs(self) -> bool:
        """Something has come to the inbox that nobody has read yet."""

    def be_reachable(self) -> None:
        """Open the inbox; the mutex is held."""

    def asked_for(self, token: str) -> bool:
        """Somebody outside has asked for what this token holds before anybody here knew of it. Said once; the mutex is held."""

    def look_at(self, gate: Gate, at: float) -> None:
        """Call `Gate.on_time` at local time ``at``; the mutex is held."""

    def give_back(self, gate: Gate | None, tenure: Tenure) -> None:
        """Give back a lease that nobody holds, soon, and say so to `Gate.left` of the gate that waits for it; the mutex is
        held."""
