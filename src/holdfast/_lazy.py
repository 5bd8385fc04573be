"""Lazy imports: a module's ``__getattr__`` (PEP 562) that imports names at their first use."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any


def later(names: MutableMapping[str, Any], homes: dict[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for the module whose globals are ``names``.

    ``homes``: for each lazy name, the module to import it from. If the object has another name in that module, that name
    follows after a colon. The name of a submodule is mapped to the submodule itself.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        import importlib  # imported here, because most programs never call this function

        module, _, original = homes[name].partition(":")
        home = importlib.import_module(module)
        found = names[name] = home if module == f"{names['__name__']}.{name}" else getattr(home, original or name)
        return found

    return get
