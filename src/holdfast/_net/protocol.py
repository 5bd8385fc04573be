"""Commands as bytes, and what an error reply means."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hiredis
from hiredis import ReplyError as ReplyError  # noqa: PLC0414 - the drivers look for it, too

from holdfast._core.requests import Call, Command, Refused, Run, Unknown, WireError
from holdfast._lua import Script
from holdfast._net.endpoint import Endpoint


class Reader(hiredis.Reader):
    """The parser of replies. Bytes that it cannot read raise ``hiredis.ProtocolError``."""

    def gets(self, *args: bool) -> Any:
        """Return the next reply; False if it has not come as a whole."""
        try:
            return super().gets(*args)
        except TypeError as error:
            # RESP3: a map whose key is an array or another map. hiredis makes a dict of it.
            raise hiredis.ProtocolError(f"a map has a key that is no plain value ({error})") from error


def command(*parts: bytes | str | int) -> bytes:
    """The bytes of one command."""
    # Never an int: hiredis would make text of it, in which Python looks for signals, and crashes if a handler raises then.
    return hiredis.pack_command(tuple(str(p) if isinstance(p, int) else p for p in parts))  # type: ignore[arg-type, no-any-return]


@functools.lru_cache(4096)
def _frame(script: Script[Any], keys: tuple[bytes, ...], rest: tuple[bytes | str | int, ...], size: int) -> tuple[bytes, bytes]:
    """The bytes of a request before and after a token of ``size`` characters: only the token is new each time."""
    whole = command("EVALSHA", script.sha, len(keys), *keys, b"\0" * size, *rest)
    # By its place: what stands before and after it may be anybody's text, and hold as many NULs.
    after = command("EVALSHA", *rest).partition(b"EVALSHA")[2]
    return whole[: -len(after) - size], after


def in_full(call: Run[Any]) -> Command:
    """The command that runs a script of which the server may know nothing."""
    return Command(("EVAL", call.script.body, len(call.keys), *call.keys, *call.args), call.timeout)


def pack(call: Call, *, whole: bool = False) -> bytes:
    """The bytes of a request. ``whole``: with the text of the script, for a server that has forgotten it."""
    if type(call) is Command:
        call.packed = call.packed or command(*call.args)
        return call.packed
    assert type(call) is Run
    if whole:
        return command(*in_full(call).args)
    if len(call.keys) == 3 and call.args and type(token := call.args[0]) is str:
        before, after = _frame(call.script, call.keys, call.args[1:], len(token))
        return before + token.encode() + after
    return command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)


def is_noscript(reply: object) -> bool:
    """The server does not know the script: it restarted, or somebody flushed its scripts. Send it whole."""
    return type(reply) is ReplyError and str(reply).startswith("NOSCRIPT")


def is_demoted(error: WireError, endpoint: Endpoint) -> bool:
    """The server is not the one that is wanted (any more), and the finder knows which is: the connection is to be dropped."""
    return endpoint.finder is not None and isinstance(error, Refused) and error.code in {"READONLY", "MASTERDOWN", "LOADING"}


def check(reply: object, endpoint: Endpoint, drop: Callable[[], None] = lambda: None) -> None:
    """Raises Refused for an error reply. ``drop``: leaves a server that is not the one that is wanted."""
    if type(reply) is ReplyError:
        error = Refused(str(reply), endpoint.address)
        if is_demoted(error, endpoint):
            drop()
        raise error


def parsed(call: Call, reply: object) -> Any:
    """The typed reply of a call."""
    if type(call) is not Run:
        return reply
    try:
        return call.script.parse(reply)
    except (AssertionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # No server of these answers so: a proxy, or somebody else's server. Nobody knows what it has done.
        raise Unknown(f"the answer to {call.script.name!r} is none that this script gives") from error


def value(call: Call, reply: object, endpoint: Endpoint) -> Any:
    """The typed reply of a call. Raises Refused for an error reply."""
    check(reply, endpoint)
    return parsed(call, reply)
