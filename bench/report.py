"""The figures as JSON and as a page."""

import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path


def machine():
    """What the figures depend on."""
    cpu = next((line.partition(":")[2].strip() for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")), "unknown")
    memory = next((int(line.split()[1]) for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")), 0)
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "kernel": platform.release(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**20),
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "tcp_wmem": " ".join(_read("/proc/sys/net/ipv4/tcp_wmem").split()),
        "tcp_rmem": " ".join(_read("/proc/sys/net/ipv4/tcp_rmem").split()),
        **{
            name: _first_line(command, option)
            for name, command, option in (
                ("curl", "curl", "--version"),
                ("nginx", "nginx", "-v"),
                ("aria2", "aria2c", "--version"),
                ("rclone", "rclone", "version"),
                ("xrootd", "xrdcp", "--version"),
                ("apache", "apache2", "-v"),
                ("davix", "davix-get", "--version"),
                ("wrk", "wrk", "--version"),
            )
            if shutil.which(command)
        },
    }


def _read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _first_line(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return " ".join((done.stdout or done.stderr).splitlines()[0].split()[:3])


def write_json(path, facts, rows, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"v": 1, "machine": facts, "rows": rows, **more}, indent=1) + "\n")


def head(title, script, command):
    """The lines of a page as far as what to know before reading."""
    return [
        f"# {title}", "", f"Written by `{script}`; do not edit by hand. To repeat:", "", "```", command, "```", "",
        "## What to know before reading", "",
    ]


def environment(facts):
    """What the figures depend on, as lines of a page."""
    return ["| | |", "| --- | --- |", *(f"| {name.replace('_', ' ')} | {value} |" for name, value in facts.items())]


def save(path, lines):
    """Writes a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).rstrip("\n") + "\n")


def interval(of, digits=0):
    """A median with its interval."""
    return f"{of['median']:.{digits}f} [{of['low']:.{digits}f}, {of['high']:.{digits}f}]"


@dataclass
class Page:
    """What a page of paired runs says beside its figures."""

    title: str
    script: str
    command: str
    caveats: list
    after: list = field(default_factory=list)


def write_page(path, page, facts, rows, stolen):
    """Markdown, the caveats first."""
    lines = [
        *head(page.title, page.script, page.command),
        f"- Client and server share {facts['cores']} cores over loopback: every figure is bound by CPU, and a cheaper client",
        "  makes its server look faster. There is no network here: latency and loss are not shown.",
        f"- {stolen:.0f} % of the CPU time was stolen by the hypervisor during the runs. Rates of single runs are noisy; only the",
        "  ratios of paired runs count, and of those the lower end of the interval.",
        *pairs_said(rows),
        *(f"- {caveat}" for caveat in page.caveats),
        "",
        *environment(facts),
        "",
        "## Figures",
        "",
        *table(rows),
    ]
    save(path, [*lines, *page.after])


def pairs_said(rows):
    """How the rows were measured, as lines of a page."""
    ratio = next(row["ratio"] for row in rows if row["ratio"])
    return [
        f"- n = {ratio['n']} pairs of alternating runs (A B A B). `ratio` is gridlane's rate over the peer's in the same pair: its median",
        "  and the 95 % interval of the median by order statistics, which assumes nothing about the distribution."
        + ("" if ratio["exact"] else " **Too few pairs for that here: the extremes are shown.**"),
    ]


def table(rows):
    """The rows as lines of a page."""
    return [
        "| work | gridlane MB/s | peer MB/s | ratio | 95 % interval | CPU gridlane | CPU peer | target | |",
        "| --- | ---: | ---: | ---: | :---: | :---: | :---: | :---: | :---: |",
        *map(_table_row, rows),
    ]


def _table_row(row):
    ratio = row["ratio"]
    name = f"{row['name']} ({row['note']})" if row.get("note") else row["name"]
    target = f"≥ {row['target']:.2f}" if row["target"] else f"≤ {row['at_most']:.2f}" if row.get("at_most") else "none yet"
    verdict = {True: "pass", False: "**fail**", None: ""}[row["passed"]]
    if not ratio:
        status = " ".join(row["status"].split()).replace("|", "\\|")
        return "| " + " | ".join([name, *["-"] * 6, target, f"{verdict} {status}".strip()]) + " |"
    unit = row["unit"]
    ours, peer = row["gridlane"], row.get("peer")

    def rate(side):
        if unit == "CPU-s/GB":
            return f"{side['rate']:.3f} s/GB"
        if unit == "CPU-µs":
            return f"{side['rate']:.1f} µs"
        return f"{side['rate'] / (1e6 if unit == 'MB/s' else 1):.0f}{'' if unit == 'MB/s' else ' /s'}"

    def cpu(side):
        if unit == "requests/s":
            return f"{side['client_cpu'] / 1e3:.1f} + {side['server_cpu'] / 1e3:.1f} µs"
        return f"{side['client_cpu']:.2f} + {side['server_cpu']:.2f}" if unit == "MB/s" else "-"

    cells = [
        name,
        rate(ours),
        rate(peer) if peer else f"bound {row['bound'] / 1e6:.0f}",
        f"{ratio['median']:.2f}",
        f"{ratio['low']:.2f} – {ratio['high']:.2f}",
        cpu(ours),
        cpu(peer) if peer else "-",
        target,
        verdict,
    ]
    return "| " + " | ".join(cells) + " |"
