"""uproot's own tests of files that are far away, with its sources and filesystems replaced by this package's: see `uproots_own`."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import uproot
from conftest import Serve, data_directory

# Modules, and tests in them that are about something else.
MODULES = [
    "test_0001_source_class.py",
    "test_0006_notify_when_downloaded.py",
    "test_0007_single_chunk_interface.py",
    "test_0066_fix_http_fallback_freeze.py",
    "test_0302_pickle.py",
    "test_0692_fsspec_reading.py",
]
LEFT_OUT = {
    # S3, ssh, and a server on the internet that has no other name here.
    "s3",
    "ssh",
    "github",
    "test_fsspec_globbing_http",
    # Files of this machine, by sources of uproot's: not read by this package, and some are not in the data.
    "test_pickle_roundtrip_local",
    "test_issue_1035",
    "test_issue_1054",
    # That a source says nothing of a host which is not there before the first read. This one says it at once.
    "test_0001_source_class.py and test_http_fail",
    "test_no_multipart_fail",
    # The number of entries of a file on the internet.
    "test_pickle_roundtrip_xrootd",
    # Which class uproot takes for a URL.
    "test_default_source",
}
# What is in real files.
OF_REAL_FILES = {"test_fsspec_chunks", "test_pickle_roundtrip_http"}


@pytest.fixture
def files(tmp_path) -> pathlib.Path:
    """What the tests ask for, from here and from the internet."""
    found = tmp_path / "files"
    (found / "written").mkdir(parents=True)
    for name in ("uproot-issue121.root", "uproot-Zmumu.root", "uproot-HZZ.root"):
        shutil.copy(data_directory() / "root" / name, found / name)
    for name in ("Zmumu.root", "HZZ.root"):
        shutil.copy(found / f"uproot-{name}", found / name)
    # As large as the one that they look at, with the column of it that they read.
    with uproot.recreate(found / "Run2012B_DoubleMuParked.root") as file:
        made = file.mktree("Events", {"run": "i4"})
        made.extend({"run": numpy.full(10_000, 194778, dtype="i4")})
    os.truncate(found / "Run2012B_DoubleMuParked.root", 3_469_136_394)
    return found


def test_they_pass(files, home, tmp_path):
    source = pathlib.Path(os.environ.get("GRIDLANE_UPROOT_SOURCE", "/nonexistent"))
    assert (source / "tests").is_dir(), "uproot's tests are missing: scripts/bootstrap.sh --test"
    serve = Serve(files, home)
    env = dict(
        os.environ,
        GRIDLANE_UPROOT_HTTP=serve.urls["http"].rstrip("/"),
        GRIDLANE_UPROOT_ROOT=serve.urls["root"],
        GRIDLANE_UPROOT_FILES=str(files),
        PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]),
    )
    left_out = LEFT_OUT | (OF_REAL_FILES if "standins" in str(data_directory()) else set())
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "uproots_own",
        "--noconftest",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), "--timeout", "100", "--durations=8"]
    command += ["-k", " and ".join(f"not ({each})" for each in sorted(left_out))]
    command += [str(source / "tests" / name) for name in MODULES]
    try:
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    finally:
        serve.stop()
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    print(done.stdout)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed.group(1)) > 60, done.stdout
