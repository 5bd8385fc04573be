"""``local://``: one server per user and directory, whoever starts it and however often; it ends when unused."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast._local.server import binary, local, paths
from holdfast._local.server.supervisor import LOG, SOCKET, SocketConnection
from holdfast.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable


CRASH = -signal.SIGKILL


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def status_of(pid: int) -> list[str]:
    """State, parent, group, session, ...; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def running(pid: int) -> bool:
    return status_of(pid)[:1] not in ([], ["Z"], ["X"])


def connect(url: str) -> SocketConnection:
    """As every client of ours does: connect; if nobody is there, start it, and try again."""
    while True:
        try:
            return SocketConnection(paths.socket_path(url), 10)
        except (FileNotFoundError, ConnectionRefusedError):
            local.ensure(url)


def ask(url: str, *command: str) -> object:
    with closing(connect(url)) as connection:
        return connection(*command)


def pid_of(url: str) -> int:
    with closing(connect(url)) as connection:
        return int(connection.info("server")["process_id"])


def supervisor_of(pid: int) -> int:
    return int(status_of(pid)[1])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not status_of(pid))  # a zombie's threads may still hold the socket: who connects there is cut off


def directory_of(url: str) -> Path:
    return Path(url.removeprefix("local://"))


# Start


def test_it_starts_private_and_fit_for_locks(local_url: str) -> None:
    path = Path(local.ensure(local_url))
    assert path == directory_of(local_url) / "server.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in path.parent.iterdir() if file.is_file()} == {0}
    with closing(connect(local_url)) as connection:
        settings = {
            "port": "0",
            "maxmemory-policy": "noeviction",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "unixsocketperm": "700",
        }
        assert {name: connection("CONFIG", "GET", name)[1] for name in settings} == settings


def test_it_listens_on_no_port(local_url: str) -> None:
    pid = pid_of(local_url)
    sockets = {str(fd.readlink()) for process in (pid, supervisor_of(pid)) for fd in Path(f"/proc/{process}/fd").iterdir()}
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"), Path("/proc/net/udp")):
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        assert not sockets & {f"socket:[{line.split()[9]}]" for line in lines}


def test_the_directory_is_made_for_us_alone(local_url: str) -> None:
    directory_of(local_url).rmdir()
    before = os.umask(0)
    try:
        local.ensure(local_url)
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory_of(local_url).stat().st_mode) == 0o700
    end(local_url)  # the fixture knows the former directory


def test_ten_at_once_start_one(local_url: str) -> None:
    code = (
        "import sys; from holdfast._local.server import local; from holdfast._local.server.supervisor import SocketConnection\n"
        "print('here', flush=True); sys.stdin.read(1)\n"
        "c = SocketConnection(local.ensure(sys.argv[1]), 5); print(c.info('server')['process_id'], flush=True); c.close()"
    )
    command = [sys.executable, "-c", code, local_url]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(10)]
    for starter in starters:
        assert starter.stdout
        assert starter.stdout.readline() == "here\n"
    for starter in starters:
        assert starter.stdin
        starter.stdin.write("!")
        starter.stdin.flush()
    pids = {int(starter.communicate()[0]) for starter in starters}
    assert pids == {pid_of(local_url)}
    assert (directory_of(local_url) / LOG).read_text().count("is starting") == 1


def test_two_supervisors_at_once_start_one(local_url: str) -> None:
    """The lock on the directory keeps servers apart, not the queue of starters."""
    program = str(Path(local.__file__).with_name("supervisor.py"))
    reports = []
    for _ in range(3):
        hear, report = os.pipe()
        arguments = [str(directory_of(local_url)), str(report), "600", binary.find()]
        subprocess.run([sys.executable, "-I", "-S", program, *arguments], pass_fds=[report], check=True)
        os.close(report)
        reports.append(hear)
    for hear in reports:
        assert os.read(hear, 100) == b"ok"
        os.close(hear)
    assert (directory_of(local_url) / LOG).read_text().count("is starting") == 1


def test_two_directories_are_two_servers(local_url: str) -> None:
    inner = f"{local_url}/a%20b"
    try:
        assert pid_of(inner) != pid_of(local_url)
        assert (directory_of(local_url) / "a b" / SOCKET).exists()
    finally:
        end(inner)


