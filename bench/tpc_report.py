"""The page of the figures of third-party copies."""

import wan_report
from report import environment, head, pairs_said, save, table

ABOUT = """\
- Two `gridlane serve` beside two xrootd of Debian with HTTP-TPC (`libXrdHttpTPC.so`), source and destination of a pair on the
  same machine, files and targets in tmpfs. Servers and initiator share its cores: on loopback every figure is bound by CPU.
- On loopback the initiator is `curl --parallel`, over a wide area bench/tpc_copy.py: it sends `COPY` with `Source`, reads the
  markers, and keeps its connections where the server keeps them. curl's time is the process's, the other's from the request to the
  last line of the copy.
- Every copy of every run is compared with the original, outside the time. A run that fails or has wrong bytes makes its row
  one without figures, with what the program said.
- CPU in the table is of the initiator + of both servers, in seconds per GB (10^9 bytes). That of servers counts all their
  processes, those that have ended and XRootD's pull program (`xrdcp --server`) included, when their clocks stand still again.
- `gridlane serve` computes adler32 of what it stores, compares it with the source's, and writes the file to the disk before
  it says success (`--durability file`); XRootD does neither. Access logs of gridlane are off."""

WIDE_ABOUT = """\
- Over wide areas destination, sources and initiator are at sites of an emulated network (`gridlane wan`), the initiator 0.1 ms
  from the destination; rates are those of the wire. The gridlane destination is started again before each run, so that no
  connection and no knowledge of the path is left, and the source is not. Bounds are of payload. `client` in the tables is the
  initiator, and `connections` are those that the source had at one moment."""


def write_page(path, command, facts, rows, sections, failures, stolen):
    """Markdown, the caveats first."""
    lines = [*head("Third-party copies, many and one after the other: figures", "bench/tpc.py", command), *ABOUT.splitlines()]
    lines += [*WIDE_ABOUT.splitlines()] if sections else []
    lines += pairs_said(rows) if any(row["ratio"] for row in rows) else []
    lines += [
        f"- {stolen:.0f} % of the CPU time was stolen by the hypervisor during the runs. Rates of single runs are noisy; only the",
        "  ratios of paired runs count, and of those the worse end of the interval.",
        "", *environment(facts), "",
    ]
    if rows:
        lines += ["## On loopback", "", *table(rows), ""]
    if sections:
        lines += ["## Over emulated wide areas", "", *wan_report.failed(failures), *wan_report.targets(sections), ""]
        shown = set()
        for section in sections:
            lines += [f"## {section['title']}", "", *wan_report.section_lines(section, shown)]
    save(path, lines)
