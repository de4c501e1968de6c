"""A tree of many small files far away."""

from statistics import median

from wan_lab import Place
from wan_long import SITE, scenario
from wan_rows import Row, Scenario, figure, line
from wan_tools import Tool, url

FILE_BYTES = 100_000
FILES, PEER_FILES = 10_000, 500
DIRECTORIES = 10
# So long a peer may take; what it has copied by then counts.
PATIENCE_S = 100


class Tree(Row):
    def __init__(self, scenario, name, files, peer_files):
        super().__init__(scenario, name)
        self.files, self.peer_files = files, peer_files

    def measure(self, lab):
        shelf = self.bench.shelf
        for name, files in (("many", self.files), ("few", self.peer_files)):
            grow(shelf.export / name, files)
        lines, rates = [], {}
        tools = [*self.ours(), *self.peers()]
        kept = self.chosen([tool for tool, _ in tools])
        tools = [(tool, files) for tool, files in tools if tool in kept]
        for tool, files in tools:
            runs, per_second = [], []
            for _ in range(tool.rounds):
                shelf.remove_target()
                shelf.target.mkdir()
                run = lab.run(tool, files * FILE_BYTES, keep=True)
                done = whole_files(shelf.target)
                is_ours = tool.keeps_events
                run.bound_s = files * FILE_BYTES / lab.path(SITE, 6).payload_bytes_per_s
                if is_ours and (run.failure or done != files):
                    self.fail(tool.name, run.failure or f"{done} of {files} files")
                    runs.append(None)
                    per_second.append(None)
                    continue
                run.bytes = max(1, done) * FILE_BYTES
                runs.append(run)
                per_second.append(done / run.seconds)
            rates[tool] = per_second
            known = [rate for rate in per_second if rate]
            note = f"{median(known):.0f} files/s" if known else ""
            if not tool.keeps_events:
                note += f"; {done} of {files} files, so {FILES} would take {FILES / median(known):.0f} s" if known else "nothing copied"
                if runs[-1] and runs[-1].failure:
                    note += f" ({' '.join(runs[-1].failure.split())[:120]})"
            lines.append(line(tool, runs, runs) | {"note": note})
        shelf.remove_target()
        best = tools[0][0]
        payload = lab.path(SITE, 6).payload_bytes_per_s
        of_line = [rate * FILE_BYTES / payload if rate else None for rate in rates[best]]
        figures = [figure("of the line's payload rate, from gridlane serve", of_line, least=0.8)]
        for tool, _ in tools[2:]:
            theirs = [rate for rate in rates[tool] if rate]
            over = [rate / median(theirs) if rate and theirs else None for rate in rates[best]]
            figures.append(figure(f"files/s over those of {tool.name}, extrapolated", over, least=5, digits=1))
        return {"name": self.name, "size": self.files * FILE_BYTES, "lines": lines, "figures": figures}

    def ours(self):
        shelf, rounds = self.bench.shelf, self.scenario.rounds
        for kind, name, times in (("serve", "gridlane serve", rounds), ("nginx", "nginx", min(3, rounds))):
            command = [
                shelf.binary, "cp", "-r", url(kind, SITE, "many/"), f"{shelf.target}/", "--json", "--ca", shelf.authority,
            ]
            yield Tool(f"gridlane cp -r from {name}", command, ((kind, SITE),), times, keeps_events=True), self.files

    def peers(self):
        shelf, source = self.bench.shelf, (("nginx", SITE),)
        rclone = [
            "rclone", "copy", "--config", "/dev/null", "--ca-cert", shelf.authority,
            "--http-url", url("nginx", SITE, "few/"), ":http:", str(shelf.target),
        ]
        yield Tool("rclone copy from nginx", rclone, source, 1, limit_s=PATIENCE_S), self.peer_files
        urls = shelf.write("few.txt", "".join(f"{url('nginx', SITE, name)}\n" for name in names("few", self.peer_files)))
        # Debian's own python3 has gfal2; the authority is not in a directory of hashes.
        gfal = [
            "env", "GFAL_PYTHONBIN=/usr/bin/python3", "gfal-copy", "-D", "HTTP PLUGIN:INSECURE=true",
            "--from-file", str(urls), f"file://{shelf.target}",
        ]
        yield Tool("gfal-copy from nginx", gfal, source, 1, limit_s=PATIENCE_S), self.peer_files


def names(tree, files):
    """Paths of the files of a tree."""
    each = max(1, files // DIRECTORIES)
    return [f"{tree}/{number // each:02}/{number:05}" for number in range(files)]


def grow(tree, files):
    """A tree of files that differ, if it is not there yet."""
    if tree.exists():
        return
    block = bytes(range(256)) * (FILE_BYTES // 256 + 2)
    for number, name in enumerate(names(tree.name, files)):
        path = tree.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(8, "little") + block[number % 251 :][: FILE_BYTES - 8])


def whole_files(directory):
    return sum(path.is_file() and path.stat().st_size == FILE_BYTES for path in directory.rglob("*"))


class Small(Scenario):
    name, title = "small", "Many files of 100 kB at 100 ms, 1 Gb/s"
    about = (
        "A tree that is copied with `gridlane cp -r`: listing included. The peers copy a smaller one, once, and stop after",
        f"{PATIENCE_S} s; their time for the whole is extrapolated from the files that they had copied.",
    )

    def place(self):
        return Place(self.name, scenario(100), (SITE,), ("serve", "nginx"))

    def rows(self):
        files, peer_files = (500, 50) if self.bench.quick else (FILES, PEER_FILES)
        yield Tree(self, f"{files} files of 100 kB at 100 ms", files, peer_files)
