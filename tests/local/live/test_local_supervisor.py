"""How the local server's supervisor judges use, takes the socket away, and looks after the files."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast._local.server.process import PrivateServer
from holdfast._local.server.supervisor import BOOT, LOG, LOG_LIMIT, SOCKET, SocketConnection, Supervisor, leases

if TYPE_CHECKING:
    from conftest import NewServer


@pytest.fixture
def server_of_its_own(new_server: NewServer) -> PrivateServer:
    return new_server()


@pytest.fixture
def supervisor(server_of_its_own: PrivateServer) -> Iterator[Supervisor]:
    """One that looks after a server that was started otherwise."""
    directory = server_of_its_own.directory
    watched = Supervisor(str(directory), 600, -1)
    watched.lock = os.open(directory, os.O_RDONLY)
    watched.in_use()
    assert not watched.in_use()
    yield watched
    watched.disconnect()
    os.close(watched.lock)


def test_who_connects_just_before_the_socket_is_taken_away_keeps_the_server(supervisor: Supervisor) -> None:
    with closing(SocketConnection(supervisor.path(SOCKET), 5)) as late:
        assert not supervisor.closed()
        assert late("PING") == "PONG"
    assert supervisor.reachable()
    SocketConnection(supervisor.path(SOCKET), 5).close()  # connected and gone again
    assert not supervisor.closed()
    assert not supervisor.in_use()
    assert supervisor.closed()
    assert not supervisor.reachable()
    assert Path(supervisor.path(BOOT)).exists()


def test_a_server_that_hangs_counts_as_used(supervisor: Supervisor, server_of_its_own: PrivateServer) -> None:
    assert supervisor.connection is not None
    supervisor.connection._socket.settimeout(0.02)
    server_of_its_own.pause()
    assert supervisor.in_use()
    assert supervisor.connection is None
    server_of_its_own.resume()
    supervisor.in_use()
    assert not supervisor.in_use()


def test_a_lease_on_a_later_page_of_the_keys_is_found() -> None:
    pages: dict[str, Any] = {"0": ["7", ["plain"]], "7": ["0", ["lock"]]}

    def server(command: str, key: str, *_: str) -> Any:
        return pages[key] if command == "SCAN" else 1000 if key == "lock" else -1

    assert leases(cast("SocketConnection", server))
    del pages["7"][1][0]
    assert not leases(cast("SocketConnection", server))


def test_the_log_does_not_grow_for_ever(supervisor: Supervisor) -> None:
    log = Path(supervisor.path(LOG))
    log.write_bytes(b"x" * LOG_LIMIT)
    supervisor.trim_log()
    assert log.exists()
    log.write_bytes(b"x" * (LOG_LIMIT + 1))
    supervisor.trim_log()
    assert not log.exists()
    assert log.with_name(LOG + ".1").stat().st_size == LOG_LIMIT + 1


def test_files_in_use_do_not_grow_old(supervisor: Supervisor) -> None:
    file = Path(supervisor.path(LOG))
    os.utime(file, (0, 0))
    supervisor.keep_files()
    assert file.stat().st_mtime == 0  # once an hour is enough
    supervisor.kept -= 3601
    supervisor.keep_files()
    assert file.stat().st_mtime > 0


def test_why_a_server_did_not_start_is_said_though_it_has_written_little(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.write_text("#!/bin/sh\necho 'no memory' > \"${0%/*}/server.log\"\nexit 1\n")
    server.chmod(0o700)
    failing = Supervisor(str(tmp_path), 600, -1)
    failing.lock = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(RuntimeError, match=r"^no memory$"):
            failing.start(str(server))
    finally:
        os.close(failing.lock)


def test_a_server_that_cannot_be_reached_is_not_watched(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its directory was deleted."""
    monkeypatch.setattr(supervisor, "ended", lambda: False)
    monkeypatch.setattr(supervisor, "reachable", lambda: False)
    monkeypatch.setattr(supervisor, "in_use", None)
    supervisor.watch()


@pytest.mark.parametrize(("idle", "pause"), [(600, 5), (10, 1.0), (0.05, 0.02)])
def test_how_often_a_server_is_looked_at(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, idle: float, pause: float
) -> None:
    pauses, looks = list[float](), [False, True]
    monkeypatch.setattr(supervisor, "idle", idle)
    monkeypatch.setattr(supervisor, "ended", lambda: looks.pop(0))
    monkeypatch.setattr(select, "select", lambda *args: pauses.append(args[3]))
    supervisor.watch()
    assert pauses == [pause]


@pytest.mark.parametrize("lock", [0, 5])
def test_whoever_has_the_lock_of_the_directory_removes_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: int
) -> None:
    ending = Supervisor(str(tmp_path), 600, -1)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(ending, "owned", lambda: True)
    for ending.lock, left in ((-1, [SOCKET]), (lock, [])):
        (tmp_path / SOCKET).touch()
        ending.end()
        assert [path.name for path in tmp_path.iterdir()] == left
