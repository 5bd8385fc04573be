"""Clients that wait for each other in a cycle: finding the cycle, and ending it."""
