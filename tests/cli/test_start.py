"""What a start of ``holdfast run`` costs is what it imports. One module too many is not seen otherwise: everything works."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.commands import Holdfast

PROGRAM = "import sys; from holdfast.cli import main; sys.exit(main())"  # as the script that pip makes

OURS = """
    holdfast holdfast._descendants holdfast._face holdfast._fair holdfast._guard holdfast._guardian holdfast._later
    holdfast._lease holdfast._log holdfast._lua holdfast._tally holdfast._sync_lease holdfast.errors holdfast.locks
    holdfast.cli holdfast.cli.contact holdfast.cli.durations holdfast.cli.output holdfast.cli.run holdfast.cli.servers
    holdfast.cli.supervise holdfast.cli.terminal
    holdfast._core holdfast._core.acquire holdfast._core.attempt holdfast._core.control holdfast._core.gate
    holdfast._core.hearing holdfast._core.insist holdfast._core.interrupting holdfast._core.kinds holdfast._core.loose
    holdfast._core.mutex holdfast._core.names holdfast._core.node holdfast._core.renewing holdfast._core.replicas
    holdfast._core.requests holdfast._core.sharing holdfast._core.struct holdfast._core.surroundings
    holdfast._core.tending holdfast._core.wait_graph holdfast._core.waiting
    holdfast._drive holdfast._drive.clock holdfast._drive.ear holdfast._drive.flag holdfast._drive.hearing
    holdfast._drive.keeper holdfast._drive.lasting holdfast._drive.link holdfast._drive.loops
    holdfast._drive.process holdfast._drive.replicas holdfast._drive.sync holdfast._drive.tending
    holdfast._wire holdfast._wire.blocking holdfast._wire.client holdfast._wire.dedicated holdfast._wire.endpoint
    holdfast._wire.hidden holdfast._wire.resp holdfast._wire.shared holdfast._wire.system holdfast._wire.url
"""
"""Of ours, for a command under a plain lock on one server: without votes, without asyncio, without what waits for a cache."""

OTHERS = """
    __future__ argparse array atexit collections contextlib copyreg encodings enum errno functools gettext heapq hiredis
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
    assert "holdfast._drive.sync" in ours, "no lock was taken"
    assert ours <= set(OURS.split())
    # The process record wants json, 20 ms after the lock was taken: a quick command has ended by then, on a machine that is.
    others = {module.partition(".")[0] for module in loaded - ours} - {"json"}
    assert {module for module in others if not module.startswith("_") or module == "_hashlib"} <= set(OTHERS.split())
