"""`holdfast doctor`: exit codes, what it prints for people and for programs, and no secret in either."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import redis

from holdfast.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import NewServer

PASSWORD = "canary-Pa55"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


def test_exit_codes_and_text(
    new_server: NewServer, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_server("--appendfsync", "always", port=True, appendonly=True, password=PASSWORD)
    file = tmp_path / "urls"
    file.touch(0o600)
    file.write_text(f"\n{server.url}\n")
    assert main(["doctor", "--url-file", str(file)]) == 0
    out, err = capfd.readouterr()
    assert out.startswith(f"127.0.0.1:{server.port}\n  ok       version: ")
    assert (err, PASSWORD in out) == ("", False)
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    assert main(["doctor", "-q"]) == 0
    assert capfd.readouterr() == ("", "")

    with redis.Redis.from_url(server.url) as client:
        client.config_set("timeout", 5)
        assert main(["doctor", "-q"]) == 1
        assert capfd.readouterr().out.splitlines()[1] == "  warning  connections: timeout is 5 s"
        client.config_set("timeout", 0)
        client.set("hf:{\x1b[31m}", "x")
        assert main(["doctor", "-q"]) == 1
        assert "\x1b" not in capfd.readouterr().out
        client.flushall()
    server.kill()
    assert main(["doctor", "--url", server.url, "--json"]) == 2
    out, err = capfd.readouterr()
    assert PASSWORD not in out + err
    assert "can see the password in --url" in err
    (one,) = json.loads(out)["servers"]
    assert one["findings"][0].keys() == {"level", "topic", "what", "why", "remedy"}
    assert (json.loads(out)["level"], json.loads(out)["exit_code"]) == ("problem", 2)


def test_several_servers_that_do_not_vote_yet(new_server: NewServer, capfd: pytest.CaptureFixture[str]) -> None:
    """With these, `holdfast run` ends with 69, so the doctor says so too, and how to go on."""
    urls = [word for _ in range(3) for word in ("--url", new_server("--appendfsync", "always", appendonly=True).url)]

    def run() -> int:
        command = [sys.executable, "-m", "holdfast", "run", "-n", *urls, "backup", "--", "true"]
        return subprocess.run(command, check=False, timeout=60).returncode

    assert run() == 69
    capfd.readouterr()
    assert main(["doctor", "-q", *urls]) == 2
    out = capfd.readouterr().out
    assert out.startswith("together\n  problem  votes: 0 of 3 servers vote, 2 are needed\n")
    assert "-> holdfast nodes says more; declare new servers once, by holdfast nodes init" in out
    assert main(["nodes", "init", *urls, "--force"]) == 0
    capfd.readouterr()
    assert main(["doctor", "-q", *urls]) == 0
    assert capfd.readouterr() == ("", "")
    assert run() == 0


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--url", f"redis://u:{PASSWORD}@h/x"),
        ("--url", "redis://h", "--ttl", "0"),
        ("--url", "redis://h", "--replicas", "-1"),
        ("--url-file", "/absent"),
    ],
)
def test_bad_usage(capfd: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    try:
        code = main(["doctor", *options])
    except SystemExit as ended:
        code = int(str(ended.code))
    out, err = capfd.readouterr()
    assert (code, out) == (64, "")
    assert err.startswith("holdfast: ")
    assert PASSWORD not in err
