#!/usr/bin/python3
"""Records what XRootD's own tools and servers say to each other, as text: fuzz/seeds/root/*.txt.

    fuzz/record-root.py fuzz/seeds/root

Starts Debian's xrootd, and a manager with cmsd, on loopback with small files of its own making; puts a recorder in
front of each port; runs xrdcp, xrdfs and the Python bindings through it; writes a file for each conversation. A line is what
came at once: the connection, the sender (C the client, S the server), and the bytes as hexadecimal digits. What is
behind the beginning of TLS is not recorded. Debian packages: xrootd-server xrootd-client python3-xrootd. As root it
starts the servers as the user xrootd.
"""

import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

# What a conversation may have on the wire: enough for all that is recorded here, and small to keep.
BYTES_MAX = 4096


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Recorder:
    """Sits between client and server, and writes the conversation down."""

    def __init__(self, server_port, port=0):
        self.server_port = server_port
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.said = []
        self.count = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server_port))
            with self.lock:
                self.count += 1
                number = self.count
            for who, source, target in (("C", client, server), ("S", server, client)):
                threading.Thread(target=self.pass_on, args=(number, who, source, target), daemon=True).start()

    def pass_on(self, number, who, source, target):
        try:
            while part := source.recv(1 << 16):
                with self.lock:
                    self.said.append((number, who, part))
                target.sendall(part)
        except OSError:
            pass
        finally:
            try:
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def take(self):
        """What was said since the last call, once the connections had time to end."""
        time.sleep(0.2)
        with self.lock:
            said, self.said, self.count = self.said, [], 0
        return said


class Server:
    """A data server, or a manager with its cmsd."""

    def __init__(self, home, name, lines):
        self.home = home / name
        (self.home / "admin").mkdir(parents=True)
        (self.home / "export").mkdir()
        self.port = free_port()
        self.lines = lines
        self.children = []

    def start(self, programs=("xrootd",)):
        config = self.home / "config"
        config.write_text(
            f"oss.localroot {self.home}/export\nall.adminpath {self.home}/admin\nall.export / r/w\n"
            f"xrootd.chksum max 4 adler32 crc32c md5\nxrd.network nodnr\n{self.lines}\n"
        )
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "xrootd:", self.home], check=True)
        for program in programs:
            command = [program, "-c", config, "-s", self.home / f"admin/{program}.pid", "-l", self.home / f"admin/{program}.log"]
            if program == "xrootd":
                command += ["-p", str(self.port)]
            if os.geteuid() == 0:
                command += ["-R", "xrootd"]
            self.children.append(subprocess.Popen(command, cwd=self.home / "admin"))
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{self.home.name} does not start; its log is in {self.home}/admin")

    def stop(self):
        for child in self.children:
            child.kill()
            child.wait()


def write(out, name, said):
    size = sum(len(part) for _, _, part in said)
    if not said or size > BYTES_MAX:
        raise SystemExit(f"{name}: {size} bytes on the wire; {BYTES_MAX} is the most that is kept")
    lines = [f"{number} {who} {part.hex()}\n" for number, who, part in said]
    (out / f"{name}.txt").write_text("".join(lines))
    print(f"{name}: {size} bytes, {len({number for number, _, _ in said})} connections")


