"""Observations and claims from rows that are made by hand: each verdict, and that failing is never an advantage."""

from __future__ import annotations

from math import inf

import pytest
import synthetic

from gridlane_lab import analysis, claims, scenario
from gridlane_lab.analysis import Observation
from gridlane_lab.record import Status


def observed(tool, block, value, *, status=Status.OK, response="total_rate_bits_per_s", **levels):
    return Observation(
        run_id=f"{tool}{block}", block=block, cell_key=tool,
        levels={"tool": tool, **levels}, status=status, reason="why",
        responses={} if value is None else {response: value}, transfers=1, successes=int(status.is_success),
        extrapolated_s=None, cut_off_s=None, bound_s=1.0,
        capacity_bits_per_s=100.0, round_trip_s=0.0, source_site="a", target_site="b",
    )  # fmt: skip


def whole(tmp_path, claim):
    file = tmp_path / "one.toml"
    file.write_text(f'{synthetic.ROUND_TRIPS}\n[[analysis.claim]]\nname = "c"\nstatement = "s"\n{claim}\n')
    return scenario.load(file)


def judge(tmp_path, claim, observations):
    (row,) = claims.evaluate(whole(tmp_path, claim), observations, "X")
    return row


RATIO = 'kind = "ratio"\nvariant = { tool = "gridlane" }\nbaseline = { tool = "aria2c" }\n'


def pairs(ratios, **more):
    found = []
    for block, ratio in enumerate(ratios):
        base = 50.0 + block
        found.append(observed("aria2c", block, base, **more))
        found.append(
            observed(
                "gridlane",
                block,
                None if ratio is None else base * ratio,
                **more,
                status=Status.OK if ratio is not None else Status.FAILED,
            )
        )
    return found


