"""Properties that have to hold whatever stands there: a share of the cases in each run, all of them in `make soak`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from support.sources import turn

SHARE, ALL = 100, 10_000
"""Cases of each property. Which ones the share has changes with the sources."""

AMOUNTS = [pytest.param(SHARE, id="share"), pytest.param(ALL, id="all", marks=pytest.mark.soak)]
"""For ``parametrize``."""


def explore(amount: int, holds: Callable[[Any], object], *strategies: st.SearchStrategy[Any]) -> None:
    """Call ``holds`` with that many drawn cases, the same ones until a source changes; the smallest that fails is shown."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(max_examples=amount, deadline=None, database=None, derandomize=False, suppress_health_check=checks)
    test = given(st.one_of(*strategies))(lambda case: (holds(case), None)[1])
    chosen(seed(turn("fuzzing"))(test) if amount < ALL else test)()


GOOD: dict[str, Any] = {"host": "h", "pid": 7, "label": "night shift", "start": 1.5}
WAIT: dict[str, Any] = {"lock": "hf:{b}", "since": 3.0, "id": "7f", "who": "T", "holds": ["hf:{a}"], "yields": True}

MALFORMED = [
    b"[1]", b"null", b"1", b'"x"', b"{}", b"\xff", b"[" * 100_000, b'{"host":' * 500, b"NaN",
    b'{"host": "h", "pid": 1e400}', b'{"host": "h", "pid": true}', b'{"host": "h", "pid": 7.5}', b'{"host": "h", "pid": "7"}',
    b'{"host": "h", "pid": -1}', b'{"host": ["h"], "pid": 1}', b'{"host": "\\ud800", "pid": 1}',
    b'{"host": "h", "pid": 1' + b"0" * 400 + b"}", b'{"host": "h", "pid": 1, "label": 1}',
    b'{"host": "' + b"h" * 5000 + b'", "pid": 1}',
    json.dumps({**GOOD, "waits": [1]}).encode(), json.dumps({**GOOD, "waits": [{**WAIT, "since": "x"}]}).encode(),
]  # fmt: skip


"""Process records that are none."""

ODD_NUMBERS = ["1e400", "-1e400", "NaN", "Infinity", "-0", "1" + "0" * 400, "-" + "9" * 5000, "1e-400", "0x10", "1_000"]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)

odd_text = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"[1]", b"null", b"1", b'"x"', b"", b"{}", b"[" * 4000, b'{"a":' * 800, b"[" * 100_000, b"\xff\xfe\x00"]),
    st.sampled_from(ODD_NUMBERS).map(str.encode),
    st.integers(4_000, 5_000).map(lambda size: b'"' + b"x" * size + b'"'),
)
"""Texts that are no records at all."""
