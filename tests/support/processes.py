"""Run the tests in several processes: ``pytest --processes 8``.

The tests are imported and collected once, and then the process forks. (pytest-xdist starts each of its processes anew, and each
collects all tests: with six of them that takes 30 CPU seconds before the first test.) A process that has nothing to do gets the
tests of the next file, so the order of the files says which begin first. It sends the reports to the first process, which
shows and counts them as if it had run the tests.

There are two queues of files. Most tests of `WAITING` wait for servers and processes most of the time. Those of `COMPUTING`
need a processor all the time. One process for each processor, up to half of all, takes files of the second queue, with a lower
priority. The other processes take files of the first queue. So a test that waits goes on at once, and no processor is idle
meanwhile. When a queue is empty, its processes take files of the other one.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import deque
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

if TYPE_CHECKING:
    from _pytest.capture import CaptureManager
    from _pytest.terminal import TerminalReporter

NICE = 5
"""Nice value of the processes that take tests which compute."""

Message = tuple[str, Any]
"""From a child: ("begins", the number of a test), ("report", what pytest makes of it), ("next", None), ("failed", a text)."""


COMPUTING = (
    *("sim/test_swarms.py::test_hundreds", "sim/test_rare.", "sim/test_scenarios.", "sim/test_mutations.py::test_each_defect"),
    *("typed/", "sim/test_timestamp.", "sim/test_ladder.", "sim/test_exhaustive.", "sim/test_mutations.py::test_some"),
    *("sim/test_wired.", "docs/test_prose.", "sim/test_odd_fields.", "sim/test_simulator.", "sim/"),
    *("conformance/test_keyspace_traces.", "docs/test_types.", "house/", "conformance/", "unit/"),
)
"""How the names of tests begin (see `named`) that keep a processor busy. The longest tests come first; the small ones at
the end fill the time until all processes are done."""

WAITING = (
    *("cli/test_matrix.", "cli/test_bench_command.", "chaos/", "cli/test_run.", "cli/test_run_descendants."),
    *("docs/test_examples.py::test_console", "docs/test_examples.", "cli/test_run_start.", "cli/test_first_contact."),
    *("cli/test_demo.", "cli/test_schedule_command.", "faults/test_handler_points.", "faults/test_quorum_faults."),
    *("cli/", "faults/", "live/"),
    *("docs/",),
)
"""How the names of tests begin that wait for servers, processes and time more than they compute. The longest tests come
first. A name of one test of a file gives this test out without the rest of the file."""

ORDER = (*COMPUTING, *WAITING)


def named(item: pytest.Item) -> str:
    """Return the name of a test, with its file and the folder of that: its level, as in ``live/test_lock.py::test_it``."""
    file, *test = item.nodeid.split("::", 1)
    return "::".join(["/".join(file.split("/")[-2:]), *test])


def place(item: pytest.Item) -> int:
    """Return the number of a test's place in `ORDER`."""
    name = named(item)
    return next((number for number, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


class BetweenFiles(pytest.Item):
    """The test after the last one of a file, while nobody knows which file is next: fixtures of the session stay."""

    def runtest(self) -> NoReturn:
        raise NotImplementedError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--processes", type=int, default=0, help="run the tests in so many processes, a file each at a time")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The fast ones first; in `ORDER`, where there are several processes."""
    items.sort(key=place if config.option.processes else lambda item: not named(item).startswith("unit/"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests of the session in several processes, if the option is given."""
    count: int = session.config.option.processes
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    terminal = cast("TerminalReporter | None", session.config.pluginmanager.get_plugin("terminalreporter"))
    if terminal is not None:
        terminal.showfspath = False  # reports of several files come in turn
    Parent(session).run(count)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class Child:
    """The first process's view of another one."""

    def __init__(self, pid: int, *, computes: bool) -> None:
        self.pid = pid
        self.computes = computes
        self.todo: deque[int] = deque()
        """Numbers of the tests of its file that it has not begun."""
        self.running: int | None = None
        """The number of the test that it has begun."""
        self.dismissed = False


class Parent:
    """The process that collected the tests: gives out files, and receives reports."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        items = session.items
        numbers = groupby(range(len(items)), lambda number: (items[number].path, place(items[number])))
        files = [deque(group) for _, group in numbers]
        self.computing = deque(file for file in files if place(items[file[0]]) < len(COMPUTING))
        self.waiting = deque(file for file in files if place(items[file[0]]) >= len(COMPUTING))
        self.children: dict[Connection, Child] = {}

    def run(self, count: int) -> None:
        computing = min(os.cpu_count() or 1, count // 2, len(self.computing))
        count = min(count, len(self.waiting) + len(self.computing))
        try:
            for number in range(count):
                self.fork(computes=number < computing)
            while self.children and not (self.session.shouldfail or self.session.shouldstop):
                for connection in wait(list(self.children)):
                    assert isinstance(connection, Connection)
                    self.receive(connection, self.children[connection])
        finally:
            for connection in self.children:
                connection.close()  # each ends when it has done the test that it is at
            for child in self.children.values():
                os.waitpid(child.pid, 0)

    def fork(self, *, computes: bool) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self.children):
                connection.close()
            if computes:
                os.nice(NICE)
            work(self.session, theirs)
        theirs.close()
        self.children[ours] = Child(pid, computes=computes)

    def following(self, child: Child) -> deque[int]:
        """Take the next file for a process. A process of lower priority gets none whose tests wait: they are about time."""
        if self.computing and (child.computes or not self.waiting):
            return self.computing.popleft()
        return self.waiting.popleft() if self.waiting and not child.computes else deque()

    def receive(self, connection: Connection, child: Child) -> None:
        hook = self.session.config.hook
        message = received(connection)
        if message is None:
            self.ended(connection, child)
            return
        kind, what = message
        if kind == "begins":
            child.running = child.todo.popleft()
            assert child.running == what
        elif kind == "report":
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=self.session.config, data=what))
        elif kind == "failed":
            self.fail(f"process {child.pid}", what, when="teardown")
        else:
            child.running = None
            child.todo = self.following(child)
            child.dismissed = not child.todo
            connection.send(list(child.todo))

    def ended(self, connection: Connection, child: Child) -> None:
        """If it was killed, or ended by a test, go on with the rest of its file in another process."""
        del self.children[connection]
        connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if child.dismissed and code == 0:
            if child.computes and self.waiting:
                self.fork(computes=False)
            return
        where = f"process {child.pid}" if child.running is None else self.session.items[child.running].nodeid
        self.fail(where, f"The process that ran the test has ended, with exit code {code}.", when="call")
        if child.todo:
            (self.computing if child.computes else self.waiting).appendleft(child.todo)
        if self.computing or self.waiting:
            self.fork(computes=child.computes and bool(self.computing))

    def fail(self, nodeid: str, text: str, *, when: str) -> None:
        report = pytest.TestReport(nodeid, ("", None, nodeid), {}, "failed", text, cast("Any", when))
        self.session.config.hook.pytest_runtest_logreport(report=report)


def received(connection: Connection) -> Message | None:
    """Return the next message of a child; None if it has ended."""
    try:
        message: Message = connection.recv()
    except (EOFError, ConnectionError):
        return None
    return message


class Reporter:
    """A plugin of a child: sends each report to the first process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config = config
        self.connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))


def work(session: pytest.Session, connection: Connection) -> NoReturn:
    """Run the tests that the first process gives out, and end."""
    code = 0
    try:
        begin(session.config, Reporter(session.config, connection))
        run_files(session, connection)
    except ConnectionError:
        pass  # the first process has ended, or wants no more
    except KeyboardInterrupt:
        code = 1
    except BaseException:  # whatever it is, the exit code tells
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def begin(config: pytest.Config, reporter: Reporter) -> None:
    """Show nothing, and capture what the tests write in files of its own."""
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporter)
    capture = cast("CaptureManager", config.pluginmanager.get_plugin("capturemanager"))
    if capture.is_globally_capturing():
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()


def run_files(session: pytest.Session, connection: Connection) -> None:
    state = session._setupstate
    after = BetweenFiles.from_parent(session, name="between files")
    try:
        while True:
            connection.send(("next", None))
            numbers: list[int] = connection.recv()
            if not numbers:
                break
            items = [session.items[number] for number in numbers]
            for number, item, following in zip(numbers, items, [*items[1:], after], strict=True):
                connection.send(("begins", number))
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    except EOFError:
        pass
    finally:
        try:
            state.teardown_exact(None)  # servers of the session: they may find something left behind
        except Exception:  # whatever a fixture found
            connection.send(("failed", traceback.format_exc()))
