"""The file object: as one of Python's own, from many threads, through pickles and forks, interrupted, and ten thousand times."""

import asyncio
import concurrent.futures
import io
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile

import pytest
from conftest import Serve, until

import gridlane

SIZE = 3_000_017


@pytest.fixture
def content() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def url(base, place, content) -> str:
    (place / "f").write_bytes(content)
    return f"{base}/f"


def test_it_is_a_raw_file(url, content):
    with gridlane.open(url) as file:
        assert isinstance(file, io.RawIOBase) and file.readable() and file.seekable() and not file.writable()
        assert file.size == len(file) == SIZE and file.mode == "rb" and file.name == url
        assert file.read(10) == content[:10] and file.tell() == 10
        assert (
            file.seek(-5, io.SEEK_END) == SIZE - 5 and file.read(100) == content[-5:] and file.read(1) == b""
        )
        assert file.seek(100) == 100 and file.seek(50, io.SEEK_CUR) == 150
        buffer = bytearray(20)
        assert file.readinto(memoryview(buffer)[5:15]) == 10 and buffer[5:15] == content[150:160]
        assert buffer[:5] == bytes(5) and buffer[15:] == bytes(5)
        assert file.seek(SIZE + 10) == SIZE + 10 and file.read() == b"" and file.readinto(buffer) == 0
        with pytest.raises(ValueError):
            file.seek(-1)
        file.seek(0)
        assert file.read() == content
        assert file.pread(1000, 50) == content[1000:1050] and file.tell() == SIZE
        assert file.pread(SIZE - 3, 50) == content[-3:]
    assert file.closed
    for call in (file.read, file.tell, lambda: file.pread(0, 1), lambda: file.readv([(0, 1)]), file.explain):
        with pytest.raises(ValueError):
            call()
    file.close()


def test_many_ranges_in_any_order(url, content):
    lot = random.Random(2)
    ranges = [(lot.randrange(SIZE), lot.randrange(5000)) for _ in range(3000)]
    ranges += [(0, 0), (SIZE - 1, 10), (SIZE, 5), (SIZE + 100, 5), (0, 10), (0, 10), (5, 300_000)]
    wanted = [content[offset : offset + length] for offset, length in ranges]
    with gridlane.open(url) as file:
        assert file.readv(ranges) == wanted
        views = file.readv(ranges, copy=False)
        assert [bytes(view) for view in views] == wanted
        assert all(view.readonly and view.format == "B" for view in views)
        assert file.readv([]) == []
    # They hold the memory that they show.
    assert bytes(views[-1]) == content[5:300_005]
    del file
    assert bytes(views[-1]) == content[5:300_005]


def test_others_wrap_it(base, place):
    (place / "lines").write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)) + b"end")
    with gridlane.open(f"{base}/lines") as file:
        assert file.readline() == b"line 0\n" and file.readline(3) == b"lin" and file.readline() == b"e 1\n"
        assert sum(1 for _ in file) == 19_999
    with io.TextIOWrapper(gridlane.open(f"{base}/lines")) as text:
        assert text.readlines()[-1] == "end"
    with io.BufferedReader(gridlane.open(f"{base}/lines"), 4096) as buffered:
        assert (
            buffered.readline() == b"line 0\n"
            and buffered.seek(-3, io.SEEK_END)
            and buffered.read() == b"end"
        )
    with zipfile.ZipFile(place / "z.zip", "w") as archive:
        archive.writestr("inner", b"inner bytes")
    with zipfile.ZipFile(gridlane.open(f"{base}/z.zip")) as archive:
        assert archive.read("inner") == b"inner bytes"


def test_threads_share_it(url, content):
    def work(seed):
        lot = random.Random(seed)
        for _ in range(100):
            offset, length = lot.randrange(SIZE), lot.randrange(20_000)
            if file.pread(offset, length) != content[offset : offset + length]:
                return False
            ranges = [(lot.randrange(SIZE), 100) for _ in range(10)]
            if file.readv(ranges) != [content[at : at + count] for at, count in ranges]:
                return False
        return True

    with gridlane.open(url) as file, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
        # Every byte once: reads that move the position take turns.
        file.seek(0)
        with concurrent.futures.ThreadPoolExecutor(4) as readers:
            parts = list(readers.map(lambda _: file.read(1000), range(200)))
        found = b"".join(sorted(parts))
        assert found == b"".join(sorted(content[at : at + 1000] for at in range(0, 200_000, 1000)))


