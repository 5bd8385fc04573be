"""When jobs are due: the nights on which clocks change, jitter, and what is refused."""

from __future__ import annotations

import math
import sys
import time
import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.schedule import timetable
from holdfast.schedule.timetable import Cron, Every, Timetable, from_text

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"

NIGHTS = [
    # Two o'clock becomes three: what is due in between runs at once, what goes by the clock does not.
    ("30 2 * * *", BERLIN, "2026-03-28T12:00", "29 03:00 +02:00, 30 02:30 +02:00"),
    ("0,30 2 * * *", BERLIN, "2026-03-28T12:00", "29 03:00 +02:00, 30 02:00 +02:00, 30 02:30 +02:00"),
    ("0,30 2,3 * * *", BERLIN, "2026-03-29T00:00", "29 03:00 +02:00, 29 03:30 +02:00, 30 02:00 +02:00"),
    ("30 2 * * *", NEW_YORK, "2026-03-07T12:00", "08 03:00 -04:00, 09 02:30 -04:00"),
    ("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", "04 02:30 +11:00, 05 02:15 +11:00"),
    ("10 30 2 * * *", BERLIN, "2026-03-28T12:00", "29 03:00 +02:00, 30 02:30 +02:00"),
    ("30 * * * *", BERLIN, "2026-03-29T01:00", "29 01:30 +01:00, 29 03:30 +02:00, 29 04:30 +02:00"),
    ("*/20 2 * * *", BERLIN, "2026-03-28T12:00", "30 02:00 +02:00, 30 02:20 +02:00"),
    ("*/30 */2 * * *", LORD_HOWE, "2026-10-04T01:00", "04 02:30 +11:00, 04 04:00 +11:00"),
    # Three o'clock becomes two: what has a time runs once, what goes by the clock goes on with it.
    ("30 2 * * *", BERLIN, "2026-10-24T12:00", "25 02:30 +02:00, 26 02:30 +01:00"),
    ("0 30 2 * * *", BERLIN, "2026-10-24T12:00", "25 02:30 +02:00, 26 02:30 +01:00"),
    ("30 1 * * *", NEW_YORK, "2026-10-31T12:00", "01 01:30 -04:00, 02 01:30 -05:00"),
    ("45 1 * * *", LORD_HOWE, "2026-04-04T12:00", "05 01:45 +11:00, 06 01:45 +10:30"),
    ("30 * * * *", BERLIN, "2026-10-25T01:00", "25 01:30 +02:00, 25 02:30 +02:00, 25 02:30 +01:00, 25 03:30 +01:00"),
    ("*/30 2 * * *", BERLIN, "2026-10-24T12:00", "25 02:00 +02:00, 25 02:30 +02:00, 25 02:00 +01:00, 25 02:30 +01:00"),
    ("45 * * * *", LORD_HOWE, "2026-04-05T01:00", "05 01:45 +11:00, 05 01:45 +10:30, 05 02:45 +10:30"),
    ("0 */2 * * *", LORD_HOWE, "2026-04-05T00:30", "05 02:00 +10:30, 05 04:00 +10:30"),
    # The first tick after the change is a year away but for the clock being set back to it.
    ("*/59 2 25 10 *", BERLIN, "2026-10-25T02:30", "25 02:59 +02:00, 25 02:00 +01:00, 25 02:59 +01:00, 25 02:00 +02:00"),
]  # fmt: skip


def ticks(table: Timetable, t: float, count: int) -> list[float]:
    """The next ones."""
    found = []
    for _ in range(count):
        t = table.after(t)
        found.append(t)
    return found


@pytest.mark.parametrize(("expression", "tz", "start", "expected"), NIGHTS)
def test_nights_on_which_the_clock_changes(expression: str, tz: str, start: str, expected: str) -> None:
    zone = zoneinfo.ZoneInfo(tz)
    found = ticks(Cron(expression, tz), datetime.fromisoformat(start).replace(tzinfo=zone).timestamp(), expected.count(",") + 1)
    shown = [datetime.fromtimestamp(t, zone) for t in found]
    assert ", ".join(f"{now:%d %H:%M} {now.isoformat()[-6:]}" for now in shown) == expected


@pytest.mark.parametrize("expression", ["*/5 * * * *", "7 */3 * * *", "*/20 1-3 * * *", "0 * 25 10 *", "* 2 * * 7"])
@pytest.mark.parametrize("tz", [BERLIN, NEW_YORK, LORD_HOWE])
def test_what_goes_by_the_clock_is_due_whenever_the_clock_shows_it(expression: str, tz: str) -> None:
    """Against looking at the clock each minute of the days around each change."""
    zone, table = zoneinfo.ZoneInfo(tz), Cron(expression, tz)
    sim = CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    for change in ("2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"):
        start = datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp() - 43200
        minutes = [start + 60 * n for n in range(36 * 60)]
        shown = [datetime.fromtimestamp(t, zone) for t in minutes]
        expected = [
            t
            for t, now in zip(minutes, shown, strict=True)
            if now.minute in sim.minutes and now.hour in sim.hours and now.month in sim.months and sim.match_day(now.date())
        ]
        assert ticks(table, start - 1, len(expected)) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.builds("{} {} * * {}".format, st.sampled_from(["0", "30", "59", "5,35"]), st.integers(0, 4), st.sampled_from("*7")),
    st.sampled_from([BERLIN, NEW_YORK, "America/Sao_Paulo", "Africa/Cairo"]),
    st.integers(1_400_000_000, 1_800_000_000),
)
def test_a_time_of_the_day_is_what_debians_cron_makes_of_it(expression: str, tz: str, start: int) -> None:
    theirs = CronSim(expression, datetime.fromtimestamp(start, zoneinfo.ZoneInfo(tz)))
    table, t = Cron(expression, tz), float(start)
    for _ in range(5):
        while (expected := next(theirs).timestamp()) <= t:  # two skipped times come to one moment, which it names twice
            pass
        t = table.after(t)
        assert t == expected


