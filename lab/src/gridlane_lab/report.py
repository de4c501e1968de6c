"""One HTML file for each run: figures inline, tables, claims with verdicts, failures, environment, commands.

It needs no JavaScript, no network and no other file, and it is computed from the tables and the scenario of a run
directory alone: the same results give the same bytes. Whatever comes from elsewhere (names, errors, versions) is text,
and escaped.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gridlane_lab import analysis, bound, claims, figures, statistics
from gridlane_lab.analysis import RESPONSES, CellSummary, Observation, level_order
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.matrix import level_text
from gridlane_lab.record import ClaimRow, Results, Status, read_results, write_whole
from gridlane_lab.scenario import Figure, Pattern, Scenario
from gridlane_lab.sheet import factor_label, factors_of
from gridlane_lab.texts import (
    cells_in_order,
    claim_interval_text,
    claim_text,
    factor_heads,
    interval_text,
    level_texts,
    number_text,
    p_text,
    published_text,
    target_text,
    without_figure_text,
)
from gridlane_lab.units import bytes_text, rate_text, seconds_text

# Rows of long tables that are shown; the rest is in the Parquet files.
FAILURES_MAX = 200
CHECKS_MAX = 100

VERDICT_MARKS = {
    claims.HOLDS: "✓",
    claims.FAILS: "✗",
    claims.UNDECIDED: "?",
    claims.POINTS: "·",
    claims.NOT_MEASURED: "–",
}


def write(directory: Path) -> Path:
    """Makes the report of a run directory: `report/index.html`, figures and their data. Returns the page."""
    results = read_results(directory)
    scenario = scenario_of(directory)
    specs = figures_of(scenario, results)
    drawn = [figures.draw(spec, scenario, results) for spec in specs]
    target = directory / "report"
    target.mkdir(exist_ok=True)
    for figure in drawn:
        if isinstance(figure, figures.Drawn):
            figures.write(figure, target / "figures")
    page = target / "index.html"
    write_whole(page, page_of(scenario, results, specs, drawn).encode())
    return page


def scenario_of(directory: Path) -> Scenario:
    """The scenario that a run began with."""
    try:
        return Scenario.from_json((directory / "scenario.json").read_text())
    except (OSError, ValueError) as error:
        raise LabError(
            f"cannot be read: {error}",
            where=str(directory / "scenario.json"),
            hint="give the directory of a run",
            code=ExitCode.NOT_FOUND,
        ) from None


def figures_of(scenario: Scenario, results: Results) -> list[Figure]:
    """The figures that a scenario names, or the usual ones; and always quantiles, for the table of Shapiro–Wilk."""
    found = list(scenario.analysis.figure)
    found = found or figures.default_figures(scenario, analysis.observations(results, scenario))
    if not any(figure.kind == "qq" for figure in found):
        found.append(Figure(name="quantiles-of-cells", kind="qq", title="Cells against a normal distribution"))
    return found


def claim_rows(scenario: Scenario, results: Results) -> list[ClaimRow]:
    """The claims as they are judged from the rows."""
    experiment = results["experiment"]
    experiment_id = str(experiment["experiment_id"][0]) if experiment.height else ""
    return claims.evaluate(scenario, analysis.observations(results, scenario), experiment_id)


def page_of(
    scenario: Scenario, results: Results, specs: Sequence[Figure], drawn: Sequence[figures.Drawn | figures.NotDrawn]
) -> str:
    """The whole page."""
    quantiles = [one for spec, one in zip(specs, drawn, strict=True) if spec.kind == "qq"]
    others = [one for spec, one in zip(specs, drawn, strict=True) if spec.kind != "qq"]
    observed = analysis.observations(results, scenario)
    response = scenario.analysis.response
    cells = analysis.summaries(
        observed, response, seed=scenario.analysis.bootstrap_seed, confidence=scenario.analysis.confidence
    )
    experiment = results["experiment"].to_dicts()
    first = experiment[0] if experiment else {}
    sections = [
        ("claims", "Claims", _claims(scenario, claim_rows(scenario, results))),
        ("figures", "Figures", _figures(others)),
        ("cells", f"Cells: {RESPONSES[response].title}", _cells(scenario, cells, observed, response)),
        *([("ratios", "Paired ratios", ratios)] if (ratios := _ratios(scenario, observed)) else []),
        ("normality", "Shapiro–Wilk", _normality(scenario, cells, observed) + _figures(quantiles)),
        *([("drift", "Drift over the blocks", drift)] if (drift := _drift(scenario, cells, observed)) else []),
        *([("same", "The same twice", same)] if (same := _same_twice(scenario, observed)) else []),
        ("failures", "Failures", _failures(results, observed)),
        ("paths", "Path checks", _paths(results)),
        ("environment", "Environment", _environment(results)),
        ("commands", "Commands", _commands(results)),
    ]
    of_runs = [title for anchor, title, _ in sections if anchor in ("cells", "ratios", "normality", "drift", "same")]
    sections += [
        ("sources", "Where the numbers come from", _origins(scenario, results, specs, observed, of_runs)),
        ("reading", "How to read this", _reading(scenario)),
    ]
    contents = "".join(f'<li><a href="#{anchor}">{_text(title)}</a></li>' for anchor, title, _ in sections)
    body = "".join(
        f'<section id="{anchor}"><h2>{_text(title)}</h2>{content}</section>' for anchor, title, content in sections
    )
    title = f"{scenario.name} ({first.get('size', '')})" if first else scenario.name
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)} – gridlane-lab</title><style>{CSS}</style></head><body>"
        f"<header><h1>{_text(title)}</h1><p class=question>{_text(scenario.question)}</p>"
        f"{_summary(scenario, results, observed, first)}</header>"
        f"<nav><ul>{contents}</ul></nav><main>{body}</main></body></html>\n"
    )


# --- Sections -------------------------------------------------------------------------------------------


def _summary(scenario: Scenario, results: Results, observed: Sequence[Observation], first: dict[str, Any]) -> str:
    statuses = Counter(str(one.status) for one in observed)
    lines = []
    if not results.is_complete:
        lines.append(
            "<p class=warning>This run did not come to its end. The figures are those of the blocks that did; "
            "<code>gridlane-lab run --resume</code> goes on with it.</p>"
        )
    void = statuses.get(str(Status.VOID), 0)
    if void:
        lines.append(f"<p class=warning>{void} runs are void: paths or machine did not keep what was promised.</p>")
    not_run = statuses.get(str(Status.NOT_RUN), 0)
    if not_run:
        lines.append(
            f"<p class=warning>{not_run} runs did not begin: the time of the scenario was over. They count nowhere.</p>"
        )
    blocks = len({one.block for one in observed if one.status is not Status.NOT_RUN})
    if blocks < statistics.CLAIM_BLOCKS_MIN:
        lines.append(
            f"<p class=warning>{blocks} blocks. From fewer than {statistics.CLAIM_BLOCKS_MIN} nothing is claimed: "
            "points are shown.</p>"
        )
    facts = [
        ("published figure", scenario.published_figure or "none"),
        ("runs", f"{len(observed)} in {blocks} blocks and {len({one.cell_key for one in observed})} cells"),
        ("outcome", ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "none"),
        ("started", first.get("started_utc", "unknown")),
        ("seed", scenario.matrix.seed),
        ("scenario", f"sha256 {scenario.sha256()[:16]}…"),
        ("lab", f"{first.get('lab_version', '')} {(first.get('git_commit') or '')[:12]}".strip()),
    ]
    if first.get("operator_note"):
        facts.append(("note", first["operator_note"]))
    return "".join(lines) + _definitions(facts)


def _claims(scenario: Scenario, rows: Sequence[ClaimRow]) -> str:
    if not rows:
        return "<p>The scenario claims nothing.</p>"
    published = {claim.name: claim.published for claim in scenario.analysis.claim}
    table = []
    for row in rows:
        info = RESPONSES[row.response]
        table.append(
            [
                _mark(row.verdict, VERDICT_MARKS[row.verdict]),
                Raw(
                    f"{_text(row.statement)}<br>"
                    f"<small>{_text(row.claim)}: {_text(row.kind.replace('_', ' '))}, {_text(info.title)}, from "
                    f"{row.rows} rows. {_text(_sentence(row.reason))}</small>"
                ),
                target_text(row),
                claim_text(row, row.estimate),
                claim_interval_text(row, row.low, row.high),
                published_text(row, published[row.claim]),
                row.blocks,
                row.failed_rows or "",
                p_text(row.p_value_holm),
                number_text(row.effect_cliffs_delta, 2),
            ]
        )
    heads = ["verdict", "statement", "target", "estimate", "interval", "published", "blocks", "failed", "p (Holm)"]
    return _table([*heads, "Cliff's δ"], table, numbers=set(range(2, 10)), texts={1})


def _figures(drawn: Sequence[figures.Drawn | figures.NotDrawn]) -> str:
    parts = []
    for figure in drawn:
        title = _text(figure.title)
        if isinstance(figure, figures.NotDrawn):
            parts.append(
                f'<div id="figure-{figure.name}" class=absent><b>{title}.</b> Not drawn: {_text(figure.reason)}.</div>'
            )
            continue
        data = base64.b64encode(figure.csv.encode()).decode()
        parts.append(
            f'<figure id="figure-{figure.name}"><div class=wide role=region tabindex=0 aria-label="{title}">'
            f"{_inline(figure)}</div>"
            f"<figcaption><b>{title}.</b> {_text(figure.caption)} "
            f'<a download="{figure.name}.csv" href="data:text/csv;base64,{data}">The numbers as CSV</a>'
            "</figcaption></figure>"
        )
    return "".join(parts) or "<p>No figures.</p>"


def _inline(figure: figures.Drawn) -> str:
    """The SVG as a part of the page: without its head, with names of its own, and a text that readers aloud find."""
    svg = figure.svg.decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    prefix = f"{figure.name}-"
    seen: Counter[str] = Counter()

    def unique(found: re.Match[str]) -> str:
        # Images with the same pixels have the same name.
        seen[found[1]] += 1
        return f'id="{prefix}{found[1]}{f"-{seen[found[1]]}" if seen[found[1]] > 1 else ""}"'

    svg = re.sub(r'\bid="([^"]+)"', unique, svg)
    svg = re.sub(r'(xlink:href="|url\()#', lambda found: f"{found[1]}#{prefix}", svg)
    label = html.escape(f"{figure.title}. {figure.caption}", quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _of_columns(heads: Sequence[str]) -> dict[str, set[int]]:
    """How wide the columns of `factor_heads` are, for `_table`."""
    return {"labels": {0}, "texts": {1}} if list(heads[1:]) == ["cell"] else {"labels": set(range(len(heads)))}


def _cells(scenario: Scenario, cells: Sequence[CellSummary], observed: Sequence[Observation], response: str) -> str:
    info = RESPONSES[response]
    factors, ordered = cells_in_order(scenario, cells, observed)
    rows = []
    for cell, levels in ordered:
        described = cell.description

        def number(value: float | None) -> str:
            return number_text(None if value is None else value * info.scale)

        def between(interval: statistics.Interval | None) -> str:
            return interval_text(number(interval.low), number(interval.high)) if interval else ""

        if described is None:
            rows.append([*levels, 0, *[""] * 6, without_figure_text(cell)])
            continue
        mean = ""
        is_enough = described.n >= statistics.CLAIM_BLOCKS_MIN
        if is_enough and cell.normality.leads_with_mean and described.sd is not None:
            mean = f"{number(described.mean)} ± {number(described.sd)} ({between(cell.mean_interval)})"
        by_bootstrap = between(cell.interval) if is_enough else ""
        if by_bootstrap and cell.interval is not None and cell.interval.method != "bca":
            by_bootstrap += f" ({cell.interval.method})"
        rows.append(
            [
                *levels,
                described.n,
                Raw(f"<b>{number(described.median)}</b>"),
                interval_text(number(described.q1), number(described.q3)),
                interval_text(number(described.minimum), number(described.maximum)),
                by_bootstrap,
                between(cell.exact_interval) if is_enough else "",
                mean,
                without_figure_text(cell),
            ]
        )
    confidence = f"{100 * scenario.analysis.confidence:g} %"
    heads = [
        *factors,
        "n",
        "median",
        "quartiles",
        "range",
        f"{confidence} bootstrap",
        f"{confidence} order",
        f"mean ± SD ({confidence} t)",
        "without a figure",
    ]
    unit = f" in {info.unit}" if info.unit else ""
    note = (
        f"<p>{_text(_sentence(info.title))}{_text(unit)}, one value for each block. Mean ± SD stands "
        "where Shapiro–Wilk, after Holm over all cells, does not reject a normal distribution. Intervals are of the "
        "median, by BCa bootstrap and by order statistics, and given from "
        f"{statistics.CLAIM_BLOCKS_MIN} blocks on. Runs that failed are in none of the figures: they stand apart, "
        "those that were cut off with the time after which they were, and with the one that they would have taken.</p>"
    )
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return note + _table(heads, rows, numbers=set(range(len(factors), len(factors) + 7)), **_of_columns(factors))


def _ratios(scenario: Scenario, observed: Sequence[Observation]) -> str:
    """Every variant beside the baseline; nothing where the scenario names none."""
    settings = scenario.analysis
    if not settings.baseline:
        return ""
    keys = factors_of(settings.baseline)
    by = [name for name in analysis.varying_factors(observed) if name not in keys]
    rows = []
    compared = claims.comparisons(observed, settings, settings.response, by)
    compared.sort(key=lambda one: [level_order(one.levels[name]) for name in (*keys, *by)])
    for one in compared:
        found = one.paired
        if not found.blocks and not one.failed:
            continue
        levels = level_texts([*keys, *by], one.levels, scenario)
        points = ", ".join(number_text(ratio, 3) for ratio in found.ratios.values())
        interval = found.interval
        is_enough = found.is_claimable
        rows.append(
            [
                *levels,
                found.blocks,
                one.failed or "",
                Raw(f"<b>{number_text(found.geometric_mean, 3)}</b>") if is_enough else points,
                interval_text(number_text(interval.low, 3), number_text(interval.high, 3))
                if is_enough and interval
                else "",
                p_text(one.p_holm),
                number_text(found.cliffs_delta, 2) if is_enough else "",
                one.verdict + (f"; differs in {', '.join(map(factor_label, one.implied))}" if one.implied else ""),
            ]
        )
    if not rows:
        return ""
    columns = factor_heads([*keys, *by])
    interest = settings.smallest_ratio_of_interest
    note = (
        f"<p>{_text(_sentence(RESPONSES[settings.response].title))} over that of "
        f"{_text(_pattern_text(settings.baseline))} in the same block and with the same other factors: geometric means "
        f"on the log scale, BCa intervals over blocks, Wilcoxon's signed ranks with Holm over all rows that have a p. "
        f"The last column tests against {interest:g}, the smallest ratio of interest, by two one-sided tests: "
        f"<i>equivalent</i> within {1 / interest:.3g} … {interest:g}, <i>different</i> outside. Fewer than "
        f"{statistics.CLAIM_BLOCKS_MIN} blocks: the ratios themselves, and nothing else.</p>"
    )
    heads = [
        *columns,
        "blocks",
        "failed",
        "ratio",
        f"{100 * settings.confidence:g} %",
        "p (Holm)",
        "Cliff's δ",
        "difference of interest",
    ]
    first = len(columns)
    return note + _table(heads, rows, numbers=set(range(first, first + 6)), **_of_columns(columns))


def _normality(scenario: Scenario, cells: Sequence[CellSummary], observed: Sequence[Observation]) -> str:
    factors, ordered = cells_in_order(scenario, cells, observed)
    rows, untested = [], Counter[str]()
    for cell, levels in ordered:
        test = cell.normality
        if test.p is None:
            untested[test.note] += 1
            continue
        verdict = "rejected" if test.is_rejected else "not\u00a0rejected"
        verdict += f" ({test.note})" if test.note else ""
        rows.append([*levels, test.n, number_text(test.w, 4), p_text(test.p), p_text(test.p_holm), verdict])
    note = (
        "<p>A test of few values misses most of what is not normal, and one of many rejects trifles: W and the "
        "quantile plot say more than p. p (Holm) is over all cells of this table.</p>"
    )
    said = "; ".join(f"{count} cells have {note}" for note, count in sorted(untested.items()))
    more = f"<p>Not tested: {_text(said)}.</p>" if untested else ""
    first = len(factors)
    heads = [*factors, "n", "W", "p", "p (Holm)", "normal"]
    table = _table(heads, rows, numbers=set(range(first, first + 4)), **_of_columns(factors)) if rows else ""
    return note + table + more


def _drift(scenario: Scenario, cells: Sequence[CellSummary], observed: Sequence[Observation]) -> str:
    """Trend and autocorrelation over blocks, of cells that have enough of them."""
    factors, ordered = cells_in_order(scenario, cells, observed)
    rows = []
    for cell, levels in ordered:
        one, described = cell.trend, cell.description
        if one.slope is None or described is None:
            continue
        slope = "" if not described.median else _signed(100 * one.slope / described.median)
        found = "a\u00a0drift" if one.is_found else "none"
        rows.append([*levels, one.n, slope, p_text(one.p_holm), _signed(one.autocorrelation), found])
    if not rows:
        return ""
    note = (
        "<p>Before values of several blocks are taken together: the slope of Theil and Sen from block to block, in per "
        "cent of the median, with Kendall's test and Holm over all cells; and the correlation of neighbouring blocks. "
        "A drift that all share leaves ratios within blocks as they are.</p>"
    )
    first = len(factors)
    heads = [*factors, "n", "% for each block", "p (Holm)", "lag 1", "finds"]
    return note + _table(heads, rows, numbers=set(range(first, first + 4)), **_of_columns(factors))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}".replace("-", "−")


def _pattern_text(pattern: Pattern) -> str:
    """A pattern for people: `tool = aria2c, sources = 1 or 3`."""
    parts = []
    for name in factors_of(pattern):
        wish = pattern[name]
        levels = [level_text(level) for level in (wish if isinstance(wish, list) else [wish])]
        parts.append(f"{name.replace('_', ' ')} = {' or '.join(levels)}")
    return ", ".join(parts) or "all"


def origins(
    scenario: Scenario,
    results: Results,
    specs: Sequence[Figure],
    observed: Sequence[Observation],
    of_runs: Sequence[str] = (),
) -> list[tuple[str, int, str]]:
    """What is said, of how many rows, and the query that gives them."""
    every = analysis.query_of({})
    found = [(title, len(observed), every) for title in of_runs]
    found += [
        (f"Figure: {spec.title}", len(analysis.select(observed, spec.where)), analysis.query_of(spec.where))
        for spec in specs
    ]
    for claim in scenario.analysis.claim:
        for what, pattern in (("", claim.variant), (", baseline", claim.baseline)):
            if pattern is not None:
                chosen = len(analysis.select(observed, pattern))
                found.append((f"Claim: {claim.name}{what}", chosen, analysis.query_of(pattern)))
    transfers = sum(one.transfers for one in observed)
    of_runs = analysis.query_of({}, "run_id")
    found.append(("Failures, and figures of single transfers", transfers,
                  f"SELECT * FROM transfer WHERE run_id IN ({of_runs})"))  # fmt: skip
    found.append(("Path checks", results["path_check"].height, "SELECT * FROM path_check"))
    found.append(("Environment", results["environment"].height, "SELECT * FROM environment"))
    return found


def _origins(
    scenario: Scenario,
    results: Results,
    specs: Sequence[Figure],
    observed: Sequence[Observation],
    of_runs: Sequence[str],
) -> str:
    note = (
        "<p>Every number of this page is computed from rows, and these are the queries that give them: "
        "<code>gridlane-lab query DIRECTORY QUERY</code>. Rows without a figure are among them.</p>"
    )
    rows = [
        [what, count, Raw(f"<code>{_text(sql)}</code>")]
        for what, count, sql in origins(scenario, results, specs, observed, of_runs)
    ]
    return note + _table(["what", "rows", "query"], rows, numbers={1}, texts={0})


def _same_twice(scenario: Scenario, observed: Sequence[Observation]) -> str:
    """A/A: nothing where the scenario has no variant twice."""
    rows = [
        [
            f"{one.first} over {one.second}",
            one.gate,
            one.blocks,
            number_text(one.ratio, 3),
            interval_text(number_text(one.interval.low, 3), number_text(one.interval.high, 3)),
            "a difference" if one.is_alarm else "none",
            number_text(100 * one.false_alarms.rate, 1),
            interval_text(
                number_text(100 * one.false_alarms.interval.low, 1),
                number_text(100 * one.false_alarms.interval.high, 1),
            ),
        ]
        for one in claims.calibrate(scenario, observed)
    ]
    if not rows:
        return ""
    note = (
        "<p>Tools that differ in nothing but their names: what is found between them is not so. False alarms are those "
        "of a gate over blocks drawn from these, with the two sides of each exchanged by lot. An interval of 95 % "
        "promises 5 % of them; a gate that has many more must not be believed at its word.</p>"
    )
    heads = [
        "tools",
        "gate",
        "blocks",
        "ratio",
        f"{100 * scenario.analysis.confidence:g} %",
        "finds",
        "false alarms in %",
        "95 % (Wilson)",
    ]
    return note + _table(heads, rows, numbers={2, 3, 4, 6, 7})


def _failures(results: Results, observed: Sequence[Observation]) -> str:
    failed = [one for one in observed if not one.status.is_success or one.successes < one.transfers]
    if not failed:
        return "<p>Every transfer succeeded.</p>"
    causes = Counter((one.levels.get("tool", ""), str(one.status), _short(one.reason)) for one in failed)
    rows = [[tool, status, reason, count] for (tool, status, reason), count in sorted(causes.items(), key=_by_count)]
    more = ""
    if len(rows) > FAILURES_MAX:
        more = f"<p>{len(rows) - FAILURES_MAX} more causes are in the table <code>run</code>.</p>"
        rows = rows[:FAILURES_MAX]
    transfers = results["transfer"]
    proportions = []
    joined = transfers.join(results["run"].select("run_id", "tool", "block"), on="run_id").filter(
        (pl.col("block") >= 0) & (pl.col("status") != str(Status.NOT_RUN))
    )
    for tool, group in joined.group_by("tool", maintain_order=True):
        good = sum(Status(status).is_success for status in group["status"])
        interval = statistics.wilson(good, group.height)
        if interval is not None:
            proportions.append(
                [tool[0], good, group.height, number_text(100 * good / group.height, 1),
                 interval_text(number_text(100 * interval.low, 1), number_text(100 * interval.high, 1))]
            )  # fmt: skip
    heads = ["tool", "succeeded", "transfers", "%", "95 % (Wilson)"]
    return (
        _table(["tool", "status", "reason", "runs"], rows, numbers={3}, texts={2})
        + more
        + _table(heads, sorted(proportions), numbers={1, 2, 3, 4})
    )


def _paths(results: Results) -> str:
    checks = results["path_check"].to_dicts()
    if not checks:
        return "<p>No path was checked: the figures hold for whatever the paths were.</p>"
    rows = []
    for check in checks[:CHECKS_MAX]:
        rows.append(
            [
                f"{check['sender']} → {check['receiver']}",
                check["moment"],
                _milliseconds(check["requested_round_trip_s"]),
                _milliseconds(check["round_trip_p50_s"]),
                _milliseconds(check["round_trip_p99_s"]),
                _rate(check["requested_rate_bits_per_s"]),
                _rate(check["rate_bits_per_s"]),
                number_text(check["loss_ratio"]),
                check["unaccounted_drops"],
                _mark(check["verdict"]),
                check["reason"],
            ]
        )
    heads = [
        "path",
        "when",
        "round trip asked",
        "p50",
        "p99",
        "rate asked",
        "measured",
        "loss",
        "lost outside",
        "verdict",
        "remarks",
    ]
    more = (
        f"<p>{len(checks) - CHECKS_MAX} more are in the table <code>path_check</code>.</p>"
        if len(checks) > CHECKS_MAX
        else ""
    )
    return _table(heads, rows, numbers=set(range(2, 9))) + more


def _environment(results: Results) -> str:
    parts = []
    for row in results["environment"].to_dicts():
        facts = []
        for name, value in row.items():
            if value is None or value == [] or name in ("environment_id", "experiment_id"):
                continue
            title = name.removesuffix("_json").replace("_", " ")
            if name.endswith("_json"):
                inner = json.loads(value)
                shown: Any = Raw(_definitions([(key, _flat(inner[key])) for key in sorted(inner)])) if inner else "none"
            elif name == "memory_bytes":
                title, shown = "memory", bytes_text(value)
            else:
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            facts.append((title, shown))
        parts.append(_definitions(facts))
    return "".join(parts) or "<p>No environment was recorded.</p>"


def _commands(results: Results) -> str:
    seen: dict[str, str] = {}
    for key, command in results["run"].sort("block", "order_in_block").select("cell_key", "command").iter_rows():
        if command:
            seen.setdefault(key, command)
    rows = [[key, Raw(f"<code>{_text(command)}</code>")] for key, command in sorted(seen.items())]
    return _table(["cell", "command of its first transfer"], rows) if rows else "<p>Nothing was run.</p>"


def _reading(scenario: Scenario) -> str:
    set_up = ", ".join(f"{trips} round trips over {protocol}" for protocol, trips in _round_trips())
    lines = [
        "The unit is a run: one cell in one block. Each block runs every cell once, in random order from the seed, and "
        "what is compared is compared within blocks.",
        "A run that failed, was cut off, or delivered wrong bytes has no figure. It is a row with a status, and counts "
        "as the worst in claims of its own.",
        "The bound is the least time in which the paths could have moved the bytes: payload rates, set-up "
        f"({set_up}), slow start. It is the same for every tool.",
        "Rates are in bits per second with decimal prefixes; a GB has 10⁹ bytes.",
        f"A claim holds when the worse end of the {100 * scenario.analysis.confidence:g} % interval does. Intervals of "
        "claims are by order statistics and assume no distribution.",
    ]
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"


def _round_trips() -> list[tuple[str, int]]:
    return [(protocol, bound.ROUND_TRIPS[protocol]) for protocol in ("https", "root")]


# --- HTML -------------------------------------------------------------------------------------------------


class Raw(str):
    """HTML that was made here. Any other text is escaped."""

    __slots__ = ()


def _text(value: Any) -> str:
    return str(value) if isinstance(value, Raw) else html.escape(str(value), quote=True)


def _table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numbers: set[int] | None = None,
    texts: set[int] | None = None,
    labels: set[int] | None = None,
) -> str:
    """A table whose columns have heads that readers aloud tell with each cell. `numbers` are set to the right, `texts`
    are as wide as sentences need, `labels` stay in one line."""
    of = ((numbers, "n"), (texts, "t"), (labels, "l"))
    classes = {index: f" class={name}" for columns, name in of for index in columns or ()}

    def cells(tag: str, values: Sequence[Any], more: str = "") -> str:
        return "".join(
            f"<{tag}{more}{classes.get(index, '')}>{_text('' if value is None else value)}</{tag}>"
            for index, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    label = _text(f"Table: {', '.join(filter(None, heads[:3]))} …")
    return (
        f'<div class=wide role=region tabindex=0 aria-label="{label}"><table>'
        f"<thead><tr>{cells('th', heads, ' scope=col')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _definitions(facts: Sequence[tuple[str, Any]]) -> str:
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts) + "</dl>"


def _mark(verdict: str, sign: str = "") -> Raw:
    """A verdict in words, with a sign and a colour that say the same."""
    return Raw(f'<span class="verdict {_slug(verdict)}">{_text(f"{sign} {verdict}".strip())}</span>')


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner is not None)
    return str(value)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else seconds_text(seconds) if seconds else "0"


def _rate(rate_bits_per_s: float | None) -> str:
    return "" if rate_bits_per_s is None else rate_text(rate_bits_per_s)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:199] + "…"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z]+", "-", text.lower())


def _by_count(item: tuple[tuple[Any, str, str], int]) -> tuple[int, str, str, str]:
    (tool, status, reason), count = item
    return -count, str(tool), status, reason


CSS = """
:root{color-scheme:light;--ink:#1a1a1a;--dim:#666;--line:#ddd;--soft:#f6f6f4}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem;max-width:78rem;color:var(--ink);background:#fff;
font:15px/1.5 system-ui,"DejaVu Sans",Verdana,sans-serif}
h1{font-size:1.7rem;margin:0}h2{font-size:1.2rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line)}
.question{font-size:1.1rem;color:var(--dim);margin:.2rem 0 1rem}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:1rem 0 0}
a{color:#0059a0}
figure{margin:1.2rem 0 2rem;break-inside:avoid}
figure svg{display:block;max-width:100%;height:auto;width:60rem}
figcaption{max-width:60rem;color:#333;font-size:.88rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.83rem;margin:.6rem 0 1.2rem}
th,td{padding:.28rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{background:var(--soft);font-weight:600;white-space:nowrap}
td.t{min-width:15rem}td.l{white-space:nowrap}
.absent{color:#333;font-size:.88rem;margin:1rem 0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.4rem 0;font-size:.9rem}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
dd dl{margin:0}
code{font:.85em/1.4 "DejaVu Sans Mono",Consolas,monospace;overflow-wrap:anywhere}
small{color:#555;font-size:.92em;line-height:1.35}
.warning{border-left:4px solid #d55e00;background:#fdf3ec;padding:.5rem .8rem;margin:.6rem 0}
.verdict{white-space:nowrap;font-weight:600;padding:.05rem .4rem;border-radius:.2rem;background:#eee}
.verdict.holds,.verdict.ok{background:#d9efe7;color:#00523c}
.verdict.does-not-hold,.verdict.void{background:#fbe0d2;color:#8a3200}
@media (max-width:40rem){figure svg{width:42rem;max-width:none}
body{padding:.8rem}dl{grid-template-columns:1fr}dd{margin:0 0 .4rem}}
@page{size:A4 landscape;margin:12mm}
@media print{nav{display:none}body{padding:0;max-width:none;font-size:11px}.wide{overflow:visible}
table{font-size:.72rem}th,td,td.n,th.n,td.l{white-space:normal;padding:.15rem .3rem}td.t{min-width:9rem}
thead{display:table-header-group}tr{break-inside:avoid}h2{break-after:avoid}
figure svg{max-height:150mm;width:auto;max-width:100%}}
""".strip()
