"""The programs that read: their jobs, their policies over a server of this process, and their JSON lines."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tasks

import gridlane_lab.drivers  # noqa: F401
from gridlane_lab import registry
from gridlane_lab.driver import Output
from gridlane_lab.drivers.common import HELPERS
from gridlane_lab.helpers import ranges
from gridlane_lab.helpers.ranges import Basket, Layout, Wanted
from gridlane_lab.reading import TRACES, needed_bytes, trace_names

sys.path.insert(0, str(HELPERS))
import transports

CONTENT = random.Random(1).randbytes(1_000_000)


class Server(BaseHTTPRequestHandler):
    """Ranges as servers answer them. `behaviour` of the server object makes it one of the odd ones."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle(self) -> None:
        # Clients leave when they have heard enough.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        self.server.requests += 1
        behaviour = self.server.behaviour
        asked = [(int(a), int(b)) for a, b in re.findall(r"(\d+)-(\d+)", self.headers["Range"] or "")]
        if behaviour == "closes" and self.server.requests % 3 == 0:
            self.close_connection = True
            self.connection.close()
            return
        if self.path == "/absent":
            self.answer(404, b"")
        elif behaviour == "endless":
            self.send_response(206)
            self.send_header("Content-Range", "bytes 0-999/1000")
            self.end_headers()
            self.close_connection = True
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(CONTENT)
        elif behaviour == "huge":
            self.answer(206, CONTENT, "bytes 0-999999/1000000")
        elif not asked or behaviour == "ignores" or (behaviour == "limits" and len(asked) > 3):
            self.answer(200, CONTENT)
        elif len(asked) == 1 or behaviour == "first only":
            first, last = asked[0]
            self.answer(206, CONTENT[first : last + 1], f"bytes {first}-{last}/{len(CONTENT)}")
        else:
            body = b""
            for first, last in asked:
                content_range = f"bytes {first}-{last}/{len(CONTENT)}"
                body += f"\r\n--sep\r\nContent-Type: x/y\r\nContent-Range: {content_range}\r\n\r\n".encode()
                body += CONTENT[first : last + 1]
            self.answer(206, body + b"\r\n--sep--\r\n", kind="multipart/byteranges; boundary=sep")

    def answer(self, status: int, body: bytes, content_range: str = "", kind: str = "application/octet-stream") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", kind)
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    found.daemon_threads = True
    found.behaviour, found.requests = "", 0
    threading.Thread(target=lambda: found.serve_forever(0.01), daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def url(server: ThreadingHTTPServer, name: str = "file") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/{name}"


# --- Jobs -------------------------------------------------------------------------------------------------


def flat(wanted: Wanted) -> list[tuple[int, int]]:
    return [one for step, _ in wanted.steps() for one in step]


def test_events_are_those_of_the_fraction():
    sequential = Wanted("sequential", 10_000, fraction=0.3, event_bytes=1000)
    assert flat(sequential) == [(0, 1000), (1000, 1000), (2000, 1000)] and sequential.events() == 3
    drawn = Wanted("random", 1_000_000, fraction=0.1, event_bytes=1000, seed="a")
    assert len(set(flat(drawn))) == 100 == drawn.events()
    assert flat(drawn) == flat(Wanted("random", 1_000_000, fraction=0.1, event_bytes=1000, seed="a"))
    assert flat(drawn) != flat(Wanted("random", 1_000_000, fraction=0.1, event_bytes=1000, seed="b"))
    assert sorted(flat(Wanted("random", 10_000, fraction=1.0, event_bytes=1000))) == [
        (n, 1000) for n in range(0, 10_000, 1000)
    ]


def test_a_vector_has_many_events_and_the_same_bytes():
    one = Wanted("random", 1_000_000, fraction=0.1, event_bytes=1000)
    many = Wanted("random", 1_000_000, fraction=0.1, event_bytes=1000, mode="vector", vector_width=64)
    assert [len(step) for step, _ in many.steps()] == [64, 36]
    assert [events for _, events in many.steps()] == [64, 100]
    assert flat(one) == flat(many)


def test_traces_that_come_along():
    assert trace_names()
    # The figures of traces/README.md.
    for name, requests, elements in (
        ("root640_ttree_40br_defaultcache", 6, 720),
        ("root640_ioex10pct_trig20_nocache_10kev", 3728, 3728),
        ("uproot577_fsspec_40br", 8, 377),
    ):
        wanted = Wanted("trace", 212_335_314, mode="vector", trace=str(TRACES / f"{name}.csv.gz"), vector_width=10_000)
        steps = list(wanted.steps())
        assert (len(steps), sum(len(step) for step, _ in steps)) == (requests, elements), name
        assert wanted.events() == requests
        one_by_one = Wanted("trace", 212_335_314, trace=str(TRACES / f"{name}.csv.gz"))
        assert [len(step) for step, _ in one_by_one.steps()] == [1] * elements and one_by_one.events() == requests
        assert all(offset + length <= 212_335_314 for step, _ in steps for offset, length in step)


def test_bytes_that_a_job_needs_count_once(tmp_path):
    trace = tmp_path / "trace.csv.gz"
    with gzip.open(trace, "wt") as file:
        file.write("request,op,offset,length\n0,readv,0,100\n0,readv,50,100\n1,read,60,10\n2,read,1000,5\n")
    for mode in ("single", "vector"):
        assert needed_bytes(Wanted("trace", 2000, mode=mode, trace=str(trace))) == 155
    assert needed_bytes(Wanted("random", 1_000_000, fraction=0.1, event_bytes=1000)) == 100_000
    layout = tmp_path / "layout.csv.gz"
    ranges.write_layout(small_layout(), str(layout))
    # Opening; the two small branches; and with all events all that there is.
    some = Wanted("branches", 20_000, trace=str(layout), branch_fraction=0.1)
    assert needed_bytes(some) == 320 + 40
    assert needed_bytes(replace(some, trigger_factor=1)) == needed_bytes(replace(some, branch_fraction=1.0)) == 1360


def small_layout() -> Layout:
    """Three branches of 100 entries; the last is the largest."""
    branches = [
        [Basket(0, 1000, 10), Basket(50, 2000, 10)],
        [Basket(0, 3000, 10), Basket(60, 4000, 10)],
        [Basket(first, 10_000 + first * 10, 100) for first in range(0, 100, 10)],
    ]
    return Layout(100, branches, [40, 60, 900], [(0, 300), (500, 20)])


def test_a_layout_survives_its_file(tmp_path):
    ranges.write_layout(small_layout(), str(tmp_path / "layout.csv.gz"))
    assert ranges.read_layout(str(tmp_path / "layout.csv.gz")) == small_layout()
    again = (tmp_path / "layout.csv.gz").read_bytes()
    ranges.write_layout(small_layout(), str(tmp_path / "layout.csv.gz"))
    assert (tmp_path / "layout.csv.gz").read_bytes() == again


def test_branches_are_the_smallest_first():
    layout = small_layout()
    assert ranges.select(layout, 0.0) == set()
    assert ranges.select(layout, 0.03) == {0}
    # The last one passes the fraction, as in IOExerciser.
    assert ranges.select(layout, 0.05) == {0, 1}
    assert ranges.select(layout, 1.0) == {0, 1, 2}


def test_trigger_events_need_all_branches():
    layout = small_layout()
    without = Wanted("branches", 100_000, branch_fraction=0.05)
    assert [entry for entry, *_ in ranges.touches(layout, without)] == [0, 0, 50, 60]
    # The events 39 and 79: of the large branch two baskets of ten.
    with_triggers = Wanted("branches", 100_000, branch_fraction=0.05, trigger_factor=40)
    found = ranges.touches(layout, with_triggers)
    assert [(entry, branch) for entry, is_trigger, branch, _ in found if is_trigger] == [(39, 2), (79, 2)]
    assert [one[3] for one in found if one[1]] == [(10_300, 100), (10_700, 100)]
    everything = Wanted("branches", 100_000, branch_fraction=1.0, trigger_factor=1)
    assert len(ranges.touches(layout, everything)) == 14


def test_layouts_begin_with_opening(tmp_path):
    path = tmp_path / "layout.csv.gz"
    ranges.write_layout(small_layout(), str(path))
    single = list(Wanted("branches", 100_000, trace=str(path), branch_fraction=0.05).steps())
    assert [step for step, _ in single[:2]] == [[(0, 300)], [(500, 20)]] and single[-1] == ([], 100)
    vector = Wanted("branches", 100_000, mode="vector", trace=str(path), branch_fraction=0.05, trigger_factor=40)
    assert [len(step) for step, _ in vector.steps()] == [1, 1, 4, 1, 1, 0]
    assert vector.events() == 100


# --- Policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["", "limits", "first only", "closes", "ignores"])
@pytest.mark.parametrize("mode", ["single", "vector", "ahead", "lazy"])
def test_all_policies_read_the_same(server, mode, behaviour, tmp_path):
    server.behaviour = behaviour
    transport = transports.Http(url(server))
    policy = transports.policy_of(mode, transport, len(CONTENT), 50_000, 300_000, str(tmp_path))
    wanted = Wanted("random", len(CONTENT), fraction=0.02, event_bytes=1000, mode=mode, vector_width=8)

    def read_all() -> None:
        for step, _ in wanted.steps():
            for (offset, length), data in zip(step, policy.step(step), strict=True):
                assert data == CONTENT[offset : offset + length]

    if behaviour == "ignores":
        with pytest.raises(transports.ReadError, match="ignores ranges"):
            read_all()
    else:
        read_all()
    if behaviour == "closes" and mode == "single":
        assert transport.reconnects > 0
    policy.close()
    transport.close()


def test_reading_ahead_is_one_request_for_many_events(server):
    transport = transports.Http(url(server))
    policy = transports.Ahead(transport, len(CONTENT), 100_000)
    for offset in range(0, len(CONTENT), 1000):
        assert policy.step([(offset, 1000)]) == [CONTENT[offset : offset + 1000]]
    assert transport.requests <= 11 and transport.bytes_moved <= len(CONTENT) + 100_000
    policy.close()
    transport.close()


def test_lazy_segments_are_fetched_once(server, tmp_path):
    transport = transports.Http(url(server))
    policy = transports.Lazy(transport, len(CONTENT), 400_000, str(tmp_path))
    assert policy.step([(399_990, 20), (0, 5), (999_999, 1)]) == [CONTENT[399_990:400_010], CONTENT[:5], CONTENT[-1:]]
    assert transport.requests == 3 and transport.bytes_moved == len(CONTENT)
    policy.close()
    transport.close()


def test_vectors_are_one_request(server):
    transport = transports.Http(url(server))
    wanted = [(900_000, 10), (5, 10), (5, 10), (100, 50)]
    assert transport.read_vector(wanted) == [CONTENT[offset : offset + length] for offset, length in wanted]
    assert transport.requests == 1
    transport.close()


@pytest.mark.parametrize("behaviour", ["endless", "huge"])
def test_an_answer_that_is_much_too_long_is_not_read(server, behaviour, monkeypatch):
    monkeypatch.setattr(transports, "HTTP_SURPLUS_BYTES_MAX", 50_000)
    server.behaviour = behaviour
    http = transports.transport_of(url(server))
    with pytest.raises(transports.ReadError, match="the answer is longer than the ranges"):
        http.read(0, 1000)
    with pytest.raises(transports.ReadError, match="the answer is longer than the ranges"):
        http.read_vector([(0, 1000), (5000, 1000)])
    assert http.bytes_moved <= 3 * 60_000
    http.close()


def test_a_whole_file_is_not_read_for_a_range(server, monkeypatch):
    monkeypatch.setattr(transports, "HTTP_SURPLUS_BYTES_MAX", 50_000)
    server.behaviour = "ignores"
    http = transports.transport_of(url(server))
    with pytest.raises(transports.ReadError, match="the server ignores ranges"):
        http.read(0, 1000)
    assert http.bytes_moved == 0
    http.close()


def test_a_slow_disk_is_slow(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    disk = transports.LocalFile(str(tmp_path / "file"), 10e6)
    policy = transports.Policy(disk)
    for offset in range(0, 500_000, 1000):
        policy.step([(offset, 1000)])
    assert policy.wait_s > 0.045
    disk.close()


# --- Programs ---------------------------------------------------------------------------------------------


def run(tmp_path: Path, driver: str, work: dict, source: str, target: str = "", sent: bytes = CONTENT):
    """A driver's command, run; and what the driver reads of it."""
    original = tmp_path / "original"
    original.write_bytes(sent)
    one = tasks.task(driver, work, [source], target, tmp_path, original=original)
    command = registry.tool(driver).command(one)
    done = subprocess.run(command.argv, capture_output=True, text=True, check=False)
    (tmp_path / "out").write_text(done.stdout)
    (tmp_path / "err").write_text(done.stderr)
    events = [(0.0, json.loads(line)) for line in done.stdout.splitlines()]
    output = Output(done.returncode, 1.0, tmp_path / "out", tmp_path / "err", events)
    return registry.tool(driver).read(one, output), done


READ = {"fraction": 0.05, "event_bytes": 1000, "pattern": "random"}


@pytest.mark.parametrize("mode", ["single", "vector"])
def test_what_was_read_is_compared(server, tmp_path, mode):
    work = {"kind": "remote_read", "protocol": "http", "read": READ | {"mode": mode, "vector_width": 16}}
    found, _ = run(tmp_path, "python-http", work, url(server))
    assert (found.bytes_verified, found.events_read, found.error) == (50_000, 50, None)
    assert found.requests == (50 if mode == "single" else 4)
    wrong = bytes(1000) + CONTENT[1000:]
    whole = {"kind": "remote_read", "protocol": "http", "read": READ | {"fraction": 1.0, "mode": mode}}
    found, _ = run(tmp_path, "python-http", whole, url(server), sent=wrong)
    assert found.bytes_verified == 0


@pytest.mark.parametrize("mode", ["single", "vector"])
def test_gridlane_reads_the_same(server, tmp_path, mode):
    work = {"kind": "remote_read", "protocol": "http", "read": READ | {"mode": mode, "vector_width": 16}}
    found, done = run(tmp_path, "gridlane-read", work, url(server))
    assert (found.bytes_verified, found.events_read, found.error) == (50_000, 50, None), done.stderr
    assert found.bytes_moved >= 49_000 and found.connections >= 1
    found, done = run(tmp_path, "gridlane-read", work, url(server, "absent"))
    assert done.returncode == 3 and found.http_status == 404 and found.error_phase == "open"
    assert found.bytes_verified is None and found.events_requested == 50


def test_a_file_that_is_not_there_fails(server, tmp_path):
    work = {"kind": "remote_read", "protocol": "http", "read": READ}
    found, done = run(tmp_path, "python-http", work, url(server, "absent"))
    assert done.returncode == 1 and found.http_status == 404 and found.error_phase == "open"
    assert found.bytes_verified is None


def test_a_copy_is_read_afterwards(server, tmp_path):
    work = {"kind": "copy_then_read", "protocol": "http", "read": READ, "target_rate_bytes_per_s": 5e6}
    target = tmp_path / "target"
    found, done = run(tmp_path, "curl", work, url(server), str(target))
    assert found.error is None and target.read_bytes() == CONTENT
    assert found.bytes_verified == 50_000 and found.bytes_moved == len(CONTENT)
    summary = json.loads(done.stdout.splitlines()[-1])
    # The disk takes 1 MB in 0.2 s, and gives 50 kB in 0.01 s.
    assert summary["copy_s"] >= 0.2 and summary["seconds"] >= 0.209
    failed, done = run(tmp_path, "curl", work, url(server, "absent"), str(target))
    assert done.returncode == 1 and failed.error_phase == "copy"


def test_a_job_that_is_ended_says_how_far_it_came(server, tmp_path):
    command = [sys.executable, str(HELPERS / "copy_then_read.py"), "--size-bytes=1000", "--event-bytes=100",
               str(tmp_path / "x"), "--", "sleep", "30"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.7)
        process.terminate()
        out, _ = process.communicate(timeout=10)
    assert process.returncode == 143 and json.loads(out)["type"] == "ended"


def test_digests_of_programs_are_those_of_the_job(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    with gzip.open(tmp_path / "trace.csv.gz", "wt") as file:
        file.write("request,op,offset,length\n0,read,10,20\n1,readv,500,5\n1,readv,100,7\n")
    command = [sys.executable, str(HELPERS / "read_remote.py"), "--size-bytes", str(len(CONTENT)), "--pattern=trace",
               f"--trace={tmp_path / 'trace.csv.gz'}", "--mode=vector", str(tmp_path / "file")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    expected = zlib.adler32(CONTENT[10:30] + CONTENT[500:505] + CONTENT[100:107])
    assert summary["adler32"] == f"{expected:08x}" and summary["events"] == 2
