"""Single flight on one cached key in the simulation. The steps of lookups, loads and invalidations are recorded.

The cached value is the version number of the source's data. A worker that writes a new version to the source invalidates
the key after that, as users of a cache do. The events are:

- ``want``: a lookup begins.
- ``found``, ``load`` (the worker must load the value), ``busy``, ``absent``, ``failed`` or ``cancelled``: the outcome of the
  lookup.
- ``land``: a loaded value is sent to the server.
- ``landed``: the reply to ``land`` has arrived. ``note`` is "refused" if the value was not stored.
- ``aborted``: the load has ended without a value.
- ``void`` and ``voided``: an invalidation begins and ends.
- ``unsure``: the invalidation has ended with an error or was cancelled. The server may have carried it out or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._core.requests import Sleep, WireError
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.flight import EntrySpec, FoundValue, Load, Loading, LookupPolicy
from holdfast_lab.sim.worker import TaskCancelled, Worker


@dataclass(slots=True)
class Source:
    """The source of the values of one cached key, such as a database."""

    entry: EntrySpec
    ttl: float
    stale: float
    tag: str = "t"
    version: int = 0
    """Number of the newest version of the data."""
    loading: dict[str, Load] = field(default_factory=dict)
    """Loads that still read from the source, by the names of their lookups."""


class CacheClient:
    """A client of one cached key, used by one worker."""

    def __init__(self, worker: Worker, source: Source) -> None:
        self.worker = worker
        self.source = source
        self._lookups = 0
        for server in worker.process.world.servers:
            load, state, _ = source.entry.spec.keys
            server.locks[load] = state

    def _note(
        self, kind: str, lookup: str = "", *, fence: int = 0, version: int = 0, note: str = "", until: float = 0.0
    ) -> None:
        world = self.worker.process.world
        key = self.source.entry.spec.name
        world.note(kind, self.worker.name, key, lookup, fence=fence, last=version, note=note, until=until)

    async def get(self, policy: LookupPolicy, takes: float, *, fails: bool = False) -> None:
        """Look the value up by ``policy``. If the worker gets the load lease, it loads the value.

        The load takes ``takes`` seconds. If ``fails`` is True, the load fails.
        """
        worker = self.worker
        self._lookups += 1
        lookup = worker.acquisition = f"{worker.name}#{self._lookups}"
        load: Load | None = None
        try:
            with worker.operation():
                self._note(
                    "want",
                    lookup,
                    fence=policy.early,
                    until=policy.stale,
                    note="" if policy.wait is None else f"for {policy.wait:g} s",
                )
                result = await flight.get_or_lease(self.source.entry, policy)
                load = result if isinstance(result, Load) else None
            self._looked(lookup, result)
            if load is not None:
                await self._load(lookup, load, takes, fails=fails)
        except TaskCancelled:
            self._note("cancelled", lookup)
            self.source.loading.pop(lookup, None)
            if load is not None and not load.held_lease.over:
                with worker.operation():
                    await flight.cancel_load(load)
                self._note("aborted", lookup, fence=load.fence)
        except (WireError, flight.KeyConflict) as error:
            self._note("failed", lookup, note=f"{type(error).__name__}: {error}")

    def _looked(self, lookup: str, result: object) -> None:
        if isinstance(result, Load):
            process = self.worker.process
            believers = [other for other, load in self.source.loading.items() if self._believes(other, load)]
            self.source.loading[lookup] = result
            until = process.true(result.held_lease.deadline)
            self._note("load", lookup, fence=result.fence, version=self.source.version, note=" ".join(believers), until=until)
        elif isinstance(result, FoundValue):
            note = "stale" if result.stale else ""
            self._note("found", lookup, fence=result.record.fence, version=int(result.record.data), note=note)
        else:
            self._note("busy" if isinstance(result, Loading) else "absent", lookup)

    def _believes(self, lookup: str, load: Load) -> bool:
        """Return True if the process of this load is alive and believes that it has the load lease."""
        name = lookup.partition("/")[0]
        process = next(process for process in self.worker.process.world.processes if process.name == name)
        return process.here and load.remaining(process.clock()) > 0

    async def _load(self, lookup: str, load: Load, takes: float, *, fails: bool) -> None:
        worker, source = self.worker, self.source
        version = source.version  # a slow load stores an old version
        await Sleep(takes)
        source.loading.pop(lookup, None)
        if fails:
            with worker.operation():
                await flight.cancel_load(load)
            self._note("aborted", lookup, fence=load.fence)
            return
        until = worker.process.world.now + source.ttl
        self._note("land", lookup, fence=load.fence, version=version, until=until)
        with worker.operation():
            stored = await flight.store_loaded(
                load, "v", b"%d" % version, ttl=source.ttl, stale=source.stale, tags=(source.tag,), cost=takes
            )
        self._note("landed", lookup, fence=load.fence, version=version, note="" if stored else "refused", until=until)

    async def write(self, how: str) -> None:
        """Write a new version to the source, and then invalidate the older versions in the cache.

        ``how`` is "drop" (delete the cached value), "tag" (invalidate its tag), "all" (invalidate all values) or "store" (store
        the new version).
        """
        self.source.version += 1
        version = self.source.version
        self._note("void", version=version, note=how)
        try:
            with self.worker.operation():
                await self._invalidate(how, version)
        except (TaskCancelled, WireError, flight.KeyConflict):
            self._note("unsure", version=version, note=how)
            return
        self._note("voided", version=version, note=how)

    async def _invalidate(self, how: str, version: int) -> None:
        source, entry = self.source, self.source.entry
        match how:
            case "drop":
                await flight.delete(entry)
            case "tag":
                await flight.invalidate(entry, ("other", source.tag))
            case "all":
                await flight.invalidate(entry)
            case _:
                await flight.store(entry, "v", b"%d" % version, ttl=source.ttl, stale=source.stale, tags=(source.tag,))
