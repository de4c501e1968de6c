"""Figures and reports end to end, from synthetic results: what is drawn and said, and that it can be repeated."""

from __future__ import annotations

import csv
import html.parser
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import numpy as np
import polars as pl
import pytest
import synthetic

import gridlane_lab.drivers  # noqa: F401
from gridlane_lab import analysis, figures, markdown, plots_transfers, query, record, registry, report, scenario, sheet
from gridlane_lab.errors import LabError

VOID = {"meta", "br", "link", "img", "hr", "input"}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """One run of each scenario, made when it is asked for."""
    made = {}

    def run(name):
        if name not in made:
            path = tmp_path_factory.mktemp(name)
            results = synthetic.make_run(path, synthetic.ALL_SCENARIOS[name])
            made[name] = path / "run", report.scenario_of(path / "run"), results
        return made[name]

    return run


NAMES = [
    (name, figure)
    for name, figure_names in {
        "multi-source": ["boxes", "boxes-1mb", "ratios", "bytes-over-time", "distribution", "normality"],
        "copy-or-read": ["break-even", "time-rtt"],
        "streams": ["rate-rtt"],
        "mesh": ["grid"],
    }.items()
    for figure in figure_names
]


def drawn(runs, name, figure):
    _, one, results = runs(name)
    spec = next(spec for spec in one.analysis.figure if spec.name == figure)
    return figures.draw(spec, one, results)


@pytest.mark.parametrize(("name", "figure"), NAMES)
def test_figures_are_drawn(runs, name, figure, tmp_path):
    made = drawn(runs, name, figure)
    assert isinstance(made, figures.Drawn)
    root = ElementTree.fromstring(made.svg)
    assert root.tag.endswith("svg")
    figures.write(made, tmp_path)
    pixels = matplotlib.image.imread(tmp_path / f"{figure}.png")
    # Something is on it, and nothing is cut off at its edges.
    assert pixels[..., :3].min() < 0.3
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert np.all(edge[..., :3] > 0.99)
    rows = pl.read_csv(tmp_path / f"{figure}.csv", infer_schema_length=None)
    assert rows.height > 3
    assert made.caption.endswith(".")
    assert b"<dc:date>" not in made.svg


def test_the_same_rows_give_the_same_bytes(runs):
    once, again = drawn(runs, "streams", "rate-rtt"), drawn(runs, "streams", "rate-rtt")
    assert once == again


def test_captions_say_what_is_missing(runs):
    said = drawn(runs, "multi-source", "boxes").caption
    assert "6 failed, 8 not available, 4 wrong bytes" in said
    assert "n = 0 to 8 in each of 14 cells" in said
    assert "Cells with fewer than 6 blocks show points only." in said
    assert "far above the axis" in drawn(runs, "multi-source", "boxes-1mb").caption
    said = drawn(runs, "copy-or-read", "break-even").caption
    assert "Hollow marks: cut off" in said
    assert "The vertical axis is logarithmic." in said


def test_break_even_is_where_reading_costs_as_much_as_copying(runs):
    rows = csv.DictReader(drawn(runs, "copy-or-read", "break-even").csv.splitlines())
    found = {row["panel"]: float(row["break_even"]) for row in rows if row["break_even"]}
    # 26 ms: a copy takes 1.2 s, which are 33 of 1000 reads.
    assert found["26 ms"] == pytest.approx(3.3, abs=0.5)
    assert set(found) == {"0.5 ms", "26 ms"}


def test_figures_without_data_say_why(runs):
    _, one, results = runs("streams")
    area = scenario.Figure(name="x", kind="forest", title="t")
    assert figures.draw(area, one, results).reason == "the scenario names no baseline"
    empty = scenario.Figure(name="x", kind="box", title="t", where={"streams": 99})
    assert figures.draw(empty, one, results).reason == "no run matches"
    none = scenario.Figure(name="x", kind="ecdf", title="t", response="cpu_efficiency")
    assert "no figure of single transfers" in figures.draw(none, one, results).reason


