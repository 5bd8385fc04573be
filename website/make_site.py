"""Builds the site into .site/html, from the pages and the docstrings: `make site`. Any warning ends the build.

Exit codes: 0 the site is built, 1 something is wrong with a page or a docstring.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from prepare import ROOT, prepare

SITE = ROOT / ".site"
DOCSTRINGS = "griffe: "
"""How lines begin that warn about a docstring. Zensical prints them, but does not count them as warnings."""


def build() -> int:
    """Build everything anew, and return the exit code."""
    shutil.rmtree(SITE, ignore_errors=True)
    prepare(SITE / "pages")
    zensical = Path(sys.executable).parent / "zensical"
    done = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    about_docstrings = [line for line in told.splitlines() if line.startswith(DOCSTRINGS)]
    if done.returncode or about_docstrings:
        print(told, file=sys.stderr)
        return 1
    print(f"{len(list((SITE / 'html').rglob('*.html')))} pages: {SITE / 'html' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(build())
