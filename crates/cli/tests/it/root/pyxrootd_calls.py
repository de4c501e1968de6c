"""Everything that pyxrootd can do, against a server of root:// that anyone may write to.

Usage: pyxrootd_calls.py FILE URL..., where the URLs end in //. Says "all of it" when all of it was right.
"""

import os
import sys
import threading
import zlib

from XRootD import client
from XRootD.client.flags import AccessMode, DirListFlags, MkDirFlags, OpenFlags, PrepareFlags, QueryCode, StatInfoFlags
from XRootD.client.utils import AsyncResponseHandler, CopyProgressHandler

IS_OLD = client.__version__.startswith("5.5.")

# kXR error codes
ARG_INVALID, FILE_LOCKED, FILE_NOT_OPEN, FS_ERROR, NOT_FOUND = 3000, 3003, 3004, 3005, 3011
UNSUPPORTED, IS_DIRECTORY, EXISTS, NO_ATTRIBUTE = 3013, 3016, 3018, 3027


def ok(answer):
    """The response of a call that has to succeed."""
    status, response = answer
    assert status.ok, status
    return response


def refused(answer, *codes):
    """A call that the server has to refuse, with one of these codes and in words."""
    status = answer[0]
    assert not status.ok, "it was accepted"
    assert status.errno in codes, status
    # "[ERROR] Server responded with an error: [3011] words"
    assert len(status.message.split("] ", 2)[-1].strip()) > 3 or status.errno == NO_ATTRIBUTE, status


def listed(text):
    """A text in a list: there the old library takes only bytes, and the new one only texts."""
    return text.encode() if IS_OLD else text


def later(call):
    """The answer that a callback gets."""
    handler = AsyncResponseHandler()
    status = call(handler)
    assert status.ok, status
    status, response, _ = handler.wait()
    return status, response


def write_file(url, content):
    with client.File() as file:
        ok(file.open(url, OpenFlags.DELETE | OpenFlags.UPDATE | OpenFlags.MAKEPATH))
        ok(file.write(content))
        ok(file.close())


def flags_of_open(base):
    url = base + "flags/f"
    with client.File() as file:
        refused(file.open(url), NOT_FOUND)
    with client.File() as file:
        refused(file.open(url, OpenFlags.UPDATE), NOT_FOUND)
    with client.File() as file:
        ok(file.open(url, OpenFlags.NEW | OpenFlags.UPDATE | OpenFlags.MAKEPATH, AccessMode.UR | AccessMode.UW))
        assert file.is_open()
        ok(file.write(b"first"))
        ok(file.close())
    with client.File() as file:
        refused(file.open(url, OpenFlags.NEW), EXISTS)
    with client.File() as file:
        refused(file.open(base + "flags", OpenFlags.READ), IS_DIRECTORY)
    # What is there stays without "delete", and goes with it.
    with client.File() as file:
        ok(file.open(url, OpenFlags.UPDATE))
        ok(file.write(b"F"))
        assert ok(file.read()) == b"First"
        ok(file.close())
    for access in (OpenFlags.NONE, OpenFlags.READ):
        with client.File() as file:
            ok(file.open(url, access))
            assert ok(file.read()) == b"First"
            refused(file.write(b"x"), FILE_NOT_OPEN)
            assert ok(file.read(1, 3)) == b"irs"
            ok(file.close())
    with client.File() as file:
        ok(file.open(url, OpenFlags.DELETE))
        assert ok(file.stat()).size == 0
        ok(file.close())
    with client.File() as file:
        ok(file.open(base + "flags/posc", OpenFlags.NEW | OpenFlags.POSC))
        ok(file.write(b"persistent"))
        ok(file.close())
    with client.File() as file:
        ok(file.open(base + "flags/posc", OpenFlags.READ | OpenFlags.SEQIO | OpenFlags.REFRESH))
        assert ok(file.read()) == b"persistent"
        # Left open: its end is the end of the connection, or of the object.


