"""The public classes and functions, for threads and for asyncio. `holdfast._api.flow` explains how both share their code."""
