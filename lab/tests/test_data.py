"""Content of files: repeatable, incompressible, whole or not there; and units."""

from __future__ import annotations

import hashlib
import zlib

import pytest

from gridlane_lab import data, units
from gridlane_lab.errors import ExitCode, LabError


def content(*what):
    return b"".join(data.pieces(*what))


def test_content_follows_from_seed_name_and_number():
    one = content(1, "f", 0, 100_000)
    assert one == content(1, "f", 0, 100_000) and len(one) == 100_000
    others = [content(2, "f", 0, 100_000), content(1, "g", 0, 100_000), content(1, "f", 1, 100_000)]
    assert all(other != one for other in others)
    assert len(zlib.compress(one)) > 100_000
    # No smaller file is the beginning of a larger one: a copy of the wrong size is never taken for right.
    assert content(1, "f", 0, 100_001)[:100_000] != one
    assert content(1, "f", 0, 0) == b""


@pytest.mark.parametrize("algorithm", ["adler32", "md5", "sha256"])
def test_checksums(tmp_path, algorithm):
    made = data.write(tmp_path / "f", 1, "f", 0, 10_000, algorithm)
    bytes_of = (tmp_path / "f").read_bytes()
    wanted = f"{zlib.adler32(bytes_of):08x}" if algorithm == "adler32" else hashlib.new(algorithm, bytes_of).hexdigest()
    assert made.checksum == f"{algorithm}:{wanted}" == data.checksum_of(tmp_path / "f", algorithm)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(data.os, "replace", full)
    with pytest.raises(LabError, match="No space left") as error:
        data.write(tmp_path / "f", 1, "f", 0, 10, "md5")
    assert error.value.code == ExitCode.NO_SPACE
    assert not list(tmp_path.iterdir())


def test_names_need_no_escape():
    assert data.file_name("a b/ü", 10, 3) == "a-b--10-003"


def test_units():
    assert units.parse_bytes("1.5GB") == 1_500_000_000 and units.parse_bytes("10 kB") == 10_000
    assert units.parse_rate("800Mb/s") == 8e8
    assert units.bytes_text(1.5e9) == "1.5 GB" and units.rate_text(8e8) == "800 Mb/s"
    assert [units.seconds_text(s) for s in (0.35, 4.2, 200, 7500, 273_600, -2)] == [
        "350 ms", "4.2 s", "3 min 20 s", "2 h 05 min", "3 d 4 h", "-2 s",
    ]  # fmt: skip
    for wrong in ("1GiB", "GB", "-1GB", "1Gb/s"):
        with pytest.raises(ValueError, match="is no size"):
            units.parse_bytes(wrong)
