"""Every line of every crontab block of the documentation is run as cron would run it; ``make cron`` has a real cron do so."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from docs.pages import PAGES, CronLine, blocks, name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import PrivateServer

LINES = [(block.page, line) for page in PAGES for block in blocks(page, "crontab") for line in CronLine.of(block)]
BIN = Path(sys.executable).parent
MOUNTS = """
mount -t tmpfs none /etc/cron.d && mount -t tmpfs none /run && mount -t tmpfs none /var/spool/cron &&
mkdir /var/spool/cron/crontabs && mount --bind /dev/null /etc/crontab && mount --bind "$1" /usr/sbin/sendmail &&
cp "$2" /etc/cron.d/documented && chmod 644 /etc/cron.d/documented && exec cron -f
"""
"""In a mount namespace of its own: this cron has one crontab, its mail goes to a script, and the system does not see it."""


class Machine:
    """Provide what the lines of a page name: a server, a directory for ``/srv/app``, and ``holdfast`` in ``/srv/venv/bin``."""

    def __init__(self, server: PrivateServer, directory: Path) -> None:
        self.server, self.directory = server, directory
        self.ran = directory / "ran"
        self.ran.touch()
        script = directory / "report.sh"
        script.write_text(f"#!/bin/sh\necho ran >>{self.ran}\n", encoding="utf-8")
        script.chmod(0o755)

    def adapt(self, text: str) -> str:
        """The same text on this machine."""
        text = text.replace("redis://redis.internal:6379", self.server.url)
        return text.replace("/srv/app", str(self.directory)).replace("/srv/venv/bin", str(BIN))

    def environment(self, line: CronLine) -> dict[str, str]:
        """Return the environment that cron gives to a command."""
        given = {variable: self.adapt(value) for variable, value in line.env.items()}
        return {"HOME": str(self.directory), "SHELL": "/bin/sh", "LOGNAME": "app", "PATH": "/usr/bin:/bin", **given}

    def tick(self, line: CronLine) -> subprocess.Popen[str]:
        """Run it, as cron does when it is due."""
        return subprocess.Popen(
            ["/bin/sh", "-c", self.adapt(line.command)],
            env=self.environment(line),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def lock(self, line: CronLine) -> holdfast.Lock:
        """The one that the line takes."""
        words = line.command.split()
        return holdfast.Lock(self.server.url, words[words.index("--") - 1], ttl=60)


@pytest.fixture
def machine(server: PrivateServer, tmp_path: Path) -> Machine:
    """One for the lines of a page."""
    return Machine(server, tmp_path)


def test_there_are_crontabs() -> None:
    assert {name(page) for page, _ in LINES} >= {"docs/getting-started.md", "docs/cron.md"}


@pytest.mark.turns
@pytest.mark.parametrize("line", [line for _, line in LINES], ids=[name(page) for page, _ in LINES])
def test_a_line_runs_or_is_skipped_at_once(machine: Machine, line: CronLine) -> None:
    """A free lock: it runs, and cron has nothing to mail. A busy one: neither does it wait, nor is there a mail."""
    assert "%" not in line.command, "cron makes a new line of it"
    first = machine.tick(line)
    assert (first.communicate(timeout=30)[0], first.returncode) == ("", 0)
    assert machine.ran.read_text() == "ran\n"
    with machine.lock(line):
        ticks = [machine.tick(line) for _ in range(3)]
        try:
            said = [tick.communicate(timeout=20)[0] for tick in ticks]  # all have ended while the lock is held
        finally:
            for tick in ticks:
                if tick.poll() is None:
                    os.killpg(tick.pid, signal.SIGTERM)
                    tick.communicate()
        assert said == ["", "", ""]
        assert [tick.returncode for tick in ticks] == [0, 0, 0]
    assert machine.ran.read_text() == "ran\n"


@contextlib.contextmanager
def cron(crontab: Path, sendmail: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A cron in the foreground, ended at the end."""
    argv = ["unshare", "--mount", "sh", "-ec", MOUNTS, "sh", str(sendmail), str(crontab)]
    process = subprocess.Popen(argv)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


@pytest.mark.cron
def test_a_real_cron(machine: Machine) -> None:
    """The documented lines, due each minute: those whose lock is held are skipped without a mail, the others run.

    Another line, of the test, has its output mailed: so this cron does mail, when there is something.
    """
    assert os.geteuid() == 0, "cron changes to the user of a line: run it as root"
    assert shutil.which("cron"), "there is no cron here: apt install cron"
    assert Path("/usr/sbin/sendmail").exists(), "there is no sendmail here, without which cron mails nothing"
    mails, skipped = machine.directory / "mails", machine.directory / "skipped"
    mails.mkdir()
    sendmail = machine.directory / "sendmail"
    sendmail.write_text(f"#!/bin/sh\ncat >$(mktemp {mails}/XXXXXX)\n", encoding="utf-8")
    sendmail.chmod(0o755)
    text = ["* * * * * root echo canary"]
    held = []
    for _, line in LINES:
        text += [f"{variable}={machine.adapt(value)}" for variable, value in line.env.items()]
        text.append(f"* * * * * root {machine.adapt(line.command)}; echo $? >>{skipped}")
        other = line.command.replace(" report --", " report-free --")
        assert other != line.command
        text.append(f"* * * * * root {machine.adapt(other)}")
        held.append(machine.lock(line))
    crontab = machine.directory / "crontab"
    crontab.write_text("\n".join(text) + "\n", encoding="utf-8")
    with held[0], cron(crontab, sendmail) as process:  # all lines take the same lock
        assert {lock.name for lock in held} == {"report"}
        deadline = time.monotonic() + 200
        while True:
            codes = skipped.read_text().split() if skipped.exists() else []
            mailed = [mail.read_text() for mail in mails.iterdir()]
            if len(codes) >= 2 * len(LINES) and mailed:  # two minutes: what the first had to mail has been mailed
                break
            assert process.poll() is None, "cron has ended"
            assert time.monotonic() < deadline, (codes, mailed)
            time.sleep(0.1)
    assert set(codes) == {"0"}
    assert "ran" in machine.ran.read_text()
    assert [mail for mail in mailed if not mail.endswith("\ncanary\n")] == []