def reading(base):
    content = b"".join(b"line %d of the file\n" % number for number in range(300)) + b"no end of line"
    url = base + "reading"
    write_file(url, content)
    with client.File() as file:
        ok(file.open(url, OpenFlags.READ))
        size = ok(file.stat()).size
        assert size == len(content)
        assert ok(file.read()) == content
        assert ok(file.read(7, 100)) == content[7:107]
        # To the end, at it and behind it.
        assert ok(file.read(size - 5, 100)) == content[-5:]
        assert ok(file.read(size, 10)) == b""
        assert ok(file.read(size + 1000, 10)) == b""
        lines = file.readlines()
        assert [line if isinstance(line, bytes) else line.encode() for line in lines] == content.splitlines(True)
        chunks = list(file.readchunks(10, 1000))
        assert b"".join(chunks) == content[10:] and len(chunks) == (size - 10 + 999) // 1000
        refused(file.fcntl("nonsense"), ARG_INVALID, UNSUPPORTED)
        refused(file.visa(), ARG_INVALID, UNSUPPORTED)
    with client.File() as file:
        ok(file.open(url, OpenFlags.READ))
        first = file.readline()
        assert first in (b"line 0 of the file\n", "line 0 of the file\n"), first
    if not IS_OLD:  # Debian's iterator has no next()
        with client.File() as file:
            ok(file.open(url, OpenFlags.READ))
            assert sum(1 for _ in file) == 301
    with client.File() as file:
        refused(file.open(base + "missing"), NOT_FOUND)


def vectors(base):
    content = os.urandom(3_000_000)
    url = base + "vectors"
    write_file(url, content)
    with client.File() as file:
        ok(file.open(url, OpenFlags.READ))
        # Backwards, overlapping, empty, at the end. The same range twice its library does not take.
        ranges = [(2_999_999, 1), (1_000_000, 100_000), (0, 1), (1_050_000, 100_000), (17, 0), (4095, 2)]
        answer = ok(file.vector_read(ranges))
        assert answer.size == sum(length for _, length in ranges)
        for chunk, (offset, length) in zip(answer.chunks, ranges, strict=True):
            assert (chunk.offset, chunk.length) == (offset, length)
            assert chunk.buffer == content[offset : offset + length]
        many = [(number * 2000 + number, 700) for number in range(1024)]
        answer = ok(file.vector_read(many))
        assert all(chunk.buffer == content[chunk.offset :][:700] for chunk in answer.chunks)
        long = [(0, 2_097_136), (500_000, 2_097_136)]
        answer = ok(file.vector_read(long))
        assert all(chunk.buffer == content[chunk.offset :][: chunk.length] for chunk in answer.chunks)
        # Behind the end; more than the server takes in one vector.
        refused(file.vector_read([(0, 10), (2_999_999, 2)]), ARG_INVALID, FS_ERROR)
        refused(file.vector_read([(number * 10, 5) for number in range(2000)]), ARG_INVALID, 3002)
        assert ok(file.read(0, 10)) == content[:10]
        answer = ok(later(lambda handler: file.vector_read(ranges, callback=handler)))
        assert answer.chunks[1].buffer == content[1_000_000:1_100_000]


def writing(base):
    with client.File() as file:
        ok(file.open(base + "kept", OpenFlags.NEW | OpenFlags.UPDATE))
        ok(file.write(b"89", offset=8))
        assert ok(file.read()) == b"\0" * 8 + b"89"
        ok(file.write(b"01234567"))
        ok(file.write(b"xxxx", offset=10, size=2))
        ok(file.sync())
        assert ok(file.stat(force=True)).size == 12
        ok(file.truncate(10))
        ok(file.truncate(15))
        ok(file.write(b"ab", offset=15))
        assert ok(file.stat(force=True)).size == 17
        assert ok(file.read()) == b"0123456789\0\0\0\0\0ab"
        ok(file.close())
    with client.File() as file:
        # Further than 32 bits say; what is between is a hole.
        ok(file.open(base + "far", OpenFlags.NEW | OpenFlags.UPDATE))
        far = (1 << 32) + 4095
        ok(file.write(b"far away", offset=far))
        assert ok(file.stat(force=True)).size == far + 8
        assert ok(file.read(far - 4, 12)) == b"\0" * 4 + b"far away"
        ok(file.truncate(0))
        ok(file.close())
    with client.File() as file:
        ok(file.open(base + "kept", OpenFlags.UPDATE))
        assert ok(file.list_xattr()) == []
        ok(file.set_xattr([(listed("colour"), listed("blue")), (listed("shape"), listed("round"))]))
        got = ok(file.get_xattr([listed("colour"), listed("missing")]))
        assert got[0][:2] == ("colour", "blue") and got[0][2]["ok"], got
        assert got[1][2]["errno"] == NO_ATTRIBUTE, got
        assert sorted(name for name, *_ in ok(file.list_xattr())) == ["colour", "shape"]
        assert all(status["ok"] for _, status in ok(file.del_xattr([listed("colour"), listed("shape")])))
        assert ok(file.list_xattr()) == []


