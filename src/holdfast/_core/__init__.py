"""The algorithms. Nothing here reads a clock, draws a random number, starts a thread or talks to a server."""
