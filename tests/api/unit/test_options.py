"""Every bad value is refused by the name of its parameter, before anything is sent or started."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import pickle
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import FairLock, Lock, aio, fencing, locked
from holdfast._core.lock.spec import answer_within
from holdfast._runtime import process
from holdfast.errors import ConfigError, HoldfastWarning
from support.stage import Stage, stage

__all__ = ["stage"]

URL = "redis://localhost:1"

BAD: dict[str, list[Any]] = {
    "ttl": [0, -1, 0.049, -0.0, math.nan, math.inf, -math.inf, True, False, "30", b"30", None, [30], 1e10, 1 + 0j],
    "wait": [-1, -0.001, math.nan, -math.inf, True, False, "5", b"5", [5]],
    "max_hold": [0, -1, 0.049, math.nan, math.inf, True, "30", [30]],
    "progress_within": [0, -1, 0.049, math.nan, math.inf, True, "30", [30]],
    "name": ["", b"", "x" * 513, 7, None, ["x"], 1.5, bytearray(b"x"), "\udcff"],
    "prefix": ["", "{", "a}b", "{x}", "p" * 513, 7, None],
    "key": ["", b"", "k" * 513, 7, ["k"]],
    "label": ["a\nb", "\x1b[31m", "\x00", "x" * 201, 7, b"me", ["me"]],
    "on_lost": [7, "callback", [print]],
    "linger": [-1, -0.001, math.nan, math.inf, True, False, "5", None, [5]],
    "max_passes": [-1, 1.5, 3.0, True, False, "3", None, math.inf],
    "max_pass_time": [-1, -0.001, math.nan, math.inf, True, "5", None],
    "client": [None, 7, b"redis://", object(), "http://x", "redis://h/x", ""],
}
CASES = [(parameter, value) for parameter, values in BAD.items() for value in values]


@pytest.fixture(autouse=True)
def _nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is started and no connection opened by what only constructs or refuses."""

    def forbidden(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(process, "Keeper", forbidden)
    monkeypatch.setattr(process, "pool_to", forbidden)


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
@pytest.mark.parametrize(("parameter", "value"), CASES, ids=lambda value: repr(value)[:20])
def test_refused_by_name(make: Callable[..., object], parameter: str, value: object) -> None:
    arguments: dict[str, Any] = {"client": URL, "name": "x"} | {parameter: value}
    with pytest.raises(ConfigError, match=parameter if parameter != "client" else "client|url") as caught:
        make(arguments.pop("client"), arguments.pop("name"), **arguments)
    assert caught.value.parameter in ({parameter} if parameter != "client" else {"client", "url"})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
def test_accepted(make: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in (
            {"ttl": 2}, {"ttl": 2.0}, {"ttl": 366 * 86400}, {"ttl": 0.05, "renew": False}, {"ttl": 1, "max_hold": 1},
            {"wait": 0}, {"wait": 0.0}, {"wait": None}, {"wait": math.inf}, {"wait": 1e6}, {"max_hold": None},
            {"linger": 0}, {"linger": 5.0}, {"max_passes": 0}, {"max_passes": 10**9}, {"max_pass_time": 0},
            {"max_hold": 0.05}, {"progress_within": 0.05}, {"progress_within": None},
            {"prefix": "p"}, {"key": "k"}, {"key": b"\x00{k}"}, {"label": None}, {"on_lost": print},
        ):  # fmt: skip
            assert make(URL, "x", **options)
        assert make(URL, "a\r\nb\x00{}%").key == "hf:{a%0D%0Ab%00%7B%7D%25}"
        assert make(URL, b"\xff").name == "\\xff"


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
def test_timeout_is_explained(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"ttl=.*wait=") as caught:
        make(URL, "x", timeout=5)
    assert not isinstance(caught.value, ConfigError)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tll'"):
        make(URL, "x", tll=1)


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
@pytest.mark.parametrize("other", [{"renew": False}, {"max_hold": 5}, {"progress_within": 5}])
def test_only_a_renewed_lease_lingers(make: Callable[..., object], other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="linger") as caught:
        make(URL, "x", linger=1, **other)
    assert caught.value.parameter == "linger"


@pytest.mark.parametrize("make", [FairLock, aio.FairLock], ids=["sync", "asyncio"])
def test_a_fair_lock_is_not_passed_on(make: Callable[..., object]) -> None:
    for option in ("linger", "max_passes", "max_pass_time"):
        with pytest.raises(TypeError, match=rf"^FairLock\(\) has no {option}=: a FairLock is never handed on"):
            make(URL, "x", **{option: 1})


def test_the_decorator_explains_too() -> None:
    with pytest.raises(TypeError, match=r"ttl=.*wait="):
        locked(URL, "x", timeout=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"locked\(\) has no expire=: pass ttl= "):
        locked(URL, "x", expire=5)  # type: ignore[call-overload]


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
def test_options_are_by_keyword(make: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="positional"):
        make(URL, "x", 30)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    "kind",
    ["Lock", "FairLock", "RLock", "Semaphore", "RWLock", "MultiLock", "Election", "Barrier", "Event", "Redlock", "redeem"],
)
def test_what_is_forgotten_or_too_much_is_told_of_the_class_that_users_know(api: Any, kind: str) -> None:
    for arguments in ((URL,), (URL, "x", 2, None, 30, "more")):
        if (kind, len(arguments)) != ("MultiLock", 1):  # it may be given locks alone
            made = kind if kind == "redeem" else f"{kind}.__init__"  # a function, or a class
            with pytest.raises(TypeError, match=rf"^{re.escape(made)}\(\) (missing|takes)"):
                getattr(api, kind)(*arguments)


@pytest.mark.parametrize("make", [holdfast.Election, aio.Election], ids=["sync", "asyncio"])
def test_a_leader_takes_no_option_that_would_mean_nothing(make: Callable[..., object]) -> None:
    several = [f"{URL}{number}" for number in range(3)]
    for client, option, where in ((several, "quarantine", "one server"), (URL, "max_ttl", "several servers")):
        with pytest.raises(ConfigError, match=where) as caught:
            make(client, "x", **{option: 20.0})
        assert caught.value.parameter == option


@pytest.mark.parametrize("make", [Lock, FairLock, aio.Lock, aio.FairLock])
def test_several_servers_are_refused_by_name(make: type[Any]) -> None:
    with pytest.raises(ConfigError, match=f"client: {make.__name__} needs one server.*Redlock") as caught:
        make([URL, URL], "x")
    assert caught.value.parameter == "client"


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
def test_a_lease_too_short_to_be_renewed_safely_is_a_warning_at_the_callers_line(make: Callable[..., object]) -> None:
    with pytest.warns(HoldfastWarning, match="less than 2 s") as caught:
        make(URL, "x", ttl=1.9)
    assert caught[0].filename == __file__


# Pickling


@pytest.mark.parametrize("make", [Lock, aio.Lock], ids=["sync", "asyncio"])
@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_lock_is_not_pickled(make: Callable[..., object], how: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=r"cannot be pickled.*'x'"):
        how(make(URL, "x"))


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_lease_is_not_pickled(stage: Stage, how: Callable[[object], object]) -> None:
    with Lock(URL, "x") as lease, pytest.raises(TypeError, match=r"cannot be pickled.*'x'"):
        how(lease)


# threading.Lock's own arguments and errors


def outcome(call: Callable[[], object]) -> type[BaseException] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((False, 5), {}),
    ((False, 0), {}),
    ((True, -2), {}),
    ((True, -0.5), {}),
    ((), {"timeout": -5}),
    ((), {"timeout": 1e300}),
    ((), {"timeout": math.inf}),
    ((), {"timeout": math.nan}),
    ((), {"timeout": threading.TIMEOUT_MAX * 2}),
    ((), {"timeout": "5"}),
    ((), {"timeout": None}),
    ((), {"wait": 5}),
    ((True, 1, 2), {}),
]


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS, ids=repr)
def test_acquire_refuses_what_a_threading_lock_refuses(stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    expected = outcome(lambda: threading.Lock().acquire(*args, **kwargs))
    assert expected is not None
    found = outcome(lambda: Lock(URL, "x").acquire(*args, **kwargs))
    assert found is not None
    assert issubclass(found, expected)
    assert issubclass(outcome(lambda: asyncio.run(aio.Lock(URL, "x").acquire(*args, **kwargs))) or int, expected)
    assert stage.script.trace == [], "nothing was sent"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}), ((True,), {}), ((1,), {}), ((False,), {}), ((0, -1), {}), ((False, -1), {}), ((True, 0), {}),
        ((True, 2.5), {}), ((), {"timeout": 1}), ((), {"blocking": False}),
        ((), {"timeout": threading.TIMEOUT_MAX}), ((True, -1), {}), ((True, -1.0), {}),
    ],
    ids=repr,
)  # fmt: skip
def test_acquire_accepts_what_a_threading_lock_accepts(stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert threading.Lock().acquire(*args, **kwargs) is True
    lock = Lock(URL, "x")
    assert lock.acquire(*args, **kwargs) is True
    lock.release()


def test_acquire_has_the_parameters_of_a_threading_lock() -> None:
    for cls in (Lock, aio.Lock):
        *parameters, others = list(inspect.signature(cls.acquire).parameters.values())[1:]
        assert [(p.name, p.default) for p in parameters] == [("blocking", True), ("timeout", -1)]
        assert (others.kind, others.annotation) == (others.VAR_KEYWORD, "Never"), "words of other libraries, which are refused"


def test_release_of_what_is_not_held(stage: Stage) -> None:
    with pytest.raises(RuntimeError):
        threading.Lock().release()
    with pytest.raises(RuntimeError, match="has not been acquired by this object"):
        Lock(URL, "x").release()


# Renewal and quarantine


@pytest.mark.parametrize("ttl", [*BAD["ttl"][:-4], 1e10])
def test_renew_refuses_a_bad_ttl(stage: Stage, ttl: Any) -> None:
    if ttl is None:
        return  # as long as it was last
    with Lock(URL, "x") as lease:
        before = lease.remaining()
        with pytest.raises(ConfigError, match="ttl"):
            lease.renew(ttl)
        assert lease.remaining() == before


@pytest.mark.parametrize("fence", [-1, 1.5, True, "7", None])
def test_the_guard_refuses_what_is_no_fence(fence: Any) -> None:
    with pytest.raises(ConfigError, match="fence") as caught:
        fencing.accept(URL, "k", fence)
    assert caught.value.parameter == "fence"
    with pytest.raises(ConfigError, match="fence"):
        fencing.fenced_set(URL, "k", "v", fence)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("key", ""), ("key", 7), ("key", "x" * 513), ("value", 7), ("value", None), ("ttl", 0), ("ttl", -1), ("ttl", "5"),
     ("ttl", math.nan), ("keep", 0), ("keep", 599), ("keep", math.nan), ("keep", "7")],
)  # fmt: skip
def test_the_guard_refuses_by_name(parameter: str, value: Any) -> None:
    arguments: dict[str, Any] = {"key": "k", "value": "v", "fence": 7} | {parameter: value}
    with pytest.raises(ConfigError, match=parameter) as caught:
        fencing.fenced_set(URL, arguments.pop("key"), arguments.pop("value"), arguments.pop("fence"), **arguments)
    assert caught.value.parameter == parameter


