"""How `holdfast bench` counts, compares and judges."""

from __future__ import annotations

import itertools
import json

import pytest

from holdfast_lab.bench import crowd, plan, report, throughput, wiretap


def test_quantiles_are_of_the_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [report.quantile(values, q) for q in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert report.quantile([7.0], 0.99) == 7


@pytest.mark.parametrize(("relation", "target", "held"), [("≤", 1.4, False), ("≥", 1.4, True), ("=", 1.5, True), ("", 0, None)])
def test_a_target_is_judged(relation: str, target: float, held: bool | None) -> None:
    figure = report.Figure("ratio", 1.5, "", relation, target)
    assert figure.held is held
    assert ("MISSED" in figure.line()) == (held is False)


def test_jain_index() -> None:
    assert report.jain([5, 5, 5, 5]) == 1
    assert report.jain([20, 0, 0, 0]) == 0.25


def turn(asked: float, fence: int) -> crowd.Turn:
    return crowd.Turn(asked, 10.0 + fence, fence)


def test_overtaking_is_found() -> None:
    assert crowd.overtakings([turn(1, 1), turn(3, 2), turn(3.5, 3)]) == 0
    # The one who asked at 5 was served before the one who had asked at 3.
    assert crowd.overtakings([turn(1, 1), turn(3, 3), turn(5, 2)]) == 1
    assert crowd.overtakings([turn(1, 1), turn(3, 3), turn(5, 2)], slack=2) == 0


def test_an_order_that_is_not_of_arrival_is_found_in_the_server_s_record() -> None:
    def seen(name: str, *arguments: str) -> wiretap.SeenCommand:
        return wiretap.SeenCommand(0.0, "lua", name, list(arguments))

    def arrival(token: str) -> wiretap.SeenCommand:
        return seen("ZADD", "hf:{x}:queue", "NX", "1", token)

    def grant(token: str) -> wiretap.SeenCommand:
        return seen("SET", "hf:{x}", token, "PX", "2000")

    fair = [grant("a"), arrival("b"), arrival("c"), grant("b"), grant("c")]
    assert crowd.replay(fair, "x") == (2, 0)
    assert crowd.replay([grant("a"), arrival("b"), arrival("c"), grant("c"), grant("b")], "x") == (2, 1)
    assert crowd.replay([grant("a"), arrival("b"), grant("barging")], "x") == (1, 1)


def test_contenders_take_turns_and_the_first_place_goes_round() -> None:
    assert "".join(plan.turns("abc", 4)) == "abcbcacababc"
    numbers = iter(range(4))
    assert plan.in_turns(["a", "b"], 2, lambda name: f"{name}{next(numbers)}") == {"a": ["a0", "a3"], "b": ["b1", "b2"]}


@pytest.mark.parametrize(("seconds", "rounds"), [(0.05, 1), (0.6, 2), (1.6, 3), (5, 5), (60, 5)])
def test_rounds_are_not_too_short_for_those_who_poll(seconds: float, rounds: int) -> None:
    planned = plan.Plan("redis://x", seconds)
    assert planned.rounds == rounds
    assert planned.slice * rounds == pytest.approx(seconds)


def test_a_ratio_of_what_was_not_measured_is_left_out() -> None:
    result = report.Result("x", [report.Row("a", {"per_second": 6.0}), report.Row("b", {"per_second": 2.0})])
    result.compare("a / b", result.value("a", "per_second"), result.value("b", "per_second"), "≥", 3)
    result.compare("a / c", result.value("a", "per_second"), result.value("c", "per_second"), "≥", 3)
    assert [(figure.name, figure.value, figure.held) for figure in result.figures] == [("a / b", 3.0, True)]


def test_the_document_is_json_even_without_bound() -> None:
    result = report.Result("x", [report.Row("a", {"longest_ms": float("inf"), "n": 1234567.8})], name="s")
    text = json.dumps(report.document([result], {}, {}), allow_nan=False)
    assert json.loads(text)["scenarios"][0]["contenders"][0]["values"] == {"longest_ms": None, "n": 1234570}


class Fenced:
    """The figures that the witness reads."""

    def __init__(self, fence: int) -> None:
        self.lease = self
        self.fence = fence


def test_a_witness_sees_two_inside_and_a_fence_that_does_not_rise() -> None:
    witness = throughput.Witness()
    for fence in (1, 2):
        witness.enter(Fenced(fence))
        witness.leave()
    assert witness.wrong == 0
    witness.enter(Fenced(2))
    assert witness.wrong == 1
    witness.enter(Fenced(3))
    assert witness.wrong == 2


class Open:
    """A lock that lets everybody in, and breaks when it is told to."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken
        self.asked = False

    def acquire(self) -> bool:
        self.asked = True
        if self._broken:
            raise ConnectionError("no server")
        return True

    def release(self) -> None:
        pass


def test_threads_are_counted_and_their_failures_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_clock", itertools.count().__next__)
    assert throughput.by_threads([Open(), Open()], 50) > 0
    broken = Open(broken=True)
    monkeypatch.setattr(throughput, "_clock", lambda: 50 if broken.asked else 0)
    with pytest.raises(ConnectionError):
        throughput.by_threads([Open(), broken], 50)
