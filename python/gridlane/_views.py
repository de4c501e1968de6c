"""Views of memory that the reader has: the bytes of a range, without a copy.

The stable binary interface of Python 3.9 has no buffer protocol for extension classes. `ctypes` makes a buffer of an address,
which holds the object that the memory belongs to.
"""

from __future__ import annotations

import ctypes

from . import _gridlane

# Smaller ones are copied sooner than `ctypes` makes the type for their length.
_COPIED_BELOW = 64 * 1024


def view(buffer: _gridlane.Buffer) -> memoryview:
    """The bytes of a buffer: read-only, and there for as long as the view is."""
    length = len(buffer)
    if length < _COPIED_BELOW:
        return memoryview(bytes(buffer))
    array = (ctypes.c_ubyte * length).from_address(buffer.address)
    # The array is what the view holds.
    array._buffer = buffer  # type: ignore[attr-defined]
    return memoryview(array).cast("B").toreadonly()
