"""`Schedule` for asyncio: coroutines run as tasks, functions in threads."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from holdfast.schedule.jobs import BaseSchedule, JobStatus, Record


class Schedule(BaseSchedule):
    """Jobs that run once per tick, on one of all the processes that serve them.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: of the schedule: processes that serve the same one share its jobs.
        labels: what this process is fit for: jobs declared with ``on=`` run only where one of theirs is among these.
        limit: runs at the same time in this process, at most.
    """

    def __init__(self, client: object, name: str = "default", *, labels: Iterable[str] = (), limit: int = 32) -> None:
        super().__init__(client, name, labels=labels, limit=limit)

    async def run(self, wait: float = 10.0) -> None:
        """Serve the jobs until SIGTERM, SIGINT or `stop`; then as `stop` with ``wait``."""
        raise NotImplementedError

    async def start(self) -> None:
        """Serve the jobs in the background, until `stop`. Registers them first: raises ServerError if the server is away."""
        raise NotImplementedError

    async def stop(self, wait: float = 10.0) -> None:
        """Claim nothing more. Runs may go on for ``wait`` seconds, then they are cancelled; what was theirs is given back."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def status(self) -> list[JobStatus]:
        """All jobs of the schedule that the server knows, whoever serves them, by name."""
        raise NotImplementedError

    async def history(self, job: str, limit: int = 50) -> list[Record]:
        """What became of the last ticks of a job, newest first. Raises ConfigError if the server knows no such job."""
        raise NotImplementedError

    async def pause(self, job: str) -> None:
        """Run a job no more, wherever it is served, until `resume`; ticks meanwhile are skipped. A run goes on."""
        raise NotImplementedError

    async def resume(self, job: str) -> None:
        """Undo `pause`, from the next tick on."""
        raise NotImplementedError

    async def run_now(self, job: str) -> None:
        """Have a job run once, now, on one of the processes that serve it; behind the run that goes on, if there is one."""
        raise NotImplementedError

    async def cancel(self, job: str) -> None:
        """Have the runs of a job ended that go on now."""
        raise NotImplementedError

    async def remove(self, job: str) -> None:
        """Forget a job that is no longer declared anywhere, with its history."""
        raise NotImplementedError
