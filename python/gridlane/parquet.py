"""Parquet files: the columns and row groups that are wanted, in two reads.

The first one brings the footer; the second all column chunks, wherever they are, in one call.

    table = gridlane.parquet.read_parquet(url, columns=["delay"], row_groups=[0, 1])
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Optional

import pyarrow
import pyarrow.parquet

from ._client import Url, split
from .file import File, Range

__all__ = ["open_parquet", "read_parquet"]

# What is brought of the end of a file: the footers of most are smaller.
_TAIL_BYTES = 64 * 1024
_MAGIC = (b"PAR1", b"PARE")
# The length of the footer, and the magic number behind it.
_END_BYTES = 8


def open_parquet(
    url: Url,
    columns: Optional[Sequence[str]] = None,
    row_groups: Optional[Sequence[int]] = None,
    *,
    tail: int = _TAIL_BYTES,
    **options: Any,
) -> pyarrow.parquet.ParquetFile:
    """Opens a Parquet file, with the bytes of these columns (a name stands for all that is nested in it) and row groups brought
    along. Others can be read as well: they are fetched when they are.

    Args:
        tail: bytes of the end that the first read brings.
        options: as for `gridlane.open`.
    """
    client, opening = split(options)
    file = client.open(url, **opening)
    try:
        end, metadata = _footer(file, tail)
        known: list[tuple[int, Any]] = [(file.size - len(end), end)]
        ranges = _merged(_chunks(metadata, columns, row_groups))
        known.extend((offset, data) for (offset, _), data in zip(ranges, file.readv(ranges, copy=False)))
        return pyarrow.parquet.ParquetFile(_Known(file, known), metadata=metadata)
    except BaseException:
        file.close()
        raise


def read_parquet(
    url: Url,
    columns: Optional[Sequence[str]] = None,
    row_groups: Optional[Sequence[int]] = None,
    **options: Any,
) -> pyarrow.Table:
    """Reads columns and row groups of a Parquet file into a table."""
    file = open_parquet(url, columns, row_groups, **options)
    try:
        wanted = None if columns is None else list(columns)
        if row_groups is None:
            return file.read(columns=wanted)
        return file.read_row_groups(list(row_groups), columns=wanted)
    finally:
        file.close(force=True)


def _footer(file: File, tail: int) -> tuple[bytes, Any]:
    """The end of a file with all of its footer, and what the footer says."""
    end = file.pread(max(0, file.size - tail), tail)
    if len(end) < _END_BYTES or end[-4:] not in _MAGIC:
        raise ValueError(f"{file._shown} is no Parquet file")
    length = int.from_bytes(end[-8:-4], "little") + _END_BYTES
    if length > file.size:
        raise ValueError(f"{file._shown} is no Parquet file: its footer would be larger than it is")
    if length > len(end):
        end = file.pread(file.size - length, length - len(end)) + end
    return end, pyarrow.parquet.read_metadata(pyarrow.BufferReader(end))


def _chunks(
    metadata: Any, columns: Optional[Sequence[str]], row_groups: Optional[Sequence[int]]
) -> list[Range]:
    """Where the column chunks are."""
    found = []
    for number in range(metadata.num_row_groups) if row_groups is None else row_groups:
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            path = column.path_in_schema
            if columns is not None and not any(
                path == name or path.startswith(name + ".") for name in columns
            ):
                continue
            start = column.data_page_offset
            if column.dictionary_page_offset is not None:
                # 0: there is none, by some writers.
                start = min(start, column.dictionary_page_offset or start)
            found.append((start, column.total_compressed_size))
    return found


def _merged(ranges: list[Range]) -> list[Range]:
    """The same bytes in order, neighbours as one: a reader may ask for several of them at once."""
    merged: list[Range] = []
    for start, length in sorted(ranges):
        if merged and start <= merged[-1][0] + merged[-1][1]:
            first, before = merged[-1]
            merged[-1] = (first, max(before, start + length - first))
        else:
            merged.append((start, length))
    return merged


class _Known(io.RawIOBase):
    """A file of which some parts are there."""

    def __init__(self, file: File, parts: list[tuple[int, Any]]) -> None:
        super().__init__()
        self._file = file
        self._parts = sorted(parts, key=lambda part: part[0])
        self._starts = [start for start, _ in self._parts]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self._file.size)[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: Optional[int] = -1) -> Any:
        left = max(0, self._file.size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        found = self._of_parts(self._position, length)
        if found is None:
            found = self._file.pread(self._position, length)
        self._position += len(found)
        return found

    def _of_parts(self, offset: int, length: int) -> Optional[bytes]:
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        start, data = self._parts[index]
        if offset + length > start + len(data):
            return None
        return bytes(data[offset - start : offset - start + length])

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
