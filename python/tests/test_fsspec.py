"""The filesystems: names, queries, ranges of many files, pickles and forks, and the takeover of names."""

import asyncio
import datetime
import errno
import io
import multiprocessing
import os
import pickle
import random
import subprocess
import sys

import fsspec
import pytest

import gridlane
import gridlane.fsspec
from gridlane.fsspec import HttpFileSystem, RootFileSystem


@pytest.fixture
def fs(server, scheme):
    if scheme == "root":
        return fsspec.filesystem("glroot", hostid=server.host)
    return fsspec.filesystem("glhttp")


@pytest.fixture
def path(server, place, scheme) -> str:
    return f"/{place.name}" if scheme == "root" else server.url("http", place.name)


@pytest.mark.parametrize(
    ("url", "path", "arguments"),
    [
        ("root://h//abs/f", "/abs/f", {"hostid": "h"}),
        ("root://ada@h:1095//abs/", "/abs", {"hostid": "ada@h:1095"}),
        ("root://h/rel/f", "rel/f", {"hostid": "h"}),
        ("root://h", "/", {"hostid": "h"}),
        ("root://h//", "/", {"hostid": "h"}),
        (
            "roots://h//f?authz=a/b&xrd.wantprot=unix",
            "/f?authz=a/b&xrd.wantprot=unix",
            {"hostid": "h", "scheme": "roots"},
        ),
        ("glxroots://h//f", "/f", {"hostid": "h", "scheme": "roots"}),
        ("/f/", "/f", {}),
    ],
)
def test_paths_of_root(url, path, arguments):
    assert RootFileSystem._strip_protocol(url) == path
    assert RootFileSystem._get_kwargs_from_urls(url) == arguments


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("glhttps://h/d/", "https://h/d"),
        ("davs://h:8443/d/f", "https://h:8443/d/f"),
        ("gldav://h/", "http://h"),
        ("https://h/f?authz=a/", "https://h/f?authz=a/"),
        ("https://h/d/?authz=a", "https://h/d?authz=a"),
        ("https://h/d/fil?1", "https://h/d/fil?1"),
    ],
)
def test_paths_of_http(url, path):
    assert HttpFileSystem._strip_protocol(url) == path
    assert HttpFileSystem._strip_protocol([url]) == [path]
    assert HttpFileSystem._get_kwargs_from_urls(url) == {}


