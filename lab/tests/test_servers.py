"""Every server of the lab, started as it would be at a site: ready, serving, taking files, counted, and gone."""

import subprocess
import time

import pytest
from laboratory import Lab

from gridlane_lab import endpoint_files, processes, registry
from gridlane_lab.driver import Export
from gridlane_lab.errors import LabError
from gridlane_lab.identity import Identity
from gridlane_lab.record import Status
from gridlane_lab.sites import Place

CONTENT = b"gridlane" * 40_000

# Server, protocol, and the commands that fetch and store.
CURL = ["curl", "-sf", "--cacert", "{ca}"]
ROOT = ["xrdcp", "-s", "-f"]
GLOBUS = ["globus-url-copy", "-nodcau"]
CASES = [
    ("gridlane", "http", CURL),
    ("gridlane", "https", CURL),
    ("gridlane", "root", ROOT),
    ("nginx", "http", CURL),
    ("nginx", "https", CURL),
    ("apache", "http", CURL),
    ("apache", "https", CURL),
    ("xrootd", "root", ROOT),
    ("xrootd", "http", CURL),
    ("xrootd", "https", CURL),
    ("gridftp", "gsiftp", GLOBUS),
]


@pytest.fixture
def offered(tmp_path, gridlane, monkeypatch):
    monkeypatch.setenv("GRIDLANE_LAB_BINARY", str(gridlane))
    registry.load()
    # Servers work as users of their own, and pytest's directories are its user's only.
    for path in (tmp_path, *list(tmp_path.parents)[:2]):
        path.chmod(0o755)
    identity = Identity(tmp_path / "identity", ["localhost", "127.0.0.1"])
    export, scratch = tmp_path / "export", tmp_path / "scratch"
    (export / "put").mkdir(parents=True)
    (export / "put").chmod(0o1777)
    scratch.mkdir()
    (export / "file").write_bytes(CONTENT)
    return Export(export, True, identity.certificate, identity.key, identity.authority, scratch)


def start(name, offered, flags=(), options=None):
    server = registry.server(name).start(
        Place("near", "127.0.0.1", False, ("127.0.0.1",)), offered, flags, options or {}
    )
    limit = time.monotonic() + 30
    while (trouble := server.trouble()) is not None:
        if time.monotonic() > limit or server.process.poll() is not None:
            server.stop()
            raise AssertionError(trouble)
        time.sleep(0.02)
    return server


@pytest.mark.parametrize(
    ("name", "protocol", "command"), CASES, ids=[f"{name}-{protocol}" for name, protocol, _ in CASES]
)
def test_a_server_serves_and_takes_files(name, protocol, command, offered, tmp_path):
    assert registry.server(name).availability().is_there, registry.server(name).availability().reason
    assert registry.server(name).availability().version
    server = start(name, offered)
    try:
        words = [word.format(ca=offered.authority_file) for word in command]
        source, target = f"{server.urls[protocol]}file", f"{server.urls[protocol]}put/new"
        local = tmp_path / "local"
        if command is CURL:
            transfers = [[*words, "-o", local, source], [*words, "-T", local, target]]
        else:
            prefix = "file://" if command is GLOBUS else ""
            transfers = [[*words, source, f"{prefix}{local}"], [*words, f"{prefix}{local}", target]]
        for words in transfers:
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, (words, done.stderr, server.log_tail())
        assert local.read_bytes() == CONTENT and (offered.directory / "put/new").read_bytes() == CONTENT
        assert server.cpu_s() > 0 and server.peak_memory_bytes() > 1_000_000
        used, pids = server.cpu_s(), [pid for pid, _ in processes.descendants(server.pid)]
        server.kill()
        assert server.trouble() and server.cpu_s() >= used
        server.restart()
        limit = time.monotonic() + 30
        while server.trouble() is not None:
            assert time.monotonic() < limit, server.log_tail()
            time.sleep(0.02)
        pids += [server.pid, *(pid for pid, _ in processes.descendants(server.pid))]
    finally:
        server.stop()
        server.stop()
    assert not [pid for pid in pids if processes.start_ticks(pid) is not None and processes.children(pid)]
    assert server.process.poll() is not None


def test_a_server_that_ends_says_why(offered):
    server = registry.server("gridlane").start(
        Place("near", "127.0.0.1", False, ("127.0.0.1",)), offered, ["--no-such-option"], {}
    )
    server.process.wait(20)
    assert "--no-such-option" in server.trouble()
    server.stop()


def test_options_that_no_server_has(offered):
    with pytest.raises(LabError, match="colour"):
        start("nginx", offered, options={"colour": "red"})


ENDPOINTS = """
schema = 1
name = "endpoints"
question = "Do real endpoints work?"
endpoint = [{{ name = "near", urls = ["{url}"], rate_bits_per_s = "100Gb/s", round_trip_ms = 0.1 }}]
[data]
file = [{{ name = "small", size_bytes = "300kB", count = 2 }}]
[[tool]]
name = "curl"
driver = "curl"
[work]
kind = "copy"
file = "small"
protocol = "http"
source_sites = ["near"]
[matrix]
blocks = 1
[matrix.factors]
kind = ["copy", "upload"]
"""


def test_real_endpoints(offered, tmp_path, gridlane):
    server = start("gridlane", offered)
    try:
        lab = Lab(tmp_path, ENDPOINTS.format(url=server.urls["http"]), gridlane)
        assert endpoint_files.place(lab.whole, lab.cells, gridlane, print) == 2
        lab.run()
        for run in lab.runs():
            transfers = lab.transfers(run)
            assert run.status is Status.OK and run.backend == "loopback", run
            assert [row.bytes_verified for row in transfers] == [300_000] * 2
            assert all(row.verified_by == "runner" and row.compare_s > 0 for row in transfers)
        # What was uploaded is removed when it has been compared.
        assert len(list((offered.directory / "gridlane-lab-endpoints").iterdir())) == 2
        assert endpoint_files.remove(lab.whole, lab.cells, gridlane, print) == 2
    finally:
        server.stop()


def test_ports_at_one_place_differ():
    place = Place("near", "near", True, ("198.18.0.2",))
    assert [place.port(443), place.port(443), place.port(80)] == [443, 1443, 80]
