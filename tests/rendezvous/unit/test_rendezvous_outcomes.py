"""The outcomes of which a participant of a barrier is told."""

from __future__ import annotations

import pytest

from holdfast._core.rendezvous.barrier import (
    BarrierBroken,
    Participant,
    _BarrierWaiting,
    _Occupied,
    _outcome,
    _Over,
    _Passed,
    _read,
)
from holdfast._lua import codes


def participant() -> Participant:
    me = Participant()
    me.listener_id, me.may_be_on_server = "0123456789ab.hope", True
    return me


def test_how_long_the_others_are_waited_for() -> None:
    assert _read([0, 1000, 7]) == _BarrierWaiting(1.0, 7)
    assert _read([codes.OCCUPIED, 1500]) == _Occupied(1.5)
    assert _read([codes.OCCUPIED, -2]) == _Occupied(0.0), "the server has no time for it, as for a key without an expiry"


def test_who_passes_has_a_number() -> None:
    me = participant()
    assert _outcome(me, _Passed(3)) == 3
    assert not me.may_be_on_server


@pytest.mark.parametrize(
    ("said", "why", "process"),
    [(_Over("died", "ba9876543210"), "died", "ba9876543210"), (_Over("left", ""), "timeout", "0123456789ab")],
)
def test_who_does_not_pass_is_told_why_and_by_whom(said: _Over, why: str, process: str) -> None:
    me = participant()
    with pytest.raises(BarrierBroken) as broken:
        _outcome(me, said)
    assert (broken.value.why, broken.value.process, me.may_be_on_server) == (why, process, False)
