"""Single flight: of many callers that want a missing value, one loads it, and the others wait for its result."""
