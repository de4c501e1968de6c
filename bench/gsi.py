#!/usr/bin/env python3
"""Costs of logins by certificate over root:// (gsi), beside XRootD's server.

Writes bench/results/gsi-DATE.json and docs/performance/gsi.md, which says what to know before reading.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

from program import Arguments, Run, in_memory  # first: it makes the modules in scripts/ known
from processes import cpu_s, free_port, printed
from report import environment, head, interval, save
from running import start
from stats import summarize

ROOM_BYTES = 100_000_000


def main():
    arguments = Arguments("bench-gsi", "Costs of logins by gsi to a server.", "3 short pairs", load="gsi_load")
    arguments.amount("pairs", 5, 3, "pairs of runs")
    arguments.amount("logins", 2000, 100, "logins of a run")
    arguments.page("gsi.md")
    options = arguments.parse()
    return in_memory(ROOM_BYTES, lambda work: Bench(options, work).run())


class Bench:
    def __init__(self, options, work):
        self.options = options
        self.work = work

    def run(self):
        run = Run("gsi", self.options)
        self.prepare()
        for server in (self.ours, self.theirs):
            self.load(server)  # not counted
        pairs = [(self.load(self.ours), self.load(self.theirs)) for _ in range(self.options.pairs)]
        rows = [row(server.name, [pair[number] for pair in pairs]) for number, server in enumerate((self.ours, self.theirs))]
        ratios = summarize([theirs["cpu_s"] / ours["cpu_s"] for ours, theirs in pairs])
        passed = ratios["low"] >= 1
        rows.append({"name": "logins per second of a core, gridlane / xrootd", "ratio": ratios, "target": 1.0, "passed": passed})
        for one in rows[:2]:
            print(f"{one['name']:16} {interval(one['cpu_ms'], 2)} ms of CPU a login, {interval(one['per_s'])} logins/s by the clock")
        print(f"{'ratio':16} {interval(ratios, 2)} {'pass' if passed else 'FAIL'}")
        return run.finish(rows, lambda path, facts, stolen: write_page(path, self.options.command, facts, rows, stolen))

    def prepare(self):
        """One certificate for both servers, with a key of RSA, as the proxy, its user and the authority have."""
        pki, export = self.work / "pki", self.work / "export"
        export.mkdir()
        self.gridlane("pki", "init", str(pki), "--key", self.rsa_key("authority"))
        self.gridlane("pki", "host", str(pki), "localhost", "--key", self.rsa_key("host"))
        self.gridlane("pki", "user", str(pki), "ada", "--key", self.rsa_key("ada"))
        host, user, authorities = pki / "hosts/localhost", pki / "users/ada", pki / "certificates"
        self.proxy = self.work / "proxy.pem"
        self.proxy.touch(0o600)
        printed(
            "voms-proxy-fake", "-cert", str(user / "usercert.pem"), "-key", str(user / "userkey.pem"), "-rfc", "-bits", "2048",
            "-hours", "12", "-out", str(self.proxy), env=dict(os.environ, X509_CERT_DIR=str(authorities)),
        )
        port = free_port()
        config = self.work / "serve.toml"
        config.write_text(f"""\
[serve]
listen = ["127.0.0.1:{port}"]
cert = "{host}/hostcert.pem"
key = "{host}/hostkey.pem"
access-log = "off"

[root]
auth = "gsi"

[auth]
client-ca-dir = "{authorities}"

[[export]]
path = "/data"
directory = "{export}"

[[rule]]
who = "authenticated"
may = ["read", "list"]
""")
        self.ours = Server("gridlane", port, [self.options.gridlane, "serve", "--config", str(config), "--quiet"])
        self.theirs = self.start_xrootd(host, authorities, export)

    def start_xrootd(self, host, authorities, export):
        """XRootD as root does not run: it gets the user `nobody`, and files that this one can read."""
        port, at = free_port(), self.work / "xrootd"
        at.mkdir()
        for name in ("hostcert.pem", "hostkey.pem"):
            shutil.copyfile(host / name, at / name)
            (at / name).chmod(0o600)
        config = at / "xrootd.cfg"
        config.write_text(f"""\
