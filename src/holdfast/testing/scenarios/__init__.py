"""Small scenarios of each capability, for the exhaustive search."""
