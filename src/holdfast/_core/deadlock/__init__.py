"""Find deadlocks (cycles of clients that wait for each other's locks), and end one wait of each cycle."""
