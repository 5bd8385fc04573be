"""The worker processes of a scenario. They are forked from a process without threads, and get orders through pipes."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

_SPACE = multiprocessing.get_context("forkserver")
_SPACE.set_forkserver_preload(["holdfast_lab.bench.scenarios"])  # imported once, instead of in each worker
_PATIENCE = 10.0
"""Seconds to wait for a worker to end by itself."""


class _Failed(NamedTuple):
    text: str


class BenchWorker:
    """A worker process, as the main process sees it."""

    def __init__(self, target: Callable[..., None], arguments: tuple[object, ...]) -> None:
        self.pipe, theirs = _SPACE.Pipe()
        self.process: BaseProcess = _SPACE.Process(target=_run, args=(target, theirs, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def tell(self, what: object) -> None:
        self.pipe.send(what)

    def hear(self) -> Any:
        """Return the next message of the worker. Raises RuntimeError if the worker has failed or ended.

        If it has failed, the error text includes its traceback.
        """
        try:
            said = self.pipe.recv()
        except EOFError:
            raise RuntimeError("a process of the benchmark ended too early") from None
        if isinstance(said, _Failed):
            raise RuntimeError(f"a process of the benchmark failed:\n{said.text}")  # noqa: TRY004 (not a type error)
        return said

    def ask(self, what: object) -> Any:
        self.tell(what)
        return self.hear()

    def end(self) -> None:
        """Close the pipe, and wait until the worker ends. Kill it after 10 seconds."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def workers(count: int, target: Callable[..., None], *arguments: object) -> Iterator[list[BenchWorker]]:
    """Start ``count`` processes that run ``target(pipe, *arguments)``, and end them after the ``with`` block."""
    started: list[BenchWorker] = []
    try:
        for _ in range(count):
            started.append(BenchWorker(target, arguments))  # noqa: PERF401 (if one cannot start, the others are ended)
        yield started
    finally:
        for worker in started:
            worker.end()


def _run(target: Callable[..., None], pipe: Connection, arguments: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which ends its workers
    try:
        target(pipe, *arguments)
    except (EOFError, BrokenPipeError):
        pass
    except Exception:  # noqa: BLE001 (the parent, which waits for an answer, raises any error)
        pipe.send(_Failed(traceback.format_exc()))
