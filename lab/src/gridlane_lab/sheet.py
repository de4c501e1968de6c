"""A figure in the making: panels, axes, series with their colours and markers, labels, caption and data file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from gridlane_lab import statistics
from gridlane_lab.analysis import RESPONSES, Observation, ResponseInfo
from gridlane_lab.matrix import level_text
from gridlane_lab.record import Results, Status
from gridlane_lab.scenario import Figure, Level, Scenario
from gridlane_lab.units import bytes_text, seconds_text

# Okabe and Ito (2008); yellow is left out, since it is hard to see on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.linewidth": 0.7,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "path.simplify": False,
}
WIDTH_IN = 7.2
COLUMNS_MAX = 3
# Panels of one figure; more are unreadable, and the report says that they were left out.
PANELS_MAX = 12
# A capacity so many times above the largest rate is not drawn, since it would press the rest to the floor.
FAR_ABOVE = 4
BOUND_COLOUR = "#444444"
GREY = "#666666"


@dataclass
class Sheet:
    """One figure in the making."""

    scenario: Scenario
    results: Results
    spec: Figure
    observations: list[Observation]
    response: str
    canvas: Canvas = field(default_factory=lambda: Canvas(figsize=(WIDTH_IN, 3.0), layout="constrained"))
    notes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    handles: dict[str, Any] = field(default_factory=dict)

    @property
    def info(self) -> ResponseInfo:
        """How the response is called and drawn."""
        return RESPONSES[self.response]

    @property
    def unit(self) -> tuple[float, str]:
        """Scale and unit: rates in Gb/s where they are large."""
        scale, unit = self.info.scale, self.info.unit
        if unit == "Mb/s":
            values = [value for one in self.observations if (value := one.value(self.response)) is not None]
            known = [one.capacity_bits_per_s for one in self.observations if one.capacity_bits_per_s]
            if max([*values, *known], default=0.0) >= 4e9:
                return 1e-9, "Gb/s"
        return scale, unit

    @property
    def label(self) -> str:
        """Of the axis of the response."""
        unit = self.unit[1]
        return f"{self.info.title} ({unit})" if unit else self.info.title

    def style(self, name: str) -> tuple[str, str]:
        """Colour and marker of a series: the same in all figures of a scenario."""
        order = [tool.name for tool in self.scenario.tool]
        if name not in order:
            order = self.series_names()
        index = order.index(name) if name in order else 0
        return PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)]

    def series_names(self) -> list[str]:
        """The labels of all series, in their order."""
        names = self.series_factors()
        labels = {tuple(self.order(name, one.level(name)) for name in names): one for one in self.observations}
        return list(dict.fromkeys(self.series_of(labels[key]) for key in sorted(labels)))

    def order(self, factor: str, level: Level) -> tuple[int, float, str]:
        """Sorts levels: tools as the file has them, numbers by value, texts by name."""
        if factor == "tool":
            return (0, float([tool.name for tool in self.scenario.tool].index(str(level))), "")
        return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")

    def levels_of(self, factor: str) -> list[Level]:
        """The levels that were run, in their order."""
        return sorted({one.level(factor) for one in self.observations}, key=lambda level: self.order(factor, level))

    def series_factors(self) -> list[str]:
        """The factors that make up a series: those of the file, else `tool`."""
        series = self.spec.series
        return ["tool"] if series is None else [series] if isinstance(series, str) else list(series)

    def series_of(self, one: Observation) -> str:
        """The series that an observation belongs to."""
        return ", ".join(self.text(name, one.level(name)) for name in self.series_factors())

    def text(self, factor: str, level: Level) -> str:
        """A level for people: with its unit, or with the name of its factor where it is a number without one."""
        return level_label(factor, level, self.scenario)

    def panels(self) -> list[tuple[str, list[Observation]]]:
        """Titles and observations of the panels."""
        panel = self.spec.panel
        if panel is None:
            return [("", self.observations)]
        levels = self.levels_of(panel)
        if len(levels) > PANELS_MAX:
            self.notes.append(f"The first {PANELS_MAX} of {len(levels)} panels.")
        return [
            (self.text(panel, level), [one for one in self.observations if one.level(panel) == level])
            for level in levels[:PANELS_MAX]
        ]

    def axes(self, count: int, height_in: float = 2.6, *, share_y: bool = True) -> list[Axes]:
        """So many panels, at most three in a row."""
        columns = min(count, COLUMNS_MAX)
        rows = -(-count // columns)
        self.canvas.set_size_inches(WIDTH_IN, height_in * rows + 0.35)
        grid = self.canvas.subplots(rows, columns, sharey=share_y, squeeze=False)
        flat = [grid[row][column] for row in range(rows) for column in range(columns)]
        for unused in flat[count:]:
            unused.set_visible(False)
        return flat[:count]

    def from_zero(self, axes: Iterable[Axes], largest: float) -> None:
        """The axis of the response: from zero, or logarithmic, which the caption then says."""
        for ax in axes:
            if self.spec.log_y:
                ax.set_yscale("log")
                ax.yaxis.set_major_formatter(FuncFormatter(plain))
                ax.yaxis.set_minor_formatter(NullFormatter())
            else:
                ax.set_ylim(0, largest * 1.08 if largest > 0 else 1)
                ax.yaxis.set_major_locator(MaxNLocator(6))
                ax.yaxis.set_major_formatter(FuncFormatter(plain))
        if self.spec.log_y:
            self.notes.append("The vertical axis is logarithmic.")

    def lines(self, ax: Axes) -> None:
        """Lines of the file, in the unit of the axis."""
        for text, value in self.spec.lines.items():
            self.handles[text] = ax.axhline(value, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), label=text)

    def legend(self) -> None:
        """One for all panels, above them."""
        if self.handles:
            # Full rows, as far as their number allows.
            rows = -(-len(self.handles) // 4)
            columns = -(-len(self.handles) // rows)
            self.canvas.legend(
                list(self.handles.values()), list(self.handles), loc="outside upper center", ncols=columns
            )

    def counts(self) -> None:
        """n of the cells, and what had no figure, for the caption."""
        by_cell: dict[str, int] = {}
        for one in self.observations:
            by_cell.setdefault(one.cell_key, 0)
            by_cell[one.cell_key] += one.value(self.response) is not None
        sizes = sorted(by_cell.values())
        if sizes:
            of = f"n = {sizes[0]}" if sizes[0] == sizes[-1] else f"n = {sizes[0]} to {sizes[-1]}"
            self.notes.insert(0, f"{of} in each of {len(sizes)} cells.")
            if sizes[0] < statistics.CLAIM_BLOCKS_MIN:
                self.notes.append(f"Cells with fewer than {statistics.CLAIM_BLOCKS_MIN} blocks show points only.")
        missing: dict[str, int] = {}
        for one in self.observations:
            if one.value(self.response) is None:
                missing[str(one.status)] = missing.get(str(one.status), 0) + 1
        if missing:
            said = ", ".join(f"{count} {status}" for status, count in sorted(missing.items()))
            self.notes.append(f"Runs without a figure: {said}.")
        unverified = sum(one.status is Status.UNVERIFIED for one in self.observations)
        if unverified:
            self.notes.append(f"The bytes of {unverified} runs were compared with nothing.")

    def add(self, **values: Any) -> None:
        """A line of the data file."""
        for name in values:
            if name not in self.columns:
                self.columns.append(name)
        self.rows.append([values.get(name) for name in self.columns])

    def data_file(self) -> str:
        """What was drawn, as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            padded = [*row, *[None] * (len(self.columns) - len(row))]
            writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in padded])
        return text.getvalue()