xrd.port {port}
xrd.allow host *
all.export /
oss.localroot {export}
all.adminpath {at}
all.pidpath {at}
xrootd.seclib libXrdSec.so
sec.protocol gsi -certdir:{authorities} -cert:{at}/hostcert.pem -key:{at}/hostkey.pem -ca:1 -crl:1 -gmapopt:10 -gridmap:/nowhere
""")
        command = ["xrootd", "-c", str(config), "-l", str(at / "log")]
        if os.getuid() == 0:
            for path in (self.work, at, *at.iterdir()):
                shutil.chown(path, "nobody")
            command += ["-R", "nobody"]
        return Server("xrootd", port, command)

    def gridlane(self, *words):
        subprocess.run([self.options.gridlane, *words], check=True, stdout=subprocess.DEVNULL)

    def rsa_key(self, name):
        key = self.work / f"{name}.pem"
        printed("openssl", "genrsa", "-out", str(key), "2048")
        key.chmod(0o400)
        return str(key)

    def load(self, server):
        """One run of the client. Every login has to be taken."""
        command = [self.options.load, f"127.0.0.1:{server.port}", str(self.proxy), str(self.options.logins), "2"]
        before = cpu_s(server)
        done = json.loads(printed(*command))
        cpu = max(cpu_s(server) - before, 0.01)
        if done["granted"] != self.options.logins:
            sys.exit(f"{server.name}: {done['granted']} of {self.options.logins} logins were taken")
        return {"cpu_s": cpu / self.options.logins, "per_s": self.options.logins / done["seconds"]}


class Server:
    """A server that answers on a port."""

    def __init__(self, name, port, command):
        self.name, self.port = name, port
        self.process = start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} does not start: {' '.join(command)}") from None
                time.sleep(0.02)


def row(name, samples):
    # What is judged is the ratio of both.
    return {
        "name": name, "passed": None, "cpu_ms": summarize([1000 * one["cpu_s"] for one in samples]),
        "per_core_s": summarize([1 / one["cpu_s"] for one in samples]), "per_s": summarize([one["per_s"] for one in samples]),
    }


def write_page(path, command, facts, rows, stolen):
    """Markdown, the caveats first."""
    *servers, ratio = rows
    lines = [
        *head("Logins by gsi: figures", "bench/gsi.py", command),
        f"- Client and server share {facts['cores']} cores over loopback. What counts is the CPU time of the server's process; beside it stand",
        "  logins per second of the clock with two clients at once.",
        "- Each login is a TCP connection, `protocol`, `login`, both rounds of gsi, and the end. The client is `gsi_load`",
        "  (crates/gsi/examples), the same program with the same proxy against both servers, which have the same certificate. All keys are RSA",
        "  of 2048 bits.",
        "- Whether key pairs are reused: gridlane's part of the key exchange (3072 bits, with its signature) serves all clients for 60",
        f"  seconds. XRootD {facts['xrootd'].removeprefix('v')} makes a key pair and its signature for each login, from parameters of 512 bits that it makes once",
        "  per process (read in its source, 5.5.3).",
        "- The chain is the same in all logins: gridlane remembers its judgement, as far as nothing has changed; that the client",
        "  has the key is proved each time.",
        f"- n = {ratio['ratio']['n']} pairs of alternating runs (A B A B); medians with the 95 % interval of the median by order statistics.",
        f"- {stolen:.0f} % of the CPU time was stolen by the hypervisor during the runs.",
        "",
        *environment(facts),
        "",
        "| server | CPU of a login, ms | logins per second of a core | logins per second, by the clock |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one['name']} | {interval(one['cpu_ms'], 2)} | {interval(one['per_core_s'])} | {interval(one['per_s'])} |" for one in servers
    ]
    lines += [
        "",
        f"gridlane's logins per second of a core, as a multiple of XRootD's: {interval(ratio['ratio'], 2)}; the target is ≥ 1.0: "
        f"{'met' if ratio['passed'] else '**missed**'}.",
    ]
    save(path, lines)


if __name__ == "__main__":
    sys.exit(main())