SCENARIOS = sorted((Path(__file__).resolve().parents[1] / "scenarios").glob("*.toml"))


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """One run of each scenario that comes along, in its quick size, by the model; with the report."""
    made = {}

    def make(file):
        if file.stem not in made:
            size = "smoke" if file.stem == "smoke" else "quick"
            whole = scenario.load(file, size)
            out = tmp_path_factory.mktemp(file.stem) / "run"
            with record.RunDirectory.create(out, whole.to_json(), file.read_text()) as directory:
                synthetic.fill(directory, whole, size, known=registry.capabilities())
            made[file.stem] = out, whole, record.read_results(out), report.write(out)
        return made[file.stem]

    return make


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_every_scenario_has_its_figures_and_a_page(reports, file):
    out, whole, results, page = reports(file)
    text = checked(page)
    specs = report.figures_of(whole, results)
    for spec in specs:
        places = [out / "report/figures" / f"{spec.name}.{form}" for form in ("svg", "pdf", "png", "csv")]
        if not all(place.is_file() for place in places):
            # Cells of one block have no quantiles; all else can be drawn.
            assert spec.kind == "qq" and "no cell has three figures" in text, spec.name
            continue
        assert b"CreationDate" not in places[1].read_bytes()
        pixels = matplotlib.image.imread(places[2])
        for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
            assert np.all(edge[..., :3] > 0.99), f"{spec.name} is cut off at an edge"
    captions = text.count(" blocks. The numbers as CSV") + text.count(" block. The numbers as CSV")
    assert captions == text.count("The numbers as CSV") > 0


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_fewer_than_six_blocks_have_no_verdict(reports, file):
    _, whole, results, _ = reports(file)
    for row in report.claim_rows(whole, results):
        if row.blocks < 6:
            assert row.verdict in ("points only", "not measured"), row.claim
            assert (row.low, row.high, row.p_value, row.effect_cliffs_delta) == (None,) * 4
        else:
            # A claim that no run can ever decide is a mistake in its patterns.
            assert row.verdict in ("holds", "does not hold", "undecided"), (row.claim, row.reason)


@pytest.mark.parametrize("file", SCENARIOS[::3], ids=lambda file: file.stem)
def test_queries_give_the_rows_that_are_stated(reports, file):
    out, whole, results, _ = reports(file)
    observed = analysis.observations(results, whole)
    for what, count, sql in report.origins(whole, results, report.figures_of(whole, results), observed, ["Cells"]):
        assert query.ask(out, sql).height == count, (what, sql)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_markdown_has_every_claim_and_cell(reports, file):
    _, whole, results, _ = reports(file)
    about, *tables = markdown.tables(whole, results).split("\n\n")
    assert whole.name in about and "runs: " in about
    for table in tables:
        lines = table.splitlines()
        # As many columns in every line, whatever is in them.
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    rows = [line for table in tables for line in table.splitlines()[2:]]
    cells = {one.cell_key for one in analysis.observations(results, whole)}
    assert len(rows) == len(whole.analysis.claim) + len(cells)
    for row in report.claim_rows(whole, results):
        assert any(row.verdict in line for line in rows)


def test_markdown_of_what_comes_from_elsewhere_is_text():
    assert markdown._text("a|b\n<i>`c`</i>") == "a\\|b \\<i>\\`c\\`\\</i>"


def spec_of(reports, stem, name):
    file = next(file for file in SCENARIOS if file.stem == stem)
    _, whole, results, _ = reports(file)
    spec = next(spec for spec in whole.analysis.figure if spec.name == name)
    made = figures.draw(spec, whole, results)
    return made, list(csv.DictReader(made.csv.splitlines())), whole, results


def test_cumulative_bytes_are_those_that_were_verified(reports):
    made, rows, _, results = spec_of(reports, "sustained", "cumulative")
    transfers = results["transfer"].filter(pl.col("status") == "ok")
    for run_id in {row["run_id"] for row in rows}:
        of_run = [float(row["bytes_verified"]) for row in rows if row["run_id"] == run_id]
        assert of_run == sorted(of_run)
        assert of_run[-1] == pytest.approx(transfers.filter(pl.col("run_id") == run_id)["bytes_verified"].sum())
    assert "verified" in made.caption


def test_phases_add_up(reports):
    _, rows, _, _ = spec_of(reports, "sustained", "phases")
    series = {row["series"] for row in rows}
    for name in series:
        assert sum(float(row["share"]) for row in rows if row["series"] == name) == pytest.approx(1, abs=1e-4)
    silent = {row["series"] for row in rows if row["phase"] == "the tool tells no parts" and float(row["share"]) > 0}
    assert silent == {name for name in series if name.startswith(("curl", "xrdcp"))}


def test_phase_seconds_by_hand():
    second = 10**9

    def row(begin, first, last, verified, end, status="ok"):
        moments = [None if moment is None else moment * second for moment in (begin, first, last, verified, end)]
        names = ("started_ns", "first_byte_ns", "last_byte_ns", "verified_ns", "closed_ns")
        made = record.Transfer(
            transfer_id="t", run_id="r", kind="copy", protocol="https", status=record.Status(status),
            **dict(zip(names, moments, strict=True)),
        ).with_derived()  # fmt: skip
        return {field: getattr(made, field) for field in made.__dataclass_fields__}

    # One lane: 0 to 10, and 14 to 20 without parts; a failure from 20 to 21 is no phase, and no gap either.
    rows = [row(0, 1, 7, 9, 10), row(14, None, None, None, 20), row(20, None, None, None, 21, "failed")]
    assert plots_transfers.phase_seconds(rows) == {
        "prepare": 1, "transfer": 6, "verify": 2, "finalise": 1, "the tool tells no parts": 6, "between transfers": 4,
    }  # fmt: skip
    assert plots_transfers.phase_seconds(rows[:1])["between transfers"] == 0


