"""One server in memory, with one lock: what the scripts of `_lua/` do, in Python, under a clock that only the test moves.

The same contracts are tested on real servers in tests/conformance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast._core.requests import Run

CLAIM = 2.0
PLACE = 3.0


def process_of(token: str) -> str:
    return token.split(".", 1)[0]


@dataclass
class Server:
    now: float = 1000.0
    holder: str = ""
    expires: float = 0.0
    fence: int = 0
    queue: dict[str, float] = field(default_factory=dict)
    """Token -> until when its place counts, in order of arrival."""
    dead: list[str] = field(default_factory=list)
    renewed: tuple[str, int] = ("", 0)
    conflict: bool = False
    """The lock's key holds data of somebody else's."""
    deaf: set[str] = field(default_factory=set)
    """Processes without a subscribed inbox."""
    published: list[tuple[str, int]] = field(default_factory=list)
    """Hand-overs that were published and not read yet: token, fence."""

    def current(self) -> str:
        if self.holder and self.expires <= self.now:
            self.holder = ""
        return self.holder

    def take(self, token: str, seconds: float) -> int:
        self.fence = max(self.fence + 1, int(self.now * 1e6))
        self.holder, self.expires = token, self.now + seconds
        return self.fence

    def hand_over(self, me: str = "") -> str:
        granted = False
        for token, until in list(self.queue.items()):
            if until <= self.now:
                del self.queue[token]
            elif token == me:
                return me
            else:
                fence = self.take(token, CLAIM)
                granted = True
                if process_of(token) not in self.deaf:
                    del self.queue[token]
                    self.published.append((token, fence))
                    return token
        if granted:
            self.holder = ""
        return ""

    def waiting(self) -> list[object]:
        left = int((self.expires - self.now) * 1000) if self.holder else -2
        return [0, left, self.fence, process_of(self.holder).encode()]

    # The scripts

    def acquire(self, token: str, ms: int, join: int) -> list[object]:
        if self.conflict:
            return [-2, b"hf:{x}", b"list"]
        if token in self.dead:
            return [-1]
        if self.current() == token:
            self.expires = max(self.expires, self.now + ms / 1000)
            return [1, self.fence]
        if not self.holder and (self.hand_over(token) or token) == token:
            self.queue.pop(token, None)
            return [1, self.take(token, ms / 1000)]
        if join:
            self.queue[token] = self.now + PLACE
        return self.waiting()

    def release(self, token: str, mode: str) -> int:
        if self.conflict:
            return -1
        holder = self.current()
        if holder == token:
            self.holder = ""
        if mode != "release":
            self.queue.pop(token, None)
        if mode == "bury":
            self.dead.append(token)
        if holder in {token, ""}:
            self.hand_over()
        return 1 if holder == token else -1 if holder else 0

    def renew(self, token: str, ms: int, number: int) -> int:
        if self.current() != token:
            return -1 if self.holder else 0
        if self.renewed[0] == token and self.renewed[1] > number:
            return 2
        self.renewed = token, number
        self.expires = self.now + ms / 1000
        return 1

    def refresh_one(self, token: str, ms: int) -> list[object]:
        if self.conflict:
            return [-2, b"hf:{x}", b"list"]
        if self.current() == token:
            self.expires = max(self.expires, self.now + ms / 1000)
            return [1, self.fence]
        if token not in self.queue:
            return [-1]
        self.queue[token] = self.now + PLACE
        if not self.holder and self.hand_over(token) == token:
            del self.queue[token]
            return [1, self.take(token, ms / 1000)]
        return self.waiting()

    def refresh(self, waiters: Iterable[tuple[str, int]]) -> list[object]:
        return [1, *(self.refresh_one(token, ms) for token, ms in waiters)]

    def perform(self, request: Run[Any]) -> object:
        """The typed reply of a script."""
        args = request.args
        match request.script.name, args:
            case "acquire", (str(token), int(ms), int(join)):
                raw: object = self.acquire(token, ms, join)
            case "release", (str(token), str(mode)):
                raw = self.release(token, mode)
            case "renew", (str(token), int(ms), int(number)):
                raw = self.renew(token, ms, number)
            case name, _:
                raise AssertionError(f"{name} with {args!r}")
        return request.script.parse(raw)
