"""The slots of a Cluster: which one a key is in, and names that are in a given one (Redis Cluster specification)."""

from __future__ import annotations

import binascii
import functools
import itertools

from holdfast._core.names import PROCESS, hash_tag

SLOTS = 16384

PREFIX = b"hf:inbox:"

SHARDED = 18
"""Digits of an id whose inbox is a channel of sharded pub/sub: those of the process, and six that put the channel into the slot
in question. The scripts see by that how to publish (`_inbox.lua`)."""

_HEX = b"0123456789abcdef"


@functools.lru_cache(4096)
def slot_of(key: bytes) -> int:
    """The slot of a key or of a channel."""
    return binascii.crc_hqx(hash_tag(key) or key, 0) % SLOTS  # CRC16, as of XMODEM


def id_within(process_id: str, slot: int) -> str:
    """The id under which a process listens in one slot: its channel is in there. Always the same."""
    start = PREFIX + process_id.encode()
    # The last two digits do what is left to be done: a CRC is linear, so what they must contribute is known before.
    last = {binascii.crc_hqx(bytes(pair), 0) % SLOTS: bytes(pair) for pair in itertools.product(_HEX, repeat=2)}
    for digits in itertools.product(_HEX, repeat=SHARDED - PROCESS - 2):
        missing = (binascii.crc_hqx(start + bytes(digits) + b"\0\0", 0) % SLOTS) ^ slot
        if missing in last:
            return process_id + (bytes(digits) + last[missing]).decode()
    raise AssertionError("four digits reach every slot many times over")
