"""The running parts of holdfast: drivers, which carry out the requests of operations, and the keeper (background
thread)."""