def test_errors_are_counted_by_cause(reports):
    made, rows, _, results = spec_of(reports, "sustained", "errors")
    failed = results["transfer"].filter(pl.col("status") == "failed").height
    assert sum(int(row["transfers"]) for row in rows) == failed > 0
    counts = [int(row["transfers"]) for row in rows]
    assert counts == sorted(counts, reverse=True) and float(rows[-1]["share_so_far"]) == pytest.approx(1)
    # Ports are no causes.
    assert {row["cause"] for row in rows} <= {"exit 56: reset by 10.1.0.2:…", "exit 28"}
    assert f"{failed} of " in made.caption


def test_causes():
    assert plots_transfers.cause_of("exit 7:  connection\n refused") == "exit 7: connection refused"
    assert plots_transfers.cause_of("HTTP 503 from h:43121") == "HTTP 503 from h:…"
    assert plots_transfers.cause_of("") == "no reason given"
    assert len(plots_transfers.cause_of("x " * 200)) == plots_transfers.CAUSE_LETTERS_MAX


def test_sources_have_parts_and_waste(reports):
    made, rows, _, _ = spec_of(reports, "multi-source", "bytes-by-source")
    three = [row for row in rows if row["series"] == "gridlane, https, 3 sources"]
    parts = {row["source"]: row["part"] for row in three}
    assert set(parts) == {"near", "middle", "far", "wasted"}
    assert sum(float(parts[site]) for site in ("near", "middle", "far")) == pytest.approx(1, abs=0.01)
    assert float(parts["wasted"]) == pytest.approx(0.03, abs=0.001)
    told = {row["series"]: row["part"] for row in rows if row["source"] == "wasted"}
    assert told["xrdcp, root, 3 sources"] == ""
    assert "Nothing is told by: aria2c" in made.caption


def test_failures_by_pair(runs):
    spec = scenario.Figure(name="x", kind="failures", title="t", x="target_site", y="source_site", panel="tool")
    _, one, results = runs("mesh")
    rows = list(csv.DictReader(figures.draw(spec, one, results).csv.splitlines()))
    assert len(rows) == 24
    failed = {(row["panel"], row["failed"], row["transfers"]) for row in rows}
    # `breaks` fails in every third block, of which there is one.
    assert failed == {("gridlane", "0", "2"), ("breaks", "1", "2")}


def test_ratios_by_round_trip_are_those_of_the_blocks(reports):
    _, rows, whole, results = spec_of(reports, "http-xrootd", "ratio-by-round-trip")
    found = next(
        row for row in rows if row["series"] == "https, nginx" and row["panel"] == "vector" and row["x"] == "26"
    )
    value = {}
    for one in analysis.observations(results, whole):
        if one.levels["reading"] == "vector" and one.levels["round_trip_ms"] == 26:
            value[one.levels["tool"], one.levels["server"], one.block] = one.value("wall_s")
    ratios = [value["https", "nginx", block] / value["root", "xrootd", block] for block in range(6)]
    assert float(found["geometric_mean"]) == pytest.approx(float(np.exp(np.mean(np.log(ratios)))), rel=1e-4)
    assert float(found["low"]) < float(found["geometric_mean"]) < float(found["high"])


def test_boxes_are_told_apart_by_x_and_series(reports):
    made, rows, _, _ = spec_of(reports, "multi-source", "rate-by-tool")
    places = {}
    for row in rows:
        places.setdefault((row["panel"], row["x"], row["series"]), set()).add(row["cell"])
    assert all(len(cells) == 1 for cells in places.values()) and ("1 MB", "aria2c", "https, 3 sources") in places
    assert "Runs at one place differ" not in made.caption
    assert "Panels have scales of their own." in made.caption


def test_runs_of_several_cells_have_no_box(runs):
    _, one, results = runs("multi-source")
    spec = scenario.Figure(name="x", kind="box", title="t", x="sources", where={"tool": ["gridlane", "aria2c"]})
    made = figures.draw(spec, one, results)
    assert "Runs at one place differ in: size bytes, tool; they have points, and neither box nor band." in made.caption


def test_lines_of_the_file_are_in_the_unit_of_the_axis(runs):
    _, one, results = runs("mesh")
    spec = scenario.Figure(name="x", kind="box", title="t", response="total_rate_bits_per_s", lines={"published": 900})
    with matplotlib.rc_context(sheet.STYLE):
        made = sheet.Sheet(one, results, spec, analysis.observations(results, one), "total_rate_bits_per_s")
    assert made.unit[1] == "Gb/s" and made.lines_at() == {"published": pytest.approx(0.9)}


