"""The bytes of a request, by its shortest way and by the plain one."""

from __future__ import annotations

import pytest

from holdfast._core.lock.replies import RELEASE
from holdfast._core.requests import RunScript
from holdfast._net.protocol import command, pack


@pytest.mark.parametrize("args", [(), ("token",), ("token", "release"), (7, "x"), (b"raw", 1)])
@pytest.mark.parametrize("keys", [(), (b"a",), (b"a", b"b", b"c"), (b"a", b"b", b"c", b"d")])
def test_a_script_is_sent_by_its_digest(keys: tuple[bytes, ...], args: tuple[bytes | str | int, ...]) -> None:
    packed = pack(RunScript(RELEASE, keys, args, 1.0))
    assert packed == command("EVALSHA", RELEASE.sha, len(keys), *keys, *args)


def test_arguments_with_many_nuls() -> None:
    """The place of the token is not looked for: what is told from a gap of its size may be anybody's text."""
    keys = (b"a", b"b", b"c")
    for rest in (("\0" * 40,), ("x", "\0" * 40, 7), ("a\0\0\0b",), ()):
        args = ("tok", *rest)
        assert pack(RunScript(RELEASE, keys, args, 1.0)) == command("EVALSHA", RELEASE.sha, 3, *keys, *args)


def test_keys_with_many_nuls() -> None:
    """A key of the user's own may hold as many NULs as a token has characters, and stays as it is."""
    keys = (b"a", b"\0" * 40, b"c")
    for token in ("tok", "t" * 40):
        assert pack(RunScript(RELEASE, keys, (token, 7), 1.0)) == command("EVALSHA", RELEASE.sha, 3, *keys, token, 7)
