"""Functions that a schedule cannot run are refused when they are declared, and not recorded as if they had run."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

import holdfast
import holdfast.aio
from holdfast._core import control_records
from holdfast.schedule import Every, Timetable, definition

URL = "redis://nobody.is.asked"


def steps(run: object = None) -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> None: ...


class Steps:
    def __call__(self) -> Iterator[int]:
        yield 1


class Poll:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...


@pytest.mark.parametrize("api", [holdfast.Schedule, holdfast.aio.Schedule])
@pytest.mark.parametrize(
    "function",
    [steps, stream, Steps(), Steps().__call__, functools.partial(steps, 1), functools.partial(Steps())],
    ids=["function", "async", "object", "method", "partial", "partial of an object"],
)
def test_a_generator_function_is_refused(api: Any, function: Callable[..., Any]) -> None:
    with pytest.raises(holdfast.ConfigError, match="is a generator: called as a job it would do nothing"):
        api(URL, "jobs").add(function, Every(1), name="job")


@pytest.mark.parametrize(
    "function",
    [coroutine, Poll(), Poll().method, functools.partial(coroutine), functools.partial(functools.partial(Poll()))],
    ids=["function", "object", "method", "partial", "partial of an object"],
)
def test_what_has_to_be_awaited_is_for_asyncio(function: Callable[..., Any]) -> None:
    with pytest.raises(holdfast.ConfigError, match=r"is a coroutine function: use holdfast\.aio\.Schedule"):
        holdfast.Schedule(URL, "jobs").add(function, Every(1), name="job")
    assert holdfast.aio.Schedule(URL, "jobs").add(function, Every(1), name="job").function is function


class Midnight(Timetable):
    """A timetable that returns the midnight before, instead of the next one."""

    kind = "midnight"

    def _after(self, t: float) -> float:
        return t - t % 86400

    def _plain(self) -> str:
        return "each midnight"


def test_a_timetable_that_stands_still_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="timetable each midnight: after"):
        holdfast.Schedule(URL, "jobs").add(print, Midnight(), name="job")


def test_what_only_is_called_suits_both() -> None:
    for api in (holdfast.Schedule, holdfast.aio.Schedule):
        api(URL, "jobs").add(functools.partial(print, "a"), Every(1), name="job")


# Options of the schedule itself


@pytest.mark.parametrize("api", [holdfast.Schedule, holdfast.aio.Schedule])
def test_a_timeout_is_explained(api: Any) -> None:
    with pytest.raises(TypeError, match=r"Schedule\(\) has no timeout=: pass max_runtime= .* ttl= .* finish_within= "):
        api(URL, "jobs", timeout=3)
    with pytest.raises(TypeError, match=r"Schedule\(\) got an unexpected keyword argument 'prefixes'"):
        api(URL, "jobs", prefixes="a")


@pytest.mark.parametrize("prefix", ["", "a{", 1])
def test_a_prefix_that_cannot_be_one_is_refused(prefix: Any) -> None:
    with pytest.raises(holdfast.ConfigError, match="prefix must") as caught:
        holdfast.Schedule(URL, "jobs", prefix=prefix)
    assert caught.value.parameter == "prefix"


@pytest.mark.parametrize("option", ["ttl", "min_runtime", "grace", "max_runtime"])
def test_no_time_is_negative(option: str) -> None:
    with pytest.raises(holdfast.ConfigError, match=option):
        holdfast.Schedule(URL, "jobs").add(print, Every(1), name="job", **{option: -0.5})


class Named:
    """A timetable with any text."""

    def __init__(self, text: str) -> None:
        self.text = text


def test_a_definition_is_as_long_as_it_may_be() -> None:
    longest = control_records.LONGEST - len(definition.write(cast("Any", Named("")), definition.DEFAULTS))
    assert len(definition.write(cast("Any", Named("x" * longest)), definition.DEFAULTS)) == control_records.LONGEST
    with pytest.raises(holdfast.ConfigError, match="4097 bytes"):
        definition.write(cast("Any", Named("x" * (longest + 1))), definition.DEFAULTS)


def test_the_end_of_the_block_stops_a_schedule() -> None:
    stopped = list[str]()

    async def main() -> None:
        schedule = holdfast.aio.Schedule(URL, "jobs")

        async def stop(*_: object) -> bool:
            stopped.append("stopped")
            return True

        schedule.stop = stop  # type: ignore[method-assign,assignment]
        await schedule.__aexit__(None, None, None)

    asyncio.run(main())
    assert stopped == ["stopped"]
