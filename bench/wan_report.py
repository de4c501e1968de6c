"""The figures over the emulated wide area as JSON and as a page."""

import json


def size_name(size):
    return f"{size // 10**9} GB" if size >= 10**9 else f"{size // 10**6} MB"


def write_json(path, facts, network, rows, failures):
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {"v": 1, "machine": facts, "network": network, "rows": rows, "failures": failures}
    path.write_text(json.dumps(figures, indent=1) + "\n")


def row_lines(row):
    """A row as text, for whoever waits."""
    for side in row["sides"]:
        start = f"{row['name']:14} {side['name']:32}"
        if "rates" not in side:
            yield f"{start} failed in every run"
            continue
        sent = " + ".join(f"{sent / row['size']:.2f}" for sent in side["sent"].values())
        seen = " ".join(map(str, side["connections"].values()))
        yield (
            f"{start} {side['rate'] / 1e6:6.1f} MB/s [{side['rates']['low'] / 1e6:.1f}, {side['rates']['high'] / 1e6:.1f}]"
            f"  of bound {side['fraction']['median']:.2f}  CPU {side['client_cpu']:.2f}"
            f"  sent {sent}  connections {seen}  busy {side['busy']:.2f}"
        )


def write_page(path, command, scenario, facts, network, bounds, rows, failures):
    """Markdown, the caveats first. Every client has figures in every row."""
    sides = [side for row in rows for side in row["sides"]]
    lines = [
        "# `gridlane cp` over an emulated wide area: figures",
        "",
        "Written by `bench/wan.py`; do not edit by hand. To repeat:",
        "",
        "```",
        command,
        "```",
        "",
        "The network, as `gridlane wan up` reads it:",
        "",
        "```toml",
        *scenario.rstrip().splitlines(),
        "```",
        "",
        "## What to know before reading",
        "",
        *caveats(facts, network, rows, sides),
        "",
        *failed(failures),
        "| | |",
        "| --- | --- |",
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in facts.items()),
        "",
        *bound_tables(bounds, rows),
    ]
    for size in sorted({row["size"] for row in rows}):
        lines += ["", *size_table(size, [row for row in rows if row["size"] == size])]
    lines += ["", *source_table(rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def caveats(facts, network, rows, sides):
    n, exact = sides[0]["rates"]["n"], sides[0]["rates"]["exact"]
    forwarder = sorted(side["forwarder_cpu"] for side in sides)
    nodes = [node for node in network["nodes"] if not node["is_router"]]
    controls = sorted({name for side in sides for name in side["congestion_control"]})
    families = sorted({family for side in sides for family in side["families"]})
    wmem = max(node["tcp_wmem"][2] for node in nodes) / 1e6
    rmem = max(node["tcp_rmem"][2] for node in nodes) / 1e6
    mixed = sorted({side["name"] for side in sides if len(side["families"]) > 1})
    yield f"- The network is emulated (`{network['backend']}`): three servers, the client and the forwarder of the packets share"
    yield f"  {facts['cores']} cores; nothing is pinned, the forwarder runs {'before' if network['forwarder_is_real_time'] else 'like'} ordinary threads. It took"
    yield f"  {forwarder[0]:.2f} to {forwarder[-1]:.2f} CPU-seconds per GB, depending on the row. `busy` below is the share of all cores that anybody"
    yield "  used during a run: near 1.00 the machine was measured, not the network."
    yield "- No loss but by full queues, no jitter, no other traffic, and no bottleneck in common."
    yield f"- Congestion control, as seen on the servers' connections while they sent: {', '.join(controls) or 'not seen'}. Socket buffers are"
    yield f"  sized for the paths (at most {wmem:.0f} MB to send, {rmem:.0f} MB to receive), larger than a default kernel's: the usual"
    yield "  limits of one connection are not in these figures."
    yield f"- The names of the sites resolve to IPv6 and IPv4; connections seen were IPv{' and IPv'.join(map(str, families)) or '?'}, which"
    yield "  the bounds are for."
    if mixed:
        yield f"  Both in one run: {', '.join(mixed)}."
    yield f"- n = {n} counted runs of each client and one that is not, alternating (A B C, B C A, C A B) in each row. Medians; in brackets the"
    yield "  95 % interval of the median by order statistics" + ("." if exact else ": **too few runs for that here, the extremes are shown.**")
    yield "- Times are of the client's process, from its start to its end, taken in its namespace. Every run makes new"
    yield "  connections; every copy was compared with the file, outside the time. Files and targets are in tmpfs."
    yield "- `bound(k)` is what k sources can do at best: each moves its payload rate (no headers of packets, but those of TLS and"
    yield "  HTTP) after the round trips of its set-up and slow start. For root:// these are more, so its bound is lower. It does not"
    yield "  count what a connection carries during slow start: 1 MB from several sources can beat it. Checksums, CPU and the"
    yield "  start of a process are not in it."
    yield "- `gridlane cp` computes adler32 of everything; aria2c and curl compute nothing; xrdcp checks CRC32C of every page, unless"
    yield "  the row says otherwise (`XRD_CPUSEPGWRTRD=0`). nginx and"
    yield "  `gridlane serve` speak TLS 1.3 with an ECDSA P-256 certificate, xrootd does not encrypt."
    idle = [f"{side['name']} ({row['name']})" for row in rows for side in row["sides"] if _sources(row, side) < row["sources"]]
    if idle:
        yield f"- Fewer sites than k sent more than 1 % of the file: {', '.join(idle)}."
    yield "- The peers run with their defaults: aria2c one connection to each server and pieces of at least 20 MiB, told of k URLs"
    yield "  (`--file-allocation=none`); xrdcp `--sources k` with a metalink of k replicas, for k = 1 the plain URL."


def _sources(row, side):
    """How many sites sent a part of the file worth the name. A small one comes from the nearest alone."""
    if row["size"] < 10**7:
        return row["sources"]
    return sum(sent > 0.01 * row["size"] for sent in side["sent"].values())


def failed(failures):
    if not failures:
        return []
    return [f"**{len(failures)} runs failed** and are in no figure:", "", *(f"- {_one_line(text)}" for text in failures), ""]


def bound_tables(bounds, rows):
    payload = {row["sources"]: max(side["payload_bytes_per_s"] for side in row["sides"]) for row in rows}
    sources = sorted(payload)
    yield "## Bounds"
    yield ""
    yield "Seconds, and MB/s of the whole file, at best."
    yield ""
    yield "| | " + " | ".join(f"k = {k}" for k in sources) + " |"
    yield "| --- |" + " ---: |" * len(sources)
    yield "| sum of the payload rates | " + " | ".join(f"{payload[k] / 1e6:.1f} MB/s" for k in sources) + " |"
    for protocol, by_size in bounds.items():
        for size, seconds in by_size.items():
            cells = " | ".join(f"{seconds[k - 1]:.3f} s, {size / seconds[k - 1] / 1e6:.1f} MB/s" for k in sources)
            yield f"| {size_name(size)} over {protocol}:// | {cells} |"


def size_table(size, rows):
    """Clients down, numbers of sources across."""
    yield f"## {size_name(size)}"
    yield ""
    time = " (time)" if size < 10**7 else ""
    yield f"MB/s{time} [interval]; fraction of bound(k); CPU-seconds of the client per GB."
    yield ""
    yield "| client | " + " | ".join(f"k = {row['sources']}: MB/s | of bound | CPU" for row in rows) + " |"
    yield "| --- |" + " ---: | ---: | ---: |" * len(rows)
    names = list(dict.fromkeys(_name(side) for row in rows for side in row["sides"]))
    sides = {name: [next((s for s in row["sides"] if _name(s) == name), None) for row in rows] for name in names}
    for name in names:
        yield f"| {name} | " + " | ".join(cell for side in sides[name] for cell in _cells(size, side)) + " |"
    yield ""
    yield f"Rate of {names[0]} over that of the other in the same round, median [interval]:"
    yield ""
    yield "| other | " + " | ".join(f"k = {row['sources']}" for row in rows) + " |"
    yield "| --- |" + " ---: |" * len(rows)
    for name in names[1:]:
        yield f"| {name} | " + " | ".join(_ratio(side) for side in sides[name]) + " |"


def _ratio(side):
    if not side or "ratio" not in side:
        return "-"
    return "{median:.2f} [{low:.2f} – {high:.2f}]".format(**side["ratio"])


def _name(side):
    # The number of connections that aria2c may have grows with k.
    return "aria2c -x4 -s4k -k1M from nginx" if side["name"].startswith("aria2c -x4") else side["name"]


def _cells(size, side):
    if side is None:
        return ["-", "-", "-"]
    rates, digits = side["rates"], 2 if size < 10**7 else 0 if side["rate"] > 1e9 else 1
    time = f" ({size / side['rate'] * 1e3:.0f} ms)" if size < 10**7 else ""
    rate = f"{side['rate'] / 1e6:.{digits}f}{time} [{rates['low'] / 1e6:.{digits}f} – {rates['high'] / 1e6:.{digits}f}]"
    failed = f", {side['failed']} failed" if side["failed"] else ""
    return [rate + failed, f"{side['fraction']['median']:.2f}", f"{side['client_cpu']:.2f}"]


def source_table(rows):
    """Where the bytes came from."""
    yield "## Who sent what"
    yield ""
    yield "Bytes of IP packets towards the client over bytes of the file, by site, as the network counted them: headers alone"
    yield "make 1.05 over IPv6 and 1.04 over IPv4, TLS up to 0.005 more; beyond that it was sent twice or in vain."
    yield "Connections: as seen by the servers at one moment of the uncounted run. Dropped: packets that found a queue full."
    yield "CPU: seconds per GB, counted in steps of 10 ms. Memory: the most that a client had; the measuring process's own 16 MB"
    yield "hide what is below."
    yield ""
    yield "| row | client | near | middle | far | sum | connections | dropped | busy | server CPU | memory MB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | :---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        for side in row["sides"]:
            shares = [sent / row["size"] for sent in side["sent"].values()]
            cells = [
                row["name"],
                side["name"],
                *(f"{share:.2f}" for share in shares),
                f"{sum(shares):.2f}",
                " + ".join(map(str, side["connections"].values())),
                f"{side['dropped']:.0f}",
                f"{side['busy']:.2f}" if row["size"] >= 10**7 else "-",
                f"{side['server_cpu']:.2f}" if row["size"] >= 10**7 else "-",
                f"{side['memory_bytes'] / 1e6:.0f}",
            ]
            yield "| " + " | ".join(cells) + " |"


def _one_line(text):
    return " ".join(text.split()).replace("|", "\\|")
