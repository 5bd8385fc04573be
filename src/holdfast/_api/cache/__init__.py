"""The cache: its options, what becomes of a call, and the functions it keeps results of."""
