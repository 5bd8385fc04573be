"""Which leases are renewed when, and when they are lost: every rule that `_core/renewing.py` states."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._core.mutex import CLAIM, Attempt, Grant, margin
from holdfast._core.renewing import CLAIM_AFTER, Renew, Renewing, Tenure
from unit.driver import spec

INFINITY = float("inf")


def tenure(
    *,
    ttl: float = 30.0,
    renew: bool = True,
    max_hold: float | None = None,
    taken: float = 100.0,
    claim: bool = False,
    token: str = "p.1",  # noqa: S107
) -> Tenure:
    lease = CLAIM if claim else ttl if max_hold is None else min(ttl, max_hold)
    attempt = Attempt(spec(ttl=ttl, renew=renew, max_hold=max_hold), token)
    return Tenure(Grant(attempt, 7, taken, taken + lease - margin(lease), claim))


def watched(this: Tenure) -> Renewing:
    renewing = Renewing()
    renewing.watch(this)
    return renewing


def one(renewals: list[Renew]) -> Renew:
    assert len(renewals) == 1
    return renewals[0]


# When


def test_a_third_of_the_lease_after_it_was_taken() -> None:
    renewing = watched(tenure())
    assert renewing.next_at() == pytest.approx(110, abs=0.2)
    assert renewing.due(109.8) == ([], [])
    renewals, lost = renewing.due(110.0)
    assert one(renewals).ttl == 30.0
    assert lost == []


def test_a_claim_is_made_a_full_lease_soon() -> None:
    renewing = watched(tenure(claim=True))
    assert renewing.next_at() == pytest.approx(100 + CLAIM_AFTER)
    assert one(renewing.due(100 + CLAIM_AFTER)[0]).ttl == 30.0


def test_without_renewal_only_the_end_is_watched() -> None:
    this = tenure(renew=False)
    renewing = watched(this)
    assert renewing.next_at() == this.deadline
    assert renewing.due(this.deadline - 0.001) == ([], [])
    assert renewing.due(this.deadline) == ([], [this])


def test_without_renewal_a_lease_renewed_by_hand_is_not_renewed_by_itself() -> None:
    this = tenure(renew=False)
    renewing = watched(this)
    renewing.forget(this.token)
    this.renewed(120.0, 120.0, 30.0)
    renewing.watch(this)
    assert renewing.next_at() == this.deadline == pytest.approx(150 - margin(30.0))
    assert renewing.due(149.0) == ([], [])
    assert renewing.due(this.deadline) == ([], [this])


def test_each_confirmation_counts_from_its_send_time() -> None:
    this = tenure()
    renewing = watched(this)
    renewal = one(renewing.due(110.0)[0])
    assert renewing.on_answer(renewal, 1, 110.0, 110.0)
    assert this.deadline == pytest.approx(140 - margin(30.0))
    assert renewing.next_at() == pytest.approx(120)
    assert len(renewing) == 1


def test_a_shorter_lease_is_believed_for_less_before_it_is_asked_for() -> None:
    """The answer may get lost, and the server has done it all the same."""
    this = tenure()
    this.asks(101.0, 1.0)
    assert this.deadline == pytest.approx(102 - margin(1.0))
    this.asks(101.0, 60.0)
    assert this.deadline == pytest.approx(102 - margin(1.0)), "never longer before it is confirmed"


# One failure loses nothing, the deadline does


def test_a_failed_renewal_is_retried_until_the_deadline() -> None:
    this = tenure()
    renewing = watched(this)
    now, tries = 110.0, 0
    while True:
        now = max(now, renewing.next_at())
        renewals, lost = renewing.due(now)
        if lost:
            break
        tries += 1
        renewing.on_failed(one(renewals), now)
        assert this.lost == ""
        assert now < this.deadline
    assert lost == [this]
    assert now == this.deadline
    assert this.lost == "its time ran out before a renewal was confirmed"
    assert tries >= 10
    assert (len(renewing), renewing.next_at()) == (0, INFINITY)


def test_a_success_after_failures_is_as_good_as_any() -> None:
    this = tenure()
    renewing = watched(this)
    renewing.on_failed(one(renewing.due(110.0)[0]), 110.1)
    at = renewing.next_at()
    assert 110.1 < at < 113
    assert renewing.on_answer(one(renewing.due(at)[0]), 1, at, at)
    assert this.deadline == pytest.approx(at + 30 - margin(30.0))


def test_a_renewal_that_is_never_answered_nor_failed_is_asked_for_again() -> None:
    renewing = watched(tenure())
    one(renewing.due(110.0)[0])
    again = renewing.next_at()
    assert 110 < again < 120
    assert one(renewing.due(again)[0])


@pytest.mark.parametrize(("answer", "reason"), [(0, "gone"), (-1, "somebody else")])
def test_the_server_saying_it_is_not_ours_loses_it(answer: int, reason: str) -> None:
    this = tenure()
    renewing = watched(this)
    assert renewing.on_answer(one(renewing.due(110.0)[0]), answer, 110.0, 110.0) is False
    assert reason in this.lost
    assert this.remaining(110.0) == 0.0
    assert (len(renewing), renewing.next_at()) == (0, INFINITY)


def test_what_is_lost_stays_lost() -> None:
    this = tenure()
    renewing = watched(this)
    renewal = one(renewing.due(110.0)[0])
    assert renewing.due(this.deadline)[1] == [this]
    reason = this.lost
    assert renewing.on_answer(renewal, 1, 110.0, 110.0) is True, "nothing new to report"
    assert this.lost == reason
    assert this.lose("another reason") is False
    assert this.lost == reason
    assert this.remaining(110.0) == 0.0
    assert len(renewing) == 0


def test_only_the_first_to_notice_reports() -> None:
    this = tenure()
    assert this.lose("first") is True
    assert this.lose("second") is False
    renewing = watched(this)
    assert renewing.due(this.deadline) == ([], []), "somebody else has reported it"


# Release and renewal at the same time


@pytest.mark.parametrize("answer", [1, 0, -1])
def test_an_answer_that_comes_after_the_release_has_begun_is_ignored(answer: int) -> None:
    """The release overtook the renewal: "gone" is no loss, and "renewed" is no reason to look after it again."""
    this = tenure()
    renewing = watched(this)
    renewal = one(renewing.due(110.0)[0])
    this.over = True
    renewing.forget(this.token)
    assert renewing.on_answer(renewal, answer, 110.0, 110.0) is True
    assert this.lost == ""
    assert len(renewing) == 0


def test_a_failure_that_comes_after_the_release_has_begun_is_ignored() -> None:
    this = tenure()
    renewing = watched(this)
    renewal = one(renewing.due(110.0)[0])
    this.over = True
    renewing.forget(this.token)
    renewing.on_failed(renewal, 110.1)
    assert len(renewing) == 0


def test_what_is_given_back_has_no_time_left_and_cannot_be_lost() -> None:
    this = tenure()
    assert this.remaining(101.0) > 28
    this.over = True
    assert this.remaining(101.0) == 0.0
    assert this.lose("anything") is False


# max_hold


def held_to_the_end(this: Tenure, latency: float = 0.001) -> Iterator[tuple[float, list[Renew], list[Tenure]]]:
    renewing = watched(this)
    while renewing.next_at() < INFINITY:
        now = renewing.next_at()
        renewals, lost = renewing.due(now)
        yield now, renewals, lost
        for renewal in renewals:
            renewing.on_answer(renewal, 1, now, now)


@pytest.mark.parametrize("claim", [False, True])
@pytest.mark.parametrize("max_hold", [0.05, 1.0, 30.0, 100.0])
def test_max_hold_ends_the_renewals(claim: bool, max_hold: float) -> None:
    """The server's lease ends with it too, or others would wait in vain."""
    this = tenure(max_hold=max_hold, claim=claim)
    end = 100 + max_hold
    steps = list(held_to_the_end(this))
    for now, renewals, _ in steps:
        assert all(now + renewal.ttl <= end + 0.001 for renewal in renewals)
    now, _, lost = steps[-1]
    assert lost == [this]
    assert end - 0.01 * min(max_hold, 30) - 0.003 <= now <= end
    assert "max_hold" in this.lost, "the reason says that it was meant to be so"


