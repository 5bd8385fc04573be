"""The JSON answers of subcommands, by value. Other files test the JSON of the subcommands in `ELSEWHERE`."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from support.servers import PrivateServer

Ask = Callable[..., tuple[int, Any]]

ELSEWHERE = {
    "bench": "test_bench_command.py", "demo": "test_demo.py", "doctor": "test_doctor_command.py", "elect": "test_elect.py",
    "jobs": "test_schedule_command.py", "ls": "test_ls_command.py", "nodes": "test_nodes_command.py", "run": "test_run.py",
    "server": "test_server_command.py", "show": "test_ls_command.py", "watch": "test_watch_command.py",
}  # fmt: skip
"""Subcommands whose JSON another file tests."""


@pytest.fixture
def ask(server: PrivateServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Runs a subcommand with --json on the common server: exit code, and its answer; stderr stays empty."""
    monkeypatch.setenv("HOLDFAST_URL", server.url)

    def run(*words: str) -> tuple[int, Any]:
        code = main([*words, "--json"])
        out, _ = capfd.readouterr()
        return code, json.loads(out)

    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield run
    for number, handler in before.items():  # `acquire` sets its own
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def test_every_subcommand_with_json_is_tested() -> None:
    folder = Path(__file__).parent
    ours = set(re.findall(r'ask\(\s*"(\w+)"', Path(__file__).read_text()))
    sources = Path(holdfast.__file__).parent / "cli"
    with_json = {
        path.stem.replace("break_lock", "break")
        for path in [*sources.glob("*.py"), sources / "demo" / "__init__.py"]
        if "json.dumps" in path.read_text() and path.stem not in {"lock_view", "supervise", "lab"}
    }
    assert with_json - ours - ELSEWHERE.keys() - {"demo", "__init__"} == set()
    for name, file in ELSEWHERE.items():
        assert "json" in (folder / file).read_text(), name


def test_acl(ask: Ask) -> None:
    code, answer = ask("acl", "--user", "app", "--prefix", "app:")
    assert (code, answer["user"]) == (0, "app")
    assert answer["rule"][:3] == ["reset", "resetchannels", "on"]
    assert {"~app:{*", "~app:proc:*", "&app:inbox:*", "-@all", "+evalsha"} <= set(answer["rule"])


def test_acquire_and_release(
    ask: Ask, server: PrivateServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, answer = ask("acquire", name, "--ttl", "20s")
    ticket = answer.pop("ticket")
    assert 15 < answer.pop("expires_at") - time.time() <= 20.5
    assert (code, answer) == (0, {"name": name, "acquired": True})
    code, busy = ask("acquire", name, "--ttl", "20s", "-n", "-q")
    assert 0 <= busy.pop("waited") < 5
    assert busy.pop("holder")
    assert (code, busy) == (75, {"name": name, "acquired": False})
    monkeypatch.setenv("HOLDFAST_TICKET", ticket)
    assert ask("release", name) == (0, {"name": name, "released": True})
    assert ask("release", name) == (76, {"name": name, "released": False}), "a ticket can be used once"

    file = tmp_path / "ticket"
    code, answer = ask("acquire", name, "--ttl", "20s", "--ticket-file", str(file))
    assert (code, answer["acquired"], answer["ticket_file"], "ticket" in answer) == (0, True, str(file), False)
    assert ask("release", name, "--ticket-file", str(file)) == (0, {"name": name, "released": True})
    assert not holdfast.Lock(server.url, name).locked()


def test_wait(ask: Ask, server: PrivateServer, name: str) -> None:
    code, answer = ask("wait", name)
    assert 0 <= answer.pop("waited") < 5
    assert (code, answer) == (0, {"name": name, "free": True})
    with holdfast.Lock(server.url, name):
        code, answer = ask("wait", name, "--wait", "0.2")
    assert 0.2 <= answer.pop("waited") < 5
    assert (code, answer) == (75, {"name": name, "free": False})


def test_break(ask: Ask, server: PrivateServer, name: str) -> None:
    lock = holdfast.Lock(server.url, name)
    lock.acquire()
    assert lock.lease is not None
    fence = lock.lease.fence
    code, answer = ask("break", name, "--yes")
    assert answer.pop("holder")
    assert answer.pop("fence") > fence
    assert isinstance(answer.pop("told"), bool)
    assert (code, answer) == (0, {"name": name, "broken": True, "handed_over": False})
    with pytest.raises(holdfast.LeaseLost):
        lock.release()


def test_schedule(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text('[schedule]\nname = "night"\n[jobs.night]\ncommand = ["true"]\ncron = "0 3 * * *"\n')
    code, (job,) = ask("schedule", str(file), "--check")
    assert (code, job["job"], job["when"]) == (0, "night", "0 3 * * * UTC")
    assert all(moment > time.time() and moment % 86400 == 3 * 3600 for moment in job["due"])
    assert job["due"] == sorted(set(job["due"]))
