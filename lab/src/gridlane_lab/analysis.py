"""From rows to observations: one for each cell and block, with its responses. Reports are computed of nothing else.

A run with transfers that failed has no response, unless the scenario says that the verified part counts
(`count_partial`). Blocks of warm-up are no observations.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

import polars as pl

from gridlane_lab import statistics
from gridlane_lab.matrix import level_text, matches
from gridlane_lab.record import Results, Status
from gridlane_lab.scenario import Level, Levels, Pattern, Scenario

# The beginning of a run, in which rates grow. Its samples are each a moment late.
RAMP_S, _CLOCK_S = 2.0, 0.1


@dataclass(frozen=True)
class ResponseInfo:
    """How a response is called and drawn: values are multiplied by `scale` for the unit."""

    title: str
    unit: str
    scale: float
    is_less_better: bool


RESPONSES: dict[str, ResponseInfo] = {
    "goodput_bits_per_s": ResponseInfo("goodput", "Mb/s", 1e-6, False),
    "total_rate_bits_per_s": ResponseInfo("rate, set-up included", "Mb/s", 1e-6, False),
    "wall_s": ResponseInfo("wall time", "s", 1.0, True),
    "transfer_s": ResponseInfo("transfer time", "s", 1.0, True),
    "rate_variation": ResponseInfo("variation of the rate from second to second", "%", 100.0, True),
    "connections": ResponseInfo("connections", "", 1.0, True),
    "wire_bytes_ratio": ResponseInfo("bytes of packets over bytes that arrived", "", 1.0, True),
    "events_per_s": ResponseInfo("events", "events/s", 1.0, False),
    "cpu_s_per_gb": ResponseInfo("CPU of both sides", "CPU-s/GB", 1.0, True),
    "client_cpu_s_per_gb": ResponseInfo("CPU of the client", "CPU-s/GB", 1.0, True),
    "server_cpu_s_per_gb": ResponseInfo("CPU of the servers", "CPU-s/GB", 1.0, True),
    "cpu_efficiency": ResponseInfo("CPU efficiency", "%", 100.0, False),
    "bound_fraction": ResponseInfo("part of the bound", "%", 100.0, False),
    "bytes_moved_ratio": ResponseInfo("bytes moved over bytes asked for", "", 1.0, True),
    "bytes_sent_ratio": ResponseInfo("bytes sent by the sites over bytes that arrived", "", 1.0, True),
}


@dataclass(frozen=True)
class Observation:
    """One run: a cell in a block."""

    run_id: str
    block: int
    cell_key: str
    levels: Levels
    status: Status
    reason: str
    responses: dict[str, float | None]
    transfers: int
    successes: int
    # Of a run that was cut off: the time that the whole would have taken at the pace until then.
    extrapolated_s: float | None
    # And when it was cut off.
    cut_off_s: float | None
    bound_s: float | None
    capacity_bits_per_s: float | None
    round_trip_s: float | None
    source_site: str | None
    target_site: str | None

    def value(self, response: str) -> float | None:
        """A response; None where there is none."""
        return self.responses.get(response)

    def level(self, name: str) -> Level:
        """A factor's level, or the block, the source, the target, or the round trip between them."""
        if name == "block":
            return self.block
        if name == "path_round_trip_ms":
            return round((self.round_trip_s or 0.0) * 1e3, 3)
        if name in ("source", "target"):
            return (self.source_site if name == "source" else self.target_site) or "?"
        return self.levels.get(name, "")


