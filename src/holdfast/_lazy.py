"""Lazy imports: a module's ``__getattr__`` (PEP 562) that imports names at their first use."""

from __future__ import annotations

import os
import sys
import time
from _thread import get_ident  # `threading` has it, too, but takes long to import
from collections.abc import Callable, MutableMapping
from typing import Any

FORK_WAITS_S = 1.0
"""Maximum seconds for which a fork waits until no other thread imports names."""

_importing: set[int] = set()
"""Ids of the threads that are importing names."""


def _wait_for_imports() -> None:
    """Wait, before a fork, until no other thread imports names.

    A child inherits the lock of a module that another thread is importing. The child's import of that module would wait without
    end, because that thread does not exist in the child. The time is limited, because the import may wait for this thread.
    """
    until = time.monotonic() + FORK_WAITS_S
    while _importing - {get_ident()} and time.monotonic() < until:
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_imports, after_in_child=_importing.clear)


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
            hint = importlib.import_module(hints).hint_for_name(name, own, names["__all__"]) if hints and public else ""
            raise AttributeError(f"module {own!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules.get(own))
        module, _, original = homes[name].partition(":")
        thread = get_ident()
        is_outermost = thread not in _importing
        _importing.add(thread)
        try:
            home = importlib.import_module(module)
        finally:
            if is_outermost:
                _importing.discard(thread)
        found = names[name] = home if module == f"{names['__name__']}.{name}" else getattr(home, original or name)
        return found

    return get
