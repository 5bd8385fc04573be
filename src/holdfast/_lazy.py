"""Names of a module that are imported at their first use (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any


def later(names: MutableMapping[str, Any], homes: dict[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of the module with these ``names`` (its globals). ``homes``: where each of them comes from; a module
    that is a name itself is its own."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        import importlib  # here: most that are asked for are there already

        home = importlib.import_module(homes[name])
        found = names[name] = home if homes[name] == f"{names['__name__']}.{name}" else getattr(home, name)
        return found

    return get
