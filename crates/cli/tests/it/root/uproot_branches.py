"""Reads a file of ROOT's format by branch over root:// and compares with the local copy.

Usage: uproot_branches.py FILE URL... Says "all of it" when all of it was right.
"""

import os
import sys

import awkward
import fsspec
import numpy
import uproot


def compare(local, url):
    with uproot.open(local) as here, uproot.open(url) as there:
        assert "FSSpec" in type(there.file.source).__name__, there.file.source
        assert here.keys() == there.keys()
        here, there = here["events"], there["events"]
        assert here.num_entries == there.num_entries == 2421
        # One branch at a time, as in a first look; then all of them in one go.
        for name in ("NJet", "Muon_Px", "MET_px"):
            assert awkward.array_equal(here[name].array(), there[name].array()), name
        assert numpy.array_equal(
            there["NJet"].array(library="np", entry_start=1000, entry_stop=1500),
            here["NJet"].array(library="np")[1000:1500],
        )
        ours, theirs = here.arrays(), there.arrays()
        assert len(ours.fields) == 51 and ours.fields == theirs.fields
        for name in ours.fields:
            assert awkward.array_equal(ours[name], theirs[name]), name
        steps = list(there.iterate(["Muon_Px", "Muon_Py"], step_size=500))
        assert awkward.array_equal(awkward.concatenate(steps)["Muon_Px"], ours["Muon_Px"])


def file_system(local, url):
    """fsspec, on which dask, pandas and others sit too."""
    fs, path = fsspec.core.url_to_fs(url)
    content = open(local, "rb").read()
    assert fs.info(path)["size"] == len(content)
    assert [entry["size"] for entry in fs.ls(os.path.dirname(path), detail=True)] == [len(content)]
    with fs.open(path, "rb") as file:
        file.seek(-100, 2)
        assert file.read() == content[-100:]
    ranges = fs.cat_ranges([path] * 3, [0, 5000, 100], [10, 5100, 1100])
    assert ranges == [content[0:10], content[5000:5100], content[100:1100]]
    with fs.open(path + ".new", "wb") as file:
        file.write(content)
    with fs.open(path + ".new", "rb") as file:
        assert file.read() == content
    fs.rm_file(path + ".new")
    assert not fs.exists(path + ".new")


def main():
    local, *urls = sys.argv[1:]
    for url in urls:
        compare(local, url)
        file_system(local, url)
    print("all of it", flush=True)
    # At the end the library's threads sometimes wait for each other.
    os._exit(0)


main()
