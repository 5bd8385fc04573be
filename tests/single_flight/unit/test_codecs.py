"""A codec restores each value that it stores, or refuses it; a value that it cannot read is not taken for another one."""

from __future__ import annotations

import datetime
import pickle
import warnings
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import codecs
from holdfast.errors import ConfigError, HoldfastWarning

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
Point = namedtuple("Point", "x y")  # noqa: PYI024


@pytest.mark.parametrize("name", ["json", "msgpack"])
@given(value=PLAIN)
def test_comes_back_as_it_was(name: str, value: Any) -> None:
    codec = codecs.find(name)
    again = codec.decode(codec.kind, codec.encode(value, "x"))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ((1, 2), r"the value is a tuple, .* store a list"),
        (Point(1, 2), "the value is a tuple"),
        ({"a": [1, (2,)]}, r"the value\['a'\]\[1\] is a tuple"),
        ({1: "a"}, "the key 1, which JSON would restore as text"),
        ({"a": {None: 1}}, r"the value\['a'\] has the key None"),
        (datetime.datetime(2026, 1, 1), "not JSON serializable"),  # noqa: DTZ001
        (float("nan"), "not JSON compliant"),
        (b"x", "not JSON serializable"),
        ("\udc80", "surrogates not allowed"),
    ],
)
def test_json_refuses_what_would_change(value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        codecs.find("json").encode(value, "cache 'shop', key 'a'")
    assert str(raised.value).startswith("cache 'shop', key 'a': codec 'json' cannot store a value of type ")


def test_json_refuses_what_has_no_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match=r"[Cc]ircular"):
        codecs.find("json").encode(endless, "x")


def test_msgpack_refuses_a_tuple() -> None:
    with pytest.raises(ConfigError, match="a tuple, for example"):
        codecs.find("msgpack").encode((1,), "x")


@pytest.mark.parametrize(("name", "value", "wrong"), [("bytes", b"\x00j", "x"), ("str", "jä", b"x")])
def test_bytes_and_text_as_they_are(name: str, value: Any, wrong: Any) -> None:
    codec = codecs.find(name)
    assert codec.decode(codec.kind, codec.encode(value, "x")) == value
    assert codec.encode(value, "x").endswith(value if isinstance(value, bytes) else value.encode())
    with pytest.raises(ConfigError, match="only"):
        codec.encode(wrong, "x")


def test_pickle_only_by_that_word_and_with_a_warning() -> None:
    for which in ("pickle", pickle):
        with pytest.warns(HoldfastWarning, match="can run code in every process") as seen:
            codec = codecs.find(which)
        assert seen[0].filename == __file__
        assert codec.decode(codec.kind, codec.encode((1, {2}), "x")) == (1, {2})


def test_any_object_with_dumps_and_loads() -> None:
    codec = codecs.find(SimpleNamespace(dumps=lambda value: str(value * 2), loads=lambda data: int(data) // 2))
    assert codec.decode(codec.kind, codec.encode(21, "x")) == 21


@pytest.mark.parametrize("which", ["yaml", 7, None, SimpleNamespace(dumps=str)])
def test_no_codec(which: object) -> None:
    with pytest.raises(ConfigError, match="codec must be"):
        codecs.find(which)


def test_none_reads_what_another_has_stored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        found = [codecs.find(name) for name in ("json", "bytes", "str", "msgpack", "pickle")]
    found.append(codecs.find(SimpleNamespace(dumps=str, loads=str)))
    values = ["x", b"x", "x", "x", "x", "x"]
    for number, (codec, value) in enumerate(zip(found, values, strict=True)):
        stored = codec.encode(value, "x")
        for other in found[:number] + found[number + 1 :]:
            with pytest.raises(codecs.Undecodable):
                other.decode(codec.kind, stored)
    with pytest.raises(codecs.Undecodable, match="cannot read the stored value: JSONDecodeError"):
        codecs.find("json").decode("json", b"{")
    with pytest.raises(codecs.Undecodable):
        codecs.find("json").decode("json", b"")


# Exceptions that are remembered


class NotFoundError(LookupError):
    def __init__(self, sku: str) -> None:
        super().__init__(f"no article {sku}")
        self.sku = sku
        self.request = object()


class Withdrawn(NotFoundError):
    pass


def test_an_exception_comes_back_with_its_facts() -> None:
    stored = codecs.encode_error(Withdrawn("A1"))
    again = codecs.decode_error(stored, (LookupError,))
    assert type(again) is Withdrawn
    assert str(again) == "no article A1"
    assert again.sku == "A1"
    assert again.request.startswith("<object object")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "error", [KeyError("a"), OSError(2, "gone"), ValueError(), ValueError((1, 2), b"x"), ValueError("\udc80")]
)
def test_exceptions_of_python(error: Exception) -> None:
    again = codecs.decode_error(codecs.encode_error(error), (Exception,))
    assert type(again) is type(error)
    assert len(again.args) == len(error.args)


def test_only_those_that_are_expected_are_made() -> None:
    with pytest.raises(codecs.Undecodable, match="not among the types"):
        codecs.decode_error(codecs.encode_error(KeyError("a")), (ValueError,))
    for broken in (b"", b"{}", b'{"type":"os.system","args":["true"],"facts":{}}', b"[]"):
        with pytest.raises(codecs.Undecodable):
            codecs.decode_error(broken, (Exception,))


def test_exception_types_are_checked() -> None:
    assert codecs.exception_types(KeyError, "errors") == (KeyError,)
    assert codecs.exception_types((), "errors") == ()
    for wrong in ("KeyError", (KeyError, 7), BaseException):
        with pytest.raises(ConfigError, match="errors must be exception types"):
            codecs.exception_types(wrong, "errors")
