"""An event for threads that signal handlers may use, too."""

from __future__ import annotations

import queue
import threading


class Flag(threading.Event):
    """A `threading.Event` without a mutex. A signal handler runs in the main thread, wherever that happens to be: if it used a
    plain event whose mutex that very thread holds, it would wait for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._waiting: list[queue.SimpleQueue[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True  # first: whoever begins to wait now looks at it
        for waiter in [*self._waiting]:
            waiter.put(None)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for ``timeout`` seconds: whether it is set."""
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
