"""How the runs of a schedule are told to end, at moments that no live test can choose."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._api.lease import core_of
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.schedule.records import AbandonRun, ActiveRun, CancelRun, Start
from holdfast._net.endpoint import Endpoint
from holdfast.errors import LeaseLost
from holdfast.schedule.engine import Engine
from holdfast.schedule.run import Run
from holdfast.schedule.stopping import Stopping
from support.driver import Driver, spec
from support.memory_server import Server
from support.stage import Process

LATER = 1030.0  # Server() begins at 1000
NOWHERE = Endpoint(port=0)


def an_active_run() -> ActiveRun:
    grant = Grant(Attempt(spec(), "token"), fence=7, taken=0.0, deadline=LATER)
    job: Any = SimpleNamespace(name="job")
    return ActiveRun(job, 0, "token", 7, 0, 1, by_hand=False, grant=grant, began=0.0)


def lose(_engine: Engine, run: Run, _active_run: ActiveRun) -> None:
    core_of(run.lease).lose("its key is gone")


def cancel(engine: Engine, _run: Run, active_run: ActiveRun) -> None:
    active_run.why = "somebody else's command"
    engine.do(CancelRun(active_run))


@pytest.mark.parametrize("event", [lose, cancel])
@pytest.mark.parametrize("when", ["launching", "launched"])
def test_a_run_is_halted_once(event: Callable[[Engine, Run, ActiveRun], None], when: str) -> None:
    """A run that was told to end while it was launched has to be halted by the launch: nothing else could halt it yet."""
    active_run, halts, runs = an_active_run(), list[str](), list[Run]()

    def launch(_active_run: ActiveRun, run: Run) -> Callable[[], object]:
        runs.append(run)
        if when == "launching":
            event(engine, run, active_run)
        return lambda: halts.append(run.reason)

    state: Any = SimpleNamespace()
    engine = Engine(state, {}, launch)
    engine.home = Process(Driver(Server())), NOWHERE  # type: ignore[assignment]
    engine.do(Start(active_run))
    if when == "launched":
        event(engine, runs[0], active_run)
    assert len(halts) == 1
    assert "its key is gone" in halts[0] or "somebody else" in halts[0]
    assert runs[0].cancelled.is_set()
    for again in (lose, cancel):
        again(engine, runs[0], active_run)
    assert len(halts) == 1


def test_a_run_that_is_abandoned_has_lost_its_lease() -> None:
    """The server may give the next run to another process at once, while this one ignores that it was told to end."""
    active_run, runs = an_active_run(), list[Run]()

    def launch(_active_run: ActiveRun, run: Run) -> Callable[[], object]:
        runs.append(run)
        return lambda: None

    engine = Engine(SimpleNamespace(), {}, launch)  # type: ignore[arg-type]
    engine.home = Process(Driver(Server())), NOWHERE  # type: ignore[assignment]
    engine.do(Start(active_run))
    active_run.why = "max_runtime=1 has passed"
    engine.do(CancelRun(active_run))
    lease = runs[0].lease
    assert not lease.lost.is_set()
    engine.do(AbandonRun(active_run))
    assert lease.lost.is_set()
    assert lease.remaining() == 0.0
    with pytest.raises(LeaseLost, match="max_runtime=1 has passed"):
        runs[0].check()


def test_a_run_that_begins_while_holdfast_is_closed_is_reported_and_ends_no_service() -> None:
    active_run, ended = an_active_run(), list[tuple[ActiveRun, str, str]]()
    state: Any = SimpleNamespace(end=lambda *end: ended.append(end))
    engine = Engine(state, {}, lambda *_: pytest.fail("it has no lease"))
    process = Process(Driver(Server()))
    engine.home = process, NOWHERE  # type: ignore[assignment]
    process.keeper.node(Endpoint()).closing = True
    engine.do(Start(active_run))
    assert ended == [(active_run, "error", "the run could not be started: holdfast was closed")]
    engine.close()


def test_a_second_signal_ends_the_runs_at_once() -> None:
    for number, waits in ((signal.SIGTERM, [9.0, 0.0]), (signal.SIGHUP, [9.0])):  # shell and kernel may both send the latter
        asked = list[float]()
        stopping = Stopping(asked.append, 9.0)
        stopping.heard(number)
        stopping.heard(number)
        assert asked == waits
