"""The judge of a run finds two holders, an answer that comes late, a worker that complains, and too few faults."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from chaos.plan import plan
from chaos.remains import PLACE, left_behind
from chaos.run import ChaosRun, Size, Struck
from chaos.topologies import NAMES, Single, client_of
from chaos.verdict import OVERRUN, judge
from holdfast.testing import history
from holdfast.testing.history import Event

NAME = NAMES[0]


class Apart(Single):
    """Half of the processes have a database of their own, and so do not exclude the others."""

    def where(self, process: int) -> str:
        return self.server.url.removesuffix("0") + str(process % 2)


def test_locks_that_do_not_exclude_each_other_are_found_out(tmp_path: Path) -> None:
    run = ChaosRun(Apart(remembers=False), Size(1.5, processes=2, every=(9.0, 9.0)), 17, tmp_path)
    run.go()
    found = "\n".join(judge(run).found)
    assert "R1 (one holder at a time)" in found
    assert "seed 17" in found
    assert str(tmp_path) in found


def judged(tmp_path: Path, *events: Event, struck: tuple[Struck, ...] = (), complaints: tuple[str, ...] = ()) -> ChaosRun:
    run = ChaosRun(Single(remembers=False), Size(1), 1, tmp_path)
    with (tmp_path / "worker-1").open("w") as file:
        history.write(events, file)
    run.struck += struck
    run.complaints += complaints
    run.healed = 100.0
    return run


def in_line(single: Single, token: str, seen: float) -> None:
    """Somebody whose last sign of life was at that (monotonic) time."""
    until = int((time.time() - time.monotonic() + seen + PLACE) * 1000)
    with closing(client_of(single.server)) as client:
        client.hset(f"hf:{{{NAME}}}:state", mapping={"v": "1", f"at:{token}": until})
        client.zadd(f"hf:{{{NAME}}}:queue", {token: 1})


def test_what_is_left_behind_is_found() -> None:
    with Single(remembers=False) as single:
        healed = time.monotonic() - 2
        in_line(single, "aaaaaaaaaaaaaaaaaa.1", healed - 0.7)
        assert left_behind(single, healed, 0) == [], "it goes when its time is over, and somebody comes"
        in_line(single, "aaaaaaaaaaaaaaaaaa.2", healed + 0.1)
        assert "place of aaaaaaaaaaaaaaaaaa.2" in "".join(left_behind(single, healed, 0)), "nothing was in the way of that one"
        with closing(client_of(single.server)) as client:
            client.set(f"hf:{{{NAME}}}", "somebody", px=60_000)
            assert left_behind(single, healed, 0) == [f"hf:{{{NAME}}} on {single.server}"]
            client.pexpire(f"hf:{{{NAME}}}", 100)
            assert left_behind(single, healed, 10) == [], "until its lease is over"


def asked(at: float, until: float, answered: float, who: str = "p1/a") -> list[Event]:
    name = f"{who}#{at}"
    return [Event(at, "ask", who, NAME, name, until=until), Event(answered, "busy", who, NAME, name)]


@pytest.mark.parametrize(("answered", "fine"), [(2 + OVERRUN / 2, True), (2.1 + OVERRUN, False)])
def test_an_answer_that_comes_late_is_found_whatever_was_broken(tmp_path: Path, answered: float, fine: bool) -> None:
    silence = Event(1.5, "fault", "server", until=9.0, note="silence of the server")
    report = judge(judged(tmp_path, silence, *asked(1, 2, answered)))
    assert report.overrun == pytest.approx(answered - 2)
    assert fine is not any("R7" in text for text in report.found)


def test_a_process_that_did_not_run_could_not_answer(tmp_path: Path) -> None:
    own = [Event(1.5, "paused", "p1"), Event(8.0, "resumed", "p1"), Event(8.0, "stalled", "p1", since=1.5)]
    report = judge(judged(tmp_path, *own, *asked(1, 2, 8.5)))
    assert not report.found
    assert report.overrun == pytest.approx(0.5)
    report = judge(judged(tmp_path, *own, *asked(1, 2, 8.5, "p2/a")))
    assert report.overrun == pytest.approx(6.5)


def test_who_was_never_answered_is_found_and_who_was_killed_before_is_not(tmp_path: Path) -> None:
    ask = asked(1, 2, 3)[0]
    assert "answer inf s after" in "\n".join(judge(judged(tmp_path, ask, Event(9, "end", "p1"))).found)
    assert judge(judged(tmp_path, ask, Event(9, "crashed", "p1"))).found
    assert not judge(judged(tmp_path, ask, Event(2.5, "crashed", "p1"))).found


def test_what_workers_complain_of_is_found(tmp_path: Path) -> None:
    assert "p1 ended with 1" in judge(judged(tmp_path, *asked(1, 2, 2), complaints=("p1 ended with 1",))).found


def test_a_run_in_which_too_little_happened_is_invalid(tmp_path: Path) -> None:
    taken = [Event(1, "ask", "p1/a", NAME, "x", until=9), Event(2, "taken", "p1/a", NAME, "x", fence=1, until=6)]
    struck = (Struck("early", "cut", 1.5, 1.6), Struck("hit", "cut", 5.0, 5.1), Struck("after", "cut", 6.5, 7.0))
    events = [*taken, Event(7, "release", "p1/a", NAME, "x"), Event(9, "end", "p1")]
    report = judge(judged(tmp_path, *events, struck=struck))
    assert (report.acquisitions, report.expired, report.faults) == (1, 1, 3)
    assert report.missing({"acquisitions": 1, "refused": 1}, ["early", "hit", "after"]) == [
        "refused: 0 of 1",
        "early, while a lock was held",
        "after, while a lock was held",
    ]


def test_the_longest_gap_is_of_one_lock(tmp_path: Path) -> None:
    times = [(1, "a"), (2, "b"), (3, "b"), (4, "a"), (101, "a")]
    events = [Event(at, "taken", "p1/a", lock, f"{at}", fence=at, until=at + 0.1) for at, lock in times]
    assert judge(judged(tmp_path, *events)).gap == 3, "what comes after all is healed does not count"


def test_a_seed_decides_what_happens_and_everything_has_its_turn() -> None:
    kinds = [(name, (0.1, 0.5)) for name in "abcde"]
    planned = [fault for fault, _ in zip(plan(1, kinds, (1.0, 2.0)), range(10), strict=False)]
    assert planned == [fault for fault, _ in zip(plan(1, kinds, (1.0, 2.0)), range(10), strict=False)]
    assert planned != [fault for fault, _ in zip(plan(2, kinds, (1.0, 2.0)), range(10), strict=False)]
    assert sorted(fault.name for fault in planned[:5]) == sorted(fault.name for fault in planned[5:]) == list("abcde")
    assert all(0.5 <= fault.pause <= 2 for fault in planned)
