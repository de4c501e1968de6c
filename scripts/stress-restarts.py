#!/usr/bin/python3
"""Copies files while their servers are killed and started again, and compares every byte.

    scripts/stress-restarts.py target/release/gridlane --minutes 10 --seed 7

Some workers run at once. Each has one to three servers of its own, all with the same files, and copies these
files over http, https, root and roots: from one server or several, limited in rate or not, as trees, to a pipe,
up to a server, between two servers. Meanwhile its servers are killed, stopped, drained, and started again on
their ports at random instants; now and then another server, or another program, with other bytes under the same
names and of the same sizes, has the port for a while. Clients are killed too, and run again.

A copy that ends with exit code 0 and other bytes than the original is wrong, and so is a target that is there
after a failure. Everything that is known of such a copy, and of the first of each kind of failure, is kept below
--keep. At the end stands how often which outcome was seen; the exit code is 1 when a copy was wrong or, with
--strict, when a copy failed although no other program had had the port of one of its servers.
"""

import argparse
import collections
import ctypes
import filecmp
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

SMALL_SIZES = [0, 1, 700, 65_535, 65_536, 300_000]
SIZES = [*SMALL_SIZES, 1 << 20, (1 << 20) + 1, 3_333_333, 8 << 20, 16_777_213, 33_333_337, 90_000_001]
TREE_SIZES = [0, 1, 100, 5_000, 20_000, 65_537, 300_000]
TREE_FILES = 60
SCHEMES = ["http", "https", "root", "roots"]
# What happens to servers, and how often.
TROUBLES = {"now": 8, "gap": 4, "twice": 2, "pause": 1, "drain": 2, "other": 2, "stranger": 1}
# What is copied, and how often.
COPIES = {"file": 10, "mirrors": 12, "tree": 2, "pipe": 1, "upload": 3, "between": 1}
# How long a server may take to listen again, and a copy to end, before something is wrong with the machine.
START_MAX_S = 60
COPY_MAX_S = 400
# Failures of one kind of which everything is kept.
KEPT_OF_A_KIND = 25
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port(chance):
    """A port below those that the kernel gives to clients: while its server is away, no client takes it."""
    while True:
        port = chance.randrange(15_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Log:
    """Events with their times, for looking into a failure."""

    def __init__(self):
        self.lines = collections.deque(maxlen=5_000)
        self.counts = collections.Counter()

    def note(self, text):
        self.lines.append((time.monotonic(), text))

    def since(self, begun):
        return "".join(f"{at - begun:9.3f} {text}\n" for at, text in list(self.lines) if at >= begun - 2)


class Stranger(http.server.BaseHTTPRequestHandler):
    """Speaks HTTP and nothing else, and has other bytes under the names that it is asked for."""

    protocol_version = "HTTP/1.1"
    timeout = 5
    directory = None
    says_digest = says_tag = keeps_ranges = True

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.directory / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        first, last = 0, len(data) - 1
        asked = self.headers.get("Range", "")
        is_part = self.keeps_ranges and asked.startswith("bytes=") and self.command == "GET" and data
        if is_part:
            begin, _, end = asked[6:].partition("-")
            first, last = int(begin or 0), min(last, int(end or last))
        if first > last and data:
            self.send_error(416)
            return
        self.send_response(206 if is_part else 200)
        self.send_header("Content-Length", str(last + 1 - first))
        if is_part:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        if self.says_tag:
            self.send_header("ETag", '"stranger"')
        if self.says_digest and "adler32" in self.headers.get("Want-Digest", ""):
            self.send_header("Digest", f"adler32={zlib.adler32(data):08x}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[first:last + 1])

    def log_message(self, *_):
        pass


class Strangers(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_):
        pass


class Server:
    """A `gridlane serve` that is killed and comes back on its port."""

    def __init__(self, gridlane, place, number, chance, log):
        self.gridlane, self.place, self.number, self.log = gridlane, place, number, log
        self.directory, self.other = place / f"served{number}", place / f"other{number}"
        self.port = free_port(chance)
        self.process = None
        self.options = []
        self.lock = threading.Lock()
        self.is_other = False

    def command(self, is_other):
        directory = self.other if is_other else self.directory
        command = [self.gridlane, "serve", str(directory), "--json", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--access-log", str(self.place / f"access{self.number}.log"), "--insecure", *self.options]
        return command if is_other else command + ["--allow-write"]

    def start(self, is_other=False):
        """Starts it, however long the port is taken for."""
        until = time.monotonic() + START_MAX_S
        environment = dict(os.environ, HOME=str(self.place), XDG_DATA_HOME=str(self.place.parent / "data"))
        while True:
            with open(self.place / f"server{self.number}.err", "ab") as errors:
                self.process = subprocess.Popen(
                    self.command(is_other), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                    env=environment, preexec_fn=die_with_parent)
            line = self.process.stdout.readline()
            if line:
                self.is_other = is_other
                self.log.note(f"server {self.number} listens" + (" with other bytes" if is_other else ""))
                self.log.counts["starts"] += 1
                self.log.counts["other bytes"] += is_other
                return json.loads(line)["ca"]
            self.process.wait()
            self.log.counts["starts that failed"] += 1
            self.log.note(f"server {self.number} does not start: {self.process.returncode}")
            if time.monotonic() > until:
                raise RuntimeError(f"no server on port {self.port}")
            time.sleep(0.05)

    def kill(self):
        self.log.note(f"server {self.number} is killed")
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def strange(self, chance, seconds):
        """Lets a program of another kind have the port for a while."""
        names = ("says_digest", "says_tag", "keeps_ranges")
        habits = {name: chance.random() < 0.5 for name in names}
        handler = type("Handler", (Stranger,), {"directory": self.other, **habits})
        stranger = Strangers(("127.0.0.1", self.port), handler)
        self.is_other = True
        self.log.counts["other bytes"] += 1
        self.log.note(f"server {self.number} is a stranger: {habits}")
        threading.Thread(target=stranger.serve_forever, args=(0.05,), daemon=True).start()
        time.sleep(seconds)
        stranger.shutdown()
        stranger.server_close()

    def terminate(self):
        self.log.note(f"server {self.number} is asked to end")
        self.process.terminate()
        try:
            self.process.wait(100)
        except subprocess.TimeoutExpired:
            self.log.counts["drains that did not end"] += 1
            self.process.kill()
            self.process.wait()
        self.log.note(f"server {self.number} has ended: {self.process.returncode}")
        self.process.stdout.close()

    def url(self, scheme, name):
        slash = "//" if scheme.startswith("root") else "/"
        return f"{scheme}://127.0.0.1:{self.port}{slash}{name}"


class Worker(threading.Thread):
    """Its servers, what happens to them, and its copies, one after the other."""

    def __init__(self, number, options, originals, results):
        super().__init__(name=f"worker{number}")
        self.number, self.options, self.originals, self.results = number, options, originals, results
        self.chance = random.Random(f"{options.seed} {number}")
        self.place = options.work / f"worker{number}"
        self.log = Log()
        self.place.mkdir(parents=True)
        self.servers = []
        self.is_over = threading.Event()
        self.is_calm = threading.Event()
        self.copies = 0
        self.client = None

    def hurry(self):
        """Ends what it waits for. The run was interrupted."""
        self.is_over.set()
        client = self.client
        if client and client.poll() is None:
            client.kill()

    def run(self):
        troubles = None
        try:
            self.prepare()
            troubles = threading.Thread(target=self.trouble, name=f"trouble{self.number}")
            troubles.start()
            while time.monotonic() < self.options.until and not self.options.is_interrupted.is_set():
                self.copy()
        # Whatever it is, the others go on, and the end tells of it.
        except Exception as problem:
            if not self.options.is_interrupted.is_set():
                self.results.problem(f"{self.name}: {problem!r}")
        finally:
            self.is_over.set()
            # What begins servers ends before these do.
            if troubles:
                troubles.join()
            for server in self.servers:
                if server.process and server.process.poll() is None:
                    server.process.kill()
                    server.process.wait()

    def prepare(self):
        for number in range(1 + self.number % 3 if self.options.servers is None else self.options.servers):
            server = Server(self.options.gridlane, self.place, number, self.chance, self.log)
            shutil.copytree(self.originals.right, server.directory)
            shutil.copytree(self.originals.other, server.other)
            if self.chance.random() < 0.5:
                server.options = ["--limit-rate", self.chance.choice(["4M", "20M", "60M"])]
            self.servers.append(server)
            self.ca = server.start()

    # What happens to servers.

    def trouble(self):
        chance = random.Random(f"{self.options.seed} {self.number} trouble")
        while not self.is_over.wait(chance.expovariate(1 / self.options.pause_s)):
            if self.is_calm.is_set():
                continue
            server = chance.choice(self.servers)
            kinds = [kind for kind in TROUBLES if not self.options.troubles or kind in self.options.troubles]
            kind = chance.choices(kinds, [TROUBLES[kind] for kind in kinds])[0]
            with server.lock:
                self.log.counts[f"trouble {kind}"] += 1
                getattr(self, f"trouble_{kind}")(server, chance)

    def trouble_now(self, server, _):
        server.kill()
        server.start()

    def trouble_gap(self, server, chance):
        server.kill()
        time.sleep(chance.uniform(0, 4))
        server.start()

    def trouble_twice(self, server, chance):
        for _ in range(2):
            server.kill()
            server.start()
            time.sleep(chance.uniform(0, 0.05))

    def trouble_pause(self, server, chance):
        self.log.note(f"server {server.number} is stopped for a while")
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0, 3))
        server.process.send_signal(signal.SIGCONT)

    def trouble_drain(self, server, _):
        server.terminate()
        server.start()

    def trouble_other(self, server, chance):
        server.kill()
        server.start(is_other=True)
        time.sleep(chance.uniform(0, 1.5))
        server.kill()
        server.start()

    def trouble_stranger(self, server, chance):
        server.kill()
        server.strange(chance, chance.uniform(0, 1.5))
        server.start()

    # Copies.

    def copy(self):
        kinds = {kind: often for kind, often in COPIES.items() if kind in (self.options.kinds or COPIES)}
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        self.copies += 1
        place = self.place / f"copy{self.copies}"
        place.mkdir()
        copy = getattr(self, f"plan_{kind}")(place)
        command = [self.options.gridlane, "cp", *copy["sources"], copy["target"], *copy.get("options", [])]
        command += ["--ca", self.ca, "-v", "--json" if kind != "pipe" else "--progress=never"]
        if self.chance.random() < 0.35:
            command += ["--limit-rate", self.chance.choice(["3M", "10M", "30M"])]
        if self.chance.random() < 0.15:
            command += ["--streams", str(self.chance.randint(1, 6))]
        kills = self.chance.choice([0, 0, 0, 0, 1, 2])
        if kills:
            # Where it was killed behind the end, the target is there.
            command += [] if "--force" in command else ["--force"]
        begun = time.monotonic()
        counts = collections.Counter(self.log.counts)
        if any(server.is_other for server in self.servers):
            counts["other bytes"] -= 1
        attempts = []
        environment = dict(os.environ, HOME=str(self.place))
        while True:
            outputs = [open(place / f"{name}{len(attempts)}", "wb") for name in ("stdout", "stderr")]
            stdout = open(copy["piped"], "wb") if kind == "pipe" else outputs[0]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=outputs[1], env=environment,
                preexec_fn=die_with_parent)
            self.client = process
            is_killed = len(attempts) < kills and kind not in ("pipe",)
            try:
                code = process.wait(self.chance.expovariate(1 / 0.8) if is_killed else COPY_MAX_S)
                is_killed = False
            except subprocess.TimeoutExpired:
                self.log.note("the client is killed" if is_killed else "the client does not end")
                process.kill()
                process.wait()
                code = "killed" if is_killed else "hangs"
            for file in [*outputs, stdout]:
                file.close()
            attempts.append(code)
            if self.options.is_interrupted.is_set():
                return
            if not is_killed:
                break
        took = time.monotonic() - begun
        verdict = copy["compare"](code)
        troubled = {name: count - counts[name] for name, count in self.log.counts.items() if count > counts[name]}
        self.results.add(self, kind, copy, command, place, code, verdict, took, troubled, begun, attempts)
        shutil.rmtree(place, ignore_errors=True)

    def sources(self, name, count=None):
        """A URL of each of some servers, or several of one."""
        count = count or self.chance.randint(1, max(2, len(self.servers)))
        servers = [self.chance.choice(self.servers) for _ in range(count)]
        if self.chance.random() < 0.7 and count <= len(self.servers):
            servers = self.chance.sample(self.servers, count)
        same = self.chance.choice(self.options.schemes or SCHEMES)
        is_mixed = self.chance.random() < 0.3
        return [server.url(self.chance.choice(self.options.schemes or SCHEMES) if is_mixed else same, name) for server in servers]

    def file_name(self):
        return self.chance.choice(self.originals.files)

    def plan_file(self, place):
        name = self.file_name()
        [source] = self.sources(name, 1)
        target = place / "target"
        return {"sources": [source], "target": str(target), "compare": lambda code: self.compare(code, name, target)}

    def plan_mirrors(self, place):
        name = self.file_name()
        first, *mirrors = self.sources(name, self.chance.randint(2, 3))
        target = place / "target"
        options = [word for url in mirrors for word in ("--mirror", url)]
        if self.chance.random() < 0.1:
            options += ["--checksum", self.chance.choice(["md5", "sha256", "crc32c"])]
        return {"sources": [first], "target": str(target), "options": options,
                "compare": lambda code: self.compare(code, name, target)}

    def plan_pipe(self, place):
        name = self.file_name()
        piped = place / "piped"
        return {"sources": self.sources(name, 1), "target": "-", "piped": piped,
                "compare": lambda code: self.compare(code, name, piped, is_stream=True)}

    def plan_tree(self, place):
        first, *mirrors = self.sources("tree", self.chance.choice([1, 1, 2]))
        target = place / "target"
        first, mirrors = f"{first}/", [f"{url}/" for url in mirrors]
        options = ["-r", *(word for url in mirrors for word in ("--mirror", url))]

        def compare(code):
            worst, is_whole = "right", True
            for name in self.originals.tree:
                found = self.compare(0 if (target / name).exists() else 6, f"tree/{name}", target / name)
                is_whole &= found != "nothing"
                worst = found if found not in ("right", "nothing") else worst
            extra = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} if target.exists() else set()
            extra = {name for name in extra - set(self.originals.tree) if not os.path.basename(name).startswith(".")}
            if extra:
                return "extra files"
            if code == 0 and not is_whole:
                return "missing files"
            return worst if is_whole or worst != "right" else "nothing"
        return {"sources": [first], "target": f"{target}/", "options": options, "compare": compare}

    def plan_upload(self, place):
        name = self.file_name()
        server = self.chance.choice(self.servers)
        stored = f"up-{self.copies}"
        target = server.url(self.chance.choice(self.options.schemes or SCHEMES), stored)

        def compare(code):
            # It may have gone to the other server: then it is there, and nowhere else.
            found = self.compare(code, name, server.directory / stored, is_in_place=target.startswith("root"))
            (server.directory / stored).unlink(missing_ok=True)
            return found
        return {"sources": [str(self.originals.right / name)], "target": target, "options": ["--force"], "compare": compare}

    def plan_between(self, place):
        name = self.file_name()
        one, two = self.chance.choice(self.servers), self.chance.choice(self.servers)
        stored = f"between-{self.copies}"
        scheme = self.chance.choice([one for one in self.options.schemes or SCHEMES if one.startswith("http")])

        def compare(code):
            found = self.compare(code, name, two.directory / stored)
            (two.directory / stored).unlink(missing_ok=True)
            return found
        return {"sources": [one.url(scheme, name)], "target": two.url(scheme, stored), "options": ["--force"], "compare": compare}

    def compare(self, code, name, target, is_stream=False, is_in_place=False):
        """What is at the target: the original's bytes, the other file's, a mixture, or nothing."""
        if not target.exists():
            return "missing" if code == 0 else "nothing"
        if same(self.originals.right / name, target):
            return "right"
        if same(self.originals.other / name, target):
            return "other"
        if code != 0 and (is_stream or is_in_place):
            # What a stream has taken cannot be called back, and is not said to be right.
            return "a part"
        return "wrong"


