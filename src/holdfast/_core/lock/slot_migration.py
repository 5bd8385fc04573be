"""Renew and release locks and permits whose Cluster slot is being moved to another server, with scripts for a single key.

While a slot moves, the server refuses a script for several keys if it has only some of these keys.
"""

from __future__ import annotations

from typing import Any

from holdfast._core import permit
from holdfast._core.lock.replies import RELEASE, RENEW
from holdfast._core.requests import Call, RunScript
from holdfast._lua import Script, whole_number


def _read_renew(raw: object) -> list[int]:
    return [whole_number(raw)]


def _read_again(raw: object) -> int:
    return 1 if raw == 0 else whole_number(raw)


_Alone = tuple[Script[Any], Script[Any]]
"""Two scripts for one key, which replace a script for several keys.

The first is used if the call has not begun. The second is used if the call may have been carried out in part.
"""

_RENEW: Script[Any] = Script("lock/migrating", _read_renew)
_RELEASE: _Alone = Script("lock/migrating", whole_number), Script("lock/migrating", _read_again)
_PERMIT_RENEW: Script[Any] = Script("permit/migrating", _read_renew)
_PERMIT_RELEASE: _Alone = Script("permit/migrating", whole_number), Script("permit/migrating", _read_again)

_ALONE: dict[Script[Any], _Alone] = {
    RENEW: (_RENEW, _RENEW),
    RELEASE: _RELEASE,
    permit.RENEW: (_PERMIT_RENEW, _PERMIT_RENEW),
    permit.RELEASE: _PERMIT_RELEASE,
}


def single_key_form(call: Call, *, half: bool) -> RunScript[Any] | None:
    """Return a call that renews or releases a lock with the lock's own key only, for a slot that is being moved.

    Return None if there is no such call. The original call then has to wait until the slot has moved. ``half``: True if the
    original call may have been carried out in part. A release deletes the lock's own key first, so a missing key then counts as
    a success.
    """
    if type(call) is not RunScript or len(call.keys) != 3 or call.script not in _ALONE:
        return None
    token, ttl = call.args[:2]
    return RunScript(_ALONE[call.script][half], call.keys[:1], (token, ttl if isinstance(ttl, int) else 0), call.timeout)
