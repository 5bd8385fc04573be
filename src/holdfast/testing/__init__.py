"""Tools for tests of code that uses holdfast, and the simulator that tests holdfast itself.

For tests of your code (``docs/testing.md``):

- `memory` starts a server in memory, `clock` moves the time, and `server` starts a private real server.
- `pytest_plugin` has fixtures for these three.
- `recording` records what live processes do with a lock, and `checkers` judges the records.

For tests of holdfast (``docs/design/simulation.md``):

- `sim` simulates processes, network and servers under virtual time, and runs production's operations in them.
- `swarms` and `runner` simulate random histories. `explore` and `scenarios` try every order of events of a small scenario.
  With `machine`, Hypothesis chooses the steps.
- Each run produces a `history`. `checkers` judges it by the rules in `judge`, and `timeline` draws it.
- `wired` tests the real drivers over scripted sockets.
- `ladder` has simple locks that are known to be broken, and finds out how.
- `keyspace` is the data of a simulated server. `inmemory` and `sim` use it.
- `__main__` is the program ``python -m holdfast.testing``.
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
