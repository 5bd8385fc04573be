"""Small scenarios of locks, elections and other primitives. The exhaustive search runs all their schedules."""
