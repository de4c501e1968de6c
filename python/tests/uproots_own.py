"""A plugin of pytest for uproot's own tests of files that are far away, in place of their conftest: all they read comes through gridlane.

uproot's sources of HTTP and of root:// are the handler, the filesystems of fsspec for `http`, `https` and `root` are those of this
package, and what the tests want of servers on the internet is asked of the server that `GRIDLANE_UPROOT_HTTP` and `GRIDLANE_UPROOT_ROOT`
name; `GRIDLANE_UPROOT_FILES` is its directory.
"""

import os
import pathlib
import sys
import types

import pytest
import uproot
import uproot.source.http
import uproot.source.xrootd

import gridlane.fsspec
import gridlane.uproot

HTTP = os.environ["GRIDLANE_UPROOT_HTTP"]
ROOT = os.environ["GRIDLANE_UPROOT_ROOT"]
FILES = pathlib.Path(os.environ["GRIDLANE_UPROOT_FILES"])


def here(url: str) -> str:
    """The same file on the server of the tests; hosts that are not there stay."""
    for place, base in [
        ("root://eospublic.cern.ch//eos/root-eos/cms_opendata_2012_nanoaod/", f"{ROOT}/"),
        ("https://scikit-hep.org:443/uproot3/examples/", f"{HTTP}/"),
        ("https://scikit-hep.org/uproot3/examples/", f"{HTTP}/"),
        ("http://scikit-hep.org/uproot3/examples/", f"{HTTP}/"),
    ]:
        if url.startswith(place):
            return base + url[len(place) :]
    return url


class Source(gridlane.uproot.Source):
    """The handler, with the options that uproot's own sources have."""

    made = 0
    fallback = None

    def __init__(self, file_path, **options):
        for name in ("num_workers", "num_fallback_workers", "use_threads", "max_num_elements"):
            options.pop(name, None)
        Source.made += 1
        super().__init__(here(file_path), **options)


for module, name in [
    (uproot.source.http, "HTTPSource"),
    (uproot.source.http, "MultithreadedHTTPSource"),
    (uproot.source.xrootd, "XRootDSource"),
    (uproot.source.xrootd, "MultithreadedXRootDSource"),
]:
    setattr(module, name, Source)
gridlane.fsspec.register(clobber=True)

_open = uproot.reading.open
_iterate = uproot.behaviors.TBranch.iterate


def _moved(files):
    if isinstance(files, dict):
        return {_moved(url): inside for url, inside in files.items()}
    if isinstance(files, list):
        return [_moved(each) for each in files]
    return here(files) if isinstance(files, str) else files


def _open_here(path, *args, **options):
    return _open(_moved(path), *args, **options)


def _iterate_here(files, *args, **options):
    return _iterate(_moved(files), *args, **options)


_open_here.defaults = _open.defaults
uproot.open = _open_here
uproot.iterate = _iterate_here

# What they look for before they try root://.
for name in ("XRootD", "fsspec_xrootd"):
    sys.modules[name] = types.ModuleType(name)
# Where they have their files from.
sys.modules["skhep_testdata"] = types.ModuleType("skhep_testdata")
sys.modules["skhep_testdata"].data_path = lambda name: str(FILES / name)


@pytest.fixture(scope="session")
def http_server():
    return HTTP


@pytest.fixture(scope="session")
def xrootd_server():
    return f"{ROOT}/written", str(FILES / "written")


def pytest_configure(config):
    for mark in ("network", "xrootd"):
        config.addinivalue_line("markers", f"{mark}: of uproot's")


def pytest_sessionfinish():
    assert Source.made > 10, "uproot's sources were not replaced"
