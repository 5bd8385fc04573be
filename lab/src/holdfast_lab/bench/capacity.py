"""Measure the capacity of one server: its memory per lock and per waiter, and what one core does per second.

A bare connection sends requests in batches. The server itself counts its memory and processor time, so the results depend
neither on the client's speed nor on other programs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import closing

from holdfast._core.lock.replies import ACQUIRE, REFRESH, RELEASE, RENEW
from holdfast._core.names import channel, lock_keys, prefix_of
from holdfast_lab.bench.bare import Bare, loads, pack
from holdfast_lab.bench.plan import PREFIX, Plan
from holdfast_lab.bench.report import Result, Row

TTL_MS = 60_000
BATCH = 100
"""Number of requests that are sent together."""

MEASURABLE = 1000
"""Minimum number of locks or waiters whose memory is measured. Memory of other clients may change during a measurement."""

MEMORY, WORK = "memory on the server", "operations"
HELD, WAITER = "a held lock", "a waiter in its queue"
PAIR, RENEWAL, REFRESHED, SET = "acquire + release", "renewal of a lease", "refresh of a waiter", "SET, for scale"


def measure(plan: Plan) -> Result:
    result = Result("what one server can hold and do", chart="per_core_second")
    server = Bare(plan.url)
    _send(server, loads(ACQUIRE, RELEASE, RENEW, REFRESH))
    server.close()
    count = max(MEASURABLE, plan.many(10_000, 10_000))
    for name, (taken, by_key) in ((HELD, _held(plan.url, count)), (WAITER, _waiting(plan.url, count))):
        result.rows.append(Row(name, {"server_bytes": taken, "n": float(count)}, MEMORY))
        result.notes.append(f"{name}: {by_key:.0f} B by MEMORY USAGE of its keys; the rest is tables of keys and expiries")
    server = Bare(plan.url)
    for name, work in ((PAIR, _pairs), (RENEWAL, _renewals), (REFRESHED, _refreshes), (SET, _sets)):
        rates = [work(server, max(10, int(30 * plan.slice))) for _ in range(plan.rounds)]
        result.rows.append(Row(name, {"per_core_second": sorted(rates)[len(rates) // 2]}, WORK, rates))
    server.close()
    return result


def _keys(name: str) -> tuple[bytes, bytes, bytes]:
    return lock_keys(f"{PREFIX}capacity:{name}", "hf:", None)


def _token() -> str:
    return f"{'0' * 12}.{secrets.token_hex(16)}"


def _acquire(keys: tuple[bytes, bytes, bytes], token: str, join: int = 0) -> bytes:
    return pack("EVALSHA", ACQUIRE.sha, 3, *keys, token, TTL_MS, join)


def _release(keys: tuple[bytes, bytes, bytes], token: str, mode: str = "release") -> bytes:
    return pack("EVALSHA", RELEASE.sha, 3, *keys, token, mode)


def _send(server: Bare, requests: list[bytes]) -> list[object]:
    """Send requests in batches, and return their replies. Raises the first error reply."""
    answers: list[object] = []
    for start in range(0, len(requests), BATCH):
        batch = requests[start : start + BATCH]
        server.sock.sendall(b"".join(batch))
        answers += [server.read() for _ in batch]
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


class Scales:
    """The memory of a server, without that of connections which have been used before.

    The server's buffers for a connection may need more memory than a hundred locks, and shrink while the connection is idle. So
    each request and each measurement uses a connection of its own, and a measurement waits until the server has closed the
    earlier ones.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._closed: list[int] = []

    def send(self, requests: list[bytes]) -> None:
        with closing(Bare(self._url)) as sender:
            self._closed.append(sender("CLIENT", "ID"))
            _send(sender, requests)

    def memory(self) -> int:
        """Return the bytes of memory that the server uses."""
        with closing(Bare(self._url)) as observer:
            for number in self._closed:
                while observer("CLIENT", "LIST", "ID", number):
                    time.sleep(0.001)
            self._closed = [observer("CLIENT", "ID")]
            return observer.memory()

    def usage(self, keys: tuple[bytes, ...]) -> int:
        """Return the bytes that these keys use."""
        with closing(Bare(self._url)) as observer:
            self._closed.append(observer("CLIENT", "ID"))
            return sum(observer("MEMORY", "USAGE", key, "SAMPLES", 0) or 0 for key in keys)

    def growth(self, requests: list[bytes]) -> float:
        """Return by how many bytes per request the server's memory grows."""
        before = self.memory()
        self.send(requests)
        return (self.memory() - before) / len(requests)


