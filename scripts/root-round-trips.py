#!/usr/bin/python3
"""Counts how often gridlane and XRootD's own tools wait for an answer over root://: the table in docs/protocol/root.md.

    scripts/root-round-trips.py target/debug/gridlane

Starts Debian's xrootd on loopback with files of its own making, and puts a relay in front of it that holds up what the
server says for 80 ms. What a client sends behind something that was delivered counts as an answer to it. Connecting is a
round trip. Debian packages: xrootd-server xrootd-client openssl. As root it starts the server as the user xrootd.
"""

import os
import pathlib
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

DELAY_S = 0.08
# More than any session begins with, and less than a file.
FIRST_BYTES = 16_000
SIZE = 600_000


class Relay:
    """Between a client and the server; counts the waits of each side."""

    def __init__(self, port):
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.delivered = self.connections = self.bytes = 0
        self.first = None
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server_port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections += 1
                asked = [self.delivered + 1]
            late = queue.Queue()
            for work, arguments in ((self.ask, (client, server, asked)), (self.answer, (server, late, asked)), (self.deliver, (late, client))):
                threading.Thread(target=work, args=arguments, daemon=True).start()

    def ask(self, client, server, asked):
        connected = asked[0]
        try:
            while part := client.recv(1 << 20):
                with self.lock:
                    asked[0] = max(asked[0], self.delivered + 1, connected + 1)
                server.sendall(part)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def answer(self, server, late, asked):
        try:
            while part := server.recv(1 << 20):
                late.put((time.monotonic() + DELAY_S, asked[0], part))
        except OSError:
            pass
        late.put(None)

    def deliver(self, late, client):
        while item := late.get():
            due, round_trips, part = item
            time.sleep(max(0.0, due - time.monotonic()))
            with self.lock:
                self.delivered = max(self.delivered, round_trips)
                self.bytes += len(part)
                if self.first is None and self.bytes >= FIRST_BYTES:
                    self.first = round_trips
            try:
                client.sendall(part)
            except OSError:
                break
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(home):
    for name in ("export/dir", "admin"):
        (home / name).mkdir(parents=True)
    for name in "abcd":
        (home / "export" / name).write_bytes(os.urandom(SIZE))
    (home / "export/dir/a").write_bytes(b"a")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", home / "key.pem", "-out", home / "cert.pem",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
        check=True, stderr=subprocess.DEVNULL,
    )
    (home / "key.pem").chmod(0o600)
    (home / "authorities").mkdir()
    shutil.copy(home / "cert.pem", home / "authorities")
    subprocess.run(["openssl", "rehash", home / "authorities"], check=True)
    port = free_port()
    (home / "config").write_text(
        f"all.export / r/w\noss.localroot {home}/export\nall.adminpath {home}/admin\nxrd.port {port}\nxrd.network nodnr\n"
        f"xrd.tls {home}/cert.pem {home}/key.pem\nxrd.tlsca noverify\nxrootd.tls capable none\nxrootd.chksum max 4 adler32\n"
    )
    command = ["xrootd", "-c", home / "config", "-s", home / "admin/pid", "-l", home / "admin/log"]
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "xrootd:", home], check=True)
        command += ["-R", "xrootd"]
    server = subprocess.Popen(command, cwd=home / "admin")
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port
        except OSError:
            time.sleep(0.05)
    raise SystemExit("xrootd does not start")


def count(port, command, environment):
    """Round trips up to the first bytes of a file, and altogether, and connections."""
    relay = Relay(port)
    command = [str(argument).replace("PORT", str(relay.port)) for argument in command]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("XRD", "X509", "GRIDLANE"))}
    done = subprocess.run(command, env=clean | environment, capture_output=True, timeout=120)
    time.sleep(3 * DELAY_S)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr.decode(errors='replace')}")
    first = "" if relay.first is None else str(relay.first)
    return f"{first:>5} {relay.delivered:>5} {relay.connections:>5}"


def main():
    gridlane = pathlib.Path(sys.argv[1]).resolve()
    home = pathlib.Path(tempfile.mkdtemp(prefix="root-round-trips-"))
    home.chmod(0o755)
    server = None
    try:
        server, port = start(home)
        out, at, secure = home / "out", "root://127.0.0.1:PORT/", "roots://127.0.0.1:PORT/"
        out.mkdir()
        cp, xrdcp = [gridlane, "cp", "--force"], ["xrdcp", "--force", "--silent"]
        fs = ["xrdfs", at]
        several = [f"{at}/{name}" for name in "abcd"]
        rows = [
            ("cp, 600 kB", [*cp, f"{at}/a", out / "a"], [*xrdcp, f"{at}/a", out / "a"]),
            ("cp, 600 kB, roots", [*cp, "--ca", home / "cert.pem", f"{secure}/a", out / "a"], [*xrdcp, f"{secure}/a", out / "a"]),
            ("cp, 2 files, one by one", [*cp, "--parallel", "1", *several[:2], out], [*xrdcp, *several[:2], out]),
            ("cp, 4 files, one by one", [*cp, "--parallel", "1", *several, out], [*xrdcp, *several, out]),
            ("cp, 600 kB, to the server", [*cp, home / "export/a", f"{at}/up"], [*xrdcp, home / "export/a", f"{at}/up2"]),
            ("cat", [gridlane, "cat", f"{at}/a"], [*fs, "cat", "/a"]),
            ("stat", [gridlane, "stat", f"{at}/a"], [*fs, "stat", "/a"]),
            ("ls -l", [gridlane, "ls", "-l", f"{at}/dir"], [*fs, "ls", "-l", "/dir"]),
            ("mkdir", [gridlane, "mkdir", f"{at}/new"], [*fs, "mkdir", "/new2"]),
            ("rm", [gridlane, "rm", f"{at}/up"], [*fs, "rm", "/up2"]),
            ("checksum", [gridlane, "checksum", "--type", "adler32", f"{at}/b"], [*fs, "query", "checksum", "/c?cks.type=adler32"]),
        ]
        print(f"{'':28}{'gridlane':>17}   {'xrdcp, xrdfs':>17}")
        print(f"{'':28}{'first   all conns':>17}   {'first   all conns':>17}")
        for name, ours, theirs in rows:
            mine = count(port, ours, {})
            print(f"{name:28}{mine}   {count(port, theirs, {'X509_CERT_DIR': str(home / 'authorities')})}", flush=True)
    finally:
        if server:
            server.kill()
            server.wait()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
