"""Another process that uses a lock: told what to do in Python expressions, stopped, continued and killed by its test.

Run as a program it has one ``lock``, evaluates the lines it reads, and prints what they give. Expressions of the asyncio
API may be awaitable.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import holdfast
import holdfast.aio
import holdfast.fencing


class Peer:
    """Starts the program; use it in a ``with``.

    Several URLs, with blanks in between, make a Redlock. ``options``: of the lock; ``through``: a command to start it by.
    """

    def __init__(self, api: str, url: str, name: str, *, through: Sequence[str] = (), **options: Any) -> None:
        kept, self._keep = os.pipe()  # its forked children live until we close our end
        arguments = [api, url, name, json.dumps(options), str(kept)]
        self.process = subprocess.Popen(
            [*through, sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[kept],
            text=True,
        )
        os.close(kept)
        self.pid = self.process.pid
        assert self.answer(20) == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._keep)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def tell(self, expression: str) -> None:
        """Have it evaluated; what it gives is the next `answer`."""
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def answer(self, seconds: float = 10) -> Any:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(seconds), "no answer"
        return ast.literal_eval(self.process.stdout.readline() or "'it has ended'")

    def ask(self, expression: str) -> Any:
        """Value of an expression, or the name of the error that it raised."""
        self.tell(expression)
        return self.answer()

    def stop(self) -> None:
        """SIGSTOP; returns when it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.0005)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait()


class _Names(dict[str, Any]):
    """The names that the expressions may use."""

    def __init__(self, lock: Any, url: str, kept: int) -> None:
        super().__init__(lock=lock, url=url, holdfast=holdfast, os=os, sys=sys, fork=self._fork, start=self._start)
        self._kept = kept
        self._started: list[object] = []

    def _fork(self) -> int:
        """A child that does nothing but keep what it has inherited, until the test ends."""
        pid = os.fork()
        if not pid:
            os.read(self._kept, 1)
            os._exit(0)
        return pid

    def _start(self, what: Callable[[], Any]) -> None:
        """Call it in a thread, or in a task."""
        if inspect.iscoroutinefunction(what):
            self._started.append(asyncio.ensure_future(what()))
        else:
            threading.Thread(target=what, daemon=True).start()


def _say(value: object) -> None:
    sys.stdout.write(f"{value!r}\n")
    sys.stdout.flush()


def _main(url: str, name: str, options: dict[str, Any], kept: int) -> None:
    lock = holdfast.Redlock(url.split(), name, **options) if " " in url else holdfast.Lock(url, name, **options)
    names = _Names(lock, url, kept)
    _say("ready")
    for line in sys.stdin:
        try:
            _say(eval(line, names))  # noqa: S307
        except Exception as error:
            _say(type(error).__name__)


async def _main_aio(url: str, name: str, options: dict[str, Any], kept: int) -> None:
    lock = holdfast.aio.Redlock(url.split(), name, **options) if " " in url else holdfast.aio.Lock(url, name, **options)
    names = _Names(lock, url, kept)
    loop = asyncio.get_running_loop()
    _say("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            value = eval(line, names)  # noqa: S307
            _say(await value if inspect.isawaitable(value) else value)
        except Exception as error:
            _say(type(error).__name__)


if __name__ == "__main__":
    api, *rest = sys.argv[1:]
    warnings.simplefilter("ignore", holdfast.HoldfastWarning)
    if api == "sync":
        _main(rest[0], rest[1], json.loads(rest[2]), int(rest[3]))
    else:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from support.loops import use_the_chosen

        use_the_chosen()
        asyncio.run(_main_aio(rest[0], rest[1], json.loads(rest[2]), int(rest[3])))
