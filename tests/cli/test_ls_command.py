"""`holdfast ls` and `holdfast show`: tables, JSON lines, and what the terminal is not to see."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from cli.commands import PROGRAM, Holdfast
from holdfast._runtime.process import current
from holdfast.cli import main
from support.witness import in_thread, until

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from conftest import NewServer
from support.servers import PrivateServer


@pytest.fixture
def ask(server: PrivateServer, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command on the common server: exit code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main([*words, "--url", server.url])
        except SystemExit as ended:
            code = int(str(ended.code))
        return (code, *capfd.readouterr())

    return run


def known(client: redis.Redis, prefix: str = "hf:") -> bool:
    """This process has said who it is, which it does a moment after its first lock with a prefix."""
    return bool(client.exists(f"{prefix}proc:{current().id}"))


def take_and_leave(lock: holdfast.FairLock) -> None:
    with lock:
        pass


def test_a_table_for_people_and_json_for_programs(
    server: PrivateServer, client: redis.Redis, ask: Callable[..., tuple[int, str, str]], name: str
) -> None:
    prefix = f"{name}:"
    with ExitStack() as stack:
        lock = stack.enter_context(holdfast.FairLock(server.url, "report\x1b[31m", prefix=prefix))
        stack.enter_context(holdfast.Lock(server.url, "other", prefix=prefix))
        waits = in_thread(take_and_leave, holdfast.FairLock(server.url, "report\x1b[31m", prefix=prefix, wait=30))
        until(lambda: client.zcard(prefix + "{report%1B[31m}:queue") == 1)
        until(lambda: known(client, prefix))
        code, out, err = ask("ls", "--prefix", prefix)
        rows = {line.split()[0]: line for line in out.splitlines()}
        me = f"{socket.gethostname()}:{os.getpid()}"
        assert (code, err) == (0, "")
        assert rows.keys() == {"name", "report\\x1b[31m", "other"}
        assert rows["report\\x1b[31m"].split()[1:3] == ["lock", me]
        assert rows["report\\x1b[31m"].split()[-2:] == ["1", str(lock.fence + 32)]
        _, out, _ = ask("ls", "--prefix", prefix, "--json", "rep*")
        (line,) = map(json.loads, out.splitlines())
        assert (line["name"], line["held"], line["waiters"], line["holders"][0]["pid"]) == (
            "report\x1b[31m",
            True,
            1,
            os.getpid(),
        )
        code, out, _ = ask("show", "--prefix", prefix, "report\x1b[31m")
        assert code == 0
        assert out.splitlines()[0] == "report\\x1b[31m: lock"
        assert f"  held by {me}" in out
        assert f"     1. {me}" in out
        shown: Any = json.loads(ask("show", "--prefix", prefix, "report\x1b[31m", "--json")[1])
        assert shown["line"][0]["pid"] == os.getpid()
        raw = client.get(prefix + "{report%1B[31m}")
        assert raw is not None
        secret = raw.decode().partition(".")[2]  # type: ignore[union-attr]
        for words in (("ls",), ("ls", "--json"), ("show", "report\x1b[31m"), ("show", "report\x1b[31m", "--json")):
            assert secret not in "".join(map(str, ask(*words, "--prefix", prefix)))
    waits.result(20)
    assert ask("ls", "--prefix", prefix) == (0, "", "holdfast: no locks are held\n")
    assert ask("ls", "--prefix", prefix, "--json") == (0, "", "")
    assert ask("ls", "--prefix", prefix, "x*")[2] == "holdfast: no locks are held with names that match x*\n"
    assert ask("show", "--prefix", prefix, "other")[1].splitlines()[0] == "other: free"


def test_a_lock_of_another_make_that_never_ends(
    client: redis.Redis, ask: Callable[..., tuple[int, str, str]], name: str
) -> None:
    client.set(f"{name}:{{peer}}", "secret")
    _, out, _ = ask("ls", "--prefix", f"{name}:")
    assert out.splitlines()[1].split() == [
        "peer",
        "foreign",
        *["a", "client", "of", "another", "library"],
        "-",
        "never",
        "ends",
        "-",
        "-",
    ]
    _, out, _ = ask("show", "--prefix", f"{name}:", "peer")
    assert out.splitlines() == [
        "peer: held by a client of another library",
        "  held by a client of another library, forever: its key has no expiry",
    ]
    client.delete(f"{name}:{{peer}}")


def test_bad_usage_and_no_server(ask: Callable[..., tuple[int, str, str]], new_server: NewServer) -> None:
    assert ask("ls", "--prefix", "{")[0] == 64
    assert ask("show", "")[0] == 64
    assert ask("show")[0] == 64
    server = new_server(port=True)
    url = server.url
    server.kill()
    for words in (["ls"], ["show", "x"]):
        assert main([*words, "--url", url]) == 69


def test_who_has_seen_enough_closes_the_pipe(client: redis.Redis, hf: Holdfast, name: str) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(3000):
        pipe.set(f"{name}:{{{number}}}", "0123456789ab.0123", px=60_000)
    pipe.execute()
    process = hf.popen([*PROGRAM, "ls", "--prefix", f"{name}:"], stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().split()[:3] == ["name", "kind", "holder"]
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(20)) == ("", 0)
    client.delete(*client.scan_iter(f"{name}:*", count=5000))


def test_a_table_at_its_reader_s_pace_and_in_its_letters(client: redis.Redis, hf: Holdfast, name: str) -> None:
    long = "l" * 300
    for lock in ("käse", long):
        client.set(f"{name}:{{{lock}}}", "0123456789ab.0123", px=60_000)
    process = hf.popen([*PROGRAM, "ls", "--prefix", f"{name}:"], env={"PYTHONIOENCODING": "ascii"}, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    short = next(line for line in out.splitlines() if line.startswith("k\\xe4se "))
    assert len(short) < 200, "a long name is no reason for long lines elsewhere"
    client.delete(f"{name}:{{käse}}", f"{name}:{{{long}}}")


@pytest.mark.parametrize(("where", "code", "words"), [(">&-", 0, ""), (">/dev/full", 71, "No space left"), ("| true", 141, "")])
def test_stdout_that_cannot_be_written(hf: Holdfast, name: str, where: str, code: int, words: str) -> None:
    process = hf.popen(
        ["bash", "-c", f'"$@" {where}; exit ${{PIPESTATUS[0]}}', "-", *PROGRAM, "show", name], stderr=subprocess.PIPE
    )
    _, err = process.communicate(timeout=20)
    assert process.returncode == code or (where == "| true" and process.returncode == 0)
    assert (words in err, "Traceback" in err, "Exception ignored" in err) == (True, False, False)
    assert err.count("\n") == (1 if words else 0)


def test_a_minority_of_several_servers_does_not_say_that_it_is_free(
    new_server: NewServer, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    servers = [new_server(port=True) for _ in range(3)]
    where = [word for server in servers for word in ("--url", server.url)]
    assert main(["show", name, *where]) == 0
    assert main(["break", name, "--yes", *where]) == 0
    for server in servers[:2]:
        server.kill()
    capfd.readouterr()
    assert main(["show", name, *where]) == 69
    assert "unknown: only 1 of 3 servers answered" in capfd.readouterr().out
    assert main(["break", name, "--yes", *where]) == 69
    assert main(["ls", *where]) == 69


# wait and break


def test_waiting_until_it_is_free(server: PrivateServer, ask: Callable[..., tuple[int, str, str]], name: str) -> None:
    assert ask("wait", name) == (0, "", "")
    with holdfast.Lock(server.url, name):
        assert ask("wait", name, "--wait", "0.1") == (75, "", f"holdfast: wait: lock {name!r} is still held after 0.1 s\n")
        assert ask("wait", name, "--wait", "0.1", "-q") == (75, "", "")
    assert ask("wait", name, "--wait", "-1")[0] == 64


def test_a_lock_of_acquire_is_broken(hf: Holdfast, ask: Callable[..., tuple[int, str, str]], name: str) -> None:
    """No process of its holder runs that could be notified, or that renews the lease."""
    assert hf.popen([*PROGRAM, "acquire", name, "--ttl", "60"]).wait(20) == 0
    code, out, _ = ask("break", name, "--yes")
    assert (code, out.startswith(f"{name}: revoked from {socket.gethostname()}:")) == (0, True)
    said = (
        " (acquire), which was not reached, and notices the loss when it renews or releases the lock; the lock is free; fence "
    )
    assert said in out


def test_breaking_without_a_terminal_wants_a_yes(
    server: PrivateServer, client: redis.Redis, ask: Callable[..., tuple[int, str, str]], name: str
) -> None:
    lease = holdfast.Lock(server.url, name, ttl=60, renew=False).__enter__()
    until(lambda: known(client))
    code, _, err = ask("break", name)
    assert (code, err) == (
        64,
        "holdfast: there is no terminal to ask for confirmation: pass --yes (see holdfast break --help)\n",
    )
    code, out, _ = ask("break", name, "--yes")
    assert code == 0
    assert out.startswith(f"{name}: revoked from {socket.gethostname()}:{os.getpid()}, which was ")
    assert int(out.rpartition(" ")[2]) > lease.fence
    assert ask("break", name, "--yes") == (0, "", f"holdfast: {name}: nobody holds it\n")
    assert json.loads(ask("break", name, "--yes", "--json")[1]) == {"name": name, "broken": False, "holder": None}
    with pytest.raises(holdfast.LeaseLost):
        lease.release()


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1)])
def test_at_a_terminal_it_asks(server: PrivateServer, hf: Holdfast, name: str, answer: bytes, code: int) -> None:
    lock = holdfast.Lock(server.url, name, ttl=60, renew=False)
    lock.acquire()
    mine, theirs = os.openpty()
    process = hf.popen([*PROGRAM, "break", name], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while not said.endswith(b"[y/N] "):
        said += os.read(mine, 1000)
    os.write(mine, answer)
    assert process.wait(20) == code
    os.close(mine)
    assert f"{name}: lock".encode() in said
    assert holdfast.Inspector(server.url).show(name).held == (code == 1)
    with contextlib.nullcontext() if code else pytest.raises(holdfast.LeaseLost):
        lock.release()


def test_who_changes_while_it_asks_keeps_it(server: PrivateServer, hf: Holdfast, name: str) -> None:
    lock = holdfast.Lock(server.url, name)
    lock.acquire()
    mine, theirs = os.openpty()
    process = hf.popen([*PROGRAM, "break", name], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    assert process.wait(20) == 64, "its question would be lost: stderr is no terminal"
    process = hf.popen([*PROGRAM, "break", name], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while not said.endswith(b"[y/N] "):
        said += os.read(mine, 1000)
    lock.release()
    with lock:
        os.write(mine, b"y\n")
        assert process.wait(20) == 75
    said = b""
    while b"another client holds the lock now" not in said:  # behind the echo of the answer
        said += os.read(mine, 1000)
    os.close(mine)


def test_who_waits_for_each_other(server: PrivateServer, ask: Callable[..., tuple[int, str, str]], name: str) -> None:
    assert ask("ls", "--deadlocks") == (0, "", "holdfast: no deadlocks\n")
    a, b = (holdfast.FairLock(server.url, f"{name}-{which}", wait=5) for which in "ab")
    both = threading.Barrier(2)

    def cross(first: holdfast.FairLock, second: str) -> None:
        with first, contextlib.suppress(holdfast.LockTimeout):
            both.wait(20)
            with holdfast.FairLock(server.url, second, wait=3):
                pass

    waits = [in_thread(cross, a, f"{name}-b"), in_thread(cross, b, f"{name}-a")]
    until(lambda: ask("ls", "--deadlocks")[0] == 1)
    code, out, _ = ask("ls", "--deadlocks")
    assert (code, out.count(" and waits for ")) == (1, 2)
    found = json.loads(ask("ls", "--deadlocks", "--json")[1])
    assert {waiter["lock"] for waiter in found["waiters"]} == {f"hf:{{{name}-{which}}}" for which in "ab"}
    for wait in waits:
        wait.result(20)
