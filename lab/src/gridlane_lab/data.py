"""The bytes that transfers move: incompressible, the same for the same seed, name and number; and their checksums."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gridlane_lab.crc32c import Crc32c
from gridlane_lab.errors import ExitCode, LabError

PIECE_BYTES = 1 << 22


@dataclass(frozen=True)
class Made:
    """A file that was written: its checksum as `ALGORITHM:HEX`."""

    path: Path
    size_bytes: int
    checksum: str


def pieces(seed: int, name: str, number: int, size_bytes: int) -> Iterator[bytes]:
    """The content of one file. No file is a part of another, and none shrinks under compression."""
    digest = hashlib.sha256(f"{seed}/{name}/{number}/{size_bytes}".encode()).digest()
    draw = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
    left = size_bytes
    while left > 0:
        piece = draw.bytes(min(left, PIECE_BYTES))
        left -= len(piece)
        yield piece


def write(path: Path, seed: int, name: str, number: int, size_bytes: int, algorithm: str) -> Made:
    """Writes one file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    digest = _Digest.of(algorithm)
    try:
        with open(temporary, "wb") as file:
            for piece in pieces(seed, name, number, size_bytes):
                file.write(piece)
                digest.update(piece)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LabError(
            f"cannot be written: {error.strerror}", where=str(path), hint="make room", code=ExitCode.NO_SPACE
        ) from None
    return Made(path, size_bytes, f"{algorithm}:{digest.hexdigest()}")


def checksum_of(path: Path, algorithm: str) -> str:
    """Of a file, as `ALGORITHM:HEX`."""
    digest = _Digest.of(algorithm)
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return f"{algorithm}:{digest.hexdigest()}"


def file_name(name: str, size_bytes: int, number: int) -> str:
    """How a file of `[[data.file]]` is called at sources, with no character that a URL would have to escape."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    return f"{plain}-{size_bytes}-{number:03}"


class _Hash(Protocol):
    def update(self, data: bytes, /) -> Any: ...

    def hexdigest(self) -> str: ...


class _Digest:
    """adler32 with the manners of hashlib."""

    def __init__(self) -> None:
        self._value = 1

    def update(self, data: bytes, /) -> None:
        self._value = zlib.adler32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"

    @staticmethod
    def of(algorithm: str) -> _Hash:
        if algorithm == "crc32c":
            return Crc32c()
        return _Digest() if algorithm == "adler32" else hashlib.new(algorithm)
