"""Small scenarios of each kind of lock, election and so on; the exhaustive search runs all their schedules (event orders)."""
