"""``holdfast run`` in a terminal, below a shell: who is in the foreground, Ctrl-C, Ctrl-Z, fg and bg."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.commands import PROGRAM, STUBBORN, Holdfast, children, running, state, wait_until
from holdfast._local.server import paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

# The job control of a shell for one job, and no more: the job has its own group and the terminal. When it stops or ends, the
# shell takes the terminal and reports "status, does the job's group have the terminal". Then it continues the job in the
# foreground (f) or the background (b).
SHELL = """
import os, signal, sys
report, orders, tty, *job = sys.argv[1:]
report, orders = int(report), int(orders)
fd = os.open(tty, os.O_RDWR)  # as leader of a session without a terminal: it is ours now
for n in range(3):
    os.dup2(fd, n)
os.close(fd)
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.set_inheritable(report, False)
    os.set_inheritable(orders, False)
    os.execvp(job[0], job)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    foreground = os.tcgetpgrp(0) == pid
    os.tcsetpgrp(0, os.getpgrp())
    os.write(report, f"{status} {foreground}\\n".encode())
    if not os.WIFSTOPPED(status):
        break
    if os.read(orders, 1) == b"f":
        os.tcsetpgrp(0, pid)
    os.killpg(pid, signal.SIGCONT)
"""


class Terminal:
    """A terminal with that shell, and a job in it."""

    def __init__(self, hf: Holdfast, job: list[str], env: dict[str, str] | None = None) -> None:
        self.master, self.slave = os.openpty()  # held open: without anybody there, reading the master is an error
        self.reports, report = os.pipe()
        orders, self.orders = os.pipe()
        argv = [sys.executable, "-S", "-c", SHELL, str(report), str(orders), os.ttyname(self.slave), *job]
        self.shell = hf.popen(argv, env=env, start_new_session=True, pass_fds=(report, orders))
        self.shown = self.passed = ""
        for fd in (report, orders):
            os.close(fd)

    def until(self, text: str) -> None:
        """Read what is shown until the text is."""
        deadline = time.monotonic() + 20
        while text not in self.shown:
            assert select.select([self.master], [], [], deadline - time.monotonic())[0], f"no {text!r} in {self.shown!r}"
            self.shown += os.read(self.master, 4096).decode()
        self.passed, _, self.shown = self.shown.partition(text)

    def keys(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def report(self) -> tuple[int, bool]:
        """Wait for the job to stop or to end: its wait status, and whether its group had the terminal."""
        assert select.select([self.reports], [], [], 20)[0], f"the job goes on; shown: {self.shown!r}"
        status, foreground = os.read(self.reports, 100).split()
        return int(status), foreground == b"True"

    def order(self, what: str) -> None:
        """``f`` or ``b``."""
        os.write(self.orders, what.encode())
        if what == "f":
            wait_until(lambda: os.tcgetpgrp(self.master) != self.shell.pid)  # or the next key would be the shell's

    def close(self) -> None:
        for fd in (self.master, self.slave, self.reports, self.orders):
            os.close(fd)


@pytest.fixture
def terminals(hf: Holdfast) -> Iterator[type[Terminal]]:
    """Makes terminals, and closes them."""
    with contextlib.ExitStack() as stack:

        class Closing(Terminal):
            def __init__(self, *args: object) -> None:
                super().__init__(*args)  # type: ignore[arg-type]
                stack.callback(self.close)

        yield Closing


# Says "ready PID", whether it is in the foreground, then every line it is given.
#
# No command here forks in a loop: a shell that uses vfork cannot stop between that and the child's exec, whoever runs it.
READER = [
    sys.executable,
    "-S",
    "-u",
    "-c",
    """
import os, sys
print("ready", os.getpid(), os.tcgetpgrp(0) == os.getpgrp(), "!")
for line in sys.stdin:
    print("read", line.strip(), os.tcgetpgrp(0) == os.getpgrp(), "!")
