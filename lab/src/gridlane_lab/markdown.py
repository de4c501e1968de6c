"""The tables of a run as Markdown, for a page of documentation: where and when it was, its claims, and its cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gridlane_lab import analysis, claims
from gridlane_lab.analysis import RESPONSES
from gridlane_lab.record import Results
from gridlane_lab.scenario import Scenario
from gridlane_lab.statistics import CLAIM_BLOCKS_MIN
from gridlane_lab.texts import (
    cells_in_order,
    claim_interval_text,
    claim_text,
    interval_text,
    number_text,
    published_text,
    target_text,
    without_figure_text,
)
from gridlane_lab.units import bytes_text


def tables(scenario: Scenario, results: Results) -> str:
    """A line about the run, and two tables. From fewer than six blocks cells have their range instead of quartiles."""
    observed = analysis.observations(results, scenario)
    parts = [_about(scenario, results, observed)]
    if scenario.analysis.claim:
        parts.append(_claims(scenario, observed))
    parts.append(_cells(scenario, observed))
    return "\n".join(parts)


def _about(scenario: Scenario, results: Results, observed: Sequence[analysis.Observation]) -> str:
    experiment = next(results["experiment"].iter_rows(named=True), {})
    environment = next(results["environment"].iter_rows(named=True), {})
    statuses = ", ".join(
        f"{count} {status}" for status, count in sorted(Counter(str(one.status) for one in observed).items())
    )
    facts = [
        f"`{scenario.name}`, {experiment.get('size', 'unknown size')}",
        f"{str(experiment.get('started_utc', ''))[:16].replace('T', ' ')} UTC",
        f"{environment.get('logical_cpus', '?')} cores of {environment.get('cpu_model', 'an unknown processor')}",
        f"{bytes_text(environment['memory_bytes'])} of memory" if environment.get("memory_bytes") else "",
        f"Linux {environment.get('kernel', '')}".strip(),
        f"runs: {statuses}",
    ]
    ended = "" if results.is_complete else " The run did not come to its end."
    return f"{'; '.join(filter(None, facts))}.{ended}\n"


def _claims(scenario: Scenario, observed: Sequence[analysis.Observation]) -> str:
    published = {claim.name: claim.published for claim in scenario.analysis.claim}
    rows = []
    for row in claims.evaluate(scenario, observed, ""):
        rows.append(
            [
                row.statement,
                published_text(row, published[row.claim]),
                target_text(row),
                claim_text(row, row.estimate),
                claim_interval_text(row, row.low, row.high),
                row.blocks,
                row.verdict if row.low is not None or not row.reason else f"{row.verdict}: {row.reason}",
            ]
        )
    heads = ["claim", "published", "target", "here", f"{_confidence(scenario)} interval", "blocks", "verdict"]
    return _table(heads, rows, numbers={5})


def _cells(scenario: Scenario, observed: Sequence[analysis.Observation]) -> str:
    settings = scenario.analysis
    info = RESPONSES[settings.response]
    cells = analysis.summaries(
        observed, settings.response, seed=settings.bootstrap_seed, confidence=settings.confidence
    )
    factors, ordered = cells_in_order(scenario, cells, observed)

    def number(value: float | None) -> str:
        return number_text(None if value is None else value * info.scale)

    rows: list[list[object]] = []
    for cell, levels in ordered:
        without = without_figure_text(cell)
        found = cell.description
        if found is None:
            rows.append([*levels, 0, "", "", without])
            continue
        low, high = (found.q1, found.q3) if found.n >= CLAIM_BLOCKS_MIN else (found.minimum, found.maximum)
        span = interval_text(number(low), number(high)) if found.n > 1 else ""
        rows.append([*levels, found.n, number(found.median), span, without])
    unit = f", {info.unit}" if info.unit else ""
    heads = [
        *factors,
        "n",
        f"median {info.title}{unit}",
        f"quartiles; range below {CLAIM_BLOCKS_MIN}",
        "without a figure",
    ]
    return _table(heads, rows, numbers=set(range(len(factors), len(factors) + 3)))


def _confidence(scenario: Scenario) -> str:
    return f"{100 * scenario.analysis.confidence:g} %"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: set[int]) -> str:
    lines = [heads, ["---:" if column in numbers else "---" for column in range(len(heads))], *rows]
    return "".join(f"| {' | '.join(_text(value) for value in line)} |\n" for line in lines)


def _text(value: object) -> str:
    """A value in a cell: on one line, and without what would end the cell or begin markup."""
    text = " ".join(str(value).split())
    for sign in "\\|<`*_[":
        text = text.replace(sign, "\\" + sign)
    return text
