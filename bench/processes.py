"""Processes under measurement: what a client's run cost, and what it cost the server."""

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from running import start

from gridlane_lab import serving
from gridlane_lab.processes import cpu_of_all_s, peak_of_one_bytes


@dataclass
class Sample:
    """One run of a client."""

    seconds: float
    bytes: int
    client_cpu_s: float
    server_cpu_s: float

    @property
    def rate(self):
        return self.bytes / self.seconds

    @property
    def cpu_s(self):
        return self.client_cpu_s + self.server_cpu_s


def printed(*command, env=None):
    """What a program prints, which has to succeed."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def free_port():
    """A port of this machine that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_client(command, count, servers, read=None):
    """Runs a client that moves `count` bytes. Its CPU comes from wait4, the servers' from their processes' clocks. A
    client that decides by itself how much it does says so: `read` makes (count, seconds) of what it prints."""
    before = sum(cpu_s(server) for server in servers)
    began = time.perf_counter()
    process = start(command, stdout=subprocess.PIPE if read else subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read()
    printed = process.stdout.read().decode() if read else ""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}\n{errors.decode(errors='replace')}")
    server_cpu = sum(cpu_s(server) for server in servers) - before
    if read:
        count, seconds = read(printed)
    return Sample(seconds, count, usage.ru_utime + usage.ru_stime, server_cpu)


def cpu_s(server):
    """CPU time of a server's process and of all below it so far, threads and processes that have ended included."""
    return cpu_of_all_s(server.process.pid)


class Nginx:
    """nginx in the foreground, with the same certificate."""

    name = "nginx"

    def __init__(self, directory, prefix, certificate, key, cipher=None):
        prefix.mkdir()
        self._ports = {"http": serving.free_port(), "https": serving.free_port()}
        listen = f"listen 127.0.0.1:{self._ports['http']}; listen 127.0.0.1:{self._ports['https']} ssl;"
        more = f"ssl_conf_command Ciphersuites {cipher};" if cipher else ""
        conf = serving.nginx_conf(listen, directory, certificate, key, "error.log", more)
        (prefix / "nginx.conf").write_text(conf)
        self.process = start(
            ["nginx", "-p", str(prefix), "-c", str(prefix / "nginx.conf")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.authority = certificate
        deadline = time.monotonic() + 10
        while subprocess.run(["curl", "-s", "-o", "/dev/null", self.url("")], check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("nginx does not start: " + (prefix / "error.log").read_text())
            time.sleep(0.02)

    def url(self, name, scheme="http"):
        return f"{scheme}://127.0.0.1:{self._ports[scheme]}/{name}"


class Apache:
    """Apache with mod_dav, and with TLS when it is given a certificate."""

    name = "Apache"

    def __init__(self, directory, prefix, certificate=None, key=None, cipher=None):
        prefix.mkdir()
        self._ports = {"http": serving.free_port(), "https": serving.free_port()}
        http = f"127.0.0.1:{self._ports['http']}"
        https = [f"127.0.0.1:{self._ports['https']}"] if certificate else []
        conf = serving.apache_conf(prefix, directory, [http], https, certificate, key, cipher)
        (prefix / "apache.conf").write_text(conf)
        apache = shutil.which("apache2", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        self.process = start(
            [apache, "-D", "FOREGROUND", "-f", str(prefix / "apache.conf")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 10
        while subprocess.run(["curl", "-s", "-I", "-o", "/dev/null", self.url("big")], check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("Apache does not start: " + (prefix / "error.log").read_text())
            time.sleep(0.02)

    def url(self, name, scheme="http"):
        return f"{scheme}://127.0.0.1:{self._ports[scheme]}/{name}"


class Xrootd:
    """Debian's xrootd, as the user that its package makes: it does not run as root."""

    name = "xrootd"

    def __init__(self, directory, prefix, certificate, key, http=False, copies=False, authority=None):
        prefix.mkdir()
        self._port = serving.free_port()
        (prefix / "admin").mkdir()
        # The key has to be its own.
        for source, name in ((certificate, "certificate.pem"), (key, "key.pem")):
            shutil.copy(source, prefix / name)
        conf = serving.xrootd_conf(prefix, directory, self._port, has_tls=True, has_http=http, has_copies=copies, authority=authority)
        (prefix / "xrootd.conf").write_text(conf)
        (prefix / "key.pem").chmod(0o600)
        command = ["xrootd", "-n", "bench", "-c", str(prefix / "xrootd.conf"), "-l", str(prefix / "log")]
        if os.getuid() == 0:
            for path in (prefix, *prefix.iterdir()):
                shutil.chown(path, "xrootd", "xrootd")
            command += ["-R", "xrootd"]
        self.process = start(command, cwd=prefix, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        # A client that was refused tries again after this many seconds, by default 120.
        patience = dict(os.environ, XRD_CONNECTIONWINDOW="1")
        ask = ["xrdfs", self.address, "query", "config", "role"]
        while subprocess.run(ask, capture_output=True, env=patience, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"xrootd does not start; see {prefix}/log")
            time.sleep(0.1)

    @property
    def address(self):
        return f"127.0.0.1:{self._port}"

    def url(self, name, scheme="root"):
        slashes = "//" if scheme.startswith("root") else "/"
        return f"{scheme}://127.0.0.1:{self._port}{slashes}{name}"


def peak_kib(server):
    """The most memory that a server's process has had resident."""
    return peak_of_one_bytes(server.process.pid) // 1024


def client_peak_kib(command):
    """The most memory that a client had resident. Not from wait4: there the memory of the process that started it counts too."""
    process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_of_one_bytes(process.pid) // 1024)
        time.sleep(0.005)
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}\n{process.stderr.read().decode(errors='replace')}")
    return peak