def test_the_guard_wants_a_synchronous_client() -> None:
    import redis.asyncio

    with pytest.raises(ConfigError, match="client"):
        fencing.accept(redis.asyncio.Redis(), "k", 7)  # type: ignore[arg-type]


def test_a_lock_whose_options_were_refused_can_be_shown() -> None:
    """Debuggers and error reporters show the half-made object of the frame in which it was refused."""
    kinds = ["Lock", "FairLock", "RLock", "Redlock", "MultiLock", "Semaphore", "BoundedSemaphore", "RWLock"]
    for api, prefix in ((holdfast, "holdfast."), (aio, "holdfast.aio.")):
        for kind in kinds:
            cls = getattr(api, kind)
            shown = repr(object.__new__(cls))
            assert shown in {f"<{prefix}{kind}, not made>", f"<holdfast {kind}, not made>"}


@pytest.mark.parametrize("timeout", [-0.5, -2])
def test_a_negative_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be 0 or more seconds, or -1 for the "):
        Lock("redis://localhost", "x").acquire(timeout=timeout)


@pytest.mark.parametrize(("ttl", "seconds"), [(30.0, 3.0), (1.0, 0.2), (0.3, 0.1)])
def test_an_answer_about_a_lease_is_waited_for_as_long_as_that_leaves_time_to_ask_again(ttl: float, seconds: float) -> None:
    assert answer_within(ttl) == pytest.approx(seconds)
