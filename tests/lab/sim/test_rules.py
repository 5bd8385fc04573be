"""Which rules apply to which swarm: each has to judge something, and the page says so."""

from __future__ import annotations

import pytest

from holdfast_lab.checkers import RULES
from holdfast_lab.runner import JUDGED_IN, SWARMS, RunnerTotals
from lab.sim.rules_page import PAGE, render


def test_the_page_shows_which_rules_apply() -> None:
    text = PAGE.read_text("utf-8")
    assert text == render(text), "run PYTHONPATH=tests python -m lab.sim.rules_page"


def test_each_rule_of_a_lock_applies_somewhere() -> None:
    applied = {rule.partition(" ")[0] for swarm in SWARMS.values() for rule in swarm.rules}
    assert RULES.keys() - applied == set()


@pytest.mark.parametrize("of", SWARMS)
def test_a_rule_that_has_judged_nothing_makes_a_campaign_invalid(of: str) -> None:
    tally = RunnerTotals(histories=JUDGED_IN)
    for rule in SWARMS[of].rules:
        tally.coverage.docket.decide(rule, excused=True)
    assert tally.unjudged(of) == list(SWARMS[of].rules)
    assert f"{SWARMS[of].rules[0]} has judged nothing" in tally.missing(of)
    for rule in SWARMS[of].rules[1:]:
        tally.coverage.docket.decide(rule)
    assert tally.unjudged(of) == [SWARMS[of].rules[0]]
    tally.coverage.docket.decide(SWARMS[of].rules[0])
    assert tally.unjudged(of) == []


def test_few_histories_need_not_judge_everything() -> None:
    assert RunnerTotals(histories=JUDGED_IN - 1).unjudged("lock") == []
