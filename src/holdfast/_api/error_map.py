"""Translation of internal errors into those of `holdfast.errors`, and the look-up of a holder's process record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast._core import control_records, names
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.spec import Spec
from holdfast._core.names import PROCESS
from holdfast._core.requests import ConfigMismatch, NotSent, Refused, TooFew, WireError
from holdfast._runtime.process import current
from holdfast.errors import ServerError

Trouble = WireError | KeyConflict | TooFew | ConfigMismatch
"""The internal exceptions with which an acquisition can fail."""


def told(error: WireError, what: str, key: str, rights: Iterable[str] | None = None, **facts: Any) -> ServerError:
    """Return the ServerError for an internal error about ``what``, such as a lock. Its text contains advice if there is any.

    ``rights``: options of ``holdfast acl`` that print the rights for the request; None: those that ``what`` needs.
    """
    how = "refused" if isinstance(error, Refused) else "failed"
    if isinstance(error, Refused) and error.code in {"MOVED", "ASK"}:
        how = "refused by one server of a Cluster; pass the whole Cluster: redis+cluster://host:port, or a RedisCluster client"
    from holdfast._api import access  # Imported late: most programs never need it.

    remedy = access.advice(error, access.options_for(what, key) if rights is None else rights) or remedy_of(error)
    said = f"{str(error).removesuffix('.') if remedy else error}{remedy}"
    if isinstance(error, Refused):
        facts |= {"code": error.code, "_transient": error.transient}
    elif error.silent:
        facts["_silent"] = True
    return ServerError(f"{what}: {how}: {said}", address=error.address, key=key, **facts)


def cause(error: BaseException) -> BaseException | None:
    """Return the error of the system or client library that caused an internal error; None if there is none.

    It becomes the ``__cause__`` of the user's error. Internal errors and frames are left out, because a traceback would print
    sixty lines about them.
    """
    found: BaseException | None = error
    while isinstance(found, Trouble):
        found = found.__cause__
    return None if found is None else found.with_traceback(None)


def remedy_of(error: WireError) -> str:
    """Return advice for the error text if the URL or the client is wrong for the server; else an empty text."""
    text, where = str(error), error.address
    if isinstance(error, NotSent) and not error.silent and text.startswith("no server at"):
        host, _, port = where.rpartition(":")
        if host in {"localhost", "127.0.0.1"}:  # `holdfast server` listens on no other address
            number = port.partition("/")[0]  # the number of the database follows
            command = f"holdfast server --port {number} --no-password"  # with a password, this very URL would be refused
            return f"; start one with `{command}`, or pass the URL local:// (both need holdfast[server])"
        return f"; check {'the path' if '/' in where else 'host and port'}, and that the server runs"
    return _remedy_for_refusal(text, where, error.code if isinstance(error, Refused) else "")


def _remedy_for_refusal(text: str, where: str, code: str) -> str:
    if text.startswith(("WRONGPASS", "ERR invalid password", "ERR AUTH", "ERR Client sent AUTH")):
        return f"; check the user name and the password for {where}"
    if code == "NOAUTH":
        # In a whole URL, the command line would hide the placeholder of the password as if it were one.
        return f"; {where} needs a password: pass a client that has it, or write it in the URL, as in :PASSWORD@HOST:PORT"
    if text.startswith("ERR DB index is out of range"):
        server, _, number = where.rpartition("/")
        return f"; {server} has no database {number}: pass a smaller number"
    if text.startswith("ERR This instance has cluster support disabled"):
        return (
            f"; {where.removeprefix('cluster at ')} is not in a Cluster: pass a URL that begins with redis://, or redis.Redis"
        )
    return ""


def server_error(spec: Spec, error: WireError, *rights: str) -> ServerError:
    """Return the ServerError for an internal error about a lock.

    If the server's ACL forbids the request, the error text names the options of ``holdfast acl`` to use. ``rights``: options in
    addition to those for the lock.
    """
    from holdfast._api import access  # Imported late: most programs never need it.

    return told(error, f"lock {spec.name!r}", spec.key, (*access.options_of(spec), *rights), name=spec.name)


async def record_of(public: str, key: bytes) -> bytes | None:
    """Return the record of the process that holds a lock: host, pid, labels. None if it cannot be read.

    ``public`` is the start of the holder's token, which other processes may see.
    """
    ours = current().id
    process = public[:PROCESS]
    if process == ours:
        keeper = current().running_keeper
        label = keeper.label_of(key) if keeper is not None else None
        return control_records.write(current().facts(), [], {} if label is None else {key: label}).encode()
    try:
        record = names.record_key(names.home(public, key), process)
        return (await control_records.fetch(record, 0.25)).value if process else None
    except WireError:
        return None