def level_label(factor: str, level: Level, scenario: Scenario | None = None) -> str:
    """A level for people: `500 MB`, `26 ms`, `3 sources`, `aria2c`."""
    if isinstance(level, bool):
        return f"{factor}: {'yes' if level else 'no'}"
    if isinstance(level, str):
        if scenario is not None and factor == "file":
            sizes = {file.name: file.size_bytes for file in scenario.data.file}
            if isinstance(sizes.get(level), int):
                return bytes_text(sizes[level])
        return level if factor == "tool" else level.replace("_", " ")
    for suffix, form in (
        ("_bytes_per_s", lambda value: bytes_text(value) + "/s"),
        ("_bytes", bytes_text),
        ("_bits_per_s", lambda value: f"{value / 1e6:g} Mb/s"),
        ("_ms", lambda value: f"{value:g} ms"),
        ("_s", seconds_text),
        ("fraction", lambda value: f"{100 * value:g} %"),
    ):
        if factor.endswith(suffix):
            words = factor.removesuffix(suffix).replace("_", " ").strip()
            words = "" if words in ("size", "rtt", "round trip", "file size", "") else f"{words} "
            return f"{words}{form(level)}"
    name = factor.replace("_", " ")
    if level == 1 and name.endswith("s"):
        name = name[:-1]
    return f"{level_text(level)} {name}"


def axis_label(factor: str) -> str:
    """The title of an axis that has a factor."""
    words = {"round_trip_ms": "round trip (ms)", "rtt_ms": "round trip (ms)", "fraction": "part that is read (%)"}
    if factor in words:
        return words[factor]
    for suffix, unit in (("_ms", "ms"), ("_bytes", "bytes"), ("_bits_per_s", "bits/s"), ("_s", "s")):
        if factor.endswith(suffix):
            return f"{factor.removesuffix(suffix).replace('_', ' ')} ({unit})"
    return factor.replace("_", " ")


def label_left(axes: Sequence[Axes], label: str) -> None:
    """The label at the panels of the first column."""
    for index, ax in enumerate(axes):
        if index % COLUMNS_MAX == 0:
            ax.set_ylabel(label)


def plain(value: float, _: object) -> str:
    """Numbers of ticks without exponents."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:g}"
