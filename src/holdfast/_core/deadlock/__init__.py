"""Deadlock detection: find clients that wait for each other's locks in a cycle, and end one of the waits."""
