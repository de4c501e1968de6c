"""Which bytes a job reads, in which order and in which requests. Pure but for the files of traces.

A step is what the job knows at one moment that it needs: a list of (offset, length), and the number of events that are
done when it has them. Drivers compute the same steps again, to compare what was read with the file.
"""

from __future__ import annotations

import csv
import gzip
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

Range = tuple[int, int]
Step = tuple[list[Range], int]

# A TTreeCache of ROOT's default size for these files asks for about so much at once.
CACHE_BYTES = 30_000_000


@dataclass(frozen=True)
class Wanted:
    """What a job reads, as `[work.read]` has it."""

    pattern: str
    size_bytes: int
    mode: str = "single"
    fraction: float = 1.0
    event_bytes: int = 1_000_000
    vector_width: int = 1024
    seed: str = "1"
    trace: str | None = None
    branch_fraction: float = 1.0
    trigger_factor: int = 0

    def events(self) -> int:
        """How many events the job has: of a trace, requests."""
        if self.pattern in ("sequential", "random"):
            return round(self.fraction * (self.size_bytes // self.event_bytes))
        if self.pattern == "branches":
            return read_layout(self._trace()).entries
        return sum(1 for _ in read_trace(self._trace()))

    def steps(self) -> Iterator[Step]:
        """The steps in the order of the job."""
        if self.pattern in ("sequential", "random"):
            yield from self._event_steps()
        elif self.pattern == "trace":
            yield from self._trace_steps()
        elif self.pattern == "branches":
            yield from layout_steps(read_layout(self._trace()), self)
        else:
            raise ValueError(f"unknown pattern {self.pattern!r}")

    def _trace(self) -> str:
        if self.trace is None:
            raise ValueError(f"the pattern {self.pattern} needs a trace")
        return self.trace

    def _event_steps(self) -> Iterator[Step]:
        """Events of equal size: the first ones of the file, or any of them in any order, none twice."""
        there, wanted = self.size_bytes // self.event_bytes, self.events()
        order = range(wanted)
        if self.pattern == "random":
            order = random.Random(self.seed).sample(range(there), wanted)  # type: ignore[assignment]
        # Only a vector takes what is known beforehand; the other modes read as the job goes.
        width = self.vector_width if self.mode == "vector" else 1
        for first in range(0, wanted, width):
            numbers = order[first : first + width]
            yield [(number * self.event_bytes, self.event_bytes) for number in numbers], first + len(numbers)

    def _trace_steps(self) -> Iterator[Step]:
        """Recorded requests. In other modes than `vector` the elements of a vector are asked for one by one."""
        for done, request in enumerate(read_trace(self._trace()), 1):
            ranges = [(offset, min(length, self.size_bytes - offset)) for offset, length in request]
            if self.mode == "vector":
                for first in range(0, len(ranges), self.vector_width):
                    yield ranges[first : first + self.vector_width], done
            else:
                for one in ranges:
                    yield [one], done


def read_trace(path: str) -> Iterator[list[Range]]:
    """Requests of a recorded trace: rows `request,op,offset,length`, those of one vector with the same `request`."""
    with gzip.open(path, "rt", newline="") as file:
        current: str | None = None
        ranges: list[Range] = []
        for row in csv.DictReader(file):
            if row["request"] != current and ranges:
                yield ranges
                ranges = []
            current = row["request"]
            ranges.append((int(row["offset"]), int(row["length"])))
        if ranges:
            yield ranges


# --- Trees --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Basket:
    """Where some entries of a branch are in the file."""

    first_entry: int
    offset: int
    length: int


@dataclass(frozen=True)
class Layout:
    """A tree: its baskets by branch, how large each branch is uncompressed, and what a reader reads to open it."""

    entries: int
    branches: list[list[Basket]]
    uncompressed_bytes: list[int]
    opening: list[Range]


def read_layout(path: str) -> Layout:
    """Rows `kind,branch,first_entry,offset,length`: `open` of what opening reads, `branch` with the uncompressed size
    in `length` and the number of entries in `first_entry`, and `basket`, in the order of the file. A basket without an
    offset follows the one before it."""
    baskets: dict[int, list[Basket]] = {}
    sizes: dict[int, int] = {}
    opening: list[Range] = []
    entries = end = 0
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            branch, first, length = int(row["branch"]), int(row["first_entry"]), int(row["length"])
            offset = int(row["offset"]) if row["offset"] else end
            if row["kind"] == "open":
                opening.append((offset, length))
            elif row["kind"] == "branch":
                entries = max(entries, first)
                sizes[branch] = length
            else:
                baskets.setdefault(branch, []).append(Basket(first, offset, length))
                end = offset + length
    order = sorted(sizes)
    return Layout(
        entries,
        [sorted(baskets.get(branch, []), key=lambda basket: basket.first_entry) for branch in order],
        [sizes[branch] for branch in order],
        opening,
    )


def write_layout(layout: Layout, path: str) -> None:
    """The inverse of `read_layout`. The same layout gives the same bytes."""
    rows = ["kind,branch,first_entry,offset,length"]
    rows += [f"open,-1,0,{offset},{length}" for offset, length in layout.opening]
    rows += [f"branch,{number},{layout.entries},0,{size}" for number, size in enumerate(layout.uncompressed_bytes)]
    ordered = sorted(
        (basket.offset, number, basket) for number, baskets in enumerate(layout.branches) for basket in baskets
    )
    end = -1
    for offset, number, basket in ordered:
        rows.append(f"basket,{number},{basket.first_entry},{'' if offset == end else offset},{basket.length}")
        end = offset + basket.length
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as file:
        file.write("\n".join([*rows, ""]).encode())


def select(layout: Layout, fraction: float) -> set[int]:
    """The branches that IOExerciser reads by default: the smallest first by uncompressed size, as long as what was
    taken so far is below the fraction of all. So the last one passes it."""
    total, taken, chosen = sum(layout.uncompressed_bytes), 0, set()
    for branch in sorted(range(len(layout.branches)), key=lambda one: (layout.uncompressed_bytes[one], one)):
        if taken >= fraction * total:
            break
        chosen.add(branch)
        taken += layout.uncompressed_bytes[branch]
    return chosen


def touches(layout: Layout, wanted: Wanted) -> list[tuple[int, bool, int, Range]]:
    """When each basket that is needed is needed first: (entry, whether by a trigger event, branch, range).

    A branch keeps the basket that it read last, and entries only go up, so no basket is read twice. Every
    `trigger_factor`-th event needs all branches."""
    chosen, factor = select(layout, wanted.branch_fraction), wanted.trigger_factor
    found = []
    for branch, baskets in enumerate(layout.branches):
        firsts = [basket.first_entry for basket in baskets]
        for number, basket in enumerate(baskets):
            entry, is_trigger = basket.first_entry, branch not in chosen
            if is_trigger:
                if factor <= 0:
                    continue
                # The events factor - 1, 2 · factor - 1, …
                entry = (basket.first_entry // factor + 1) * factor - 1
                end = firsts[number + 1] if number + 1 < len(firsts) else layout.entries
                if entry >= end:
                    continue
            found.append((entry, is_trigger, branch, (basket.offset, basket.length)))
    return sorted(found)


def layout_steps(layout: Layout, wanted: Wanted) -> Iterator[Step]:
    """Opening, then baskets as they are needed. With `vector` as with a cache that knows the branches: those of the
    selected ones in vectors of `CACHE_BYTES`, the others of each trigger event in one vector, as CMSSW does."""
    for one in layout.opening:
        yield [one], 0
    needed = touches(layout, wanted)
    if wanted.mode != "vector":
        for entry, _, _, one in needed:
            yield [one], entry
        yield [], layout.entries
        return
    groups: list[tuple[int, list[Range]]] = []
    size = 0
    for entry, is_trigger, _, one in needed:
        if is_trigger:
            continue
        if not groups or size + one[1] > CACHE_BYTES:
            groups.append((entry, []))
            size = 0
        groups[-1][1].append(one)
        size += one[1]
    triggers: dict[int, list[Range]] = {}
    for entry, is_trigger, _, one in needed:
        if is_trigger:
            triggers.setdefault(entry, []).append(one)
    for entry, ranges in sorted([*groups, *triggers.items()], key=lambda group: group[0]):
        for first in range(0, len(ranges), wanted.vector_width):
            yield sorted(ranges[first : first + wanted.vector_width]), entry
    yield [], layout.entries


def covering(parts: list[tuple[int, bytes]], wanted: Range) -> bytes | None:
    """A range out of parts that are sorted by offset; None when none of them has all of it."""
    offset, length = wanted
    index = bisect_right(parts, offset, key=lambda part: part[0]) - 1
    while index >= 0:
        start, data = parts[index]
        if start <= offset and offset + length <= start + len(data):
            return data[offset - start : offset - start + length]
        index -= 1
    return None
