"""Rows on loopback: the cost of an element, `cat_ranges` in Python, a file object from its beginning to its end."""

import read_jobs
from read_judge import element_us, ratios
from read_runs import Row, in_turns, on_loopback, seconds, side
from wan_rows import figure

EVENTS, EVENT_BYTES = "events", 1000
CLIENT_MOST, SERVER_MOST, HTTP_SERVER_US = 0.25, 1.0, 1.5
CAT_RANGES_LEAST = 5
STREAM_LEAST, OF_CP_LEAST = 3, 0.7


def rows(_bench):
    section = "On loopback"
    yield Row("elements", section, elements, 1)
    yield Row("cat_ranges", section, cat_ranges, 1)
    yield Row("file object", section, file_object, 1)


def of_each(outcomes, elements, what="client_cpu_s", start_s=0.0):
    """Microseconds of each run for an element."""
    return [each and element_us(getattr(each, what), start_s, elements) for each in outcomes]


def elements(bench):
    """One call for all ranges, each way in turns. The start of the program is not the element's: a run of one range, which
    does all else, is taken off the client's CPU time; that of Python is measured without it from the beginning."""
    bench.need(EVENTS, bench.size)
    job = read_jobs.known("known", EVENTS, bench.size, EVENT_BYTES, bench.elements * EVENT_BYTES / bench.size)
    one = read_jobs.known("one", EVENTS, bench.size, EVENT_BYTES, 0)
    serve, xrootd = bench.serve, bench.xrootd
    count = len(job.ranges)

    def ours(server, scheme, job=job):
        command = [bench.binary, "read", bench.trace(job), bench.address(server, scheme, EVENTS), "--json", "--memory", "1200000000"]
        return lambda check=False: on_loopback(command + (["--checksum"] if check else []), [server])

    def theirs(server):
        words = ["ranges", "pyxrootd", bench.address(server, "root", EVENTS), bench.trace(job)]
        return lambda check=False: on_loopback(bench.client("debian", words, check), [server])

    works = {
        "gridlane read, root, from gridlane": ours(serve, "root"),
        "gridlane read, root, from xrootd": ours(xrootd, "root"),
        "gridlane read, http, from gridlane": ours(serve, "http"),
        "pyxrootd from xrootd": theirs(xrootd),
        "pyxrootd from gridlane": theirs(serve),
    }
    runs = in_turns(bench, works, bench.rounds, job.adler32(bench.served(EVENTS)))
    starts = {scheme: min(ours(serve, scheme, one)().client_cpu_s for _ in range(3)) for scheme in ("root", "http")}
    root, from_xrootd, http, peer, peer_from_us = (runs.get(name, []) for name in works)
    client = of_each(root, count, start_s=starts["root"])
    sides = [side(name, outcomes, elements=count) for name, outcomes in runs.items()]
    return {
        "sides": sides,
        "figures": [
            figure("client CPU, root: gridlane read over pyxrootd", ratios(client, of_each(peer, count)) or [None], most=CLIENT_MOST),
            figure("client CPU of an element, root, gridlane read", client or [None], unit=" us"),
            figure("client CPU of an element, http, gridlane read", of_each(http, count, start_s=starts["http"]) or [None], unit=" us"),
            figure("client CPU of an element, pyxrootd", of_each(peer, count) or [None], unit=" us"),
            server_figure("pyxrootd reads", peer_from_us, peer, count),
            server_figure("gridlane read reads", root, from_xrootd, count),
            figure("server CPU of an element, root, pyxrootd reads", of_each(peer_from_us, count, "server_cpu_s") or [None], unit=" us"),
            figure(
                "server CPU of an element, http", of_each(http, count, "server_cpu_s") or [None], most=HTTP_SERVER_US, unit=" us",
            ),
        ],
        "note": f"a run of one range takes {1e3 * starts['root']:.0f} ms of CPU time over root://, {1e3 * starts['http']:.0f} ms over http",
    }


def server_figure(who, ours, theirs, count):
    pairs = ratios(of_each(ours, count, "server_cpu_s"), of_each(theirs, count, "server_cpu_s"))
    return figure(f"server CPU over root://, where {who}: gridlane over xrootd", pairs or [None], most=SERVER_MOST)


def cat_ranges(bench):
    bench.need(EVENTS, bench.size)
    job = read_jobs.known("known", EVENTS, bench.size, EVENT_BYTES, bench.elements * EVENT_BYTES / bench.size)

    def work(python, client, server, scheme):
        words = ["cat-ranges", client, bench.address(server, scheme, EVENTS), bench.trace(job)]
        return lambda check=False: on_loopback(bench.client(python, words, check), [server])

    works = {
        "gridlane, root": work("ours", "gridlane", bench.serve, "root"),
        "gridlane, https": work("ours", "gridlane", bench.serve, "https"),
        "fsspec-xrootd from xrootd": work("xrootd", "fsspec", bench.xrootd, "root"),
        "fsspec-xrootd from gridlane": work("xrootd", "fsspec", bench.serve, "root"),
    }
    runs = in_turns(bench, works, bench.few, job.adler32(bench.served(EVENTS)))
    figures = [
        figure(f"{peer}, over {ours}", ratios(seconds(runs.get(peer, [])), seconds(runs.get(ours, []))) or [None], least=least)
        for ours, least in (("gridlane, root", CAT_RANGES_LEAST), ("gridlane, https", None))
        for peer in works if peer.startswith("fsspec")
    ]
    return {"sides": [side(name, outcomes, elements=len(job.ranges)) for name, outcomes in runs.items()], "figures": figures}


def file_object(bench):
    """In pieces of 1 MiB. `gridlane cp` is a whole process, and the others are without the start of Python."""
    bench.need(EVENTS, bench.size)
    address = bench.address(bench.serve, "https", EVENTS)

    def work(client):
        return lambda check=False: on_loopback(bench.client("ours", ["stream", client, address], check), [bench.serve])

    cp = "gridlane cp to /dev/null"
    works = {"gridlane": work("gridlane"), "fsspec http (aiohttp)": work("fsspec"), cp: lambda check=False: bench.cp(address)}
    whole = read_jobs.Job("whole", EVENTS, bench.size, (((0, bench.size),),))
    # Of a copy to /dev/null nothing is left to compare: it checks itself what it has read.
    runs = in_turns(bench, works, bench.few, whole.adler32(bench.served(EVENTS)), unchecked=(cp,))
    ours, peer, copy = (seconds(runs.get(name, [])) for name in works)
    return {
        "sides": [side(name, outcomes) for name, outcomes in runs.items()],
        "figures": [
            figure("rate over fsspec's http", ratios(peer, ours) or [None], least=STREAM_LEAST),
            figure("rate over that of `gridlane cp`", ratios(copy, ours) or [None], least=OF_CP_LEAST),
        ],
    }
