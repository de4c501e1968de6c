"""Claims, judged from observations alone.

    ratio                 variant over baseline in the same block (median)
    difference            variant less baseline in the same block, in the unit of the response (median)
    median                of the variant
    bound_fraction        part of the bound that the variant reaches (median)
    equivalent            the geometric mean ratio lies within 1/most … most, by two one-sided tests
    success               part of the transfers that succeed (Wilson)
    never_above_capacity  no run moves more than the paths carry in its time: a check of the measurement itself

Where a pattern matches several cells, variant and baseline are paired by block and by all factors that neither pattern
names, and a block counts once, with the geometric mean over its pairs. A factor in which the two have no level in
common follows from the patterns (a tool that speaks one protocol) and pairs nothing; the row says which these were.

A claim holds when the worse end of the 95 % interval does, by order statistics: nothing is assumed of the
distribution. It does not hold when the whole interval is on the wrong side, and is undecided between. A run of the
variant that failed counts as the worst that can be (no rate, endless time), so that failing is never an advantage;
one of the baseline leaves its pair out. Fewer than six blocks: points only, without interval, p or
effect size. One run above capacity is a contradiction, however few there are.

Tools of a scenario that differ in nothing but their names are the same variant twice (A/A): `calibrate` says what the
gates find between them, and how often they would be wrong with data like these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, inf, isfinite, log
from statistics import median

from gridlane_lab import statistics
from gridlane_lab.analysis import RESPONSES, Observation, select
from gridlane_lab.matrix import matches
from gridlane_lab.ranks import interval_ranks
from gridlane_lab.record import ClaimRow, Status
from gridlane_lab.scenario import Analysis, Claim, Level, Levels, Scenario

# Rounding of clocks and counters: so much more than the capacity is no contradiction.
CAPACITY_TOLERANCE = 0.005

# Each of the trials of a calibration draws so many times.
CALIBRATION_RESAMPLES = 999

HOLDS, FAILS, UNDECIDED, POINTS, NOT_MEASURED = "holds", "does not hold", "undecided", "points only", "not measured"


def evaluate(scenario: Scenario, observations: Sequence[Observation], experiment_id: str) -> list[ClaimRow]:
    """All claims of a scenario, with Holm over those that have a test. A run that did not begin says nothing."""
    begun = [one for one in observations if one.status is not Status.NOT_RUN]
    rows = [_judge(claim, scenario, begun, experiment_id) for claim in scenario.analysis.claim]
    adjusted = statistics.holm([row.p_value for row in rows])
    return [replace(row, p_value_holm=p) for row, p in zip(rows, adjusted, strict=True)]


@dataclass(frozen=True)
class Calibration:
    """What one gate says of the same variant run twice."""

    # Names of the two tools, and of the gate.
    first: str
    second: str
    gate: str
    # Blocks in which both have a value.
    blocks: int
    # First over second in the same block: the median for `claims`, the geometric mean for `figures`.
    ratio: float
    interval: statistics.Interval
    # Of data like these with the sides drawn by lot: whatever is found there is not so.
    false_alarms: statistics.FalseAlarms

    @property
    def is_alarm(self) -> bool:
        """Whether the gate finds a difference, which there is not."""
        return _excludes_one(self.interval)


def calibrate(scenario: Scenario, observations: Sequence[Observation]) -> list[Calibration]:
    """Both gates on all pairs of tools that differ by their names alone, where they share six blocks or more."""
    found: list[Calibration] = []
    settings = scenario.analysis
    for one, other in combinations(scenario.tool, 2):
        if one.model_copy(update={"name": other.name}) != other:
            continue
        sides = [select(observations, {"tool": tool.name}) for tool in (one, other)]
        first, second, _ = pair_by_block(sides[0], sides[1], {"tool"}, settings.response)
        usable = {block: value for block, value in first.items() if 0 < value < inf}
        for gate, judge in _GATES.items():
            judged = judge(usable, second, settings)
            if judged is None:
                continue
            alarms = statistics.false_alarms(usable, second, _alarm_of(judge, settings), seed=settings.bootstrap_seed)
            if alarms is not None:
                found.append(Calibration(one.name, other.name, gate, len(usable), *judged, alarms))
    return found


@dataclass(frozen=True)
class Compared:
    """A variant beside the baseline, paired by block."""

    # Of its first run: those of the factors by which it was told apart hold for all.
    levels: Levels
    paired: statistics.Paired
    # Runs of the variant without a figure.
    failed: int
    # Wilcoxon's p after Holm over all comparisons of the family; None with fewer than six blocks.
    p_holm: float | None
    # Factors by which nothing is paired, since the baseline has no such level.
    implied: list[str]
    # Against the smallest ratio of interest: `equivalent`, `different`, `undecided` or `points only`.
    verdict: str


def comparisons(
    observations: Sequence[Observation], settings: Analysis, response: str, by: Sequence[str]
) -> list[Compared]:
    """All variants beside `baseline`, told apart by its factors and by those of `by`. One family of tests."""
    baseline = settings.baseline or {}
    base, keys = select(observations, baseline), set(baseline)
    variants: dict[tuple[object, ...], list[Observation]] = {}
    for one in observations:
        if not matches(baseline, one.levels):
            variants.setdefault(tuple(one.level(name) for name in (*sorted(keys), *by)), []).append(one)
    found = []
    for of_variant in variants.values():
        first, second, failed = pair_by_block(of_variant, base, keys, response)
        usable = {block: value for block, value in first.items() if 0 < value < inf}
        paired = statistics.paired(usable, second, seed=settings.bootstrap_seed, confidence=settings.confidence)
        verdict, _ = statistics.equivalence(paired, settings.smallest_ratio_of_interest, seed=settings.bootstrap_seed)
        if verdict == "equivalent" and failed:
            # Failing is a difference, though none of speed.
            verdict = UNDECIDED
        implied = sorted(implied_factors(of_variant, base, keys))
        found.append(Compared(of_variant[0].levels, paired, failed, None, implied, verdict))
    adjusted = statistics.holm([one.paired.wilcoxon_p if one.paired.is_claimable else None for one in found])
    return [replace(one, p_holm=p) for one, p in zip(found, adjusted, strict=True)]


Judge = Callable[[Mapping[int, float], Mapping[int, float], Analysis], tuple[float, statistics.Interval] | None]


def _claims_gate(
    first: Mapping[int, float], second: Mapping[int, float], settings: Analysis
) -> tuple[float, statistics.Interval] | None:
    """That of `ratio`: the interval of the median by order statistics."""
    ratios = [first[block] / second[block] for block in first]
    interval = statistics.order_interval(ratios, confidence=settings.confidence)
    return None if interval is None else (median(ratios), interval)


def _figures_gate(
    first: Mapping[int, float], second: Mapping[int, float], settings: Analysis
) -> tuple[float, statistics.Interval] | None:
    """That of `equivalent` and of forest plots: the interval of the geometric mean by resampling."""
    found = statistics.paired(
        first, second, seed=settings.bootstrap_seed, confidence=settings.confidence, resamples=CALIBRATION_RESAMPLES
    )
    if not found.is_claimable or found.interval is None or found.geometric_mean is None:
        return None
    return found.geometric_mean, found.interval


_GATES: dict[str, Judge] = {"claims": _claims_gate, "figures": _figures_gate}


def _alarm_of(judge: Judge, settings: Analysis) -> Callable[[Mapping[int, float], Mapping[int, float]], bool]:
    def alarm(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
        judged = judge(first, second, settings)
        return judged is not None and _excludes_one(judged[1])

    return alarm


def _excludes_one(interval: statistics.Interval) -> bool:
    return interval.low > 1 or interval.high < 1


def pair_by_block(
    variant: Sequence[Observation], baseline: Sequence[Observation], claim_factors: set[str], response: str
) -> tuple[dict[int, float], dict[int, float], int]:
    """Block → value of both sides, over the pairs that both have; and how many runs of the variant had none.

    Several pairs of a block give their geometric means. Where several runs of the baseline make one pair, the best of
    them counts: so a variant is compared with the best of several tools, block by block. A run of the variant that
    failed gives the worst value.
    """
    worst = inf if RESPONSES[response].is_less_better else 0.0
    claim_factors = claim_factors | implied_factors(variant, baseline, claim_factors)
    others: dict[tuple[int, tuple[tuple[str, object], ...]], float] = {}
    for one in baseline:
        value = one.value(response)
        if value is not None and value > 0:
            pair = _pair_key(one, claim_factors)
            others[pair] = _better(response, others.get(pair, value), value)
    firsts: dict[int, list[float]] = {}
    seconds: dict[int, list[float]] = {}
    failed = 0
    for one in variant:
        key = _pair_key(one, claim_factors)
        value = one.value(response)
        failed += value is None
        if key in others and one.status not in (Status.NOT_AVAILABLE, Status.NOT_RUN):
            firsts.setdefault(one.block, []).append(worst if value is None else value)
            seconds.setdefault(one.block, []).append(others[key])
    return (
        {block: _geometric_mean(values) for block, values in firsts.items()},
        {block: _geometric_mean(values) for block, values in seconds.items()},
        failed,
    )


def implied_factors(
    variant: Sequence[Observation], baseline: Sequence[Observation], claim_factors: set[str]
) -> set[str]:
    """Factors that no pattern names and in which variant and baseline have no level in common."""
    levels: list[dict[str, set[Level]]] = [{}, {}]
    for found, side in zip(levels, (variant, baseline), strict=True):
        for one in side:
            for name, level in one.levels.items():
                found.setdefault(name, set()).add(level)
    first, second = levels
    shared = set(first) & set(second) - claim_factors
    return {name for name in shared if not first[name] & second[name]}


def _pair_key(one: Observation, claim_factors: set[str]) -> tuple[int, tuple[tuple[str, object], ...]]:
    return one.block, tuple(sorted((name, level) for name, level in one.levels.items() if name not in claim_factors))


def _better(response: str, one: float, other: float) -> float:
    return min(one, other) if RESPONSES[response].is_less_better else max(one, other)


def _geometric_mean(values: Sequence[float]) -> float:
    if any(value == 0 for value in values):
        return 0.0
    return inf if inf in values else exp(sum(map(log, values)) / len(values))


def _judge(claim: Claim, scenario: Scenario, observations: Sequence[Observation], experiment_id: str) -> ClaimRow:
    response = claim.response or ("bound_fraction" if claim.kind == "bound_fraction" else scenario.analysis.response)
    variant = select(observations, claim.variant)
    baseline = select(observations, claim.baseline) if claim.baseline is not None else []
    row = ClaimRow(
        claim=claim.name,
        experiment_id=experiment_id,
        statement=claim.statement,
        kind=claim.kind,
        response=response,
        estimate=None,
        low=None,
        high=None,
        least=claim.least,
        most=claim.most,
        blocks=len({one.block for one in variant}),
        rows=len(variant) + len(baseline),
        failed_rows=sum(not one.status.is_success for one in variant),
        p_value=None,
        p_value_holm=None,
        effect_cliffs_delta=None,
        verdict=NOT_MEASURED,
        reason="",
        query_json=json.dumps({"variant": claim.variant, "baseline": claim.baseline, "response": response}),
    )
    if not any(one.status is not Status.NOT_AVAILABLE for one in variant):
        why = variant[0].reason if variant else "no run matches the variant"
        return replace(row, reason=why or "the tool is not available")
    if claim.kind == "never_above_capacity":
        return _capacity(row, variant)
    if claim.kind == "success":
        return _success(row, claim, variant, scenario.analysis.confidence)
    if without := sum(one.value(response) is None for one in variant):
        row = replace(row, reason=f"{without} runs of the variant failed, and count as the worst")
    elif row.failed_rows:
        row = replace(row, reason=f"{row.failed_rows} runs count without their transfers that failed")
    if claim.kind in ("ratio", "difference", "equivalent"):
        return _compared(row, claim, scenario, variant, baseline, response)
    worst = inf if RESPONSES[response].is_less_better else 0.0
    by_block: dict[int, list[float]] = {}
    for one in variant:
        value = one.value(response)
        by_block.setdefault(one.block, []).append(worst if value is None else value)
    return _decided(row, claim, {block: median(values) for block, values in by_block.items()}, scenario)


def _compared(
    row: ClaimRow,
    claim: Claim,
    scenario: Scenario,
    variant: Sequence[Observation],
    baseline: Sequence[Observation],
    response: str,
) -> ClaimRow:
    factors = {*claim.variant, *(claim.baseline or {})}
    first, second, _ = pair_by_block(variant, baseline, factors, response)
    if not first:
        return replace(row, blocks=0, reason="no block has figures of the baseline")
    implied = ", ".join(name.replace("_", " ") for name in sorted(implied_factors(variant, baseline, factors)))
    row = replace(row, reason=_because(row.reason, f"the two differ in {implied} as well" if implied else ""))
    seed = scenario.analysis.bootstrap_seed
    finite = {block: value for block, value in first.items() if 0 < value < inf}
    comparison = statistics.paired(finite, second, seed=seed, confidence=scenario.analysis.confidence)
    if len(first) >= statistics.CLAIM_BLOCKS_MIN:
        row = replace(row, p_value=comparison.wilcoxon_p, effect_cliffs_delta=comparison.cliffs_delta)
    if claim.kind == "equivalent":
        verdict, interval = statistics.equivalence(comparison, claim.most or 1.0, seed=seed)
        words = {"equivalent": HOLDS, "different": FAILS, "undecided": UNDECIDED, "points only": POINTS}
        verdict = words[verdict]
        failures = len(first) - len(finite)
        if failures and verdict == HOLDS:
            verdict = UNDECIDED
        return replace(
            row,
            blocks=len(first),
            estimate=comparison.geometric_mean if comparison.is_claimable else None,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            verdict=verdict,
            reason=_because(
                _few(len(first), comparison.ratios.values()),
                f"interval of {100 - 200 * statistics.EQUIVALENCE_ALPHA:g} %, for two one-sided tests"
                if interval
                else "",
                row.reason,
            ),
        )
    if claim.kind == "ratio":
        values = {block: first[block] / second[block] for block in first}
    else:
        values = {block: first[block] - second[block] for block in first}
    return _decided(row, claim, values, scenario)


def _decided(row: ClaimRow, claim: Claim, values: Mapping[int, float], scenario: Scenario) -> ClaimRow:
    """The verdict on one value for each block; infinite ones are failures."""
    ordered = sorted(values.values())
    ranks = interval_ranks(len(ordered), confidence=scenario.analysis.confidence)
    low, high = (ordered[ranks[0] - 1], ordered[ranks[1] - 1]) if ranks else (inf, inf)
    if ranks is None:
        verdict = POINTS
    elif (claim.least is None or low >= claim.least) and (claim.most is None or high <= claim.most):
        verdict = HOLDS
    elif (claim.least is not None and high < claim.least) or (claim.most is not None and low > claim.most):
        verdict = FAILS
    else:
        verdict = UNDECIDED
    scale = 1.0 if claim.kind in ("ratio", "bound_fraction") else RESPONSES[row.response].scale
    reason = _because(
        _few(len(ordered), [value * scale for value in ordered]),
        row.reason,
    )
    estimate = median(ordered)
    return replace(
        row,
        blocks=len(ordered),
        estimate=None if ranks is None else _finite(estimate),
        low=_finite(low),
        high=_finite(high),
        verdict=verdict,
        reason=reason,
    )


def _success(row: ClaimRow, claim: Claim, variant: Sequence[Observation], confidence: float) -> ClaimRow:
    trials = sum(one.transfers for one in variant)
    successes = sum(one.successes for one in variant)
    interval = statistics.wilson(successes, trials, confidence)
    if interval is None:
        return replace(row, reason="no transfers")
    least, most = claim.least, claim.most
    if (least is None or interval.low >= least) and (most is None or interval.high <= most):
        verdict = HOLDS
    elif (least is not None and interval.high < least) or (most is not None and interval.low > most):
        verdict = FAILS
    else:
        verdict = UNDECIDED
    reason = f"{successes} of {trials} transfers succeeded"
    if row.blocks < statistics.CLAIM_BLOCKS_MIN:
        # Transfers of one block share its troubles: however many they are, they are few.
        return replace(row, verdict=POINTS, reason=_because(reason, _few(row.blocks)))
    return replace(
        row, estimate=successes / trials, low=interval.low, high=interval.high, verdict=verdict, reason=reason
    )


def _capacity(row: ClaimRow, variant: Sequence[Observation]) -> ClaimRow:
    """The largest rate over capacity of all runs, with set-up in its time."""
    ratios = {
        one.run_id: rate / one.capacity_bits_per_s
        for one in variant
        if (rate := one.value("total_rate_bits_per_s")) is not None and one.capacity_bits_per_s
    }
    if not ratios:
        return replace(row, reason="no run has both a rate and a capacity")
    worst = max(ratios, key=lambda run_id: ratios[run_id])
    if ratios[worst] > 1 + CAPACITY_TOLERANCE:
        return replace(row, estimate=ratios[worst], verdict=FAILS, reason=f"run {worst}")
    verdict = HOLDS if row.blocks >= statistics.CLAIM_BLOCKS_MIN else POINTS
    reason = _because(f"largest of {len(ratios)} runs", _few(row.blocks))
    return replace(row, estimate=ratios[worst], verdict=verdict, reason=reason)


def _few(blocks: int, points: Iterable[float] = ()) -> str:
    """That there are too few blocks, with all that there is: the points."""
    least = statistics.CLAIM_BLOCKS_MIN
    if blocks >= least:
        return ""
    shown = ", ".join("failed" if point in (0, inf) else f"{point:.4g}" for point in points)
    return f"{blocks} of the {least} blocks that a claim needs" + (f": {shown}" if shown else "")


def _because(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
