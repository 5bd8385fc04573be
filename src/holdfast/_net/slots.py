"""The slots of a Cluster: which one a key is in, and names that are in a given one (Redis Cluster specification)."""

from __future__ import annotations

import binascii
import functools
import itertools

from holdfast._core.names import hash_tag

SLOTS = 16384

_TAG = b"0123456789abcdefABCDEF"


@functools.lru_cache(4096)
def slot_of(key: bytes) -> int:
    """The slot of a key or of a channel."""
    return binascii.crc_hqx(hash_tag(key) or key, 0) % SLOTS  # CRC16, as of XMODEM


def id_within(process_id: str, slot: int) -> str:
    """Return the id under which a process listens in one slot of a server with sharded pub/sub: the hash tag in it puts its
    channel there, in each prefix. Scripts see by its brace how to publish (`_lua/shared/_inbox.lua`)."""
    return f"{process_id}{{{_tag(slot)}}}"


@functools.lru_cache(1024)
def _tag(slot: int) -> str:
    """Return four characters in this slot; always the same."""
    # The last two do what is left to be done: a CRC is linear, so what they must contribute is known before.
    last = {binascii.crc_hqx(bytes(pair), 0) % SLOTS: bytes(pair) for pair in itertools.product(_TAG, repeat=2)}
    for first in itertools.product(_TAG, repeat=2):
        missing = (binascii.crc_hqx(bytes(first) + b"\0\0", 0) % SLOTS) ^ slot
        if missing in last:
            return (bytes(first) + last[missing]).decode()
    raise AssertionError("four of them reach every slot many times over")