def test_a_pickle_opens_it_again(url, content):
    with gridlane.open(url, policy="vector", timeout=30.0) as file:
        file.seek(100)
        pickled = pickle.dumps(file)
    with pickle.loads(pickled) as again:
        assert (
            again.tell() == 100
            and again.read(5) == content[100:105]
            and again.explain()["policy"] == "vector"
        )
    with pytest.raises(ValueError):
        pickle.dumps(file)


def _read_in_child(file, offset, length, to):
    to.send(file.pread(offset, length))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_child_of_a_fork_opens_it_again(url, content):
    fork = multiprocessing.get_context("fork")
    stop = threading.Event()
    with gridlane.open(url) as file:
        assert file.read(10) == content[:10]

        # The parent reads on all the while.
        def read_on():
            while not stop.is_set():
                file.pread(random.randrange(SIZE), 5000)

        reader = threading.Thread(target=read_on)
        reader.start()
        try:
            for number in range(10):
                receiver, sender = fork.Pipe(duplex=False)
                child = fork.Process(target=_read_in_child, args=(file, number * 1000, 50, sender))
                child.start()
                assert receiver.poll(60), "the child hangs"
                assert receiver.recv() == content[number * 1000 : number * 1000 + 50]
                child.join(60)
                assert child.exitcode == 0
        finally:
            stop.set()
            reader.join()
        assert file.read(10) == content[10:20]


def test_an_interrupt_ends_a_read(slow, scheme):
    script = f"""
import gridlane, os, signal, threading, time
file = gridlane.open({slow.url(scheme, "f")!r}, policy="vector")
calls = file.explain()["calls"]

def interrupt():
    while file.explain()["calls"] == calls:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    file.readv([(0, 40_000_000)])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    # All of it takes twenty seconds.
    output, _ = child.communicate(timeout=15)
    assert output == "interrupted\n"


def test_an_interrupt_ends_a_call(silent):
    script = f"""
