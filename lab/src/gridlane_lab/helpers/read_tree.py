"""Reads branches of a TTree with uproot, the way that IOExerciser does: the smallest branches up to a part of all bytes
for every event, and all branches for every n-th event. Baskets are decompressed: time is input and decompression.

uproot opens the file through the same reads and policies that carry the baskets, so opening costs what it costs.
"""

from __future__ import annotations

import lzma
import sys
import zlib
from typing import Any

import jobs
import uproot
from ranges import Basket, Layout, layout_steps, write_layout
from transports import Policy

_TREES = ("Events", "E", "test", "tree")


def main() -> int:
    """Runs the job of the command line."""
    parser = jobs.remote_options(__doc__)
    parser.add_argument("--tree", help="its name; default: the first of the usual ones")
    parser.add_argument("--layout-to", help="write where the baskets are to this file, and read nothing else")
    given = parser.parse_args()

    def work(job: jobs.Job) -> Policy:
        with job.reading(given) as policy:
            tree, opening = open_tree(policy, given.size_bytes, given.tree)
            layout = layout_of(tree, opening)
            job.facts["tree_s"] = job.seconds()
            if given.layout_to:
                write_layout(layout, given.layout_to)
            else:
                # What opening reads has been read.
                without = Layout(layout.entries, layout.branches, layout.uncompressed_bytes, [])
                job.run(layout_steps(without, jobs.wanted_of(given)), policy, decompressed)
        return policy

    return jobs.Job().main(work)


class _Here:
    """A file for uproot: seeks cost nothing, reads go through the policy."""

    def __init__(self, policy: Policy, size: int) -> None:
        self._policy, self._size, self._at = policy, size, 0
        self.reads: list[tuple[int, int]] = []

    def read(self, count: int = -1) -> bytes:
        """From where it stands."""
        count = self._size - self._at if count < 0 else min(count, self._size - self._at)
        if count <= 0:
            return b""
        self.reads.append((self._at, count))
        (data,) = self._policy.step([(self._at, count)])
        self._at += count
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """As files have it."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Where it stands."""
        return self._at

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """The policy is closed by its owner."""


def open_tree(policy: Policy, size: int, name: str | None) -> tuple[Any, list[tuple[int, int]]]:
    """The tree, and what was read to open it."""
    here = _Here(policy, size)
    file = uproot.open(here)
    names = [name] if name else [one for one in _TREES if one in file]
    if not names or names[0] not in file:
        raise SystemExit(f"no tree is called {name or ' or '.join(_TREES)}; there are: {', '.join(file.keys())}")
    return file[names[0]], here.reads


def layout_of(tree: Any, opening: list[tuple[int, int]]) -> Layout:
    """Where the baskets of all branches are. Those within the tree's header need no read."""
    branches, sizes = [], []
    for _, branch in tree.iteritems(recursive=True):
        count = int(branch.member("fWriteBasket"))
        seeks, lengths = branch.member("fBasketSeek"), branch.member("fBasketBytes")
        entries = branch.member("fBasketEntry")
        baskets = [
            Basket(int(entries[number]), int(seeks[number]), int(lengths[number]))
            for number in range(count)
            if seeks[number] and lengths[number]
        ]
        branches.append(baskets)
        sizes.append(int(branch.member("fTotBytes")))
    return Layout(int(tree.num_entries), branches, sizes, opening)


def decompressed(basket: bytes) -> int:
    """Decompresses one basket; the bytes that it holds."""
    object_bytes = int.from_bytes(basket[6:10], "big")
    at = int.from_bytes(basket[14:16], "big")
    if len(basket) - at == object_bytes:
        return object_bytes
    total = 0
    while at + 9 <= len(basket):
        method = basket[at : at + 2]
        packed = int.from_bytes(basket[at + 3 : at + 6], "little")
        block = basket[at + 9 : at + 9 + packed]
        if method == b"ZL":
            total += len(zlib.decompress(block))
        elif method == b"XZ":
            total += len(lzma.decompress(block))
        elif method == b"L4":
            import lz4.block

            # A checksum of eight bytes stands in front.
            size = int.from_bytes(basket[at + 6 : at + 9], "little")
            total += len(lz4.block.decompress(block[8:], uncompressed_size=size))
        elif method == b"ZS":
            import cramjam

            total += len(bytes(cramjam.zstd.decompress(block)))
        else:
            raise SystemExit(f"a basket is compressed with {method!r}, which is not known")
        at += 9 + packed
    return total


if __name__ == "__main__":
    sys.exit(main())
