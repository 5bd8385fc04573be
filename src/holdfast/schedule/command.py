"""Commands as jobs. `Command` runs a program in its own process group, and never longer than the run's lease lasts.

The guardian, a process of its own (`holdfast._local.guardian.guardian`), starts the command. It ends the command before the
lease expires, when the run is cancelled, or when this process is killed. So the command and its descendants have ended before
another process runs the job (exceptions: ``docs/run-limits.md``).
"""

from __future__ import annotations

import collections
import math
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast._api.options import seconds
from holdfast._durations import Seconds
from holdfast._local.environment import scrubbed
from holdfast._local.guardian import channel, program
from holdfast.errors import ConfigError, HoldfastError, LeaseLost
from holdfast.schedule.run import Cancelled

if TYPE_CHECKING:
    from holdfast.schedule.run import Run

_LOOK = 0.1
"""Seconds between two checks of the lease and of cancellation."""
_ASK, _PATIENCE, _SILENCE = 0.3, 0.2, 10.0
"""Seconds between the guardian's last answer and the next ping, and two limits, in seconds, for the answer to a ping.

A guardian that should have ended the command by now must answer within `_PATIENCE`. Before that time, it must answer within
`_SILENCE`. A guardian that does not answer in time is killed."""
_LINES, _LONGEST = 5, 4096  # number of last lines kept; bytes after which a longer line is split
_SAFE = str.maketrans({c: "?" for c in map(chr, (*range(32), *range(127, 160))) if c != "\t"})
"""Table that replaces control characters by "?", because a terminal might obey them when it shows the history."""


class JobFailed(HoldfastError):
    """A job's command ended with an exit code other than 0, or could not be started.

    The message has the exit code and the last printed lines, or the reason why the command did not start.
    """


class Command:
    """A command as a job: ``jobs.add(Command(["./backup.sh"]), Every(3600), name="backup")``.

    Its environment contains ``HOLDFAST_JOB``, ``HOLDFAST_SCHEDULED`` (Unix seconds), ``HOLDFAST_FENCE`` and
    ``HOLDFAST_ATTEMPT``. Variables that contain a server's URL with a password are removed. If the exit code is 0, the run has
    succeeded, and its result is the last lines that the command printed. Otherwise the run has failed, and its error is the
    exit code with these lines.

    Args:
        argv: the command and its arguments, run without a shell; for a shell pass ``["/bin/sh", "-c", "..."]``.
        env: environment variables to add.
        directory: working directory of the command; None: that of this process.
        kill_after: seconds from SIGTERM to SIGKILL when the command has to end.
        pass_url: True: keep server URLs with a password in the command's environment.
        echo: function called with each line that the command prints, and with each remark of holdfast, such as that it was
            killed.
    """

    argv: list[str]
    env: dict[str, str]
    kill_after: float

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        directory: str | None = None,
        kill_after: Seconds = 3.0,
        pass_url: bool = False,
        echo: Callable[[str], None] | None = None,
    ) -> None:
        if isinstance(argv, str) or not argv:
            how = (
                "write it as a list with at least one word, as in ['./backup.sh', '--full'], or for a shell, "
                "['/bin/sh', '-c', '...']"
            )
            raise ConfigError(f"command {argv!r}: {how}", parameter="command")
        self.argv = [os.fspath(word) for word in argv]
        self.env = dict(env or {})
        self.directory = directory
        self.kill_after = seconds(kill_after, "kill_after", 0.0)
        self.pass_url = pass_url
        self.echo = echo

    def __call__(self, run: Run) -> str:
        """Run the command until it ends, and return the last lines that it printed.

        Raises JobFailed if the exit code is not 0 or the command cannot be started, LeaseLost if the lease was lost, and
        `Cancelled` if the run was cancelled.
        """
        environment = {
            **scrubbed(os.environ, self.pass_url),
            **self.env,
            "HOLDFAST_JOB": run.job,
            "HOLDFAST_SCHEDULED": f"{run.scheduled:.6f}".rstrip("0").rstrip("."),
            "HOLDFAST_ATTEMPT": str(run.attempt),
        }
        read, write = os.pipe()
        try:
            try:
                guardian = channel.spawn(self.argv, environment, output=write, directory=self.directory)
            except OSError as error:
                raise JobFailed(f"cannot start the command: {error.strerror}: {error.filename}") from error
            finally:
                os.close(write)
            try:
                return _Execution(self, run, guardian, read).outcome()
            finally:
                guardian.close()
        finally:
            os.close(read)


_REMARKS = {
    "daemon": (
        "the command left a daemon behind, {}; it was sent TERM",
        "the command left more daemons behind ({}); they were sent TERM and are not listed",
    ),
    "refused": (
        "{} was not signalled, because it belongs to another user",
        "more processes ({}) were not signalled; they are not listed",
    ),
    "stuck": (
        "{} has not ended after KILL: it hangs in the kernel, or is traced",
        "more processes ({}) have not ended after KILL; they are not listed",
    ),
}
"""Two messages for each kind of report by the guardian: for one process, and for further processes of the same name."""


