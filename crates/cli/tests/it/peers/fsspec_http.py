"""fsspec's file system over HTTP, which reads pages of links, against a server's listings.

Usage: fsspec_http.py URL, that of a directory with `a 1.root`, `b:2.root`, `c.txt` and `sub/d.root`.
Says "all of it" when all of it was right.
"""

import sys

import fsspec

base = sys.argv[1].rstrip("/")
fs = fsspec.filesystem("http")


def check(found, expected, what):
    expected = sorted(f"{base}/{name}" for name in expected)
    if sorted(found) != expected:
        sys.exit(f"{what}: {sorted(found)} instead of {expected}")


top = ["a%201.root", "b%3A2.root", "c.txt", "sub/"]
check(fs.ls(base + "/", detail=False), top, "ls")
check(fs.glob(base + "/*.root"), top[:2], "glob")
check(fs.glob(base + "/sub/*"), ["sub/d.root"], "glob below")
check(fs.find(base + "/"), top[:3] + ["sub/d.root"], "find")
if fs.cat(f"{base}/b%3A2.root") != b"b" or fs.cat(f"{base}/sub/d.root") != b"d":
    sys.exit("other bytes")
print("all of it")
