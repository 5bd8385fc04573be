"""The other processes of a scenario: forked from a clean one, told what to do over a pipe, gone at the end whatever happens."""

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
_SPACE.set_forkserver_preload(["holdfast.bench.scenarios"])  # imported once, not by each worker
_PATIENCE = 10.0  # seconds a worker may take to end by itself


class _Failed(NamedTuple):
    text: str


class Worker:
    """One process, seen from ours."""

    def __init__(self, target: Callable[..., None], arguments: tuple[object, ...]) -> None:
        self.pipe, theirs = _SPACE.Pipe()
        self.process: BaseProcess = _SPACE.Process(target=_run, args=(target, theirs, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def tell(self, what: object) -> None:
        self.pipe.send(what)

    def hear(self) -> Any:
        """The next thing it says. Raises RuntimeError with its own words if it has failed."""
        try:
            said = self.pipe.recv()
        except EOFError:
            raise RuntimeError("a process of the benchmark has ended too early") from None
        if isinstance(said, _Failed):
            raise RuntimeError(f"a process of the benchmark has failed:\n{said.text}")  # noqa: TRY004 (no type of ours)
        return said

    def ask(self, what: object) -> Any:
        self.tell(what)
        return self.hear()

    def end(self) -> None:
        """It sees the end of file, and ends; or is ended."""
        self.pipe.close()
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def workers(count: int, target: Callable[..., None], *arguments: object) -> Iterator[list[Worker]]:
    """``count`` processes that run ``target(pipe, *arguments)`` until the end of file on the pipe."""
    started: list[Worker] = []
    try:
        for _ in range(count):
            started.append(Worker(target, arguments))  # noqa: PERF401 (those that have started are ended if one cannot)
        yield started
    finally:
        for worker in started:
            worker.end()


def _run(target: Callable[..., None], pipe: Connection, arguments: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who gives the orders
    try:
        target(pipe, *arguments)
    except (EOFError, BrokenPipeError):
        pass
    except Exception:  # noqa: BLE001 (whatever it is, the one who waits for an answer has to know)
        pipe.send(_Failed(traceback.format_exc()))