def test_names_without_a_takeover():
    script = """
import fsspec
for name in ("glroot", "glroots", "roots", "xroot", "xroots"):
    assert fsspec.get_filesystem_class(name).__name__ == "RootFileSystem", name
for name in ("glhttp", "glhttps", "gldav", "gldavs", "dav", "davs"):
    assert fsspec.get_filesystem_class(name).__module__ == "gridlane.fsspec", name
assert fsspec.get_filesystem_class("https").__module__ == "fsspec.implementations.http"
import gridlane.fsspec
assert "https" not in gridlane.fsspec.register() and "davs" in gridlane.fsspec.register()
assert fsspec.get_filesystem_class("https").__module__ == "fsspec.implementations.http"
fs = fsspec.filesystem("glhttps")
assert fs.unstrip_protocol("https://h/f") == "glhttps://h/f"
assert set(gridlane.fsspec.register(clobber=True)) >= {"http", "https", "root"}
for name in ("http", "https"):
    assert fsspec.get_filesystem_class(name).__module__ == "gridlane.fsspec", name
assert fsspec.get_filesystem_class("root").__name__ == "RootFileSystem"
assert fs.unstrip_protocol("https://h/f") == "https://h/f"
root, path = fsspec.core.url_to_fs("root://h:1//a/b")
assert type(root).__module__ == "gridlane.fsspec" and path == "/a/b"
assert root.unstrip_protocol(path) == "root://h:1//a/b"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_a_file_is(fs, path, place):
    (place / "f").write_bytes(b"abc")
    os.utime(place / "f", (1_000_000_000, 1_000_000_000))
    found = fs.info(f"{path}/f")
    assert (found["name"], found["size"], found["type"], found["mtime"]) == (f"{path}/f", 3, "file", 1e9)
    assert fs.info(path)["type"] == "directory"
    assert fs.isdir(path) and fs.isfile(f"{path}/f") and fs.exists(f"{path}/f") and not fs.exists(f"{path}/g")
    with pytest.raises(FileNotFoundError):
        fs.info(f"{path}/g")
    assert fs.ls(f"{path}/f", detail=False) == [f"{path}/f"]
    assert fs.modified(f"{path}/f") == datetime.datetime(2001, 9, 9, 1, 46, 40, tzinfo=datetime.timezone.utc)
    assert fs.checksum(f"{path}/f", "adler32") == "adler32:024d0127"
    key = fs.ukey(f"{path}/f")
    (place / "f").write_bytes(b"abcd")
    assert fs.ukey(f"{path}/f") != key
    assert fs.size(f"{path}/f") == 4 and fs.du(path) == 4


def test_trees_are_walked_and_globbed(fs, path, place):
    for name in ("a.root", "b c.root", "sub/d.root", "sub/deep/e.txt"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(name.encode())
    found = fs.find(path)
    assert [fs.cat_file(name) for name in found] == [b"a.root", b"b c.root", b"sub/d.root", b"sub/deep/e.txt"]
    assert len(fs.glob(f"{path}/*.root")) == 2 and len(fs.glob(f"{path}/**/*.root")) == 3
    assert [top for top, _, _ in fs.walk(path)] == [path, f"{path}/sub", f"{path}/sub/deep"]
    assert fs.cat([f"{path}/a.root", f"{path}/sub/d.root"]) == {
        f"{path}/a.root": b"a.root",
        f"{path}/sub/d.root": b"sub/d.root",
    }
    fs.rm(f"{path}/sub", recursive=True)
    assert not (place / "sub").exists()
    with pytest.raises(OSError):
        fs.rmdir(path)


def test_slices_of_a_file(fs, path, place):
    content = random.Random(3).randbytes(100_000)
    (place / "f").write_bytes(content)
    limits = [
        (None, None),
        (0, 10),
        (5, None),
        (None, 7),
        (-10, None),
        (-10, -3),
        (10, -10),
        (99_990, 200_000),
        (50, 40),
        (200_000, None),
        (-200_000, 5),
    ]
    for start, end in limits:
        assert fs.cat_file(f"{path}/f", start=start, end=end) == content[start:end], (start, end)
    starts, ends = zip(*limits)
    found = fs.cat_ranges([f"{path}/f"] * len(limits), list(starts), list(ends))
    assert found == [content[start:end] for start, end in limits] and all(
        type(part) is bytes for part in found
    )
    assert fs.cat_ranges([f"{path}/f"] * 2, 5, 10, max_gap=100) == [content[5:10]] * 2
    assert fs.head(f"{path}/f", 10) == content[:10] and fs.tail(f"{path}/f", 10) == content[-10:]


def test_ranges_of_many_files(fs, path, place):
    contents = {f"{path}/{number}": os.urandom(5000) for number in range(40)}
    for name, content in contents.items():
        (place / name.rsplit("/", 1)[1]).write_bytes(content)
    lot = random.Random(4)
    paths = [lot.choice(list(contents)) for _ in range(500)]
    starts = [lot.randrange(5000) for _ in paths]
    ends = [start + lot.randrange(500) for start in starts]
    assert fs.cat_ranges(paths, starts, ends) == [
        contents[path][start:end] for path, start, end in zip(paths, starts, ends)
    ]
    missing = f"{path}/none"
    found = fs.cat_ranges([paths[0], missing, missing], [0, 0, 1], [5, 5, 5])
    assert found[0] == contents[paths[0]][:5] and all(
        isinstance(part, FileNotFoundError) for part in found[1:]
    )
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([paths[0], missing], [0, 0], [5, 5], on_error="raise")
    with pytest.raises(TypeError):
        fs.cat_ranges("a", 0, 1)
    with pytest.raises(ValueError):
        fs.cat_ranges([paths[0]], [0, 1], [2, 3])


def test_ranges_without_a_copy(server, place):
    content = os.urandom(1_000_000)
    (place / "f").write_bytes(content)
    fs = fsspec.filesystem("glhttp", zero_copy=True)
    url = server.url("http", f"{place.name}/f")
    found = fs.cat_ranges([url] * 2, [10, 500], [20, 800_000])
    assert all(type(part) is memoryview and part.readonly for part in found)
    assert found == [content[10:20], content[500:800_000]]


def test_a_file_that_is_replaced_is_read_anew(fs, path, place):
    fs.pipe_file(f"{path}/f", b"first bytes")
    assert fs.cat_file(f"{path}/f", 0, 5) == b"first"
    fs.pipe_file(f"{path}/f", b"other, and more")
    assert fs.cat_file(f"{path}/f", 0, 5) == b"other"
    with fs.open(f"{path}/f", "wb") as file:
        file.write(b"third")
    assert fs.cat_file(f"{path}/f", -5) == b"third"


def test_files_are_opened_as_fsspec_opens_them(fs, path, place):
    with fs.open(f"{path}/new/dir/f", "wb") as file:
        file.write(b"one\ntwo\n")
    with fs.open(f"{path}/new/dir/f") as file:
        assert file.size == 8 and file.readline() == b"one\n" and file.info()["size"] == 8 and file.loc == 4
        assert file.path == f"{path}/new/dir/f" and fs._strip_protocol(file.full_name) == file.path
        again = pickle.loads(pickle.dumps(file))
    assert again.read() == b"two\n" and again.fs is fs
    with fs.open(f"{path}/new/dir/f", timeout=7.0) as file:
        assert pickle.loads(pickle.dumps(file))._timeout == file._timeout == 7.0
    with fs.open(f"{path}/new/dir/f", "r") as text:
        assert text.read() == "one\ntwo\n"
    with pytest.raises(ValueError):
        fs.open(f"{path}/new/dir/f", "ab")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{path}/none")
    with fs.transaction:
        with fs.open(f"{path}/later", "wb") as file:
            file.write(b"x")
        assert not fs.exists(f"{path}/later")
    assert fs.cat_file(f"{path}/later") == b"x"
    fs.mv(f"{path}/later", f"{path}/moved")
    assert sorted(fs.ls(path, detail=False)) == [f"{path}/moved", f"{path}/new"]
    fs.touch(f"{path}/empty")
    assert fs.info(f"{path}/empty")["size"] == 0


def test_of_two_that_make_a_file_one_does(fs, path):
    async def race():
        made = [fs._pipe_file(f"{path}/f", b"%d" % number, mode="create") for number in range(20)]
        return await asyncio.gather(*made, return_exceptions=True)

    outcomes = fsspec.asyn.sync(fs.loop, race)
    assert outcomes.count(None) == 1
    # Or it is being made.
    refused = [outcome for outcome in outcomes if outcome is not None]
    assert all(isinstance(outcome, (FileExistsError, gridlane.errors.Busy)) for outcome in refused), refused
    assert {outcome.errno for outcome in refused} <= {errno.EEXIST, errno.EBUSY}
    winner = outcomes.index(None)
    assert fs.cat_file(f"{path}/f") == b"%d" % winner


def test_progress_of_put_and_get(fs, path, tmp_path):
    content = os.urandom(2_000_000)
    (tmp_path / "f").write_bytes(content)
    up, down = fsspec.callbacks.Callback(), fsspec.callbacks.Callback()
    fs.put_file(str(tmp_path / "f"), f"{path}/f", callback=up)
    fs.get_file(f"{path}/f", str(tmp_path / "g"), callback=down)
    assert (tmp_path / "g").read_bytes() == content
    assert (up.size, up.value, down.size, down.value) == (len(content),) * 4
    memory = io.BytesIO()
    fs.get_file(f"{path}/f", memory)
    assert memory.getvalue() == content


def test_event_loops_of_others(server, path, place, scheme):
    (place / "f").write_bytes(b"abcdef")

    async def calls():
        options = {"hostid": server.host} if scheme == "root" else {}
        fs = fsspec.filesystem(f"gl{scheme}", asynchronous=True, skip_instance_cache=True, **options)
        assert await fs._cat_file(f"{path}/f", -3) == b"def"
        assert (await fs._info(f"{path}/f"))["size"] == 6
        file = await fs.open_async(f"{path}/f")
        assert await file.read(2) == b"ab" and file.tell() == 2 and await file.read() == b"cdef"
        assert file.seek(-1, 2) == 5 and await file.read() == b"f"
        await file.close()

    asyncio.run(calls())


def test_pickles_have_no_connections(fs, path, place):
    (place / "f").write_bytes(b"abc")
    assert fs.cat_file(f"{path}/f", 0, 2) == b"ab"
    again = pickle.loads(pickle.dumps(fs))
    assert again is fs
    opened = fsspec.core.OpenFile(fs, f"{path}/f")
    with pickle.loads(pickle.dumps(opened)) as file:
        assert file.read() == b"abc"


def _in_child(protocol, options, path, to):
    to.send(fsspec.filesystem(protocol, **options).cat_file(path, 1, 3))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_other_processes_have_their_own(server, path, place, scheme, fs):
    (place / "f").write_bytes(b"abcdef")
    assert fs.cat_file(f"{path}/f", 1, 3) == b"bc"
    options = {"hostid": server.host} if scheme == "root" else {}
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_in_child, args=(f"gl{scheme}", options, f"{path}/f", sender))
        child.start()
        assert receiver.poll(60) and receiver.recv() == b"bc", method
        child.join()


def test_a_query_goes_along(place, server):
    (place / "f").write_bytes(b"abc")
    http = fsspec.filesystem("glhttp")
    url = server.url("http", f"{place.name}/f") + "?authz=none"
    assert http.cat(url) == b"abc" and http.info(url)["name"] == url and http.glob(url) == [url]
    root = fsspec.filesystem("glroot", hostid=server.host)
    assert root.cat(f"/{place.name}/f?xrd.wantprot=unix") == b"abc"


def test_other_credentials_are_another_filesystem():
    one, two, same = (gridlane.Client(token=token) for token in ("a", "b", "a"))
    systems = [fsspec.filesystem("glhttps", client=client) for client in (one, two, same)]
    assert systems[0] is not systems[1] and systems[0] is systems[2]
    assert (
        systems[0]
        is not fsspec.filesystem("glhttps", token="b")
        is not fsspec.filesystem("glhttps", token="a")
    )


def test_arguments(server):
    with pytest.raises(ValueError, match="hostid"):
        fsspec.filesystem("glroot")
    with pytest.raises(TypeError, match="token"):
        HttpFileSystem(client=gridlane.Client(), token="a")
    with pytest.raises(ValueError, match="whole URL"):
        fsspec.filesystem("glhttp").cat("no/url")
    fs = fsspec.filesystem("glhttps", ca=(server.ca,))
    assert fs.isdir(server.url("https"))
    with pytest.raises(ValueError):
        gridlane.fsspec.register(["s3"])
