"""Settings of the unit tests: hypothesis tries the same examples in every run."""

from hypothesis import settings

settings.register_profile("unit", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("unit")
