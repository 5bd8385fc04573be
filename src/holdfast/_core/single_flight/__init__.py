"""Single flight: one of all clients that want a value loads it."""
