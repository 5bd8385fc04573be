"""Build the wheels and the sdists twice, from two copies of the committed files, and fail unless both give the same bytes.

python packaging/twice.py DIRECTORY     # with what packaging/requirements.txt names installed: `make dist`
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(where: Path, umask: int) -> dict[str, str]:
    """Return the SHA-256 of each file that is built from what is committed."""
    source, made = where / "source", where / "made"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    when = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    environment = os.environ | {"SOURCE_DATE_EPOCH": when.strip()}
    for project in (source, source / "lab"):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(project)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, umask=umask)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(made.iterdir())}


def main(target: str) -> int:
    """Leave what was built in ``target``; returns the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        first, second = Path(directory) / "a", Path(directory) / "another one"
        one, two = build(first, 0o022), build(second, 0o077)
        if one != two or len(one) != 4:
            print(f"not reproducible:\n{one}\n{two}", file=sys.stderr)
            return 1
        place = Path(target)
        place.mkdir(exist_ok=True)
        for name, digest in one.items():
            (place / name).write_bytes((first / "made" / name).read_bytes())
            print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
