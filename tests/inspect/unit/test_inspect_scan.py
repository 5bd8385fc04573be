"""A survey of all locks, page by page: what is asked for next."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import LockInfo
from holdfast._core.inspect.scan import PAGE, Survey, page
from holdfast._core.requests import AskPlace, NotSent

TWO_SERVERS: Any = SimpleNamespace(parts=2)


def test_each_server_is_scanned_from_its_beginning_to_its_end() -> None:
    survey = Survey(TWO_SERVERS, b"*", lambda key: key != b"odd")
    steps = [(survey.part, survey.cursor)]
    for cursor in (b"7", b"0", b"9", b"0"):
        survey.scanned(cursor, [])
        steps.append((survey.part, survey.cursor))
    assert steps == [(0, 0), (0, b"7"), (1, 0), (1, b"9"), (2, 0)]
    assert survey.over


def test_a_key_is_shown_once_and_a_page_has_an_end() -> None:
    survey = Survey(TWO_SERVERS, b"*", lambda key: key != b"odd")
    keys = [b"%d" % number for number in range(PAGE + 1)]
    survey.scanned(b"7", [*keys, b"odd"])
    survey.scanned(b"0", [keys[0]])
    assert survey.take() == keys[:PAGE]
    survey.scanned(b"0", [])
    assert not survey.over, "what was found has not been shown"
    assert survey.take() == keys[PAGE:]
    assert survey.take() == []
    assert survey.over


def test_a_minority_that_is_away_hides_no_lock() -> None:
    three: Any = SimpleNamespace(parts=3, places=3, timeout=1.0, together=lambda _keys: (), slot_of=None)
    survey = Survey(three, b"*", lambda _key: True)
    away = NotSent("away")
    for part, outcome in ((0, StopIteration), (1, NotSent)):
        scan = page(survey)
        request = scan.send(None)
        assert survey.part == part
        with pytest.raises(outcome):
            while True:
                request = scan.throw(away) if isinstance(request, AskPlace) else scan.send(None)


@pytest.mark.parametrize(("votes", "held"), [(0, False), (1, False), (2, True)])
def test_a_lock_of_several_servers_is_held_when_a_majority_says_so(votes: int, held: bool) -> None:
    info: Any = SimpleNamespace(holders=("holder",), votes=votes, servers=3)
    assert LockInfo.held.fget(info) is held  # type: ignore[attr-defined]
