"""A figure in the making: panels, axes, series with their colours and markers, labels, caption and data file."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from gridlane_lab import statistics
from gridlane_lab.analysis import RESPONSES, Observation, ResponseInfo, varying_factors
from gridlane_lab.matrix import level_text
from gridlane_lab.record import Results, Status
from gridlane_lab.scenario import Figure, Level, Pattern, Scenario
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
# Of one entry of the legend: a letter, and the line with its spaces.
LETTER_IN, HANDLE_IN = 0.064, 0.55
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
    # Factors that differ among the runs of one place of the figure.
    mixed: set[str] = field(default_factory=set)
    # Panels in a row.
    across: int = 1

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
        words = [self.unit[1], "logarithmic" if self.spec.log_y else ""]
        said = ", ".join(filter(None, words))
        return f"{self.info.title} ({said})" if said else self.info.title

    def style(self, name: str) -> tuple[str, str]:
        """Colour and marker of a series: the same in all figures of a scenario. No two of 64 have both the same."""
        order = [tool.name for tool in self.scenario.tool]
        if name not in order:
            order = self.series_names()
        index = order.index(name) if name in order else 0
        return PALETTE[index % len(PALETTE)], MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]

    def series_names(self) -> list[str]:
        """The labels of all series, in their order."""
        names = self.series_factors()
        labels = {tuple(self.order(name, one.level(name)) for name in names): one for one in self.observations}
        return list(dict.fromkeys(self.series_of(labels[key]) for key in sorted(labels)))

    def order(self, factor: str, level: Level) -> tuple[int, float, str]:
        """Sorts levels: tools, sites and texts as the file has them, numbers by value."""
        if factor == "tool":
            return (0, float([tool.name for tool in self.scenario.tool].index(str(level))), "")
        if not isinstance(level, str):
            return (0, float(level), "")
        is_site = factor.removesuffix("_site") in ("source", "target")
        known: Sequence[Level] = self.scenario.places() if is_site else self.scenario.matrix.factors.get(factor, [])
        return (0, float(known.index(level)), "") if level in known else (1, 0.0, level)

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

    def tool_or(self, name: str, of_name: Sequence[Observation]) -> str:
        """What a series has its style of: a tool keeps its colour where it makes up a series alone."""
        return str(of_name[0].levels["tool"]) if self.series_factors() == ["tool"] else name

    def text(self, factor: str, level: Level) -> str:
        """A level for people: with its unit, or with the name of its factor where it is a number without one."""
        return level_label(factor, level, self.scenario)

    def panels(self) -> list[tuple[str, list[Observation]]]:
        """Titles and observations of the panels."""
        names = [self.spec.panel] if isinstance(self.spec.panel, str) else self.spec.panel or []
        found: dict[str, list[Observation]] = {}
        for one in sorted(self.observations, key=lambda one: [self.order(name, one.level(name)) for name in names]):
            found.setdefault(", ".join(self.text(name, one.level(name)) for name in names), []).append(one)
        if len(found) > PANELS_MAX:
            self.notes.append(f"The first {PANELS_MAX} of {len(found)} panels.")
        return list(found.items())[:PANELS_MAX]

    def axes(
        self, count: int, height_in: float = 2.6, *, share_y: bool = True, share_x: bool = False, across: int = 0
    ) -> list[Axes]:
        """So many panels: at most three in a row, and four as two by two; or `across`."""
        self.across = min(count, across or (2 if count == 4 else COLUMNS_MAX))
        rows = -(-count // self.across)
        self.canvas.set_size_inches(WIDTH_IN, height_in * rows + 0.35)
        grid = self.canvas.subplots(rows, self.across, sharey=share_y, sharex=share_x, squeeze=False)
        flat = [ax for row in grid for ax in row]
        for unused in flat[count:]:
            unused.set_visible(False)
        return flat[:count]

    def name_panel(self, ax: Axes, title: str) -> None:
        """The title of a panel, in as many lines as it takes."""
        ax.set_title(textwrap.fill(title, 96 // self.across))

    def label_left(self, axes: Sequence[Axes], label: str) -> None:
        """The label at the panels of the first column."""
        for ax in axes[:: self.across]:
            ax.set_ylabel(label)

    def is_one_cell(self, group: Sequence[Observation]) -> bool:
        """Whether the runs of one place are of one cell. Of others, the caption says in what they differ."""
        if len({one.cell_key for one in group}) < 2:
            return True
        self.mixed |= set(varying_factors(group))
        return False

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
        """Lines of the file."""
        for text, value in self.lines_at().items():
            self.handles[text] = ax.axhline(value, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), label=text)

    def lines_at(self) -> dict[str, float]:
        """Where the lines of the file are on the axis, whose unit may be a larger one than theirs."""
        return {text: value * self.unit[0] / self.info.scale for text, value in self.spec.lines.items()}

    def legend(self) -> None:
        """One for all panels, above them."""
        if self.handles:
            # The series in their order, then what is beside them.
            names = self.series_names()
            texts = sorted(self.handles, key=lambda text: names.index(text) if text in names else len(names))
            self.canvas.legend(
                [self.handles[text] for text in texts],
                texts,
                loc="outside upper center",
                ncols=legend_columns(texts, WIDTH_IN),
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

    def closing(self) -> None:
        """What the caption of every figure says: what is not told apart, and of how many runs it is."""
        if self.mixed:
            said = ", ".join(name.replace("_", " ") for name in sorted(self.mixed))
            self.notes.append(f"Runs at one place differ in: {said}; they have points, and neither box nor band.")
        blocks = len({one.block for one in self.observations})
        self.notes.append(f"{len(self.observations)} runs, {blocks} {'block' if blocks == 1 else 'blocks'}.")

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


# Ends of names of factors, and how their levels are written.
_UNITS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("_bytes_per_s", lambda value: bytes_text(value) + "/s"),
    ("_bytes", bytes_text),
    ("_bits_per_s", lambda value: f"{value / 1e6:g} Mb/s"),
    ("_ms", lambda value: f"{value:g} ms"),
    ("_s", seconds_text),
    ("fraction", lambda value: f"{100 * value:g} %"),
)


def factors_of(pattern: Pattern) -> list[str]:
    """The factors of a pattern, the tool first."""
    return sorted(pattern, key=lambda name: (name != "tool", name))


def factor_label(factor: str) -> str:
    """A factor for the head of a column, without its unit, which its levels have."""
    for suffix, _ in _UNITS:
        if factor.endswith(suffix) and factor != suffix:
            return factor.removesuffix(suffix).strip("_").replace("_", " ")
    return factor.replace("_", " ")


def level_label(factor: str, level: Level, scenario: Scenario | None = None, *, is_named: bool = True) -> str:
    """A level for people: `500 MB`, `26 ms`, `3 sources`, `aria2c`. In a column that has the name of the factor
    (`is_named` is false) it stands alone: `3`."""
    name = factor_label(factor)
    if isinstance(level, bool):
        text = "yes" if level else "no"
        return f"{name}: {text}" if is_named else text
    if isinstance(level, str):
        if scenario is not None and factor == "file":
            sizes = {file.name: file.size_bytes for file in scenario.data.file}
            if isinstance(sizes.get(level), int):
                return bytes_text(sizes[level])
        return level if factor == "tool" else level.replace("_", " ")
    if not is_named:
        return next((form(level) for suffix, form in _UNITS if factor.endswith(suffix)), level_text(level))
    if factor == "concurrency":
        return f"{level:g} at once"
    for suffix, form in _UNITS:
        if factor.endswith(suffix):
            is_clear = name in ("size", "rtt", "round trip", "file size", "fraction")
            return form(level) if is_clear else f"{name} {form(level)}"
    if not name.endswith("s"):
        return f"{name} {level_text(level)}"
    return f"{level_text(level)} {name[:-1] if level == 1 else name}"


def axis_label(factor: str) -> str:
    """The title of an axis that has a factor."""
    words = {"rtt_ms": "round trip (ms)", "fraction": "part that is read (%)", "concurrency": "transfers at once"}
    if factor in words:
        return words[factor]
    for suffix, unit in (("_ms", "ms"), ("_bytes", "bytes"), ("_bits_per_s", "bits/s"), ("_s", "s")):
        if factor.endswith(suffix):
            return f"{factor.removesuffix(suffix).replace('_', ' ')} ({unit})"
    return factor.replace("_", " ")


def legend_columns(texts: Sequence[str], width_in: float) -> int:
    """As many columns as fit, filled from the top as matplotlib does."""
    for columns in range(min(5, len(texts)), 1, -1):
        rows = -(-len(texts) // columns)
        starts = range(0, len(texts), rows)
        widths = [max(len(text) for text in texts[start : start + rows]) * LETTER_IN + HANDLE_IN for start in starts]
        if sum(widths) <= width_in:
            return len(widths)
    return 1


def apart(ticks: Sequence[tuple[float, str]], width_in: float) -> list[bool]:
    """Which labels at these places (0 to 1 of a width) have room beside the last one that has."""
    found, end_in = [], float("-inf")
    for at, text in ticks:
        half_in = max(len(text), 2) * LETTER_IN / 2
        has_room = at * width_in - half_in >= end_in
        found.append(has_room)
        end_in = at * width_in + half_in + LETTER_IN if has_room else end_in
    return found


def typical(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value]
    return median(known) if known else None


def plain(value: float, _: object) -> str:
    """Numbers of ticks without exponents."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:g}"
