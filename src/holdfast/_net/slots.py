"""Slots of a Redis Cluster. Source: the Redis Cluster specification."""

from __future__ import annotations

import binascii
import functools
import itertools

from holdfast._core.names import hash_tag

SLOTS = 16384

_TAG = b"0123456789abcdefABCDEF"


@functools.lru_cache(4096)
def slot_of(key: bytes) -> int:
    return binascii.crc_hqx(hash_tag(key) or key, 0) % SLOTS  # CRC16, the variant of XMODEM


def id_within(process_id: str, slot: int) -> str:
    """Return the id under which a process receives notifications in one slot of a Cluster with sharded pub/sub.

    The channel of a process is named after its id. The id contains a hash tag, so that the channel belongs to this slot.
    Scripts publish to an id with a brace by SPUBLISH instead of PUBLISH (`_lua/shared/_inbox.lua`).
    """
    return f"{process_id}{{{_tag(slot)}}}"


@functools.lru_cache(1024)
def _tag(slot: int) -> str:
    """Return a hash tag of four characters that belongs to this slot, the same at each call."""
    # A CRC is linear, so the first two characters determine which CRC the last two must have.
    last = {binascii.crc_hqx(bytes(pair), 0) % SLOTS: bytes(pair) for pair in itertools.product(_TAG, repeat=2)}
    for first in itertools.product(_TAG, repeat=2):
        missing = (binascii.crc_hqx(bytes(first) + b"\0\0", 0) % SLOTS) ^ slot
        if missing in last:
            return (bytes(first) + last[missing]).decode()
    raise AssertionError("four characters reach every slot many times over")
