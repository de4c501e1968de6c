"""Removes a tree by fsspec-xrootd: URL of the server's root, path."""

import sys

from fsspec_xrootd import XRootDFileSystem

url, path = sys.argv[1:]
files = XRootDFileSystem(hostid=url.split("//")[1])
assert files.isdir(path), path
files.rm(path, recursive=True)
files.invalidate_cache()
assert not files.exists(path), path
print("removed")
