"""Canary secrets, a password and the tokens of all locks taken, appear in no output, log, repr, exception or environment."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
import holdfast.aio
from holdfast._net.url import from_url
from holdfast._runtime.process import current
from support.witness import lease_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import NewServer

PASSWORD = "canary-Pa55-w0rd"
TOKEN = re.compile(r"[0-9a-f]{12}\.[0-9a-f]{32}")


def leaks(text: str) -> list[str]:
    return [PASSWORD] * text.count(PASSWORD) + TOKEN.findall(text)


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return all texts that anybody could read. `everything` adds the logs of a test."""
    caplog.set_level(logging.DEBUG)
    return []


def provoke(seen: list[str], action: Callable[[], object]) -> None:
    """Do something and keep all that it says, the whole chain of exceptions included."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            seen.append(repr(action()))
        except Exception as error:
            seen.extend((repr(error), str(error), str(vars(error)), "".join(traceback.format_exception(error))))
            if isinstance(error, holdfast.HoldfastError):
                seen.append(repr(vars(pickle.loads(pickle.dumps(error)))))  # noqa: S301
    seen.extend(str(warning.message) for warning in warned)


def test_the_library(new_server: NewServer, seen: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Locks of both APIs, used well and badly."""
    server = new_server(port=True, password=PASSWORD)
    url = server.url
    client = redis.Redis.from_url(url)
    assert PASSWORD in url
    with holdfast.Lock(url, "a", label="me") as lease:
        seen.extend(map(repr, (lease, lease_record(lease).spec, from_url(url), current())))
        held = client.get("hf:{a}")
        assert TOKEN.fullmatch(held.decode() if isinstance(held, bytes) else "")
        provoke(seen, lambda: holdfast.Lock(url, "a", wait=0).__enter__())
        provoke(seen, lambda: holdfast.Lock(url, "a", wait=0.05).__enter__())
        client.set("hf:{a}", "somebody else")
        provoke(seen, lease.release)
    provoke(seen, lambda: holdfast.Lock(url, "a"))
    provoke(seen, lambda: pickle.dumps(holdfast.Lock(url, "a")))
    provoke(seen, lambda: holdfast.Lock(url.replace(PASSWORD, PASSWORD + "x"), "a").acquire())
    provoke(seen, lambda: holdfast.Lock(url.replace("@", "@@"), "a"))
    provoke(seen, lambda: holdfast.Lock(url + "?nonsense=" + PASSWORD, "a"))
    provoke(seen, lambda: holdfast.Lock(url.replace("redis:", "http:"), "a"))
    provoke(seen, lambda: holdfast.Lock(url.replace(f":{server.port}", ":99999"), "a"))
    client.lpush("hf:{list}", "x")
    provoke(seen, holdfast.Lock(url, "list").acquire)

    async def main() -> None:
        async with holdfast.aio.Lock(url, "b") as lease:
            seen.append(repr(lease))
            try:
                await holdfast.aio.Lock(url, "b", wait=0).__aenter__()
            except holdfast.LockTimeout as error:
                seen.extend((repr(error), str(vars(error))))

    asyncio.run(main())
    client.delete("hf:{list}")
    lock = holdfast.Lock(url, "c")
    lock.acquire()
    client.close()
    server.kill()
    provoke(seen, lock.release)
    provoke(seen, holdfast.Lock(url, "d").acquire)
    everything = "\n".join([*seen, caplog.text])
    assert "holds it already" in everything
    assert "unreachable" in everything or "no server" in everything
    assert leaks(everything) == []


@pytest.mark.turns("recipes")
def test_the_command(new_server: NewServer, tmp_path: Path) -> None:
    """`holdfast run`: its output, its summary, the command's environment, and what `ps` shows of them all."""
    server = new_server(port=True, password=PASSWORD)
    environment = {**os.environ, "HOLDFAST_URL": server.url, "REDIS_URL": server.url}
    holdfast_command = str(Path(sys.executable).with_name("holdfast"))
    spy = tmp_path / "spy"
    spy.write_text(
        "#!/bin/sh\nenv\nfor pid in /proc/[0-9]*; do\n"
        '  test -r $pid/cmdline && tr "\\0" " " < $pid/cmdline && echo\ndone 2>/dev/null\nls -l /proc/self/fd\n'
    )
    spy.chmod(0o755)
    outputs = []
    for options in (["-v", "--json"], ["-n"], ["--url", "redis://127.0.0.1:1/0"]):
        command = [holdfast_command, "run", *options, "job", "--", str(spy)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
        outputs.append(done.stdout + done.stderr)
    wrong = {**environment, "HOLDFAST_URL": server.url.replace(PASSWORD, PASSWORD + "-old")}
    done = subprocess.run(
        [holdfast_command, "run", "-v", "job", "--", str(spy)],
        env=wrong,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 69
    outputs.append(done.stdout + done.stderr)
    everything = "\n".join(outputs)
    assert "HOLDFAST_FENCE=" in everything
    assert "HOLDFAST_NAME=job" in everything
    assert leaks(everything) == []
