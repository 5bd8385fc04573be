"""Histories that a campaign once flagged: each showed a defect of the code, or a rule that was too strict."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import swarm_of

SEEDS = {
    "a lock that could not be given up in an outage stayed until its lease ended": "multilock:5024714",
    "a waiter was cancelled again while it gave up": "lock:5014260 lock:5099595 lock:5111553 lock:5161132",
    "a place in the queue was lost with a wait that was ended": "multilock:24577",
    "a renewal that a Cluster redirected shortened a later one that had none of its numbers": "wired+redirecting:222",
    "a vote stayed whose renewal for a shorter time was lost": "wired+polling:339",
    "the server lost its data between the grant and its reply": "lock:5163217",
    "the end of a fault was taken for that of another one": "break_lock:5016298 break_lock:5025385",
    "a position in the queue had come to nothing before the lock was acquired": "multilock:5021179",
    "an earlier lease of the process had a higher fence": "permit:5019878",
    "the server granted the lock before the waiter knew its position": "permit:5024823",
    "a late copy of a put replaced a newer value": (
        "single_flight:5048000 single_flight:5068529 single_flight:5125345 single_flight:5141982 single_flight:1020972"
    ),
    "a load that was granted before a deletion was noticed late": "single_flight:5093899",
}


@pytest.mark.parametrize(("seed", "about"), [(seed, about) for about, seeds in SEEDS.items() for seed in seeds.split()])
def test_a_history_that_was_flagged_violates_nothing(seed: str, about: str) -> None:
    name, _, number = seed.partition(":")
    assert swarm_of(name).simulate(int(number)).violations == [], about


@pytest.mark.parametrize(("seed", "at"), [(3845282088, 1.041), (506376, 2.027)])
def test_a_waiter_whose_inbox_is_slow_to_reconnect_may_be_passed_over(seed: int, at: float) -> None:
    run = swarm_of("lock").simulate(seed)
    assert run.violations == []
    history = run.world.history
    deaf = [round(event.at - history[0].at, 3) for event in history if event.kind == "granted" and event.note == "deaf c1"]
    assert at in deaf
