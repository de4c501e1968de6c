#!/usr/bin/env python3
"""What gridlane reaches on loopback beside nginx, Apache, XRootD, curl, aria2c, davix, rclone and wrk.

Each row does the same work in several ways in turns, so that what disturbs one disturbs the others. Writes
bench/results/loopback-DATE.json and docs/performance/loopback.md, which says what to know before reading.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
import zlib
from functools import cached_property
from pathlib import Path
from statistics import median

from program import Arguments, Run, in_memory, is_chosen, no_such_row  # first: it makes the modules in scripts/ known
import memory
from pairs import Claim, Pairs, must_be_same
from processes import Apache, Nginx, Sample, Xrootd, client_peak_kib, run_client
from report import Page, write_page
from running import Serve, generate, make_old, start
from small_files import FILES_PER_DIRECTORY, SmallFiles
from tls_seen import Listener

LIMITED_RATE = 60_000_000
SMALL_BYTES = 1000
CIPHER = "TLS_AES_128_GCM_SHA256"
MIB = 1 << 20

# OpenSSL and GnuTLS would rather have 256 bits. All programs that link them read this.
OPENSSL_CONF = f"""\
openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = defaults
[defaults]
Ciphersuites = {CIPHER}
"""
GNUTLS_CONF = """\
[overrides]
tls-disabled-cipher = AES-256-GCM
tls-disabled-cipher = CHACHA20-POLY1305
"""


def main():
    options = arguments()
    if options.list:
        print("\n".join(Bench.ROWS))
        return 0
    rows = [name for name in Bench.ROWS if is_chosen(name, options)]
    if not rows:
        sys.exit(f"{no_such_row(options)}; --list shows them")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return in_memory(5 * options.size + 200_000_000, lambda work: Bench(options, work).run(rows), "; see --size")


def arguments():
    arguments = Arguments("bench", "What gridlane reaches on loopback beside its peers.", "3 runs of 200 MB")
    arguments.amount("pairs", 15, 3, "runs of each side per row")
    arguments.amount("size", 1_000_000_000, 200_000_000, "bytes of the file")
    arguments.amount("files", 10_000, 1000, "files of 100 kB in the tree")
    arguments.add_argument("--list", action="store_true", help="show the names of the rows")
    arguments.page("loopback.md")
    return arguments.parse()


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.binary = options.gridlane
        self.size = options.size
        self.work = work
        self.target = work / "target"
        self.put = work / "export/put/big"
        self.measured = Pairs(options.pairs, self.check)
        self.limits = []
        self.tls = {}

    def run(self, names):
        run = Run("loopback", self.options)
        self.prepare()
        for name in names:
            self.ROWS[name](self, name)
            self.clear()
        rows = self.measured.rows
        return run.finish(
            rows, lambda path, facts, stolen: write_page(path, self.page(), facts, rows, stolen), self.limits,
            limits=self.limits, tls=self.tls,
        )

    def prepare(self):
        for variable, name, text in (
            ("OPENSSL_CONF", "openssl.cnf", OPENSSL_CONF),
            ("GNUTLS_SYSTEM_PRIORITY_FILE", "gnutls.conf", GNUTLS_CONF),
        ):
            (self.work / name).write_text(text)
            os.environ[variable] = str(self.work / name)
        self.export = self.work / "export"
        (self.export / "put").mkdir(parents=True)
        self.file = self.export / "big"
        generate(self.file, self.size)
        (self.export / "small").write_bytes(b"x" * SMALL_BYTES)
        for served in (self.file, self.export / "small"):
            make_old(served)
        # The memory that targets will use is touched once: the first touch is many times slower.
        for target in (self.target, self.put):
            generate(target, self.size)
        self.clear()
        self.serve = self.another_serve("--allow-write")
        self.authority = self.serve.authority
        self.identity = (self.authority, self.work / "home/gridlane/key.pem", CIPHER)
        print(f"{self.options.pairs} runs of each side of {self.size / 1e9:g} GB per row")

    # --- Servers, started when a row needs them --------------------------------------------------------

    def another_serve(self, *options):
        return Serve(self.binary, self.export, self.work / "home", *options)

    @cached_property
    def nginx(self):
        return Nginx(self.export, self.work / "nginx", *self.identity)

    @cached_property
    def apache(self):
        return Apache(self.export, self.work / "apache", *self.identity)

    @cached_property
    def xrootd(self):
        return Xrootd(self.export, self.work / "xrootd", *self.identity[:2], http=True)

    @cached_property
    def authorities(self):
        """A directory as davix wants it: each authority under the hash of its name."""
        directory = self.work / "authorities"
        directory.mkdir()
        shutil.copy(self.authority, directory / "authority.pem")
        subprocess.run(["openssl", "rehash", str(directory)], check=True)
        return str(directory)

    @cached_property
    def tree(self):
        tree = SmallFiles(self.binary, self.work, self.export, self.options.files, 100_000)
        tree.trust(self.authority)
        return tree

    def turn_to(self, binary):
        """Has the rows that are made from here on run this binary."""
        self.binary = binary
        self.serve = self.another_serve("--allow-write")
        if "tree" in vars(self):
            self.tree.gridlane = binary

    # --- Rows: one file --------------------------------------------------------------------------------

    def get(self, name, scheme, cpu, rate, against_both):
        def side(server):
            command = lambda url: self.curl(url, "-o", "/dev/null")  # noqa: E731
            return self.work_of(f"curl from {server.name}", command, server, scheme)

        sides = {"gridlane": side(self.serve), "nginx": side(self.nginx), "apache": side(self.apache)}
        claims = [Claim(("nginx", "apache"), rate)] if against_both else [Claim(("nginx",), rate), Claim(("apache",), None)]
        claims += [Claim(("nginx",), cpu, "server_cpu_s"), Claim(("apache",), None, "server_cpu_s")]
        self.measured.claims(name, "MB/s", sides, claims)

    def get_http(self, name):
        self.get(name, "http", 0.9, 1.0, True)

    def get_https(self, name):
        self.get(name, "https", 0.6, 1.2, False)

    def cp_from_nginx(self, name):
        self.measured.claims(
            name, "MB/s",
            {
                "gridlane cp": self.down("gridlane cp", self.cp, self.nginx),
                "curl": self.down("curl", self.curl_to, self.nginx),
                "aria2c -x4": self.down("aria2c", self.aria2, self.nginx),
            },
            [Claim(("curl",), 1.1), Claim(("aria2c -x4",), 1.7), Claim(("curl",), 0.75, "client_cpu_s")],
        )

    def put_to(self, name):
        sides = {server.name: self.up("curl", self.curl_up, server) for server in (self.serve, self.nginx)}
        self.measured.claims(name, "MB/s", sides, [Claim(("nginx",), 1.3), Claim(("nginx",), 0.7, "server_cpu_s")])
        sides[self.serve.name]()
        self.must_keep_adler32()

    def cp_up(self, name):
        sides = {
            "gridlane cp": self.up("gridlane cp", lambda url: self.cp(str(self.file), url), self.serve),
            "curl -T to nginx": self.up("curl", self.curl_up, self.nginx),
        }
        claims = [Claim(("curl -T to nginx",), 1.3)]
        claims += [Claim(("curl -T to nginx",), None, measure) for measure in ("client_cpu_s", "server_cpu_s")]
        self.measured.claims(name, "MB/s", sides, claims)

    def both_ends(self, name):
        curl, aria2 = "curl from nginx", "aria2c -x4 from nginx"
        self.measured.claims(
            name, "MB/s",
            {
                "gridlane cp": self.down("gridlane cp", self.cp, self.serve),
                curl: self.down("curl", self.curl_to, self.nginx),
                aria2: self.down("aria2c", self.aria2, self.nginx),
            },
            [Claim((curl,), 1.6), Claim((aria2,), 2.3), Claim((curl,), 0.65, "client_cpu_s")],
        )

    def davix(self, name):
        peer = "davix-get from xrootd"
        get = lambda url: ["davix-get", "--capath", self.authorities, url, "/dev/null"]  # noqa: E731
        self.measured.claims(
            name, "MB/s",
            {
                "gridlane cp": self.down("gridlane cp", self.cp, self.serve, "/dev/null"),
                peer: self.work_of(peer, get, self.xrootd, "https"),
            },
            [Claim((peer,), 1.5), Claim((peer,), 0.6, "cpu_s")],
        )

    def cp_http(self, name):
        sides = {
            "gridlane cp": self.down("gridlane cp", self.cp, self.nginx, scheme="http"),
            "curl": self.down("curl", self.curl_to, self.nginx, scheme="http"),
            "aria2c -x4": self.down("aria2c", self.aria2, self.nginx, scheme="http"),
        }
        self.measured.claims(name, "MB/s", sides, [Claim(("curl",), 1.0), Claim(("aria2c -x4",), None), Claim(("curl",), None, "client_cpu_s")])

    def put_http(self, name):
        sides = {server.name: self.up("curl", self.curl_up, server, "http") for server in (self.serve, self.nginx)}
        self.measured.claims(name, "MB/s", sides, [Claim(("nginx",), None), Claim(("nginx",), None, "server_cpu_s")])

    def limited(self, name):
        servers = [self.another_serve("--limit-rate", str(LIMITED_RATE)) for _ in range(3)]
        command = self.from_all(servers, self.target, "http")

        def run():
            self.clear()
            return run_client(command, self.size, servers)

        # A second of each is enough to tell, and a GB takes six.
        self.measured.bounded(name, 0.95, 3 * LIMITED_RATE, run)
        for server in servers:
            server.kill()

    # --- Rows: many --------------------------------------------------------------------------------------

    def small_requests(self, name, scheme):
        seconds = 1 if self.options.quick else 2

        def read(printed):
            if "Non-2xx" in printed or "Socket errors" in printed:
                sys.exit(f"wrk was not answered:\n{printed}")
            count = int(re.search(r"(\d+) requests in", printed).group(1))
            # By its own clock: it takes a moment longer than it is told.
            return count, count / float(re.search(r"Requests/sec: +([\d.]+)", printed).group(1))

        def side(server):
            command = lambda url: ["wrk", "-t2", "-c64", f"-d{seconds}", url]  # noqa: E731
            return self.work_of("wrk", command, server, scheme, "small", read)

        sides = {server.name: side(server) for server in (self.serve, self.nginx)}
        self.measured.claims(name, "requests/s", sides, [Claim(("nginx",), 1.0), Claim(("nginx",), None, "server_cpu_s")])

    def small_http(self, name):
        self.small_requests(name, "http")

    def small_https(self, name):
        self.small_requests(name, "https")

    def small_files(self, name, scheme):
        tree = self.tree

        def work(label, command, server):
            if scheme == "https":
                self.look_at_tls(label, server, lambda url: command(url.rstrip("/")), "tree")
            return tree.work_of(command(server.url("tree", scheme)), server)

        cp = lambda url: tree.cp(f"{url}/", tree.target)  # noqa: E731
        rclone = lambda url: tree.rclone("http", url, tree.target)  # noqa: E731
        aria2 = lambda url: tree.aria2(url, tree.target)  # noqa: E731
        sides = {"gridlane cp -r": work("gridlane cp", cp, self.serve)}
        for server in (self.nginx, self.serve):
            sides[f"rclone from {server.name}"] = work("rclone", rclone, server)
            sides[f"aria2c -i -j16 from {server.name}"] = work("aria2c", aria2, server)
        rclones, arias = (tuple(side for side in sides if side.startswith(peer)) for peer in ("rclone", "aria2c"))
        claims = [Claim(rclones, 3.0), Claim(arias, 1.3), Claim(rclones, None, "cpu_s"), Claim(arias, None, "cpu_s")]
        self.measured.claims(name, "MB/s", sides, claims)
        tree.clear()

    def small_files_http(self, name):
        self.small_files(name, "http")

    def small_files_https(self, name):
        self.small_files(name, "https")

    # --- Rows with a limit instead of a peer -------------------------------------------------------------

    def server_memory(self, name):
        few, seconds = self.options.quick, 1 if self.options.quick else 4
        for label, work, count in (
            ("idle, over TLS", memory.idle, 100 if few else 1000),
            ("slow readers, over TLS", lambda *at: memory.slow_readers(*at, seconds), 32 if few else 256),
            ("uploading, over TLS", lambda *at: memory.writers(*at, seconds), 32 if few else 256),
        ):
            # Its own: a peak is of all that a process has done.
            serve = self.another_serve("--allow-write")
            before = memory.kernel_bytes()
            figures = work(serve, self.authority, count)
            serve.kill()
            for left in (self.export / "put").iterdir():
                left.unlink()
            limit = 64 * MIB + count * 256 * 1024
            kernel = f"{figures['socket_bytes'] / MIB:.0f} MiB (ss), {max(figures['kernel_bytes'] - before, 0) / MIB:.0f} MiB (both ends, sockstat)"
            self.limit(f"{name}: {count} connections, {label}", figures["peak_bytes"] / MIB, limit / MIB, "MiB", kernel)

    def client_memory(self, name):
        servers = [self.another_serve() for _ in range(3)]
        sparse = self.export / "sparse"
        sparse_bytes = self.size if self.options.quick else 20_000_000_000
        with open(sparse, "wb") as file:
            file.truncate(sparse_bytes)
        for label, file, target in (
            (f"{self.size / 1e9:g} GB to a file", "big", self.target),
            (f"{sparse_bytes / 1e9:g} GB of zeros to /dev/null", "sparse", "/dev/null"),
        ):
            peak = client_peak_kib(self.from_all(servers, target, "https", file)) / 1024
            self.check()
            self.clear()
            self.limit(f"{name}: {label}", peak, 128, "MiB")
        sparse.unlink()
        for server in servers:
            server.kill()

    def version(self, name):
        samples = []
        for _ in range(50):
            began = time.perf_counter()
            subprocess.run([self.binary, "--version"], check=True, stdout=subprocess.DEVNULL)
            samples.append(1e3 * (time.perf_counter() - began))
        self.limit(f"{name}: median of {len(samples)}", median(samples), 15, "ms")
        self.limit(f"{name}: the worst of them", max(samples), 15, "ms")

    def limit(self, name, value, limit, unit, note=""):
        row = {"name": name, "value": value, "limit": limit, "unit": unit, "note": note, "passed": value <= limit}
        self.limits.append(row)
        print(f"{name:72} {value:.1f} {unit} of {limit:.0f} {'pass' if row['passed'] else 'FAIL'} {note}", flush=True)

    ROWS = {
        "GET http to null by curl, gridlane": get_http,
        "GET https to null by curl, gridlane": get_https,
        "https from nginx to a file, gridlane cp": cp_from_nginx,
        "PUT https by curl -T, to gridlane": put_to,
        "PUT https, gridlane cp to gridlane": cp_up,
        "https to a file, gridlane cp from gridlane": both_ends,
        "https to null, gridlane cp from gridlane": davix,
        "1 kB GETs http, 64 connections of wrk, gridlane": small_http,
        "1 kB GETs https, 64 connections of wrk, gridlane": small_https,
        "files of 100 kB http, gridlane cp -r from gridlane": small_files_http,
        "files of 100 kB https, gridlane cp -r from gridlane": small_files_https,
        "http from nginx to a file, gridlane cp": cp_http,
        "PUT http by curl -T, to gridlane": put_http,
        f"http from three servers limited to {LIMITED_RATE // 10**6} MB/s each, to a file: fraction of bound(3)": limited,
        "server memory": server_memory,
        "client memory, three sources over https": client_memory,
        "gridlane --version": version,
    }
    WITHOUT_PEERS = (limited, server_memory, client_memory, version)

    # --- Commands ----------------------------------------------------------------------------------------

    def cp(self, source, target):
        return [self.binary, "cp", source, str(target), "--quiet", "--ca", self.authority]

    def from_all(self, servers, target, scheme, name="big"):
        first, *others = (server.url(name, scheme) for server in servers)
        return self.cp(first, target) + [word for url in others for word in ("--mirror", url)]

    def curl(self, *words):
        return ["curl", "--silent", "--show-error", "--fail", "--cacert", self.authority, *words]

    def curl_to(self, url, target):
        return self.curl(url, "-o", str(target))

    def curl_up(self, url):
        return self.curl("-T", str(self.file), url)

    def aria2(self, url, target):
        return [
            "aria2c", "--no-conf", "--quiet", "--file-allocation=none", "--allow-overwrite=true", "--max-connection-per-server=4",
            "--split=4", f"--ca-certificate={self.authority}", f"--dir={Path(target).parent}", f"--out={Path(target).name}", url,
        ]

    def down(self, client, command, server, target=None, scheme="https"):
        return self.work_of(client, lambda url: command(url, target or self.target), server, scheme)

    def up(self, client, command, server, scheme="https"):
        return self.work_of(client, command, server, scheme, "put/big")

    def work_of(self, client, command, server, scheme, name="big", read=None):
        """The work as something to be called: removes what the last run left, runs, gives a sample."""
        words = command(server.url(name, scheme))
        if scheme == "https":
            self.look_at_tls(client, server, command, "small" if name == "big" else name)

        def run() -> Sample:
            self.clear()
            return run_client(words, self.size, [server], read)

        return run

    def look_at_tls(self, client, server, command, name):
        """Which version and cipher this client and this server agree on, once for each pair."""
        pair = f"{client.partition(' from ')[0]} – {server.name}"
        if pair in self.tls:
            return
        relay = Listener(int(server.url("", "https").split(":")[2].strip("/")))
        self.clear()
        # Whether it succeeds is another question: an upload of the row may be too large to wait for here.
        client = start(command(f"https://127.0.0.1:{relay.port}/{name}"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client.wait()
        relay.close()
        self.tls[pair] = relay.seen()
        if not self.tls[pair].startswith("TLS 1.3"):
            sys.exit(f"{pair}: {self.tls[pair]}")

    # --- Checks --------------------------------------------------------------------------------------------

    def clear(self):
        for written in (self.target, self.put):
            written.unlink(missing_ok=True)

    def check(self):
        for written in (self.target, self.put):
            if written.exists():
                must_be_same(written, self.file)
        if "tree" in vars(self):
            self.tree.check()

    def must_keep_adler32(self):
        """The server has to have computed it on the way: it is an attribute of the file."""
        kept = {name: os.getxattr(self.put, name) for name in os.listxattr(self.put)}
        value = 1
        with open(self.file, "rb") as file:
            while block := file.read(1 << 24):
                value = zlib.adler32(block, value)
        if not any(f"{value:08x}".encode() in text for text in kept.values()):
            sys.exit(f"the server kept no adler32 of {value:08x}: {kept}")

    # --- The page --------------------------------------------------------------------------------------------

    def page(self):
        others = sorted({cipher for cipher in self.tls.values() if CIPHER not in cipher})
        ciphers = "\n  ".join(f"{pair}: {cipher}." for pair, cipher in self.tls.items() if cipher in others)
        caveats = [
            f"One file of {self.size / 1e9:g} GB in tmpfs, an hour old and read before the first run; targets (`to a file`, `PUT`) are in tmpfs too and "
            "removed before every\n  run, so that each run pays for fresh pages, in memory that was touched before. The first run of every "
            "side is not\n  counted, and what it wrote is compared with the original.",
            "CPU is in CPU-seconds per GB (10^9 bytes), client + server, for requests in µs each. That of a client comes from\n  wait4, "
            "that of a server from the CPU clocks of all its processes. Rows of CPU pass when the higher end of the\n  interval does.",
            f"Every https row speaks TLS 1.3 with {CIPHER} and one certificate (ECDSA P-256), as seen on the wire for\n  every pair of client "
            f"and server{', but for these:' if ciphers else '.'}" + (f"\n  {ciphers}" if ciphers else ""),
            "`gridlane cp` computes adler32 of everything and compares it when the server states one; `gridlane serve` computes\n  and keeps "
            "adler32 of every upload, which is checked. The others compute nothing. No access logs; nginx and Apache\n  use sendfile.",
            f"Small files: {self.options.files} of 100 kB in directories of {FILES_PER_DIRECTORY}. rclone has 8 transfers and 16 checkers and "
            "reads pages of links, aria2c\n  16 downloads from a list (it lists nothing by itself), `gridlane cp -r` its defaults. Each peer "
            "runs from nginx and from\n  gridlane. \"The better\", here and elsewhere, is the one with the better median.",
            "Memory: the peak of the process as `/proc/PID/status` has it (VmHWM). The kernel's buffers of sockets are not in it.",
        ]
        lines = ["", "## Limits", "", "| what | gridlane | limit | | buffers of sockets in the kernel |", "| --- | ---: | ---: | :---: | --- |"]
        for row in self.limits:
            verdict = "pass" if row["passed"] else "**fail**"
            lines.append(f"| {row['name']} | {row['value']:.1f} {row['unit']} | ≤ {row['limit']:.0f} {row['unit']} | {verdict} | {row['note']} |")
        return Page("Loopback: figures", "bench/loopback.py", self.options.command, caveats, lines)


if __name__ == "__main__":
    sys.exit(main())
