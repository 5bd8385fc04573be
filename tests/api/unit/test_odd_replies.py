"""Any answer of a server, ticket or job definition leads to a result, or to the documented error."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
from typing import Any

import hiredis
import pytest
from hypothesis import strategies as st

import holdfast._core
from holdfast import ConfigError
from holdfast._api.ticket import FORMAT, bound, read
from holdfast._core.requests import RunScript, Unknown
from holdfast._lua import Script
from holdfast._net import protocol, sentinel
from holdfast._net.url import from_url
from holdfast.schedule import definition
from holdfast.schedule.timetable import from_text
from support.fuzzing import AMOUNTS, ODD_NUMBERS, explore, json_values, odd_text

SCRIPTS: dict[str, Script[Any]] = {}
for module in pkgutil.walk_packages(holdfast._core.__path__, "holdfast._core."):
    for thing in vars(importlib.import_module(module.name)).values():
        if isinstance(thing, Script):
            SCRIPTS[thing.name] = thing


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


replies = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers(-(2**63), 2**63 - 1)
    | st.binary(max_size=20)
    | st.sampled_from([b"1", b"a 1", b"x", -1, -3, 0]),
    lambda inner: st.lists(inner, max_size=13) | st.dictionaries(st.binary(max_size=3), inner, max_size=2),
    max_leaves=30,
)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_reply_is_one_of_the_scripts_or_unknown(amount: int) -> None:
    assert len(SCRIPTS) > 25

    def holds(reply: Any) -> None:
        for script in SCRIPTS.values():
            try:
                protocol.parsed(RunScript(script, (b"k",), (), 1.0), reply)
            except Unknown:
                pass

    explore(amount, holds, replies)


def frame(kind: bytes, parts: list[bytes]) -> bytes:
    """An aggregate of RESP, which may count wrongly what is in it."""
    return kind + b"%d\r\n" % (len(parts) // 2 if kind in b"%|" else len(parts)) + b"".join(parts)


plain = st.sampled_from(
    [b"+a\r\n", b"-ERR no\r\n", b":1\r\n", b"$1\r\na\r\n", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b",inf\r\n"]
)
frames = st.recursive(
    plain | st.binary(max_size=5),
    lambda inner: st.builds(frame, st.sampled_from([b"*", b"%", b"~", b">", b"|"]), st.lists(inner, max_size=5)),
    max_leaves=20,
)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_bytes_are_replies_or_no_protocol(amount: int) -> None:
    def holds(said: bytes) -> None:
        reader = protocol.Reader()
        reader.feed(said)
        try:
            while reader.gets() is not False:
                pass
        except hiredis.ProtocolError:
            pass

    explore(amount, holds, frames)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_text_is_a_ticket_or_refused(amount: int) -> None:
    def holds(text: bytes) -> None:
        try:
            bound(read(text), "hf:", None)
        except ConfigError:
            pass

    def sealed(raw: bytes) -> bytes:
        return FORMAT.encode() + base64.urlsafe_b64encode(raw)

    good = ["jobs", "hf:{jobs}", f"{'a' * 12}.{'0' * 32}", 1_700_000_000_000, 0, 0]
    field = json_values | st.sampled_from(ODD_NUMBERS).map(lambda number: f"\0{number}\0")
    lists = st.tuples(*(st.just(value) | field for value in good)).map(list)
    text = (lists | json_values).map(lambda value: json.dumps(value).replace('"\\u0000', "").replace('\\u0000"', "").encode())
    explore(amount, holds, odd_text, odd_text.map(sealed), text.map(sealed), st.text().map(lambda s: (FORMAT + s).encode()))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_text_is_a_definition_of_a_job_or_refused(amount: int) -> None:
    def holds(raw: bytes) -> None:
        try:
            when, options = definition.parse(raw)
        except ConfigError:
            return
        assert when.after(1.7e9) > 1.7e9
        assert options.slots >= 1
        assert len(options.policy) < 200

    timetables = st.sampled_from(['{"every": 5}', '{"cron": ["* * * * *", "UTC"]}'])
    fields = {
        "when": timetables | st.text(max_size=20) | json_values.map(json.dumps),
        "ttl": json_values, "keep": json_values, "overlap": json_values, "misfire": json_values, "grace": json_values,
        "on_crash": json_values, "max_runtime": json_values, "on": json_values, "history": json_values, "other": json_values,
    }  # fmt: skip
    jobs = st.fixed_dictionaries({"when": fields.pop("when")}, optional=fields)
    explore(amount, holds, odd_text, json_values.map(as_json), jobs.map(as_json))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_text_is_a_timetable_or_refused(amount: int) -> None:
    def holds(raw: bytes) -> None:
        try:
            from_text(raw.decode(errors="replace"))
        except ConfigError:
            pass

    kinds = st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("every", "cron", "jitter", "salt"), json_values) | {"every": st.floats() | json_values}
    )
    explore(amount, holds, odd_text, json_values.map(as_json), kinds.map(as_json))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_url_is_one_or_refused(amount: int) -> None:
    def holds(url: str) -> None:
        try:
            from_url(url)
        except ConfigError:
            pass

    schemes = st.sampled_from(["redis://", "rediss://", "unix://", "redis+cluster://", "redis+sentinel://", "valkey://"])
    part = st.sampled_from(
        ["user:pw@", "[::1]", "h", ":6379", "/0", "?db=1", "&", ",", "%", "%41", "/svc", "#", "@"]
    ) | st.text(max_size=8)
    explore(amount, holds, st.tuples(schemes, st.lists(part, max_size=6).map("".join)).map("".join), st.text())


class Answers:
    """A Sentinel that answers with this."""

    def __init__(self, reply: object) -> None:
        self.reply = reply


@pytest.mark.parametrize("reply", [[b"h"], [b"h", b"x"], [1, 2], b"h", 7, [b"\xff", b"1"], [b"h", b"1" * 400]])
def test_an_odd_answer_of_a_sentinel(reply: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast._core.requests import Refused
    from holdfast._net.endpoint import Endpoint

    class Line:
        def __init__(self, *_: object) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(sentinel, "Connection", Line)
    monkeypatch.setattr(sentinel, "_reply", lambda *_: reply)
    watcher = Endpoint(host="s", port=1)
    with pytest.raises(Refused, match="did not answer with the address of a primary"):
        sentinel.Sentinel("svc", [watcher], {})._ask(watcher, 1.0)
