"""Checks of the arguments of a transaction: its client, its keys, and the limits for repeating it."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

from holdfast._api.options import checked_wait, whole_number
from holdfast._durations import Seconds
from holdfast._net.endpoint import Endpoint
from holdfast._net.resolve import check_api, check_usable, kind_of, one_place, resolve
from holdfast._net.slots import slot_of
from holdfast.errors import ConfigError


def limits(tries: int, wait: Seconds | None) -> tuple[int, float | None]:
    if whole_number(tries, "tries") < 1:
        raise ConfigError("tries must be at least 1", parameter="tries")
    return tries, checked_wait(wait)


def checked_keys(keys: tuple[str | bytes, ...], *, clustered: bool) -> tuple[str | bytes, ...]:
    if not keys:
        raise ConfigError("keys: pass at least one key to watch; else changes by others would go unnoticed", parameter="keys")
    for key in keys:
        if not isinstance(key, str | bytes) or not key:
            raise ConfigError(f"keys must be str or bytes, and not empty, not {key!r}", parameter="keys")
    if clustered and len({slot_of(raw(key)) for key in keys}) > 1:
        raise ConfigError(
            "keys: in a Cluster, all keys of a transaction must be in one slot; give them a common hash tag: {user:7}:cart",
            parameter="keys",
        )
    return keys


def raw(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def server_of(client: Any, api: Literal["sync", "asyncio"]) -> Endpoint | None:
    """Return the server for which holdfast opens a client; None if the passed client sends the commands.

    Raises ConfigError if ``client`` is not a usable client of this API (``api``) or a URL.
    """
    one_place(client)
    kind = kind_of(client)
    if kind in {"URL", "Cluster"}:
        return resolve(client, api)
    check_api(client, api)
    check_usable(client, kind)
    return None


def address_of(client: Any) -> str:
    pool = client.connection_pool
    options = getattr(pool, "connection_kwargs", {})
    named: str | None = getattr(pool, "service_name", None) or options.get("path")
    return named or f"{options.get('host') or 'localhost'}:{options.get('port') or 6379}"


def no_coroutine(name: object) -> NoReturn:
    raise ConfigError(f"{name} is a coroutine function: use holdfast.aio.transaction", parameter="function")
