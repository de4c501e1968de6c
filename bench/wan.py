#!/usr/bin/env python3
"""`gridlane cp` beside aria2c and xrdcp over an emulated wide area: one file from one, two and three sites.

Each row is one size and one number of sources; in it the clients alternate, run by run. Writes
bench/results/DATE-wan.json and docs/performance/wan.md, which says what to know before reading.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

import bound  # noqa: E402
import wan_report  # noqa: E402
from processes import Sample, cpu_s  # noqa: E402
from report import machine  # noqa: E402
from pairs import side  # noqa: E402
from running import clean_up, exit_on_signals, generate  # noqa: E402
from stats import summarize  # noqa: E402
from wan_sites import Client, GridlaneServe, Identity, Network, Nginx, XRootD  # noqa: E402

SITES = ("near", "middle", "far")
SIZES = (1_000_000, 500_000_000, 1_000_000_000)
QUICK_SIZES = (1_000_000, 100_000_000)
PAIRS, QUICK_PAIRS = 6, 2

SCENARIO = """\
# Three sites that share nothing on their way to the client: 10, 20 and 30 ms there and back.
sites = ["client", "near", "middle", "far"]
seed = 1
buffers = "bdp"

[[link]]
between = ["near", "client"]
rate = "800Mb/s"
delay_ms = 5

[[link]]
between = ["middle", "client"]
rate = "800Mb/s"
delay_ms = 10

