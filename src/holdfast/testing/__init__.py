"""Tools for tests of code that uses holdfast (``docs/testing.md``).

- `memory` starts a server in memory, `clock` moves the time, and `server` starts a private real server.
- `pytest_plugin` has fixtures for these three.
- `recording` records what live processes do with a lock, as a `history`. The distribution holdfast-lab judges histories.
- `inmemory` is the server in memory, and `keyspace` has its data and commands.
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
    """Start a private real server and return it. Use it in a ``with`` statement, or call ``stop()``.

    The server ends with this process, however the process ends.

    ``args``        further settings, as on the server's command line: ``"--maxmemory", "10mb"``
    ``port``        False: only a unix socket; True: a free port on 127.0.0.1; a number: this port
    ``appendonly``  True: keep the data across ``kill()`` and ``restart()``; False: lose the data
    ``password``    password of the default user; "": no password. None: a random password if the server has a port, because any
                    user of this machine can connect to a port; ``url`` contains this password
    ``binary``      path of the server program; None: holdfast looks for one

    The returned object has ``url``, ``socket``, ``port`` and ``pid``, and the methods ``kill()``, ``restart()``,
    ``pause()`` and ``resume()``.

    Raises ConfigError if there is no server program (``holdfast[server]`` installs one), and ServerError if the server
    does not start.
    """
    from holdfast._local.server import private

    return private(*args, port=port, appendonly=appendonly, password=password, binary=binary)


def __getattr__(name: str) -> Any:
    """Import and return the class `Memory` at its first use, because it needs Lua."""
    if name == "Memory":
        from holdfast.testing.inmemory.backend import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
