"""Settings of the unit tests: hypothesis tries the same examples in every run, and no server is started."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],  # that a machine is busy says nothing about the examples
)
settings.load_profile("unit")


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> None:
    """Instead of the check after all other modules, which needs a server: nothing is started here that could be left."""
