"""Programs on this machine: servers that holdfast starts, and the guardian of a command."""
