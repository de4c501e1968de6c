"""The kinds of figures, a function each. It draws on a sheet, and returns why it could not, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gridlane_lab import statistics
from gridlane_lab.analysis import Observation, select, sorted_levels, varying_factors
from gridlane_lab.claims import pair_by_block
from gridlane_lab.matrix import level_text, matches
from gridlane_lab.record import Status
from gridlane_lab.scenario import Levels
from gridlane_lab.sheet import (
    BOUND_COLOUR,
    FAR_ABOVE,
    GREY,
    PALETTE,
    PANELS_MAX,
    Sheet,
    axis_label,
    label_left,
    plain,
)
from gridlane_lab.units import seconds_text


def _box(sheet: Sheet) -> str:
    scale, _ = sheet.unit
    factors = _list(sheet.spec.x) or ["tool"]
    sheet.spec = sheet.spec.model_copy(update={"series": sheet.spec.series or factors})
    panels = sheet.panels()
    most_names = 0
    for _, inside in panels:
        most_names = max(most_names, len({sheet.series_of(one) for one in inside}))
    # Names of tools are long: they stand at an angle, and few panels are put in a row.
    axes = sheet.axes(len(panels), 2.9)
    largest = 0.0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        names = [name for name in sheet.series_names() if any(sheet.series_of(one) == name for one in inside)]
        for position, name in enumerate(names):
            of_name = [one for one in inside if sheet.series_of(one) == name]
            colour, marker = sheet.style(str(of_name[0].levels["tool"]) if factors[0] == "tool" else name)
            good = [(one, value * scale) for one in of_name if (value := one.value(sheet.response)) is not None]
            values = [value for _, value in good]
            largest = max([largest, *values])
            for one, value in good:
                shift = 0.32 * ((one.block * 0.618034) % 1 - 0.5)
                face = "white" if one.status is Status.UNVERIFIED else colour
                ax.plot(position + shift, value, marker, color=colour, mfc=face, ms=3.4, alpha=0.8, mew=0.8, zorder=3)
                sheet.add(panel=title, series=name, block=one.block, value=value, status=str(one.status))
            if len(values) >= statistics.CLAIM_BLOCKS_MIN:
                ax.boxplot(
                    [values],
                    positions=[position],
                    widths=0.56,
                    showfliers=False,
                    whis=(0, 100),
                    patch_artist=True,
                    boxprops={"facecolor": colour, "alpha": 0.18, "edgecolor": colour, "linewidth": 0.9},
                    medianprops={"color": colour, "linewidth": 1.8},
                    whiskerprops={"color": colour, "linewidth": 0.9},
                    capprops={"color": colour, "linewidth": 0.9},
                )
            elif values:
                ax.hlines(median(values), position - 0.28, position + 0.28, color=colour, linewidth=1.8)
            _missing(ax, position, of_name, sheet.response)
            largest = max(largest, _limits(sheet, ax, position, of_name, scale))
        ax.set_xlim(-0.6, len(names) - 0.4)
        ax.set_xticks(
            range(len(names)), names, rotation=35 if most_names > 2 else 0, ha="right" if most_names > 2 else "center"
        )
        ax.grid(False, axis="x")
        ax.set_title(title)
        sheet.lines(ax)
    label_left(axes, sheet.label)
    sheet.from_zero(axes, max([largest, *sheet.spec.lines.values()]))
    sheet.counts()
    sheet.notes.append("Boxes are quartiles with the median, whiskers extremes, points single runs.")
    return "" if sheet.rows else "no run has a figure"


def _limits(sheet: Sheet, ax: Axes, position: float, of_name: list[Observation], scale: float) -> float:
    """Capacity and bound of one box, as short lines; the height that they need."""
    highest = 0.0
    capacity = _one([one.capacity_bits_per_s for one in of_name])
    rates = [value for one in sheet.observations if (value := one.value(sheet.response)) is not None]
    is_rate = sheet.info.unit == "Mb/s"
    if is_rate and capacity is not None and capacity > FAR_ABOVE * max(rates, default=0.0):
        capacity = None
        note = "The capacity of the paths is far above the axis: set-up and slow start decide."
        sheet.notes += [] if note in sheet.notes else [note]
    marks: list[tuple[str, float | None, Any]] = []
    if is_rate:
        marks = [("capacity of the paths (payload)", None if capacity is None else capacity * scale, "-")]
        bounds = [one.bound_s and one.value("wall_s") and _bytes(one) * 8 / one.bound_s * scale for one in of_name]
        if sheet.response == "total_rate_bits_per_s":
            marks.append(("bound, set-up and slow start included", _one(bounds), (0, (4, 2))))
    elif sheet.response in ("wall_s", "transfer_s"):
        marks = [("bound", _one([one.bound_s for one in of_name]), (0, (4, 2)))]
    elif sheet.response == "bound_fraction":
        marks = [("bound", 100.0, (0, (4, 2)))]
    for text, value, style in marks:
        if value is not None:
            highest = max(highest, value)
            sheet.handles[text] = ax.hlines(
                value, position - 0.42, position + 0.42, color=BOUND_COLOUR, linewidth=0.9, linestyle=style, zorder=2
            )
    return highest


def _missing(ax: Axes, position: float, of_name: list[Observation], response: str) -> None:
    """Runs without a figure, counted at the foot of their place."""
    missing: dict[str, int] = {}
    for one in of_name:
        if one.value(response) is None:
            missing[str(one.status)] = missing.get(str(one.status), 0) + 1
    if missing:
        text = "\n".join(f"{count} {status}" for status, count in missing.items())
        ax.annotate(
            text, (position, 0), (0, 4), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=6.5, color="#A00000", rotation=90,
        )  # fmt: skip


def _heat_map(sheet: Sheet) -> str:
    scale, unit = sheet.unit
    x, y = sheet.spec.x or "target", sheet.spec.y or "source"
    panels = sheet.panels()
    columns, rows = sheet.levels_of(x), sheet.levels_of(y)
    axes = sheet.axes(len(panels), max(2.2, 0.42 * len(rows) + 1.1))
    grids = []
    for _, inside in panels:
        grid = np.full((len(rows), len(columns)), np.nan)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                values = [
                    value
                    for one in inside
                    if one.level(y) == row
                    and one.level(x) == column
                    and (value := one.value(sheet.response)) is not None
                ]
                if values:
                    grid[i, j] = median(values) * scale
        grids.append(grid)
    largest = max((float(np.nanmax(grid)) for grid in grids if np.isfinite(grid).any()), default=0.0)
    if largest <= 0:
        return "no run has a figure"
    image = None
    for ax, (title, inside), grid in zip(axes, panels, grids, strict=True):
        # From zero: half the colour is half the rate.
        image = ax.imshow(grid, cmap="cividis", vmin=0, vmax=largest, aspect="auto")
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                here = [one for one in inside if one.level(y) == row and one.level(x) == column]
                failed = sum(one.value(sheet.response) is None for one in here)
                value = grid[i, j]
                if not here:
                    text, colour = "", "black"
                elif np.isnan(value):
                    text, colour = "failed", "#A00000"
                else:
                    text = f"{value:.3g}" + (f"\n{failed} failed" if failed else "")
                    colour = "white" if value < 0.55 * largest else "black"
                ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour)
                if here:
                    median_value = None if np.isnan(value) else float(value)
                    sheet.add(panel=title, y=row, x=column, median=median_value, runs=len(here), failed=failed)
        ax.set_xticks(range(len(columns)), [level_text(c) for c in columns], rotation=35, ha="right")
        ax.set_yticks(range(len(rows)), [level_text(r) for r in rows])
        ax.set_xlabel(axis_label(x))
        ax.set_title(title)
        ax.tick_params(length=0)
        ax.grid(False)
        for spine in ax.spines.values():
            spine.set_visible(False)
    label_left(axes, axis_label(y))
    if image is not None:
        sheet.canvas.colorbar(image, ax=axes, label=f"median {sheet.info.title} ({unit})", shrink=0.9)
    sheet.counts()
    sheet.notes.append("Colours begin at zero; empty cells were not run.")
    return ""


def _curve(sheet: Sheet, default_x: str, *, log_x: bool, is_time: bool) -> str:
    scale, _ = sheet.unit
    x = sheet.spec.x or default_x
    is_log = log_x if sheet.spec.log_x is None else sheet.spec.log_x
    x_scale = 100.0 if x == "fraction" else 1.0
    panels = sheet.panels()
    axes = sheet.axes(len(panels))
    largest = 0.0
    has_hollow = False
    for ax, (title, inside) in zip(axes, panels, strict=True):
        curves: dict[str, dict[float, float]] = {}
        names = sheet.series_names()
        for name in names:
            of_name = [one for one in inside if sheet.series_of(one) == name]
            if not of_name:
                continue
            colour, marker = sheet.style(_tool_or(name, sheet, of_name))
            points: list[tuple[float, float, float, float]] = []
            hollow: list[tuple[float, float]] = []
            for level in sorted_levels(one.level(x) for one in of_name):
                here = [one for one in of_name if one.level(x) == level]
                values = sorted(v * scale for one in here if (v := one.value(sheet.response)) is not None)
                at = float(level) * x_scale
                if values:
                    q1, middle, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
                    points.append((at, q1, middle, q3))
                    largest = max(largest, values[-1])
                    if len(values) < statistics.CLAIM_BLOCKS_MIN:
                        ax.plot([at] * len(values), values, marker, color=colour, ms=2.6, alpha=0.5, mew=0)
                    sheet.add(panel=title, series=name, x=at, n=len(values), q1=q1, median=middle, q3=q3)
                cut = [one for one in here if one.status is Status.CUT_OFF and is_time]
                for one in cut:
                    has_hollow = True
                    shown = one.extrapolated_s
                    if shown is None:
                        shown = one.value("wall_s") or sheet.scenario.limits.transfer_s
                        ax.annotate(
                            "", (at, shown * 1.35), (at, shown), arrowprops={"arrowstyle": "->", "color": colour}
                        )
                    largest = max(largest, shown * 1.1)
                    hollow.append((at, shown))
                    ax.plot(at, shown, marker, mfc="white", mec=colour, ms=5.5, mew=1.1, zorder=4)
                    sheet.add(panel=title, series=name, x=at, n=0, extrapolated=shown)
            if points:
                positions, lows, medians, highs = (list(column) for column in zip(*points, strict=True))
                curves[name] = dict(zip(positions, medians, strict=True))
                ax.fill_between(positions, lows, highs, color=colour, alpha=0.18, linewidth=0)
                (line,) = ax.plot(positions, medians, marker=marker, color=colour, ms=4.5)
                sheet.handles.setdefault(name, line)
            if hollow:
                last = [(points[-1][0], points[-1][2])] if points else []
                ends = last + [(x, median([t for at, t in hollow if at == x])) for x in sorted({x for x, _ in hollow})]
                ax.plot(
                    [x for x, _ in ends],
                    [t for _, t in ends],
                    color=colour,
                    linewidth=1,
                    linestyle=(0, (2, 2)),
                    zorder=1,
                )
        largest = max(largest, _bound_curve(sheet, ax, inside, x, x_scale, scale))
        if sheet.spec.kind == "time_fraction":
            _break_even(sheet, ax, title, inside, curves)
        _x_axis(ax, sorted({float(one.level(x)) * x_scale for one in inside}), is_log)
        ax.set_xlabel(axis_label(x))
        ax.set_title(title)
        sheet.lines(ax)
    label_left(axes, sheet.label)
    sheet.from_zero(axes, max([largest, *sheet.spec.lines.values()]))
    sheet.counts()
    sheet.notes.append("Lines are medians, bands quartiles.")
    if is_log:
        sheet.notes.append("The horizontal axis is logarithmic.")
    if has_hollow:
        sheet.notes.append("Hollow marks: cut off by the time limit, at the time extrapolated from what was done.")
    return "" if sheet.rows else "no run has a figure"


def _bound_curve(sheet: Sheet, ax: Axes, inside: list[Observation], x: str, x_scale: float, scale: float) -> float:
    """The bound and the capacity against x, where they are the same for all series."""
    highest = 0.0
    curves: list[tuple[str, Callable[[Observation], float | None], Any]] = []
    if sheet.info.unit in ("Mb/s",):
        curves.append(("capacity of the path (payload)", lambda one: _scaled(one.capacity_bits_per_s, scale), "-"))
        curves.append(
            (
                "bound",
                lambda one: _scaled(_ratio(_bytes(one) * 8, one.bound_s), scale) if _bytes(one) else None,
                (0, (4, 2)),
            )
        )
    elif sheet.response in ("wall_s", "transfer_s"):
        curves.append(("bound", lambda one: one.bound_s, (0, (4, 2))))
    for text, of, style in curves:
        points: dict[float, list[float]] = {}
        for one in inside:
            value = of(one)
            if value is not None:
                points.setdefault(float(one.level(x)) * x_scale, []).append(value)
        # The largest: no series can do better.
        best = max if sheet.info.unit == "Mb/s" else min
        at = sorted(points)
        if at:
            values = [best(points[level]) for level in at]
            highest = max(highest, *values)
            (line,) = ax.plot(at, values, color=BOUND_COLOUR, linewidth=0.9, linestyle=style, zorder=1)
            sheet.handles.setdefault(text, line)
    return highest


def _break_even(
    sheet: Sheet, ax: Axes, title: str, inside: list[Observation], curves: dict[str, dict[float, float]]
) -> None:
    """Where a series crosses that of the baseline."""
    pattern = sheet.scenario.analysis.baseline
    own = {k: v for k, v in (pattern or {}).items() if k in sheet.series_factors()}
    base = next((sheet.series_of(one) for one in inside if own and matches(own, one.levels)), None)
    if base is None or base not in curves:
        return
    for name, curve in curves.items():
        shared = sorted(set(curve) & set(curves[base]))
        if name == base or len(shared) < 2:
            continue
        at = statistics.crossing(shared, [curve[x] for x in shared], [curves[base][x] for x in shared])
        if at is not None:
            colour, _ = sheet.style(_tool_or(name, sheet, [o for o in inside if sheet.series_of(o) == name]))
            line = ax.axvline(at, color=colour, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=1)
            sheet.handles.setdefault(f"break-even with {base}", line)
            ax.annotate(
                f"{at:.2g} %", (at, 1), (2, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                fontsize=7, color=colour, ha="left", va="top",
            )  # fmt: skip
            sheet.add(panel=title, series=name, break_even=at)


def _rate_rtt(sheet: Sheet) -> str:
    return _curve(sheet, _round_trip_factor(sheet), log_x=True, is_time=False)


def _time_rtt(sheet: Sheet) -> str:
    sheet.response = sheet.spec.response or "wall_s"
    return _curve(sheet, _round_trip_factor(sheet), log_x=True, is_time=True)


def _time_fraction(sheet: Sheet) -> str:
    sheet.response = sheet.spec.response or "wall_s"
    return _curve(sheet, "fraction", log_x=True, is_time=True)


def _hourly_area(sheet: Sheet) -> str:
    chosen = [one.run_id for one in sheet.observations]
    samples = sheet.results["sample"].filter(pl.col("run_id").is_in(chosen) & pl.col("bytes_moved").is_not_null())
    if samples.is_empty():
        return "there are no samples"
    panels = sheet.panels()
    axes = sheet.axes(len(panels), share_y=True)
    largest = 0.0
    drawn = False
    names = sorted(samples["subject"].unique().to_list())
    bin_s = 0.0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        # One run: those of other blocks are other hours.
        ids = sorted({one.run_id for one in inside} & set(samples["run_id"].unique().to_list()))
        if not ids:
            continue
        of_run = samples.filter(pl.col("run_id") == ids[0])
        end_s = float(of_run["t_s"].max())  # type: ignore[arg-type]
        longest_s = float(of_run["interval_s"].max())  # type: ignore[arg-type]
        bin_s = 3600.0 if end_s > 6 * 3600 else max(end_s / 48, longest_s, 1e-9)
        bins = np.arange(max(1, round(end_s / bin_s + 0.499))) * bin_s
        stacks = []
        for name in names:
            of_name = of_run.filter(pl.col("subject") == name)
            heights = np.zeros(len(bins))
            for t_s, interval_s, moved in of_name.select("t_s", "interval_s", "bytes_moved").iter_rows():
                _spread(heights, bin_s, t_s - interval_s, t_s, moved * 8 / bin_s / 1e6)
            stacks.append(heights)
            for start, height in zip(bins, heights, strict=True):
                sheet.add(panel=title, series=name, start_s=float(start), mbit_per_s=float(height))
        unit_s, unit = (3600.0, "h") if end_s > 2 * 3600 else (60.0, "min") if end_s > 180 else (1.0, "s")
        base = np.zeros(len(bins))
        edges = np.append(bins, bins[-1] + bin_s) / unit_s
        for index, (name, heights) in enumerate(zip(names, stacks, strict=True)):
            area = ax.stairs(
                base + heights, edges, baseline=base, fill=True, color=PALETTE[index % len(PALETTE)], alpha=0.75
            )
            sheet.handles.setdefault(name, area)
            base = base + heights
            drawn = True
        largest = max(largest, float(base.max()))
        capacity = _one([one.capacity_bits_per_s for one in inside])
        if capacity is not None:
            largest = max(largest, capacity / 1e6)
            line = ax.axhline(capacity / 1e6, color=BOUND_COLOUR, linewidth=0.9)
            sheet.handles.setdefault("capacity of the path (payload)", line)
        ax.set_xlim(0, edges[-1])
        ax.set_xlabel(f"since the beginning ({unit})")
        ax.set_title(title)
        sheet.lines(ax)
    label_left(axes, "rate (Mb/s)")
    sheet.from_zero(axes, largest)
    sheet.notes.append(f"Means over {seconds_text(bin_s)}, stacked. One run in each panel: the first that has samples.")
    return "" if drawn else "there are no samples"


def _ecdf(sheet: Sheet) -> str:
    scale, _ = sheet.unit
    column = {"wall_s": "total_s"}.get(sheet.response, sheet.response)
    transfers = sheet.results["transfer"]
    if column not in transfers.columns:
        return f"{sheet.response} is no figure of single transfers"
    by_run: dict[str, list[tuple[float | None, str]]] = {}
    for run_id, value, status in transfers.select("run_id", column, "status").iter_rows():
        by_run.setdefault(run_id, []).append((value, status))
    panels = sheet.panels()
    axes = sheet.axes(len(panels))
    total = missing = 0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        for name in sheet.series_names():
            of_name = [one for one in inside if sheet.series_of(one) == name]
            all_transfers = [transfer for one in of_name for transfer in by_run.get(one.run_id, [])]
            good = [value for value, status in all_transfers if value is not None and Status(status).is_success]
            if not all_transfers or not good:
                missing += len(all_transfers)
                continue
            colour, marker = sheet.style(_tool_or(name, sheet, of_name))
            values, shares = statistics.ecdf([value * scale for value in good])
            # Transfers that failed never arrive: the curve ends below 1.
            part = len(good) / len(all_transfers)
            total += len(good)
            missing += len(all_transfers) - len(good)
            (line,) = ax.step(
                [values[0], *values],
                [0.0, *(share * part for share in shares)],
                where="post",
                color=colour,
                marker=marker,
                ms=2.6,
            )
            sheet.handles.setdefault(name, line)
            for value, share in zip(values, shares, strict=True):
                sheet.add(panel=title, series=name, value=value, share=share * part)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel(sheet.label)
        ax.set_title(title)
        if sheet.spec.log_x:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(FuncFormatter(plain))
        else:
            ax.set_xlim(left=0)
    label_left(axes, "part of the transfers")
    sheet.notes.append(f"{total} transfers; {missing} without a figure, for which the curves end below 1.")
    return "" if sheet.rows else "no transfer has a figure"


def _forest(sheet: Sheet) -> str:
    baseline = sheet.scenario.analysis.baseline
    if not baseline:
        return "the scenario names no baseline"
    base = select(sheet.observations, baseline)
    keys = set(baseline)
    comparisons: dict[str, tuple[Levels, list[Observation]]] = {}
    others = [name for name in varying_factors(sheet.observations) if name not in keys]
    wanted = others if sheet.spec.series is None else [n for n in sheet.series_factors() if n not in keys]
    for one in sheet.observations:
        if matches(baseline, one.levels):
            continue
        variant = ", ".join(sheet.text(name, one.levels[name]) for name in keys)
        rest = ", ".join(sheet.text(name, one.levels[name]) for name in wanted)
        label = f"{variant}: {rest}" if rest else variant
        comparisons.setdefault(label, (one.levels, []))[1].append(one)
    rows = []
    for label, (levels, variants) in comparisons.items():
        first, second, failed = pair_by_block(variants, base, keys, sheet.response)
        usable = {block: value for block, value in first.items() if 0 < value < float("inf")}
        found = statistics.paired(
            usable, second, seed=sheet.scenario.analysis.bootstrap_seed, confidence=sheet.scenario.analysis.confidence
        )
        rows.append((label, levels, found, failed))
    rows.sort(key=lambda row: [sheet.order(name, row[1][name]) for name in [*wanted, *sorted(keys)]])
    if not any(found.blocks for _, _, found, _ in rows):
        return "no block has both a variant and the baseline"
    (ax,) = sheet.axes(1, max(1.6, 0.24 * len(rows) + 0.8))
    interest = sheet.scenario.analysis.smallest_ratio_of_interest
    ax.axvspan(1 / interest, interest, color="#EEEEEE", zorder=0)
    ax.axvline(1, color=BOUND_COLOUR, linewidth=0.8)
    shown = []
    for position, (label, levels, found, failed) in enumerate(rows):
        colour, marker = sheet.style(str(levels.get("tool", "")) if "tool" in keys else label)
        interval = found.interval if found.is_claimable else None
        if found.geometric_mean is not None:
            if interval is not None:
                ax.plot([interval.low, interval.high], [position] * 2, "|-", color=colour, linewidth=1.4, ms=6, mew=1.2)
                shown += [interval.low, interval.high]
            else:
                for ratio in found.ratios.values():
                    ax.plot(ratio, position, marker, color=colour, ms=2.6, alpha=0.5, mew=0)
                    shown.append(ratio)
            shown.append(found.geometric_mean)
            face = colour if found.is_claimable else "white"
            ax.plot(found.geometric_mean, position, marker, color=colour, mfc=face, ms=4.6)
        text = f"n = {found.blocks}" + (f", {failed} without figure" if failed else "")
        ax.annotate(
            text, (1, position), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=7, va="center", color="#A00000" if failed else GREY, annotation_clip=False,
        )  # fmt: skip
        sheet.add(
            comparison=label,
            blocks=found.blocks,
            geometric_mean=found.geometric_mean,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            wilcoxon_p=found.wilcoxon_p,
            failed=failed,
        )
    ax.set_yticks(range(len(rows)), [label for label, *_ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xscale("log")
    low, high = min([*shown, 1 / interest]) * 0.93, max([*shown, interest]) * 1.07
    ax.set_xlim(low, high)
    ticks = [t for t in _ratio_ticks(low, high) if low <= t <= high]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(True, axis="x")
    ax.grid(False, axis="y")
    name = ", ".join(
        " or ".join(sheet.text(factor, level) for level in (wish if isinstance(wish, list) else [wish]))
        for factor, wish in baseline.items()
    )
    better = "below 1: less than the baseline" if sheet.info.is_less_better else "above 1: faster than the baseline"
    if sheet.info.unit not in ("Mb/s", "events/s") and not sheet.info.is_less_better:
        better = "above 1: more than the baseline"
    ax.set_xlabel(f"ratio to {name} in the same block, of: {sheet.info.title}\n({better})")
    sheet.notes.append(
        "Geometric means of paired ratios with "
        f"{100 * sheet.scenario.analysis.confidence:g} % intervals (BCa over blocks) on a logarithmic axis. "
        f"Grey: ratios within {interest:g}, too small to be of interest. Hollow: fewer than "
        f"{statistics.CLAIM_BLOCKS_MIN} blocks, single ratios and no interval."
    )
    return ""


def _qq(sheet: Sheet) -> str:
    scale, _ = sheet.unit
    cells: dict[str, tuple[str, list[float]]] = {}
    for one in sheet.observations:
        value = one.value(sheet.response)
        if value is not None:
            varying = varying_factors(sheet.observations) or ["tool"]
            label = ", ".join(sheet.text(name, one.levels[name]) for name in varying)
            cells.setdefault(one.cell_key, (label, []))[1].append(value * scale)
    cells = {key: cell for key, cell in cells.items() if len(cell[1]) >= 3}
    if not cells:
        return "no cell has three figures"
    chosen = list(cells.values())[:PANELS_MAX]
    if len(cells) > PANELS_MAX:
        sheet.notes.append(f"The first {PANELS_MAX} of {len(cells)} cells.")
    axes = sheet.axes(len(chosen), 2.1, share_y=False)
    family = statistics.shapiro_family({key: values for key, (_, values) in cells.items()})
    for ax, (label, values), test in zip(axes, chosen, family.values(), strict=False):
        theory, ordered = statistics.normal_quantiles(values)
        ax.plot(theory, ordered, "o", color=PALETTE[0], ms=3)
        mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
        ends = [theory[0], theory[-1]]
        ax.plot(ends, [mean + sd * end for end in ends], color=GREY, linewidth=0.8)
        said = test.note if test.w is None else f"W = {test.w:.3f}, p = {test.p:.2g}"
        ax.set_title(f"{label}\n{said}", fontsize=7.5)
        for t, value in zip(theory, ordered, strict=True):
            sheet.add(cell=label, normal_quantile=t, value=value)
    label_left(axes, sheet.label)
    sheet.notes.append("Against quantiles of a normal distribution; the line has mean and standard deviation. "
                       "Axes do not begin at zero.")  # fmt: skip
    return ""


KINDS: dict[str, Callable[[Sheet], str]] = {
    "box": _box,
    "heat_map": _heat_map,
    "rate_rtt": _rate_rtt,
    "time_rtt": _time_rtt,
    "time_fraction": _time_fraction,
    "hourly_area": _hourly_area,
    "ecdf": _ecdf,
    "forest": _forest,
    "qq": _qq,
}


def _x_axis(ax: Axes, levels: list[float], is_log: bool) -> None:
    """Ticks at the levels themselves. With a level of zero, a logarithmic axis is linear near zero."""
    if is_log and levels:
        positive = [level for level in levels if level > 0]
        if levels[0] <= 0 and positive:
            ax.set_xscale("symlog", linthresh=positive[0])
            ax.set_xlim(left=-0.12 * positive[0])
        else:
            ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator())
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(levels, [f"{level:g}" for level in levels])
    else:
        ax.set_xticks(levels, [f"{level:g}" for level in levels])


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios between two, 1 among them."""
    if high / low < 2.5:
        return [tick / 100 for tick in range(10, 300, 5 if high / low < 1.5 else 10)]
    if high / low < 30:
        return [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30]
    return [10.0**power * digit for power in range(-4, 5) for digit in (1, 3)]


