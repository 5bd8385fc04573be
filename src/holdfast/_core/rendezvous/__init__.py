"""Barriers, latches and events: synchronization of clients that wait for each other."""
