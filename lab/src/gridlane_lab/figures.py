"""Figures: SVG, PDF and PNG from one function for each kind, with the numbers drawn as CSV beside them.

    box            x (default: tool), series, panel     box and all points; below six blocks and where cells mix: points
    heat_map       x (default: target), y (source)      median in each cell, and where runs failed
    failures       x (default: target), y (source)      how many transfers failed of how many
    rate_rtt       x, series, panel                     median with quartiles as a band against the round trip
    time_rtt       x, series, panel                     the same of a time
    time_fraction  x, series, panel                     the same against the part read; break-even is marked
    forest         series (default: all other factors)  paired ratios over the baseline with their intervals
    ratio_rtt      x, panel                             the same against the round trip
    qq             panel                                quantiles against those of a normal distribution

of single transfers and samples (`plots_transfers`):

    hourly_area    panel                                rate over time by sending site, stacked, from the table `sample`
    cumulative     series, panel                        bytes verified over time, against plans at a steady rate
    activity       panel                                transfers under way, waiting and failed over time
    ecdf           series, panel                        distribution function of single transfers
    histogram      series, panel                        rates of single transfers in classes
    phases         series                               parts of the time: prepare, transfer, verify, finalise, between
    errors                                              failures by cause, the most frequent first
    sources        series                               part of the bytes from each source, and what was wasted

Rules: an axis of rates begins at zero, or the caption says otherwise; bound and capacity are thin lines; a series has a
colour that the colour-blind can tell (Okabe and Ito) and a marker of its own; n and blocks stand in the caption; runs
that were cut off are hollow, at their extrapolated time where it is known; runs without a figure are counted in words;
no figure has two vertical scales. The same rows give the same bytes.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

from gridlane_lab import plots, plots_transfers
from gridlane_lab.analysis import Observation, observations, select, varying_factors
from gridlane_lab.record import Results, write_whole
from gridlane_lab.scenario import Figure, Scenario
from gridlane_lab.sheet import STYLE, Sheet

KINDS = plots.KINDS | plots_transfers.KINDS


@dataclass(frozen=True)
class Drawn:
    """A figure as it was made."""

    name: str
    title: str
    caption: str
    svg: bytes
    pdf: bytes
    png: bytes
    csv: str


@dataclass(frozen=True)
class NotDrawn:
    """A figure for which there are no data, and why."""

    name: str
    title: str
    reason: str


def draw(spec: Figure, scenario: Scenario, results: Results) -> Drawn | NotDrawn:
    """One figure of a scenario from its results."""
    chosen = select(observations(results, scenario), spec.where)
    response = spec.response or scenario.analysis.response
    sheet_style: Any = STYLE | {"svg.hashsalt": f"gridlane-lab/{scenario.name}/{spec.name}"}
    if not chosen:
        return NotDrawn(spec.name, spec.title, "no run matches")
    with mpl.rc_context(sheet_style):
        sheet = Sheet(scenario, results, spec, chosen, response)
        problem = KINDS[spec.kind](sheet)
        if problem:
            return NotDrawn(spec.name, spec.title, problem)
        sheet.closing()
        sheet.legend()
        svg, pdf, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
        sheet.canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": "gridlane-lab"})
        without = dict.fromkeys(("CreationDate", "ModDate", "Producer"))
        sheet.canvas.savefig(pdf, format="pdf", metadata={"Creator": "gridlane-lab", "Title": spec.title} | without)
        sheet.canvas.savefig(png, format="png", metadata={"Software": None})
    return Drawn(spec.name, spec.title, " ".join(sheet.notes), svg.getvalue(), pdf.getvalue(), png.getvalue(),
                 sheet.data_file())  # fmt: skip


def write(drawn: Drawn, directory: Path) -> None:
    """Puts SVG, PDF, PNG and CSV into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / f"{drawn.name}.svg", drawn.svg)
    write_whole(directory / f"{drawn.name}.pdf", drawn.pdf)
    write_whole(directory / f"{drawn.name}.png", drawn.png)
    write_whole(directory / f"{drawn.name}.csv", drawn.csv.encode())


def default_figures(scenario: Scenario, all_observations: Sequence[Observation]) -> list[Figure]:
    """What is drawn where a scenario names no figures: boxes by tool, and ratios over the baseline."""
    factors = [name for name in varying_factors(all_observations) if name != "tool"]
    panel = factors[0] if factors else None
    figures = [Figure(name="boxes", kind="box", title=scenario.question, x="tool", panel=panel)]
    if scenario.analysis.baseline:
        figures.append(Figure(name="ratios", kind="forest", title="Paired ratios over the baseline"))
    return figures
