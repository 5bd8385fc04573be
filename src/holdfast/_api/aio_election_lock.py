"""The lock of an election for asyncio: its holder leads. `Election` is the candidate that uses it."""

from __future__ import annotations

from holdfast._api import election
from holdfast._api.aio_lock import BaseAioLock
from holdfast._api.lease import AioTerm as Term
from holdfast._api.lease_core import AioLeaseCore
from holdfast._net.clients import AsyncClient


class LeaderLock(BaseAioLock[Term]):
    """The methods that an `Election` calls on its lock, for one server or several."""

    _lease_type = Term

    def live_term(self) -> AioLeaseCore | None:
        """Return the internal object of the term that this candidate leads in; None if it does not lead."""
        core: AioLeaseCore | None = self._live()
        return core

    async def leader_name(self) -> bytes | None:
        """Return the name of the leader, or of the lock's holder, for a message; None or empty: unknown."""
        return await self._driver().run(self._holder(election.NOBODY))


class TermCore(election.BaseTermCore, AioLeaseCore):
    """The internal object of a term, for an election on one server."""


class ElectionLock(election.BaseElectionLock[Term, AsyncClient], LeaderLock):
    """The lock of an election on one server."""

    _core_type = TermCore
