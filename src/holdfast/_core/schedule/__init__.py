"""Scheduled jobs: what is due, who runs it, and what anybody may ask of it."""
