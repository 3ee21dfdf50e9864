"""Cluster slots: CRC-16/XMODEM of the hash tag, modulo 16384."""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache


@lru_cache(maxsize=4096)
def _slot(tag: str) -> int:
    return crc_hqx(tag.encode(), 0) % 16384


def slot_of(key: str) -> int:
    """The slot of `key`: of the text between its first `{` and the next `}`, if there is any."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            return _slot(key[start + 1 : end])
    return _slot(key)