def usage_rules(base):
    """One session changes a file, or any number read it."""
    url = base + "used"
    write_file(url, b"words")

    def opened(flags):
        file = client.File()
        return file, file.open(url, flags)

    writer, answer = opened(OpenFlags.UPDATE)
    ok(answer)
    for flags in (OpenFlags.READ, OpenFlags.UPDATE, OpenFlags.DELETE | OpenFlags.UPDATE):
        refused(opened(flags)[1], FILE_LOCKED)
    forced, answer = opened(OpenFlags.READ | OpenFlags.FORCE)
    ok(answer)
    assert ok(forced.read()) == b"words"
    ok(forced.close())
    ok(writer.close())
    readers = [opened(OpenFlags.READ) for _ in range(3)]
    for file, answer in readers:
        ok(answer)
        assert ok(file.read()) == b"words"
    refused(opened(OpenFlags.UPDATE)[1], FILE_LOCKED)
    for file, _ in readers:
        ok(file.close())
    writer, answer = opened(OpenFlags.UPDATE)
    ok(answer)
    ok(writer.close())


def callbacks_of_file(base):
    file = client.File()
    url = base + "callbacks"
    ok(later(lambda handler: file.open(url, OpenFlags.DELETE | OpenFlags.UPDATE, callback=handler)))
    ok(later(lambda handler: file.write(b"0123456789", callback=handler)))
    ok(later(lambda handler: file.sync(callback=handler)))
    assert ok(later(lambda handler: file.stat(force=True, callback=handler))).size == 10
    ok(later(lambda handler: file.truncate(5, callback=handler)))
    assert ok(later(lambda handler: file.read(1, 3, callback=handler))) == b"123"
    # Many at once, whose answers come as they come.
    wanted = 200
    done = threading.Semaphore(0)
    wrong = []

    def answered(status, response, _hosts):
        if not status.ok or response != b"234":
            wrong.append((status, response))
        done.release()

    for _ in range(wanted):
        assert file.read(2, 3, callback=answered).ok
    for _ in range(wanted):
        assert done.acquire(timeout=40)
    assert not wrong, wrong
    ok(later(lambda handler: file.close(callback=handler)))
    refused(later(lambda handler: client.File().open(base + "missing", callback=handler)), NOT_FOUND)


