"""Inspect the locks on a server: list their holders and waiters, and break a lock by hand."""
