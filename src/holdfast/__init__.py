"""Distributed locks on the Redis or Valkey server you already run: fair, fenced, and quick to hand over.

General layout
--------------
`locks` and `aio` are the two faces, one-liners over the same operations; `_face` and `_lease` are what they share. The
algorithms are in `_core`, each written once as an ``async def`` that does no input or output: it awaits the typed requests of
`_core.requests`. `_core.acquire` is the central file, `_core.mutex` describes a lock and gives it back, `_core.waiting` and
`_core.renewing` are what a process knows about its waiters and leases, `_core.node` what its keeper does about them. `_drive`
carries out what they ask: on the calling thread (`sync`), in the calling task (`aio`), and in the one thread per process that
renews leases and listens for hand-overs (`keeper`). `_wire` opens connections and speaks the protocol. The scripts that run
on the server are in `_lua`. `decorator` and `guard` stand beside the faces, `errors` holds what they raise, `_guardian` ends
commands with their owner. `_servers` starts servers: private ones for tests and the demo, and this machine's own for
``local://``. `cli` is the command, `bench` what ``holdfast bench`` measures. `testing` is for tests, yours and ours: the
simulator, the judge, a server in memory.
"""

from typing import TYPE_CHECKING

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    HoldfastWarning,
    LeaseLost,
    LockTimeout,
    NotHeld,
    QuorumError,
    ServerError,
)

if TYPE_CHECKING:
    from holdfast import guard
    from holdfast._drive.process import close
    from holdfast.decorator import locked
    from holdfast.locks import FairLock, Lease, Lock
    from holdfast.redlock import Redlock, declare_new
    from holdfast.schedule import Schedule

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "FairLock",
    "HoldfastError",
    "HoldfastWarning",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockTimeout",
    "NotHeld",
    "QuorumError",
    "Redlock",
    "Schedule",
    "ServerError",
    "close",
    "declare_new",
    "guard",
    "locked",
]

_LATER = {
    "FairLock": "holdfast.locks",
    "Lease": "holdfast.locks",
    "Lock": "holdfast.locks",
    "Redlock": "holdfast.redlock",
    "Schedule": "holdfast.schedule",
    "close": "holdfast._drive.process",
    "declare_new": "holdfast.redlock",
    "guard": "holdfast.guard",
    "locked": "holdfast.decorator",
}
"""What is imported at its first use (PEP 562), and where from: a command line has forked its guardian by then."""

if not TYPE_CHECKING:  # or a type checker would take any name for one of ours

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        home = importlib.import_module(_LATER[name])
        found = globals()[name] = home if _LATER[name] == f"{__name__}.{name}" else getattr(home, name)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
