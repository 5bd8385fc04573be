"""The lock of an election for threads: its holder leads. `Election` is the candidate that uses it."""

from __future__ import annotations

import threading

from holdfast._api import election
from holdfast._api.lease import Term
from holdfast._api.lease_core import SyncLeaseCore
from holdfast._api.sync_lock import BaseSyncLock
from holdfast._net.clients import SyncClient


class LeaderLock(BaseSyncLock[Term]):
    """The methods that an `Election` calls on its lock, for one server or several."""

    _lease_type = Term

    def live_term(self) -> SyncLeaseCore | None:
        """Return the internal object of the term that this candidate leads in; None if it does not lead."""
        core: SyncLeaseCore | None = self._live()
        return core

    def leader_name(self) -> bytes | None:
        """Return the name of the leader, or of the lock's holder, for a message; None or empty: unknown."""
        return self._driver().run(self._holder(election.NOBODY))

    def finish_release(self, core: SyncLeaseCore | None) -> None:
        """Finish a release that an interrupt has ended at any line. ``core``: object of the term; None: the latest term."""
        self._finish_release(core)

    def leave(self, error: BaseException | None) -> None:
        """Release the term at the end of its ``with`` statement. ``error``: the exception that ends the statement, if any."""
        self._leave(self._entered.innermost(threading.get_ident()), error)

    def give_back_entered(self) -> None:
        """Finish the end of a ``with`` statement that was interrupted."""
        self._give_back_entered()

    def forget_entered(self) -> None:
        """Drop the record of the ``with`` statement that ends."""
        self._entered.remove(self._entered.innermost(threading.get_ident()))


class TermCore(election.BaseTermCore, SyncLeaseCore):
    """The internal object of a term, for an election on one server."""


class ElectionLock(election.BaseElectionLock[Term, SyncClient], LeaderLock):
    """The lock of an election on one server."""

    _core_type = TermCore
