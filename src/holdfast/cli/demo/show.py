"""The common part of all demonstrations, which runs the scenes, prints text or JSON, and computes the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from holdfast._clock import monotonic
from holdfast.cli import output
from holdfast.cli.demo.screen import Check, Screen
from holdfast.errors import ConfigError, HoldfastError, ServerError

HELD, FAILED = 0, 1
"""Exit codes of a demo: 0 if all checks were true, 1 if one was false."""

Facts = dict[str, Any]


class ShowError(Exception):
    """An error after which a demo cannot go on. The demo counts as failed."""


def perform(name: str, play: Callable[[Screen], tuple[Facts, list[Check]]], *, as_json: bool) -> int:
    """Run a demonstration, print its facts and checks as text or JSON, and return the exit code.

    ``play``: function that runs it and returns its facts and checks. ``name``: name of the demonstration in error messages.
    """
    started = monotonic()
    screen = Screen(silent=as_json)
    try:
        facts, checks = play(screen)
    except (ConfigError, ServerError) as error:
        return _stop(name, error, output.EX_UNAVAILABLE)
    except (ShowError, HoldfastError) as error:
        return _stop(name, error, FAILED)
    except OSError as error:
        return _stop(name, error, output.EX_UNAVAILABLE)
    held = all(check.held for check in checks)
    seconds = monotonic() - started
    if as_json:
        said = [{"name": check.name, "held": check.held} for check in checks]
        print(json.dumps({**facts, "checks": said, "held": held, "seconds": round(seconds, 3)}, indent=1))
    else:
        screen.verdict(checks, seconds)
    return HELD if held else FAILED


def play(
    screen: Screen, scenes: Iterable[tuple[Callable[..., Facts], Callable[[Facts], list[Check]]]], *cast: object
) -> tuple[Facts, list[Check]]:
    """Run scenes in order, and return the facts and checks of all scenes.

    ``scenes``: pairs of a function that plays a scene and returns its facts, and a function that returns the checks of these
    facts. ``cast``: arguments of each function that plays a scene.
    """
    facts: Facts = {}
    checks: list[Check] = []
    for scene, judge in scenes:
        facts[scene.__name__] = seen = scene(*cast)
        found = judge(seen)
        for check in found:
            screen.check(check)
        checks += found
    return facts, checks


def _stop(name: str, error: Exception, code: int) -> int:
    output.say(f"{name}: {output.one_line(str(error))}")
    return code
