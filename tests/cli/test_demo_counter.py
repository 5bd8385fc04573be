"""``holdfast demo counter``: what it says is what happened, and the verdict follows from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.cli import main
from holdfast_lab.demo import counter


def run(capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["demo", "counter", "--json"])
    return code, json.loads(capfd.readouterr().out)


@pytest.mark.turns("demo")
def test_additions_are_lost_and_four_cures_lose_none(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counter, "EACH", 200)
    code, facts = run(capfd)
    ways = facts["ways"]
    assert (code, facts["held"], list(ways)) == (0, True, list(counter.WAYS))
    naive = ways.pop("naive")
    assert 0 < naive["counted"] < 400 == naive["counted"] + naive["lost"]
    assert {way["counted"] for way in ways.values()} == {400}
    assert all(way["per_second"] > 0 for way in ways.values())


def test_where_nothing_is_lost_it_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process alone loses nothing."""
    monkeypatch.setattr(counter, "PROCESSES", 1)
    monkeypatch.setattr(counter, "EACH", 5)
    assert main(["demo", "counter"]) == 1
    out = capsys.readouterr().out
    assert [f"round {n} of at most {counter.ROUNDS}: nothing was lost" in out for n in range(1, 6)] == [True] * 5
    assert "FAILED without a cure, additions are lost: 0" in out
    assert "1 of 5 checks did not hold" in out


@pytest.mark.parametrize("way", ["incr", "transaction", "script", "lock"])
def test_a_cure_that_loses_one_does_not_hold(way: str) -> None:
    ways = {name: {"lost": 0} for name in counter.WAYS} | {"naive": {"lost": 900}}
    assert all(check.held for check in counter.judge({"expected": 2000, "ways": ways}))
    ways[way]["lost"] = 1
    checks = counter.judge({"expected": 2000, "ways": ways})
    assert [check.held for check in checks].count(False) == 1
