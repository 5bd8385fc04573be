"""Which of several servers vote, as `holdfast nodes` tells it: by what they remember, without asking them to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast._core.quorum.votes import HeldElsewhere, ServerSet, VoteRound, Yes
from holdfast._core.requests import Answer, NotSent
from holdfast.doctor.facts import Facts
from holdfast.doctor.nodes import VotingServer, skews
from holdfast.doctor.rules import vote

PANEL = ServerSet(("a", "b", "c"), "digest", 60.0)
GOOD = Facts("a", info={"run_id": "r1"}, marker=("r1", 0.0, 60.0, "digest"), now=1_000.0)


@pytest.mark.parametrize(
    ("facts", "votes", "why"),
    [
        (GOOD, True, "votes"),
        (replace(GOOD, marker=("r1", 939.3, 60.0, "digest")), True, "votes"),
        (replace(GOOD, marker=("r1", 950.0, 60.0, "digest")), False, "votes again in 11 s"),
        (replace(GOOD, marker=None), False, "votes 60 s after the first request. Only if it is new: holdfast nodes init"),
        (replace(GOOD, marker=("r0", 0.0, 60.0, "digest")), False, "was restarted: votes 61 s after"),
        (replace(GOOD, marker=("r1", 0.0, 30.0, "digest")), False, "agreed on max_ttl=30"),
        (replace(GOOD, marker=("r1", 0.0, 60.0, "other")), False, "another list of servers"),
        (Facts("a", error="no server at a"), False, "no server at a"),
    ],
)
def test_who_votes(facts: Facts, votes: bool, why: str) -> None:
    found, said = vote(facts, PANEL)
    assert found is votes
    assert why in said


def test_a_round_goes_on_while_the_reason_of_a_refusal_is_open() -> None:
    votes = VoteRound(PANEL)
    assert not votes.on_answer(0, NotSent("away"))
    assert not votes.on_answer(1, Answer(HeldElsewhere(b"r", 1.0, 1, "p", "m", 0), 0.0, 0.0)), "busy, or too few that vote?"
    assert votes.on_answer(2, NotSent("away"))


@pytest.mark.parametrize(
    ("yes", "held", "left"), [(1, (0.5,), 0.5), (0, (0.5, 0.7), 0.7), (1, (0.5, 0.3), 0.3), (0, (0.5,), None)]
)
def test_a_majority_is_free_when_enough_that_said_no_are(yes: int, held: tuple[float, ...], left: float | None) -> None:
    votes = VoteRound(PANEL)
    answers = [Yes(b"r", 1, 2, 0, others=False)] * yes + [HeldElsewhere(b"r", seconds, 1, "p", "m", 0) for seconds in held]
    for number, answer in enumerate(answers):
        votes.on_answer(number, Answer(answer, 0.0, 0.0))
    assert votes.remaining() == left


def test_a_clock_is_compared_with_those_of_the_others() -> None:
    nodes = [VotingServer(name, Facts(name, ahead=ahead)) for name, ahead in zip("abcd", (0.0, 0.0, 5.0, None), strict=True)]
    assert skews(nodes) == {"a": -2.5, "b": -2.5, "c": 5.0}
    assert skews(nodes[:1]) == {}
