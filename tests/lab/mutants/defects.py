"""A deliberate defect: where it is, by function, and what is changed there."""

from __future__ import annotations

from dataclasses import dataclass

from lab.mutants import lua, python
from lab.mutants.operators import Change


@dataclass(frozen=True)
class Mutation:
    """One defect in a file of the package."""

    name: str
    file: str
    function: str
    """Its qualified name; empty for what stands in none."""
    change: Change
    breaks: str
    """Description of the effect, for people."""
    of: str = "lock"
    """The swarm that is to catch it: see `campaign.SWARMS`."""

    def planted(self, source: str) -> str:
        """The file with the defect in it."""
        plant = lua.plant if self.file.endswith(".lua") else python.plant
        try:
            return plant(source, self.function, self.change)
        except LookupError as error:
            raise LookupError(f"{self.name}: {error}") from None
