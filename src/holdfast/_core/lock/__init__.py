"""Acquire, queue for, renew and release one lock on one server."""
