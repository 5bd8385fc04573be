"""Which ticks a process claims when many of them were due meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._core.schedule import misfire
from holdfast._core.schedule.job import Options, When
from holdfast.errors import ConfigError

S = 1_000_000


class Listed:
    """A timetable that is a list of times in seconds."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def after(self, t: float) -> float:
        return next((time for time in self.times if time > t), float("inf"))


class Burst:
    """A tick each second until ``end``, and none afterwards."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.asked = 0

    def after(self, t: float) -> float:
        self.asked += 1
        return int(t) + 1 if t < self.end else float("inf")


class Standing:
    """A timetable that returns the same time for ever."""

    def __init__(self, time: float) -> None:
        self.time = time

    def after(self, t: float) -> float:
        return self.time

    def __str__(self) -> str:
        return "Standing"


@pytest.mark.parametrize("time", [0.0, 5.0, 10.0, -1.0, float("nan"), float("-inf")])
def test_a_timetable_that_stands_still_is_refused(time: float) -> None:
    with pytest.raises(ConfigError, match=r"timetable Standing: after\(.*\) returned .* it must return a later time"):
        misfire.due(Standing(time), 0, 10 * S, Options())
    with pytest.raises(ConfigError, match="timetable Standing"):
        misfire.following(Standing(time), 10 * S)


class Dense:
    """A timetable with a tick each microsecond."""

    def after(self, t: float) -> float:
        return t + 1e-6


def test_one_request_claims_a_limited_number_of_ticks() -> None:
    found = misfire.due(Dense(), 0, 0, Options(), ahead=10 * S)
    assert found.ticks == list(range(1, misfire.COUNTED + 1))
    assert found.beyond == misfire.COUNTED + 1


class Contradictory:
    """A tick each millisecond, but none is later than a time between 99.4 s and 99.6 s."""

    def __init__(self) -> None:
        self.asked = 0

    def after(self, t: float) -> float:
        self.asked += 1
        assert self.asked < 100_000, "the search does not end"
        if 99.4 <= t < 99.6:
            return float("inf")
        return 99.6 if 99.4 <= t + 0.001 < 99.6 else t + 0.001


def test_the_search_ends_for_a_timetable_that_contradicts_itself() -> None:
    misfire.due(Contradictory(), 0, 100 * S, Options())


@pytest.mark.parametrize(("policy", "count"), [("once", 1), ("all", 100)])
def test_the_latest_ticks_are_found_behind_a_burst_of_millions(policy: str, count: int) -> None:
    burst = Burst(3_000_000)
    found = misfire.due(burst, 0, 30_000_000 * S, Options(misfire=policy))  # type: ignore[arg-type]
    assert found.ticks == [second * S for second in range(3_000_001 - count, 3_000_001)]
    assert found.missed == (S, (3_000_000 - count) * S, 1000)
    assert burst.asked < 100_000, "nor does it walk through all of them"


@pytest.mark.parametrize("due", [1, 2, 5])
def test_each_missed_tick_is_counted(due: int) -> None:
    found = misfire.due(Listed([10.0, 20.0, 30.0, 40.0, 50.0]), 0, due * 10 * S, Options())
    assert found.ticks == [due * 10 * S]
    assert found.missed == ((10 * S, (due - 1) * 10 * S, due - 1) if due > 1 else None)


@given(
    st.lists(st.integers(1, 500), unique=True, max_size=60).map(sorted).map(lambda found: [float(time) for time in found]),
    st.integers(0, 500),
    st.integers(0, 600),
    st.integers(1, 5),
)
def test_the_latest_ticks_are_the_end_of_the_list(times: list[float], after: int, until: int, most: int) -> None:
    when: When = Listed(times)
    expected = [int(time) * S for time in times if after < time <= until][-most:]
    assert misfire._latest(when, after * S, until * S, most) == expected