def test_legends_and_labels_that_fit():
    assert sheet.legend_columns(["a"] * 5, 7.2) == 5
    assert sheet.legend_columns(["globus-url-copy, copy then read, single"] * 4, 7.2) == 2
    assert sheet.legend_columns(["x" * 120, "y"], 7.2) == 1
    assert sheet.apart([(0.1, "aria2c"), (0.12, "xrdcp"), (0.9, "curl")], 5.0) == [True, False, True]
    assert sheet.level_label("trigger_factor", 20) == "trigger factor 20"
    assert sheet.level_label("sources", 3) == "3 sources" and sheet.level_label("sources", 3, is_named=False) == "3"
    assert sheet.factor_label("target_rate_bytes_per_s") == "target rate"


def test_no_two_series_look_alike(runs):
    _, one, results = runs("streams")
    made = sheet.Sheet(one, results, scenario.Figure(name="x", kind="box", title="t"), [], "wall_s")
    made.series_names = lambda: [f"s{number}" for number in range(64)]
    assert len({made.style(f"s{number}") for number in range(64)}) == 64


class Checker(html.parser.HTMLParser):
    """Tags that are not closed, ids that are there twice, and what would be fetched from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.text, self.fetched = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            is_within = str(value).startswith(("#", "data:text/csv;", "data:image/png;"))
            if name in ("src", "href", "xlink:href") and not is_within:
                self.fetched.append(value)
        assert tag not in ("script", "iframe", "link", "object")

    def handle_startendtag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def checked(page):
    checker = Checker()
    checker.feed(page.read_text())
    assert checker.open == []
    assert checker.fetched == []
    assert len(checker.ids) == len(set(checker.ids))
    return " ".join(" ".join(checker.text).split())


def test_a_report_is_complete_and_escaped(runs):
    path, _, _ = runs("multi-source")
    page = report.write(path)
    text = checked(page)
    for wanted in (
        "2.500 – 3.000",
        "✓ holds", "✗ does not hold", "? undecided", "· points only", "– not measured", "missing is not installed",
        "connection reset by <peer> & others", "none <b>at all</b>", "exit 0, but the copy is not the file",
        "net.ipv4.tcp_wmem", "aria2c 'https://near/500000000' /target",
        "near → client", "not rejected", "fewer than 3 values",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert "<b>at all" not in page.read_text()
    assert (path / "report/figures/boxes.svg").is_file()
    assert page.read_text().count('role="img"') == 6
    # Intervals of medians, t intervals of means, and drifts, from six blocks on; quantiles are beside Shapiro–Wilk.
    assert "Drift over the blocks" in text and "mean ± SD (95 % t)" in text
    raw = page.read_text()
    assert raw.index('id="normality"') < raw.index('id="figure-normality"') < raw.index('id="drift"')
    assert "<th scope=col" in raw and "<th>" not in raw


def test_the_same_twice_is_a_section(tmp_path, runs):
    twin = '[[tool]]\nname = "gridlane-again"\ndriver = "gridlane"\n'
    synthetic.make_run(tmp_path, synthetic.ROUND_TRIPS.replace("[work]\n", f"{twin}[work]\n", 1))
    text = checked(report.write(tmp_path / "run"))
    assert "gridlane over gridlane-again claims 6 " in text and "gridlane over gridlane-again figures 6 " in text
    path, _, _ = runs("mesh")
    assert "The same twice" not in checked(report.write(path))


def test_a_report_is_rebuilt_from_the_tables_alone(runs, tmp_path):
    path, _, _ = runs("mesh")
    once = report.write(path).read_bytes()
    copy = tmp_path / "copy"
    for name in ("scenario.json", "complete.json"):
        copy.mkdir(exist_ok=True)
        shutil.copy(path / name, copy)
    shutil.copytree(path / "tables", copy / "tables")
    assert report.write(copy).read_bytes() == once


def test_a_run_that_did_not_end_says_so(tmp_path):
    synthetic.make_run(tmp_path, synthetic.MESH, stop_after=1)
    text = checked(report.write(tmp_path / "run"))
    assert "did not come to its end" in text
    assert "1 blocks. From fewer than 6 nothing is claimed" in text
    with pytest.raises(LabError, match="no such directory"):
        report.write(tmp_path / "absent")


def test_default_figures(runs):
    path, one, results = runs("streams")
    bare = one.model_copy(
        update={"analysis": one.analysis.model_copy(update={"figure": [], "baseline": {"tool": "xrdcp"}})}
    )
    assert [spec.kind for spec in report.figures_of(bare, results)] == ["box", "forest", "qq"]
    assert path.is_dir()