import gridlane
try:
    gridlane.stat({silent.url!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    connection = silent.accept()
    child.send_signal(signal.SIGINT)
    # The server is waited for much longer.
    output, _ = child.communicate(timeout=20)
    assert "interrupted" in output
    connection.close()


def test_a_thread_that_waits_does_not_keep_the_process(silent):
    script = f"""
import gridlane, threading
threading.Thread(target=gridlane.stat, args=({silent.url!r},), daemon=True).start()
input()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    connection = silent.accept()
    _, said = child.communicate("end\n", timeout=20)
    assert (child.returncode, said) == (0, "")
    connection.close()


def test_a_copy_that_is_interrupted_goes_on(server, place, tmp_path):
    data = os.urandom(40_000_000)
    (place / "f").write_bytes(data)
    url, target = server.url("http", f"{place.name}/f"), tmp_path / "copy"
    script = f"""
import gridlane
try:
    gridlane.copy({url!r}, {str(target)!r}, limit_rate=4_000_000, progress=lambda *now: print(*now, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if int(line.split()[0]) > 1_000_000:
            break
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    assert output.endswith("interrupted\n")
    assert not target.exists()
    report = gridlane.copy(url, target)
    assert report.resumed > 0 and target.read_bytes() == data


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_ten_thousand_opens_leave_nothing_open(base, place):
    (place / "f").write_bytes(b"some bytes")
    url = f"{base}/f"
    for _ in range(100):
        gridlane.open(url, lanes=2).close()
    before, threads = descriptors(), len(os.listdir("/proc/self/task"))

    def work(_):
        file = gridlane.open(url, lanes=2)
        assert file.read() == b"some bytes"
        # Half of them are left to the garbage collector.
        if random.random() < 0.5:
            file.close()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(5000)))
    # Those of the runtime that may block come and go.
    assert len(os.listdir("/proc/self/task")) <= threads + 64
    # Idle connections are kept, a bounded number of them.
    assert descriptors() <= before + 64


def test_a_file_that_is_written_appears_when_it_is_closed(base, place):
    client = gridlane.Client()
    with gridlane.Upload(f"{base}/w", client=client) as file:
        assert file.write(b"abc") == 3 and file.write(memoryview(b"def")) == 3 and file.tell() == 6
        assert not (place / "w").exists()
    assert (place / "w").read_bytes() == b"abcdef"
    with pytest.raises(RuntimeError), gridlane.Upload(f"{base}/x", client=client) as file:
        file.write(b"half")
        raise RuntimeError
    left = gridlane.Upload(f"{base}/y", client=client)
    left.write(b"forgotten")
    del left
    assert sorted(path.name for path in place.iterdir() if not path.name.startswith(".")) == ["w"]
    large = os.urandom(1 << 20)
    with gridlane.Upload(f"{base}/new/z", client=client, parents=True) as file:
        for _ in range(40):
            file.write(large)
    assert (place / "new" / "z").read_bytes() == large * 40
    # What is there stays, unless it is said that it does not.
    for overwrite in (False, True):
        again = gridlane.Upload(f"{base}/new/z", client=client, overwrite=overwrite)
        again.write(b"others")
        if overwrite:
            again.close()
        else:
            with pytest.raises(FileExistsError):
                again.close()
    assert (place / "new" / "z").read_bytes() == b"others"


def test_explain_says_what_was_done(url, content):
    with gridlane.open(url) as file:
        file.readv([(0, 100), (2_000_000, 100)])
        found = file.explain()
        assert found["verification"] == "unverified"
        assert file.read() == content
        # All of it has come: it is compared with what the server says.
        until("it is verified", lambda: file.explain()["verification"] == "verified")
    assert found["policy"] == "adaptive" and found["size_bytes"] == SIZE and found["calls"] >= 1
    assert (
        found["wanted_bytes"] == 200 and found["moved_bytes"] >= 200 and "policy adaptive" in found["explain"]
    )
    assert sum(found["moved_for_bytes"].values()) == found["moved_bytes"] and found["failures"] == 0
    assert found["requests"] >= 1 and found["connections"] >= 1 and found["stall_s"] > 0
    assert 0 < found["round_trip_s"] < 1 and found["rate_bytes_per_s"] > 1e5 and found["version"]


def test_a_part_is_unverified(slow, scheme):
    with gridlane.open(slow.url(scheme, "f"), policy="direct") as file:
        file.pread(1000, 10)
        assert file.explain()["verification"] == "unverified" and file.explain()["copied_after_s"] is None


def test_options_that_do_not_exist(url):
    with pytest.raises(TypeError, match="no option 'cache'"):
        gridlane.open(url, cache="all")
    with pytest.raises(ValueError, match="there are adaptive"):
        gridlane.open(url, policy="clever")
    for mistake in ({"budget": 0.5}, {"lanes": 17}, {"lanes": 0}):
        with pytest.raises(ValueError, match="a budget of|connections"):
            gridlane.open(url, **mistake)


def test_a_read_has_a_deadline(server, place, content):
    (place / "f").write_bytes(content * 10)
    with gridlane.open(server.url("http", f"{place.name}/f"), timeout=1e-6, policy="direct") as file:
        with pytest.raises(TimeoutError):
            file.pread(20_000_000, 5_000_000)


def test_ranges_have_a_deadline(slow, scheme):
    with gridlane.open(slow.url(scheme, "f"), timeout=0.3, policy="vector") as file:
        with pytest.raises(TimeoutError):
            file.readv([(0, 20_000_000), (25_000_000, 20_000_000)])
        with pytest.raises(TimeoutError):
            asyncio.run(file.areadv([(0, 20_000_000), (25_000_000, 20_000_000)]))


def test_a_task_that_is_cancelled_ends_its_read(slow, scheme):
    async def calls(file):
        task = asyncio.ensure_future(file.areadv([(0, 40_000_000)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with gridlane.open(slow.url(scheme, "f"), policy="vector") as file:
        begun = time.monotonic()
        asyncio.run(calls(file))
        # All of it takes twenty seconds.
        assert time.monotonic() - begun < 10


def test_a_file_whose_server_dies_fails(tmp_path, home, scheme):
    (tmp_path / "f").write_bytes(bytes(50_000_000))
    serve = Serve(tmp_path, home, "--limit-rate", "2M")
    with gridlane.open(serve.url(scheme, "f"), patience=1.0, policy="vector") as file:
        serve.process.kill()
        serve.process.communicate()
        with pytest.raises(OSError):
            file.readv([(0, 20_000_000)])
        with pytest.raises(OSError):
            file.seek(1000)
            file.read(10_000_000)
        assert file.tell() == 1000, "what could not be read is not passed over"


@pytest.mark.parametrize("encrypted", ["https", "davs", "roots"])
def test_over_tls(server, place, content, encrypted):
    (place / "f").write_bytes(content)
    url = server.url("https" if encrypted == "davs" else encrypted, f"{place.name}/f")
    with gridlane.open(url.replace("https://", f"{encrypted}://"), ca=server.ca) as file:
        assert file.readv([(5, 100), (2_000_000, 50)]) == [content[5:105], content[2_000_000:2_000_050]]
        assert file.read() == content


def test_a_file_of_this_machine(tmp_path):
    (tmp_path / "f").write_bytes(b"of this machine")
    with gridlane.open(tmp_path / "f") as file:
        assert file.read() == b"of this machine"
    assert gridlane.stat(tmp_path / "f").size == 15 and gridlane.ls(tmp_path) == ["f"]
