"""Seeded histories of each capability, with faults: ``simulate(seed)`` of each module."""
