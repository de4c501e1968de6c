"""Processes under measurement: what a client's run cost, and what it cost the server."""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from running import Serve, start


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
    """CPU time of a server's process and its children so far, threads that have ended included."""
    return sum(_cpu_s(pid) for pid in [server.process.pid, *children(server.process.pid)])


def _cpu_s(pid):
    # The process's CPU clock, as clock_getcpuclockid(3) makes it: finer than the clock ticks of /proc/PID/stat.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


# TLS 1.3 is not among the defaults of nginx before 1.23.4, and 1.2 takes a round trip more.
NGINX_CONF = """\
{user}daemon off;
pid nginx.pid;
worker_processes auto;
error_log {error_log};
events {{ worker_connections 2048; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 10000000;
    default_type application/octet-stream;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        {listen}
        ssl_protocols TLSv1.3;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        {more}
        root {root};
        autoindex on;
        client_max_body_size 0;
        location /put/ {{ dav_methods PUT DELETE; }}
    }}
}}
"""


def nginx_conf(listen, root, certificate, key, error_log, more=""):
    """A configuration with `listen` directives of its own, and more of the server."""
    user = "user root;\n" if os.getuid() == 0 else ""
    return NGINX_CONF.format(
        user=user, listen=listen, root=root, certificate=certificate, key=key, error_log=error_log, more=more,
    )


class Nginx:
    """nginx in the foreground, with the same certificate."""

    name = "nginx"

    def __init__(self, directory, prefix, certificate, key, cipher=None):
        prefix.mkdir()
        self._ports = {"http": _free_port(), "https": _free_port()}
        listen = f"listen 127.0.0.1:{self._ports['http']}; listen 127.0.0.1:{self._ports['https']} ssl;"
        more = f"ssl_conf_command Ciphersuites {cipher};" if cipher else ""
        conf = nginx_conf(listen, directory, certificate, key, "error.log", more)
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
        self._ports = {"http": _free_port(), "https": _free_port()}
        modules = ["mpm_event", "authz_core", "mime", "dir", "autoindex", "dav", "dav_fs"]
        tls = ""
        if certificate:
            modules += ["socache_shmcb", "ssl"]
            tls = f"""\
Listen 127.0.0.1:{self._ports["https"]}
SSLSessionCache shmcb:{prefix}/sessions
SSLProtocol TLSv1.3
SSLCipherSuite TLSv1.3 {cipher}
<VirtualHost 127.0.0.1:{self._ports["https"]}>
    SSLEngine on
    SSLCertificateFile {certificate}
    SSLCertificateKeyFile {key}
    DocumentRoot {directory}
</VirtualHost>
"""
        load = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in modules)
        (prefix / "apache.conf").write_text(f"""\
{load}ServerRoot {prefix}
PidFile apache.pid
ServerName localhost
Listen 127.0.0.1:{self._ports["http"]}
User www-data
Group www-data
ErrorLog error.log
TypesConfig /dev/null
DocumentRoot {directory}
DavLockDB {prefix}/db
KeepAlive on
MaxKeepAliveRequests 0
EnableSendfile on
<Directory {directory}>
    Require all granted
    Dav On
    DirectoryIndex disabled
</Directory>
{tls}""")
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


XROOTD_CONF = """\
all.role server
all.export /
all.adminpath {admin}
all.pidpath {admin}
oss.localroot {root}
xrd.port {port}
xrd.trace off
xrootd.trace off
ofs.trace off
xrootd.chksum max 4 adler32 crc32c md5
xrd.tls {certificate} {key}
xrd.tlsca noverify
xrootd.tls capable none
"""

# On the same port.
XROOTD_HTTP_CONF = """\
xrd.protocol http:{port} libXrdHttp.so
http.trace none
"""


class Xrootd:
    """Debian's xrootd, as the user that its package makes: it does not run as root."""

    name = "xrootd"

    def __init__(self, directory, prefix, certificate, key, http=False, more=""):
        prefix.mkdir()
        admin, self._port = prefix / "admin", _free_port()
        admin.mkdir()
        # The key has to be its own.
        for source, name in ((certificate, "cert.pem"), (key, "key.pem")):
            shutil.copy(source, prefix / name)
        conf = XROOTD_CONF.format(
            admin=admin, root=directory, port=self._port, certificate=prefix / "cert.pem", key=prefix / "key.pem",
        )
        conf += XROOTD_HTTP_CONF.format(port=self._port) if http else ""
        conf += more
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
    return _peak_kib(server.process.pid)


def client_peak_kib(command):
    """The most memory that a client had resident. Not from wait4: there the memory of the process that started it counts too."""
    process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _peak_kib(process.pid))
        time.sleep(0.005)
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}\n{process.stderr.read().decode(errors='replace')}")
    return peak


def _peak_kib(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # What has ended has no memory.
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
