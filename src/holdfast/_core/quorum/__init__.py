"""One lock on several servers (Redlock): votes, and the lease that a majority of them makes."""
