"""Tests that take turns: `make test` runs a third of the cases of a test that takes long, and `make soak` runs the others.

A digest of the sources chooses the cases. So each change of a source chooses other ones, and a case that failed runs again
until a source changes.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from support.sources import turn

TURNS = 3
"""Number of changes of the sources, on average, after which it is the turn of the same case again."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests with ``@pytest.mark.turns`` as `soak`, except a third of each group.

    The cases of one test are a group. Tests that name the same group, as in ``@pytest.mark.turns("demo")``, are one, too.
    """
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("turns")) and not item.get_closest_marker("soak"):
            groups[mark.args[0] if mark.args else item.nodeid.partition("[")[0]].append(item)
    for group in groups.values():
        group.sort(key=lambda item: turn(f"case {item.nodeid}"))
        for item in group[-(-len(group) // TURNS) :]:
            item.add_marker(pytest.mark.soak)