def _held(url: str, count: int) -> tuple[float, float]:
    """Return by how many bytes the server's memory grows for each held lock, and the size of a lock's keys in bytes."""
    scales = Scales(url)
    locks = [(_keys(f"held:{number:06d}"), _token()) for number in range(count)]
    taken = scales.growth([_acquire(keys, token) for keys, token in locks])
    by_key = scales.usage(locks[0][0])
    scales.send([_release(keys, token) for keys, token in locks])
    scales.send([pack("DEL", *keys) for keys, _ in locks])
    return taken, by_key


def _waiting(url: str, count: int, line: int = 100) -> tuple[float, float]:
    """Return how many bytes each waiter adds to the server's memory, and how many to the keys of its lock.

    ``count`` waiters wait in queues of ``line`` waiters.
    """
    scales = Scales(url)
    locks = [_keys(f"line:{number:06d}") for number in range(max(1, count // line))]
    scales.send([_acquire(keys, _token()) for keys in locks])
    empty = scales.usage(locks[0])
    taken = scales.growth([_acquire(keys, _token(), 1) for keys in locks for _ in range(line)])
    by_key = (scales.usage(locks[0]) - empty) / line
    scales.send([pack("DEL", *keys) for keys in locks])
    return taken, by_key


def _per_core_second(server: Bare, batches: int, make: Callable[[], list[bytes]], each: int) -> float:
    """Return how many operations the server carries out per second of its processor time.

    ``make`` is called once per batch. It returns the requests of the batch, which contain ``each`` operations.
    """
    todo = [make() for _ in range(batches)]
    before = server.cpu()
    for requests in todo:
        _send(server, requests)
    return batches * each / max(1e-6, server.cpu() - before)


def _pairs(server: Bare, batches: int) -> float:
    locks = [_keys(f"work:{number}") for number in range(BATCH // 2)]

    def make() -> list[bytes]:
        tokens = [(keys, _token()) for keys in locks]
        return [_acquire(*lock) for lock in tokens] + [_release(*lock) for lock in tokens]

    return _per_core_second(server, batches, make, len(locks))


def _renewals(server: Bare, batches: int) -> float:
    """Return the renewals per second of the server's processor time. As usual, one script call renews a hundred leases."""
    locks = [(_keys(f"work:{number}"), _token()) for number in range(BATCH)]
    _send(server, [_acquire(*lock) for lock in locks])
    keys, tokens = [key for each, _ in locks for key in each], [token for _, token in locks]
    numbers = iter(range(1, 10**9))

    def make() -> list[bytes]:
        number = next(numbers)
        return [pack("EVALSHA", RENEW.sha, len(keys), *keys, *(part for token in tokens for part in (token, TTL_MS, number)))]

    rate = _per_core_second(server, batches, make, len(locks))
    _send(server, [_release(*lock) for lock in locks])
    return rate


def _refreshes(server: Bare, batches: int) -> float:
    """Return the refreshes per second of the server's processor time. As usual, one script call refreshes a hundred waiters."""
    locks = [(_keys(f"work:{number}"), _token(), _token()) for number in range(BATCH)]
    _send(server, [_acquire(keys, holder) for keys, holder, _ in locks])
    _send(server, [_acquire(keys, waiter, 1) for keys, _, waiter in locks])
    keys = [key for each, _, _ in locks for key in each]
    arguments = [argument for _, _, waiter in locks for argument in (waiter, TTL_MS)]
    inbox = channel(prefix_of(keys[0]), "0" * 12)
    request = pack("EVALSHA", REFRESH.sha, len(keys), *keys, inbox, *arguments)
    rate = _per_core_second(server, batches, lambda: [request], len(locks))
    _send(server, [pack("DEL", *keys) for keys, _, _ in locks])
    return rate


def _sets(server: Bare, batches: int) -> float:
    key = f"{PREFIX}set"
    rate = _per_core_second(server, batches, lambda: [pack("SET", key, "x", "PX", TTL_MS)] * BATCH, BATCH)
    server("DEL", key)
    return rate
