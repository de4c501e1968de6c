#!/usr/bin/env python3
"""Records what the tools of the field say, for the tests of their drivers: `tests/recorded/CASE.json`.

    GRIDLANE_LAB_BINARY=target/release/gridlane PYTHONPATH=lab/src:lab/tests python3 lab/tests/record_tools.py [CASE…]

Each case is a command of its driver, run against servers on this machine: `gridlane serve`, Debian's xrootd and GridFTP
server. A tool that is missing is left out. Ports, directories and paths of programs are replaced by names.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks import task

import gridlane_lab.drivers  # noqa: F401
from gridlane_lab import registry
from gridlane_lab.drivers.common import HELPERS, gridlane_binary

SIZE = 8_000_000
RECORDED = Path(__file__).with_name("recorded")


@dataclass
class Lab:
    """Servers and files of one recording."""

    work: Path
    ports: dict[str, int] = field(default_factory=dict)

    def url(self, server: str, scheme: str, name: str) -> str:
        """Of a file at a server."""
        # The GridFTP server restricts paths, and does not move its root.
        root = {"ftp": f"{self.work}/export/", "ftp2": f"{self.work}/landing/"}.get(server, "/")
        return f"{scheme}://127.0.0.1:{self.ports[server]}{root}{name}"


@dataclass(frozen=True)
class Case:
    """One command. Sources and target are `SERVER SCHEME NAME`, or names of files here."""

    name: str
    driver: str
    sources: tuple[str, ...]
    target: str
    work: dict[str, Any] = field(default_factory=dict)
    tool: dict[str, Any] = field(default_factory=dict)


READ = {"fraction": 0.1, "event_bytes": 100_000, "pattern": "random"}
CASES = (
    Case("gridlane-single", "gridlane", ("one https file",), "here"),
    Case("gridlane-mirrors", "gridlane", ("one https file", "two https file"), "here", {"sources": 2}),
    Case("gridlane-streams", "gridlane", ("one root file",), "here", {"protocol": "root", "streams": 4}),
    Case("gridlane-missing", "gridlane", ("one https absent",), "here"),
    Case("gridlane-upload", "gridlane", ("file",), "two https put/file", {"kind": "upload"}),
    Case("gridlane-tpc", "gridlane", ("one https file",), "two https put/file", {"kind": "tpc_pull"}),
    Case("gridlane-refused", "gridlane", ("nobody https file",), "here", tool={"flags": ["--timeout", "1"]}),
    Case("gridlane-then-read", "gridlane", ("one https file",), "here", {"kind": "copy_then_read", "read": READ}),
    Case("aria2c-two", "aria2c", ("one https file", "two https file"), "here", {"sources": 2, "streams": 2}),
    Case("aria2c-missing", "aria2c", ("one https absent",), "here"),
    Case(
        "aria2c-refused",
        "aria2c",
        ("nobody https file",),
        "here",
        tool={"flags": ["--max-tries=1", "--connect-timeout=2"]},
    ),
    Case("curl-get", "curl", ("one https file",), "here"),
    Case("curl-put", "curl", ("file",), "two https put/file", {"kind": "upload"}),
    Case("curl-missing", "curl", ("one https absent",), "here"),
    Case("curl-copy", "curl-copy", ("one https file",), "two https put/file", {"kind": "tpc_pull", "streams": 2}),
    Case("curl-copy-push", "curl-copy", ("one https file",), "two https put/file", {"kind": "tpc_push"}),
    Case("curl-copy-failure", "curl-copy", ("one https absent",), "two https put/file", {"kind": "tpc_pull"}),
    Case("curl-copy-unreachable", "curl-copy", ("nobody https file",), "two https put/file", {"kind": "tpc_pull"}),
    Case("davix-get", "davix", ("one https file",), "here"),
    Case("davix-put", "davix", ("file",), "two https put/file", {"kind": "upload"}),
    Case("davix-cp", "davix", ("one https file",), "two https put/file", {"kind": "tpc_pull"}),
    Case("davix-missing", "davix", ("one https absent",), "here"),
    Case("gfal-https", "gfal-copy", ("one https file",), "here"),
    Case("gfal-root", "gfal-copy", ("xrootd root file",), "here", {"protocol": "root"}),
    Case("gfal-tpc", "gfal-copy", ("one https file",), "two https put/file", {"kind": "tpc_pull"}),
    Case("gfal-missing", "gfal-copy", ("one https absent",), "here"),
    Case("globus-ftp", "globus-url-copy", ("ftp ftp file",), "here", {"protocol": "gsiftp", "streams": 4}),
    Case("globus-missing", "globus-url-copy", ("ftp ftp absent",), "here", {"protocol": "gsiftp"}),
    Case(
        "globus-tpc",
        "globus-url-copy",
        ("ftp ftp file",),
        "ftp2 ftp put/file",
        {"protocol": "gsiftp", "kind": "tpc_pull"},
    ),
    Case("rclone-http", "rclone", ("one https file",), "here", {"streams": 4}),
    Case("rclone-webdav", "rclone", ("file",), "two https put/file", {"kind": "upload"}),
    Case("rclone-missing", "rclone", ("one https absent",), "here"),
    Case("xrdcp-single", "xrdcp", ("xrootd root file",), "here", {"protocol": "root"}),
    Case("xrdcp-two", "xrdcp", ("xrootd root file", "one root file"), "here", {"protocol": "root", "sources": 2}),
    Case("xrdcp-missing", "xrdcp", ("xrootd root absent",), "here", {"protocol": "root"}),
    Case(
        "xrdcp-tpc", "xrdcp", ("xrootd root file",), "xrootd2 root put/file", {"protocol": "root", "kind": "tpc_pull"}
    ),
    Case("iperf3-four", "iperf3", ("iperf tcp ",), "", {"kind": "raw_network", "streams": 4}),
    Case("iperf3-refused", "iperf3", ("nobody tcp ",), "", {"kind": "raw_network"}),
    Case("cp-memory", "cp", ("file",), "here", {"kind": "memory_copy"}),
    Case(
        "pyxrootd-single",
        "pyxrootd",
        ("xrootd root file",),
        "",
        {"kind": "remote_read", "protocol": "root", "read": READ},
    ),
    Case(
        "pyxrootd-vector",
        "pyxrootd",
        ("xrootd root file",),
        "",
        {"kind": "remote_read", "protocol": "root", "read": READ | {"mode": "vector", "event_bytes": 1000}},
    ),
    Case(
        "pyxrootd-missing",
        "pyxrootd",
        ("xrootd root absent",),
        "",
        {"kind": "remote_read", "protocol": "root", "read": READ},
    ),
    Case("http-single", "python-http", ("one https file",), "", {"kind": "remote_read", "read": READ}),
    Case(
        "http-vector",
        "python-http",
        ("one https file",),
        "",
        {"kind": "remote_read", "read": READ | {"mode": "vector", "event_bytes": 1000}},
    ),
    Case(
        "http-lazy",
        "python-http",
        ("one https file",),
        "",
        {"kind": "remote_read", "read": READ | {"mode": "lazy", "segment_bytes": 2_000_000}},
    ),
    Case(
        "http-ahead",
        "python-http",
        ("one https file",),
        "",
        {"kind": "remote_read", "read": READ | {"mode": "ahead", "pattern": "sequential", "fraction": 1.0}},
    ),
    Case("http-missing", "python-http", ("one https absent",), "", {"kind": "remote_read", "read": READ}),
)


def main() -> int:
    """Records the cases that are named, or all."""
    cases = [case for case in CASES if not sys.argv[1:] or case.name in sys.argv[1:]]
    RECORDED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="record-", dir="/dev/shm") as directory, servers(Path(directory)) as lab:
        for case in cases:
            found = registry.tool(case.driver).availability()
            if not found.is_there:
                print(f"{case.name}: {found.reason}")
                continue
            record(lab, case, found.version)
    return 0


def record(lab: Lab, case: Case, version: str | None) -> None:
    """Runs one case and writes it."""
    here = lab.work / "here"
    here.unlink(missing_ok=True)
    for landing in lab.work.glob("*/put/*"):
        landing.unlink()
    scratch = lab.work / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        sources = [place(lab, source) for source in case.sources]
        target = place(lab, case.target) if case.target else ""
    except KeyError as missing:
        print(f"{case.name}: no server {missing}")
        return
    one = task(
        case.driver, {"kind": "copy"} | case.work, sources, target, scratch, tool=case.tool, size_bytes=SIZE,
        authority_file=lab.work / "ca.pem", authority_directory=lab.work / "authorities",
    )  # fmt: skip
    driver = registry.tool(case.driver)
    command = driver.command(one)
    began = time.monotonic()
    times: list[float] = []
    with open(lab.work / "stderr", "wb") as errors:
        process = subprocess.Popen(
            command.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            env={"PATH": os.environ["PATH"], "HOME": str(lab.work), **command.environment},
        )  # fmt: skip
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line.decode(errors="replace"))
            times.append(round(time.monotonic() - began, 4))
        code = process.wait(60)
    wall = time.monotonic() - began
    events = [
        [at, json.loads(clean(lab, line))]
        for at, line in zip(times, lines, strict=True)
        if command.is_json_lines and line.startswith("{")
    ]
    value = {
        "driver": case.driver,
        "version": version,
        "command": [clean(lab, word) for word in command.argv],
        "environment": {name: clean(lab, text) for name, text in sorted(command.environment.items())},
        "exit_code": code,
        "wall_s": round(wall, 4),
        "stdout": "" if command.is_json_lines else clean(lab, "".join(lines)),
        "stderr": clean(lab, (lab.work / "stderr").read_text(errors="replace")),
        "events": events,
    }
    (RECORDED / f"{case.name}.json").write_text(json.dumps(value, indent=1) + "\n")
    print(f"{case.name}: exit {code}, {wall:.2f} s")


def place(lab: Lab, words: str) -> str:
    """A URL, or a path."""
    server, _, rest = words.partition(" ")
    if not rest and not words.endswith(" "):
        return str(lab.work / "export" / words) if words == "file" else str(lab.work / words)
    scheme, _, name = rest.partition(" ")
    return lab.url(server, scheme, name)


def clean(lab: Lab, text: str) -> str:
    """Without what differs from machine to machine."""
    text = text.replace(str(HELPERS), "HELPERS").replace(str(lab.work), "/lab")
    text = text.replace(gridlane_binary().path or "gridlane", "gridlane").replace(sys.executable, "python3")
    for name, port in lab.ports.items():
        text = text.replace(f"127.0.0.1:{port}", f"{name}.example:1").replace(f'"{port}"', '"1"')
        text = re.sub(rf"\b{port}\b", "1", text)
    return text.replace(socket.gethostname(), "host.example")


@contextmanager
def servers(work: Path) -> Iterator[Lab]:
    """All servers that are installed, ended at the end."""
    lab, processes = Lab(work), []
    work.chmod(0o755)
    gridlane = gridlane_binary().path
    assert gridlane, "gridlane is not built"
    for name in ("export", "landing"):
        (work / name / "put").mkdir(parents=True)
    (work / "export/file").write_bytes(random.Random(7).randbytes(SIZE))
    shutil.copy(work / "export/file", work / "landing/file")
    openssl(work)
    for name in ("one", "two", "xrootd", "xrootd2", "ftp", "ftp2", "iperf", "nobody"):
        lab.ports[name] = free_port()

    def start(name: str, command: list[str], **more: Any) -> None:
        with open(work / f"{name}.log", "wb") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **more))

    try:
        for name, export in (("one", "export"), ("two", "landing")):
            start(name, [
                gridlane, "serve", str(work / export), "--listen", f"127.0.0.1:{lab.ports[name]}", "--allow-write",
                "--cert", str(work / "cert.pem"), "--key", str(work / "key.pem"), "--ca", str(work / "ca.pem"),
            ], env=dict(os.environ, XDG_DATA_HOME=str(work / f"{name}.data"), HOME=str(work)))  # fmt: skip
        if shutil.which("xrootd"):
            for name, export in (("xrootd", "export"), ("xrootd2", "landing")):
                xrootd(lab, name, export, start)
        if shutil.which("globus-gridftp-server", path=f"{os.environ['PATH']}:/usr/sbin"):
            for name, export in (("ftp", "export"), ("ftp2", "landing")):
                root = ["-anonymous-user", "root", "-allow-root"] if os.getuid() == 0 else []
                start(name, [
                    shutil.which("globus-gridftp-server", path=f"{os.environ['PATH']}:/usr/sbin") or "", "-no-detach",
                    "-port", str(lab.ports[name]), "-auth-level", "0", "-aa", *root, "-data-interface", "127.0.0.1",
                    "-control-interface", "127.0.0.1", "-home-dir", str(work / export), "-rp", str(work / export),
                ])  # fmt: skip
        else:
            del lab.ports["ftp"], lab.ports["ftp2"]
        if shutil.which("iperf3"):
            start("iperf", ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(lab.ports["iperf"])])
        else:
            del lab.ports["iperf"]
        for path in (work / "landing", work / "landing/put", work / "export/put"):
            path.chmod(0o777)
        deadline = time.monotonic() + 20
        for name, port in lab.ports.items():
            while name != "nobody" and time.monotonic() < deadline:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
        yield lab
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def xrootd(lab: Lab, name: str, export: str, start: Any) -> None:
    """With third-party copies over root://, as a user of its own."""
    directory = lab.work / name
    (directory / "admin").mkdir(parents=True)
    (directory / "xrootd.cfg").write_text(
        f"all.export /\noss.localroot {lab.work / export}\nall.adminpath {directory}/admin\n"
        f"all.pidpath {directory}/admin\nxrd.port {lab.ports[name]}\nxrd.network nodnr\n"
        "xrootd.chksum max 4 adler32 crc32c md5\n"
        f"ofs.tpc autorm ttl 15 15 xfr 20 pgm {shutil.which('xrdcp')} --server\n"
    )
    command = ["xrootd", "-c", str(directory / "xrootd.cfg"), "-n", name, "-l", str(directory / "admin/log")]
    if os.getuid() == 0:
        for path in (directory, *directory.iterdir(), lab.work / export, lab.work / export / "put"):
            shutil.chown(path, "xrootd", "xrootd")
        command = ["setpriv", "--reuid=xrootd", "--regid=xrootd", "--clear-groups", "--", *command]
    start(name, command, cwd=directory)


def openssl(work: Path) -> None:
    """An authority with a certificate for this machine, and a directory with its hash."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    quiet = {"check": True, "capture_output": True}
    subprocess.run([*new, "-subj", "/CN=authority", "-keyout", work / "ca-key.pem", "-out", work / "ca.pem"], **quiet)
    subprocess.run([
        *new, "-CA", work / "ca.pem", "-CAkey", work / "ca-key.pem", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
        "-keyout", work / "key.pem", "-out", work / "cert.pem",
    ], **quiet)  # fmt: skip
    (work / "authorities").mkdir()
    shutil.copy(work / "ca.pem", work / "authorities")
    subprocess.run(["openssl", "rehash", work / "authorities"], **quiet)


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
