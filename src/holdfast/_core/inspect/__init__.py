"""List the holders and waiters of locks on a server, and break a lock by hand."""
