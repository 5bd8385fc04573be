"""A lock whose slot is on its way from one server of a Cluster to another: what can be done for it meanwhile."""

from __future__ import annotations

from typing import Any

from holdfast._core.mutex import RELEASE, RENEW
from holdfast._core.requests import Call, Run
from holdfast._lua import Script, whole_number


def _read_renew(raw: object) -> list[int]:
    return [whole_number(raw)]


def _read_again(raw: object) -> int:
    return 1 if raw == 0 else whole_number(raw)


_MOVING_RELEASE: Script[int] = Script("moving", whole_number)
_MOVING_RELEASE_AGAIN: Script[int] = Script("moving", _read_again)
_MOVING_RENEW: Script[list[int]] = Script("moving", _read_renew)


def alone(call: Call, *, half: bool) -> Run[Any] | None:
    """The same for a lock's own key alone, where that is possible: its renewal, or its release. The others have to wait.
    ``half``: it was begun. A release begins with the lock's own key, so if that is gone now, it was ours and is given back."""
    if type(call) is not Run or len(call.keys) != 3:
        return None
    token = call.args[0]
    if call.script is RENEW:
        return Run(_MOVING_RENEW, call.keys[:1], (token, call.args[1]), call.timeout)
    if call.script is RELEASE:
        return Run(_MOVING_RELEASE_AGAIN if half else _MOVING_RELEASE, call.keys[:1], (token, 0), call.timeout)
    return None
