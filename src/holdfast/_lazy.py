"""Lazy imports: a module's ``__getattr__`` (PEP 562) that imports names at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import Any


def later(names: MutableMapping[str, Any], homes: dict[str, str], hints: str = "") -> Callable[[str], Any]:
    """Return a ``__getattr__`` for the module whose globals are ``names``.

    ``homes``: for each lazy name, the module to import it from. If the object has another name in that module, that name
    follows after a colon. The name of a submodule is mapped to the submodule itself.
    ``hints``: a module whose function ``hint_for_name`` returns the end of the error for an unknown name.
    """

    def get(name: str) -> Any:
        import importlib  # imported here, because most programs never call this function

        if name not in homes:
            own, public = names["__name__"], not name.startswith("_")
            hint = importlib.import_module(hints).hint_for_name(name) if hints and public else ""
            raise AttributeError(f"module {own!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules.get(own))
        module, _, original = homes[name].partition(":")
        home = importlib.import_module(module)
        found = names[name] = home if module == f"{names['__name__']}.{name}" else getattr(home, original or name)
        return found

    return get