def end(url: str) -> None:
    pid = pid_of(url)
    supervisor = supervisor_of(pid)
    with pytest.raises(ConnectionError):
        ask(url, "SHUTDOWN")
    until(lambda: not running(supervisor))


def test_a_running_server_costs_one_connect(local_url: str) -> None:
    local.ensure(local_url)
    code = (
        "import sys, holdfast; before = set(sys.modules)\n"
        "from holdfast._local.server import local; local.ensure(sys.argv[1]); print(*(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", code, local_url], check=True, capture_output=True, text=True).stdout
    assert not {"redis", "asyncio", "subprocess", "fcntl", "holdfast._local.server.start"} & set(said.split())


# State that it must not inherit from its starter


def test_it_survives_its_starter(local_url: str) -> None:
    code = "import os, sys; from holdfast._local.server import local; local.ensure(sys.argv[1]); os.killpg(0, 9)"
    starter = subprocess.run([sys.executable, "-c", code, local_url], check=False, start_new_session=True)
    assert starter.returncode == CRASH
    path = paths.socket_path(local_url)
    with closing(SocketConnection(path, 5)) as connection:
        pid = int(connection.info("server")["process_id"])
    assert running(supervisor_of(pid))
    assert (directory_of(local_url) / LOG).read_text().count("is starting") == 1


