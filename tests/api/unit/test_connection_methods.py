"""The object that `connect` returns: what its methods pass on, and which server it finds."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import aio, fencing
from holdfast._connection import Method
from holdfast._local.server import binary
from holdfast.errors import ConfigError

URL = "redis://127.0.0.1:1"
SEVERAL = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
BOTH = pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])

NAMES = {
    "Barrier": "barrier", "BoundedSemaphore": "bounded_semaphore", "Cache": "cache", "CountDownLatch": "count_down_latch",
    "Election": "election", "Event": "event", "FairLock": "fair_lock", "Inspector": "inspector", "Lock": "lock",
    "MultiLock": "multilock", "RLock": "rlock", "RWLock": "rwlock", "RedeemedLock": "redeem", "Redlock": "redlock",
    "Schedule": "schedule", "Semaphore": "semaphore", "Transaction": "transaction",
}  # fmt: skip
"""Classes that take a client, and the methods that make their objects."""
FUNCTIONS = {"find_deadlocks", "locked", "once", "transactional"}
FENCE_CHECKS = {"accept", "fenced_set"}
"""Functions of `holdfast.fencing`."""
ELSEWHERE = {"Connection", "ReadSide", "WriteSide", "connect", "declare_new", "redeem", "transaction"}
"""Other names that take a client: parts of other objects, and functions that a method of their class stands for."""


def takes_a_client(thing: object) -> bool:
    return (
        callable(thing)
        and not (inspect.isclass(thing) and issubclass(thing, BaseException))
        and _first(thing) in {"client", "servers"}
    )


def _first(thing: Callable[..., object]) -> str:
    try:
        return next(iter(inspect.signature(thing).parameters), "")
    except ValueError:  # a class that is not made by Python
        return ""


@BOTH
def test_all_of_the_family_can_be_made(api: ModuleType) -> None:
    takers = {name for name in api.__all__ if takes_a_client(getattr(api, name))}
    assert takers - ELSEWHERE == NAMES.keys() | FUNCTIONS
    methods = {name for name in dir(api.Connection) if isinstance(inspect.getattr_static(api.Connection, name), Method)}
    assert methods == {*NAMES.values(), *FUNCTIONS, *FENCE_CHECKS}


@BOTH
@pytest.mark.parametrize(("cls", "method"), NAMES.items())
def test_a_method_has_the_options_of_its_class(api: ModuleType, cls: str, method: str) -> None:
    made, bound = getattr(api, cls), getattr(api.connect(URL), method)
    assert [*inspect.signature(made).parameters.values()][1:] == [*inspect.signature(bound).parameters.values()]
    assert bound.__name__ == method
    said = str(bound.__doc__)
    assert said.startswith("Return ")
    assert said.endswith(str(inspect.getdoc(made)))


@BOTH
def test_fence_checks_have_the_arguments_of_the_functions(api: ModuleType) -> None:
    for name in FENCE_CHECKS:
        function, bound = getattr(fencing, name if api is holdfast else f"aio_{name}"), getattr(api.connect(URL), name)
        assert [*inspect.signature(function).parameters.values()][1:] == [*inspect.signature(bound).parameters.values()]
        assert bound.__name__ == name


OPTIONS: dict[str, dict[str, Any]] = {
    "barrier": {"parties": 2}, "count_down_latch": {"count": 3}, "semaphore": {"limit": 2}, "bounded_semaphore": {"limit": 2},
}  # fmt: skip
LOCKS = ("lock", "fair_lock", "rlock", "redlock", "semaphore", "bounded_semaphore")


@BOTH
@pytest.mark.parametrize("method", LOCKS)
def test_locks_take_the_defaults(api: ModuleType, method: str) -> None:
    db = api.connect(SEVERAL if method == "redlock" else URL, prefix="app:", ttl=7, wait=3)
    lock = getattr(db, method)("x", **OPTIONS.get(method, {}))
    assert isinstance(lock, next(getattr(api, cls) for cls, name in NAMES.items() if name == method))
    assert (lock._spec.ttl, lock._wait, lock.key.startswith("app:{x}")) == (7.0, 3.0, True)
    own = getattr(db, method)("x", ttl=9, wait=None, prefix="own:", **OPTIONS.get(method, {}))
    assert (own._spec.ttl, own._wait, own.key.startswith("own:{x}")) == (9.0, None, True)


@BOTH
def test_what_is_no_lock_takes_the_prefix_and_keeps_its_own_times(api: ModuleType) -> None:
    db = api.connect(URL, prefix="app:", ttl=7, wait=3)
    assert db.event("x").key == "app:{x}"
    assert db.barrier("x", 2).key == "app:{x}"
    assert db.count_down_latch("x", 2).key == "app:{x}"
    assert db.cache("x")._how == api.Cache(URL, "x")._how
    assert db.cache("x")._prefix == "app:"
    election = db.election("x")
    assert (election._lock._spec.ttl, election._lock._wait, election.key) == (7.0, None, "app:{x}")


@BOTH
def test_a_function_that_does_not_wait_takes_no_wait(api: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    kind: type = api.Once
    monkeypatch.setattr(kind, "__init__", lambda _self, *_args, **options: seen.append(options))
    db = api.connect(URL, wait=3)
    db.once("x", keep=60)
    db.once("x", keep=60, busy="wait")
    db.once("x", keep=60, busy="skip", wait=1)
    assert [one["wait"] for one in seen] == [None, 3.0, 1]


@BOTH
def test_several_servers(api: ModuleType) -> None:
    db = api.connect({"a": SEVERAL[0], "b": SEVERAL[1], "c": SEVERAL[2]})
    assert "127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3" in repr(db)
    assert isinstance(db.redlock("x"), api.Redlock)
    with pytest.raises(ConfigError, match=r"use holdfast\.Redlock"):
        db.lock("x")


# The server


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the URL of a server."""
    for name in ("HOLDFAST_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@BOTH
def test_the_environment_names_the_server(api: ModuleType, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("REDIS_URL", "redis://other:7")
    assert "other:7" in repr(api.connect())
    environment.setenv("HOLDFAST_URL", "redis://:canary@one:8")
    assert "one:8" in repr(api.connect())
    assert "canary" not in repr(api.connect())
    environment.setenv("HOLDFAST_URL", " ".join(SEVERAL))
    assert isinstance(api.connect().redlock("x"), api.Redlock)


def test_a_bad_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HOLDFAST_URL", " ")
    with pytest.raises(ConfigError, match=r"^HOLDFAST_URL is set but empty: "):
        holdfast.connect()
    environment.setenv("HOLDFAST_URL", "redis://:a canary@host")
    with pytest.raises(ConfigError, match=r"^HOLDFAST_URL: blanks separate URLs") as caught:
        holdfast.connect()
    assert "canary" not in str(caught.value)


@BOTH
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("installed", [True, False])
def test_no_server(api: ModuleType, environment: pytest.MonkeyPatch, terminal: bool, installed: bool) -> None:
    """A developer who could start a server is told how; a service whose setting was lost is not led to another server."""

    def find() -> str:
        if not installed:
            raise ConfigError("none", parameter="url")
        return "/bin/valkey-server"

    environment.setattr("os.isatty", lambda fd: fd == 2 and terminal)
    environment.setattr(binary, "find", find)
    with pytest.raises(ConfigError, match=r"^no server: set HOLDFAST_URL, or pass a client or a URL") as caught:
        api.connect()
    assert ("connect('local://')" in str(caught.value)) == (terminal and installed)


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: holdfast.connect("localhost:6379"), "'redis://localhost:6379'"),
    (lambda: holdfast.connect(redis.asyncio.Redis(port=1)), "needs a synchronous client; for this one use holdfast.aio"),  # type: ignore[arg-type]
    (lambda: aio.connect(redis.Redis(port=1)), "needs an asyncio client; for this one use holdfast$"),  # type: ignore[arg-type]
    (lambda: holdfast.connect(URL, ttl=0), "^ttl must be between"),
    (lambda: holdfast.connect(URL, wait=-1), "^wait must be between"),
    (lambda: holdfast.connect(URL, prefix=""), "^prefix must have"),
    (lambda: holdfast.connect(URL, prefix="a{"), "^prefix must not contain"),
]


@pytest.mark.parametrize(("mistake", "why"), MISTAKES, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_refused_at_once(mistake: Callable[[], object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        mistake()


@BOTH
def test_a_connection_cannot_be_pickled(api: ModuleType) -> None:
    with pytest.raises(TypeError, match="call connect"):
        pickle.dumps(api.connect(URL))
