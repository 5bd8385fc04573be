"""The python examples as a user would write them: mypy --strict has nothing to say about them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docs.pages import PAGES, ROOT, blocks, module


def test_examples_are_typed(tmp_path: Path) -> None:
    files = {}
    for page in PAGES:
        if blocks(page, "python"):
            file = tmp_path / f"{page.relative_to(ROOT).with_suffix('').as_posix().replace('/', '_').replace('-', '_')}.py"
            file.write_text(module(page), encoding="utf-8")
            files[file.name] = page
    assert len(files) >= 3
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}",
            *map(str, tmp_path.iterdir()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.replace(f"{tmp_path}/", "") + done.stderr