[[link]]
between = ["far", "client"]
rate = "800Mb/s"
delay_ms = 15
"""


def main():
    options = arguments()
    if options.self_test:
        bound.self_test()
        print("the arithmetic of the bound holds")
        return 0
    exit_on_signals()
    room = 2 * max(options.sizes) + 200_000_000
    if shutil.disk_usage("/dev/shm").free < room:
        sys.exit(f"the benchmark needs {room / 1e9:.1f} GB free in /dev/shm")
    work = Path(tempfile.mkdtemp(prefix="gridlane-wan-", dir="/dev/shm"))
    bench = Bench(options, work)
    try:
        return bench.run()
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        clean_up(work)
        if bench.network:
            bench.network.down()


def arguments():
    parser = argparse.ArgumentParser(description="gridlane, aria2c and xrdcp over an emulated wide area.")
    parser.add_argument("--gridlane", help="the binary")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"counted runs of each client (default: {PAIRS})")
    parser.add_argument("--quick", action="store_true", help="2 runs and up to 100 MB: shows that it works, nothing more")
    parser.add_argument("--thorough", action="store_true", help="also aria2c with as many connections as it may have")
    parser.add_argument("--only", default="", help="rows whose name contains this: '1 GB', 'from 3'")
    parser.add_argument("--page", default=str(ROOT / "docs/performance/wan.md"), help="the page to write")
    parser.add_argument("--self-test", action="store_true", help="only test the arithmetic of the bound")
    options = parser.parse_args()
    if not (options.gridlane or options.self_test):
        parser.error("--gridlane is missing")
    options.gridlane = str(Path(options.gridlane or "").resolve())
    options.sizes = QUICK_SIZES if options.quick else SIZES
    if options.quick:
        options.pairs = QUICK_PAIRS
    return options


@dataclass
class WanSample(Sample):
    """One run over the network."""

    sent: dict  # bytes of packets towards the client, by site
    dropped: int  # packets, in all queues
    busy: float  # share of the machine's CPU time, whoever used it
    forwarder_cpu_s: float
    memory_bytes: int  # most that the client had


@dataclass(frozen=True, eq=False)
class Tool:
    """A way to fetch the file, and whom it talks to."""

    name: str
    protocol: str
    servers: list  # by site, nearest first
    command: list


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.binary = options.gridlane
        self.target = work / "target"
        self.network = None
        self.rows, self.failures = [], []

    def run(self):
        began, ticks = time.monotonic(), cpu_ticks()
        self.prepare()
        for size in self.options.sizes:
            for k in range(1, len(SITES) + 1):
                if self.options.only in row_name(size, k):
                    self.measure(size, k)
        if not self.rows:
            sys.exit(f"no row has {self.options.only!r} in its name")
        self.check_network()
        return self.report(time.monotonic() - began, ticks)

    # --- Preparing -------------------------------------------------------------------------------------

    def prepare(self):
        # Another user, xrootd's, reads below; the key is its owner's only.
        self.work.chmod(0o711)
        export = self.work / "export"
        export.mkdir(mode=0o755)
        for size in self.options.sizes:
            generate(self.file(size), size)
            self.file(size).chmod(0o644)
        # The memory that targets will use is touched once: the first touch is many times slower.
        generate(self.target, max(self.options.sizes))
        self.target.unlink()
        identity = Identity(self.work / "identity", SITES)
        self.authority = str(identity.authority)

        scenario = self.work / "scenario.toml"
        scenario.write_text(SCENARIO)
        self.network = Network(self.binary, f"bench-{os.getpid()}", scenario)
        state = self.network.show()
        self.paths = {path["from"]: path for path in state["paths"] if path["to"] == "client"}
        addresses = {node["name"]: node["addresses"] for node in state["nodes"]}
        self.client = Client(self.network, "client", self.work / "errors")
        self.nginx, self.serve, self.xrootd = [], [], []
        for site in SITES:
            place = self.work / site
            place.mkdir(mode=0o755)
            self.nginx.append(Nginx(self.network, site, place / "nginx", export, identity))
            self.serve.append(
                GridlaneServe(self.network, site, place / "serve", export, identity, self.binary, addresses[site])
            )
            self.xrootd.append(XRootD(self.network, site, place / "xrootd", export))
        for servers in (self.nginx, self.serve, self.xrootd):
            for site, server in zip(SITES, servers):
                self.client.wait_for(server, site, server.port)
        self.write_metalinks()
        sizes = ", ".join(map(wan_report.size_name, self.options.sizes))
        print(f"{self.options.pairs} runs of each client: {sizes}", flush=True)

    def file(self, size):
        return self.work / "export" / str(size)

    def write_metalinks(self):
        """How xrdcp is told of several replicas: only a metalink or a redirector can."""
        for size in self.options.sizes:
            for k in range(1, len(SITES) + 1):
                urls = "".join(
                    f'<url priority="{rank}">{self.root_url(site, size)}</url>'
                    for rank, site in enumerate(SITES[:k], 1)
                )
                self.metalink(size, k).write_text(
                    '<?xml version="1.0" encoding="UTF-8"?>\n<metalink xmlns="urn:ietf:params:xml:ns:metalink">'
                    f'<file name="{size}"><size>{size}</size>{urls}</file></metalink>\n'
                )

    def metalink(self, size, k):
        return self.work / f"{size}-from-{k}.meta4"

    # --- Clients ---------------------------------------------------------------------------------------

    def tools(self, size, k):
        yield Tool("gridlane cp from nginx", "https", self.nginx, self.cp(self.nginx, size, k))
        yield Tool("gridlane cp from gridlane serve", "https", self.serve, self.cp(self.serve, size, k))
        yield Tool("aria2c from nginx", "https", self.nginx, self.aria2(size, k))
        if self.options.thorough:
            most = ["--max-connection-per-server=4", f"--split={4 * k}", "--min-split-size=1M"]
            yield Tool(f"aria2c -x4 -s{4 * k} -k1M from nginx", "https", self.nginx, self.aria2(size, k, *most))
        yield Tool("xrdcp from xrootd", "root", self.xrootd, self.xrdcp(size, k))
        # Debian's build computes CRC32C in software, which two shared cores feel.
        without = ["env", "XRD_CPUSEPGWRTRD=0", *self.xrdcp(size, k)]
        yield Tool("xrdcp without page checksums", "root", self.xrootd, without)
        if size == min(self.options.sizes) and k == 1:
            curl = ["curl", "--silent", "--show-error", "--fail", "--cacert", self.authority, "-o", str(self.target)]
            yield Tool("curl from nginx", "https", self.nginx, [*curl, *https_urls(self.nginx, size, k)])

    def cp(self, servers, size, k):
        first, *mirrors = https_urls(servers, size, k)
        command = [self.binary, "cp", first, str(self.target), "--quiet", "--ca", self.authority]
        for url in mirrors:
            command += ["--mirror", url]
        return command

    def aria2(self, size, k, *more):
        return [
            "aria2c", "--no-conf", "--quiet", "--file-allocation=none", f"--ca-certificate={self.authority}",
            f"--dir={self.work}", "--out=target", *more, *https_urls(self.nginx, size, k),
        ]

    def xrdcp(self, size, k):
        source = [self.root_url(SITES[0], size)] if k == 1 else ["--sources", str(k), str(self.metalink(size, k))]
        return ["xrdcp", "--nopbar", "--silent", *source, str(self.target)]

    def root_url(self, site, size):
        return f"root://{site}:{XRootD.port}//{size}"

    # --- Measuring -------------------------------------------------------------------------------------

    def measure(self, size, k):
        tools = list(self.tools(size, k))
        seen = {tool: self.warm_up(tool, size, k) for tool in tools}
        samples = {tool: [] for tool in tools}
        for turn in range(self.options.pairs):
            # Nobody is always the first.
            first = turn % len(tools)
            for tool in tools[first:] + tools[:first]:
                samples[tool].append(self.sample(tool, size, k))
        families = {connection["family"] for found in seen.values() for one in found.values() for connection in one}
        sides = [
            self.side(tool, size, k, seen[tool], families, [sample for sample in samples[tool] if sample])
            for tool in tools
        ]
        ours = samples[tools[0]]
        for tool, facts in zip(tools, sides):
            ratios = [a.rate / b.rate for a, b in zip(ours, samples[tool]) if a and b]
            if ratios:
                facts["ratio"] = summarize(ratios)  # the first client's rate over this one's in the same round
        self.rows.append({"name": row_name(size, k), "size": size, "sources": k, "sides": sides})
        for line in wan_report.row_lines(self.rows[-1]):
            print(line, flush=True)

    def warm_up(self, tool, size, k):
        """A run that is not counted, looked at from the servers while it runs: which connections there are."""
        self.client.begin(tool.command, self.leftovers(), self.limit_s(tool, size, k))
        time.sleep(min(2.0, 0.5 * self.bound_s(tool.protocol, size, k, 4)))
        seen = {site: self.network.connections(site, tool.servers[0].port) for site in SITES}
        self.judge(tool, size, k, self.client.end())
        return seen

    def sample(self, tool, size, k):
        servers = tool.servers[:k]
        before, ticks = self.network.show(), cpu_ticks()
        served = sum(map(cpu_s, servers))
        self.client.begin(tool.command, self.leftovers(), self.limit_s(tool, size, k))
        answer = self.client.end()
        served = sum(map(cpu_s, servers)) - served
        idle, _, total = spent_since(ticks)
        answer = self.judge(tool, size, k, answer)
        after = self.check_network()
        if answer is None:
            return None
        passed, dropped = (
            {
                now["from"]: now["counters"][counter] - then["counters"][counter]
                for then, now in zip(before["links"], after["links"])
                if now["to"] == "client"
            }
            for counter in ("passed_bytes", "dropped_packets")
        )
        return WanSample(
            seconds=answer["seconds"],
            bytes=size,
            client_cpu_s=answer["cpu_s"],
            server_cpu_s=served,
            sent=passed,
            dropped=sum(dropped.values()),
            busy=1 - idle / max(total, 1),
            forwarder_cpu_s=after["forwarder_cpu_s"] - before["forwarder_cpu_s"],
            memory_bytes=answer["memory_bytes"],
        )

    def leftovers(self):
        # aria2c keeps notes beside the file.
        return [str(self.target), f"{self.target}.aria2"]

    def limit_s(self, tool, size, k):
        """After this long a client is hung."""
        return 60 + 10 * self.bound_s(tool.protocol, size, k, 4)

    def judge(self, tool, size, k, answer):
        """The answer about a run; `None` if it failed: a fast wrong copy is worth nothing."""
        failure = None
        if answer["code"]:
            failure = f"exit {answer['code']} after {answer['seconds']:.1f} s: {answer['errors'][-1000:].strip()}"
        elif subprocess.run(["cmp", "-s", str(self.target), str(self.file(size))], check=False).returncode:
            failure = "exit 0, but the copy is not the file"
        if failure is None:
            return answer
        self.failures.append(f"{row_name(size, k)}, {tool.name}: {failure}")
        print(f"FAILED {self.failures[-1]}", flush=True)
        return None

    def check_network(self):
        state = self.network.show()
        if state["void"] is not None:
            sys.exit(f"the figures mean nothing, no page is written: {state['void']}")
        return state

    # --- Figures ---------------------------------------------------------------------------------------

    def bound_s(self, protocol, size, k, family):
        paths = [
            bound.Path(self.payload_bytes_per_s(site, family), self.paths[site]["round_trip_s"]) for site in SITES[:k]
        ]
        return bound.bound_s(size, paths, bound.ROUND_TRIPS[protocol])

    def payload_bytes_per_s(self, site, family):
        return self.paths[site]["payload_bytes_per_s"][0 if family == 4 else 1]

    def side(self, tool, size, k, seen, row_families, samples):
        """What the page says of one client in one row. What was over too soon to be seen is taken to have used
        the same families as the others of the row."""
        connections = [connection for found in seen.values() for connection in found]
        families = sorted({connection["family"] for connection in connections})
        family = only_family(families or row_families)
        seconds = self.bound_s(tool.protocol, size, k, family)
        facts = {
            "name": tool.name,
            "command": tool.command,
            "protocol": tool.protocol,
            "families": families,
            "congestion_control": sorted({connection["congestion_control"] for connection in connections}),
            "connections": {site: len(found) for site, found in seen.items()},
            "bound_s": seconds,
            "payload_bytes_per_s": sum(self.payload_bytes_per_s(site, family) for site in SITES[:k]),
            "failed": self.options.pairs - len(samples),
        }
        if not samples:
            return facts
        return {
            **facts,
            **side(samples),
            "rates": summarize([sample.rate for sample in samples]),
            "fraction": summarize([seconds / sample.seconds for sample in samples]),
            "sent": {site: median(sample.sent[site] for sample in samples) for site in SITES},
            "sent_by_run": [sample.sent for sample in samples],
            "dropped": median(sample.dropped for sample in samples),
            "busy": median(sample.busy for sample in samples),
            "forwarder_cpu": median(sample.forwarder_cpu_s / sample.bytes * 1e9 for sample in samples),
            "memory_bytes": max(sample.memory_bytes for sample in samples),
        }

    def report(self, seconds, ticks):
        idle, stolen, total = spent_since(ticks)
        facts = {
            **machine(),
            "gridlane": version(self.binary, "--version"),
            "xrdcp": version("xrdcp", "--version"),
            "xrootd": version("xrootd", "-v"),
            "busy": f"{100 * (1 - idle / total):.0f} % of the CPU time of the whole run, by anybody",
            "stolen": f"{100 * stolen / total:.1f} % of the CPU time, by the hypervisor",
            "duration": f"{seconds / 60:.0f} minutes",
        }
        results = ROOT / "bench/results" / f"{datetime.now():%Y%m%dT%H%M%S}-wan.json"
        state = self.network.show()
        wan_report.write_json(results, facts, state, self.rows, self.failures)
        print(f"wrote {results.relative_to(ROOT)} after {seconds:.0f} s")
        if self.options.quick or self.options.only:
            print("no page written: it takes a full run")
        elif not all("rates" in side for row in self.rows for side in row["sides"]):
            print("no page written: a client failed in every run of a row")
        else:
            command = "make bench-wan"
            chosen = ["--thorough"] if self.options.thorough else []
            if self.options.pairs != PAIRS:
                chosen.append(f"--pairs {self.options.pairs}")
            if chosen:
                command += f" BENCH_OPTIONS='{' '.join(chosen)}'"
            wan_report.write_page(
                Path(self.options.page), command, SCENARIO, facts, state, self.bounds(), self.rows, self.failures
            )
            print(f"wrote {self.options.page}")
        return 1 if self.failures else 0

    def bounds(self):
        """bound(k) in seconds by protocol, size and k."""
        family = only_family({family for row in self.rows for side in row["sides"] for family in side["families"]})
        return {
            protocol: {
                size: [self.bound_s(protocol, size, k, family) for k in range(1, len(SITES) + 1)]
                for size in self.options.sizes
            }
            for protocol in bound.ROUND_TRIPS
        }


def https_urls(servers, size, k):
    return [f"https://{site}:{server.port}/{size}" for site, server in zip(SITES[:k], servers)]


def only_family(families):
    """Which IP version the bound is for. IPv4 has the higher one: what was not seen is not flattered."""
    return 6 if set(families) == {6} else 4


def row_name(size, k):
    return f"{wan_report.size_name(size)} from {k}"


def cpu_ticks():
    """Clock ticks idle, stolen by the hypervisor, and all, since the machine started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], ticks[7], sum(ticks)


def spent_since(ticks):
    return [now - then for then, now in zip(ticks, cpu_ticks())]


def version(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
