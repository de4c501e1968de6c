"""The figures over emulated wide areas as JSON and as a page."""

import json

from report import environment, head, save


def size_name(size):
    return f"{size // 10**9} GB" if size >= 10**9 else f"{size // 10**6} MB"


def write_json(path, facts, sections, failures):
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {"v": 2, "machine": facts, "sections": sections, "failures": failures}
    path.write_text(json.dumps(figures, indent=1) + "\n")


# --- Progress ------------------------------------------------------------------------------


def row_lines(row):
    """A row as text."""
    for line in row["lines"]:
        start = f"  {row['name'][:34]:34} {line['name'][:34]:34}"
        if "rates" not in line:
            yield f"{start} failed in every run{_note(line, '; ')}"
            continue
        fraction = f"  of bound {line['fraction']['median']:.3f}" if line["fraction"] else ""
        seen = " ".join(f"{count:g}" for count in line["connections"].values())
        yield (
            f"{start} {line['seconds']['median']:7.2f} s {line['rate'] / 1e6:6.1f} MB/s{fraction}"
            f"  CPU {line['client_cpu']:.2f}  connections {seen}  busy {line['busy']:.2f}{_note(line, '  ')}"
        )
    for figure in row["figures"]:
        low, high = _interval(figure)
        yield f"    {figure['what']:56} {_reached(figure):>9} [{low}, {high}]  {_target(figure):8} {_verdict(figure).strip('*').upper()}"


# --- The page ---------------------------------------------------------------------------------------


def write_page(path, command, facts, sections, failures, simulated):
    """Markdown, the caveats first."""
    lines = [
        *head("`gridlane cp` over emulated wide areas, faults and limits: figures", "bench/wan.py", command),
        *caveats(facts, sections),
        "",
        *failed(failures),
        *environment(facts),
        "",
        "## Targets",
        "",
        *targets(sections),
        "",
        *simulated_beside_measured(simulated, sections),
    ]
    shown = set()
    for section in sections:
        lines += [f"## {section['title']}", "", *section_lines(section, shown)]
    save(path, lines)


def caveats(facts, sections):
    lines = [line for section in sections for row in section["rows"] for line in row["lines"] if "rates" in line]
    network = sections[0]["network"]
    forwarder = sorted(line["forwarder_cpu"] for line in lines if line["rate"] > 1e7) or [0.0]
    families = sorted({family for line in lines for family in line["families"]})
    exact = all(figure["summary"]["exact"] for figure in _figures(sections) if figure["summary"] and figure["passed"] is not None)
    text = f"""\
- The networks are emulated (`{network['backend']}`): servers, client and the forwarder of the packets share {facts['cores']} cores; nothing is
  pinned, the forwarder runs {'before' if network['forwarder_is_real_time'] else 'like'} ordinary threads. It took {forwarder[0]:.2f} to {forwarder[-1]:.2f} CPU-seconds per GB, depending on the row.
  `busy` below is the share of all cores that was in use during a run: near 1.00 the machine was measured, not the
  network.
- No loss but by full queues, no jitter and no other traffic, where the title does not say so. Congestion control is BBR,
  where the title does not say so; what was seen on the servers' connections stands in the results as JSON.
- Rates in titles are those of the wire. Bounds are of payload: no headers of packets, but those of TLS and HTTP. The
  names of the sites resolve to IPv6 and IPv4; connections seen were IPv{' and IPv'.join(map(str, families)) or '?'}, which the bounds are for.
- Clients alternate in each row (A B C, B C A, C A B), after no warm-up: files and memory are touched before. Six rounds of
  what has a target, two of what is there to compare with (one, where a run is said to be so). Medians; in brackets the
  95 % interval of the median by order statistics, of fewer than six runs the extremes. The interval's worse end must reach
  the target.{'' if exact else ' **Too few rounds for that here: the extremes are shown.**'}
- Times are of the client's process, from its start to its end, taken in its namespace. Every run makes new
  connections; every copy was compared with the file, outside the time. Files and targets are in tmpfs.
- `of bound` is bound(k) over the time: each source moves its payload rate after the round trips of its set-up and slow
  start, which the k connections that were opened to it shorten. It does not count what a connection carries
  during slow start: 1 MB from several sources can beat it. Checksums, CPU and the start of a process are not in it.
- `sent` are bytes of IP packets from each site over bytes of the file, as the network counted them: headers alone make
  1.05 over IPv6 and 1.04 over IPv4, TLS up to 0.005 more; beyond that it was sent twice or in vain. What is allowed is twice
  what is on the way (rate × round trip), or 2 % of the size.
- Connections: of gridlane all that carried the file, of others those that the servers saw at one moment. Dropped:
  packets that found a queue full. CPU: seconds per GB. Memory: the most that a client had; the measuring process's own
  16 MB hide what is below.
- `gridlane cp` computes adler32 of everything; aria2c, curl and xrdcp (`XRD_CPUSEPGWRTRD=0`) compute nothing. nginx and
  `gridlane serve` speak TLS 1.3 with an ECDSA P-256 certificate, xrootd does not encrypt.
- aria2c is told of k URLs, with `--file-allocation=none`; its defaults are one connection to each server and pieces of at
  least 20 MiB. xrdcp is told of k replicas by a metalink and `--sources k`, and asks for no CRC32C of pages."""
    return text.splitlines()