def test_it_holds_nothing_of_its_starter(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its open files, whose readers would wait for ever, nor its environment, nor its ignored signals."""
    monkeypatch.setenv("HOLDFAST_URL", "redis://:canary@example.org")
    hear, say = os.pipe()
    os.set_inheritable(say, True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        pid = pid_of(local_url)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(say)
    assert os.read(hear, 1) == b""
    os.close(hear)
    for process in (pid, supervisor_of(pid)):
        assert b"canary" not in Path(f"/proc/{process}/environ").read_bytes()
        assert Path(f"/proc/{process}/cwd").readlink() in {Path("/"), directory_of(local_url)}
        blocked = Path(f"/proc/{process}/status").read_text().split("SigBlk:")[1].split()[0]
        assert int(blocked, 16) == 0


# Crash


def test_leases_survive_a_crash_of_the_server(local_url: str) -> None:
    assert ask(local_url, "SET", "hf:{job}", "token", "NX", "PX", "60000") == "OK"
    pid = pid_of(local_url)
    kill(pid)
    assert ask(local_url, "SET", "hf:{job}", "other", "NX", "PX", "60000") is None
    remaining = ask(local_url, "PTTL", "hf:{job}")
    assert isinstance(remaining, int)
    assert 30_000 < remaining <= 60_000
    assert pid_of(local_url) != pid


def test_a_holder_with_an_open_connection_finds_its_lease_again(local_url: str) -> None:
    with closing(connect(local_url)) as connection:
        connection("SET", "hf:{job}", "token", "PX", "60000")
        kill(int(connection.info("server")["process_id"]))
        with pytest.raises(ConnectionError):
            connection("PEXPIRE", "hf:{job}", "60000")
    assert ask(local_url, "PEXPIRE", "hf:{job}", "60000") == 1


def test_renewals_go_on_after_a_crash(local_url: str) -> None:
    """Without anything done by the holder: the thread that renews starts the server again."""
    try:
        with holdfast.Lock(local_url, "job", ttl=2) as lease:
            pid = pid_of(local_url)
            kill(pid)
            before = lease.remaining()
            until(lambda: lease.remaining() > before)
            lease.check()
            assert pid_of(local_url) != pid
    finally:
        holdfast.close()


def test_server_and_supervisor_end_together(local_url: str) -> None:
    """A server without a supervisor would run for ever; a supervisor without a server has nothing to do."""
    ask(local_url, "SET", "hf:{job}", "token", "PX", "60000")
    pid = pid_of(local_url)
    supervisor = supervisor_of(pid)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not running(pid))
    assert ask(local_url, "GET", "hf:{job}") == "token"
    pid = pid_of(local_url)
    supervisor = supervisor_of(pid)
    kill(pid)
    until(lambda: not running(supervisor))
    assert not (directory_of(local_url) / SOCKET).exists()


def test_a_supervisor_told_to_end_ends_the_server(local_url: str) -> None:
    pid = pid_of(local_url)
    os.kill(supervisor_of(pid), signal.SIGTERM)
    until(lambda: not running(pid))
    until(lambda: not (directory_of(local_url) / SOCKET).exists())


def test_deleted_files_do_not_leave_a_server_that_nobody_finds(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOCAL_IDLE", "1")
    pid = pid_of(local_url)
    (directory_of(local_url) / SOCKET).unlink()
    assert pid_of(local_url) != pid
    assert not running(pid)


# End


def test_it_ends_when_nobody_uses_it(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is kept beside locks does not count as use, nor what has no end."""
    monkeypatch.setenv("HOLDFAST_LOCAL_IDLE", "0.3")
    with closing(connect(local_url)) as connection:
        pid = int(connection.info("server")["process_id"])
        supervisor = supervisor_of(pid)
        connection("HSET", "hf:{job}:state", "fence", "1")
        connection("PEXPIRE", "hf:{job}:state", "600000")
        connection("SET", "something", "without an end")
        begin = time.monotonic()
    until(lambda: not running(supervisor))
    assert time.monotonic() - begin > 0.2
    assert not running(pid)
    assert not (directory_of(local_url) / SOCKET).exists()
    assert ask(local_url, "HGET", "hf:{job}:state", "fence") == "1"


def test_not_while_somebody_is_connected(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOCAL_IDLE", "0.2")
    with closing(connect(local_url)) as connection:
        pid = int(connection.info("server")["process_id"])
        supervisor = supervisor_of(pid)
        begin = time.monotonic()
        until(lambda: time.monotonic() > begin + 0.6)  # three times its patience
        assert connection("PING") == "PONG"
    until(lambda: not running(supervisor))


def test_not_while_a_lease_runs(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOCAL_IDLE", "0.1")
    with closing(connect(local_url)) as connection:
        supervisor = supervisor_of(int(connection.info("server")["process_id"]))
        begin = time.monotonic()
        assert connection("SET", "a key of any name", "token", "NX", "PX", "800") == "OK"
    until(lambda: not running(supervisor))
    assert time.monotonic() - begin > 0.8


def test_a_stop_never_cuts_off_who_comes_at_that_moment(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients come and go while the server stops again and again; each that has connected gets its answers."""
    monkeypatch.setenv("HOLDFAST_LOCAL_IDLE", "0.02")
    pids: set[int] = set()
    failures: list[Exception] = []
    deadline = time.monotonic() + 30

    def come_and_go(pause: float) -> None:
        try:
            while len(pids) < 6 and not failures and time.monotonic() < deadline:
                with closing(connect(local_url)) as connection:
                    connection("INCR", "visits")
                    pids.add(int(connection.info("server")["process_id"]))
                time.sleep(pause)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(pause,)) for pause in (0.041, 0.047, 0.053)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(pids) >= 6
    starts = sum(path.read_text().count("is starting") for path in directory_of(local_url).glob(LOG + "*"))
    assert starts >= len(pids)


# Trouble


def test_one_that_does_not_start_says_why(local_url: str) -> None:
    ask(local_url, "SET", "key", "value")
    end(local_url)
    log = directory_of(local_url) / "appendonlydir" / "appendonly.aof.manifest"
    if not log.exists():  # before Redis 7.0 it is one file
        log = directory_of(local_url) / "appendonly.aof"
    log.write_text("nonsense\n")
    with pytest.raises(ServerError, match=r"(?s)did not start: .*(AOF manifest|append only file)") as caught:
        local.ensure(local_url)
    assert caught.value.address == paths.socket_path(local_url)
    assert str(directory_of(local_url)) in str(caught.value)
    assert not (directory_of(local_url) / SOCKET).exists()


def test_a_starter_that_was_suspended_holds_up_nobody_for_ever(local_url: str) -> None:
    with (directory_of(local_url) / "start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        local.ensure(local_url, timeout=2)
    assert ask(local_url, "PING") == "PONG"


def test_a_server_that_takes_too_long(local_url: str) -> None:
    with pytest.raises(ServerError, match="does not answer yet"):
        local.ensure(local_url, timeout=0.0)
    assert ask(local_url, "PING") == "PONG"
