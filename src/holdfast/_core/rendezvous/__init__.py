"""Barriers, latches and events, with which clients in any processes wait for each other."""
