"""The kinds of figures, a function each. It draws on a sheet, and returns why it could not, or nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from gridlane_lab import statistics
from gridlane_lab.analysis import Observation, sorted_levels, varying_factors
from gridlane_lab.claims import comparisons
from gridlane_lab.matrix import level_text, matches
from gridlane_lab.record import Status
from gridlane_lab.scenario import Pattern
from gridlane_lab.sheet import (
    BOUND_COLOUR,
    FAR_ABOVE,
    GREY,
    PALETTE,
    PANELS_MAX,
    WIDTH_IN,
    Sheet,
    apart,
    axis_label,
    factors_of,
    typical,
)


def _box(sheet: Sheet) -> str:
    by = _list(sheet.spec.x) or ["tool"]
    has_series = sheet.spec.series is not None and _list(sheet.spec.series) != by
    sheet.spec = sheet.spec.model_copy(update={"series": sheet.spec.series or by})
    panels = sheet.panels()
    # x → series → runs, for each panel.
    placed = [_places(sheet, inside, by) for _, inside in panels]
    most_boxes = max(sum(len(group) for group in groups.values()) for groups in placed)
    across = 0 if most_boxes <= 5 else 2 if most_boxes <= 9 else 1
    highest = [max(_values(sheet, inside), default=0.0) for _, inside in panels]
    has_own_scales = max(highest) > FAR_ABOVE * min(highest)
    if has_own_scales and not sheet.spec.log_y:
        sheet.notes.append("Panels have scales of their own.")
    axes = sheet.axes(len(panels), 2.9, share_y=not has_own_scales, across=across)
    largest = []
    for ax, (title, inside), groups in zip(axes, panels, placed, strict=True):
        top = max([*sheet.lines_at().values(), 0.0])
        position, ticks = 0.0, []
        for label, of_series in groups.items():
            ticks.append((position + (len(of_series) - 1) / 2, label))
            for name, of_name in of_series.items():
                colour, marker = sheet.style(sheet.tool_or(name, of_name))
                if has_series:
                    sheet.handles.setdefault(name, Line2D([], [], color=colour, marker=marker, ms=4, linewidth=0))
                where = (title, label, name)
                top = max(top, _one_box(sheet, ax, position, of_name, (colour, marker), where, inside))
                position += 1
            # Between groups, where they have more than one box.
            position += 0.6 if has_series else 0
        ax.set_xlim(-0.6, position - (1 if has_series else 0.4))
        span = position + 0.6
        is_long = not all(apart([(at / span, label) for at, label in ticks], 0.9 * WIDTH_IN / sheet.across))
        ax.set_xticks(
            [at for at, _ in ticks],
            [label for _, label in ticks],
            rotation=35 if is_long else 0,
            ha="right" if is_long else "center",
            rotation_mode="anchor",
        )
        ax.tick_params(axis="x", length=0)
        ax.grid(False, axis="x")
        sheet.name_panel(ax, title)
        sheet.lines(ax)
        largest.append(top)
    sheet.label_left(axes, sheet.label)
    for ax, top in zip(axes, largest, strict=True) if has_own_scales else [(axes[0], max(largest))]:
        sheet.from_zero([ax], top)
    sheet.counts()
    sheet.notes.append("Boxes are quartiles with the median, whiskers extremes, points single runs.")
    return "" if sheet.rows else "no run has a figure"


def _places(sheet: Sheet, inside: list[Observation], by: list[str]) -> dict[str, dict[str, list[Observation]]]:
    """x → series → runs, both in their order."""
    found: dict[str, dict[str, list[Observation]]] = {}
    series = {name: index for index, name in enumerate(sheet.series_names())}
    for one in sorted(inside, key=lambda one: [sheet.order(name, one.level(name)) for name in by]):
        label = ", ".join(sheet.text(name, one.level(name)) for name in by)
        found.setdefault(label, {}).setdefault(sheet.series_of(one), []).append(one)
    return {label: dict(sorted(of.items(), key=lambda item: series[item[0]])) for label, of in found.items()}


def _values(sheet: Sheet, inside: list[Observation]) -> list[float]:
    """What a panel shows, in the unit of its axis."""
    return [value * sheet.unit[0] for one in inside if (value := one.value(sheet.response)) is not None]


def _one_box(
    sheet: Sheet,
    ax: Axes,
    position: float,
    of_name: list[Observation],
    style: tuple[str, str],
    where: tuple[str, str, str],
    inside: list[Observation],
) -> float:
    """Points, box, failures and bounds at one place; the height that they need."""
    scale, _ = sheet.unit
    colour, marker = style
    title, label, name = where
    good = [(one, value * scale) for one in of_name if (value := one.value(sheet.response)) is not None]
    values = [value for _, value in good]
    for is_hollow in (False, True):
        points = [
            (position + 0.32 * ((one.block * 0.618034) % 1 - 0.5), value)
            for one, value in good
            if (one.status is Status.UNVERIFIED) is is_hollow
        ]
        if points:
            face = "white" if is_hollow else colour
            ax.plot(
                *zip(*points, strict=True), marker, color=colour, mfc=face, ms=3.4, alpha=0.8, mew=0.8, zorder=3
            )  # fmt: skip
    for one, value in good:
        sheet.add(
            panel=title, x=label, series=name, cell=one.cell_key, block=one.block, value=value, status=str(one.status)
        )
    if sheet.is_one_cell(of_name) and len(values) >= statistics.CLAIM_BLOCKS_MIN:
        ax.boxplot(
            [values],
            positions=[position],
            widths=0.56,
            showfliers=False,
            whis=(0, 100),
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": colour, "alpha": 0.18, "edgecolor": colour, "linewidth": 0.9},
            medianprops={"color": colour, "linewidth": 1.8},
            whiskerprops={"color": colour, "linewidth": 0.9},
            capprops={"color": colour, "linewidth": 0.9},
        )
    _missing(ax, position, of_name, sheet.response)
    return max([_limits(sheet, ax, position, of_name, inside), *values])


def _limits(sheet: Sheet, ax: Axes, position: float, of_name: list[Observation], inside: list[Observation]) -> float:
    """Capacity and bound of one box, as short lines; the height that they need."""
    highest, scale = 0.0, sheet.unit[0]
    capacity = typical([one.capacity_bits_per_s for one in of_name])
    is_rate = sheet.info.unit == "Mb/s"
    if is_rate and capacity is not None and capacity * scale > FAR_ABOVE * max(_values(sheet, inside), default=0.0):
        capacity = None
        note = "The capacity of the paths is far above the axis: set-up and slow start decide."
        sheet.notes += [] if note in sheet.notes else [note]
    marks: list[tuple[str, float | None, Any]] = []
    if is_rate:
        marks = [("capacity of the paths (payload)", None if capacity is None else capacity * scale, "-")]
        bounds = [one.bound_s and one.value("wall_s") and _bytes(one) * 8 / one.bound_s * scale for one in of_name]
        if sheet.response == "total_rate_bits_per_s":
            marks.append(("bound with set-up", typical(bounds), (0, (4, 2))))
    elif sheet.response in ("wall_s", "transfer_s"):
        marks = [("bound", typical([one.bound_s for one in of_name]), (0, (4, 2)))]
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
                    colour = _readable_on("cividis", value / largest)
                ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour)
                if here:
                    median_value = None if np.isnan(value) else float(value)
                    sheet.add(panel=title, y=row, x=column, median=median_value, runs=len(here), failed=failed)
        _grid_axes(ax, columns, rows)
        ax.set_xlabel(axis_label(x))
        sheet.name_panel(ax, title)
    sheet.label_left(axes, axis_label(y))
    if image is not None:
        sheet.canvas.colorbar(image, ax=axes, label=f"median {sheet.info.title} ({unit})", shrink=0.9)
    sheet.counts()
    sheet.notes.append("Colours begin at zero; empty cells were not run.")
    return ""


def _failures(sheet: Sheet) -> str:
    x, y = sheet.spec.x or "target", sheet.spec.y or "source"
    panels = sheet.panels()
    columns, rows = sheet.levels_of(x), sheet.levels_of(y)
    axes = sheet.axes(len(panels), max(2.2, 0.42 * len(rows) + 1.1))
    failed_in_all = transfers_in_all = 0
    for ax, (title, inside) in zip(axes, panels, strict=True):
        grid = np.full((len(rows), len(columns)), np.nan)
        texts = {}
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                here = [one for one in inside if one.level(y) == row and one.level(x) == column]
                transfers = sum(one.transfers for one in here)
                if not transfers:
                    continue
                failed = transfers - sum(one.successes for one in here)
                failed_in_all, transfers_in_all = failed_in_all + failed, transfers_in_all + transfers
                grid[i, j] = failed / transfers
                texts[i, j] = f"{failed} of {transfers}"
                interval = statistics.wilson(failed, transfers, sheet.scenario.analysis.confidence)
                sheet.add(panel=title, y=row, x=column, failed=failed, transfers=transfers, share=failed / transfers,
                          low=interval.low if interval else None, high=interval.high if interval else None)  # fmt: skip
        image = ax.imshow(grid, cmap="Reds", vmin=0, vmax=1, aspect="auto")
        for (i, j), text in texts.items():
            colour = _readable_on("Reds", grid[i, j])
            ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=colour)
        _grid_axes(ax, columns, rows)
        ax.set_xlabel(axis_label(x))
        sheet.name_panel(ax, title)
    sheet.label_left(axes, axis_label(y))
    sheet.canvas.colorbar(image, ax=axes, label="part of the transfers that failed", shrink=0.9)
    sheet.notes.append(f"Failed of all transfers: {failed_in_all} of {transfers_in_all}. Empty cells were not run.")
    return "" if sheet.rows else "no run has transfers"


def _grid_axes(ax: Axes, columns: list[Any], rows: list[Any]) -> None:
    names = [level_text(column) for column in columns]
    ax.set_xticks(range(len(columns)), names, rotation=35, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(rows)), [level_text(row) for row in rows])
    ax.tick_params(length=0)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _readable_on(colours: str, share: float) -> str:
    """Black or white, whichever has more contrast to a colour of a map (WCAG's relative luminance)."""
    rgb = colormaps[colours](float(share))[:3]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


def _curve(sheet: Sheet, default_x: str) -> str:
    scale, _ = sheet.unit
    x = sheet.spec.x or default_x
    is_log = sheet.spec.log_x is not False
    is_time = sheet.response in ("wall_s", "transfer_s")
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
            colour, marker = sheet.style(sheet.tool_or(name, of_name))
            points: list[tuple[float, float, float, float]] = []
            hollow: list[tuple[float, float]] = []
            for level in sorted_levels(one.level(x) for one in of_name):
                here = [one for one in of_name if one.level(x) == level]
                values = sorted(v * scale for one in here if (v := one.value(sheet.response)) is not None)
                at = float(level) * x_scale
                if values:
                    q1, middle, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
                    largest = max(largest, values[-1])
                    has_band = sheet.is_one_cell(here) and len(values) >= statistics.CLAIM_BLOCKS_MIN
                    points.append((at, q1 if has_band else np.nan, middle, q3 if has_band else np.nan))
                    if not has_band:
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
                is_thin = all(np.isnan(low) for low in lows)
                (line,) = ax.plot(
                    positions, medians, marker=marker, color=colour, ms=2.6 if is_thin else 4.5,
                    linewidth=0.7 if is_thin else 1.5,
                )  # fmt: skip
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
        _x_axis(ax, sorted({float(one.level(x)) * x_scale for one in inside}), is_log, sheet.across)
        ax.set_xlabel(axis_label(x) + (", logarithmic" if is_log else ""))
        sheet.name_panel(ax, title)
        sheet.lines(ax)
    sheet.label_left(axes, sheet.label)
    sheet.from_zero(axes, max([largest, *sheet.lines_at().values()]))
    sheet.counts()
    sheet.notes.append("Lines join medians, bands are quartiles; thin lines have no band.")
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
            colour, _ = sheet.style(sheet.tool_or(name, [o for o in inside if sheet.series_of(o) == name]))
            line = ax.axvline(at, color=colour, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=1)
            sheet.handles.setdefault(f"break-even with {base}", line)
            ax.annotate(
                f"{at:.2g} %", (at, 1), (2, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                fontsize=7, color=colour, ha="left", va="top",
            )  # fmt: skip
            sheet.add(panel=title, series=name, break_even=at)


def _rate_rtt(sheet: Sheet) -> str:
    return _curve(sheet, _round_trip_factor(sheet))


def _time_rtt(sheet: Sheet) -> str:
    sheet.response = sheet.spec.response or "wall_s"
    return _curve(sheet, _round_trip_factor(sheet))


def _time_fraction(sheet: Sheet) -> str:
    sheet.response = sheet.spec.response or "wall_s"
    return _curve(sheet, "fraction")


def _forest(sheet: Sheet) -> str:
    settings = sheet.scenario.analysis
    baseline = settings.baseline
    if not baseline:
        return "the scenario names no baseline"
    keys = factors_of(baseline)
    others = [name for name in varying_factors(sheet.observations) if name not in keys]
    wanted = others if sheet.spec.series is None else [n for n in sheet.series_factors() if n not in keys]
    rows = []
    for one in comparisons(sheet.observations, settings, sheet.response, wanted):
        variant = ", ".join(sheet.text(name, one.levels[name]) for name in keys)
        rest = ", ".join(sheet.text(name, one.levels[name]) for name in wanted)
        rows.append((f"{variant}: {rest}" if rest else variant, one))
    rows.sort(key=lambda row: [sheet.order(name, row[1].levels[name]) for name in [*wanted, *sorted(keys)]])
    if not any(one.paired.blocks for _, one in rows):
        return "no block has both a variant and the baseline"
    (ax,) = sheet.axes(1, max(1.6, 0.24 * len(rows) + 0.8))
    interest = settings.smallest_ratio_of_interest
    ax.axvspan(1 / interest, interest, color="#EEEEEE", zorder=0)
    ax.axvline(1, color=BOUND_COLOUR, linewidth=0.8)
    shown = []
    for position, (label, one) in enumerate(rows):
        found, failed = one.paired, one.failed
        colour, marker = sheet.style(str(one.levels.get("tool", "")))
        interval = found.interval if found.is_claimable else None
        if found.geometric_mean is not None:
            if interval is not None:
                ax.plot([interval.low, interval.high], [position] * 2, "|-", color=colour, linewidth=1.4, ms=6, mew=1.2)
                ax.plot(found.geometric_mean, position, marker, color=colour, ms=4.6)
                shown += [interval.low, interval.high, found.geometric_mean]
            else:
                for ratio in found.ratios.values():
                    ax.plot(ratio, position, marker, color=colour, ms=3.6, alpha=0.6, mew=0)
                    shown.append(ratio)
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
            wilcoxon_p=found.wilcoxon_p if found.is_claimable else None,
            wilcoxon_p_holm=one.p_holm,
            cliffs_delta=found.cliffs_delta if found.is_claimable else None,
            verdict=one.verdict,
            failed=failed,
        )
    ax.set_yticks(range(len(rows)), [label for label, *_ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    _ratio_axis(ax, "x", shown, interest)
    ax.grid(True, axis="x")
    ax.grid(False, axis="y")
    ax.set_xlabel(_ratio_label(sheet, baseline))
    sheet.notes.append(_ratio_note(sheet))
    return ""


def _ratio_rtt(sheet: Sheet) -> str:
    settings = sheet.scenario.analysis
    baseline = settings.baseline
    if not baseline:
        return "the scenario names no baseline"
    x = sheet.spec.x or _round_trip_factor(sheet)
    keys = factors_of(baseline)
    interest = settings.smallest_ratio_of_interest
    sheet.spec = sheet.spec.model_copy(update={"series": keys})
    panels = sheet.panels()
    axes = sheet.axes(len(panels))
    shown: list[float] = []
    for ax, (title, inside) in zip(axes, panels, strict=True):
        ax.axhspan(1 / interest, interest, color="#EEEEEE", zorder=0)
        ax.axhline(1, color=BOUND_COLOUR, linewidth=0.8)
        curves: dict[str, list[tuple[float, float]]] = {}
        for one in comparisons(inside, settings, sheet.response, [x]):
            found = one.paired
            if found.geometric_mean is None:
                continue
            name = ", ".join(sheet.text(key, one.levels[key]) for key in keys)
            colour, marker = sheet.style(sheet.tool_or(name, inside))
            at = float(one.levels[x])
            curves.setdefault(name, []).append((at, found.geometric_mean))
            interval = found.interval if found.is_claimable else None
            if interval is not None:
                ax.plot([at, at], [interval.low, interval.high], "_-", color=colour, linewidth=1.2, ms=5)
                shown += [interval.low, interval.high]
            else:
                ratios = list(found.ratios.values())
                ax.plot([at] * len(ratios), ratios, marker, color=colour, ms=3.6, alpha=0.6, mew=0)
                shown += ratios
            sheet.add(panel=title, series=name, x=at, blocks=found.blocks, geometric_mean=found.geometric_mean,
                      low=interval.low if interval else None, high=interval.high if interval else None,
                      failed=one.failed, verdict=one.verdict)  # fmt: skip
        for name, points in curves.items():
            colour, marker = sheet.style(sheet.tool_or(name, inside))
            (line,) = ax.plot(*zip(*sorted(points), strict=True), marker=marker, color=colour, ms=3.2, linewidth=0.9)
            sheet.handles.setdefault(name, line)
        _x_axis(ax, sorted({float(one.level(x)) for one in inside}), sheet.spec.log_x is not False, sheet.across)
        ax.set_xlabel(axis_label(x) + ("" if sheet.spec.log_x is False else ", logarithmic"))
        sheet.name_panel(ax, title)
    if not shown:
        return "no block has both a variant and the baseline"
    _ratio_axis(axes[0], "y", shown, interest)
    sheet.label_left(axes, "ratio of: " + sheet.info.title)
    sheet.notes.append(f"The {' '.join(_ratio_label(sheet, baseline).split())}.")
    sheet.notes.append(_ratio_note(sheet))
    return ""


def _ratio_axis(ax: Axes, which: str, shown: list[float], interest: float) -> None:
    """A logarithmic axis for ratios, with the band of no interest on it whole."""
    low, high = min([*shown, 1 / interest]) * 0.93, max([*shown, interest]) * 1.07
    ticks = [tick for tick in _ratio_ticks(low, high) if low <= tick <= high]
    axis = ax.xaxis if which == "x" else ax.yaxis
    ax.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def _ratio_label(sheet: Sheet, baseline: Pattern) -> str:
    name = ", ".join(
        " or ".join(sheet.text(factor, level) for level in _list(baseline[factor])) for factor in factors_of(baseline)
    )
    better = "below 1: less than the baseline" if sheet.info.is_less_better else "above 1: faster than the baseline"
    if sheet.info.unit not in ("Mb/s", "events/s") and not sheet.info.is_less_better:
        better = "above 1: more than the baseline"
    return f"ratio to {name} in the same block, of: {sheet.info.title}\n({better})"


def _ratio_note(sheet: Sheet) -> str:
    settings = sheet.scenario.analysis
    return (
        f"Geometric means of paired ratios with {100 * settings.confidence:g} % intervals (BCa over blocks) on a "
        f"logarithmic axis. Grey: ratios within {settings.smallest_ratio_of_interest:g}, too small to be of interest. "
        f"Fewer than {statistics.CLAIM_BLOCKS_MIN} blocks: single ratios, and no interval."
    )


def _qq(sheet: Sheet) -> str:
    scale, _ = sheet.unit
    cells: dict[str, list[Observation]] = {}
    for one in sheet.observations:
        cells.setdefault(one.cell_key, [])
        if one.value(sheet.response) is not None:
            cells[one.cell_key].append(one)
    enough = {key: of_cell for key, of_cell in cells.items() if len(of_cell) >= 3}
    if not enough:
        return "no cell has three figures"
    varying = varying_factors([one for of_cell in enough.values() for one in of_cell]) or ["tool"]
    drawn = {
        key: (
            ", ".join(sheet.text(name, of_cell[0].levels[name]) for name in varying),
            [value * scale for one in of_cell if (value := one.value(sheet.response)) is not None],
        )
        for key, of_cell in enough.items()
    }
    sizes = sorted(len(values) for _, values in drawn.values())
    said = f"n = {sizes[0]}" if sizes[0] == sizes[-1] else f"n = {sizes[0]} to {sizes[-1]}"
    sheet.notes.append(f"{said} in each of {len(drawn)} cells.")
    if len(cells) > len(drawn):
        sheet.notes.append(f"{len(cells) - len(drawn)} cells with fewer than three figures are left out.")
    family = statistics.shapiro_family({key: values for key, (_, values) in drawn.items()})
    if len(drawn) > PANELS_MAX:
        sheet.notes.append(f"The {PANELS_MAX} cells with the smallest p are shown.")
    least = sorted(drawn, key=lambda key: (family[key].p is None, family[key].p or 0.0))[:PANELS_MAX]
    chosen = {key: cell for key, cell in drawn.items() if key in least}
    axes = sheet.axes(len(chosen), 2.1, share_y=False)
    for ax, (key, (label, values)) in zip(axes, chosen.items(), strict=True):
        test = family[key]
        theory, ordered = statistics.normal_quantiles(values)
        ax.plot(theory, ordered, "o", color=PALETTE[0], ms=3)
        mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
        ends = [theory[0], theory[-1]]
        ax.plot(ends, [mean + sd * end for end in ends], color=GREY, linewidth=0.8)
        said = test.note if test.w is None else f"W = {test.w:.3f}, p = {test.p:.2g}"
        ax.set_title(f"{textwrap.fill(label, 96 // sheet.across)}\n{said}", fontsize=7.5)
        for t, value in zip(theory, ordered, strict=True):
            sheet.add(cell=label, normal_quantile=t, value=value)
    for ax in axes[-sheet.across :]:
        ax.set_xlabel("normal quantile")
    sheet.label_left(axes, sheet.label)
    sheet.notes.append("Against quantiles of a normal distribution; the line has mean and standard deviation. "
                       "Axes do not begin at zero.")  # fmt: skip
    return ""


KINDS: dict[str, Callable[[Sheet], str]] = {
    "box": _box,
    "heat_map": _heat_map,
    "rate_rtt": _rate_rtt,
    "time_rtt": _time_rtt,
    "time_fraction": _time_fraction,
    "forest": _forest,
    "ratio_rtt": _ratio_rtt,
    "failures": _failures,
    "qq": _qq,
}


def _x_axis(ax: Axes, levels: list[float], is_log: bool, across: int) -> None:
    """Ticks at the levels themselves. With a level of zero, a logarithmic axis is linear near zero."""
    if is_log and levels:
        positive = [level for level in levels if level > 0]
        if levels[0] <= 0 and positive:
            ax.set_xscale("symlog", linthresh=positive[0])
            ax.set_xlim(left=-0.12 * positive[0])
        else:
            ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(levels)
    # Where each is on the axis decides which have room for their label.
    low, high = (float(end) for end in ax.get_xlim())
    places = ax.transData.transform([(level, 0) for level in (low, *levels, high)])[:, 0]
    width = max(float(places[-1] - places[0]), 1e-9)
    ticks = [(float(at - places[0]) / width, f"{level:g}") for at, level in zip(places[1:-1], levels, strict=True)]
    shown = apart(ticks, 0.8 * WIDTH_IN / across)
    ax.set_xticks(levels, [text if is_shown else "" for (_, text), is_shown in zip(ticks, shown, strict=True)])


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


def _bytes(one: Observation) -> float:
    rate, wall = one.value("total_rate_bits_per_s"), one.value("wall_s")
    return 0.0 if rate is None or wall is None else rate * wall / 8


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _ratio(value: float, by: float | None) -> float | None:
    return value / by if by else None


def _list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]