""",
]


def run(*arguments: str) -> list[str]:
    return [*PROGRAM, "run", *arguments]


def test_the_command_has_the_terminal_and_gives_it_back(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    terminal = terminals(hf, run(name, "--", *READER))
    terminal.until("True !")
    terminal.keys("one\n")
    terminal.until("read one True")
    terminal.keys("\x04")
    assert terminal.report() == (0, True)


def test_ctrl_c_ends_the_command_and_us_by_it(hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]) -> None:
    """130 to a shell, and because we die of the signal, too, a loop around us ends."""
    terminal = terminals(hf, run(name, "--", "sh", "-c", "echo ready; exec sleep 60"))
    terminal.until("ready")
    terminal.keys("\x03")
    status, foreground = terminal.report()
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGINT
    assert foreground
    assert not client.exists(f"hf:{{{name}}}")


def test_a_script_around_us_has_the_ctrl_c_too(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    line = " ".join(run(name, "--", "sh", "-c", "'echo ready; exec sleep 60'"))
    terminal = terminals(hf, ["sh", "-c", f"{line}; echo went on"])
    terminal.until("ready")
    terminal.keys("\x03")
    status, _ = terminal.report()
    assert os.WTERMSIG(status) == signal.SIGINT
    assert "went on" not in terminal.shown


def test_a_command_that_handles_ctrl_c_gets_it_once(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    script = "trap 'n=$((n+1))' INT; echo ready; read line; echo interrupted $n times; exit 7"
    terminal = terminals(hf, run(name, "--", "sh", "-c", script))
    terminal.until("ready")
    terminal.keys("\x03")
    terminal.keys("\n")
    terminal.until("interrupted 1 times")
    assert terminal.report() == (7 << 8, True)


def test_ctrl_c_while_waiting(hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]) -> None:
    client.set(f"hf:{{{name}}}", "somebody", px=60_000)
    terminal = terminals(hf, run("-v", name, "--", "true"))
    terminal.until("waiting")
    terminal.keys("\x03")
    status, _ = terminal.report()
    assert os.WTERMSIG(status) == signal.SIGINT
    assert not client.exists(f"hf:{{{name}}}:queue")


def test_ctrl_z_and_fg(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    terminal = terminals(hf, run(name, "--", *READER))
    terminal.until("True !")
    terminal.keys("\x1a")
    status, foreground = terminal.report()
    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGTSTP
    assert foreground  # we had taken it back before we stopped
    terminal.order("f")
    terminal.keys("two\n")
    terminal.until("read two True")
    terminal.keys("\x04")
    assert terminal.report() == (0, True)


def to_the_background_and_back(terminal: Terminal) -> None:
    """Ctrl-Z, bg and fg, while a `READER` has the terminal."""
    terminal.until("True !")
    terminal.keys("\x1a")
    terminal.report()
    terminal.order("b")
    status, foreground = terminal.report()
    assert os.WSTOPSIG(status) == signal.SIGTTIN
    assert not foreground
    terminal.order("f")
    terminal.keys("three\n")
    terminal.until("read three True")
    terminal.keys("\x04")
    assert terminal.report() == (0, True)


def test_ctrl_z_bg_and_fg(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    """In the background it runs on until it reads; then the job stops, and gets the terminal with fg."""
    to_the_background_and_back(terminals(hf, run(name, "--", *READER)))


def test_fg_when_another_thread_gets_the_signal_to_go_on(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    """And notes it a little later: that does not mean that nobody could stop us."""
    script = (
        "import os, signal, sys, threading; from holdfast.cli import main, supervise\n"
        "noted, late = supervise.program.noted_signals, False\n"
        "def noted_signals(fd):\n"
        "    global late\n"
        "    heard = noted(fd)\n"
        "    late = signal.SIGCONT in heard and not late\n"
        "    if late:\n"
        "        signal.set_wakeup_fd(tell := signal.set_wakeup_fd(-1))\n"
        "        threading.Timer(0.1, os.write, (tell, heard)).start()\n"
        "    return b'' if late else heard\n"
        "supervise.program.noted_signals = noted_signals\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    to_the_background_and_back(terminals(hf, [sys.executable, "-c", script, "run", name, "--", *READER]))


def test_ctrl_z_for_longer_than_the_lease(hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]) -> None:
    """The command is killed, stopped or not, before somebody else can have the lock."""
    options = ["--ttl", "1.5", "--kill-after", "0.1"]  # TERM continues it
    terminal = terminals(hf, run(*options, name, "--", "sh", "-c", "trap '' TERM; echo ready $$ !; exec sleep 60"))
    terminal.until("ready ")
    terminal.until(" !")
    terminal.keys("\x1a")
    terminal.report()
    pid = int(terminal.passed)
    assert state(pid) == "T"
    wait_until(lambda: not client.exists(f"hf:{{{name}}}"))
    assert not running(pid)
    terminal.order("f")
    assert terminal.report() == (76 << 8, True)
    terminal.until("the lease could not be renewed in time")


def test_what_was_sent_while_the_job_was_stopped_reaches_the_command(
    hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]
) -> None:
    """SIGTERM does not wake a stopped process: it counts when the job is continued."""
    terminal = terminals(hf, run(name, "--", "sh", "-c", "echo ready; exec sleep 60"))
    terminal.until("ready")
    terminal.keys("\x1a")
    status, _ = terminal.report()
    assert os.WIFSTOPPED(status)
    [pid] = children(terminal.shell.pid)
    os.kill(pid, signal.SIGTERM)
    terminal.order("b")
    assert terminal.report() == ((128 + signal.SIGTERM) << 8, False)
    assert not client.exists(f"hf:{{{name}}}")


def test_in_a_pipeline_the_pager_has_the_terminal(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    """Our stdout is no terminal: whoever is behind the pipe may want the keys."""
    line = " ".join(run(name, "--", "echo", "text"))
    pager = f'{sys.executable} -S -c "{PAGER}"'
    terminal = terminals(hf, ["sh", "-c", f"{line} | {pager}"])
    terminal.until("text ?")
    terminal.keys("q\n")
    terminal.until("got q")
    assert terminal.report()[0] == 0


PAGER = "import sys; print(sys.stdin.read().strip(), '?', flush=True); print('got', open('/dev/tty').readline())"


def test_in_a_pipeline_a_command_that_reads_gets_the_terminal_after_all(
    hf: Holdfast, name: str, terminals: type[Terminal]
) -> None:
    line = " ".join(run(name, "--", "sh", "-c", "'echo ready >&2; read line; echo got $line'"))
    terminal = terminals(hf, ["sh", "-c", f"{line} | cat"])
    terminal.until("ready")
    terminal.keys("four\n")
    terminal.until("got four")
    assert terminal.report() == (0, True)


def test_ctrl_c_in_a_pipeline(hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]) -> None:
    """The terminal sends it to us: it is passed on."""
    line = " ".join(run(name, "--", "sh", "-c", "'echo ready >&2; exec sleep 60'"))
    terminal = terminals(hf, ["sh", "-c", f"{line} | cat"])
    terminal.until("ready")
    terminal.keys("\x03")
    assert os.WTERMSIG(terminal.report()[0]) == signal.SIGINT
    wait_until(lambda: not client.exists(f"hf:{{{name}}}"))


def test_stdin_from_a_file_ctrl_z(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    """The terminal stops us, we stop the command, and not before that ourselves."""
    line = " ".join(run(name, "--", "sh", "-c", "'echo ready; exec sleep 60'"))
    terminal = terminals(hf, ["sh", "-c", f"exec {line} < /dev/null"])
    terminal.until("ready")
    terminal.keys("\x1a")
    status, foreground = terminal.report()
    assert os.WSTOPSIG(status) == signal.SIGTSTP
    assert foreground
    terminal.order("f")
    terminal.keys("\x03")
    assert os.WTERMSIG(terminal.report()[0]) == signal.SIGINT


def test_ctrl_z_as_soon_as_the_command_runs(hf: Holdfast, name: str, terminals: type[Terminal]) -> None:
    """However long it takes us to go on after we have told the guardian to start it."""
    script = (
        "import sys, time; from holdfast.cli import main, supervise\n"
        "start = supervise.Supervisor._start\n"
        "supervise.Supervisor._start = lambda self: (start(self), time.sleep(0.5))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    job = [sys.executable, "-c", script, "run", name, "--", "sh", "-c", "echo ready $$ !; exec sleep 60"]
    terminal = terminals(hf, ["sh", "-c", 'exec "$@" < /dev/null', "sh", *job])
    terminal.until("ready ")
    terminal.until(" !")
    terminal.keys("\x1a")
    status, _ = terminal.report()
    assert os.WSTOPSIG(status) == signal.SIGTSTP
    assert state(int(terminal.passed)) == "T"
    terminal.order("f")
    terminal.keys("\x03")
    assert os.WTERMSIG(terminal.report()[0]) == signal.SIGINT


def test_tostop_does_not_stop_us(hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]) -> None:
    """We may have something to say while the command has the terminal, set so that only the foreground may write."""
    script = "stty tostop; echo ready; trap '' TERM; read line"
    terminal = terminals(hf, run("--ttl", "1", "--kill-after", "0.1", name, "--", "sh", "-c", script))
    terminal.until("ready")
    client.delete(f"hf:{{{name}}}")
    terminal.until("was lost")
    assert terminal.report() == (76 << 8, True)


def test_without_a_url_a_terminal_is_told_what_is_used(
    hf: Holdfast, name: str, local_url: str, terminals: type[Terminal]
) -> None:
    """With the machine's own server, in a directory of this test."""
    script = (
        "import os, sys; del os.environ['HOLDFAST_URL']\n"
        "from holdfast.cli import main, servers\n"
        f"servers.LOCAL = {local_url!r}\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    terminal = terminals(hf, [sys.executable, "-c", script, "run", name, "--", "echo", "ran"])
    terminal.until("HOLDFAST_URL is not set: using this machine's own server (local://)")
    terminal.until("ran")
    assert terminal.report() == (0, True)
    assert Path(paths.socket_path(local_url)).exists()


def test_a_hang_up_ends_the_command(hf: Holdfast, name: str, client: redis.Redis, terminals: type[Terminal]) -> None:
    terminal = terminals(hf, run(name, "--", *STUBBORN))
    terminal.until("alive")
    terminal.shell.kill()  # leader of the session: the kernel tells the foreground, which is the command
    wait_until(lambda: not client.exists(f"hf:{{{name}}}"))
