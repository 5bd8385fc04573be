"""Eight processes that add to one number in a tight loop: each gets through within the tries that are stated."""

from __future__ import annotations

import time

import pytest

from holdfast._core.transaction import TRIES
from holdfast.cli.demo.stage import Stage
from holdfast_lab.demo import counter
from support.servers import PrivateServer

PROCESSES = 8

LONGEST = 120.0
"""Maximum number of seconds to wait for an answer of a process. On a machine with a load of 20, eight processes take up to 19 s
to start."""


@pytest.mark.turns("fleets")
@pytest.mark.parametrize("each", [60, pytest.param(2500, marks=pytest.mark.soak)])
def test_nobody_starves(server: PrivateServer, each: int) -> None:
    with Stage(server.url) as stage:
        actors = [stage.start("count", str(each), module=counter.__name__) for _ in range(PROCESSES)]
        for actor in actors:
            actor.hear(LONGEST)
        key = stage.key("count")
        for actor in actors:
            actor.tell("transaction", key, str(time.monotonic()))
        said = [actor.hear(LONGEST) for actor in actors]  # one that has given up ends
        assert stage.client.get(key) == b"%d" % (PROCESSES * each)
        assert 1 < max(one["tries"] for one in said) <= TRIES
