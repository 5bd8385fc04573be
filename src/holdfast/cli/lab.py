"""The commands whose code is in the distribution holdfast-lab: ``holdfast bench``, and most shows of ``holdfast demo``."""

from __future__ import annotations

import importlib
from typing import Any

from holdfast.cli import output


def run(command: str, module: str, *arguments: Any, **options: Any) -> int:
    """Run ``main`` of a module of `holdfast_lab` and return its exit code.

    If holdfast-lab is not installed, print what to install, and return EX_UNAVAILABLE. ``command``: its name in this message.
    """
    try:
        main = importlib.import_module(f"holdfast_lab.{module}").main
    except ModuleNotFoundError as error:
        if error.name != "holdfast_lab":
            raise
        output.say(f"{command} is not installed: run pip install holdfast-lab")
        return output.EX_UNAVAILABLE
    code: int = main(*arguments, **options)
    return code
