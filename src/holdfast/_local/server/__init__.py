"""Servers that holdfast starts itself: private ones (tests, demo, benchmarks) and this machine's own (``local://``).

binary      where the server program is: the packaged one, else one on PATH
process     PrivateServer: a server of one's own, gone with its parent
paths       ``local://``: where its socket is; light, for every start
local       `ensure`: the path of that socket, behind which a server runs; it starts one if nobody has
start       what `ensure` does when there is no server: one of many starts one
supervisor  the program above the local server: starts it, ends it when unused; runs alone, imports nothing of holdfast

This module imports none of them: the command line comes through here on every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._local.server.process import PrivateServer


def private(
    *args: str,
    port: bool | int = False,
    appendonly: bool = False,
    password: str | None = None,
    binary: str | None = None,
) -> PrivateServer:
    """A running server of one's own; use it in a ``with``, or call ``stop()``. Parameters: see `PrivateServer`."""
    from holdfast._local.server.process import PrivateServer

    return PrivateServer(*args, port=port, appendonly=appendonly, password=password, binary=binary)
