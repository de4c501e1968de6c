"""CRC-32C (Castagnoli) by numpy: Python has none of its own. 100 MB/s, which is enough for test files."""

from __future__ import annotations

from typing import Any

import numpy as np

# Lanes that advance together: a remainder is followed byte by byte in each, and what they find is joined.
_LANES = 4096
_POLYNOMIAL = 0x82F63B78


class Crc32c:
    """With the manners of hashlib."""

    def __init__(self) -> None:
        self._value = 0xFFFFFFFF

    def update(self, block: bytes, /) -> None:
        """Goes on with more bytes."""
        data = np.frombuffer(block, dtype=np.uint8)
        width = data.size // _LANES
        if width >= 16:
            lanes = data[: width * _LANES].reshape(_LANES, width)
            table = _table()
            found = np.zeros(_LANES, dtype=np.uint32)
            # The first lane goes on from what came before.
            found[0] = self._value
            for column in np.ascontiguousarray(lanes.T):
                found = table[(found ^ column) & 0xFF] ^ (found >> np.uint32(8))
            while found.size > 1:
                found = _advance(found[0::2], width) ^ found[1::2]
                width *= 2
            self._value = int(found[0])
            data = data[(data.size // _LANES) * _LANES :]
        small = [int(value) for value in _table()]
        value = self._value
        for byte in data.tobytes():
            value = small[(value ^ byte) & 0xFF] ^ (value >> 8)
        self._value = value

    def hexdigest(self) -> str:
        """Eight digits."""
        return f"{self._value ^ 0xFFFFFFFF:08x}"


_tables: dict[str, Any] = {}


def _table() -> Any:
    if "bytes" not in _tables:
        table = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1))
        _tables["bytes"] = table.astype(np.uint32)
    return _tables["bytes"]


def _advance(values: Any, count: int) -> Any:
    """The remainders after `count` more bytes of zero: a linear map, by its square powers."""
    # One byte of zero, as what it makes of each bit.
    rows = [_zero_byte(1 << bit) for bit in range(32)]
    result = values.copy()
    while count:
        if count & 1:
            result = _apply(rows, result)
        rows = [_apply_one(rows, row) for row in rows]
        count >>= 1
    return result


def _zero_byte(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


def _apply(rows: list[int], values: Any) -> Any:
    result = np.zeros_like(values)
    for bit, row in enumerate(rows):
        result ^= np.where((values >> np.uint32(bit)) & np.uint32(1), np.uint32(row), np.uint32(0))
    return result


def _apply_one(rows: list[int], value: int) -> int:
    result = 0
    for bit, row in enumerate(rows):
        if value >> bit & 1:
            result ^= row
    return result
