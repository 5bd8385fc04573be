"""The floor: a blocking socket and hiredis' parser, nothing else. What any lock on this server has to pay at least."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import hiredis

COMPARE_AND_DELETE = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end"


def pack(*parts: bytes | str | int) -> bytes:
    """The bytes of one command."""
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]
    return packed


class Bare:
    """A connection to ``redis://host:port`` or ``unix:///path``."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(parts.path)
        else:
            self.sock = socket.create_connection((parts.hostname or "localhost", parts.port or 6379))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def exchange(self, packed: bytes) -> Any:
        """Send packed bytes, return the reply. No error handling: this is the floor."""
        self.sock.sendall(packed)
        return self.read()

    def read(self) -> Any:
        """The next reply or push."""
        reader = self._reader
        while (reply := reader.gets()) is False:
            reader.feed(self.sock.recv(4096))
        return reply

    def __call__(self, *parts: bytes | str | int) -> Any:
        """One command; an error reply is raised."""
        reply = self.exchange(pack(*parts))
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self.sock.close()
