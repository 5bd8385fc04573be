"""Servers that holdfast starts: private ones (tests, demo, benchmarks), and this user's shared one (``local://``).

binary      find the server program: the packaged one, else one on PATH
process     PrivateServer: a server for one owner, which ends with the owner
paths       the path of the ``local://`` server's socket; a light module, because every start imports it
local       `ensure`: start the ``local://`` server if it is not running, and return the path of its socket
start       start the ``local://`` server; if several processes need it at once, one of them starts it
supervisor  the program that starts the ``local://`` server, and ends it when unused; it imports nothing of holdfast

This module imports none of these, because the command line imports it on every start.
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
    """Return a running `PrivateServer`, created with these arguments. Use it in a ``with`` block, or call ``stop()``."""
    from holdfast._local.server.process import PrivateServer

    return PrivateServer(*args, port=port, appendonly=appendonly, password=password, binary=binary)
