"""A replacement for `threading.Event` that a signal handler may set."""

from __future__ import annotations

import queue
import threading


class Flag(threading.Event):
    """A `threading.Event` without a mutex, so that signal handlers may use it.

    A signal handler may interrupt code that holds the mutex of a plain event. Setting that event in the handler would then
    block forever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._waiting: list[queue.SimpleQueue[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def __bool__(self) -> bool:
        """Return `is_set`. Without this method, ``if lease.lost:`` would be true for every lease."""
        return self.is_set()

    def set(self) -> None:
        self._is_set = True  # the flag is set first, so that a thread that begins to wait now sees it
        for waiter in [*self._waiting]:
            waiter.put(None)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self.is_set():
            return True
        waiter: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting.append(waiter)
        try:
            if not self.is_set():
                waiter.get(timeout=None if timeout is None else max(0.0, timeout))
                return True
        except queue.Empty:
            pass
        finally:
            self._waiting.remove(waiter)
        return self.is_set()
