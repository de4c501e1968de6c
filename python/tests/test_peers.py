"""Other people's servers: nginx and Apache over HTTP, Apache over WebDAV, and Debian's xrootd."""

import os
import pathlib
import pwd
import random
import shutil
import socket
import subprocess

import fsspec
import pytest
from conftest import until

import gridlane

CONTENT = random.Random(7).randbytes(3_000_000)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port: int, process: subprocess.Popen) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"{process.args[0]} has ended with {process.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def program(name: str) -> str:
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    assert found, f"{name} is missing: scripts/bootstrap.sh --test"
    return found


def filled(directory: pathlib.Path) -> None:
    (directory / "sub").mkdir(parents=True)
    (directory / "f").write_bytes(CONTENT)
    (directory / "sub" / "a b.txt").write_bytes(b"text")
    # Servers that root starts become another user.
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    top = tmp_path_factory.mktemp("nginx")
    filled(top / "export")
    for directory in [top, *list(top.parents)[:2]]:
        directory.chmod(0o755)
    port = free_port()
    (top / "nginx.conf").write_text(f"""
daemon off; pid {top}/pid; error_log {top}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {top}/a; proxy_temp_path {top}/b; fastcgi_temp_path {top}/c; uwsgi_temp_path {top}/d; scgi_temp_path {top}/e;
    server {{
        listen 127.0.0.1:{port};
        root {top}/export;
        autoindex on;
        location /single/ {{ alias {top}/export/; max_ranges 1; }}
        location /none/ {{ alias {top}/export/; max_ranges 0; }}
    }}
}}
""")
    process = subprocess.Popen([program("nginx"), "-p", str(top), "-c", str(top / "nginx.conf")])
    until("nginx listens", lambda: listens(port, process))
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def apache(tmp_path_factory):
    top = tmp_path_factory.mktemp("apache")
    filled(top / "export")
    for directory in [top, *list(top.parents)[:2]]:
        directory.chmod(0o755)
    user = ""
    if os.geteuid() == 0:
        # It becomes another user.
        nobody = pwd.getpwnam("nobody")
        for path in [top, *top.rglob("*")]:
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        user = f"User #{nobody.pw_uid}\nGroup #{nobody.pw_gid}"
    port = free_port()
    modules = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so"
        for name in ("mpm_event", "authz_core", "dav", "dav_fs", "dir")
    )
    (top / "apache.conf").write_text(f"""
{modules}
ServerName localhost
ServerRoot {top}
Listen 127.0.0.1:{port}
PidFile {top}/pid
ErrorLog {top}/error.log
DavLockDB {top}/locks
DocumentRoot {top}/export
{user}
<Directory {top}/export>
    Dav On
    Require all granted
</Directory>
""")
    process = subprocess.Popen([program("apache2"), "-f", str(top / "apache.conf"), "-X"])
    until("Apache listens", lambda: listens(port, process))
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def xrootd(tmp_path_factory):
    top = tmp_path_factory.mktemp("xrootd")
    filled(top / "export")
    (top / "admin").mkdir()
    port = free_port()
    (top / "xrootd.cfg").write_text(f"""
xrd.port {port}
xrd.protocol xrootd *
oss.localroot {top}/export
all.export /
all.adminpath {top}/admin
all.pidpath {top}/admin
xrootd.chksum max 4 adler32 crc32c md5
xrd.trace off
""")
    command = [
        program("xrootd"),
        "-c",
        str(top / "xrootd.cfg"),
        "-n",
        "test",
        "-l",
        str(top / "log"),
        "-s",
        str(top / "admin" / "pid"),
    ]
    if os.geteuid() == 0:
        # It refuses to be root.
        user = pwd.getpwnam("xrootd")
        for path in [top, *top.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)
        for directory in [top, *list(top.parents)[:2]]:
            directory.chmod(0o755)
        command += ["-R", "xrootd"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until("xrootd listens", lambda: listens(port, process))
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait()


def reads_everything(url: str) -> None:
    lot = random.Random(8)
    ranges = [(lot.randrange(len(CONTENT)), lot.randrange(3000)) for _ in range(300)]
    wanted = [CONTENT[offset : offset + length] for offset, length in ranges]
    for policy in ("adaptive", "vector", "direct"):
        with gridlane.open(url, policy=policy) as file:
            assert file.size == len(CONTENT)
            assert file.readv(ranges) == wanted, policy
            file.seek(1_000_000)
            assert file.read(1_000_000) == CONTENT[1_000_000:2_000_000]
    with gridlane.open(url) as file:
        assert file.read() == CONTENT


@pytest.mark.parametrize("where", ["", "/single", "/none"])
def test_nginx(nginx, where):
    reads_everything(f"{nginx}{where}/f")


def test_nginx_is_listed_by_its_page(nginx):
    fs = fsspec.filesystem("glhttp")
    assert sorted(fs.find(nginx)) == [f"{nginx}/f", f"{nginx}/sub/a%20b.txt"]
    assert fs.cat(f"{nginx}/sub/a%20b.txt") == fs.cat(f"{nginx}/sub/a b.txt") == b"text"
    with pytest.raises(FileNotFoundError):
        fs.info(f"{nginx}/none_such")


def test_apache(apache, tmp_path):
    reads_everything(f"{apache}/f")
    fs = fsspec.filesystem("gldav")
    assert sorted(fs.find(apache)) == [f"{apache}/f", f"{apache}/sub/a%20b.txt"]
    fs.pipe(f"{apache}/made/g", b"written")
    assert fs.cat(f"{apache}/made/g") == b"written"
    fs.mv(f"{apache}/made/g", f"{apache}/made/h")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{apache}/made/h", b"again", mode="create")
    fs.rm(f"{apache}/made", recursive=True)
    assert not fs.exists(f"{apache}/made")
    gridlane.copy(f"{apache}/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_xrootd(xrootd, tmp_path):
    reads_everything(f"root://{xrootd}//f")
    fs = fsspec.filesystem("glroot", hostid=xrootd)
    assert fs.find("/") == ["/f", "/sub/a b.txt"] and fs.cat("/sub/a b.txt") == b"text"
    fs.pipe("/made/g", b"written")
    assert fs.cat("/made/g") == b"written"
    with pytest.raises(FileExistsError):
        fs.pipe_file("/made/g", b"again", mode="create")
    fs.rm("/made", recursive=True)
    assert not fs.exists("/made")
    assert gridlane.copy(f"root://{xrootd}//f", tmp_path / "f").verified


def test_one_file_at_both(nginx, xrootd, unused_port):
    with gridlane.open([f"{nginx}/f", f"root://{xrootd}//f"]) as file:
        assert file.readv([(0, 1000), (2_000_000, 1000)]) == [CONTENT[:1000], CONTENT[2_000_000:2_001_000]]
    # The first of them is not there.
    with gridlane.open([f"http://127.0.0.1:{unused_port}/f", f"root://{xrootd}//f"]) as file:
        assert file.pread(5, 10) == CONTENT[5:15]
