"""Kinds of figures that go below runs: single transfers, samples over time, and what each source gave.

A function each, as in `plots`: it draws on a sheet, and returns why it could not, or nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gridlane_lab import statistics
from gridlane_lab.analysis import Observation
from gridlane_lab.record import Status
from gridlane_lab.sheet import BOUND_COLOUR, GREY, PALETTE, Sheet, plain, typical
from gridlane_lab.units import seconds_text

# Causes of failures that have a bar of their own.
CAUSES_MAX = 12
CAUSE_LETTERS_MAX = 58
HISTOGRAM_BINS = 24
# Names of the parts of a transfer's time, with colour and hatching.
PHASES = {
    "prepare": (PALETTE[4], ""),
    "transfer": (PALETTE[0], ""),
    "verify": (PALETTE[2], "///"),
    "finalise": (PALETTE[3], "..."),
    "the tool tells no parts": ("#BBBBBB", ""),
    "between transfers": ("#FFFFFF", "xxx"),
}

Rows = list[dict[str, Any]]


def _by_run(sheet: Sheet, observations: Iterable[Observation]) -> dict[str, Rows]:
    """The transfers of runs, in the order in which they were begun."""
    found: dict[str, Rows] = {one.run_id: [] for one in observations}
    transfers = sheet.results["transfer"].filter(pl.col("run_id").is_in(list(found)))
    for row in transfers.sort("run_id", "number").iter_rows(named=True):
        found[row["run_id"]].append(row)
    return found


def _is_good(row: Mapping[str, Any]) -> bool:
    return Status(row["status"]).is_success


def _began_ns(rows: Rows) -> int | None:
    """When the first transfer of a run began."""
    return min((row["started_ns"] for row in rows if row["started_ns"] is not None), default=None)


def _time_unit(end_s: float) -> tuple[float, str]:
    return (3600.0, "h") if end_s > 2 * 3600 else (60.0, "min") if end_s > 180 else (1.0, "s")


# --- Over time --------------------------------------------------------------------------------------------


def _hourly_area(sheet: Sheet) -> str:
    chosen = [one.run_id for one in sheet.observations]
    samples = sheet.results["sample"].filter(pl.col("run_id").is_in(chosen) & pl.col("bytes_moved").is_not_null())
    if samples.is_empty():
        return "there are no samples"
    panels = sheet.panels()
    axes = sheet.axes(len(panels), share_y=True)
    largest = 0.0
    names = sorted(samples["subject"].unique().to_list(), key=lambda name: sheet.order("source", name))
    bin_s = 0.0
    with_samples = set(samples["run_id"].unique().to_list())
    for ax, (title, inside) in zip(axes, panels, strict=True):
        sheet.name_panel(ax, title)
        # One run: those of other blocks are other hours.
        shown = next((one for one in inside if one.run_id in with_samples), None)
        if shown is None:
            ax.text(0.5, 0.5, "no samples", transform=ax.transAxes, ha="center", color=GREY)
            continue
        of_run = samples.filter(pl.col("run_id") == shown.run_id)
        end_s = float(of_run["t_s"].max())  # type: ignore[arg-type]
        longest_s = float(of_run["interval_s"].max())  # type: ignore[arg-type]
        bin_s = 3600.0 if end_s > 6 * 3600 else max(end_s / 48, longest_s, 1e-9)
        bins = np.arange(max(1, round(end_s / bin_s + 0.499))) * bin_s
        unit_s, unit = _time_unit(end_s)
        base = np.zeros(len(bins))
        edges = np.append(bins, bins[-1] + bin_s) / unit_s
        for index, name in enumerate(names):
            heights = np.zeros(len(bins))
            of_name = of_run.filter(pl.col("subject") == name)
            for t_s, interval_s, moved in of_name.select("t_s", "interval_s", "bytes_moved").iter_rows():
                _spread(heights, bin_s, t_s - interval_s, t_s, moved * 8 / bin_s / 1e6)
            for start, height in zip(bins, heights, strict=True):
                sheet.add(panel=title, run_id=shown.run_id, series=name, start_s=float(start), mbit_per_s=float(height))
            colour = PALETTE[index % len(PALETTE)]
            ax.stairs(base + heights, edges, baseline=base, fill=True, color=colour, alpha=0.75)
            ax.stairs(base + heights, edges, baseline=base, color="white", linewidth=0.4)
            sheet.handles.setdefault(name, Patch(facecolor=colour, alpha=0.75))
            base = base + heights
        largest = max(largest, float(base.max()))
        if shown.capacity_bits_per_s:
            largest = max(largest, shown.capacity_bits_per_s / 1e6)
            line = ax.axhline(shown.capacity_bits_per_s / 1e6, color=BOUND_COLOUR, linewidth=0.9)
            sheet.handles.setdefault("capacity of the path (payload)", line)
        ax.set_xlim(0, edges[-1])
        ax.set_xlabel(f"since the beginning ({unit})")
        sheet.lines(ax)
    sheet.label_left(axes, "sent (Mb/s)")
    sheet.from_zero(axes, largest)
    sheet.notes.append(
        f"Bytes that interfaces sent, as means over {seconds_text(bin_s)}, stacked. Headers are in them, and what "
        "found a queue full and was sent again: they may be above what the path carries. One run in each panel: the "
        "first that has samples."
    )
    return "" if sheet.rows else "there are no samples"


def _cumulative(sheet: Sheet) -> str:
    by_run = _by_run(sheet, sheet.observations)
    most_bytes = 0.0
    curves: dict[str, list[tuple[float, float]]] = {}
    for one in sheet.observations:
        rows = by_run[one.run_id]
        began = _began_ns(rows)
        if began is None:
            continue
        done = sorted(
            ((row["closed_ns"] - began) / 1e9, row["bytes_verified"] or row["bytes_moved"] or 0)
            for row in rows
            if _is_good(row) and row["closed_ns"] is not None
        )
        sums = np.cumsum([size for _, size in done])
        curves[one.run_id] = [(0.0, 0.0), *((at, float(sum_)) for (at, _), sum_ in zip(done, sums, strict=True))]
        most_bytes = max(most_bytes, curves[one.run_id][-1][1])
    if most_bytes <= 0:
        return "no transfer succeeded"
    scale, unit = next((1 / size, name) for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1, "B"))
                       if most_bytes >= size)  # fmt: skip
    panels = sheet.panels()
    axes = sheet.axes(len(panels), share_x=True)
    end_s = max(curve[-1][0] for curve in curves.values())
    unit_s, unit_of_time = _time_unit(end_s)
    names = sheet.series_names()
    for ax, (title, inside) in zip(axes, panels, strict=True):
        for name in names:
            of_name = [one for one in inside if sheet.series_of(one) == name and len(curves.get(one.run_id, ())) > 1]
            for one in of_name:
                colour, marker = sheet.style(sheet.tool_or(name, of_name))
                curve = curves[one.run_id]
                (line,) = ax.step([at / unit_s for at, _ in curve], [size * scale for _, size in curve], where="post",
                                  color=colour, linewidth=1.0, alpha=0.8, marker=marker, ms=3,
                                  markevery=(len(curve) - 1, len(curve)))  # fmt: skip
                sheet.handles.setdefault(name, line)
                for at, size in curve:
                    sheet.add(panel=title, series=name, run_id=one.run_id, block=one.block, t_s=at, bytes_verified=size)
        plans: list[tuple[str, float | None, Any]] = [
            (f"{text} ({value:g} Mb/s)", value * 1e6, (0, (1, 2))) for text, value in sheet.spec.lines.items()
        ]
        plans.append(("capacity of the path (payload)", typical([one.capacity_bits_per_s for one in inside]), "-"))
        for text, rate, dashes in plans:
            if rate is not None:
                ends = [0, end_s / unit_s], [0, rate / 8 * end_s * scale]
                (line,) = ax.plot(*ends, color=BOUND_COLOUR, linewidth=0.9, linestyle=dashes, zorder=1)
                sheet.handles[text] = line
        ax.set_xlim(0, end_s / unit_s * 1.02)
        ax.set_xlabel(f"since the beginning ({unit_of_time})")
        sheet.name_panel(ax, title)
    rates = [rate for _, rate in sheet.spec.lines.items()]
    capacities = [one.capacity_bits_per_s / 1e6 for one in sheet.observations if one.capacity_bits_per_s]
    planned = max([*rates, *capacities], default=0.0) * 1e6 / 8 * end_s
    for ax in axes:
        ax.set_ylim(0, max(most_bytes, min(planned, 4 * most_bytes)) * scale * 1.05)
        ax.yaxis.set_major_locator(MaxNLocator(6))
    sheet.label_left(axes, f"verified at the target ({unit})")
    sheet.notes.append("A line for each run: bytes of transfers that were complete and verified, at the time of their "
                       "end. Straight lines are plans at a steady rate.")  # fmt: skip
    return ""


def _activity(sheet: Sheet) -> str:
    by_run = _by_run(sheet, sheet.observations)
    panels = sheet.panels()
    axes = sheet.axes(len(panels), 1.7, share_y=False)
    queued_in_all = 0.0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        sheet.name_panel(ax, title)
        shown = next((one for one in inside if _began_ns(by_run[one.run_id]) is not None), None)
        if shown is None:
            ax.text(0.5, 0.5, "nothing began", transform=ax.transAxes, ha="center", color=GREY)
            continue
        rows = [row for row in by_run[shown.run_id] if row["started_ns"] is not None and row["closed_ns"] is not None]
        began = min(min(row["started_ns"], row["queued_ns"] or row["started_ns"]) for row in rows)
        unit_s, unit = _time_unit((max(row["closed_ns"] for row in rows) - began) / 1e9)
        active = _levels([(row["started_ns"] - began, row["closed_ns"] - began) for row in rows])
        queued = _levels([(row["queued_ns"] - began, row["started_ns"] - began) for row in rows
                          if row["queued_ns"] is not None and row["queued_ns"] < row["started_ns"]])  # fmt: skip
        failures = [(row["closed_ns"] - began) / 1e9 for row in rows if not _is_good(row)]
        for name, counts, colour, dashes in (
            ("active", active, PALETTE[0], "-"),
            ("queued", queued, PALETTE[4], (0, (3, 1.5))),
        ):
            if counts:
                (line,) = ax.step([at / unit_s for at, _ in counts], [count for _, count in counts], where="post",
                                  color=colour, linestyle=dashes, linewidth=1.1)  # fmt: skip
                sheet.handles.setdefault(name, line)
            for at, count in counts:
                sheet.add(panel=title, run_id=shown.run_id, what=name, t_s=at, count=count)
        queued_in_all += sum((row["started_ns"] - row["queued_ns"]) / 1e9 for row in rows if row["queued_ns"])
        if failures:
            (line,) = ax.plot([at / unit_s for at in failures], [0] * len(failures), "X", color=PALETTE[1], ms=5,
                              clip_on=False, linewidth=0)  # fmt: skip
            sheet.handles.setdefault("failed", line)
        for at in failures:
            sheet.add(panel=title, run_id=shown.run_id, what="failed", t_s=at, count=1)
        ax.set_ylim(0, max(count for _, count in [*active, *queued]) * 1.15)
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.set_xlim(left=0)
        ax.set_xlabel(f"since the beginning ({unit})")
    sheet.label_left(axes, "transfers")
    sheet.notes.append("Transfers that were under way, and that waited to begin. One run in each panel: the first. "
                       f"All together waited {seconds_text(queued_in_all)}.")  # fmt: skip
    return "" if sheet.rows else "no transfer began"


def _levels(spans_ns: Sequence[tuple[int, int]]) -> list[tuple[float, int]]:
    """How many of the spans are open from each moment on: (seconds, count)."""
    changes: Counter[int] = Counter()
    for begin, end in spans_ns:
        changes[begin] += 1
        changes[end] -= 1
    count, found = 0, []
    for at in sorted(changes):
        count += changes[at]
        found.append((at / 1e9, count))
    return found


# --- Distributions of single transfers --------------------------------------------------------------------------


def _singles(sheet: Sheet, inside: Sequence[Observation]) -> dict[str, tuple[list[float], int]] | None:
    """Series → the figures of its transfers in one panel, in the unit of the axis, and how many transfers there were.
    None where the response is no figure of single transfers."""
    column = _column(sheet)
    if column is None:
        return None
    scale, _ = sheet.unit
    by_run = _by_run(sheet, inside)
    found: dict[str, tuple[list[float], int]] = {}
    for one in inside:
        values, count = found.get(sheet.series_of(one), ([], 0))
        rows = by_run[one.run_id]
        values += [row[column] * scale for row in rows if row[column] is not None and _is_good(row)]
        found[sheet.series_of(one)] = (values, count + len(rows))
    return found


def _ecdf(sheet: Sheet) -> str:
    panels = sheet.panels()
    axes = sheet.axes(len(panels))
    total = missing = 0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        groups = _singles(sheet, inside)
        if groups is None:
            return f"{sheet.response} is no figure of single transfers"
        for name in sheet.series_names():
            good, count = groups.get(name, ([], 0))
            missing += count - len(good)
            if not good:
                continue
            colour, marker = sheet.style(sheet.tool_or(name, [one for one in inside if sheet.series_of(one) == name]))
            values, shares = statistics.ecdf(good)
            # Transfers that failed never arrive: the curve ends below 1.
            part = len(good) / count
            total += len(good)
            (line,) = ax.step(
                [values[0], *values],
                [0.0, *(share * part for share in shares)],
                where="post",
                color=colour,
                marker=marker,
                ms=2.6,
                markevery=max(1, len(values) // 12),
            )
            sheet.handles.setdefault(name, line)
            for value, share in zip(values, shares, strict=True):
                sheet.add(panel=title, series=name, value=value, share=share * part)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel(sheet.label + (", logarithmic" if sheet.spec.log_x else ""))
        sheet.name_panel(ax, title)
        if sheet.spec.log_x:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(FuncFormatter(plain))
        else:
            ax.set_xlim(left=0)
    sheet.label_left(axes, "part of the transfers")
    sheet.notes.append(f"{total} transfers; {missing} without a figure, for which the curves end below 1.")
    return "" if sheet.rows else "no transfer has a figure"


def _histogram(sheet: Sheet) -> str:
    scale, _ = sheet.unit
    panels = sheet.panels()
    axes = sheet.axes(len(panels))
    largest = total = missing = 0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        groups = _singles(sheet, inside)
        if groups is None:
            return f"{sheet.response} is no figure of single transfers"
        most = max((value for values, _ in groups.values() for value in values), default=1.0)
        edges = np.linspace(0, most * 1.0001, HISTOGRAM_BINS + 1)
        for name in sheet.series_names():
            values, count = groups.get(name, ([], 0))
            total += len(values)
            missing += count - len(values)
            if not values:
                continue
            colour, marker = sheet.style(sheet.tool_or(name, [one for one in inside if sheet.series_of(one) == name]))
            counts, _ = np.histogram(values, edges)
            ax.stairs(counts, edges, fill=True, color=colour, alpha=0.12)
            ax.stairs(counts, edges, color=colour, linewidth=1.3)
            at = int(np.argmax(counts))
            ax.plot((edges[at] + edges[at + 1]) / 2, counts[at], marker, color=colour, ms=4)
            sheet.handles.setdefault(name, Line2D([], [], color=colour, marker=marker, ms=4))
            largest = max(largest, int(counts.max()))
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
                sheet.add(panel=title, series=name, low=float(low), high=float(high), transfers=int(count))
        capacity = typical([one.capacity_bits_per_s for one in inside])
        if sheet.info.unit == "Mb/s" and capacity is not None and capacity * scale < 3 * edges[-1]:
            line = ax.axvline(capacity * scale, color=BOUND_COLOUR, linewidth=0.9)
            sheet.handles.setdefault("capacity of the path (payload)", line)
        ax.set_xlim(left=0)
        ax.set_xlabel(sheet.label)
        sheet.name_panel(ax, title)
    if not total:
        return "no transfer has a figure"
    for ax in axes:
        ax.set_ylim(0, largest * 1.1)
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    sheet.label_left(axes, "transfers")
    sheet.notes.append(
        f"{total} transfers of all blocks in {HISTOGRAM_BINS} classes for each panel; {missing} without a figure."
    )
    return ""


def _column(sheet: Sheet) -> str | None:
    """The column of `transfer` that has the response."""
    column = {"wall_s": "total_s"}.get(sheet.response, sheet.response)
    return column if column in sheet.results["transfer"].columns else None


# --- Shares ---------------------------------------------------------------------------------------------------


def phase_seconds(rows: Rows, lanes: int | None = None) -> dict[str, float]:
    """The time of the transfers of one run that succeeded, by phase; and between them, where they followed one another.

    `lanes`: how many can be under way at once; by default as many as were.
    """
    found = dict.fromkeys(PHASES, 0.0)
    timed = [row for row in rows if row["started_ns"] is not None and row["closed_ns"] is not None]
    for row in timed:
        if not _is_good(row):
            continue
        total, prepare = row["total_s"], row["prepare_s"]
        if prepare is None or row["last_byte_ns"] is None:
            found["the tool tells no parts"] += total
            continue
        verify = row["verify_s"] or 0.0
        found["prepare"] += prepare
        found["transfer"] += row["transfer_s"]
        found["verify"] += verify
        found["finalise"] += max(0.0, total - prepare - row["transfer_s"] - verify)
    most = max((count for _, count in _levels([(row["started_ns"], row["closed_ns"]) for row in timed])), default=0)
    lanes = most if lanes is None else lanes
    if len(timed) > lanes:
        wall_s = (max(row["closed_ns"] for row in timed) - min(row["started_ns"] for row in timed)) / 1e9
        found["between transfers"] = max(0.0, lanes * wall_s - sum(row["total_s"] for row in timed))
    return found


def _phases(sheet: Sheet) -> str:
    by_run = _by_run(sheet, sheet.observations)
    bars: list[tuple[str, dict[str, float], int, int]] = []
    for name in sheet.series_names():
        of_name = [one for one in sheet.observations if sheet.series_of(one) == name]
        sums = dict.fromkeys(PHASES, 0.0)
        good = 0
        for one in of_name:
            rows = by_run[one.run_id]
            good += sum(map(_is_good, rows))
            for phase, seconds in phase_seconds(rows).items():
                sums[phase] += seconds
        if good and sum(sums.values()) > 0:
            bars.append((name, sums, good, len(of_name)))
    if not bars:
        return "no transfer succeeded"
    (ax,) = sheet.axes(1, max(1.5, 0.27 * len(bars) + 0.8))
    for position, (name, sums, good, runs) in enumerate(bars):
        whole, left = sum(sums.values()), 0.0
        for phase, (colour, hatch) in PHASES.items():
            share = 100 * sums[phase] / whole
            if share > 0:
                ax.barh(position, share, left=left, height=0.68, color=colour, hatch=hatch, edgecolor="#555555",
                        linewidth=0.4)  # fmt: skip
                sheet.handles.setdefault(phase, Patch(facecolor=colour, hatch=hatch, edgecolor="#555555"))
            left += share
            sheet.add(series=name, phase=phase, share=share / 100, s_per_transfer=sums[phase] / good, transfers=good,
                      runs=runs)  # fmt: skip
        ax.annotate(f"n = {good}, {seconds_text(whole / good)} each", (1, position), (4, 0),
                    xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=7, va="center",
                    color=GREY, annotation_clip=False)  # fmt: skip
    _bar_axis(ax, [name for name, *_ in bars])
    ax.set_xlim(0, 100)
    ax.set_xlabel("part of the time (%)")
    sheet.notes.append(
        "Times of all transfers that succeeded, added up; n of these. Between transfers: time in which fewer were "
        "under way than at the most. Phases are as the tools tell them."
    )
    sheet.handles = {phase: sheet.handles[phase] for phase in PHASES if phase in sheet.handles}
    return ""


def _errors(sheet: Sheet) -> str:
    by_run = _by_run(sheet, sheet.observations)
    causes: Counter[tuple[str, str]] = Counter()
    transfers = 0
    for one in sheet.observations:
        for row in by_run[one.run_id]:
            transfers += 1
            if not _is_good(row):
                causes[row["status"], cause_of(row["error"])] += 1
        if not by_run[one.run_id] and not one.status.is_success:
            transfers += 1
            causes[str(one.status), cause_of(one.reason)] += 1
    if not causes:
        return f"every one of {transfers} transfers succeeded"
    failed = sum(causes.values())
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    shown = ordered[:CAUSES_MAX]
    rest = failed - sum(count for _, count in shown)
    if rest:
        shown.append((("", f"{len(ordered) - CAUSES_MAX} other causes"), rest))
    statuses = [str(status) for status in Status]
    (ax,) = sheet.axes(1, max(1.5, 0.27 * len(shown) + 0.7))
    so_far = 0
    for position, ((status, cause), count) in enumerate(shown):
        so_far += count
        colour = PALETTE[statuses.index(status) % len(PALETTE)] if status else "#BBBBBB"
        bar = ax.barh(position, count, height=0.68, color=colour, alpha=0.8)
        if status:
            sheet.handles.setdefault(status, bar[0])
        ax.annotate(f"{count}, {100 * so_far / failed:.3g} % so far", (count, position), (4, 0),
                    textcoords="offset points", fontsize=7, va="center")  # fmt: skip
        sheet.add(status=status, cause=cause, transfers=count, share_so_far=so_far / failed)
    _bar_axis(ax, [cause for (_, cause), _ in shown])
    ax.set_xlim(0, max(count for _, count in shown) * 1.25)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("transfers without success")
    sheet.notes.append(f"{failed} of {transfers} transfers, by cause, the most frequent first, with the part of all "
                       "failures up to each.")  # fmt: skip
    return ""


def cause_of(error: str) -> str:
    """What failures with the same cause share: ports, sizes and names of runs are no part of it."""
    line = " ".join(error.split()) or "no reason given"
    line = re.sub(r"\b(?:0x)?[0-9a-fA-F]*\d[0-9a-fA-F]{3,}\b|\b[0-9A-HJKMNP-TV-Z]{26}\b|\b\d{4,}\b", "…", line)
    return line if len(line) <= CAUSE_LETTERS_MAX else line[: CAUSE_LETTERS_MAX - 1] + "…"


def _sources(sheet: Sheet) -> str:
    by_run = _by_run(sheet, sheet.observations)
    shares: dict[str, Rows] = {}
    for row in sheet.results["source_share"].iter_rows(named=True):
        shares.setdefault(row["transfer_id"], []).append(row)
    bars: list[tuple[str, dict[str, float], float | None, int]] = []
    silent = []
    for name in sheet.series_names():
        sums: dict[str, float] = {}
        wasted, size, count, is_told = 0.0, 0.0, 0, True
        for one in sheet.observations:
            if sheet.series_of(one) != name:
                continue
            for row in by_run[one.run_id]:
                if not _is_good(row) or row["transfer_id"] not in shares or not row["file_size_bytes"]:
                    continue
                count += 1
                size += row["file_size_bytes"]
                for share in shares[row["transfer_id"]]:
                    site = _site_of(sheet, one, row["sources"], share["source"])
                    sums[site] = sums.get(site, 0.0) + share["bytes_moved"]
                    wasted += share["wasted_bytes"] or 0
                    is_told &= share["wasted_bytes"] is not None
        if count:
            parts = {site: sent / size for site, sent in sums.items()}
            bars.append((name, parts, wasted / size if is_told else None, count))
        else:
            silent.append(name)
    if not bars:
        return "no tool tells what each source gave"
    (ax,) = sheet.axes(1, max(1.5, 0.27 * len(bars) + 0.8))
    sites = sorted({site for _, parts, *_ in bars for site in parts}, key=lambda site: sheet.order("source", site))
    most = 1.0
    for position, (name, parts, waste, count) in enumerate(bars):
        left = 0.0
        for index, site in enumerate(sites):
            part = parts.get(site, 0.0)
            colour = PALETTE[index % len(PALETTE)]
            bar = ax.barh(position, 100 * part, left=100 * left, height=0.68, color=colour, alpha=0.75)
            if part > 0.06:
                ax.text(100 * (left + part / 2), position, f"{100 * part:.0f}", ha="center", va="center", fontsize=7)
            sheet.handles.setdefault(site, bar[0])
            left += part
            sheet.add(series=name, source=site, part=part, transfers=count)
        if waste:
            bar = ax.barh(position, 100 * waste, left=100 * left, height=0.68, color="white", hatch="xxx",
                          edgecolor=PALETTE[1], linewidth=0.6)  # fmt: skip
            sheet.handles["received twice or thrown away"] = bar[0]
        sheet.add(series=name, source="wasted", part=waste, transfers=count)
        said = "waste not told" if waste is None else f"waste {100 * waste:.2g} %"
        ax.annotate(f"n = {count}, {said}", (1, position), (4, 0), xycoords=("axes fraction", "data"),
                    textcoords="offset points", fontsize=7, va="center", color=GREY, annotation_clip=False)  # fmt: skip
        most = max(most, left + (waste or 0.0))
    ax.axvline(100, color=BOUND_COLOUR, linewidth=0.9)
    _bar_axis(ax, [name for name, *_ in bars])
    ax.set_xlim(0, 100 * most * 1.02)
    ax.set_xlabel("part of the bytes of the files (%)")
    sheet.notes.append("Bytes of the file by the source that they came from, as the tool tells it, over all transfers "
                       "that succeeded (n). Beyond the line: bytes that were received for nothing.")  # fmt: skip
    if silent:
        sheet.notes.append(f"Nothing is told by: {'; '.join(silent)}.")
    return ""


def _site_of(sheet: Sheet, one: Observation, urls: Sequence[str], source: str) -> str:
    """The site of a source, by its place among the URLs that the tool was given; else its host."""
    hosts = [urlsplit(url).netloc for url in urls]
    host = urlsplit(source).netloc or source
    sites = sheet.scenario.work.source_sites
    if "source_site" in one.levels or not isinstance(sites, list):
        return one.source_site or host
    index = list(urls).index(source) if source in urls else hosts.index(host) if hosts.count(host) == 1 else -1
    return sites[index] if 0 <= index < len(sites) else host


def _bar_axis(ax: Axes, labels: list[str]) -> None:
    """Horizontal bars with their names, the first at the top."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.grid(True, axis="x")
    ax.grid(False, axis="y")


def _spread(heights: statistics.Floats, bin_s: float, begin_s: float, end_s: float, height: float) -> None:
    """Adds what happened between two times to the bins that they touch, in proportion."""
    length = max(end_s - begin_s, 1e-12)
    for index in range(max(0, int(begin_s / bin_s)), min(len(heights), int(end_s / bin_s) + 1)):
        within = min(end_s, (index + 1) * bin_s) - max(begin_s, index * bin_s)
        heights[index] += height * max(0.0, within) / length


KINDS: dict[str, Callable[[Sheet], str]] = {
    "hourly_area": _hourly_area,
    "cumulative": _cumulative,
    "activity": _activity,
    "ecdf": _ecdf,
    "histogram": _histogram,
    "phases": _phases,
    "errors": _errors,
    "sources": _sources,
}
