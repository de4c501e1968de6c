"""stat, ls, mkdir, rm, rename, checksum, put and copy, for threads and for event loops, and their errors."""

import asyncio
import errno
import gc
import io
import os
import pickle
import threading
import warnings
import zlib

import fsspec
import pytest

import gridlane


def test_a_file_and_a_directory_are_looked_at(base, place):
    (place / "d").mkdir()
    (place / "d" / "f").write_bytes(b"abc")
    os.utime(place / "d" / "f", (1_000_000_000, 1_000_000_000))
    found = gridlane.stat(f"{base}/d/f")
    assert (found.name, found.type, found.size, found.mtime) == ("f", "file", 3, 1_000_000_000.0)
    assert not found.is_directory
    assert gridlane.stat(f"{base}/d").is_directory


def test_a_directory_is_listed(base, place):
    (place / "sub").mkdir()
    names = ["a b", "c%41", "é", "x"]
    for name in names:
        (place / name).write_bytes(name.encode())
    assert sorted(gridlane.ls(base)) == sorted([*names, "sub"])
    entries = {entry.name: entry for entry in gridlane.ls(base, detail=True)}
    assert entries["sub"].type == "directory" and entries["sub"].size is None
    for name in names:
        assert entries[name].size == len(name.encode())
        # The URL of an entry opens it, whatever is in its name.
        with gridlane.open(entries[name].url) as file:
            assert file.read() == name.encode()
    assert gridlane.ls(entries["x"].url) == ["x"]


def test_names_are_made_moved_and_removed(base, place):
    gridlane.mkdir(f"{base}/a")
    with pytest.raises(FileExistsError):
        gridlane.mkdir(f"{base}/a")
    gridlane.mkdir(f"{base}/b/c", parents=True)
    gridlane.put(f"{base}/a/f", b"one")
    with pytest.raises(FileExistsError) as caught:
        gridlane.put(f"{base}/a/f", b"two")
    assert caught.value.errno == errno.EEXIST
    gridlane.put(f"{base}/a/f", memoryview(b"three"), overwrite=True)
    assert (place / "a" / "f").read_bytes() == b"three"
    now = gridlane.rename(f"{base}/a/f", f"{base}/b/c/")
    assert now.endswith("/b/c/f") and (place / "b" / "c" / "f").read_bytes() == b"three"
    with pytest.raises(OSError, match="not empty"):
        gridlane.rmdir(f"{base}/b/c")
    with pytest.raises(IsADirectoryError):
        gridlane.rm(f"{base}/b")
    gridlane.rm(f"{base}/b/c/f")
    gridlane.rmdir(f"{base}/b/c")
    gridlane.rm(f"{base}/b", recursive=True)
    assert gridlane.ls(base) == ["a"]


def test_a_checksum_is_told(base, place):
    (place / "f").write_bytes(b"123456789")
    assert gridlane.checksum(f"{base}/f") == f"adler32:{zlib.adler32(b'123456789'):08x}"
    assert gridlane.checksum(f"{base}/f", "crc32c") == "crc32c:e3069283"
    with pytest.raises(ValueError):
        gridlane.checksum(f"{base}/f", "crc7")


def test_a_copy_tells_of_its_progress(base, place, tmp_path):
    data = os.urandom(3_000_000)
    (place / "f").write_bytes(data)
    told = []
    report = gridlane.copy(
        f"{base}/f", tmp_path / "copy", progress=lambda *now: told.append((*now, threading.current_thread()))
    )
    assert (tmp_path / "copy").read_bytes() == data
    assert (report.size, report.files, report.resumed) == (len(data), 1, 0)
    assert report.verified and report.checksum
    done, size, thread = told[-1]
    assert (done, size) == (len(data), len(data)) and thread is threading.main_thread()
    with pytest.raises(FileExistsError):
        gridlane.copy(f"{base}/f", tmp_path / "copy")
    gridlane.copy(f"{base}/f", tmp_path / "copy", overwrite=True, checksum="adler32")
    with pytest.raises(gridlane.Error) as caught:
        gridlane.copy(f"{base}/f", tmp_path / "wrong", checksum="adler32:00000001")
    assert caught.value.kind == "checksum_mismatch" and not (tmp_path / "wrong").exists()