def failed(failures):
    if not failures:
        return []
    return [f"**{len(failures)} runs failed:**", "", *(f"- {_one_line(text)}" for text in failures), ""]


def targets(sections):
    """All that is judged, in one table."""
    judged = [figure for figure in _figures(sections) if figure["passed"] is not None]
    passed = sum(figure["passed"] for figure in judged)
    yield f"{passed} of {len(judged)} are reached."
    yield ""
    yield "| row | what | target | reached | interval | n | |"
    yield "| --- | --- | :---: | ---: | :---: | ---: | --- |"
    for section in sections:
        for row in section["rows"]:
            for figure in row["figures"]:
                if figure["passed"] is not None:
                    yield figure_line(row["name"], figure)


def figure_line(name, figure):
    low, high = _interval(figure)
    n = figure["summary"]["n"] if figure["summary"] else 0
    n = f"{n} + {figure['missing']} failed" if figure["missing"] else n
    cells = [name, figure["what"], _target(figure), _reached(figure), f"{low} – {high}", n, _verdict(figure)]
    return "| " + " | ".join(map(str, cells)) + " |"


def section_lines(section, shown):
    """A scenario's rows. Of networks that are `shown` already it says nothing more."""
    for line in section["about"]:
        yield line
    if section["about"]:
        yield ""
    if section["scenario"] not in shown:
        shown.add(section["scenario"])
        yield from ("<details><summary>The network, as gridlane wan up reads it</summary>", "", "```toml")
        yield from section["scenario"].rstrip().splitlines()
        yield from ("```", "", "</details>", "")
    for row in section["rows"]:
        yield from row_table(row)
        yield ""


def row_table(row):
    """Clients down."""
    yield f"### {row['name']}"
    yield ""
    has_note = any(line.get("note") for line in row["lines"])
    names = ["client", "time", "MB/s", "of bound", "ratio", "CPU client", "CPU server", "sent", "connections", "dropped", "busy", "memory MB"]
    marks = ["---", *["---:"] * 6, ":---:", ":---:", *["---:"] * 3]
    if has_note:
        names, marks = [*names, ""], [*marks, "---"]
    yield "| " + " | ".join(names) + " |"
    yield "| " + " | ".join(marks) + " |"
    for line in row["lines"]:
        cells = [line["name"], *_cells(row, line), *([line.get("note", "")] if has_note else [])]
        yield "| " + " | ".join(map(_one_line, cells)) + " |"
    others = [figure for figure in row["figures"] if figure["passed"] is None and figure["summary"]]
    if others:
        said = ("{} {} [{} – {}]".format(figure["what"], _reached(figure), *_interval(figure)) for figure in others)
        yield ""
        yield "Also: " + "; ".join(said) + "."


