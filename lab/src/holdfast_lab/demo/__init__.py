"""The demonstrations of ``holdfast demo``, except the tour. Their table and their common code are in `holdfast.cli.demo`."""
