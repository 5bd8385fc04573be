"""`holdfast watch`: lines for programs and logs, the whole screen for people, which is left as it was."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import termios
from typing import TYPE_CHECKING

import pytest

import holdfast
from cli.commands import PROGRAM, Holdfast, line, state, wait_until
from holdfast._runtime.process import current

if TYPE_CHECKING:
    import redis

    from conftest import NewServer
    from support.servers import PrivateServer

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def read_until(terminal: int, wanted: bytes, said: bytes = b"") -> bytes:
    while wanted not in said:
        said += os.read(terminal, 10_000)
    return said


def test_a_line_for_each_change(server: PrivateServer, client: redis.Redis, hf: Holdfast, name: str) -> None:
    lock = holdfast.FairLock(server.url, "x\x1b[31m", prefix=f"{name}:")
    with lock:
        wait_until(lambda: client.exists(f"{name}:proc:{current().id}"))  # this process has said who it is
        process = hf.popen([*PROGRAM, "watch", "--interval", "20ms", "--prefix", f"{name}:"])
        taken = line(process)
    free = line(process)
    assert taken[20:].startswith(f"x\\x1b[31m: taken by {os.uname().nodename}:{os.getpid()}")
    assert free.endswith("x\\x1b[31m: free")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


def test_json_lines(server: PrivateServer, hf: Holdfast, name: str) -> None:
    with holdfast.Lock(server.url, "x", prefix=f"{name}:"):
        process = hf.popen([*PROGRAM, "watch", "--json", "--count", "1", "--prefix", f"{name}:"])
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err, out.count("\n")) == (0, "", 1)
    change = json.loads(out)
    assert (change["change"], change["name"], change["held"]) == ("taken", "x", True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_whole_screen_is_left_as_it_was(server: PrivateServer, hf: Holdfast, name: str, number: signal.Signals) -> None:
    mine, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    with holdfast.Lock(server.url, "x" * 100, prefix=f"{name}:"):
        process = hf.popen([*PROGRAM, "watch", "--interval", "10s", "--prefix", f"{name}:"], stdin=theirs, stdout=theirs)
        said = read_until(mine, b"\x1b[J")
        assert said.startswith(ENTER)
        assert b"1 held, 0 wait" in said
        rows = said.split(b"\x1b[H")[1].split(b"\r\n")
        assert all(len(row.split(b"\x1b[")[0]) <= 60 for row in rows)
        fcntl.ioctl(mine, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 130, 0, 0))
        read_until(mine, b"x" * 100)  # it is drawn anew, long before the next look
        process.send_signal(number)
        read_until(mine, LEAVE)
    assert process.wait(20) == 0
    os.close(mine)
    os.close(theirs)


def test_a_stopped_job_gives_the_screen_back_meanwhile(server: PrivateServer, hf: Holdfast, name: str) -> None:
    mine, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    with holdfast.Lock(server.url, "漢字" * 50, prefix=f"{name}:"):
        argv = [*PROGRAM, "watch", "--interval", "50ms", "--prefix", f"{name}:"]
        process = hf.popen(argv, stdin=theirs, stdout=theirs, process_group=0)
        assert b"\x1b[?7l" in read_until(mine, b"1 held"), "wide characters are cut where the screen ends"
        process.send_signal(signal.SIGTSTP)
        read_until(mine, LEAVE)
        wait_until(lambda: state(process.pid) == "T")
        process.send_signal(signal.SIGCONT)
        read_until(mine, b"1 held", read_until(mine, ENTER).partition(ENTER)[2])
        process.send_signal(signal.SIGINT)
        read_until(mine, LEAVE)
    assert process.wait(20) == 0
    os.close(mine)
    os.close(theirs)


def test_a_server_that_goes_away_is_said_to(new_server: NewServer, hf: Holdfast) -> None:
    server = new_server(port=True)
    process = hf.popen([*PROGRAM, "watch", "--interval", "20ms", "--url", server.url])
    with holdfast.Lock(server.url, "x"):
        assert "x: taken by" in line(process)
        server.kill()
        assert process.stderr is not None
        assert "holdfast: watch: locks '*': failed" in process.stderr.readline()
        server.restart()
    process.kill()
    process = hf.popen([*PROGRAM, "watch", "--url", "redis://127.0.0.1:1"])
    assert process.wait(20) == 69
