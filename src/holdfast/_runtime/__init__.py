"""The running parts of holdfast: the drivers, which carry out the requests of operations, and the keeper."""
