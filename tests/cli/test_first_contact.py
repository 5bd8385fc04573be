"""A server that is there and gives no answer in time: commands that are told to wait ask again, as long as they are told."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from cli.commands import PROGRAM, Holdfast, error_line, line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import NewServer
    from support.servers import PrivateServer


@pytest.fixture
def silent(new_server: NewServer) -> Iterator[PrivateServer]:
    """A server that is stopped: connections to it are opened, and nothing is answered."""
    server = new_server()
    os.kill(server.pid, signal.SIGSTOP)
    yield server
    os.kill(server.pid, signal.SIGCONT)


WAIT = {
    "run": ["run", "--ttl", "2", "x", "--", "echo", "done"],
    "run -v": ["run", "-v", "--ttl", "2", "x", "--", "echo", "done"],
    "run -w": ["run", "-w", "1h", "--ttl", "2", "x", "--", "echo", "done"],
    "run --limit": ["run", "--limit", "2", "--ttl", "2", "x", "--", "echo", "done"],
    "run --shared": ["run", "--shared", "--ttl", "2", "x", "--", "echo", "done"],
    "elect with a command": ["elect", "--ttl", "2", "x", "--", "echo", "done"],
    "elect": ["elect", "--ttl", "2", "x"],
    "acquire": ["acquire", "--ttl", "2", "x"],
    "wait": ["wait", "x"],
}


@pytest.mark.turns
@pytest.mark.parametrize("what", WAIT)
def test_it_is_asked_again_until_it_answers(silent: PrivateServer, hf_on: Callable[[str], Holdfast], what: str) -> None:
    process = hf_on(silent.url).popen([*PROGRAM, *WAIT[what]])
    told = error_line(process)
    while "campaigns" in told:
        told = error_line(process)
    assert told.endswith("no answer in time; asking again")
    os.kill(silent.pid, signal.SIGCONT)
    if what == "elect":
        while "leads" not in line(process):
            pass
        process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == (143 if what == "elect" else 0), err
    assert "done" in out or what in {"elect", "acquire", "wait"}
    assert "asking again" not in err, "it is said once"


def test_a_server_with_a_password(new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
    """It is silent while a connection is opened already."""
    server = new_server(port=True, password="canary-7")
    os.kill(server.pid, signal.SIGSTOP)
    process = hf_on(server.url).start("--ttl", "2", name, "--", "echo", "ran")
    told = error_line(process)
    assert "asking again" in told
    assert "canary" not in told
    os.kill(server.pid, signal.SIGCONT)
    assert process.communicate(timeout=20) == ("ran\n", "")
    assert process.returncode == 0


def test_a_majority_of_several(new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
    servers = [new_server() for _ in range(3)]
    hf = hf_on(" ".join(server.url for server in servers))
    nodes = hf.popen([*PROGRAM, "nodes", "init"])
    assert nodes.wait(20) == 0
    for server in servers[1:]:
        os.kill(server.pid, signal.SIGSTOP)
    process = hf.start("--ttl", "2", name, "--", "echo", "ran")
    assert error_line(process).endswith("; asking again")
    for server in servers[1:]:
        os.kill(server.pid, signal.SIGCONT)
    assert process.communicate(timeout=20) == ("ran\n", "")
    assert process.returncode == 0


@pytest.mark.turns
@pytest.mark.parametrize("gone", [1, 2])
def test_several_of_which_some_are_gone(new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str, gone: int) -> None:
    """One that is silent is waited for, unless without it there is no majority either way."""
    servers = [new_server() for _ in range(3)]
    hf = hf_on(" ".join(server.url for server in servers))
    for server in servers[:gone]:
        server.kill()
    os.kill(servers[2].pid, signal.SIGSTOP)
    process = hf.start("--ttl", "2", name, "--", "echo", "ran")
    if gone == 1:
        assert error_line(process).endswith("; asking again")
        servers[1].kill()
    out, err = process.communicate(timeout=20)
    assert (out, process.returncode, err.count("\n")) == ("", 69, 1), err
    assert "asking again" not in err
    os.kill(servers[2].pid, signal.SIGCONT)


@pytest.mark.turns
@pytest.mark.parametrize("options", [["-w", "1s"], ["-q", "-w", "1s"], ["-n"], ["--skip"], ["-v", "-n"]], ids=" ".join)
def test_for_no_longer_than_the_wait(
    silent: PrivateServer, hf_on: Callable[[str], Holdfast], name: str, options: list[str]
) -> None:
    began = time.monotonic()
    done = hf_on(silent.url)("--ttl", "2", *options, name, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (69, "")
    *asking, failed = done.stderr.splitlines()
    assert failed.endswith("no answer in time")
    assert len(asking) <= (options == ["-w", "1s"])
    assert time.monotonic() - began >= (1 if "-w" in options else 0)


def test_a_signal_ends_the_asking(silent: PrivateServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
    process = hf_on(silent.url).start("--ttl", "2", name, "--", "echo", "ran")
    error_line(process)
    process.terminate()
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 143


def test_a_server_that_takes_no_connections(hf_on: Callable[[str], Holdfast], name: str) -> None:
    """Its queue of new connections is full, so that the kernel answers nothing."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        process = hf_on(f"redis://127.0.0.1:{listener.getsockname()[1]}").start("--ttl", "2", name, "--", "echo", "ran")
        assert error_line(process).endswith("timed out; asking again")
        process.terminate()
        assert process.communicate(timeout=20) == ("", "")
