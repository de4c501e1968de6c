"""What is said of a run in tables: cells and their levels, numbers, intervals and targets, as text for the page and for
Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from gridlane_lab import analysis
from gridlane_lab.analysis import RESPONSES, CellSummary, Observation, level_order
from gridlane_lab.record import ClaimRow
from gridlane_lab.scenario import Levels, Scenario
from gridlane_lab.sheet import factor_label, level_label
from gridlane_lab.units import seconds_text

# Columns for the factors of a cell; more of them share one.
FACTOR_COLUMNS_MAX = 6


def cells_in_order(
    scenario: Scenario, cells: Sequence[CellSummary], observed: Sequence[Observation]
) -> tuple[list[str], list[tuple[CellSummary, list[str]]]]:
    """Heads for the factors that differ, and the cells with their levels: as the file has its tools, and by level."""
    factors = analysis.varying_factors(observed) or ["tool"]
    factors.sort(key=lambda name: name != "tool")
    tools = [tool.name for tool in scenario.tool]

    def order(cell: CellSummary) -> list[tuple[int, float, str]]:
        return [
            (0, float(tools.index(str(level))), "") if name == "tool" else level_order(level)
            for name, level in ((name, cell.levels[name]) for name in factors)
        ]

    ordered = sorted(cells, key=order)
    return factor_heads(factors), [(cell, level_texts(factors, cell.levels, scenario)) for cell in ordered]


def factor_heads(factors: Sequence[str]) -> list[str]:
    """The heads of the columns that say what a row is of: one for each factor, as far as the page is wide enough."""
    if len(factors) <= FACTOR_COLUMNS_MAX:
        return [factor_label(name) for name in factors]
    return [factor_label(factors[0]), "cell"]


def level_texts(factors: Sequence[str], levels: Levels, scenario: Scenario) -> list[str]:
    """What stands below them."""
    if len(factors) <= FACTOR_COLUMNS_MAX:
        return [level_label(name, levels[name], scenario, is_named=False) for name in factors]
    rest = ", ".join(level_label(name, levels[name], scenario) for name in factors[1:])
    return [level_label(factors[0], levels[factors[0]], scenario, is_named=False), rest]


def number_text(value: float | None, digits: int | None = None) -> str:
    """A number with three digits, or so many behind the point; nothing for none."""
    if value is None:
        return ""
    if digits is not None:
        return f"{value:.{digits}f}"
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}" if size < 100 else f"{value:.4g}"


def claim_text(row: ClaimRow, value: float | None) -> str:
    """A figure of a claim, in its unit."""
    if value is None:
        return ""
    if row.kind in ("ratio", "equivalent", "never_above_capacity", "bound_fraction", "success"):
        return number_text(value, 3)
    info = RESPONSES[row.response]
    return f"{number_text(value * info.scale)} {info.unit}".strip()


def claim_interval_text(row: ClaimRow, low: float | None, high: float | None) -> str:
    """Both ends with their unit once."""
    ends = interval_text(claim_text(row, low), claim_text(row, high))
    unit = RESPONSES[row.response].unit
    return ends.replace(f" {unit} –", " –") if unit else ends


def published_text(row: ClaimRow, published: Sequence[float] | None) -> str:
    """The published figure of a claim, or its lowest and highest."""
    if published is None:
        return ""
    low, high = published
    return claim_text(row, low) if low == high else claim_interval_text(row, low, high)


def target_text(row: ClaimRow) -> str:
    """What a claim wants."""
    if row.kind == "equivalent" and row.most:
        return f"{1 / row.most:.3g} … {row.most:.3g}"
    if row.kind == "never_above_capacity":
        return "≤ 1"
    parts = []
    if row.least is not None:
        parts.append(f"≥ {claim_text(row, row.least)}")
    if row.most is not None:
        parts.append(f"≤ {claim_text(row, row.most)}")
    return ", ".join(parts)


def interval_text(low: str, high: str) -> str:
    """Both ends, where both are there."""
    return f"{low} – {high}" if low and high else ""


def p_text(value: float | None) -> str:
    """A p-value, as far as it says anything."""
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def without_figure_text(cell: CellSummary) -> str:
    """Runs without a figure by status; of those that were cut off, when, and how long they would have taken."""
    said = [f"{count} {status}" for status, count in cell.statuses.items() if status != "ok"]
    if cell.cut_off_s:
        said.append(f"after {_span(cell.cut_off_s)}")
    if cell.extrapolated_s:
        said.append(f"at their pace {_span(cell.extrapolated_s)}")
    return ", ".join(said)


def _span(values_s: Sequence[float]) -> str:
    low, high = seconds_text(min(values_s)), seconds_text(max(values_s))
    return low if low == high else f"{low} to {high}"
