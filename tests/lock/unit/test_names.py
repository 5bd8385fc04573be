"""From names to keys: injective, all in one slot, within limits, and nothing escapes from its braces."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast._core.lock.name_conflict import Look, _told
from holdfast._core.names import MAX_NAME, lock_keys
from holdfast.errors import ConfigError

SMALL = st.sampled_from([b"a", b"b", b"{", b"}", b"%", b":", b"%7B", b"%25", b"state", b"queue", b"\x00", b"\r\n", b"\xff"])
NAMES = st.one_of(st.lists(SMALL, min_size=1, max_size=5).map(b"".join), st.binary(min_size=1, max_size=20))
PREFIXES = st.sampled_from(["hf:", "a", "a:", "locks/", "%", "hf:x"])
KEYS = st.lists(st.sampled_from([b"a", b"b", b"{", b"}", b"{a}", b":state", b":queue", b"hf:{a}"]), min_size=1, max_size=4).map(
    b"".join
)


def slot_part(key: bytes) -> bytes:
    """Return the part that decides the slot of a key in a Cluster: between the first { and the first } after it, unless that is
    empty."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else key


def usable(key: bytes) -> tuple[bytes, bytes, bytes] | None:
    try:
        return lock_keys("any", "hf:", key)
    except ConfigError:
        return None


def test_the_documented_form() -> None:
    assert lock_keys("invoice:42", "hf:", None) == (b"hf:{invoice:42}", b"hf:{invoice:42}:state", b"hf:{invoice:42}:queue")
    assert lock_keys("x", "other:", None)[0] == b"other:{x}"
    assert lock_keys("x", "hf:", "lock:x") == (b"lock:x", b"{lock:x}:state:raw", b"{lock:x}:queue:raw")
    assert lock_keys("x", "hf:", "lock:{x}") == (b"lock:{x}", b"lock:{x}:state", b"lock:{x}:queue")


def test_text_and_bytes_name_the_same_lock() -> None:
    assert lock_keys("né", "hf:", None) == lock_keys("né".encode(), "hf:", None)
    assert lock_keys("x", "hf:", "k") == lock_keys("x", "hf:", b"k")


@given(NAMES, NAMES, PREFIXES, PREFIXES)
def test_different_locks_never_share_a_key(one: bytes, other: bytes, prefix: str, other_prefix: str) -> None:
    assume((one, prefix) != (other, other_prefix))
    assert not set(lock_keys(one, prefix, None)) & set(lock_keys(other, other_prefix, None))


@given(NAMES, PREFIXES)
def test_the_three_keys_of_a_name_share_a_slot(name: bytes, prefix: str) -> None:
    keys = lock_keys(name, prefix, None)
    assert len(set(keys)) == 3
    assert len({slot_part(key) for key in keys}) == 1


@given(NAMES)
def test_no_name_leaves_its_braces(name: bytes) -> None:
    lock = lock_keys(name, "hf:", None)[0]
    inner = lock.removeprefix(b"hf:{").removesuffix(b"}")
    assert not set(inner) & set(b"{}\x7f\r\n\x00")
    assert all(byte >= 0x20 for byte in inner)


@given(KEYS)
def test_the_three_keys_of_a_raw_key_share_a_slot(key: bytes) -> None:
    """Or the key is refused: on a Cluster such a lock could never be taken."""
    keys = usable(key)
    if keys is not None:
        assert keys[0] == key
        assert len({slot_part(k) for k in keys}) == 1, keys


@given(KEYS, KEYS)
def test_different_raw_keys_never_share_state_or_queue(one: bytes, other: bytes) -> None:
    """Two locks with one queue would hand each other's lock to each other's waiters."""
    assume(one != other)
    first, second = usable(one), usable(other)
    if first and second:
        assert not set(first[1:]) & set(second[1:]), (first, second)


def test_a_raw_key_and_a_name_share_their_state_only_if_they_share_the_lock() -> None:
    named = lock_keys("a", "hf:", None)
    assert lock_keys("other", "hf:", "hf:{a}") == named
    for key in ("a", "{a}", "hf:a", "{hf:{a}}"):
        keys = usable(key.encode())
        if keys:
            assert not set(keys[1:]) & set(named[1:])


@pytest.mark.parametrize("length", [1, MAX_NAME])
def test_longest_and_shortest(length: int) -> None:
    assert lock_keys("x" * length, "hf:", None)
    assert lock_keys("{" * length, "hf:", None)[0] == b"hf:{" + b"%7B" * length + b"}"
    assert lock_keys("x", "hf:", "k" * length)
    assert lock_keys("x", "p" * length, None)


@pytest.mark.parametrize(
    "bad", ["", b"", "x" * (MAX_NAME + 1), "é" * (MAX_NAME // 2 + 1), "\ud800", 7, None, ["x"], bytearray(b"x")]
)
def test_bad_names_are_refused_by_the_name_of_the_parameter(bad: object) -> None:
    for parameter in ("name", "prefix", "key"):
        if parameter == "key" and bad is None:
            continue
        arguments = {"name": "x", "prefix": "hf:", "key": None} | {parameter: bad}
        with pytest.raises(ConfigError, match=parameter) as caught:
            lock_keys(**arguments)  # type: ignore[arg-type]
        assert caught.value.parameter == parameter


@pytest.mark.parametrize("bad", ["{", "}", "a{b}", "{}"])
def test_no_braces_in_a_prefix(bad: str) -> None:
    with pytest.raises(ConfigError, match="prefix") as caught:
        lock_keys("x", bad, None)
    assert caught.value.parameter == "prefix"


def test_a_name_of_another_kind_says_until_when_it_is_held() -> None:
    said = _told("", Look(b"hf:{x}", b"string", b"", 1500, 0))
    assert said.startswith("it is the name of a lock that is held, 1.5 s of its lease left. ")
