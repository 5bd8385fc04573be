"""Which ticks a process claims when many of them were due meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._core.schedule import misfire
from holdfast._core.schedule.job import Options, When

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


@pytest.mark.parametrize(("policy", "count"), [("once", 1), ("all", 100)])
def test_the_latest_ticks_are_found_behind_a_burst_of_millions(policy: str, count: int) -> None:
    burst = Burst(3_000_000)
    found = misfire.due(burst, 0, 30_000_000 * S, Options(misfire=policy))  # type: ignore[arg-type]
    assert found.ticks == [second * S for second in range(3_000_001 - count, 3_000_001)]
    assert found.missed == (S, (3_000_000 - count) * S, 1000)
    assert burst.asked < 100_000, "nor does it walk through all of them"


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
