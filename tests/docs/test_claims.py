"""Claims in the pages that a program can check: which commands the server has to allow, and how figures are judged."""

from __future__ import annotations

import re
import sys
import threading

import pytest
import redis

import holdfast
from docs.pages import ROOT
from holdfast import guard
from holdfast._servers import private

sys.path.insert(0, str(ROOT))

from benchmarks import crowd, report, wiretap


def test_the_commands_named_are_all_that_is_needed() -> None:
    text = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"commands needed are\n?(.+?);", text, re.DOTALL)
    commands = [f"+{word.strip().lower().replace(' ', '|')}" for word in re.split(r",|\band\b", " ".join(named.split()))]
    assert 20 < len(commands) < 30
    with private(port=True) as server:
        with redis.Redis.from_url(server.url) as admin:
            admin.execute_command(
                "ACL", "SETUSER", "app", "on", ">s3cret", "~hf:*", "&hf:*", "~page", "~{page}:fence*", *commands
            )
        url = server.url.replace("//", "//app:s3cret@")
        use_everything(url)
        holdfast.close()
        with redis.Redis.from_url(server.url) as admin:
            assert admin.execute_command("ACL", "LOG") == []


def use_everything(url: str) -> None:
    """Take, wait, hand over, time out, renew, ask, guard."""
    lock, other = holdfast.Lock(url, "claims", ttl=3), holdfast.Lock(url, "claims", ttl=3, wait=10)
    taken = threading.Event()
    with lock as lease:
        waiter = threading.Thread(target=lambda: taken.set() if other.acquire() else None)
        waiter.start()
        with pytest.raises(holdfast.LockTimeout):
            holdfast.Lock(url, "claims", wait=0.3).__enter__()
        assert not taken.wait(1.2)
        lease.renew()
        assert lock.locked()
        assert guard.guarded_set(url, "page", "x", lease.fence, ttl=60)
    waiter.join()
    assert taken.is_set()
    other.release()


def test_the_architecture_page_names_every_module() -> None:
    text = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "holdfast"
    for folder in ("", "_core", "_drive", "_wire"):
        for file in (package / folder).glob("*.py"):
            name = file.relative_to(package).as_posix()
            assert file.stem.startswith("__") or f"`{name}`" in text, name


def test_quantiles_are_of_the_nearest_rank() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [report.quantile(values, q) for q in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert report.quantile([7.0], 0.99) == 7


@pytest.mark.parametrize(("relation", "target", "held"), [("≤", 1.4, False), ("≥", 1.4, True), ("=", 1.5, True), ("", 0, None)])
def test_a_target_is_judged(relation: str, target: float, held: bool | None) -> None:
    figure = report.Figure("ratio", 1.5, "", relation, target)
    assert figure.held is held
    assert ("MISSED" in figure.line()) == (held is False)


def test_jain_index() -> None:
    assert crowd.jain([5, 5, 5, 5]) == 1
    assert crowd.jain([20, 0, 0, 0]) == 0.25


def turn(asked: float, queued: float, fence: int) -> crowd.Turn:
    return crowd.Turn(asked, queued, 10.0 + fence, 10.0 + fence, fence)


def test_overtaking_is_found() -> None:
    assert crowd.overtakings([turn(1, 2, 1), turn(3, 4, 2), turn(3.5, 4.5, 3)]) == 0
    # The second one stood in line at 4, the third asked at 5 and was served first.
    assert crowd.overtakings([turn(1, 2, 1), turn(3, 4, 3), turn(5, 6, 2)]) == 1


def test_an_order_that_is_not_of_arrival_is_found_in_the_server_s_record() -> None:
    def seen(name: str, *arguments: str) -> wiretap.Seen:
        return wiretap.Seen(0.0, "lua", name, list(arguments))

    def arrival(token: str) -> wiretap.Seen:
        return seen("ZADD", "hf:{x}:queue", "NX", "1", token)

    def grant(token: str) -> wiretap.Seen:
        return seen("SET", "hf:{x}", token, "PX", "2000")

    fair = [grant("a"), arrival("b"), arrival("c"), grant("b"), grant("c")]
    assert crowd.replay(fair, "x") == (2, 0)
    assert crowd.replay([grant("a"), arrival("b"), arrival("c"), grant("c"), grant("b")], "x") == (2, 1)
    assert crowd.replay([grant("a"), arrival("b"), grant("barging")], "x") == (1, 1)
