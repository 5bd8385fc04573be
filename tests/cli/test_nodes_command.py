"""`holdfast nodes`: the table of servers that hold locks together, and declaring new ones, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.cli import main

if TYPE_CHECKING:
    from conftest import NewServer


def test_from_new_servers_to_one_that_forgets(new_server: NewServer, capfd: pytest.CaptureFixture[str]) -> None:
    servers = [new_server(port=True) for _ in range(3)]
    urls = [server.url for server in servers]
    options = [word for url in urls for word in ("--url", url)]

    def nodes(*more: str) -> tuple[int, str]:
        code = main(["nodes", *more, *options])
        out, err = capfd.readouterr()
        return code, out + err

    code, text = nodes()
    assert code == 2
    assert text.count("Only if it is new: holdfast nodes init") == 3
    code, text = nodes("init")
    assert (code, text.count(": declared new")) == (0, 3)
    code, text = nodes("init")
    assert (code, text.count(": ready already")) == (0, 3)
    with holdfast.Redlock(urls, "held", answer_within=2):
        code, text = nodes()
    assert code == 0
    assert [line.split()[:2] for line in text.splitlines()[1:4]] == [[url[8:-2], "yes"] for url in urls]
    held = [line.split()[-1] for line in text.splitlines()[1:4]]
    assert held.count("1") >= 2, "a majority has it; the last may still be asked"
    assert text.endswith("3 of 3 vote, 2 are needed: locks can be acquired, and 1 more may fail\n")
    assert nodes("--max-ttl", "30")[0] == 2
    assert nodes("init", "--max-ttl", "30")[0] == 2

    servers[2].restart()
    code, text = nodes("init")
    assert code == 2, "a server that has forgotten is not declared new by mistake"
    assert "other servers vote already, so this server may have lost the locks that it granted" in text
    with holdfast.Redlock(urls, "held", wait=0, answer_within=2):  # both others have to answer
        pass
    code, text = nodes("init")
    assert code == 2, "nor is it when somebody has asked it since"
    assert "may have lost the locks that it granted" in text
    servers[1].kill()
    code, text = nodes("--json")
    report: Any = json.loads(text)
    assert (code, report["votes"], report["majority"]) == (2, 1, 2)
    assert [(one["up"], one["votes"]) for one in report["servers"]] == [(True, True), (False, False), (True, False)]
    servers[1].restart()
    holdfast.close()  # in a process of its own it would have no connections from before
    code, text = nodes("init", "--force")
    assert (code, text.count(": declared new")) == (0, 3)
    for server in servers:
        server.kill()  # the markers are to stay for ever, which the fixture would not like


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--url", "redis://a", "--url", "redis://b"),
        ("--url", "redis://a", "--url", "redis://b", "--url", "redis://a"),
        ("--force", "--url", "redis://a"),
        ("restart",),
    ],
)
def test_bad_usage(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    for name in ("HOLDFAST_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    try:
        code = main(["nodes", *options])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert (code, capfd.readouterr().out) == (64, "")