@dataclass(frozen=True)
class CellSummary:
    """What is said of one cell and one response."""

    key: str
    levels: Levels
    blocks: int
    values: dict[int, float]
    statuses: Counter[str]
    description: statistics.Description | None
    normality: statistics.Normality
    # Of the median: by bootstrap, and by order statistics where there are blocks enough.
    interval: statistics.Interval | None
    exact_interval: statistics.Interval | None
    # Of the mean, by Student's t.
    mean_interval: statistics.Interval | None
    # Over the blocks.
    trend: statistics.Trend
    # Runs that were cut off, after so long, and how long they would have taken: censored, in none of the above.
    cut_off_s: list[float] = field(default_factory=list)
    extrapolated_s: list[float] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Runs without a figure."""
        return sum(count for status, count in self.statuses.items() if not Status(status).is_success)


def observations(results: Results, scenario: Scenario) -> list[Observation]:
    """All runs of a result in the order in which they ran."""
    return list(_observations(results, scenario.analysis.count_partial))


# Each figure and table of a report begins with them.
@functools.lru_cache(maxsize=1)
def _observations(results: Results, count_partial: bool) -> tuple[Observation, ...]:
    transfers: dict[str, list[dict[str, Any]]] = {}
    for row in results["transfer"].iter_rows(named=True):
        transfers.setdefault(row["run_id"], []).append(row)
    runs = results["run"].filter(pl.col("block") >= 0).sort("block", "order_in_block")
    rates = _rates_by_interval(results)
    return tuple(
        _observation(
            {**run, "rate_variation": variation(rates.get(run["run_id"], {}))},
            transfers.get(run["run_id"], []),
            count_partial,
        )
        for run in runs.iter_rows(named=True)
    )


def _rates_by_interval(results: Results) -> dict[str, dict[float, float]]:
    """Run → beginning of an interval → bytes per second in it, of all sites together."""
    found: dict[str, dict[float, float]] = {}
    wanted = results["sample"].filter(pl.col("bytes_moved").is_not_null() & (pl.col("interval_s") > 0))
    for run_id, t_s, interval_s, count in wanted.select("run_id", "t_s", "interval_s", "bytes_moved").iter_rows():
        rates = found.setdefault(run_id, {})
        rates[t_s - interval_s] = rates.get(t_s - interval_s, 0.0) + count / interval_s
    return found


def variation(rates: Mapping[float, float]) -> float | None:
    """How much a rate varies after its ramp-up: standard deviation over mean. None with fewer than three intervals."""
    later = [rate for begins_s, rate in rates.items() if begins_s >= RAMP_S - _CLOCK_S]
    return pstdev(later) / fmean(later) if len(later) >= 3 and any(later) else None


def select(all_observations: Iterable[Observation], pattern: Pattern) -> list[Observation]:
    """Those with the levels of a pattern."""
    return [one for one in all_observations if matches(pattern, one.levels)]


def query_of(pattern: Pattern, columns: str = "*") -> str:
    """SQL for the rows of `run` that a pattern chooses, for `gridlane-lab query`."""
    conditions = ["block >= 0"]
    for factor, wish in pattern.items():
        levels = [level_text(level) for level in (wish if isinstance(wish, list) else [wish])]
        quoted = [f"% {factor}={level} %".replace("'", "''") for level in levels]
        either = " OR ".join(f"' ' || cell_key || ' ' LIKE '{text}'" for text in quoted)
        conditions.append(f"({either})" if len(quoted) > 1 else either)
    return f"SELECT {columns} FROM run WHERE {' AND '.join(conditions)}"


def summaries(
    all_observations: Sequence[Observation], response: str, *, seed: int, confidence: float = 0.95
) -> list[CellSummary]:
    """Every cell of the observations, in the order of their keys, with Shapiro–Wilk over all of them as one family."""
    cells: dict[str, list[Observation]] = {}
    for one in all_observations:
        cells.setdefault(one.cell_key, []).append(one)
    values = {key: _values(of_cell, response) for key, of_cell in cells.items()}
    trends = statistics.trend_family({key: [found[b] for b in sorted(found)] for key, found in values.items()})
    normality = statistics.shapiro_family({key: list(found.values()) for key, found in values.items()})
    summary = []
    for key in sorted(cells, key=lambda key: _natural(cells[key][0].levels)):
        of_cell, found = cells[key], list(values[key].values())
        statuses = Counter(str(one.status) for one in of_cell)
        failures = sum(not one.status.is_success for one in of_cell)
        summary.append(
            CellSummary(
                key=key,
                levels=of_cell[0].levels,
                blocks=len({one.block for one in of_cell}),
                values=values[key],
                statuses=statuses,
                description=statistics.describe(found, failures),
                normality=normality[key],
                interval=statistics.bootstrap(found, seed=seed, confidence=confidence),
                exact_interval=statistics.order_interval(found, confidence=confidence),
                mean_interval=statistics.t_interval(found, confidence),
                trend=trends[key],
                cut_off_s=[one.cut_off_s for one in of_cell if one.cut_off_s is not None],
                extrapolated_s=[one.extrapolated_s for one in of_cell if one.extrapolated_s is not None],
            )
        )
    return summary


def varying_factors(all_observations: Sequence[Observation]) -> list[str]:
    """The factors that have more than one level among the observations, in the order of the first one's levels."""
    seen: dict[str, set[Level]] = {}
    for one in all_observations:
        for name, level in one.levels.items():
            seen.setdefault(name, set()).add(level)
    return [name for name, levels in seen.items() if len(levels) > 1]


def sorted_levels(levels: Iterable[Level]) -> list[Level]:
    """Numbers by value, then texts by name; each once."""
    return sorted(set(levels), key=level_order)


def _values(of_cell: Sequence[Observation], response: str) -> dict[int, float]:
    """Block → value."""
    found = {}
    for one in of_cell:
        value = one.value(response)
        if value is not None:
            found[one.block] = value
    return found


