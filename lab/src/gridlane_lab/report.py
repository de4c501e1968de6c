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
from gridlane_lab.record import ClaimRow, Results, Status, read_results, write_whole
from gridlane_lab.scenario import Scenario
from gridlane_lab.sheet import level_label
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
    drawn = [figures.draw(spec, scenario, results) for spec in figures_of(scenario, results)]
    target = directory / "report"
    target.mkdir(exist_ok=True)
    for figure in drawn:
        if isinstance(figure, figures.Drawn):
            figures.write(figure, target / "figures")
    page = target / "index.html"
    write_whole(page, page_of(scenario, results, drawn).encode())
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


def figures_of(scenario: Scenario, results: Results) -> list[Any]:
    """The figures that a scenario names, or the usual ones."""
    return list(scenario.analysis.figure) or figures.default_figures(scenario, analysis.observations(results, scenario))


def claim_rows(scenario: Scenario, results: Results) -> list[ClaimRow]:
    """The claims as they are judged from the rows."""
    experiment = results["experiment"]
    experiment_id = str(experiment["experiment_id"][0]) if experiment.height else ""
    return claims.evaluate(scenario, analysis.observations(results, scenario), experiment_id)


def page_of(scenario: Scenario, results: Results, drawn: Sequence[figures.Drawn | figures.NotDrawn]) -> str:
    """The whole page."""
    observed = analysis.observations(results, scenario)
    response = scenario.analysis.response
    cells = analysis.summaries(
        observed, response, seed=scenario.analysis.bootstrap_seed, confidence=scenario.analysis.confidence
    )
    experiment = results["experiment"].to_dicts()
    first = experiment[0] if experiment else {}
    sections = [
        ("claims", "Claims", _claims(scenario, claim_rows(scenario, results))),
        ("figures", "Figures", _figures(drawn)),
        ("cells", f"Cells: {RESPONSES[response].title}", _cells(scenario, cells, observed, response)),
        ("normality", "Shapiro–Wilk", _normality(cells)),
        *([("same", "The same twice", same)] if (same := _same_twice(scenario, observed)) else []),
        ("failures", "Failures", _failures(results, observed)),
        ("paths", "Path checks", _paths(results)),
        ("environment", "Environment", _environment(results)),
        ("commands", "Commands", _commands(results)),
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
    published = {claim.name: claim.published for claim in scenario.analysis.claim if claim.published}
    table = []
    for row in rows:
        info = RESPONSES[row.response]
        low, high = published.get(row.claim, (None, None))
        table.append(
            [
                _mark(row.verdict, VERDICT_MARKS[row.verdict]),
                Raw(
                    f"{_text(row.statement)}<br>"
                    f"<small>{_text(row.claim)}: {_text(row.kind)}, {_text(info.title)}</small>"
                ),
                _target(row),
                _claim_number(row, row.estimate),
                _interval(_claim_number(row, row.low), _claim_number(row, row.high)),
                _interval(_claim_number(row, low), _claim_number(row, high)),
                row.blocks,
                row.failed_rows or "",
                _p(row.p_value_holm),
                _number(row.effect_cliffs_delta, 2),
                row.reason,
            ]
        )
    heads = ["verdict", "statement", "target", "estimate", "interval", "published", "blocks", "failed", "p (Holm)"]
    return _table([*heads, "Cliff's δ", ""], table, numbers=set(range(2, 10)))


def _figures(drawn: Sequence[figures.Drawn | figures.NotDrawn]) -> str:
    parts = []
    for figure in drawn:
        title = _text(figure.title)
        if isinstance(figure, figures.NotDrawn):
            parts.append(
                f'<figure id="figure-{figure.name}"><p class=warning>{title}: {_text(figure.reason)}.</p></figure>'
            )
            continue
        data = base64.b64encode(figure.csv.encode()).decode()
        parts.append(
            f'<figure id="figure-{figure.name}">{_inline(figure)}'
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
    svg = re.sub(r'\bid="([^"]+)"', lambda found: f'id="{prefix}{found[1]}"', svg)
    svg = re.sub(r'(xlink:href="|url\()#', lambda found: f"{found[1]}#{prefix}", svg)
    label = html.escape(f"{figure.title}. {figure.caption}", quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _cells(scenario: Scenario, cells: Sequence[CellSummary], observed: Sequence[Observation], response: str) -> str:
    info = RESPONSES[response]
    factors = analysis.varying_factors(observed) or ["tool"]
    rows = []
    tools = [tool.name for tool in scenario.tool]

    def order(cell: CellSummary) -> list[tuple[int, float, str]]:
        """As the file has its tools, and by level."""
        return [
            (0, float(tools.index(str(level))), "") if name == "tool" else level_order(level)
            for name, level in ((name, cell.levels[name]) for name in factors)
        ]

    for cell in sorted(cells, key=order):
        described = cell.description
        levels: list[Any] = [level_label(name, cell.levels[name]) for name in factors]

        def number(value: float | None) -> str:
            return _number(None if value is None else value * info.scale)

        if described is None:
            rows.append([*levels, 0, cell.failed, *[""] * 7, ", ".join(cell.statuses)])
            continue
        mean = ""
        is_enough = described.n >= statistics.CLAIM_BLOCKS_MIN
        if is_enough and cell.normality.leads_with_mean and described.sd is not None:
            mean = f"{number(described.mean)} ± {number(described.sd)}"
        exact, interval = cell.exact_interval, cell.interval
        rows.append(
            [
                *levels,
                described.n,
                cell.failed or "",
                Raw(f"<b>{number(described.median)}</b>"),
                _interval(number(described.q1), number(described.q3)),
                _interval(number(described.minimum), number(described.maximum)),
                _interval(number(interval.low), number(interval.high)) if interval and exact else "",
                _interval(number(exact.low), number(exact.high)) if exact else "",
                mean,
                "" if interval is None or exact is None else interval.method,
                ", ".join(f"{count} {status}" for status, count in cell.statuses.items() if status != "ok"),
            ]
        )
    confidence = f"{100 * scenario.analysis.confidence:g} %"
    heads = [
        *(name.replace("_", " ") for name in factors),
        "n",
        "failed",
        "median",
        "quartiles",
        "range",
        f"{confidence} bootstrap",
        f"{confidence} order",
        "mean ± SD",
        "method",
        "",
    ]
    unit = f" in {info.unit}" if info.unit else ""
    note = (
        f"<p>{_text(info.title.capitalize())}{_text(unit)}, one value for each block. Mean ± SD stands where "
        "Shapiro–Wilk, after Holm over all cells, does not reject a normal distribution. Intervals are of the median, "
        "and given from "
        f"{statistics.CLAIM_BLOCKS_MIN} blocks on.</p>"
    )
    return note + _table(heads, rows, numbers=set(range(len(factors), len(factors) + 8)))


def _normality(cells: Sequence[CellSummary]) -> str:
    rows = []
    for cell in cells:
        test = cell.normality
        verdict = {True: "rejected", False: "not rejected", None: "not tested"}[test.is_rejected]
        rows.append([cell.key, test.n, _number(test.w, 4), _p(test.p), _p(test.p_holm), verdict, test.note])
    note = (
        "<p>A test of few values misses most of what is not normal, and one of many rejects trifles: W and the "
        "quantile plot say more than p. p (Holm) is over all cells of this table.</p>"
    )
    return note + _table(["cell", "n", "W", "p", "p (Holm)", "normal", ""], rows, numbers={1, 2, 3, 4})


def _same_twice(scenario: Scenario, observed: Sequence[Observation]) -> str:
    """A/A: nothing where the scenario has no variant twice."""
    rows = [
        [
            f"{one.first} over {one.second}",
            one.gate,
            one.blocks,
            _number(one.ratio, 3),
            _interval(_number(one.interval.low, 3), _number(one.interval.high, 3)),
            "a difference" if one.is_alarm else "none",
            _number(100 * one.false_alarms.rate, 1),
            _interval(
                _number(100 * one.false_alarms.interval.low, 1), _number(100 * one.false_alarms.interval.high, 1)
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
                [tool[0], good, group.height, _number(100 * good / group.height, 1),
                 _interval(_number(100 * interval.low, 1), _number(100 * interval.high, 1))]
            )  # fmt: skip
    heads = ["tool", "succeeded", "transfers", "%", "95 % (Wilson)"]
    return (
        _table(["tool", "status", "reason", "runs"], rows, numbers={3})
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
                _number(check["loss_ratio"]),
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
        "",
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


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], numbers: set[int] | None = None) -> str:
    numbers = numbers or set()

    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index in numbers else ''}>{_text('' if value is None else value)}</{tag}>"
            for index, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table></div>"


def _definitions(facts: Sequence[tuple[str, Any]]) -> str:
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts) + "</dl>"


def _mark(verdict: str, sign: str = "") -> Raw:
    """A verdict in words, with a sign and a colour that say the same."""
    return Raw(f'<span class="verdict {_slug(verdict)}">{_text(f"{sign} {verdict}".strip())}</span>')


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner is not None)
    return str(value)


def _number(value: float | None, digits: int | None = None) -> str:
    if value is None:
        return ""
    if digits is not None:
        return f"{value:.{digits}f}"
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}" if size < 100 else f"{value:.4g}"


