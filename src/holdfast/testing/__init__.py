"""Test tools, for your own code and for ours.

For yours (``docs/testing.md``): `memory` is a server in memory, `clock` a clock to move, `server` a private real server;
`pytest_plugin` has fixtures; `recording` writes down what live processes do with a lock, and `checkers` judges it.

For ours (``docs/design/simulation.md``): `sim` is a world under virtual time in which production's operations run. `swarms` and
`runner` run seeds in it; `explore` and `scenarios` try every schedule of something small; `machine` runs the steps that
Hypothesis chooses. Each run leaves a `history`. `checkers` judges it by the rules in `judge`; `timeline` draws it. `ladder`
has locks that are known to be broken. `keyspace` is the data of a server, for `inmemory` and `sim`.
``python -m holdfast.testing`` is `__main__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.testing.inmemory.timekeeping import Clock, clock

if TYPE_CHECKING:
    from holdfast._local.server.process import PrivateServer
    from holdfast.testing.inmemory.backend import Memory

__all__ = ["Clock", "Memory", "clock", "memory", "server"]


def memory() -> Memory:
    """A running server in memory; use it in a ``with``, or call ``close()``. Wants ``holdfast[testing]``.

    Raises ConfigError if that is not installed.
    """
    try:
        from holdfast.testing.inmemory.backend import Memory
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("lupa"):
            raise
        from holdfast.errors import ConfigError

        raise ConfigError('memory() runs Lua: pip install "holdfast[testing]".', parameter="client") from error
    return Memory()


def server(
    *args: str,
    port: bool | int = False,
    appendonly: bool = False,
    password: str | None = None,
    binary: str | None = None,
) -> PrivateServer:
    """A real server of one's own, running; use it in a ``with``, or call ``stop()``. Gone with this process, whatever ends it.

    ``args``        further settings, as on the server's command line: ``"--maxmemory", "10mb"``
    ``port``        False: a unix socket only; True: a free port on 127.0.0.1; a number: that port
    ``appendonly``  keep data over ``kill()`` and ``restart()``; otherwise nothing is kept
    ``password``    of the default user; None: one is made if there is a port, which every user of this machine can connect
                    to (it is in ``url``); empty: none
    ``binary``      another server program than the one that is found

    It has ``url``, ``socket``, ``port``, ``pid``; ``kill()``, ``restart()``, ``pause()`` and ``resume()``. Raises ConfigError
    if there is no server program (``holdfast[server]`` brings one), ServerError if it does not start.
    """
    from holdfast._local.server import private

    return private(*args, port=port, appendonly=appendonly, password=password, binary=binary)


def __getattr__(name: str) -> Any:
    """`Memory`, imported when asked for: it wants Lua."""
    if name == "Memory":
        from holdfast.testing.inmemory.backend import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
