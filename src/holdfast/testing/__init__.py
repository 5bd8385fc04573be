"""Tools for tests of code that uses holdfast, and the simulator that tests holdfast itself.

For tests of your code (``docs/testing.md``): `memory` starts a server in memory, `clock` moves the time, `server` starts a
private real server. `pytest_plugin` has fixtures. `recording` records what live processes do with a lock, and `checkers`
judges the records.

For tests of holdfast (``docs/design/simulation.md``): `sim` simulates processes, network and servers under virtual time, and
runs the operations of production in them. `swarms` and `runner` simulate random histories; `explore` and `scenarios` try every
schedule of a small scenario; `machine` lets Hypothesis choose the steps. Each run produces a `history`, which `checkers` judges
by the rules in `judge`, and `timeline` draws. `ladder` has locks that are known to be broken. `keyspace` is the data of
a simulated server, used by `inmemory` and `sim`. `__main__` is the program ``python -m holdfast.testing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.testing.inmemory.timekeeping import Clock, clock

if TYPE_CHECKING:
    from holdfast._local.server.process import PrivateServer
    from holdfast.testing.inmemory.backend import Memory

__all__ = ["Clock", "Memory", "clock", "memory", "server"]


def memory() -> Memory:
    """Start a server in memory and return it; use it in a ``with`` statement, or call ``close()``.

    Raises ConfigError if the extra ``holdfast[testing]`` is not installed.
    """
    try:
        from holdfast.testing.inmemory.backend import Memory
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("lupa"):
            raise
        from holdfast.errors import ConfigError

        raise ConfigError('memory() needs Lua: run pip install "holdfast[testing]".', parameter="client") from error
    return Memory()


def server(
    *args: str,
    port: bool | int = False,
    appendonly: bool = False,
    password: str | None = None,
    binary: str | None = None,
) -> PrivateServer:
    """Start a private real server and return it; use it in a ``with`` statement, or call ``stop()``.

    The server ends with this process, however the process ends.

    ``args``        further settings, as on the server's command line: ``"--maxmemory", "10mb"``
    ``port``        False: only a unix socket; True: a free port on 127.0.0.1; a number: this port
    ``appendonly``  True: keep the data across ``kill()`` and ``restart()``; False: lose it
    ``password``    password of the default user; empty: no password; None: a random password, which is part of ``url``, if
                    there is a port, as every user of this machine can connect to it
    ``binary``      path of the server program, instead of the one that is found

    The returned object has ``url``, ``socket``, ``port`` and ``pid``, and the methods ``kill()``, ``restart()``, ``pause()``
    and ``resume()``. Raises ConfigError if there is no server program (``holdfast[server]`` installs one), and ServerError if
    the server does not start.
    """
    from holdfast._local.server import private

    return private(*args, port=port, appendonly=appendonly, password=password, binary=binary)


def __getattr__(name: str) -> Any:
    """Import and return the class `Memory` at its first use, because it needs Lua."""
    if name == "Memory":
        from holdfast.testing.inmemory.backend import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
