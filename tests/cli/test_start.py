"""The cost of a start of ``holdfast run`` is the cost of its imports.

Only this test sees a module too many: everything works.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.commands import Holdfast

PROGRAM = "import sys; from holdfast.cli import main; sys.exit(main())"  # as the script that pip makes

OURS = """
    holdfast._api holdfast._core.lock holdfast._core.deadlock holdfast._local holdfast._local.guardian
    holdfast._runtime.keeper holdfast._runtime.drivers holdfast._api.flow
    holdfast holdfast._local.guardian.descendants holdfast._api.lock holdfast._api.base_lock holdfast._local.guardian.channel
    holdfast._local.guardian.guardian
    holdfast._local.guardian.program holdfast._lazy holdfast._api.lease holdfast._log holdfast._lua holdfast._api.tally
    holdfast._lua.codes holdfast._durations holdfast._net.clients holdfast._local.environment
    holdfast._api.lease_core holdfast.errors holdfast._api.lease holdfast._api.acquisition
    holdfast.cli holdfast.cli.contact holdfast.cli.durations holdfast._usage holdfast._core.lock.lease_check
    holdfast.cli.output holdfast.cli.parser holdfast.cli.run holdfast.cli.servers holdfast.cli.supervise holdfast.cli.terminal
    holdfast._core holdfast._core.lock.acquire holdfast._core.lock.records holdfast._core.control_records
    holdfast._core.lock.local_queue holdfast._core.subscription holdfast._core.retry holdfast._core.deadlock.abort_wait
    holdfast._core.lock.name_conflict holdfast._core.lock.idle_queues holdfast._core.lock.replies holdfast._core.names
    holdfast._core.lock.node holdfast._core.lock.renewal holdfast._core.lock.replication holdfast._core.requests
    holdfast._core.lock.uncontended holdfast._core.struct holdfast._core.lock.ports holdfast._core.lock.foreign_lock
    holdfast._core.operation holdfast._core.lock.spec holdfast._runtime.keeper.foreign_locks
    holdfast._core.lock.owner holdfast._core.lock.release holdfast._api.options holdfast._api.error_map holdfast._net.transport
    holdfast._core.deadlock.wait_graph holdfast._core.lock.server_queue holdfast._runtime holdfast._clock
    holdfast._runtime.keeper.inbox_wait holdfast._runtime.flag holdfast._runtime.drivers.choice holdfast._runtime.keeper.lines
    holdfast._runtime.keeper.thread holdfast._runtime.keeper.long_leases holdfast._net.pipelined_connection
    holdfast._runtime.closed_loops holdfast._runtime.process holdfast._runtime.drivers.replication
    holdfast._runtime.drivers.sync holdfast._runtime.drivers.keep_alive holdfast._net holdfast._net.sync_connection
    holdfast._net.resolve holdfast._net.wait_connection holdfast._net.endpoint holdfast._net.redaction holdfast._net.protocol
    holdfast._api.foreign_words holdfast._net.sync_pool holdfast._net.system holdfast._net.url holdfast._net.silent_socket
"""
"""Of ours, for a command under a plain lock on one server: without votes, without asyncio, without what waits for a cache."""

OTHERS = """
    __future__ argparse array atexit collections contextlib copyreg encodings enum errno functools gc gettext heapq hiredis
    importlib itertools keyword locale math operator queue re reprlib select selectors signal socket struct threading types
    typing warnings weakref
"""
"""Of the standard library, and the one parser of replies. Think twice before you add to it: ``python -X importtime -m holdfast
run NAME -- true`` shows what a module takes. Not among them, and dear: redis, asyncio, ssl, dataclasses (`_core.struct` tells),
hashlib, logging, json, pathlib, urllib, subprocess, shutil, random, secrets, unicodedata."""


def imported(hf: Holdfast, *program: str) -> set[str]:
    """Full names of the modules that a python program imports."""
    process = hf.popen([sys.executable, "-X", "importtime", *program])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = {line.rpartition("|")[2].strip() for line in err.splitlines() if line.startswith("import time:")}
    return found - {"imported package"}  # the heading


def test_what_is_imported_for_a_command(hf: Holdfast, name: str) -> None:
    loaded = imported(hf, "-c", PROGRAM, "run", name, "--", "true") - imported(hf, "-c", "pass")
    ours = {module for module in loaded if module.partition(".")[0] == "holdfast"}
    assert "holdfast._runtime.drivers.sync" in ours, "no lock was taken"
    assert ours <= set(OURS.split())
    # The process record wants json, 20 ms after the lock was taken: a quick command has ended by then, on a machine that is.
    others = {module.partition(".")[0] for module in loaded - ours} - {"json"}
    assert {module for module in others if not module.startswith("_") or module == "_hashlib"} <= set(OTHERS.split())


COMPILED = """
import json, sys
found = []
sys.addaudithook(lambda event, args: event == "compile" and args[1] == "<string>" and found.append(args[0].decode()))
import holdfast._api.lock, holdfast.cli.run
json.dump(found, sys.stdout)
"""
"""Prints the texts that the imports for `holdfast run` compile."""

REPORT = ["str", "int", "str"]
"""Annotations of the guardian's named tuple, in a room that may not use `_core`."""


def test_no_annotations_are_compiled() -> None:
    """`typing.NamedTuple` compiles each of them, a twentieth of the start. The modules use that of `_core.struct`."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    tuples = [text for text in found if text.startswith("lambda _cls")]
    assert len(tuples) > 15, "the named tuples were made"
    assert len([text for text in found if text not in {*tuples, "BaseLease"}]) <= len(REPORT), found  # BaseLease: a TypeVar
