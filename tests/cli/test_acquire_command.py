"""`holdfast acquire` and `holdfast release`: a lock over the steps of a job, held by a ticket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from cli.commands import PROGRAM, Holdfast, wait_until
from holdfast._api.lease import core_of
from holdfast._runtime.process import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import NewServer
    from support.servers import PrivateServer


def call(hf: Holdfast, *words: str, ticket: str = "", stdin: str = "") -> tuple[int, str, str]:
    process = hf.popen([*PROGRAM, *words], env={"HOLDFAST_TICKET": ticket} if ticket else None)
    out, err = process.communicate(stdin, timeout=30)
    return process.returncode, out, err


def test_steps_of_a_job(server: PrivateServer, hf: Holdfast, name: str) -> None:
    code, ticket, err = call(hf, "acquire", name, "--ttl", "1h", "--label", "deploy 7")
    assert (code, err, ticket.count("\n")) == (0, "", 1)
    seen = holdfast.Inspector(server.url).show(name)
    assert seen.holder is not None
    assert (seen.holder.host, seen.holder.label) == (socket.gethostname(), "deploy 7"), "though that process has ended"
    assert seen.holder.remaining is not None
    assert 3500 < seen.holder.remaining <= 3600
    code, _, err = call(hf, "acquire", name, "--ttl", "1h", "-n")
    assert (code, "deploy 7" in err) == (75, True)
    code, _, err = call(hf, "release", name)
    assert (code, "no ticket" in err) == (64, True)
    assert call(hf, "release", "another", ticket=ticket)[0] == 64
    assert call(hf, "release", name, ticket="nonsense")[0] == 64
    assert call(hf, "release", name, ticket=ticket) == (0, "", "")
    assert not holdfast.Inspector(server.url).show(name).held
    code, _, err = call(hf, "release", name, ticket=ticket)
    assert (code, "redeemed before" in err) == (76, True)


def test_a_ticket_in_a_file_is_nobody_elses(server: PrivateServer, hf: Holdfast, name: str, tmp_path: Path) -> None:
    file = tmp_path / "ticket"
    file.touch(mode=0o644)
    assert call(hf, "acquire", name, "--ttl", "60", "--ticket-file", str(file)) == (0, "", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert call(hf, "release", name, "--ticket-file", "-", stdin=file.read_text()) == (0, "", "")
    assert call(hf, "release", name, "--ticket-file", str(file))[0] == 76
    assert file.exists()
    assert call(hf, "acquire", name, "--ttl", "60", "--ticket-file", str(file))[0] == 0
    assert call(hf, "release", name, "--ticket-file", str(file))[0] == 0
    assert not file.exists()
    assert call(hf, "release", name, "--ticket-file", str(file))[0] == 64
    assert call(hf, "acquire", name, "--ttl", "60", "--ticket-file", "/nowhere/ticket")[0] == 64
    assert not holdfast.Inspector(server.url).show(name).held


@pytest.mark.parametrize("why", ["expired", "broken"])
def test_what_was_lost_meanwhile(server: PrivateServer, hf: Holdfast, name: str, why: str) -> None:
    _, ticket, _ = call(hf, "acquire", name, "--ttl", "60" if why == "broken" else "0.2")
    if why == "broken":
        assert holdfast.Inspector(server.url).break_lock(name) is not None
    deadline = time.monotonic() + 10
    while holdfast.Inspector(server.url).show(name).held:
        assert time.monotonic() < deadline
    assert call(hf, "release", name, ticket=ticket)[0] == 76


def test_where_nobody_would_have_the_ticket_nothing_is_taken(server: PrivateServer, hf: Holdfast, name: str) -> None:
    process = hf.popen(["sh", "-c", '"$@" >&-', "-", *PROGRAM, "acquire", name, "--ttl", "1h"])
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "stdout is closed" in err) == (64, True)
    assert not holdfast.Inspector(server.url).show(name).held, "once the ticket went to the server, in the place of stdout"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_ended_while_it_waits_stands_in_no_line(
    server: PrivateServer, client: redis.Redis, hf: Holdfast, name: str, number: signal.Signals
) -> None:
    with holdfast.FairLock(server.url, name):
        process = hf.popen([*PROGRAM, "acquire", name, "--ttl", "1h"])
        wait_until(lambda: client.zcard(f"hf:{{{name}}}:queue"))
        process.send_signal(number)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 128 + number
        assert not client.zcard(f"hf:{{{name}}}:queue")


def test_a_pipe_is_neither_changed_nor_removed(hf: Holdfast, name: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    pipe.chmod(0o644)
    taking = hf.popen([*PROGRAM, "acquire", name, "--ttl", "1h", "--ticket-file", str(pipe)])
    assert call(hf, "release", name, "--ticket-file", str(pipe)) == (0, "", "")
    assert taking.wait(30) == 0
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o644


def test_a_ticket_that_cannot_be_written_is_given_back(server: PrivateServer, hf: Holdfast, name: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    process = hf.popen([*PROGRAM, "acquire", name, "--ttl", "1h"], stdout=full)
    os.close(full)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "cannot be written" in err) == (71, True)
    assert not holdfast.Inspector(server.url).show(name).held


def test_a_ticket_that_cannot_be_written_while_the_server_is_away(
    new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str
) -> None:
    server = new_server()
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x")
    os.set_blocking(write, True)
    process = hf_on(server.url).popen([*PROGRAM, "acquire", name, "--ttl", "1h"], stdout=write)
    with redis.Redis.from_url(server.url) as client:
        wait_until(lambda: client.pttl(f"hf:{{{name}}}") > 3_500_000)
    server.kill()  # while the pipe is full
    os.close(write)
    os.close(read)
    _, err = process.communicate(timeout=60)
    server.restart()
    assert (process.returncode, err.count("\n")) == (71, 2)
    assert "acquire: the ticket cannot be written: Broken pipe\n" in err
    assert "acquire: the lock could not be released; its lease ends after --ttl: " in err


@pytest.mark.parametrize("path", ["/dev/fd/99999999999999999999", "/proc/self/fd/2147483648"])
def test_a_descriptor_that_cannot_be(hf: Holdfast, name: str, path: str) -> None:
    code, out, err = call(hf, "acquire", name, "--ttl", "60", "--ticket-file", path)
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert err.startswith(f"holdfast: acquire: {path}: ")


def tickets_beside(file: Path) -> list[Path]:
    return [path for path in file.parent.iterdir() if path.name.startswith(f".{file.name}.")]


def test_a_ticket_stays_until_another_one_takes_its_place(
    server: PrivateServer, hf: Holdfast, name: str, tmp_path: Path
) -> None:
    """A second run into the same file used to empty it, while the lock of the first one was held for another hour."""
    file = tmp_path / "ticket"
    assert call(hf, "acquire", name, "--ttl", "1h", "--ticket-file", str(file)) == (0, "", "")
    before = file.read_text()
    assert call(hf, "acquire", name, "--ttl", "1h", "-n", "--ticket-file", str(file))[0] == 75
    assert (file.read_text(), tickets_beside(file)) == (before, [])
    waiting = hf.popen([*PROGRAM, "acquire", name, "--ttl", "1h", "--ticket-file", str(file)])
    wait_until(lambda: any(path.stat().st_size for path in tickets_beside(file)))
    (beside,) = tickets_beside(file)
    assert beside.read_text().startswith("hft1."), "on disk before the server is asked: it can be released, whatever ends this"
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert file.read_text() == before
    assert call(hf, "release", name, "--ticket-file", "-", stdin=before)[0] == 0
    assert waiting.wait(30) == 0
    assert tickets_beside(file) == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert call(hf, "release", name, "--ticket-file", str(file)) == (0, "", "")


def test_who_is_killed_after_the_grant_has_left_its_ticket(server: PrivateServer, name: str, tmp_path: Path) -> None:
    """The text that was written before the request is the ticket; the text after it also contains the end of the ticket."""
    import holdfast._api.ticket as texts

    with holdfast.FairLock(server.url, name) as lease:
        token = current().token()
        early = texts.write(core_of(lease).held_lease.spec, token, texts.UNKNOWN_END)
        late = texts.issue(core_of(lease), 60, token)
    assert len(early.reveal()) == len(late.reveal()), "so it is written over in place"
    with holdfast.redeem(server.url, early) as heir:
        assert heir.fence > lease.fence


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_beside_the_file_by_one_that_is_ended(
    server: PrivateServer, hf: Holdfast, name: str, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "ticket"
    with holdfast.FairLock(server.url, name):
        process = hf.popen([*PROGRAM, "acquire", name, "--ttl", "1h", "--ticket-file", str(file)])
        wait_until(lambda: any(path.stat().st_size for path in tickets_beside(file)))
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed(server: PrivateServer, hf: Holdfast, name: str, tmp_path: Path) -> None:
    """In a directory that others can write to, a link would have had another file emptied and the ticket read."""
    precious, link = tmp_path / "precious", tmp_path / "ticket"
    precious.write_text("data")
    link.symlink_to(precious)
    code, _, err = call(hf, "acquire", name, "--ttl", "60", "--ticket-file", str(link))
    assert (code, "is a symbolic link" in err) == (64, True)
    assert precious.read_text() == "data"
    assert not holdfast.Inspector(server.url).show(name).held
    code, _, _ = call(hf, "acquire", name, "--ttl", "60", "--ticket-file", str(tmp_path))
    assert code == 64


def test_the_ticket_of_a_planted_file_is_not_its_owners(hf: Holdfast, name: str, tmp_path: Path) -> None:
    """A process that has opened a file there reads the text that is written into it, whatever its mode becomes."""
    file = tmp_path / "ticket"
    with file.open("w+") as planted:
        file.chmod(0o666)
        assert call(hf, "acquire", name, "--ttl", "60", "--ticket-file", str(file)) == (0, "", "")
        assert planted.read() == ""
    assert call(hf, "release", name, "--ticket-file", str(file)) == (0, "", "")


@pytest.mark.turns
@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_by_name(hf: Holdfast, name: str, tmp_path: Path, path: str) -> None:
    code, ticket, err = call(hf, "acquire", name, "--ttl", "60", "--ticket-file", path)
    assert (code, err) == (0, "")
    assert call(hf, "release", name, ticket=ticket) == (0, "", "")
    with (tmp_path / "out").open("w+") as out:
        process = hf.popen([*PROGRAM, "acquire", name, "--ttl", "60", "--ticket-file", path], stdout=out)
        assert process.wait(30) == 0
        out.seek(0)
        assert call(hf, "release", name, ticket=out.read()) == (0, "", "")


def test_a_lock_under_another_prefix(hf: Holdfast, name: str) -> None:
    _, ticket, _ = call(hf, "acquire", name, "--ttl", "60", "--prefix", "app:")
    code, _, err = call(hf, "release", name, ticket=ticket)
    assert (code, "prefix" in err) == (64, True)
    assert call(hf, "release", name, "--prefix", "app:", ticket=ticket) == (0, "", "")