def _round_trip_factor(sheet: Sheet) -> str:
    names = [name for name in sheet.observations[0].levels if name in ("round_trip_ms", "rtt_ms", "delay_ms")]
    return names[0] if names else "round_trip_ms"


def _tool_or(name: str, sheet: Sheet, of_name: list[Observation]) -> str:
    """A tool keeps its colour where it makes up a series alone."""
    return str(of_name[0].levels["tool"]) if sheet.series_factors() == ["tool"] else name


def _bytes(one: Observation) -> float:
    rate, wall = one.value("total_rate_bits_per_s"), one.value("wall_s")
    return 0.0 if rate is None or wall is None else rate * wall / 8


def _spread(heights: statistics.Floats, bin_s: float, begin_s: float, end_s: float, height: float) -> None:
    """Adds what happened between two times to the bins that they touch, in proportion."""
    length = max(end_s - begin_s, 1e-12)
    for index in range(max(0, int(begin_s / bin_s)), min(len(heights), int(end_s / bin_s) + 1)):
        within = min(end_s, (index + 1) * bin_s) - max(begin_s, index * bin_s)
        heights[index] += height * max(0.0, within) / length


def _one(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value]
    return median(known) if known else None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _ratio(value: float, by: float | None) -> float | None:
    return value / by if by else None


def _list(value: str | list[str] | None) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
