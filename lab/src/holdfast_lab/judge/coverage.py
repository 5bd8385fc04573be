"""Counts of what happened in the judged histories. If too little happened, the run proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from holdfast_lab.judge.evidence import Evidence
from holdfast_lab.judge.liveness_rules import unused
from holdfast_lab.judge.verdicts import Docket


@dataclass(slots=True)
class Coverage:
    """Counts of events and verdicts, added up over histories. The fields of type `Counter` count faults by kind."""

    histories: int = 0
    events: int = 0
    taken: int = 0
    contended: int = 0
    """Acquisitions for which the client had to queue, or during which another client held or acquired the lock."""
    handed_over: int = 0
    """Acquisitions by a waiter in the server's queue."""
    passed: int = 0
    """Acquisitions of a lease that was handed on."""
    inherited: int = 0
    """Acquisitions by a waiter that had inherited its position from a waiter of its process."""
    lingered: int = 0
    """How often a process kept a lease after its release, because none of its workers waited."""
    again: int = 0
    """Acquisitions of a lock by a worker that already held it."""
    renewed: int = 0
    expired: int = 0
    """Acquisitions whose lease ended before its holder released the lock, noticed its loss or died."""
    lost: int = 0
    """Acquisitions whose holder was notified of a loss."""
    refused: int = 0
    """Writes that the protected resource refused because of a low fence."""
    written: int = 0
    gave_up: int = 0
    """Attempts that ended busy, failed or cancelled."""
    died_holding: int = 0
    died_asking: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    faults_while_held: Counter[str] = field(default_factory=Counter)
    docket: Docket = field(default_factory=Docket)
    """Judged and excused cases, by rule."""

    def add(self, case: Evidence) -> None:
        self.histories += 1
        self.events += case.size
        for scene in case.scenes.values():
            for hold in scene.holds:
                self.taken += 1
                in_line = hold.lease in scene.queued and not hold.received
                self.handed_over += in_line
                self.passed += hold.received
                self.inherited += in_line and hold.lease != hold.attempt
                self.contended += in_line or (hold.ask is not None and hold.ask.contended)
                self.expired += hold.until <= hold.ended and hold.until <= case.last
                self.lost += hold.how == "lost"
                self.died_holding += hold.how == "crashed" and hold.ended < hold.until
            for lease in {hold.lease for hold in scene.holds}:
                self.lingered += sum(not kept.passed for kept in unused(case, scene, lease))
            for write in scene.writes:
                self.written += write.note == "accepted"
                self.refused += write.note == "refused"
        for ask in case.asks:
            self.gave_up += ask.outcome in {"busy", "failed", "cancelled"}
            self.died_asking += ask.outcome == "crashed"
        self.again += sum(event.kind == "again" for said in case.leases.values() for event in said)
        self.renewed += case.renewals
        for kind, held in case.struck:
            self.faults[kind] += 1
            if held:
                self.faults_while_held[kind] += 1

    def __iadd__(self, other: Coverage) -> Self:
        for each in fields(self):
            mine = getattr(self, each.name)
            mine += getattr(other, each.name)
            setattr(self, each.name, mine)
        return self

    def of(self, what: str) -> int:
        """Return the count that ``what`` names: a field of this class, or a kind of faults, such as "fault slow".

        "fault slow while held" counts only the faults of this kind that began while a worker held a lock.
        """
        if not what.startswith("fault "):
            return int(getattr(self, what))
        kind, _, held = what.removeprefix("fault ").partition(" ")
        return (self.faults_while_held if held else self.faults)[kind]

    def missing(self, minimum: Mapping[str, int]) -> list[str]:
        """Describe each event that happened less often than ``minimum`` demands. The keys of ``minimum`` are names for `of`."""
        return [f"{what}: {self.of(what)} of {least}" for what, least in minimum.items() if self.of(what) < least]

    def __str__(self) -> str:
        counts = [f"{each.name.replace('_', ' ')} {getattr(self, each.name)}" for each in fields(self) if each.type == "int"]
        kinds = [f"{kind} {count} ({self.faults_while_held[kind]})" for kind, count in sorted(self.faults.items())]
        return " · ".join(counts) + (f"\nfaults (while held): {', '.join(kinds)}" if kinds else "")