def _cells(row, line):
    if "rates" not in line:
        return [f"failed {line['failed']} of {line['rounds']}", *["-"] * 10]
    small = line["seconds"]["median"] < 1
    scale, unit, digits = (1e3, "ms", 0) if small else (1, "s", 2)
    seconds = {name: f"{scale * line['seconds'][name]:.{digits}f}" for name in ("median", "low", "high")}
    missed = f", {line['failed']} failed" if line["failed"] else ""
    ratio, fraction = line["ratio"], line["fraction"]
    fresh = line["seconds"]["median"] >= 0.3  # steps of 10 ms say nothing of less
    return [
        f"{seconds['median']} {unit} [{seconds['low']} – {seconds['high']}]{missed}",
        f"{line['rate'] / 1e6:.1f}",
        f"{fraction['median']:.3f}" if fraction and fraction["median"] else "-",
        f"{ratio['median']:.2f} [{ratio['low']:.2f} – {ratio['high']:.2f}]" if ratio else "-",
        f"{line['client_cpu']:.2f}",
        f"{line['server_cpu']:.2f}" if fresh else "-",
        " + ".join(f"{share:.2f}" for share in line["sent"].values()),
        " + ".join(f"{count:g}" for count in line["connections"].values()),
        f"{line['dropped']:.0f}",
        f"{line['busy']:.2f}" if fresh else "-",
        f"{line['memory_bytes'] / 1e6:.0f}",
    ]


# --- Simulated beside measured ------------------------------------------------------------------------


def simulated_beside_measured(text, sections):
    """The tables that the simulator of the plan prints, with what was measured in the row of the same name."""
    # Two tests print at the same time: what belongs together has as many columns.
    tables = {}
    for line in (text or "").splitlines():
        if line.startswith("|"):
            tables.setdefault(line.count("|"), []).append(line)
    tables = [lines for lines in tables.values() if len(lines) > 2]
    if not tables:
        return
    measured = {
        row["name"].lower(): line["fraction"]["median"]
        for section in sections
        for row in section["rows"]
        for line in row["lines"][:1]
        if line.get("fraction")
    }
    yield "## Simulated beside measured"
    yield ""
    yield "The same plan in the simulator (`cargo test -p gridlane-plan --test scenarios -- --nocapture`), which knows no CPU, no"
    yield "kernel and no queues; and the fraction that was measured, where a row above has the scenario's name."
    yield ""
    for top, rule, *rows in tables:
        names = [line.split("|")[1].strip().lower() for line in rows]
        shown = [f"{measured[name]:.3f}" if name in measured else "-" for name in names]
        if any(name in measured for name in names):
            top, rule = f"{top} measured |", f"{rule} ---: |"
            rows = [f"{line} {figure} |" for line, figure in zip(rows, shown)]
        yield from (top, rule, *rows, "")


# --- Words --------------------------------------------------------------------------------------------


def _figures(sections):
    return [figure for section in sections for row in section["rows"] for figure in row["figures"]]


def _text(figure, value):
    return f"{value:.{figure['digits']}f}{figure['unit']}"


def _reached(figure):
    return _text(figure, figure["summary"]["median"]) if figure["summary"] else "nothing"


def _interval(figure):
    summary = figure["summary"]
    return [_text(figure, summary[end]) for end in ("low", "high")] if summary else ("-", "-")


def _target(figure):
    if figure["least"] is not None:
        return f"≥ {figure['least']:g}{figure['unit']}"
    if figure["most"] is not None:
        digits = 0 if figure["most"] >= 10 else 3
        return f"≤ {round(figure['most'], digits):g}{figure['unit']}"
    return ""


def _verdict(figure):
    return {True: "pass", False: "**fail**", None: ""}[figure["passed"]]


def _note(line, before):
    return before + line["note"] if line.get("note") else ""


def _one_line(text):
    return " ".join(str(text).split()).replace("|", "\\|")
