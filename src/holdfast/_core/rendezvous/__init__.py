"""Barriers, latches and events: clients that wait for each other."""
