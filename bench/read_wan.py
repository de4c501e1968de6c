"""Rows over emulated networks of 1 Gb/s: known and unknown offsets, both protocols, recorded traces, a tree."""

import read_jobs
from read_judge import HOPELESS, hindsight, limit_s, net, ratios
from read_runs import CutOff, Row, in_turns, must_have_read, over, seconds, side
from wan_long import SITE
from wan_rows import figure
from wan_sites import GridlaneServe, XRootD

EVENTS = "events"
EVENT_BYTES, FRACTION = 1000, 0.1
# Seconds that all known events may take, by round trip.
KNOWN_S = {26: 1.3, 300: 5.2}
ROUND_TRIPS_MS = (0.5, 26, 150, 300)
HTTPS_AS_ROOT = 1.1
SERVE, XROOTD = ("serve", SITE), ("xrootd", SITE)
# Vectors that are waited for take a minute at 300 ms.
PATIENCE_S = 240
# Those first that are seldom slow.
FORCED = ("copy", "prefetch", "vector", "direct", "lazy")
# As in the target, and what of it is done in real time: the simulator does all.
CELLS = [(ms, part, size) for ms in (0.5, 26, 300) for size in (1000, 1_000_000) for part in (0.01, 0.1, 0.5, 1.0)]
USUAL_CELLS = {(0.5, 0.1, 1000), (26, 0.01, 1000), (26, 0.1, 1000), (26, 0.1, 1_000_000), (300, 0.01, 1000), (300, 0.5, 1_000_000)}
CELL_MOST, TRACE_MOST, TRACES_MOST, BUDGET = 1.3, 1.6, 1.3, 4.0
BRANCHES = 40
TREE_MOST = 0.5


def url(scheme, name, port=GridlaneServe.port):
    return f"{scheme}://{SITE}:{port}{'//' if scheme == 'root' else '/'}{name}"


def rows(bench):
    known, unknown = "Offsets that are known", "Offsets that are not known"
    traces = "Recorded traces"
    for ms in ROUND_TRIPS_MS:
        yield Row(f"known, {ms:g} ms", known, lambda bench, ms=ms: known_offsets(bench, ms), 1 + ms / 75, ms)
        yield Row(f"known, second call, {ms:g} ms", known, lambda bench, ms=ms: second_call(bench, ms), 1 + ms / 300, ms)
    for cell in CELLS:
        ms, part, size = cell
        name = f"unknown, {100 * part:g} % in events of {size // 1000} kB, {ms:g} ms"
        yield Row(name, unknown, lambda bench, cell=cell: unknown_offsets(bench, *cell), 3, ms, cell in USUAL_CELLS)
    for ms in (26, 150):
        for job in bench.traces():
            yield Row(f"trace {job.name}, {ms} ms", traces, lambda bench, job=job, ms=ms: trace(bench, job, ms), 1, ms)
    yield Row("uproot, 26 ms", "uproot", lambda bench: tree(bench, 26), 2, 26)


# --- Known ------------------------------------------------------------------------------------------------------------


def read(bench, lab, job, address, *more, limit=PATIENCE_S, policy="adaptive"):
    """A work: `gridlane read` of a job."""
    command = [bench.binary, "read", bench.trace(job), address, "--json", "--policy", policy, "--ca", bench.authority]
    command += ["--memory", "1200000000", *more]
    return lambda check=False: over(lab, command + (["--checksum"] if check else []), SERVE, limit)


def by_python(bench, lab, python, words, source, limit=PATIENCE_S):
    """A work: a client that an interpreter has."""
    return lambda check=False: over(lab, bench.client(python, words, check), source, limit)


def known_offsets(bench, ms):
    lab, size = bench.lab(ms), bench.size
    job = read_jobs.known("known", EVENTS, size, EVENT_BYTES, FRACTION)
    bench.need(EVENTS, size)
    works = {scheme: read(bench, lab, job, url(scheme, EVENTS)) for scheme in ("root", "https")}
    runs = in_turns(bench, works, bench.rounds, job.adler32(bench.served(EVENTS)))
    sides = [side(f"gridlane, {scheme}", runs[scheme]) for scheme in runs]
    if ms in KNOWN_S:
        words = ["ranges", "pyxrootd", url("root", EVENTS, XRootD.port), bench.trace(job)]
        peer = in_turns(bench, {"pyxrootd": by_python(bench, lab, "debian", words, XROOTD)}, min(2, bench.rounds))
        sides += [side("pyxrootd from xrootd, vectors of 1024", outcomes) for outcomes in peer.values()]
    # The targets are of a GB.
    most = KNOWN_S.get(ms) if size >= 10**9 else None
    figures = [figure(f"{scheme}", seconds(runs.get(scheme, [None])), most=most, unit=" s") for scheme in works]
    return {"sides": sides, "figures": [*figures, https_as_root(runs)]}


def https_as_root(runs):
    pairs = ratios(seconds(runs.get("https", [])), seconds(runs.get("root", [])))
    return figure("https over root://", pairs or [None], most=HTTPS_AS_ROOT)


def second_call(bench, ms):
    """The same on connections that are warm: as many events again, in a second call on the open file."""
    lab, size = bench.lab(ms), bench.size
    bench.need(EVENTS, size)
    first, second = read_jobs.twice("twice", EVENTS, size, EVENT_BYTES, FRACTION)
    file = bench.trace(first)
    bench.trace(second, f"{file}.second")
    works = {
        scheme: by_python(bench, lab, "ours", ["--warm", "ranges", "gridlane", url(scheme, EVENTS), file], SERVE)
        for scheme in ("root", "https")
    }
    runs = in_turns(bench, works, bench.rounds, second.adler32(bench.served(EVENTS)))
    return {"sides": [side(f"gridlane (Python), {scheme}", runs[scheme]) for scheme in runs], "figures": [https_as_root(runs)]}


