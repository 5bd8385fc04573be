"""A node for a local queue: a clock that only the test moves, and lists of the calls to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Self

from holdfast._core.lock.owner import Reference
from holdfast._core.lock.records import Attempt, HeldLease, Queue
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
    """Calls that the keeper is to make as soon as it can."""
    asked_early: set[str] = field(default_factory=set)
    opened: int = 0
    """How often the inbox was asked for."""
    looks: list[tuple[Queue, float]] = field(default_factory=list)
    given_back: list[HeldLease] = field(default_factory=list)
    revoked: list[Attempt] = field(default_factory=list)
    questioned: list[HeldLease] = field(default_factory=list)
    relabelled: list[str | None] = field(default_factory=list)
    """The labels that are to be told."""
    reported: list[HeldLease] = field(default_factory=list)
    """The leases whose owners were to be told of their loss."""
    collected: list[Reference] = field(default_factory=list)
    closing: bool = False
    servers: int = 1
    """How many are asked, a majority of which settles a question."""

    @property
    def keeper(self) -> Self:
        return self

    def register(self, held_lease: HeldLease, now: float, *, hurry: bool = True) -> list[HeldLease]:
        self.renewing.watch(held_lease)
        return []

    def report(self, held_lease: HeldLease) -> None:
        self.reported.append(held_lease)

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        action(*args)
        return True

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

    def label_changed(self, held_lease: HeldLease) -> None:
        self.relabelled.append(held_lease.label)

    def asked_for(self, token: str) -> bool:
        return token in self.asked_early

    def look_at(self, local_queue: Queue, at: float) -> None:
        self.looks.append((local_queue, at))

    def forget(self, held_lease: HeldLease) -> None:
        self.renewing.forget(held_lease.token)

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        held_lease.end()
        self.forget(held_lease)
        self.given_back.append(held_lease)

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        self.revoked.append(attempt)

    def question(self, held_lease: HeldLease) -> tuple[int, int]:
        self.questioned += [held_lease] * (self.servers > 0)
        return self.servers, self.servers // 2 + 1
