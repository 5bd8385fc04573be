"""``holdfast server``: show or stop this machine's own server (``local://``), or run a development server in the foreground."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from holdfast._clock import monotonic
from holdfast.cli import servers
from holdfast.cli.output import EX_UNAVAILABLE, EX_USAGE, OUTPUT_REFUSED, one_line, say, say_raw
from holdfast.errors import ConfigError, ServerError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from holdfast._local.server.process import PrivateServer
    from holdfast._local.server.supervisor import SocketConnection

NOT_RUNNING = 3
"""Exit code of ``holdfast server status`` if the server is not running, as in the LSB standard of init scripts."""

_PATIENCE = 10.0
"""Seconds to wait for an answer of the server, and for its end."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("status", "stop"),
        metavar="ACTION",
        help="status  show whether this machine's own server runs\nstop    stop it",
    )
    group = servers.add_urls(
        parser, "local:// or local:///directory, the server to show or\nstop (default: HOLDFAST_URL if local, else local://)"
    )
    group.add_argument("--local", action="store_true", help="the server of local://, whatever HOLDFAST_URL is")
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="run a development server on 127.0.0.1:N until Ctrl-C;\nit keeps its data in memory only (0: any free port)",
    )
    parser.add_argument(
        "--no-password",
        action="store_true",
        help="with --port: let every user of this machine connect\n(default: a random password is set)",
    )
    servers.add_loudness(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def main(args: argparse.Namespace) -> int:
    try:
        if (args.action is None) == (args.port is None) or (args.no_password and args.port is None):
            return _usage("pass one of status, stop and --port N; --no-password goes with --port only")
        if args.port is not None:
            if args.local or args.url or args.url_file:
                args.parser.error("--port runs a new server, so it takes no URL")
            if not 0 <= args.port <= 65535:
                return _usage(f"--port {args.port}: pass a number from 0 to 65535")
            return _foreground(args)
        return (_status if args.action == "status" else _stop)(_url(args), as_json=args.json)
    except ConfigError as error:
        return _usage(str(error))
    except (ServerError, OSError) as error:
        if isinstance(error, OSError) and error.errno in OUTPUT_REFUSED:
            raise
        say(one_line(str(error)))
        return EX_UNAVAILABLE


def _usage(message: str) -> int:
    say(f"server: {message}")
    return EX_USAGE


def _url(args: argparse.Namespace) -> str:
    from holdfast._local.server import paths

    given = servers.LOCAL if args.local else servers.one_given(args)
    if given and not paths.is_local(given):
        args.parser.error("status and stop are for this machine's own server (local://): `doctor --url URL` checks others")
    from_environment = os.environ.get("HOLDFAST_URL", "")
    return given or (from_environment if paths.is_local(from_environment) else servers.LOCAL)


def _status(url: str, *, as_json: bool) -> int:
    facts: dict[str, Any] = {"running": False}
    with _connected(url) as (path, server):
        facts["socket"] = path
        if server is not None:
            facts |= {"running": True, **_facts(server)}
    if as_json:
        print(json.dumps(facts))
    elif facts["running"]:
        print("running", *(f"{name:8}{value}" for name, value in facts.items() if name != "running"), sep="\n")
    else:
        print(f"not running ({facts['socket']})")
    return 0 if facts["running"] else NOT_RUNNING


def _facts(server: SocketConnection) -> dict[str, Any]:
    info = server.info("server")
    return {
        "pid": int(info["process_id"]),
        "version": f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}",
        "uptime": int(info["uptime_in_seconds"]),
        "clients": max(0, int(server.info("clients")["connected_clients"]) - 2),  # without this process and the supervisor
        "keys": server("DBSIZE"),
    }


def _stop(url: str, *, as_json: bool) -> int:
    pid = None
    with _connected(url) as (_, server):
        if server is not None:
            pid = int(server.info("server")["process_id"])
            with contextlib.suppress(ConnectionError):  # the server closes the connection instead of answering
                server("SHUTDOWN")
    if pid is not None:
        _wait_for_end(pid)
    if as_json:
        print(json.dumps({"stopped": pid is not None, "pid": pid}))
    else:
        print("not running" if pid is None else f"stopped (pid {pid})")
    return 0


def _wait_for_end(pid: int) -> None:
    deadline = monotonic() + _PATIENCE
    with contextlib.suppress(ProcessLookupError):
        while monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.002)
        raise TimeoutError(f"the server (pid {pid}) has not ended within {_PATIENCE:g} s")


@contextlib.contextmanager
def _connected(url: str) -> Iterator[tuple[str, SocketConnection | None]]:
    """Yield the socket path of this machine's own server, and a connection to it, or None if no server is running."""
    from holdfast._local.server import paths
    from holdfast._local.server.supervisor import SocketConnection

    path = paths.socket_path(url)
    try:
        server = SocketConnection(path, _PATIENCE)
    except (FileNotFoundError, ConnectionRefusedError):
        yield path, None
        return
    with contextlib.closing(server):
        try:
            yield path, server
        except TimeoutError as error:
            raise ServerError(f"the server at {path} did not answer in time", address=path) from error


def _foreground(args: argparse.Namespace) -> int:
    password = not args.no_password
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _started(args.port, None if password else "") as server:
            facts: dict[str, Any] = {"url": server.address, "pid": server.pid}
            use = f"export HOLDFAST_URL={server.address}"
            if password:
                facts["url_file"] = file = _written(server)
                use = f'export HOLDFAST_URL="$(cat {file})", or --url-file {file}: only you can read the password there'
            if not args.quiet:
                say_raw(f"A server for development; Ctrl-C ends it, and its data is lost then. To use it: {use}")
            # This line is printed last, because its reader may go on at once and end this process.
            print(json.dumps(facts) if args.json else server.address, flush=True)
            server.wait()
            said = server.log().splitlines()[-1:]
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, previous)
    say(f"the server has ended by itself; the last line of its log: {' '.join(said)}")
    return EX_UNAVAILABLE


def _started(port: int, password: str | None) -> PrivateServer:
    """Start a server on a port of 127.0.0.1 (0: any free port). Raises ServerError with one line if the port is in use."""
    from holdfast._local.server import private

    try:
        return private(port=port or True, password=password)
    except ServerError as error:
        if not port or "in use" not in str(error):
            raise
        raise ServerError(_in_use(port), address=f"127.0.0.1:{port}") from None


def _in_use(port: int) -> str:
    """Return the error text for a port that another program uses. It says whether that program is a server for locks."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.sendall(b"PING\r\n")
        answer = connection.recv(64)
    by, use = "another program", ""
    if answer.startswith((b"+PONG", b"-NOAUTH")):
        by, use = "a Redis or Valkey server", f"use that server with --url redis://127.0.0.1:{port}, or "
    return f"server: port {port} is in use by {by}: {use}pass another port, or --port 0 for a free one"


def _written(server: PrivateServer) -> str:
    """Write the server's URL, with the password, to a private file in the server's directory, and return the file's path."""
    path = str(server.directory / "url")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as out:
        os.fchmod(file, 0o600)  # independent of the umask
        out.write(f"{server.url}\n")
    return path
