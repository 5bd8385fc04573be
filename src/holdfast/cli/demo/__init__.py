"""``holdfast demo``: what a lock does, seen in real processes on a real server, in less than twenty seconds.

`scenes` are the three things it shows, `stage` starts and talks to the processes in them, `actors` is what these run.
`ladder` is a show of its own: how simpler locks break.
Every line is computed from what has just happened, and the verdict from the lines: it may well be "no".
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    import argparse

FAILED = 1
"""Exit code if something did not hold."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "Runs on a private server that is gone afterwards; on the one that HOLDFAST_URL names, if it is set.\n"
        "Exit codes: 0 everything held, 1 something did not, 69 no server (ladder: holdfast[testing] is not installed)."
    )
    parser.add_argument(
        "show", nargs="?", choices=["ladder"], help="ladder: simpler locks, each with the schedule that breaks it; no server"
    )
    parser.add_argument("--json", action="store_true", help="the facts as one JSON document instead of text")


def main(args: argparse.Namespace) -> int:
    """Run it; returns the exit code."""
    if args.show == "ladder":
        from holdfast.cli.demo import ladder

        return ladder.main(as_json=args.json)
    url = os.environ.get("HOLDFAST_URL", "").strip()
    try:
        if url:
            return _play(url, as_json=args.json, private=False)
        from holdfast._servers import private

        with private() as server:
            return _play(server.url, as_json=args.json, private=True)
    except ConfigError as error:
        output.say(str(error))
        return output.EX_USAGE if url else output.EX_UNAVAILABLE
    except (ServerError, OSError) as error:
        output.say(f"demo: {' | '.join(str(error).splitlines())}")
        return output.EX_UNAVAILABLE


def _play(url: str, *, as_json: bool, private: bool) -> int:
    from holdfast.cli.demo import scenes
    from holdfast.cli.demo.screen import Screen
    from holdfast.cli.demo.stage import ActorError, Stage

    started = time.monotonic()
    screen = Screen(silent=as_json)
    try:
        with Stage(url) as stage:
            where = "a server of its own" if private else "the server of HOLDFAST_URL"
            screen.line(f"holdfast demo: real processes on {stage.server}, {where}")
            facts, checks = scenes.play(stage, screen)
    except ActorError as error:
        output.say(f"demo: {error}")
        return FAILED
    held = all(check.held for check in checks)
    seconds = time.monotonic() - started
    if as_json:
        document = {
            "server": stage.server,
            **facts,
            "checks": [{"name": check.name, "held": check.held} for check in checks],
            "held": held,
            "seconds": round(seconds, 3),
        }
        print(json.dumps(document, indent=1))
    else:
        screen.verdict(checks, seconds)
    return 0 if held else FAILED
