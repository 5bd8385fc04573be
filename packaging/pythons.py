"""Run the quick part of the tests with each Python from 3.11 on found here, each in a virtual environment of its own.

python packaging/pythons.py [VERSION ...]     # `make pythons`
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST = (3, 11)
LIVE = ["lock/live/test_lock.py", "lock/live/test_aio_lock.py", "lock/live/test_rlock.py", "lock/live/test_decorator.py"]
LIVE += ["permit/live/test_semaphore.py", "cli/test_run.py", "cli/test_start.py"]
QUICK = [*(str(path) for path in sorted(ROOT.glob("tests/*/unit"))), *(f"tests/{name}" for name in LIVE)]


def version_of(program: Path) -> tuple[int, int] | None:
    """Return major and minor version of a CPython; None for anything else."""
    ask = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        said = subprocess.run([program, "-c", ask], capture_output=True, text=True, timeout=30, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return (int(said[1]), int(said[2])) if said[0] == "cpython" else None


def found() -> dict[tuple[int, int], Path]:
    """Return one interpreter of each version, by version: those of pyenv first, then those in PATH."""
    places = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin/python"), reverse=True)
    for folder in os.get_exec_path():
        places += [path for path in Path(folder).glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    pythons: dict[tuple[int, int], Path] = {}
    for place in places:
        version = version_of(place)
        if version is not None and version >= OLDEST:
            pythons.setdefault(version, place)
    return pythons


def try_out(name: str, program: Path) -> int:
    """Run the tests; returns the exit code."""
    environment = ROOT / f".venv-{name}"
    ready = environment / ".ready"
    python = environment / "bin" / "python"
    newest = max((ROOT / name).stat().st_mtime for name in ("pyproject.toml", "lab/pyproject.toml"))
    if not ready.exists() or ready.stat().st_mtime < newest:
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([program, "-m", "venv", environment], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
        subprocess.run(
            [*pip, "--editable", f"{ROOT}[server]", "--editable", ROOT / "lab", "--group", "dev"], check=True, cwd=ROOT
        )
        ready.touch()
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-m", "not soak", "--processes", "2", *QUICK], cwd=ROOT, check=False
    ).returncode


def main(wanted: list[str]) -> int:
    """Returns the exit code."""
    pythons = {f"{major}.{minor}": program for (major, minor), program in sorted(found().items())}
    missing = set(wanted) - set(pythons)
    if missing:
        print(f"not on this machine: {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    failed = []
    for name in wanted or pythons:
        print(f"Python {name}: {pythons[name]}", flush=True)
        if try_out(name, pythons[name]):
            failed.append(name)
    print(f"failed with Python {', '.join(failed)}" if failed else f"passed with Python {', '.join(wanted or pythons)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
