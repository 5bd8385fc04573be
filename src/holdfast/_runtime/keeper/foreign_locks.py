"""A task of the keeper that warns of a program that still uses a lock of another library under the same name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._core.lock import foreign_lock
from holdfast._core.lock.node import ANSWER_WITHIN_S
from holdfast._core.requests import Command, Refused
from holdfast._log import logger

if TYPE_CHECKING:
    from holdfast._core.lock.spec import Spec
    from holdfast._net.endpoint import Endpoint
    from holdfast._runtime.keeper.lines import LineKeeper
    from holdfast._runtime.keeper.ports import KeeperThread

    class _Keeper(KeeperThread, LineKeeper, Protocol):
        process_id: str

        def knows(self, endpoint: Endpoint) -> bool: ...


log = logger("holdfast.keeper")

MOST = 100
"""Maximum number of lock names for which a process looks for a lock of another library.

Each name costs one request. Without a limit, a program that uses a new name for each lock would send many more requests.
"""

AFTER_S = 0.1
"""Seconds from the first use of a name until the keeper looks for a lock of another library."""


class ForeignLocks:
    """A search for locks of other libraries, to warn users who migrate from one.

    The key of lock NAME is NAME in redis-py, and ``hf:{NAME}`` in holdfast, so the two locks do not exclude each other. For
    each of the first `MOST` lock names that a process uses, the keeper reads the key NAME once. If a value looks like a lock,
    the keeper logs a warning and stops searching.
    """

    def __init__(self, keeper: _Keeper) -> None:
        self._keeper = keeper
        self._seen: set[bytes] = set()
        self._due: list[tuple[Endpoint, Spec, bytes]] = []
        self._ended = False
        """True after a warning, or after the server has refused to show a key. The server would log each further refusal."""

    def note(self, endpoint: Endpoint, spec: Spec) -> None:
        """Look soon whether another library has a lock of this name, unless the search has ended.

        Do nothing for a user of the server other than ``default``. `holdfast acl` gives such a user no right to read the key,
        and the server logs each refusal in ACL LOG. Do nothing if the program has passed its own client, which has other work.
        """
        named = endpoint.username not in {None, "default"}
        if self._ended or named or endpoint.client is not None or len(self._seen) >= MOST:
            return
        key = foreign_lock.key_of(spec)
        with self._keeper.mutex:
            if key is None or key in self._seen:
                return
            self._seen.add(key)
            self._due.append((endpoint, spec, key))
            if len(self._due) == 1:
                self._keeper.later(AFTER_S, self._look)

    def _look(self) -> None:
        with self._keeper.mutex:
            due, self._due = [one for one in self._due if self._keeper.knows(one[0])], []
        for endpoint, spec, key in due:
            # GETRANGE, because a lock needs the right for it anyway, and the value may be large.
            read = Command(("GETRANGE", key, 0, foreign_lock.LONGEST), ANSWER_WITHIN_S)
            self._keeper.line_to(endpoint).call(read, functools.partial(self._on_value, endpoint, spec, key))

    def _on_value(self, endpoint: Endpoint, spec: Spec, key: bytes, value: Any, _sent: float) -> None:
        if isinstance(value, Refused):
            self._ended = self._ended or value.code == "NOPERM"
        elif isinstance(value, bytes) and value.startswith(self._keeper.process_id.encode()):
            pass  # this process holds that key, too, as a program does that changes from ``key=`` to a lock without it
        elif isinstance(value, bytes) and foreign_lock.may_be_lock(value):
            expiry = Command(("PTTL", key), ANSWER_WITHIN_S)
            self._keeper.line_to(endpoint).call(expiry, functools.partial(self._on_expiry, endpoint, spec, key, value))

    def _on_expiry(self, endpoint: Endpoint, spec: Spec, key: bytes, value: bytes, left_ms: Any, _sent: float) -> None:
        if self._ended or not isinstance(left_ms, int) or not foreign_lock.is_lock(value, left_ms):
            return
        self._ended = True
        theirs = key.decode(errors="backslashreplace")
        log.warning(
            "lock %r: the key %r on %s looks like a lock of another library, such as redis-py's. The key of this lock is %r, "
            "so the two do not exclude each other: pass key=%r to this lock while other programs use that key",
            spec.name, theirs, endpoint.address, spec.key, theirs,
        )  # fmt: skip
