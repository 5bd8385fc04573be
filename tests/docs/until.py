"""Wait until a file has what a pattern matches, and print it: ``python until.py FILE PATTERN``. Exit with 1 after a minute."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

LONGEST = 60.0
"""Maximum number of seconds to wait. A busy machine takes seconds to start a command."""


def main(file: Path, pattern: str) -> int:
    deadline = time.monotonic() + LONGEST
    while True:
        said = file.read_text(encoding="utf-8") if file.exists() else ""
        found = re.fullmatch(pattern, said.strip(), re.DOTALL)
        if found or time.monotonic() > deadline:
            print(said)
            return 0 if found else 1
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
