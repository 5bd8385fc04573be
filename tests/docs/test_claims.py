"""Claims in the pages that a program can check: which commands the server has to allow, and where things are."""

from __future__ import annotations

import re
import threading

import pytest
import redis

import holdfast
from docs.pages import ROOT
from holdfast import guard
from holdfast._servers import private


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
    lock, other = holdfast.FairLock(url, "claims", ttl=3), holdfast.Lock(url, "claims", ttl=3, wait=10)
    taken = threading.Event()
    with lock as lease:
        waiter = threading.Thread(target=lambda: taken.set() if other.acquire() else None)
        waiter.start()
        with pytest.raises(holdfast.LockTimeout):
            holdfast.FairLock(url, "claims", wait=0.3).__enter__()
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
