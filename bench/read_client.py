"""One job of a Python client, run by the interpreter that has the client: reads, and says what it took.

    PYTHON read_client.py [--check] [--warm] JOB CLIENT URL [FILE]

`JOB` is `ranges` (all ranges of the trace FILE, known beforehand, in calls of the client's kind), `cat-ranges` (the same
through fsspec), `stream` (the whole file through a file object) or `tree` (the branches of the tree `Events` whose names FILE
has, one a line); or `branches`, which prints names for that, so many of the file at URL as FILE says. `CLIENT` is `gridlane`, `pyxrootd`, `fsspec` or `memory`.

Prints one line of JSON: `seconds` and `cpu_s` (all threads) of the work, from before the file is opened to the last byte
(of `--warm`: of a second call, of the ranges in `FILE.second`); start and imports of Python are not in it. `--check` adds the
Adler-32 of what was read. Nothing but the standard library and the client is used: interpreters differ.
"""

import argparse
import json
import resource
import sys
import time
import zlib

# A vector of xrootd has no more elements.
VECTOR_ELEMENTS = 1024
# What a program asks a file object for.
PIECE_BYTES = 1 << 20


class Clock:
    """Time and CPU time from its making on."""

    def __init__(self):
        self._cpu_s, self._began = cpu_s(), time.perf_counter()

    def stop(self):
        return {"seconds": time.perf_counter() - self._began, "cpu_s": cpu_s() - self._cpu_s}


def cpu_s():
    """CPU time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def ranges_of(path):
    """The ranges of a trace, in order, as (offset, length)."""
    with open(path) as file:
        lines = file.read().split("\n")[1:]
    return [tuple(map(int, line.split(",")[2:4])) for line in lines if line]


def must(status):
    if not status.ok:
        sys.exit(f"pyxrootd: {status.message}")


# --- Jobs: each gives what it took, and the pieces that it has read ------------------------------------------------


def ranges(given):
    works = [ranges_of(name) for name in given.files]
    if given.client == "gridlane":
        import gridlane

        clock = Clock()
        file = gridlane.open(given.url, memory=given.memory)
        read = lambda wanted: file.readv(wanted, copy=False)  # noqa: E731
    else:
        from XRootD import client
        from XRootD.client.flags import OpenFlags

        clock = Clock()
        file = client.File()
        must(file.open(given.url, OpenFlags.READ)[0])
        read = lambda wanted: vectors(file, wanted)  # noqa: E731
    found = read(works[0])
    for wanted in works[1:]:
        clock = Clock()
        found = read(wanted)
    return clock.stop(), found


def vectors(file, wanted):
    """One vector after the other, each waited for."""
    found = []
    for at in range(0, len(wanted), VECTOR_ELEMENTS):
        status, vector = file.vector_read(wanted[at : at + VECTOR_ELEMENTS])
        must(status)
        found += [chunk.buffer for chunk in vector.chunks]
    return found


def filesystem(given):
    """The filesystem of a client for a URL, and the path in it."""
    import fsspec

    scheme, _, rest = given.url.partition("://")
    host, _, path = rest.partition("/")
    if given.client == "gridlane":
        import gridlane.fsspec

        if scheme == "root":
            return gridlane.fsspec.RootFileSystem(hostid=host, memory=given.memory), "/" + path.lstrip("/")
        return gridlane.fsspec.HttpFileSystem(memory=given.memory), given.url
    if scheme == "root":
        return fsspec.filesystem("root", hostid=host), "/" + path.lstrip("/")
    return fsspec.filesystem(scheme), given.url


def cat_ranges(given):
    wanted = ranges_of(given.files[0])
    starts = [offset for offset, _ in wanted]
    ends = [offset + length for offset, length in wanted]
    # The modules.
    filesystem(given)
    clock = Clock()
    at, path = filesystem(given)
    found = at.cat_ranges([path] * len(wanted), starts, ends, on_error="raise")
    return clock.stop(), found


def stream(given):
    """The pieces are not kept: their number of bytes and, to check, their Adler-32 is known when they are gone."""
    if given.client == "gridlane":
        import gridlane

        clock = Clock()
        file = gridlane.open(given.url)
    else:
        filesystem(given)
        clock = Clock()
        at, path = filesystem(given)
        file = at.open(path, "rb")
    count, digest = 0, 1
    with file:
        while piece := file.read(PIECE_BYTES):
            count += len(piece)
            digest = zlib.adler32(piece, digest) if given.check else digest
        took = clock.stop()
    return {**took, "bytes": count, "adler32": f"{digest:08x}"}, None


def tree(given):
    import uproot

    with open(given.files[0]) as file:
        names = file.read().split()
    if given.client == "gridlane":
        import gridlane.uproot

        handler = gridlane.uproot.Source
    else:
        handler = {
            "pyxrootd": uproot.source.xrootd.XRootDSource,
            "fsspec": uproot.source.fsspec.FSSpecSource,
            # A mapping of a file in memory.
            "memory": uproot.source.file.MemmapSource,
        }[given.client]
    # What is imported when it is needed first.
    if given.client == "pyxrootd":
        import XRootD.client  # noqa: F401
    elif given.client == "fsspec":
        import fsspec

        fsspec.get_filesystem_class(given.url.partition("://")[0])
    clock = Clock()
    with uproot.open(given.url, handler=handler) as file:
        arrays = file["Events"].arrays(names, library="np")
    took = clock.stop()
    return took, [arrays[name].tobytes() for name in sorted(names)]


def branches(given):
    """Prints the names of the branches of plain numbers that have most bytes: those that are worth reading alone."""
    import uproot

    with uproot.open(given.url) as file:
        plain = [branch for branch in file["Events"].branches if isinstance(branch.interpretation, uproot.AsDtype)]
    plain.sort(key=lambda branch: (-branch.compressed_bytes, branch.name))
    print("\n".join(branch.name for branch in plain[: int(given.file)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--memory", type=int, default=1_200_000_000)
    for word in ("job", "client", "url"):
        parser.add_argument(word)
    parser.add_argument("file", nargs="?", default="")
    given = parser.parse_args()
    if given.job == "branches":
        return branches(given)
    given.files = [given.file, *([f"{given.file}.second"] if given.warm else [])]
    took, found = {"ranges": ranges, "cat-ranges": cat_ranges, "stream": stream, "tree": tree}[given.job](given)
    if found is not None:
        digest = 1
        for piece in found if given.check else ():
            digest = zlib.adler32(piece, digest)
        took = {**took, "bytes": sum(map(len, found)), "adler32": f"{digest:08x}"}
    if not given.check:
        took["adler32"] = None
    print(json.dumps({"type": "run", **took}), flush=True)


if __name__ == "__main__":
    main()