def file_system(base):
    root = base.rstrip("/")
    path = "/" + base.split("//", 2)[2]
    fs = client.FileSystem(root.rsplit("//", 1)[0])
    write_file(base + "fs/one", b"words")
    ok(fs.ping())
    protocol = ok(fs.protocol())
    # Debian's shows the numbers with their bytes swapped.
    assert protocol.version >= 0x310 and protocol.hostinfo, protocol
    for call in (fs.locate, fs.deeplocate):
        (location,) = ok(call(path + "fs/one", OpenFlags.REFRESH))
        assert location.is_server and not location.is_manager, location
    assert ok(fs.query(QueryCode.CONFIG, "readv_iov_max readv_ior_max")) == b"1024\n2097136\n"
    checksum = ok(fs.query(QueryCode.CHECKSUM, path + "fs/one?cks.type=adler32"))
    assert checksum.rstrip(b"\0") == b"adler32 %08x" % zlib.adler32(b"words"), checksum
    assert b"oss.free=" in ok(fs.query(QueryCode.SPACE, "/"))
    assert ok(fs.query(QueryCode.STATS, "a")).startswith(b"<statistics ")
    assert b"oss.type=f" in ok(fs.query(QueryCode.XATTR, path + "fs/one"))
    refused(fs.query(QueryCode.OPAQUE, "nonsense"), ARG_INVALID, UNSUPPORTED)
    refused(fs.query(QueryCode.OPAQUEFILE, path + "fs/one?nonsense"), ARG_INVALID, UNSUPPORTED)
    refused(fs.query(QueryCode.VISA, path + "fs/one"), ARG_INVALID, FILE_NOT_OPEN, UNSUPPORTED, 3001)
    stat = ok(fs.stat(path + "fs/one"))
    assert stat.size == 5 and stat.flags & StatInfoFlags.IS_READABLE and stat.modtime > 1_500_000_000, stat
    assert ok(fs.stat(path + "fs")).flags & StatInfoFlags.IS_DIR
    assert ok(fs.statvfs("/")).nodes_rw == 1
    ok(fs.truncate(path + "fs/one", 3))
    assert ok(fs.stat(path + "fs/one")).size == 3
    ok(fs.chmod(path + "fs/one", AccessMode.UR | AccessMode.UW | AccessMode.GR))
    ok(fs.mv(path + "fs/one", path + "fs/two"))
    ok(fs.mkdir(path + "fs/d/e", MkDirFlags.MAKEPATH, AccessMode.UR | AccessMode.UW | AccessMode.UX))
    write_file(base + "fs/d/e/a name with %20 and \u00fc", b"1234567")

    names = lambda listing: sorted(entry.name for entry in listing)
    assert names(ok(fs.dirlist(path + "fs"))) == ["d", "two"]
    with_stat = {entry.name: entry.statinfo for entry in ok(fs.dirlist(path + "fs", DirListFlags.STAT))}
    assert with_stat["two"].size == 3 and with_stat["d"].flags & StatInfoFlags.IS_DIR, with_stat
    deep = ok(fs.dirlist(path + "fs", DirListFlags.STAT | DirListFlags.RECURSIVE))
    assert [e.statinfo.size for e in deep if e.name.endswith("a name with %20 and \u00fc")] == [7]
    if hasattr(DirListFlags, "CKSM"):
        ok(fs.dirlist(path + "fs", DirListFlags.CKSM))
    assert names(ok(later(lambda handler: fs.dirlist(path + "fs", callback=handler)))) == ["d", "two"]
    refused(fs.dirlist(path + "missing"), NOT_FOUND)

    ok(fs.sendinfo("what this is"))
    ok(fs.prepare([listed(path + "fs/two")], PrepareFlags.WRITEMODE))
    ok(fs.copy(base + "fs/two", base + "fs/three"))
    assert not fs.copy(base + "fs/two", base + "fs/three")[0].ok
    ok(fs.copy(base + "fs/two", base + "fs/three", force=True))
    assert ok(fs.list_xattr(path + "fs/two")) == []
    a, b = listed("a"), listed("b")
    answers = ok(fs.set_xattr(path + "fs/two", [(a, listed("1")), (b, listed("2"))]))
    assert all(status["ok"] for _, status in answers), answers
    assert [value for _, value, _ in ok(fs.get_xattr(path + "fs/two", [b, a]))] == ["2", "1"]
    assert sorted(attribute[:2] for attribute in ok(fs.list_xattr(path + "fs/two"))) == [("a", "1"), ("b", "2")]
    (answer,) = ok(fs.del_xattr(path + "fs/two", [a]))
    assert answer[1]["ok"], answer
    assert [attribute[0] for attribute in ok(fs.list_xattr(path + "fs/two"))] == ["b"]

    # The others by callback.
    assert ok(later(lambda handler: fs.stat(path + "fs/two", callback=handler))).size == 3
    ok(later(lambda handler: fs.ping(callback=handler)))
    assert ok(later(lambda handler: fs.statvfs("/", callback=handler))).nodes_rw == 1
    assert ok(later(lambda handler: fs.query(QueryCode.CONFIG, "role", callback=handler))) == b"server\n"
    ok(later(lambda handler: fs.mkdir(path + "fs/by", callback=handler)))
    ok(later(lambda handler: fs.rmdir(path + "fs/by", callback=handler)))
    ok(later(lambda handler: fs.mv(path + "fs/three", path + "fs/four", callback=handler)))
    ok(later(lambda handler: fs.rm(path + "fs/four", callback=handler)))
    refused(later(lambda handler: fs.rm(path + "fs/four", callback=handler)), NOT_FOUND)

    refused(fs.rmdir(path + "fs/d"), FS_ERROR, EXISTS)
    refused(fs.stat(path + "missing"), NOT_FOUND)
    refused(fs.mv(path + "missing", path + "other"), NOT_FOUND)
    ok(fs.rm(path + "fs/d/e/a name with %20 and \u00fc"))
    ok(fs.rmdir(path + "fs/d/e"))
    ok(fs.rm(path + "fs/two"))


