"""What a start of ``holdfast run`` costs is what it imports. One module too many is not seen otherwise: everything works."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.commands import Holdfast

PROGRAM = "import sys; from holdfast.cli import main; sys.exit(main())"  # as the script that pip makes

OURS = """
    holdfast holdfast.errors holdfast._descendants holdfast._guardian holdfast._later holdfast._log holdfast.locks
    holdfast._face holdfast._lease holdfast._fair holdfast._sync_lease holdfast._statistics holdfast._lua
    holdfast.cli holdfast.cli.output holdfast.cli.servers holdfast.cli.run holdfast.cli.durations holdfast._guard
    holdfast.cli.terminal holdfast.cli.supervise
"""
PACKAGES = ("holdfast._core", "holdfast._drive", "holdfast._wire")
"""Of ours. What is in them is small, and all of it needed to take a lock."""

OTHERS = """
    __future__ argparse array ast atexit collections contextlib copy copyreg dataclasses dis encodings enum errno functools
    gettext heapq hiredis importlib inspect itertools keyword linecache locale math opcode operator org queue re reprlib select
    selectors signal socket struct threading token tokenize types typing warnings weakref
"""
"""Of the standard library, and the one parser of replies. Think twice before you add to it: ``python -X importtime -m holdfast
run NAME -- true`` shows what a module takes. Not among them, and dear: redis, asyncio, ssl, hashlib, logging, json, pathlib,
urllib, subprocess, shutil, random, secrets, unicodedata."""


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
    assert {module for module in ours if not module.startswith(PACKAGES)} <= set(OURS.split())
    assert not ours & {"holdfast._drive.aio", "holdfast._wire.multiplex"}
    # The process record wants json, 20 ms after the lock was taken: a quick command has ended by then, on a machine that is.
    others = {module.partition(".")[0] for module in loaded - ours} - {"json"}
    assert {module for module in others if not module.startswith("_") or module == "_hashlib"} <= set(OTHERS.split())