def level_order(level: Level) -> tuple[int, float, str]:
    """Sorts levels: numbers by value, then texts by name."""
    return (1, 0.0, level) if isinstance(level, str) else (0, float(level), "")


def _natural(levels: Levels) -> list[tuple[str, tuple[int, float, str]]]:
    return [(name, level_order(levels[name])) for name in sorted(levels, key=lambda name: (name == "tool", name))]


def _observation(run: dict[str, Any], transfers: list[dict[str, Any]], count_partial: bool) -> Observation:
    status = Status(run["status"])
    good = [row for row in transfers if Status(row["status"]).is_success]
    # A run is void as a whole, whatever its transfers say.
    is_counted = status.is_success or (count_partial and bool(good) and status is not Status.VOID)
    sites = [(row["source_site"], row["target_site"]) for row in transfers[:1]] or [(None, None)]
    return Observation(
        run_id=run["run_id"],
        block=run["block"],
        cell_key=run["cell_key"],
        levels=json.loads(run["variant_json"]),
        status=status,
        reason=run["reason"] or next((row["error"] for row in transfers if row["error"]), ""),
        responses=_responses(run, good) if is_counted and good else {},
        transfers=len(transfers),
        successes=len(good),
        extrapolated_s=_extrapolated_s(run, transfers) if status is Status.CUT_OFF else None,
        cut_off_s=run["wall_s"] if status is Status.CUT_OFF else None,
        bound_s=run["bound_s"],
        capacity_bits_per_s=run["capacity_bits_per_s"],
        round_trip_s=run["round_trip_s"],
        source_site=sites[0][0],
        target_site=sites[0][1],
    )


def _responses(run: dict[str, Any], good: list[dict[str, Any]]) -> dict[str, float | None]:
    wall_s: float | None = run["wall_s"]
    counted = sum(_counted_bytes(row) for row in good)
    gigabytes = counted / 1e9
    transfer_s = _span_s(good)
    client, server = run["client_cpu_s"], run["server_cpu_s"]
    both = None if client is None or server is None else client + server
    moved, asked = _sum(good, "bytes_moved"), _sum(good, "bytes_requested")
    return {
        "goodput_bits_per_s": _ratio(counted * 8, transfer_s),
        "total_rate_bits_per_s": _ratio(counted * 8, wall_s),
        "wall_s": wall_s,
        "transfer_s": transfer_s,
        "rate_variation": run.get("rate_variation"),
        # Runs of earlier versions of the lab have neither.
        "connections": run.get("connections"),
        "wire_bytes_ratio": _ratio(run.get("wire_bytes"), counted),
        "events_per_s": _ratio(_sum(good, "events_read"), wall_s),
        "cpu_s_per_gb": _ratio(both, gigabytes),
        "client_cpu_s_per_gb": _ratio(client, gigabytes),
        "server_cpu_s_per_gb": _ratio(server, gigabytes),
        "cpu_efficiency": _ratio(client, wall_s),
        "bound_fraction": _ratio(run["bound_s"], wall_s),
        "bytes_moved_ratio": _ratio(moved, asked),
        "bytes_sent_ratio": _ratio(run["interface_bytes"], counted),
    }


def _span_s(good: list[dict[str, Any]]) -> float | None:
    """From the first byte of the first transfer to the last byte of the last one."""
    if len(good) == 1:
        found: float | None = good[0]["transfer_s"]
        return found
    firsts = [row["started_ns"] if row["first_byte_ns"] is None else row["first_byte_ns"] for row in good]
    lasts = [row["closed_ns"] if row["last_byte_ns"] is None else row["last_byte_ns"] for row in good]
    if any(value is None for value in (*firsts, *lasts)):
        return None
    return float(max(lasts) - min(firsts)) / 1e9


def _counted_bytes(row: dict[str, Any]) -> int:
    counted = row["bytes_verified"] if Status(row["status"]) is Status.OK else row["bytes_moved"]
    return counted or 0


def _extrapolated_s(run: dict[str, Any], transfers: list[dict[str, Any]]) -> float | None:
    """Wall time over the part that was done, by events where there are any."""
    for done, whole in (("events_read", "events_requested"), ("bytes_moved", "bytes_requested")):
        was_done, was_wanted = _sum(transfers, done), _sum(transfers, whole)
        if was_done and was_wanted and run["wall_s"]:
            return float(run["wall_s"]) * was_wanted / was_done
    return None


def _sum(rows: list[dict[str, Any]], column: str) -> float | None:
    """None where one of the rows has no value: a part of a sum is no sum."""
    values = [row[column] for row in rows]
    return None if not values or any(value is None for value in values) else float(sum(values))


def _ratio(value: float | None, by: float | None) -> float | None:
    return None if value is None or not by else value / by