def tool(*arguments, env=None, check=True, stdin=None):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("XRD", "X509"))}
    environment |= {"XRD_LOGLEVEL": "Error", "USER": "nobody"} | (env or {})
    done = subprocess.run(
        [str(argument) for argument in arguments], env=environment, capture_output=True, text=True, timeout=120, input=stdin
    )
    if check and done.returncode != 0:
        raise SystemExit(f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")


CALLS = """
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
url, call = sys.argv[1], sys.argv[2]
file = client.File()
def ok(answer):
    status = answer[0]
    assert status.ok, status
    return answer[1]
if call == 'vectors':
    ok(file.open(url + '/pages', OpenFlags.READ))
    ok(file.vector_read([(0, 7), (4090, 12), (8000, 1)]))
    ok(file.read(4095, 2)); ok(file.read(9000, 100)); ok(file.stat())
elif call == 'changes':
    ok(file.open(url + '/changed', OpenFlags.NEW | OpenFlags.UPDATE))
    ok(file.write(b'0123456789', 4090)); ok(file.sync()); ok(file.truncate(4095))
elif call == 'files':
    system = client.FileSystem(url)
    ok(system.ping()); ok(system.protocol()); ok(system.locate('/dir', OpenFlags.REFRESH))
    ok(system.statvfs('/'))
elif call == 'died':
    ok(file.open(url + '/posc', OpenFlags.NEW | OpenFlags.POSC)); ok(file.write(b'x' * 30, 0))
    import os; os._exit(0)
if file.is_open(): ok(file.close())
"""


class Raw:
    """Asks the server what no tool asks, or not in this way."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012))
        self.get(16)

    def get(self, count):
        found = b""
        while len(found) < count:
            found += self.socket.recv(count - len(found)) or sys.exit("the server closed")
        return found

    def ask(self, request, body, payload=b"", behind=b""):
        """Sends a request; returns the answer's status and what is behind its head."""
        self.socket.sendall(struct.pack(">2sH16si", b"\7\3", request, body.ljust(16, b"\0"), len(payload)) + payload + behind)
        _, status, size = struct.unpack(">2sHi", self.get(8))
        found = self.get(size)
        if status == 4007:
            found += self.get(struct.unpack(">i", found[12:16])[0])
        return status, found


def raw(port):
    raw = Raw(port)
    raw.ask(3006, struct.pack(">iBB", 0x511, 1, 3))
    raw.ask(3007, struct.pack(">i8sBBBB", 7, b"recorder", 0, 0xdd, 0x85, 0))
    handle = raw.ask(3010, struct.pack(">HH", 0o644, 0x0460 | 2), b"/raw?oss.asize=1")[1][:4]
    raw.ask(3019, handle + struct.pack(">qB", 0, 0), b"a page's beginning")
    # The checksum of the second page is wrong, then right.
    raw.ask(3026, handle + struct.pack(">q", 4090), bytes.fromhex("4f710f39") + b"012345" + bytes.fromhex("c27e5db3") + b"6789")
    raw.ask(3026, handle + struct.pack(">qBB", 4096, 0, 1), bytes.fromhex("c27e5db2") + b"6789")
    raw.ask(3030, handle + struct.pack(">qi", 4090, 12), b"\0\0")
    raw.ask(3030, handle + struct.pack(">qi", 4_000_000, 12))
    raw.ask(3031, b"\1", struct.pack(">4siq4siq", handle, 3, 50, handle, 2, 9), b"onetw")
    raw.ask(3013, handle + struct.pack(">qi", 0, 5))
    raw.ask(3012, handle)
    raw.ask(3017, b"\0" * 12 + handle)
    raw.ask(3003, handle)
    raw.ask(3022, b"", b"/dir/a\n/dir")
    raw.ask(3005, b"", b"/dir/a")
    raw.ask(3018, b"", b"monitor info text")
    raw.ask(3009, struct.pack(">14xH", 0), b"/raw /raw2")
    raw.ask(3014, b"", b"/raw2\0")
    raw.ask(3023, b"s" * 16)
    raw.ask(3011, b"")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    home = pathlib.Path(tempfile.mkdtemp(prefix="record-root-"))
    home.chmod(0o755)
    servers = []
    try:
        data = Server(home, "data", "")
        servers.append(data)
        (data.home / "export/dir/sub").mkdir(parents=True)
        for name in ("a", "b c"):
            (data.home / "export/dir" / name).write_bytes(b"recorded " * 11 + b"\n")
        (data.home / "export/empty").touch()
        with open(data.home / "export/pages", "wb") as pages:
            pages.truncate(8192)
            pages.seek(4090)
            pages.write(b"0123456789")
        data.start()
        recorder = Recorder(data.port)
        url = f"root://127.0.0.1:{recorder.port}"
        local = home / "local"
        local.mkdir()
        (local / "up").write_bytes(b"uploaded " * 30)

        def record(name, *steps, env=None, check=True):
            for step in steps:
                tool(*step, env=env, check=check)
            write(out, name, recorder.take())

        copy = ("xrdcp", "--nopbar", "--silent", "--force")
        fs = ("xrdfs", url)
        record("xrdcp-down", (*copy, f"{url}//dir/a", local / "down"))
        record("xrdcp-down-empty", (*copy, f"{url}//empty", local / "down"))
        record("xrdcp-down-plain", (*copy, f"{url}//dir/a", local / "down"), env={"XRD_CPUSEPGWRTRD": "0"})
        record("xrdcp-down-streams", (*copy, "-S", "2", f"{url}//dir/a?x=1&y", local / "down"))
        record("xrdcp-down-checksum", (*copy, "--cksum", "adler32:source", f"{url}//dir/a", local / "down"))
        record("xrdcp-down-missing", (*copy, f"{url}//dir/none", local / "down"), check=False)
        record("xrdcp-down-directory", (*copy, f"{url}//dir", local / "down"), check=False)
        record("xrdcp-up", (*copy[:-1], local / "up", f"{url}//new/up"))
        record("xrdcp-up-posc", (*copy, "--posc", "-p", local / "up", f"{url}//new/posc"))
        record("xrdcp-up-plain", (*copy, local / "up", f"{url}//new/up"), env={"XRD_CPUSEPGWRTRD": "0"})
        record("xrdcp-up-checksum", (*copy, "--cksum", "crc32c", local / "up", f"{url}//new/sum"))
        record("xrdcp-server-to-server", (*copy, f"{url}//dir/a", f"{url}//new/a"))
        record("xrdfs-ls", (*fs, "ls", "/dir"), (*fs, "ls", "-l", "/dir"))
        record("xrdfs-ls-checksum", (*fs, "ls", "-C", "/dir"))
        record("xrdfs-ls-tree", (*fs, "ls", "-R", "/dir"))
        record("xrdfs-ls-empty", (*fs, "ls", "-l", "/dir/sub"))
        record("xrdfs-stat", (*fs, "stat", "/dir/a"), (*fs, "stat", "/none"), check=False)
        record("xrdfs-statvfs", (*fs, "statvfs", "/"), (*fs, "spaceinfo", "/"))
        record("xrdfs-namespace", (*fs, "mkdir", "-p", "/n/m"), (*fs, "mv", "/new/a", "/n/m/b c"), (*fs, "chmod", "/n/m/b c", "rw-r-----"))
        record("xrdfs-remove", (*fs, "truncate", "/n/m/b c", "9"), (*fs, "rm", "/n/m/b c"), (*fs, "rmdir", "/n/m"))
        record("xrdfs-locate", (*fs, "locate", "/dir/a"), (*fs, "locate", "-h", "*"))
        record("xrdfs-query-config", (*fs, "query", "config", "version", "role", "readv_iov_max", "nobody"))
        record("xrdfs-query-checksum", (*fs, "query", "checksum", "/dir/b c?cks.type=md5"), (*fs, "query", "xattr", "/dir/a"))
        record("xrdfs-query-space", (*fs, "query", "space", "/"), (*fs, "query", "stats", "i"))
        record("xrdfs-xattr", (*fs, "xattr", "/dir/a", "set", "k=vv"), (*fs, "xattr", "/dir/a", "get", "k"), (*fs, "xattr", "/dir/a", "list"))
        record("xrdfs-cat-tail", (*fs, "cat", "/dir/a"), (*fs, "tail", "-c", "5", "/dir/a"))
        record("xrdfs-prepare", (*fs, "prepare", "-s", "/dir/a", "/dir/b c"), (*fs, "query", "prepare", "id", "/dir/a"), check=False)
        for call in ("vectors", "changes", "files", "died"):
            record(f"python-{call}", ("/usr/bin/python3", "-c", CALLS, f"{url}/", call))
        raw(recorder.port)
        write(out, "raw", recorder.take())
        cluster(home, servers, out, local, record_for=lambda port: Recorder(port))
        authenticated(home, servers, out, local)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(home, ignore_errors=True)


def cluster(home, servers, out, local, record_for):
    """A manager that sends clients to a data server."""
    cmsd_port = free_port()
    common = f"all.manager 127.0.0.1:{cmsd_port}\ncms.delay startup 1 servers 1 lookup 1\n"
    manager = Server(home, "manager", common + "all.role manager\n")
    member = Server(home, "member", common + "all.role server\n")
    (member.home / "export/f").write_bytes(b"by the manager\n")
    servers += [manager, member]
    manager.lines += f"xrd.port {cmsd_port} if exec cmsd\n"
    manager.start(("cmsd", "xrootd"))
    member.start(("cmsd", "xrootd"))
    # The member says its own port, so that only what is said to the manager is recorded.
    recorder = record_for(manager.port)
    url = f"root://127.0.0.1:{recorder.port}"
    for _ in range(60):
        done = subprocess.run(["xrdfs", f"127.0.0.1:{manager.port}", "stat", "/f"], capture_output=True)
        if done.returncode == 0:
            break
        time.sleep(0.5)
    recorder.take()
    tool("xrdcp", "--nopbar", "--silent", "--force", f"{url}//f", local / "down")
    write(out, "manager-down", recorder.take())
    tool("xrdfs", url, "stat", "/none", check=False)
    write(out, "manager-wait-and-missing", recorder.take())
    tool("xrdfs", url, "locate", "/f")
    tool("xrdfs", url, "statvfs", "/")
    write(out, "manager-locate", recorder.take())


def authenticated(home, servers, out, local):
    """Servers that demand authentication."""
    for name, lines in (
        ("unix", "xrootd.seclib libXrdSec.so\nsec.protocol unix\n"),
        ("signed", "xrootd.seclib libXrdSec.so\nsec.protocol unix\nsec.level all intense force\n"),
    ):
        server = Server(home, name, lines)
        (server.home / "export/f").write_bytes(b"for somebody\n")
        servers.append(server)
        server.start()
        recorder = Recorder(server.port)
        tool("xrdcp", "--nopbar", "--silent", "--force", f"root://127.0.0.1:{recorder.port}//f", local / "down")
        write(out, f"auth-{name}", recorder.take())


if __name__ == "__main__":
    main()