def test_renewal_with_max_hold_goes_on_until_there() -> None:
    this = tenure(max_hold=100.0)
    asked = [round(renewal.ttl, 1) for _, renewals, _ in held_to_the_end(this) for renewal in renewals]
    assert asked[0] == 30.0
    assert asked[-1] < 30.0
    assert len([ttl for ttl in asked if ttl < 30.0]) == 1, "the last one is cut to what is allowed, and not repeated"


# The books


def test_nothing_to_do_for_nobody() -> None:
    renewing = Renewing()
    assert (len(renewing), renewing.next_at(), renewing.due(1e9)) == (0, INFINITY, ([], []))
    renewing.forget("p.unknown")


def test_tenures_are_those_watched() -> None:
    these = [tenure(token=f"p.{n}", taken=100.0 + n) for n in range(20)]
    renewing = Renewing()
    for this in these:
        renewing.watch(this)
    renewing.forget("p.3")
    assert sorted(t.token for t in renewing.tenures()) == sorted(t.token for t in these if t.token != "p.3")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.floats(0.05, 60), st.booleans()),
        st.tuples(st.just("pass"), st.floats(0, 40), st.booleans()),
        st.tuples(st.just("forget"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("fail"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("by hand"), st.integers(0, 30), st.booleans()),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_slots_agree_with_a_plain_list(steps: list[tuple[str, float, bool]]) -> None:
    """After any sequence of events: every watched lease is there once, the next wake-up is that of the earliest, nothing is
    renewed before its time, nothing is lost before its deadline, and nothing over its deadline is left."""
    renewing, now = Renewing(), 1000.0
    watching: dict[str, Tenure] = {}
    under_way: list[tuple[Renew, float]] = []
    for number, (what, value, flag) in enumerate(steps):
        chosen = list(watching.values())[int(value) % len(watching)] if watching and what in {"forget", "by hand"} else None
        pending = under_way.pop(int(value) % len(under_way)) if under_way and what in {"answer", "fail"} else None
        if what == "take":
            this = tenure(ttl=value, renew=flag, taken=now, token=f"p.{number}")
            watching[this.token] = this
            renewing.watch(this)
        elif what == "pass":
            now += value
            before = {token: min(t.renew_at, t.deadline) for token, t in watching.items()}
            renewals, lost = renewing.due(now)
            assert {t.token for t in lost} == {token for token, t in watching.items() if t.deadline <= now}
            assert {r.tenure.token for r in renewals} == {
                token for token, at in before.items() if at <= now < watching[token].deadline
            }
            assert all(r.tenure.spec.renew for r in renewals)
            for this in lost:
                del watching[this.token]
            under_way += [(renewal, now) for renewal in renewals]
        elif chosen is not None and what == "forget":
            del watching[chosen.token]
            chosen.over = flag
            renewing.forget(chosen.token)
        elif chosen is not None:
            renewing.forget(chosen.token)
            chosen.renewed(now, now, chosen.ttl)
            renewing.watch(chosen)
        elif pending is not None:
            renewal, sent = pending
            token = renewal.tenure.token
            if what == "fail":
                renewing.on_failed(renewal, now)
            elif token in watching and renewing.on_answer(renewal, int(flag), sent, now) is False:
                assert not flag or now >= renewal.tenure.deadline
                del watching[token]
        assert sorted(t.token for t in renewing.tenures()) == sorted(watching)
        assert len(renewing) == len(watching)
        expected = min((min(t.renew_at, t.deadline, t.ends_at) for t in watching.values()), default=INFINITY)
        assert renewing.next_at() == expected


def test_an_answer_that_is_read_too_late_brings_nothing_back() -> None:
    """The lease has ended, others have had the lock, and a late copy of our first request has taken it once more: the server
    says "renewed", of another holding than ours. The models' variant LATE_ANSWER."""
    this = tenure()
    renewing = watched(this)
    renewal = one(renewing.due(110.0)[0])
    assert renewing.on_answer(renewal, 1, 110.0, this.deadline) is False
    assert this.lost == "its time ran out before a renewal was confirmed"
    assert len(renewing) == 0


def test_an_overtaken_renewal_does_not_lengthen_what_is_believed() -> None:
    """The server has gone by a renewal by hand that was made later, and shorter; its answer may be lost."""
    this = tenure()
    renewing = Renewing()
    renewing.watch(this)
    (renewal,), _ = renewing.due(this.renew_at)
    this.asks(this.renew_at, 0.5)
    believed = this.deadline
    assert renewing.on_answer(renewal, 2, 0.0, 0.0)
    assert this.deadline == believed
    assert not this.lost


def test_the_answer_to_an_earlier_renewal_changes_nothing() -> None:
    this = tenure()
    this.asks(199.0, 30.0)
    this.asks(200.0, 60.0)
    this.renewed(200.0, 200.0, 60.0)
    believed = this.deadline
    this.renewed(199.0, 201.0, 30.0)
    assert this.deadline == believed


def test_renewals_made_at_one_moment_have_an_order_too() -> None:
    """By hand and by the keeper: the server goes by the number, and so do we."""
    this = tenure()
    made = [this.asks(101.0, ttl) for ttl in (30.0, 1.0, 20.0)]
    assert len({int(number * 1e6) for number in made}) == 3
    assert made == sorted(made)
    this.renewed(made[0], 101.0, 30.0)
    assert this.deadline == pytest.approx(102 - margin(1.0)), "the last one counts"


def test_an_answer_lengthens_nothing_while_a_shorter_lease_is_asked_for() -> None:
    """Both wait for a connection, are sent at one moment, and the server goes by the later one: the judge's seed 15116."""
    this = tenure()
    this.asks(101.0, 30.0)
    this.asks(102.0, 1.0)
    this.renewed(101.0, 103.0, 30.0)
    assert this.deadline == pytest.approx(103 - margin(1.0))
    this.renewed(102.0, 103.0, 1.0)
    assert this.deadline == pytest.approx(104 - margin(1.0))
