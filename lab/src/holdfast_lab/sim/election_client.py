"""Candidates and observers of an election in the simulation. They run the library's operations, and each step is recorded.

They record the events of a lock, and also:

- ``leads``: a candidate is elected. ``fence`` is the term, ``attempt`` is the candidate's name, and ``note`` has the names of
  other candidates that believe that they lead.
- ``gives``: the leader begins to hand the term over to another candidate. ``note`` is the name of that candidate.
- ``keeps``: the hand-over has failed, and the leader still leads.
- ``over``: the term has ended. ``note`` says how.
- ``saw``: an observer learns of a leader. ``attempt`` is the leader's name ("" if nobody leads), ``fence`` is the term, and
  ``note`` is the value that the leader published.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._api.election_lock import BaseTermCore
from holdfast._core import election as elections
from holdfast._core.election import Candidacy, Elected, ElectionKeys, LeaderWatch
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.spec import Spec
from holdfast._core.names import side_key
from holdfast._core.requests import Sleep, WireError
from holdfast.errors import HoldfastError, NoCandidate
from holdfast_lab.sim import lock_client
from holdfast_lab.sim.worker import Slot, TaskCancelled, Worker


class Term(BaseTermCore, lock_client.Lease):
    """A term as the library implements it, which also records its loss."""

    def notice_loss(self) -> None:
        super().notice_loss()
        self.note("over", fence=self.fence, note="lost")


@dataclass(slots=True)
class ElectionData:
    """The data that all candidates and observers of one election share."""

    spec: Spec
    terms: list[tuple[Candidate, Term]] = field(default_factory=list)
    """All terms so far, each with its candidate."""

    @property
    def election_keys(self) -> ElectionKeys:
        return ElectionKeys(self.spec, side_key(self.spec.keys[0], b"observers"))

    def believers(self, but: Term) -> list[str]:
        """Return the names of the other candidates that believe that they lead."""
        return [who.name for who, term in self.terms if term is not but and who.worker.process.here and term.remaining() > 0]


class Candidate(lock_client.Lock):
    _strategy = elections.FOR_A_CANDIDATE

    def __init__(self, worker: Worker, election: ElectionData, name: str) -> None:
        super().__init__(worker, election.spec, fair=True)
        self.election = election
        self.name = name

    def new_attempt(self, slot: Slot) -> Attempt:
        value = f"v{self.worker.acquisitions}"
        node, observers = self.worker.process.node, self.election.election_keys.observers
        return Candidacy(self.spec, slot=slot, node=node, name=self.name, value=value, observers=observers)

    def new_lease(self, grant: Grant) -> Term:
        return Term(self.worker, grant)

    def _tell(self, kind: str, term: Term, note: str = "") -> None:
        worker = self.worker
        worker.process.world.note(kind, worker.name, self.spec.key, self.name, fence=term.fence, note=note)

    async def campaign(self, wait: float | None) -> Term | None:
        """Campaign for at most ``wait`` seconds. Return the term, or None if the candidate got none or lost it at once."""
        term = await self.acquire(wait)
        if not isinstance(term, Term) or not term.remaining():
            return None
        self._tell("leads", term, " ".join(self.election.believers(term)))
        self.election.terms.append((self, term))
        return term

    async def resign(self, term: Term) -> None:
        self._tell("over", term, "resigns")
        await self.release(term)

    async def say(self, term: Term, value: str) -> None:
        """Publish a new value of this term. An error is ignored."""
        try:
            with self.worker.operation():
                await term.replace_value(value)
        except HoldfastError:
            pass

    async def hand_over(self, term: Term, to: str) -> str:
        """Hand the term over to the candidate ``to``.

        Return "handed" on success, "kept" if ``to`` does not campaign, or the name of the error.
        """
        self._tell("gives", term, to)
        try:
            with self.worker.operation():
                await term.transfer(to)
        except NoCandidate:
            self._tell("keeps", term, " ".join(self.election.believers(term)))
            return "kept"
        except HoldfastError as error:
            self._tell("over" if not term.remaining() else "keeps", term)
            return type(error).__name__
        except TaskCancelled:
            self._tell("over", term, "cancelled")
            raise
        finally:
            if not term.remaining():
                self.worker.process.leases.pop(term, None)
        self._tell("over", term, f"to {to}")
        return "handed"


class Observer:
    def __init__(self, worker: Worker, election: ElectionData) -> None:
        self.worker = worker
        self.election = election
        self.watch = LeaderWatch()

    async def see(self) -> Elected | None:
        """Wait for the next change of the leader. Return the new leader, or None if nobody leads."""
        while True:
            try:
                try:
                    with self.worker.operation():
                        found = await elections.change(self.election.election_keys, self.watch)
                except WireError:
                    await Sleep(0.5)
                    continue
            except TaskCancelled:
                self.watch = LeaderWatch()
            else:
                self._saw(*(found or ("", 0, "")))
                return found

    def _saw(self, name: str, term: int, value: str) -> None:
        self.worker.process.world.note("saw", self.worker.name, self.election.spec.key, name, fence=term, note=value)
