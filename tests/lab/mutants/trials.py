"""Tries mutants in forks of one process that has collected the tests, so that a trial costs only what its tests do.

The mutant is planted in the copy on disk, for processes that the tests start, and in what the fork has imported. A mutant that
cannot be put there, as a default or a constant, is tried by a new interpreter.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from lab.mutants import isolation, layers
from lab.mutants.drawing import Mutant
from lab.sim.mutate import Copy

HISTORIES = """
import sys
from pathlib import Path
from lab.mutants import layers
sys.exit(layers.run_histories(Path(sys.argv[1]), sys.argv[2:]))
"""


class Trials:
    """A plugin of pytest: in the place of the collected tests, it runs a campaign, which runs some of them in forks."""

    def __init__(self, copy: Copy, campaign: Callable[[Trials], None]) -> None:
        self.copy = copy
        self.campaign = campaign
        self.session: pytest.Session
        self.items: dict[str, pytest.Item] = {}

    def begin(self) -> None:
        """Collect the tests, and run the campaign. Does not return what pytest says."""
        layers.prefer(self.copy.root)
        options = ["-s", "-q", "--tb=line", "-p", "no:cacheprovider", "-m", "not soak and not cron"]
        pytest.main([*options, *layers.files()], plugins=[self])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.copy.part("runner")
        self.copy.part("scenarios.table")
        gc.unfreeze()  # or the scripts are not found
        self.copy.scripts()
        gc.freeze()  # or each of many collections looks through all that was imported
        self.campaign(self)
        return True

    def outcome(self, layer: str, mutant: Mutant | None, names: list[str], patience: float = 1.0) -> isolation.Outcome:
        """Run tests, or histories of swarms, in a fork, with the mutant or without any."""
        with self.copy.on_disk(mutant) if mutant else nullcontext():
            return isolation.isolated(lambda: self._work(layer, mutant, names), patience)

    def _work(self, layer: str, mutant: Mutant | None, names: list[str]) -> int:
        if mutant is not None and self.copy.swap(mutant) is None:
            pytest_options = ["-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
            command = ["-c", HISTORIES, str(self.copy.root)] if layer == "histories" else pytest_options
            os.execv(sys.executable, [sys.executable, *command, *names])  # noqa: S606  # it needs no shell
        if layer == "histories":
            return layers.run_histories(self.copy.root, names)
        return self._run([self.items[name] for name in names if name in self.items])

    def _run(self, items: list[pytest.Item]) -> int:
        """Run tests up to the first that fails. Returns 1 if one has failed."""
        failures = Failures()
        plugins = self.session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(failures)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if failures.found:
                return 1
        return 0


class Failures:
    """A plugin of a fork: says which test has failed, in a line as pytest's own."""

    found = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash: Any = getattr(report.longrepr, "reprcrash", None)
            why = str(crash.message if crash else report.longrepr).strip().partition("\n")[0]
            print(f"{'FAILED' if report.when == 'call' else 'ERROR'} {report.nodeid} - {why}", flush=True)
            self.found = True
