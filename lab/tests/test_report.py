"""Figures and reports end to end, from synthetic results: what is drawn and said, and that it can be repeated."""

from __future__ import annotations

import csv
import html.parser
import shutil
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import numpy as np
import polars as pl
import pytest
import synthetic

from gridlane_lab import figures, report, scenario
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
    assert [spec.kind for spec in report.figures_of(bare, results)] == ["box", "forest"]
    assert path.is_dir()
