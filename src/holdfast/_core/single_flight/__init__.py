"""Single flight: one caller of many loads a missing value, and the others wait for its result."""
