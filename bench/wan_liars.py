"""One of three sources has other bytes: the clients that notice, those that name it, and the costs."""

import hashlib
import zlib

from wan_lab import Place, same, site_of
from wan_rows import Race, Scenario, figure, line
from wan_three import SITES, THREE, https
from wan_tools import aria2, gridlane, metalink, xrdcp

LIAR = "middle"
# One byte in each so many is wrong.
STEP_BYTES = 8 << 20
PIECE_BYTES = 4 << 20


class Lie(Race):
    """A race in which exit code and bytes are results. `told` are the clients with what each is told of the file."""

    def __init__(self, scenario, name, size, allowed):
        super().__init__(scenario, name, size, [])
        self.allowed = allowed

    def told(self):
        raise NotImplementedError

    def measure(self, lab):
        shelf = self.bench.shelf
        shelf.need(self.size)
        self.prepare()
        self.tools = self.chosen(self.told())
        lines, figures = [], []
        for tool in self.tools:
            original, tool.original = tool.original, None
            runs, right, outcomes = [], [], []
            for _ in range(tool.rounds):
                look = self.look(lab, tool)
                run = lab.run(tool, self.size, [look])
                self.describe(lab, tool, run, look.found)
                is_right = shelf.target.exists() and same(shelf.target, original)
                runs.append(run)
                right.append(float(is_right and run.code == 0))
                state = "right" if is_right else "wrong" if shelf.target.exists() else "no"
                outcomes.append(f"{state} file, exit {run.code}")
            lines.append(line(tool, runs, runs) | {"note": ", ".join(dict.fromkeys(outcomes))})
            if tool is self.tools[0]:
                figures = list(self.judged(lab, runs, right))
        return {"name": self.name, "size": self.size, "lines": lines, "figures": figures}

    def prepare(self):
        """The liar's file: the same size, a byte here and there different."""
        shelf = self.bench.shelf
        lie = shelf.file(self.size, shelf.lies)
        if lie.exists():
            return
        lie.write_bytes(shelf.file(self.size).read_bytes())
        lie.chmod(0o644)
        with open(lie, "r+b") as file:
            for place in range(STEP_BYTES // 2, self.size, STEP_BYTES):
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 0xFF]))

    def judged(self, lab, runs, right):
        yield figure("right file, exit 0", right, least=1, digits=0)
        yield figure("the liar alone named", [float(named(run) == {LIAR}) for run in runs], least=1, digits=0)
        values = []
        for run in runs:
            sent = sum(run.sent[site] / lab.overhead(site, 6) for site in SITES) / 1.005
            values.append(max(0.0, sent - run.bytes) / (self.allowed(run) + 0.02 * run.bytes))
        yield figure("extra bytes over what is allowed", values, most=1)


def named(run):
    """Sites that an event or the summary calls wrong."""
    said = [event for _, event in run.events if event["type"] == "source"] + run.summary.get("sources", [])
    return {site_of(one["url"]) for one in said if one["state"] == "wrong" or one.get("wrong_pieces")}


def bad_pieces(run):
    """Bytes of the pieces that came with a wrong checksum."""
    wrong = {
        (event["offset"], event["len"])
        for _, event in run.events
        if event["type"] == "verify" and event["matches"] is False and "offset" in event
    }
    return sum(length for _, length in wrong)


def suspects(run):
    """What came from the sources that had to be suspected: as many as there were tries, the largest."""
    shares = sorted((source["received_bytes"] for source in run.summary.get("sources", [])), reverse=True)
    tries = sum(event["type"] == "verify" and event["matches"] is False for _, event in run.events)
    return sum(shares[: max(1, tries)])


def liars_share(run):
    sources = run.summary.get("sources", [])
    return sum(source["received_bytes"] for source in sources if site_of(source["url"]) == LIAR)


class Pieces(Lie):
    def told(self):
        shelf, size, rounds = self.bench.shelf, self.size, self.scenario.rounds
        with open(shelf.file(size), "rb") as file:
            hashes = [hashlib.sha256(piece).hexdigest() for piece in iter(lambda: file.read(PIECE_BYTES), b"")]
        digests = f'<pieces length="{PIECE_BYTES}" type="sha-256">' + "".join(f"<hash>{h}</hash>" for h in hashes)
        file = metalink(shelf, size, https(SITES), digests + "</pieces>", "pieces")
        ours = gridlane(shelf, size, https(SITES), rounds, "gridlane cp with a metalink")
        ours.command = [shelf.binary, "cp", str(file), str(shelf.target), "--json", "--ca", shelf.authority]
        theirs = aria2(shelf, size, SITES, 1)
        theirs.command = [*theirs.command[: -len(SITES)], f"--metalink-file={file}"]
        theirs.name = "aria2c with the same metalink"
        return [ours, theirs]


class Whole(Lie):
    def told(self):
        shelf, size = self.bench.shelf, self.size
        value = adler32(shelf.file(size))
        ours = gridlane(shelf, size, https(SITES), self.scenario.rounds, more=["--checksum", f"adler32:{value}"])
        theirs = aria2(shelf, size, SITES, 1)
        theirs.command = [*theirs.command[:1], f"--checksum=adler32={value}", *theirs.command[1:]]
        copy = xrdcp(shelf, size, SITES, 1)
        at = copy.command.index("xrdcp") + 1
        copy.command = [*copy.command[:at], "--cksum", f"adler32:{value}", *copy.command[at:]]
        for tool in (ours, theirs, copy):
            tool.name += ", told the checksum"
        return [ours, theirs, copy]


class Majority(Lie):
    def told(self):
        shelf, size = self.bench.shelf, self.size
        return [
            gridlane(shelf, size, https(SITES, "serve"), self.scenario.rounds),
            aria2(shelf, size, SITES, 1),
            xrdcp(shelf, size, SITES, 1),
        ]


def adler32(path):
    value = 1
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 22), b""):
            value = zlib.adler32(part, value)
    return f"{value:08x}"


class Liars(Scenario):
    name, title = "liars", "One of three sources has wrong bytes"
    about = (
        f"{LIAR} serves a file of the same size in which one byte in each {STEP_BYTES >> 20} MiB is wrong. With digests of pieces of",
        f"{PIECE_BYTES >> 20} MiB in a metalink; with the Adler-32 of the whole file on the command line; with nothing but what each server",
        "says of its own file. Allowed extra bytes: the bad pieces; what came from as many sources as had to be tried; what",
        "came from the liar; 2 % of the size each. Peers run once.",
    )

    def place(self):
        return Place(self.name, THREE, SITES, ("nginx", "serve", "xrootd"), liar=LIAR)

    def rows(self):
        size = self.bench.megabytes(500)
        yield Pieces(self, "digests of pieces", size, bad_pieces)
        yield Whole(self, "a digest of the whole", size, suspects)
        yield Majority(self, "the majority of the servers", size, liars_share)
