"""The figures of reading as a page."""

from report import environment, head, save
from wan_report import figure_line

COMPARED = "| row | what | target | reached | interval | n | |\n| --- | --- | :---: | ---: | :---: | ---: | --- |"


def write_page(path, command, facts, rows, failures, stolen):
    """Markdown, the caveats first."""
    lines = [
        *head("Reading a part of a remote file: figures", "bench/read.py", command),
        *caveats(facts, stolen),
        "",
        *environment(facts),
        "",
        *failed(failures),
        "## Targets",
        "",
        *targets(rows),
        "",
    ]
    for section in dict.fromkeys(row["section"] for row in rows):
        lines += [f"## {section}", ""]
        for row in rows:
            if row["section"] == section:
                lines += [*row_lines(row), ""]
    save(path, lines)


def caveats(facts, stolen):
    return [
        f"- Clients, servers and the emulator of wide areas share {facts['cores']} cores. {stolen:.0f} % of the CPU time was stolen by the",
        "  hypervisor. Only the ratios of runs in turns count, with the median and the 95 % interval of the median by order",
        "  statistics (of fewer than six runs: the extremes). A target counts for the end of the interval that is worse.",
        "- Networks are `gridlane wan`'s, 1 Gb/s, buffers for the path, BBR, queues of what the path holds, and of 500 kB at 0.5 ms,",
        "  as in a switch: eight connections begin with twice what that path holds. Files lie in tmpfs and were read before. The",
        "  first run of each side is not counted; what it has read is compared with the file.",
        "- A run of `gridlane read` is from before the file is opened (connections, TLS, opening) to its last byte, without the",
        "  start of the process; that of a Python client likewise, without the start and the imports of Python.",
        "- CPU time of `gridlane read` is that of its process; of Python clients that of the work alone, all threads; of servers",
        "  what their processes' clocks say.",
        "- The best policy in hindsight is the forced one with the best median. One that takes twice as long as another is stopped.",
        "  `lazy` fetches segments of 128 MB that are touched, `vector` and `direct` replay the program as it was recorded: ROOT's,",
        "  uproot's and fsspec's policies with each vector and each read waited for.",
    ]


def failed(failures):
    if not failures:
        return []
    return [f"**{len(failures)} runs failed:**", "", *(f"- {' '.join(text.split())}" for text in failures), ""]


def targets(rows):
    """All that is judged, in one table."""
    judged = [(row, figure) for row in rows for figure in row["figures"] if figure["passed"] is not None]
    yield f"{sum(figure['passed'] for _, figure in judged)} of {len(judged)} are reached."
    yield ""
    yield COMPARED
    for row, figure in judged:
        yield figure_line(row["name"], figure)


def row_lines(row):
    """One row: what is said of it, its sides, and of simulated jobs those that are worst."""
    yield f"### {row['name']}"
    yield ""
    if row.get("note"):
        yield f"{row['note']}."
        yield ""
    if row["sides"]:
        yield from sides(row["sides"])
        yield ""
    if row["figures"]:
        yield COMPARED
        yield from (figure_line(row["name"], figure) for figure in row["figures"])
    if row.get("cells"):
        yield ""
        yield from cells(row["cells"])


def sides(found):
    yield "| side | median, s | interval, s | n | CPU client, s | CPU server, s | moved, MB | requests | packets lost | |"
    yield "| --- | ---: | :---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for side in found:
        if "seconds" not in side:
            yield f"| {side['name']} | - | - | 0 of {side['runs']} | - | - | - | - | - | {side['note'] or 'failed'} |"
            continue
        spread = side["seconds"]
        moved = f"{side['moved_bytes'] / 1e6:.1f}" if "moved_bytes" in side else "-"
        requests = f"{side['requests']:.0f}" if "requests" in side else "-"
        cpu = [f"{side[what]:.3f}" for what in ("client_cpu_s", "server_cpu_s")]
        count = f"{spread['n']}" + (f" of {side['runs']}" if side["failed"] else "")
        cells = [
            side["name"], f"{spread['median']:.3f}", f"{spread['low']:.3f} – {spread['high']:.3f}", count, *cpu, moved, requests,
            f"{side['dropped']:.0f}", side["note"],
        ]
        yield "| " + " | ".join(cells) + " |"


def cells(found, most=25):
    """Those jobs that are worst."""
    worst = sorted(found, key=lambda cell: -cell["ratio"])[:most]
    yield f"The {len(worst)} that are worst:" if len(worst) < len(found) else "All of them, the worst first:"
    yield ""
    yield "| job | best | in | adaptive in | ratio | speculation | moved/wanted |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for cell in worst:
        yield (
            f"| {cell['job']} | {cell['best']} | {cell['best_s']:.3f} s | {cell['adaptive_s']:.3f} s | {cell['ratio']:.2f} | "
            f"{cell['speculation']:.2f} | {cell['moved']:.2f} |"
        )


def self_test():
    """Fails where the page does not say what was measured."""
    summary = {"n": 3, "median": 1.25, "low": 1.0, "high": 1.5, "exact": False}
    figures = [
        {"what": "ratio", "least": None, "most": 1.3, "unit": "", "digits": 2, "missing": 0, "summary": summary, "passed": False},
        {"what": "shown", "least": None, "most": None, "unit": " s", "digits": 2, "missing": 1, "summary": None, "passed": None},
    ]
    good = {"name": "a", "runs": 3, "failed": 0, "note": "", "seconds": summary, "client_cpu_s": 0.5, "server_cpu_s": 0.25, "dropped": 4}
    bad = {"name": "b", "runs": 3, "failed": 3, "note": "over 2 times the best"}
    cell = {"job": "job", "best": "copy", "best_s": 1.0, "adaptive_s": 2.0, "ratio": 2.0, "speculation": 0.5, "moved": 1.5}
    row = {"name": "row", "section": "s", "note": "note", "sides": [good, bad], "figures": figures, "cells": [cell]}
    lines = list(row_lines(row))
    assert "| a | 1.250 | 1.000 – 1.500 | 3 | 0.500 | 0.250 | - | - | 4 |  |" in lines
    assert "| b | - | - | 0 of 3 | - | - | - | - | - | over 2 times the best |" in lines
    assert "| row | ratio | ≤ 1.3 | 1.25 | 1.00 – 1.50 | 3 | **fail** |" in lines
    assert "| job | copy | 1.000 s | 2.000 s | 2.00 | 0.50 | 1.50 |" in lines
    assert next(iter(targets([row]))) == "0 of 1 are reached."