class Progress(CopyProgressHandler):
    def __init__(self, cancel=False):
        self.cancel = cancel
        self.begun, self.ended, self.processed = set(), [], {}

    def begin(self, jobId, total, source, target):
        self.begun.add(jobId)
        self.total = total

    def end(self, jobId, results):
        self.ended.append((jobId, results["status"].ok))

    def update(self, jobId, processed, total):
        self.processed[jobId] = (processed, total)

    def should_cancel(self, jobId):
        return self.cancel


def copies(base, local):
    content = open(local, "rb").read()
    expected = "adler32:%08x" % zlib.adler32(content)
    up = client.CopyProcess()
    for number in range(4):
        up.add_job(
            local,
            base + "copies/%d" % number,
            mkdir=True,
            posc=number % 2 == 0,
            checksummode="end2end",
            checksumtype="adler32",
            chunksize=1_000_000,
        )
    up.parallel(2)
    status = up.prepare()
    assert status.ok, status
    progress = Progress()
    results = ok(up.run(progress))
    assert [result["targetCheckSum"] for result in results] == [expected] * 4, results
    assert progress.begun == {1, 2, 3, 4} and progress.total == 4
    assert sorted(progress.ended) == [(number, True) for number in (1, 2, 3, 4)]
    assert all(seen == (len(content), len(content)) for seen in progress.processed.values()), progress.processed

    down = client.CopyProcess()
    targets = [local + ".%d" % number for number in range(4)]
    for number, target in enumerate(targets):
        source = base + "copies/%d" % number
        down.add_job(source, target, force=True, checksummode="end2end", checksumtype="md5")
    assert down.prepare().ok
    ok(down.run())
    for target in targets:
        assert open(target, "rb").read() == content
        os.remove(target)

    # An upload that goes on where another one ended.
    begun = base + "copies/begun"
    write_file(begun, content[:1_000_000])
    again = client.CopyProcess()
    again.add_job(local, begun, cont=True)
    assert again.prepare().ok
    (result,) = ok(again.run())
    assert result["size"] == len(content) - 1_000_000, result
    with client.File() as file:
        ok(file.open(begun))
        assert ok(file.read()) == content

    # What exists is not replaced unasked, and a job that fails does not take others along.
    mixed = client.CopyProcess()
    mixed.add_job(local, base + "copies/0")
    mixed.add_job(local, base + "copies/0", force=True)
    mixed.add_job(base + "copies/missing", local + ".missing")
    assert mixed.prepare().ok
    results = mixed.run()[1]
    assert [result["status"].ok for result in results] == [False, True, False], results
    assert results[2]["status"].errno == NOT_FOUND, results

    cancelled = client.CopyProcess()
    cancelled.add_job(local, base + "copies/cancelled", posc=True, chunksize=100_000)
    assert cancelled.prepare().ok
    assert not cancelled.run(Progress(cancel=True))[0].ok


def main():
    local, *urls = sys.argv[1:]
    for url in urls:
        base = url + url.split(":")[0] + "/"
        flags_of_open(base)
        reading(base)
        vectors(base)
        writing(base)
        usage_rules(base)
        callbacks_of_file(base)
        file_system(base)
        copies(base, local)
    print("all of it", flush=True)
    # The library's own end sometimes fails in the new one: it gives back objects that are not its own.
    os._exit(0)


main()
