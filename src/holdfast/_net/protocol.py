"""The wire protocol: encode requests as bytes, parse replies, and interpret error replies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hiredis
from hiredis import ReplyError as ReplyError  # noqa: PLC0414 - the drivers import it from here

from holdfast._core.requests import Call, Command, Frame, Refused, RunScript, Unknown, WireError
from holdfast._lua import Script
from holdfast._net.endpoint import Endpoint

MALFORMED = (hiredis.ProtocolError, TypeError)
"""Exceptions of ``hiredis.Reader.gets`` for a malformed reply. For the second one, see `Reader.gets`."""


class Reader(hiredis.Reader):
    """A parser of replies that raises ``hiredis.ProtocolError`` for every malformed reply.

    `sync_connection` and `aio_connection` read most replies with ``hiredis.Reader`` itself, which saves a Python call for each
    reply. So they catch all exceptions in `MALFORMED`.
    """

    def gets(self, *args: bool) -> Any:
        """Return the next reply, or False if it has not arrived completely. Raises only ``hiredis.ProtocolError``."""
        try:
            return super().gets(*args)
        except TypeError as error:
            # RESP3 allows a map whose key is an array or another map, but hiredis puts each map into a dict.
            raise hiredis.ProtocolError(f"a map in the reply has a key that is not a plain value ({error})") from error


def command(*parts: bytes | str | int) -> bytes:
    # No int is passed, because hiredis would convert it by a call that runs signal handlers, and crash if one raises.
    return hiredis.pack_command(tuple(str(p) if isinstance(p, int) else p for p in parts))  # type: ignore[arg-type, no-any-return]


@functools.lru_cache(4096)
def _frame(script: Script[Any], keys: tuple[bytes, ...], rest: tuple[bytes | str | int, ...], size: int) -> tuple[bytes, bytes]:
    """Return the bytes of an encoded request before and after the token, which has ``size`` characters.

    Requests for the same lock differ only in the token, so the two parts are cached.
    """
    whole = command("EVALSHA", script.sha, len(keys), *keys, b"\0" * size, *rest)
    # The token is found by its position, because the keys and arguments may be any text, and may contain as many NULs.
    after = command("EVALSHA", *rest).partition(b"EVALSHA")[2]
    return whole[: -len(after) - size], after


def splice(frame: Frame, token: str) -> bytes:
    """Return the bytes of a request with this token. The other bytes are encoded once and kept in ``frame``."""
    if frame.size != len(token):
        frame.before, frame.after = _frame.__wrapped__(frame.script, frame.keys, frame.rest, len(token))
        frame.size = len(token)
    return frame.before + token.encode() + frame.after


def in_full(call: RunScript[Any]) -> Command:
    """Return the EVAL command, with the script's text, for a server that may not have the script."""
    return Command(("EVAL", call.script.body, len(call.keys), *call.keys, *call.args), call.timeout)


def pack(call: Call, *, whole: bool = False) -> bytes:
    """Return an encoded request. It names a script by its hash; with ``whole``, it contains the script's text."""
    if type(call) is Command:
        call.packed = call.packed or command(*call.args)
        return call.packed
    assert type(call) is RunScript
    if whole:
        return command(*in_full(call).args)
    if len(call.keys) == 3 and call.args and type(token := call.args[0]) is str:
        before, after = _frame(call.script, call.keys, call.args[1:], len(token))
        return before + token.encode() + after
    return command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)


def is_noscript(reply: object) -> bool:
    """Return True if the server does not have the script, for example after a restart. Its text must then be sent."""
    return type(reply) is ReplyError and str(reply).startswith("NOSCRIPT")


def is_demoted(error: WireError, endpoint: Endpoint) -> bool:
    """Return True if the server is no longer the primary, and the endpoint can find the new one.

    The caller closes the connection.
    """
    return endpoint.finder is not None and isinstance(error, Refused) and error.code in {"READONLY", "MASTERDOWN", "LOADING"}


def check(reply: object, endpoint: Endpoint, drop: Callable[[], None] = lambda: None) -> None:
    """Raise Refused if a reply is an error. Call ``drop``, which closes the connection, if the server is no longer the primary,
    or asks for a password: after a long command, it closes the connection, too."""
    if type(reply) is ReplyError:
        error = Refused(str(reply), endpoint.address)
        if is_demoted(error, endpoint) or error.code == "NOAUTH":
            drop()
        raise error


def parsed(call: Call, reply: object) -> Any:
    """Return the reply of a call, as its script's parser returns it. Raises Unknown if the reply is malformed."""
    if type(call) is not RunScript:
        return reply
    try:
        return call.script.parse(reply)
    except (AssertionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Only a proxy or another kind of server sends such a reply. Nobody knows what it has executed.
        raise Unknown(f"the answer to the script {call.script.name!r} is malformed: is a proxy in between?") from error


def value(call: Call, reply: object, endpoint: Endpoint) -> Any:
    """Return the reply of a call, as its script's parser returns it.

    Raises Refused for an error reply, and Unknown for a malformed one.
    """
    check(reply, endpoint)
    return parsed(call, reply)