def test_a_copy_takes_all_replicas(server, place, tmp_path):
    data = os.urandom(1_000_000)
    (place / "f").write_bytes(data)
    sources = [server.url(scheme, f"{place.name}/f") for scheme in ("http", "root")]
    report = gridlane.copy(sources, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data
    assert [url.split(":")[0] for url, _ in report.sources] == ["http", "root"]


def test_a_callback_that_raises_ends_the_copy(base, place, tmp_path):
    (place / "f").write_bytes(os.urandom(3_000_000))

    def fail(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gridlane.copy(f"{base}/f", tmp_path / "copy", progress=fail)


def test_errors_are_pythons_own(base, place):
    with pytest.raises(FileNotFoundError) as caught:
        gridlane.stat(f"{base}/none")
    error = caught.value
    assert isinstance(error, gridlane.Error)
    assert (error.kind, error.errno, error.retryable) == ("not_found", errno.ENOENT, False)
    assert error.endpoint.endswith("/none") and error.endpoint in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.kind == error.kind
    with pytest.raises(FileNotFoundError):
        gridlane.open(f"{base}/none")
    (place / "d").mkdir()
    with pytest.raises(IsADirectoryError):
        gridlane.open(f"{base}/d").read()
    with pytest.raises(IsADirectoryError):
        gridlane.copy(f"{base}/d", place / "copy")


def test_a_server_that_is_not_there(unused_port):
    for scheme in ("http", "root"):
        with pytest.raises(ConnectionError) as caught:
            gridlane.stat(f"{scheme}://127.0.0.1:{unused_port}//f")
        assert caught.value.retryable


def test_what_is_not_allowed(data, scheme):
    with pytest.raises(PermissionError):
        gridlane.put(data.url(scheme, "new"), b"x")


@pytest.mark.parametrize("url", ["ftp://h/f", "http://", "root://"])
def test_what_is_no_url(url):
    with pytest.raises((ValueError, io.UnsupportedOperation)):
        gridlane.stat(url)


def test_certificates_are_checked(server, place):
    (place / "f").write_bytes(b"x")
    url = server.url("https", f"{place.name}/f")
    with pytest.raises(gridlane.Error, match="certificate"):
        gridlane.stat(url)
    assert gridlane.stat(url, ca=server.ca).size == 1
    assert gridlane.Client(ca=[server.ca]).stat(url).size == 1
    assert gridlane.stat(url, insecure=True).size == 1


def test_a_client_hides_and_pickles_what_it_was_given(server, place):
    client = gridlane.Client(ca=server.ca, token="secret.word")
    assert "secret" not in repr(client)
    (place / "f").write_bytes(b"x")
    again = pickle.loads(pickle.dumps(client))
    assert again.stat(server.url("http", f"{place.name}/f")).size == 1
    with pytest.raises(TypeError, match="insecure"):
        gridlane.stat(server.url("http", ""), client=client, insecure=True)
    with pytest.raises(gridlane.Error, match="no token"):
        gridlane.stat(server.url("https", f"{place.name}/f"), token="two words", ca=server.ca)


def test_secrets_of_urls_are_not_shown(server, place):
    import gridlane.fsspec
    import gridlane.mseed

    (place / "f").write_bytes(b"none")
    url = server.url("http", f"{place.name}/f?authz=SECRET")
    said = []
    with gridlane.open(url) as file:
        assert file.name == url
        said.append(repr(file))
    for call in (
        lambda: gridlane.mseed.read_window(url, 0, 1),
        lambda: gridlane.stat(url.replace("/f?", "/none?")),
        lambda: gridlane.open(url.replace("/f?", "/none?")),
        lambda: fsspec.filesystem("glhttp").open(url, "xb"),
        lambda: fsspec.filesystem("glhttp").makedirs(url),
        lambda: fsspec.filesystem("glhttp").cat("no/url?authz=SECRET"),
    ):
        with pytest.raises((OSError, ValueError)) as caught:
            call()
        said += [str(caught.value), repr(caught.value), str(getattr(caught.value, "filename", ""))]
    assert not any("SECRET" in each for each in said), said
    assert all(place.name in each for each in said[:2])


def test_a_password_that_is_not_sent_is_a_warning():
    with (
        pytest.warns(gridlane.errors.CredentialWarning, match="are not sent"),
        pytest.raises(ConnectionError),
    ):
        gridlane.stat("http://ada:pw@gridlane.invalid/f")


def test_everything_has_a_twin_for_event_loops(base, place, tmp_path):
    data = os.urandom(2_000_000)
    (place / "f").write_bytes(data)

    async def calls():
        thread, told = threading.current_thread(), []
        assert (await gridlane.aio.stat(f"{base}/f")).size == len(data)
        await gridlane.aio.mkdir(f"{base}/d")
        await gridlane.aio.put(f"{base}/d/g", b"g")
        assert sorted(await gridlane.aio.ls(base)) == ["d", "f"]
        await gridlane.aio.rename(f"{base}/d/g", f"{base}/d/h")
        await gridlane.aio.rm(f"{base}/d/h")
        await gridlane.aio.rmdir(f"{base}/d")
        assert await gridlane.aio.checksum(f"{base}/f") == gridlane_checksum(data)
        report = await gridlane.aio.copy(
            f"{base}/f",
            tmp_path / "copy",
            progress=lambda *now: told.append((now, threading.current_thread())),
        )
        assert report.size == len(data) and told[-1] == ((len(data), len(data)), thread)
        file = await gridlane.aio.open(f"{base}/f")
        parts = await file.areadv([(0, 10), (len(data) - 10, 10)])
        assert parts == [data[:10], data[-10:]]
        assert await file.aread(5, 7) == data[5:12]
        with pytest.raises(FileNotFoundError):
            await gridlane.aio.stat(f"{base}/none")
        sizes = await asyncio.gather(*[gridlane.aio.stat(f"{base}/f") for _ in range(50)])
        assert {found.size for found in sizes} == {len(data)}

    asyncio.run(calls())
    assert (tmp_path / "copy").read_bytes() == data


def gridlane_checksum(data: bytes) -> str:
    return f"adler32:{zlib.adler32(data):08x}"


def test_a_task_that_is_cancelled_ends_its_call(silent):
    async def calls():
        task = asyncio.ensure_future(gridlane.aio.stat(silent.url))
        loop = asyncio.get_running_loop()
        connection = await loop.run_in_executor(None, silent.accept)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The request, and then the end of the connection.
        await loop.run_in_executor(None, silent.until_closed, connection)

    asyncio.run(calls())


def test_loops_leave_nothing_open(base, place):
    (place / "f").write_bytes(b"x")

    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(gridlane.aio.stat(f"{base}/f"))
    before = descriptors()
    for _ in range(50):
        assert asyncio.run(gridlane.aio.stat(f"{base}/f")).size == 1
    # Idle connections, of which a loop needs one.
    assert descriptors() < before + 25


def test_a_loop_that_watches_no_descriptors(base, place):
    (place / "f").write_bytes(b"xyz")

    class Loop(asyncio.SelectorEventLoop):
        def add_reader(self, fd, callback, *args):
            raise NotImplementedError

    loop = Loop()
    try:
        assert loop.run_until_complete(gridlane.aio.stat(f"{base}/f")).size == 3
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_no_warning_without_a_reason(base, place):
    (place / "f").write_bytes(b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gridlane.stat(f"{base}/f")