# --- Policies in hindsight ----------------------------------------------------------------------------------------------


def in_hindsight(bench, lab, job, rounds, most):
    """The adaptive policy and each forced one in turns. One that is hopeless in the first round is not run again."""
    address = url("root", job.file)
    right = job.adler32(bench.served(job.file))
    must_have_read(read(bench, lab, job, address)(check=True), right, "the adaptive policy")
    runs = {policy: [] for policy in ("adaptive", *FORCED)}
    for number in range(rounds):
        for policy in list(runs):
            if number and runs[policy] and runs[policy][0] is None:
                continue
            known_s = [each.seconds for outcomes in runs.values() for each in outcomes if each]
            limit = PATIENCE_S if policy == "adaptive" else limit_s(known_s, PATIENCE_S)
            try:
                runs[policy].append(read(bench, lab, job, address, limit=limit, policy=policy)())
            except CutOff:
                runs[policy].append(None)
    best = hindsight({policy: seconds(runs[policy]) for policy in FORCED})
    adaptive = [each for each in runs["adaptive"] if each]
    wanted = adaptive[-1].line["wanted_bytes"] if adaptive else None
    moved = f"moved {adaptive[-1].line['moved_bytes'] / wanted:.2f} of what was wanted" if wanted else ""
    figures = [
        figure(
            f"adaptive over the best in hindsight ({best or 'none'})",
            ratios(seconds(runs["adaptive"]), seconds(runs[best])) if best else [None], most=most,
        ),
        figure("speculation", [each.line["speculation"] for each in adaptive] or [None], most=BUDGET),
    ]
    sides = [
        side(policy, outcomes, note=f"over {HOPELESS:g} times the best" if outcomes and None in outcomes else "")
        for policy, outcomes in runs.items()
    ]
    return {"sides": sides, "figures": figures, "note": moved, "best": best}


def unknown_offsets(bench, ms, part, event_bytes):
    lab, size = bench.lab(ms), bench.size
    bench.need(EVENTS, size)
    job = read_jobs.unknown("unknown", EVENTS, size, event_bytes, part)
    result = in_hindsight(bench, lab, job, bench.few, CELL_MOST)
    measured = next((each for each in result["sides"] if each["name"] == "adaptive" and "seconds" in each), None)
    simulated = bench.simulated_cell(ms, part, event_bytes)
    if simulated and measured:
        times = [measured["seconds"]["median"] / simulated.adaptive_s]
        result["figures"].append(figure("measured over simulated, adaptive", times))
        best_s = next((each["seconds"]["median"] for each in result["sides"] if each["name"] == result["best"]), None)
        if best_s:
            result["figures"].append(figure(f"measured over simulated, best ({simulated.best})", [best_s / simulated.best_s]))
    return result


def trace(bench, job, ms):
    lab = bench.lab(ms)
    bench.need(job.file, job.size_bytes)
    return in_hindsight(bench, lab, job, bench.few, TRACE_MOST)


# --- uproot -------------------------------------------------------------------------------------------------------------


def tree(bench, ms):
    lab = bench.lab(ms)
    name, branches = bench.need_tree(BRANCHES)
    local = str(bench.served(name))

    def work(python, client, address, source):
        return by_python(bench, lab, python, ["tree", client, address, str(branches)], source)

    works = {
        "gridlane, root": work("ours", "gridlane", url("root", name), SERVE),
        "gridlane, https": work("ours", "gridlane", url("https", name), SERVE),
        "pyxrootd from xrootd": work("xrootd", "pyxrootd", url("root", name, XRootD.port), XROOTD),
        "fsspec-xrootd from xrootd": work("xrootd", "fsspec", url("root", name, XRootD.port), XROOTD),
        "fsspec-http from gridlane": work("ours", "fsspec", url("https", name), SERVE),
        "memory, with gridlane's interpreter": work("ours", "memory", local, SERVE),
        "memory, with pyxrootd's interpreter": work("xrootd", "memory", local, SERVE),
    }
    first = works["memory, with gridlane's interpreter"](check=True)
    runs = in_turns(bench, works, bench.few, first.line["adler32"])
    memory = {python: runs.get(f"memory, with {whose} interpreter", []) for python, whose in (("ours", "gridlane's"), ("xrootd", "pyxrootd's"))}

    def beyond(side_name):
        python = "xrootd" if "xrootd from" in side_name else "ours"
        pairs = zip(seconds(runs.get(side_name, [])), seconds(memory[python]))
        return [net(far, near) if far and near else None for far, near in pairs]

    peers = {peer: beyond(peer) for peer in works if " from " in peer and runs.get(peer)}
    better = hindsight(peers)
    sides = [side(side_name, outcomes) for side_name, outcomes in runs.items()]
    for each in sides:
        if (values := [value for value in beyond(each["name"]) if value]) and not each["name"].startswith("memory"):
            each["note"] = f"{sorted(values)[len(values) // 2]:.2f} s beyond memory"
    figures = [
        figure(f"{ours}, beyond memory, over {better}", ratios(beyond(ours), peers[better]) if better else [None], most=TREE_MOST)
        for ours in ("gridlane, root", "gridlane, https")
    ]
    return {"sides": sides, "figures": figures}

