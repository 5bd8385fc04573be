"""``holdfast demo tour``: demonstrate a lock with real processes on a real server, in the three scenes of `scenes`."""

from __future__ import annotations

import os
from contextlib import ExitStack

from holdfast._local.server import private
from holdfast._net.url import from_url
from holdfast.cli import output
from holdfast.cli.demo import scenes, show
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, perform
from holdfast.cli.demo.stage import Stage
from holdfast.errors import ConfigError


def main(*, as_json: bool) -> int:
    """Run this demonstration, print its outcome, and return the exit code."""
    url = os.environ.get("HOLDFAST_URL", "").strip()
    try:
        if url:
            from_url(url)
    except ConfigError as error:
        output.say(str(error))
        return output.EX_USAGE

    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with ExitStack() as stack:
            stage = stack.enter_context(Stage(url or stack.enter_context(private()).url))
            where = "the server of HOLDFAST_URL" if url else "a server of its own"
            screen.line(f"holdfast demo: real processes on {stage.server}, {where}")
            facts, checks = show.play(screen, scenes.SCENES, stage, screen)
            return {"server": stage.server, **facts}, checks

    return perform("demo", play, as_json=as_json)