def _claim_number(row: ClaimRow, value: float | None) -> str:
    if value is None:
        return ""
    if row.kind in ("ratio", "equivalent", "never_above_capacity", "bound_fraction", "success"):
        return _number(value, 3)
    info = RESPONSES[row.response]
    return f"{_number(value * info.scale)} {info.unit}".strip()


def _target(row: ClaimRow) -> str:
    if row.kind == "equivalent" and row.most:
        return f"{1 / row.most:.3g} … {row.most:.3g}"
    if row.kind == "never_above_capacity":
        return "≤ 1"
    parts = []
    if row.least is not None:
        parts.append(f"≥ {_claim_number(row, row.least)}")
    if row.most is not None:
        parts.append(f"≤ {_claim_number(row, row.most)}")
    return ", ".join(parts)


def _interval(low: str, high: str) -> str:
    return f"{low} – {high}" if low and high else ""


def _p(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


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
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.4rem 0;font-size:.9rem}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
dd dl{margin:0}
code{font:.85em/1.4 "DejaVu Sans Mono",Consolas,monospace;overflow-wrap:anywhere}
small{color:var(--dim)}
.warning{border-left:4px solid #d55e00;background:#fdf3ec;padding:.5rem .8rem;margin:.6rem 0}
.verdict{white-space:nowrap;font-weight:600;padding:.05rem .4rem;border-radius:.2rem;background:#eee}
.verdict.holds,.verdict.ok{background:#d9efe7;color:#00523c}
.verdict.does-not-hold,.verdict.void{background:#fbe0d2;color:#8a3200}
@media print{nav{display:none}body{padding:0;max-width:none}.wide{overflow:visible}}
""".strip()