def is_unverified(output):
    """Whether nothing told if the bytes are right."""
    return '"verification":"unverified"' in output.read_text(errors="replace")


def same(one, two):
    return one.stat().st_size == two.stat().st_size and filecmp.cmp(one, two, shallow=False)


class Originals:
    """The files, and others under the same names and of the same sizes."""

    def __init__(self, place, chance):
        self.right, self.other = place / "right", place / "other"
        self.files = [f"file-{size}" for size in SIZES]
        self.tree = [f"d{at % 5}/f{at}" for at in range(TREE_FILES)]
        sizes = {f"file-{size}": size for size in SIZES}
        sizes |= {f"tree/{name}": chance.choice(TREE_SIZES) for name in self.tree}
        for directory in (self.right, self.other):
            for name, size in sizes.items():
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(chance.randbytes(size))


class Results:
    """How copies ended."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.outcomes = collections.Counter()
        self.kept = collections.Counter()
        self.problems = []
        self.wrong = self.failed = self.copies = 0
        self.bytes = 0
        self.said = time.monotonic()

    def problem(self, text):
        with self.lock:
            self.problems.append(text)
            print(text, file=sys.stderr, flush=True)

    def add(self, worker, kind, copy, command, place, code, verdict, took, troubled, begun, attempts):
        schemes = "+".join(sorted({url.split(":")[0] for url in [*copy["sources"], *copy.get("options", [])] if "://" in url}))
        if kind == "upload":
            schemes = copy["target"].split(":")[0]
        # The other server may have been the only one that a copy ever saw.
        saw_other = "other bytes" in troubled
        is_wrong = verdict in ("wrong", "missing", "extra files", "missing files") or (verdict == "other" and code not in (0, 10))
        is_wrong |= verdict == "other" and not saw_other
        is_failed = code != 0
        is_unexcused = is_failed and not saw_other and verdict != "right"
        if verdict == "right" and code == 0 and is_unverified(place / f"stdout{len(attempts) - 1}"):
            verdict += ", unverified"
        if verdict == "other":
            ports = {url.split("/")[2] for url in [*copy["sources"], *copy.get("options", [])] if "://" in url}
            verdict += f" (of {len(ports)})"
        outcome = f"{kind:8} {schemes:22} exit {code!s:6} {verdict}"
        with self.lock:
            self.copies += 1
            self.outcomes[outcome] += 1
            self.wrong += is_wrong
            self.failed += is_unexcused
            number = self.copies
            group = f"{kind} {code} {verdict} {is_unexcused}"
            keeps = is_wrong and self.kept[group] < 4 * KEPT_OF_A_KIND
            keeps |= (is_failed or verdict != "right") and self.kept[group] < KEPT_OF_A_KIND
            self.kept[group] += keeps
        if keeps:
            self.keep(worker, place, f"{'WRONG-' if is_wrong else ''}{'unexcused-' if is_unexcused else ''}{kind}-{code}-{verdict}-{number}".replace(" ", "_"), {
                "command": command, "code": code, "verdict": verdict, "seconds": took, "attempts": attempts,
                "troubled": troubled, "servers": [server.options for server in worker.servers],
                "happened": worker.log.since(begun).splitlines()}, is_wrong)
        self.say()

    def keep(self, worker, place, name, facts, is_wrong):
        kept = self.options.keep / name
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "facts.json").write_text(json.dumps(facts, indent=1))
        for path in place.rglob("*"):
            if path.is_file() and (is_wrong or path.stat().st_size < 1 << 20):
                to = kept / path.relative_to(place)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
        for path in worker.place.glob("*.err"):
            (kept / path.name).write_bytes(path.read_bytes()[-200_000:])
        for path in worker.place.glob("access*.log"):
            (kept / path.name).write_bytes(path.read_bytes()[-300_000:])

    def say(self, is_last=False):
        with self.lock:
            if not is_last and time.monotonic() - self.said < 60:
                return
            self.said = time.monotonic()
            print(f"{time.strftime('%H:%M:%S')} {self.copies} copies, {self.wrong} wrong, {self.failed} failed", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gridlane", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of what is copied and what happens; not of when the kernel does what")
    parser.add_argument("--copies", type=int, default=4, help="at once")
    parser.add_argument("--servers", type=int, help="of each worker [default: one to three]")
    parser.add_argument("--kinds", nargs="*", choices=COPIES, help="of copies [default: all]")
    parser.add_argument("--troubles", nargs="*", choices=TROUBLES, help="of servers [default: all]")
    parser.add_argument("--schemes", nargs="*", choices=SCHEMES, help="[default: all]")
    parser.add_argument("--pause-s", type=float, default=2.0, help="mean time between two things that happen to a worker's servers")
    parser.add_argument("--work", type=pathlib.Path, default=None, help="where files lie meanwhile [default: a new directory in /tmp]")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("stress-restarts"))
    parser.add_argument("--strict", action="store_true", help="a copy that fails is a failure too")
    options = parser.parse_args()
    options.work = pathlib.Path(tempfile.mkdtemp(prefix="stress-restarts-", dir=options.work))
    options.keep = options.keep.resolve()
    options.until = time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}", flush=True)
    options.is_interrupted = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(options)
    workers = []
    try:
        originals = Originals(options.work, random.Random(options.seed))
        workers += [Worker(number, options, originals, results) for number in range(options.copies)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Nothing is removed under those that work in it, and impatience does not change that.
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        options.is_interrupted.set()
        running = [worker for worker in workers if worker.is_alive()]
        while running:
            for worker in running:
                worker.hurry()
                worker.join(0.1)
            running = [worker for worker in running if worker.is_alive()]
        shutil.rmtree(options.work, ignore_errors=True)
    results.say(is_last=True)
    for outcome, count in sorted(results.outcomes.items()):
        print(f"{count:7} {outcome}")
    happened = sum((worker.log.counts for worker in workers), collections.Counter())
    for name, count in sorted(happened.items()):
        print(f"{count:7} {name}")
    is_bad = results.wrong or results.problems or options.strict and results.failed
    sys.exit(1 if is_bad else 0)


if __name__ == "__main__":
    main()
