"""Redlock: one lock on several servers that vote, and the lease that a majority of votes grants."""
