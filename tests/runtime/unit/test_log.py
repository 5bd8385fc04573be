"""Messages where `logging` cannot be imported, because no file descriptor is free."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys
from holdfast._log import logger

log = logger("holdfast.test")
assert "logging" not in sys.modules
sys.path_importer_cache.clear()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))  # stdin, stdout and stderr are all there can be
try:
    raise ValueError("no room for %d")
except ValueError:
    log.exception("renewal of %r failed", "nightly")
log.warning("a plain %s", "warning")
log.info("nobody reads this")
print("went on")
"""


def test_a_message_without_logging_goes_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    first, second = done.stderr.splitlines()
    assert first == "holdfast: renewal of 'nightly' failed: no room for %d"
    assert second.startswith("holdfast: a plain warning: ")
    assert "Too many open files" in second