def test_intervals_are_the_same_for_whoever_starts_when() -> None:
    assert ticks(Every(30), 1000.25, 3) == [1020, 1050, 1080]
    assert Every(30).after(1020) == 1050
    tenths = ticks(Every(0.1), 1_790_000_000.0, 1000)
    assert tenths == [1_790_000_000 + n / 10 for n in range(1, 1001)]
    assert ticks(Cron("* * * * * *"), 5.5, 3) == [6, 7, 8]


def test_nicknames_names_and_days() -> None:
    day = 86400.0
    assert Cron("@daily").after(0) == day
    assert Cron("@HOURLY").after(day) == day + 3600
    assert Cron("0  0 * JAN mon").after(0) == 4 * day
    assert datetime.fromtimestamp(Cron("0 0 29 2 *", BERLIN).after(1.8e9), UTC).isoformat() == "2028-02-28T23:00:00+00:00"
    assert datetime.fromtimestamp(Cron("0 0 L * *").after(0), UTC).day == 31


@pytest.mark.parametrize("table", [Every(10), Cron("*/10 * * * * *", BERLIN), Cron("0 */6 * * *")])
def test_jitter_spreads_jobs_but_not_processes(table: Timetable) -> None:
    def jittered(salt: str, jitter: float) -> Timetable:
        return from_text(table.text[:-1] + f',"jitter":{jitter},"salt":"{salt}"}}')

    plain = ticks(table, 1_790_000_000.0, 200)
    gap = plain[1] - plain[0]
    found = ticks(jittered("a", 1e6), plain[0] - 1e-3, 199)
    assert all(0 <= late - base < gap for base, late in zip(plain, found, strict=False))
    assert len({round(10 * (late - base) / gap) for base, late in zip(plain, found, strict=False)}) >= 8
    assert [jittered("a", 1e6).after(t - 1e-3) for t in found] == found, "whoever asks, and whenever"
    assert ticks(jittered("b", 1e6), plain[0], 3) != found[:3]
    assert all(0 <= late - base <= 1 for base, late in zip(plain, ticks(jittered("a", 1), plain[0] - 1e-3, 199), strict=False))


def test_the_text_says_it_all() -> None:
    for table in (Every(0.5), Cron("0 3 * * *", BERLIN, jitter=60, salt="träge"), Every(7, jitter=1, salt="x")):
        again = from_text(table.text)
        assert (again, str(again), again.after(1e9)) == (table, str(table), table.after(1e9))
    assert (str(Every(90)), str(Cron("@daily", "UTC", jitter=60))) == ("every 90 s", "@daily UTC + up to 60 s")
    assert Every(30) != Every(30, jitter=1)
    for text in ("", "[]", "{}", '{"cron":3}', '{"every":"x"}', '{"at":1}'):
        with pytest.raises(ConfigError):
            from_text(text)


@pytest.mark.parametrize(
    ("expression", "tz", "said"),
    [
        ("0 25 * * *", "UTC", "cron '0 25 * * *': '25' is not a valid hour: 0 to 23; lists"),
        ("99 0 3 * * *", "UTC", "'99' is not a valid second: 0 to 59"),
        ("0 0 31 2 *", "UTC", "'31' is not a valid day-of-month"),
        ("* * */20 * 1L", "UTC", "is never due"),
        ("hourly", "UTC", "is not one of @yearly"),
        ("@reboot", "UTC", "call the function when the program starts"),
        (7, "UTC", "cron= is 7: write it as text"),
        ("@daily", "Berlin", "tz= is 'Berlin', which is not a known time zone: write it as Europe/Berlin"),
        ("@daily", "../../etc/passwd", "which is not a known time zone"),
    ],
)
def test_nonsense_is_refused_in_the_readers_words(expression: str, tz: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Cron(expression, tz)
    assert said in str(caught.value)


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan, True, "30", None])
def test_an_interval_is_a_sensible_number_of_seconds(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"^every must be "):
        Every(seconds)
    with pytest.raises(ConfigError, match=r"^jitter must be "):
        Every(1, jitter=seconds)
    with pytest.raises(ConfigError, match=r"must be between 0\.1 and"):
        Every(0.01)


def test_a_machine_without_libraries_or_zones_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    timetable._parsed.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cronsim", None)
        with pytest.raises(ConfigError, match=r'pip install "holdfast\[cron\]"; or use every=, which needs no library'):
            Cron("1 2 3 4 *")
    timetable.zone.cache_clear()
    paths = zoneinfo.TZPATH
    try:
        zoneinfo.reset_tzpath(to=())
        zoneinfo.ZoneInfo.clear_cache()
        for module in [module for module in sys.modules if module.startswith("tzdata.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, "tzdata", None)
        assert Cron("@daily").after(0) == 86400
        with pytest.raises(ConfigError, match="this machine has no time zone data"):
            Cron("@daily", "Asia/Tokyo")
    finally:
        zoneinfo.reset_tzpath(to=paths)


def test_a_thousand_jobs_cost_little() -> None:
    """A tick of each is looked up when one has passed, here once an hour."""
    tables = [Cron(f"{n % 60} * * * *", BERLIN) for n in range(1000)]
    began = time.process_time()
    assert all(table.after(1.79e9) < 1.79e9 + 3600 for table in tables)
    assert time.process_time() - began < 1
    assert timedelta(seconds=Cron("0 0 1 1 *").after(1.79e9) - 1.79e9) < timedelta(days=367)