def _signal_name(number: int) -> str:
    """Return the name of a signal. Most real-time signals have none, and are shown by number."""
    names = {one.value: one.name for one in signal.Signals}
    return names.get(number, f"signal {number}")


class _Execution:
    def __init__(self, command: Command, run: Run, guardian: channel.GuardianChannel, output: int) -> None:
        self.command, self.run, self.guardian, self.output = command, run, guardian, output
        self.pid = 0
        self.status: int | None = None
        self.errno = 0
        self.over = self.ending = self.late = False
        self.confirmed = -math.inf
        self.kill_at = math.inf
        """Monotonic time in seconds by which the guardian must have killed the command, because the run's lease ends."""
        self.doom = math.inf
        """Monotonic time in seconds by which the guardian must have killed a cancelled command; infinity: not cancelled."""
        self.lines: collections.deque[str] = collections.deque(maxlen=_LINES)
        self._unread = b""

    def outcome(self) -> str:
        """Supervise the command until all its processes have ended, and return its last lines."""
        self._look_at_lease()
        self.guardian.start(f"HOLDFAST_FENCE={self.run.fence}", grace=self.command.kill_after)
        os.set_blocking(self.output, False)
        poll = select.poll()
        poll.register(self.guardian, select.POLLIN)
        poll.register(self.output, select.POLLIN)
        while not self.over:
            for fd, _ in poll.poll(1000 * _LOOK):
                if fd == self.output and not self._read():
                    poll.unregister(fd)
            for report in self.guardian.reports():
                self._heard(*report)
            if not self.over:
                self._look_at_guardian()
            self._look_at_lease()
            if self.run.cancelled.is_set() and not self.ending:
                self.ending = True
                self.doom = program.clock() + self.command.kill_after + 0.5
                self.guardian.term(self.command.kill_after)
        while self._read():
            pass
        if self._unread:
            self._said(self._unread)
        return self._result()

    def _heard(self, word: str, number: int, name: str) -> None:
        if word == "pid":
            self.pid = number
        elif word == "failed":
            self.errno = number
        elif word == "exited":
            self.status = number
        elif word in {"late", "ending"}:
            self.late = True
        elif word in _REMARKS:
            one, more = _REMARKS[word]
            self._remark((one if number else more).format(f"process {number} ({name})" if number else name))
        self.over = self.over or word in {"late", "gone"}

    def _look_at_lease(self) -> None:
        """If the lease was renewed, tell the guardian the new time by which the guardian must have ended the command."""
        if self.run.lease is None:
            return
        now = program.clock()  # read before remaining(): the time in between then makes the deadline early, not late
        left = self.run.lease.remaining()
        # A guardian that does not answer may be stopped. Then only the last deadline that it knows counts.
        if self.guardian.asked == math.inf and now + left > self.confirmed + 0.005:
            self.confirmed = now + left
            self.kill_at = self.confirmed - program.kill_margin(left)
            self.guardian.deadline(self.confirmed - min(self.command.kill_after, left / 3), self.kill_at)

    def _look_at_guardian(self) -> None:
        """If the guardian has died or does not answer, kill the command, because nothing else would end it in time."""
        now = program.clock()
        due = min(self.kill_at, self.doom)
        silent = now >= min(due, self.guardian.asked + _SILENCE) and now >= self.guardian.asked + _PATIENCE
        if self.guardian.dead or silent:
            why = "has died" if self.guardian.dead else "does not answer"
            self.guardian.take_over(self._heard)
            self._said(f"the guardian process {why}: the command was killed".encode())
            self.over = True
        else:
            self.guardian.ask(0.0 if now >= due else _ASK)

    def _remark(self, text: str) -> None:
        if self.command.echo is not None:
            self.command.echo(text.translate(_SAFE))

    def _read(self) -> bool:
        """Read the command's output. Return False at its end, or if the command is over and no output is waiting."""
        try:
            data = os.read(self.output, 65536)
        except BlockingIOError:
            return not self.over
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._said(line)
        while len(self._unread) > _LONGEST:
            self._said(self._unread[:_LONGEST])
            self._unread = self._unread[_LONGEST:]
        return bool(data)

    def _said(self, line: bytes) -> None:
        text = line.decode(errors="replace").translate(_SAFE).rstrip()
        self.lines.append(text)
        if self.command.echo is not None:
            self.command.echo(text)

    def _result(self) -> str:
        said = "\n".join(self.lines).strip()
        if self.late:
            self.run.check()  # raises if the loss is known by now
            raise LeaseLost(
                f"job {self.run.job!r}: the lease could not be renewed in time; the command was ended before it expired"
            )
        if self.run.cancelled.is_set() and self.ending:
            raise Cancelled(self.run.reason)
        if self.errno:
            raise JobFailed(f"cannot run {self.command.argv[0]!r}: {os.strerror(self.errno)}")
        code = -signal.SIGKILL if self.status is None else os.waitstatus_to_exitcode(self.status)
        if code == 0:
            return said
        how = f"exit code {code}" if code > 0 else f"ended by {_signal_name(-code)}"
        raise JobFailed(f"{how}: {said}" if said else how)
