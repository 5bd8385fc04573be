"""Small scenarios of each capability, of which the exhaustive search runs every schedule (order of events and faults)."""