@pytest.mark.parametrize(
    ("ratios", "target", "verdict"),
    [
        ([1.2, 1.3, 1.25, 1.22, 1.24, 1.21], "least = 1.1", "holds"),
        ([1.2, 1.3, 1.25, 1.22, 1.24, 1.21], "least = 1.22", "undecided"),
        ([1.2, 1.3, 1.25, 1.22, 1.24, 1.21], "least = 1.5", "does not hold"),
        ([1.2, 1.3, 1.25, 1.22, 1.24, 1.21], "least = 1.1\nmost = 1.25", "undecided"),
        ([1.2, 1.3, 1.25, 1.22, 1.24, 1.21], "most = 1.1", "does not hold"),
        ([1.2, 1.3, 1.25, 1.22, 1.24], "least = 1.1", "points only"),
        ([1.2, 1.3, 1.25, None, 1.24, 1.21], "least = 1.1", "undecided"),
        ([None] * 6, "least = 1.1", "does not hold"),
        # Nine blocks allow one outlier; a failure is one.
        ([1.2, 1.3, 1.25, None, 1.24, 1.21, 1.22, 1.23, 1.3], "least = 1.1", "holds"),
    ],
)
def test_ratios(tmp_path, ratios, target, verdict):
    row = judge(tmp_path, RATIO + target, pairs(ratios))
    assert row.verdict == verdict
    assert row.failed_rows == ratios.count(None)
    if verdict == "points only":
        assert (row.estimate, row.low, row.high, row.p_value, row.p_value_holm, row.effect_cliffs_delta) == (None,) * 6
        assert row.reason == "5 of the 6 blocks that a claim needs: 1.2, 1.22, 1.24, 1.25, 1.3"
    elif None not in ratios:
        assert row.estimate == pytest.approx(sorted(ratios)[len(ratios) // 2], rel=0.05)
        assert row.effect_cliffs_delta == pytest.approx(1)


def test_a_failure_of_the_baseline_leaves_the_pair_out(tmp_path):
    found = pairs([1.2] * 7)
    found[0] = observed("aria2c", 0, None, status=Status.WRONG_BYTES)
    row = judge(tmp_path, RATIO + "least = 1.1", found)
    assert row.verdict == "holds" and row.blocks == 6


def test_what_did_not_begin_counts_nowhere(tmp_path):
    late = [observed(tool, 6, None, status=Status.NOT_RUN) for tool in ("aria2c", "gridlane")]
    row = judge(tmp_path, RATIO + "least = 1.1", [*pairs([1.2] * 6), *late])
    assert row.verdict == "holds" and row.blocks == 6 and row.failed_rows == 0
    # The baseline of the block was there, and the run of the variant was not.
    half = [*pairs([1.2] * 6), observed("aria2c", 6, 50.0), observed("gridlane", 6, None, status=Status.NOT_RUN)]
    assert judge(tmp_path, RATIO + "least = 1.1", half).verdict == "holds"
    success = 'kind = "success"\nvariant = { tool = "gridlane" }\nleast = 0.1'
    row = judge(tmp_path, success, half)
    assert row.estimate == 1
    assert judge(tmp_path, success, late).verdict == "not measured"


def test_less_may_be_better(tmp_path):
    times = [
        observed(tool, block, value, response="wall_s")
        for block in range(6)
        for tool, value in (("gridlane", 1.0), ("aria2c", 2.0))
    ]
    claim = RATIO + 'response = "wall_s"\nmost = 0.6'
    assert judge(tmp_path, claim, times).verdict == "holds"
    times[0] = observed("gridlane", 0, None, status=Status.CUT_OFF, response="wall_s")
    row = judge(tmp_path, claim, times)
    assert row.verdict == "undecided" and row.high is None


def test_the_best_of_several_tools_is_the_baseline(tmp_path):
    """Of each block: it is not the same one in all of them."""
    found = []
    for block in range(6):
        rates = (40.0, 50.0) if block % 2 else (50.0, 40.0)
        found += [observed("gridlane", block, 60.0), observed("aria2c", block, rates[0])]
        found.append(observed("xrdcp", block, rates[1]))
    several = RATIO.replace('"aria2c"', '["aria2c", "xrdcp"]')
    row = judge(tmp_path, several + "least = 1.1", found)
    assert row.verdict == "holds" and row.low == row.high == pytest.approx(1.2)
    times = [observed(o.levels["tool"], o.block, o.value("total_rate_bits_per_s"), response="wall_s") for o in found]
    row = judge(tmp_path, several + 'response = "wall_s"\nmost = 2', times)
    assert row.low == row.high == pytest.approx(60 / 40)


def test_cells_of_a_pattern_are_paired_by_the_other_factors(tmp_path):
    found = [*pairs([2.0] * 6, streams=1), *pairs([8.0] * 6, streams=8)]
    first, second, failed = claims.pair_by_block(
        analysis.select(found, {"tool": "gridlane"}), analysis.select(found, {"tool": "aria2c"}), {"tool"},
        "total_rate_bits_per_s",
    )  # fmt: skip
    assert len(first) == 6 and failed == 0
    assert [first[block] / second[block] for block in first] == pytest.approx([4.0] * 6)
    one = observed("gridlane", 0, None, status=Status.FAILED, streams=1)
    first, _, failed = claims.pair_by_block(
        [one], [observed("aria2c", 0, 1.0, response="wall_s", streams=1)], {"tool"}, "wall_s"
    )
    assert first == {0: inf} and failed == 1


def test_a_factor_that_follows_from_the_patterns_pairs_nothing(tmp_path):
    """A tool that speaks one protocol is compared with one that speaks another; what both have is still paired by."""
    found = []
    for block in range(6):
        for size, factor in ((1, 2.0), (2, 8.0)):
            found.append(observed("aria2c", block, 10.0 * size, protocol="https", size=size))
            found.append(observed("gridlane", block, 10.0 * size * factor, protocol="root", size=size))
    row = judge(tmp_path, RATIO + "least = 3.9", found)
    assert row.verdict == "holds" and row.estimate == pytest.approx(4.0)
    assert row.reason == "the two differ in protocol as well"
    both = [*found, *(observed("gridlane", block, 5.0, protocol="https", size=1) for block in range(6))]
    assert judge(tmp_path, RATIO + "most = 0.6", both).estimate == pytest.approx(0.5)


def test_comparisons_are_one_family(tmp_path):
    found = pairs([1.2, 1.3, 1.25, 1.22, 1.24, 1.21])
    found += [observed("xrdcp", block, (50.0 + block) * (1 + 0.001 * (-1) ** block)) for block in range(6)]
    found += [observed("curl", block, 50.0) for block in range(3)]
    settings = whole(tmp_path, RATIO + "least = 1").analysis.model_copy(update={"baseline": {"tool": "aria2c"}})
    by_tool = {one.levels["tool"]: one for one in claims.comparisons(found, settings, "total_rate_bits_per_s", [])}
    assert {tool: one.verdict for tool, one in by_tool.items()} == {
        "gridlane": "different", "xrdcp": "equivalent", "curl": "points only",
    }  # fmt: skip
    # Two tests, for curl has none: the smallest p, 2 / 2^6, counts twice.
    assert by_tool["gridlane"].p_holm == pytest.approx(2 * 2 / 64)
    assert by_tool["curl"].p_holm is None
    found[-4] = observed("xrdcp", 5, None, status=Status.FAILED)
    found += [observed("xrdcp", 6, 56.0), observed("aria2c", 6, 56.0)]
    (xrdcp,) = (
        one
        for one in claims.comparisons(found, settings, "total_rate_bits_per_s", [])
        if "xrdcp" in one.levels.values()
    )
    assert xrdcp.failed == 1 and xrdcp.verdict == "undecided"


def test_other_kinds(tmp_path):
    found = pairs([1.0 + 0.002 * (-1) ** block for block in range(8)])
    same = 'kind = "equivalent"\nvariant = { tool = "gridlane" }\nbaseline = { tool = "aria2c" }\nmost = 1.05'
    assert judge(tmp_path, same, found).verdict == "holds"
    found[1] = observed("gridlane", 0, None, status=Status.FAILED)
    assert judge(tmp_path, same, found).verdict == "undecided"
    assert judge(tmp_path, same, pairs([1.5] * 8)).verdict == "does not hold"
    assert judge(tmp_path, same, pairs([1.0] * 3)).verdict == "points only"
    median = 'kind = "median"\nvariant = { tool = "aria2c" }\nleast = 40'
    assert judge(tmp_path, median, pairs([1.0] * 6)).verdict == "holds"
    difference = RATIO.replace("ratio", "difference") + "least = 1"
    assert judge(tmp_path, difference, pairs([1.5] * 6)).verdict == "holds"
    success = 'kind = "success"\nvariant = { tool = "gridlane" }\nleast = 0.5'
    assert judge(tmp_path, success, pairs([1.0] * 20)).verdict == "holds"
    assert judge(tmp_path, success, pairs([None] * 20)).verdict == "does not hold"
    assert judge(tmp_path, success, pairs([1.0, None] * 3)).verdict == "undecided"
    few = judge(tmp_path, success, pairs([1.0] * 5))
    assert few.verdict == "points only" and few.low is None and "5 of 5 transfers succeeded" in few.reason
    capacity = 'kind = "never_above_capacity"'
    assert judge(tmp_path, capacity, pairs([1.0] * 6)).verdict == "holds"
    assert judge(tmp_path, capacity, pairs([1.0] * 5)).verdict == "points only"
    # A contradiction needs no statistics.
    assert judge(tmp_path, capacity, pairs([1.0, 2.0])).verdict == "does not hold"
    row = judge(tmp_path, capacity, pairs([1.0] * 6 + [2.0]))
    assert row.verdict == "does not hold" and row.reason == "run gridlane6"


def test_what_was_not_measured_is_no_verdict(tmp_path):
    absent = [observed("gridlane", block, None, status=Status.NOT_AVAILABLE) for block in range(6)]
    others = [observed("aria2c", block, 1.0) for block in range(6)]
    row = judge(tmp_path, RATIO + "least = 1", [*absent, *others])
    assert row.verdict == "not measured" and row.reason == "why"
    assert judge(tmp_path, RATIO + "least = 1", others).verdict == "not measured"
    assert judge(tmp_path, RATIO + "least = 1", pairs([1.0])[1:]).verdict == "not measured"


def test_observations_of_a_run(tmp_path):
    results = synthetic.make_run(tmp_path, synthetic.MULTI_SOURCE, stop_after=5)
    one = scenario.Scenario.from_json((tmp_path / "run/scenario.json").read_text())
    found = analysis.observations(results, one)
    assert {o.block for o in found} == {0, 1, 2, 3}  # no warm-up
    failed = [o for o in found if o.status is Status.FAILED]
    assert failed and all(not any(o.responses.values()) for o in failed)
    good = next(o for o in found if o.levels["tool"] == "gridlane" and o.levels["size_bytes"] == 500_000_000)
    assert 0.9 < good.value("bound_fraction") < 1
    assert good.value("client_cpu_s_per_gb") == pytest.approx(0.42, abs=0.03)
    assert good.value("bytes_moved_ratio") == 1
    assert good.level("source") == "near" and good.level("block") == good.block
    cells = analysis.summaries(found, "total_rate_bits_per_s", seed=1)
    broken = next(c for c in cells if "broken" in c.key and "sources=1" in c.key and "500000000" in c.key)
    assert broken.failed == 1 and broken.description.n == 3
    assert broken.exact_interval is None


def test_how_much_a_rate_varies():
    even = {float(second): 100.0 for second in range(2, 6)}
    # The first two seconds are ramp-up, whatever they are; samples are a moment late.
    assert analysis.variation({0.0: 1.0, 1.001: 50.0, **even}) == 0
    assert analysis.variation({2.001: 90.0, 3.0: 100.0, 4.0: 110.0}) == pytest.approx(0.0816, abs=1e-4)
    assert analysis.variation({1.96: 90.0, 3.0: 100.0, 4.0: 110.0}) == pytest.approx(0.0816, abs=1e-4)
    assert analysis.variation({2.0: 90.0, 3.0: 100.0}) is None
    assert analysis.variation({}) is None


def test_partial_runs_count_only_when_the_scenario_says_so(tmp_path):
    text = synthetic.ROUND_TRIPS.replace('kind = "copy"', 'kind = "copy"\nconcurrency = 3')
    results = synthetic.make_run(tmp_path, text, stop_after=1)
    one = scenario.Scenario.from_json((tmp_path / "run/scenario.json").read_text())
    import polars as pl

    transfers = results["transfer"].with_columns(
        status=pl.when(pl.col("number") == 2).then(pl.lit("failed")).otherwise("status")
    )
    results.tables["transfer"] = transfers
    results.tables["run"] = results["run"].with_columns(status=pl.lit("failed"))
    strict = analysis.observations(results, one)
    assert all(o.value("total_rate_bits_per_s") is None for o in strict)
    assert strict[0].transfers == 3 and strict[0].successes == 2
    lax = one.model_copy(update={"analysis": one.analysis.model_copy(update={"count_partial": True})})
    counted = analysis.observations(results, lax)[0]
    assert counted.value("total_rate_bits_per_s") == pytest.approx(2 * 5e8 * 8 / counted.value("wall_s"))


def test_what_was_cut_off_is_extrapolated(tmp_path):
    results = synthetic.make_run(tmp_path, synthetic.REMOTE_READ, stop_after=1)
    one = scenario.Scenario.from_json((tmp_path / "run/scenario.json").read_text())
    cut = [o for o in analysis.observations(results, one) if o.status is Status.CUT_OFF]
    assert len(cut) == 2
    for o in cut:
        assert o.value("wall_s") is None
        assert o.extrapolated_s == pytest.approx(1000 * o.levels["fraction"] * 0.305, rel=0.05)


def twins(tmp_path):
    file = tmp_path / "twins.toml"
    twin = '[[tool]]\nname = "gridlane-again"\ndriver = "gridlane"\n'
    file.write_text(synthetic.ROUND_TRIPS.replace("[work]\n", f"{twin}[work]\n", 1))
    return scenario.load(file)


def test_the_same_twice_calibrates_both_gates(tmp_path):
    noise = [1.01, 0.98, 1.02, 0.99, 1.03, 0.97, 1.005, 0.985]
    rows = [observed("gridlane", block, 100 * one) for block, one in enumerate(noise)]
    rows += [observed("gridlane-again", block, 100.0) for block in range(8)]
    rows += [observed("aria2c", block, 50.0) for block in range(8)]
    found = {one.gate: one for one in claims.calibrate(twins(tmp_path), rows)}
    assert set(found) == {"claims", "figures"}
    for one in found.values():
        assert (one.first, one.second, one.blocks) == ("gridlane", "gridlane-again", 8)
        assert one.ratio == pytest.approx(1, abs=0.01) and not one.is_alarm
        assert one.false_alarms.rate < 0.25
    # By order statistics, an alarm needs all eight on one side: 2 of 2^8.
    assert found["claims"].false_alarms.rate < 0.05


def test_a_drift_between_the_same_is_found(tmp_path):
    rows = [observed("gridlane", block, 110.0 + block) for block in range(8)]
    rows += [observed("gridlane-again", block, 100.0) for block in range(8)]
    found = claims.calibrate(twins(tmp_path), rows)
    assert len(found) == 2 and all(one.is_alarm for one in found)


def test_what_is_not_the_same_twice_calibrates_nothing(tmp_path):
    rows = [observed(tool, block, 100.0) for tool in ("gridlane", "aria2c") for block in range(8)]
    assert claims.calibrate(twins(tmp_path), rows) == []
    few = [observed(tool, block, 100.0) for tool in ("gridlane", "gridlane-again") for block in range(5)]
    assert claims.calibrate(twins(tmp_path), few) == []
