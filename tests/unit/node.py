"""What a gate needs of the node it belongs to: a clock that only the test moves, and lists of what it was asked to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from holdfast._core.lock.records import Attempt, Queue, Tenure
from holdfast._core.lock.renewal import Renewing
from holdfast._core.lock.server_queue import Waiting


@dataclass
class Node:
    now: float = 1000.0
    listens: bool = True
    stirring: bool = False
    """Something has come to the inbox that nobody has read yet."""
    waiting: Waiting = field(default_factory=Waiting)
    renewing: Renewing = field(default_factory=Renewing)
    mutex: AbstractContextManager[object] = field(default_factory=threading.RLock)
    todo: list[Callable[[], None]] = field(default_factory=list)
    """What the keeper is to do as soon as it can."""
    asked_early: set[str] = field(default_factory=set)
    opened: int = 0
    """How often the inbox was asked for."""
    looks: list[tuple[Queue, float]] = field(default_factory=list)
    given_back: list[Tenure] = field(default_factory=list)
    buried: list[Attempt] = field(default_factory=list)
    questioned: list[Tenure] = field(default_factory=list)
    relabelled: list[str | None] = field(default_factory=list)
    """The labels that are to be told."""
    servers: int = 1
    """How many are asked, a majority of which settles a question."""

    def reachable(self, prefix: bytes) -> bool:
        return self.listens

    def has_unread(self) -> bool:
        return self.stirring

    def in_change(self) -> bool:
        return bool(self.mutex._is_owned())  # type: ignore[attr-defined]

    def later(self, what: Callable[[], None]) -> None:
        self.todo.append(what)

    def clock(self) -> float:
        return self.now

    def be_reachable(self, prefix: bytes) -> None:
        self.opened += 1

    def somebody_waits(self) -> None:
        pass

    def label_changed(self, tenure: Tenure) -> None:
        self.relabelled.append(tenure.label)

    def asked_for(self, token: str) -> bool:
        return token in self.asked_early

    def look_at(self, gate: Queue, at: float) -> None:
        self.looks.append((gate, at))

    def forget(self, tenure: Tenure) -> None:
        self.renewing.forget(tenure.token)

    def give_back(self, gate: Queue | None, tenure: Tenure) -> None:
        tenure.end()
        self.forget(tenure)
        self.given_back.append(tenure)

    def bury(self, gate: Queue, attempt: Attempt) -> None:
        self.buried.append(attempt)

    def question(self, tenure: Tenure) -> tuple[int, int]:
        self.questioned += [tenure] * (self.servers > 0)
        return self.servers, self.servers // 2 + 1
