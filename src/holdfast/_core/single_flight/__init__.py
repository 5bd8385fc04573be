"""Single flight. Many callers want a missing value, one of them loads it, and the others wait for the result."""
