"""What is read of which file: events by lot, recorded traces, and the Adler-32 that a right answer has."""

import gzip
import mmap
import random
import zlib
from dataclasses import dataclass
from pathlib import Path

HEAD = "request,op,offset,length\n"
# The file that ROOT's and uproot's traces were recorded with: any of this size does.
TREE_BYTES = 212_335_314
# Files of the other traces, by the beginning of their names, below the directory of real files.
RECORDED_WITH = {
    "pyarrow26": ("parquet/flights-3m.parquet", 13_493_022),
    "xarray": ("netcdf/ostia_monthly.nc", 1_713_012),
}


@dataclass(frozen=True)
class Job:
    """Calls on a file, each a list of (offset, length), made one after the other."""

    name: str
    file: str  # its name where it is served
    size_bytes: int
    calls: tuple

    @property
    def ranges(self):
        return [each for call in self.calls for each in call]

    @property
    def wanted_bytes(self):
        """Repeated ones each time."""
        return sum(length for _, length in self.ranges)

    def text(self):
        """As `gridlane read` takes it."""
        lines = [
            f"{number},{'readv' if len(call) > 1 else 'read'},{offset},{length}\n"
            for number, call in enumerate(self.calls) for offset, length in call
        ]
        return HEAD + "".join(lines)

    def adler32(self, path):
        """Of all that is read, in order."""
        digest = 1
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for offset, length in self.ranges:
                digest = zlib.adler32(content[offset : offset + length], digest)
        return f"{digest:08x}"


def events(size_bytes, event_bytes, fraction, seed):
    """So many of the file's events, each once, at random places in random order."""
    count = size_bytes // event_bytes
    chosen = random.Random(seed).sample(range(count), max(1, round(count * fraction)))
    return [(number * event_bytes, event_bytes) for number in chosen]


def known(name, file, size_bytes, event_bytes, fraction, seed=1):
    """All events in one call."""
    return Job(name, file, size_bytes, (tuple(events(size_bytes, event_bytes, fraction, seed)),))


def unknown(name, file, size_bytes, event_bytes, fraction, seed=1):
    """Each event is asked for when the one before is there."""
    return Job(name, file, size_bytes, tuple((each,) for each in events(size_bytes, event_bytes, fraction, seed)))


def twice(name, file, size_bytes, event_bytes, fraction, seed=1):
    """Two calls that have no event in common, of as many events each."""
    both = events(size_bytes, event_bytes, 2 * fraction, seed)
    half = len(both) // 2
    return tuple(Job(name, file, size_bytes, (tuple(part),)) for part in (both[:half], both[half:]))


def recorded(data):
    """The traces below the directory of real files, in order of their names, and the file of each that is a real one."""
    jobs = []
    for path in sorted((Path(data) / "traces").glob("*.csv.gz")):
        name = path.name.removesuffix(".csv.gz")
        file, size_bytes = next((found for start, found in RECORDED_WITH.items() if name.startswith(start)), ("", TREE_BYTES))
        with gzip.open(path, "rt") as lines:
            calls = parse(lines.read())
        jobs.append(Job(name, file or str(TREE_BYTES), size_bytes, calls))
    return jobs


def parse(text):
    """The calls of a trace."""
    calls, last = [], None
    for line in text.splitlines()[1:]:
        request, _, offset, length = line.split(",")
        if request != last:
            calls.append([])
            last = request
        calls[-1].append((int(offset), int(length)))
    return tuple(map(tuple, calls))
