"""Further demonstrations of ``holdfast demo``. The table of all of them, and what they share, is in `holdfast.cli.demo`."""
