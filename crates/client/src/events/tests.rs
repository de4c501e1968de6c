//! Every line has the fields that docs/reference/json-events.md says, by the names and with the words that it says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use gridlane_core::{ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Hint, Url};
use gridlane_dav::listing::{Entry, EntryKind};
use gridlane_engine::events::{SourceReport, SourceSnapshot};
use gridlane_engine::{Basis, Event, Limit, Report, Snapshot, State};
use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::copies::rules::Action;
use crate::copies::{CopyEvent, Kept};
use crate::credentials::Warning;
use crate::doctor::{Finding, Verdict};
use crate::item::Space;
use crate::location::Location;
use crate::third_party::{Carrier, Detour, Mode};
use crate::tree::LeftOut;
use crate::tree::{About, ActiveFile, TreeEvent, TreeReport, TreeSnapshot};
use crate::tree_path::TreePath;

const PAGE: &str = include_str!("../../../../docs/reference/json-events.md");

/// The part of the page below a heading.
fn section(heading: &str) -> &'static str {
    let begin = PAGE.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rest = &PAGE[begin + heading.len() + 2..];
    let level = heading.split(' ').next().unwrap();
    let end = ["#", "##", "###"]
        .iter()
        .filter(|mark| mark.len() <= level.len())
        .filter_map(|mark| rest.find(&format!("\n{mark} ")))
        .min();
    &rest[..end.unwrap_or(rest.len())]
}

/// The words between backticks.
fn words(text: &str) -> BTreeSet<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .flat_map(|word| word.split(','))
        .map(|word| word.trim().to_owned())
        .collect()
}

/// The words of the page about the lines of a type in one of its sections.
fn documented(heading: &str, kind: &str) -> BTreeSet<String> {
    let rows = section(heading).lines().filter(|row| row.starts_with('|'));
    let of_kind = rows.filter(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        cells[1..3]
            .iter()
            .any(|cell| words(cell).contains(kind) && cell.replace('`', "").split(',').count() <= 3)
    });
    of_kind.flat_map(words).collect()
}

fn line(event: &impl Serialize) -> Value {
    serde_json::to_value(Line::new(event)).unwrap()
}

/// Asserts that every field of a line is documented. Fields that all lines of a section have are `common`.
fn assert_documented(heading: &str, common: &[&str], event: &impl Serialize) {
    let line = line(event);
    assert_eq!(line["v"], 1, "{line}");
    let kind = line["type"].as_str().unwrap().to_owned();
    let said = documented(heading, &kind);
    assert!(!said.is_empty(), "{kind} is not in {heading}");
    for name in line.as_object().unwrap().keys() {
        let is_common = ["v", "type"].contains(&name.as_str()) || common.contains(&name.as_str());
        assert!(is_common || said.contains(name), "{name} of {kind} is not in {heading}: {said:?}");
    }
}

fn error() -> Error {
    Error::new(ErrorKind::Busy, "the server is full")
        .hint(Hint::Replace)
        .endpoint("https://a.example/f")
        .retry_after(Some(Duration::from_millis(1500)))
        .http_status(503)
}

fn report() -> Report {
    Report {
        size_bytes: Some(10),
        done_bytes: 10,
        resumed_bytes: 4,
        fetched_bytes: 8,
        extra_bytes: 2,
        seconds: 2.0,
        bound_s: Some(1.0),
        bound_from: "a guess".to_owned(),
        limited_by: Limit::Rate,
        verified: Some(Basis::Sources { agreeing: 2, said: 2, named: 3 }),
        checksum: Some(Checksum::from_hex(ChecksumKind::Adler32, "00620062").unwrap()),
        verified_with: Some(ChecksumKind::Adler32),
        unstated: Some(ChecksumKind::Sha256),
        modified_accepted: None,
        sources: vec![SourceReport {
            url: "https://a.example/f".to_owned(),
            state: State::Wrong,
            bytes: 6,
            received_bytes: 8,
            rate_best_bytes_per_s: Some(4.0),
            round_trip: Some(Duration::from_millis(20)),
            connections: 2,
            handshakes: 1,
            wrong_pieces: 0,
            error: Some(error()),
        }],
    }
}

#[derive(Debug)]
struct Shouting;

impl Words for Shouting {
    fn hint(&self, hint: &Hint) -> String {
        hint.to_string().to_uppercase()
    }
}

/// An error has all the fields that the page has, with the words of the front end, and the name of the hint.
#[test]
fn an_error_as_documented() {
    let found = serde_json::to_value(Failure::new(&error(), &Shouting)).unwrap();
    let expected = json!({
        "code": 11, "class": "busy", "fault": "peer", "message": "the server is full",
        "hint": "ALLOW THE TARGET TO BE REPLACED", "hint_id": "replace", "endpoint": "https://a.example/f",
        "retryable": true, "retry_after_s": 1.5, "http_status": 503,
    });
    assert_eq!(found, expected);
    let said = words(section("### error"));
    for name in expected.as_object().unwrap().keys() {
        assert!(said.contains(name), "{name} of an error is not documented");
    }
}

#[test]
fn a_summary_as_documented() {
    let found = serde_json::to_value(Summary::new(&report(), &PlainWords)).unwrap();
    let expected = json!({
        "bytes": 10, "size_bytes": 10, "seconds": 2.0, "rate_bytes_per_s": 3.0, "fetched_bytes": 8, "extra_bytes": 2,
        "resumed_bytes": 4, "bound_seconds": 1.0, "bound_from": "a guess", "fraction": 0.5,
        "limited_by": "the limit of the rate", "limited_by_id": "rate", "verification": "verified",
        "verified_by": "2 of 3 sources", "votes": { "agreeing": 2, "said": 2, "named": 3 },
        "checksum": "adler32:00620062", "verified_with": "adler32", "checksum_unstated": "sha256",
        "sources": [{
            "url": "https://a.example/f", "state": "wrong", "bytes": 6, "received_bytes": 8,
            "rate_best_bytes_per_s": 4.0, "round_trip_s": 0.02, "connections": 2, "handshakes": 1,
            "wrong_pieces": 0, "error": Failure::new(&error(), &PlainWords),
        }],
    });
    assert_eq!(found, expected);
    let said = words(section("### summary"));
    for name in expected.as_object().unwrap().keys().chain(expected["sources"][0].as_object().unwrap().keys())
    {
        assert!(said.contains(name), "{name} of a summary is not documented");
    }
    let nothing = Report { verified: None, checksum: None, verified_with: None, unstated: None, ..report() };
    let found = serde_json::to_value(Summary::new(&nothing, &PlainWords)).unwrap();
    assert_eq!(found["verification"], "unverified");
    for name in ["verified_by", "votes", "checksum", "verified_with", "checksum_unstated"] {
        assert_eq!(found[name], Value::Null, "{name}");
    }
}

#[test]
fn the_lines_of_a_copy_as_documented() {
    const SECTION: &str = "## gridlane cp";
    let mut lines = CopyLines::new(Arc::new(PlainWords));
    let sources = ["u".to_owned(), "w".to_owned()];
    assert!(lines.of(&CopyEvent::Turn { sources: &sources, target: "t" }).is_empty());
    let (why, checksum) = (error(), Checksum::from_hex(ChecksumKind::Adler32, "00620062").unwrap());
    let snapshot = Snapshot {
        size_bytes: Some(10),
        done_bytes: 5,
        rate_bytes_per_s: 2.5,
        eta_s: Some(2.0),
        elapsed_s: 1.0,
        verifying: false,
        sources: vec![SourceSnapshot {
            peer: None,
            state: State::Active,
            rate_bytes_per_s: 2.5,
            round_trip: None,
            bytes: 5,
            lanes: 2,
        }],
    };
    let failure = Failure::new(&why, &PlainWords);
    for (event, expected) in [
        (
            Event::Plan { resumed_bytes: 3, dropped: Some("it is old") },
            json!({ "type": "plan", "sources": ["u", "w"], "target": "t", "resumed_bytes": 3, "dropped_partial": "it is old" }),
        ),
        (
            Event::Started { size_bytes: 10 },
            json!({ "type": "file.start", "source": "u", "target": "t", "size_bytes": 10 }),
        ),
        (
            Event::Source { source: 1, state: State::Slow, error: None },
            json!({ "type": "source", "url": "w", "state": "slow", "error": null }),
        ),
        (
            Event::Added { source: 2, url: "x" },
            json!({ "type": "source", "url": "x", "state": "connecting", "error": null }),
        ),
        (Event::Retry { source: 2, error: &why }, json!({ "type": "retry", "url": "x", "error": failure })),
        (
            Event::Progress(&snapshot),
            json!({
                "type": "progress", "bytes": 5, "size_bytes": 10, "rate_bytes_per_s": 2.5, "eta_s": 2.0, "elapsed_s": 1.0,
                "verifying": false, "sources": [{
                    "url": "u", "state": "active", "bytes": 5, "rate_bytes_per_s": 2.5, "round_trip_s": null, "lanes": 2,
                }],
            }),
        ),
        (
            Event::Verified { checksum: &checksum, basis: Some(Basis::Metalink) },
            json!({
                "type": "verify", "checksum": "adler32:00620062", "matches": true, "verified_by": "as its metalink says",
                "votes": null,
            }),
        ),
        (
            Event::Verified { checksum: &checksum, basis: None },
            json!({
                "type": "verify", "checksum": "adler32:00620062", "matches": null, "verified_by": null, "votes": null,
            }),
        ),
        (
            Event::WrongPiece { range: ByteRange::new(4, 6), sources: &[1] },
            json!({ "type": "verify", "matches": false, "offset": 4, "len": 2, "sources": ["w"] }),
        ),
        (
            Event::Mismatch { found: &checksum, expected: &checksum, believed: &[0] },
            json!({
                "type": "verify", "checksum": "adler32:00620062", "expected": "adler32:00620062", "matches": false,
                "refetching_from": ["u"],
            }),
        ),
    ] {
        let [made] = &lines.of(&CopyEvent::Engine(&event))[..] else { panic!("{event:?}") };
        let mut expected = expected;
        expected["v"] = json!(1);
        assert_eq!(line(made), expected, "{event:?}");
        if !matches!(event, Event::Verified { .. }) {
            assert_documented(SECTION, &[], made);
        }
    }
    let progress = Event::Progress(&snapshot);
    assert!(lines.of(&CopyEvent::Engine(&progress)).is_empty(), "a moment after the last one");
    let (report, nothing) = (report(), Kept::Nothing);
    let ended = |error| CopyEvent::Ended { report: &report, error, kept: &nothing, carrier: None };
    let one = |lines: &mut CopyLines, event: CopyEvent<'_>| line(&lines.of(&event)[0]);
    let mut done = json!({
        "v": 1, "type": "file.done", "target": "t", "bytes": 10, "tpc": null, "active_server": null,
    });
    assert_eq!(one(&mut lines, ended(None)), done);
    let carrier = Carrier { mode: Mode::Push, server: "https://se.example:8443".to_owned() };
    let carried = CopyEvent::Ended { report: &report, error: None, kept: &nothing, carrier: Some(&carrier) };
    (done["tpc"], done["active_server"]) = (json!("push"), json!("https://se.example:8443"));
    assert_documented(SECTION, &[], &lines.of(&carried)[0]);
    assert_eq!(one(&mut lines, carried), done);
    let summary = line(&lines.of(&ended(None))[1]);
    assert_eq!((&summary["type"], &summary["v"]), (&json!("summary"), &json!(1)));
    let failed = json!({ "v": 1, "type": "file.failed", "target": "t", "error": failure });
    assert_eq!(one(&mut lines, ended(Some(&why))), failed);
    assert_eq!(one(&mut lines, CopyEvent::Refused(&why)), failed);
    let failed = CopyLine::Failed { target: None, error: failure.clone() };
    assert_eq!(line(&failed), json!({ "v": 1, "type": "file.failed", "error": failure }));
    let would = CopyEvent::Would { action: Action::Replace, sources: &[], target: None, size_bytes: None };
    let expected = json!({
        "v": 1, "type": "plan", "dry_run": true, "action": "replace", "sources": ["u", "w", "x"], "target": "t",
        "size_bytes": null,
    });
    assert_eq!(one(&mut lines, would), expected);
    let expected = json!({
        "v": 1, "type": "file.skipped", "target": "t", "why": "it is there, of the same size and not older",
        "why_id": "up_to_date", "there_already": true,
    });
    assert_eq!(one(&mut lines, CopyEvent::Skipped(LeftOut::UpToDate)), expected);
    let note = json!({ "v": 1, "type": "note", "target": "t", "about": "time", "error": failure });
    assert_eq!(one(&mut lines, CopyEvent::TimeLost(&why)), note);
    for (detour, about) in [
        (Detour::Streamed, "streamed"),
        (Detour::OtherMode(Mode::Push), "push"),
        (Detour::OtherMode(Mode::Pull), "pull"),
        (Detour::OneSource, "one_source"),
    ] {
        let note = json!({ "v": 1, "type": "note", "target": "t", "about": about, "error": failure });
        assert_eq!(one(&mut lines, CopyEvent::Detour { detour, why: &why }), note);
        assert!(documented(SECTION, "note").contains(about), "{about}");
    }
    let warning = Warning { message: "m".to_owned(), advice: "a".into() };
    let expected = json!({ "v": 1, "type": "warning", "about": "credentials", "message": "m", "hint": "a", "hint_id": "text" });
    assert_eq!(one(&mut lines, CopyEvent::Warning(&warning)), expected);
}

#[test]
fn the_lines_of_a_tree_as_documented() {
    const SECTION: &str = "## gridlane cp of trees and of several files";
    let target = Location::Remote(Url::parse_absolute("http://h/d/").unwrap());
    let mut lines = TreeLines::new(&target, Arc::new(PlainWords));
    let (name, why, report) = (TreePath::parse(b"a/b").unwrap(), error(), report());
    let snapshot = TreeSnapshot {
        active: vec![ActiveFile { name: name.clone(), done_bytes: 1, size_bytes: None }],
        ..TreeSnapshot::default()
    };
    let url = Url::parse_absolute("http://h/d/a/b").unwrap();
    let noted = |about, error| TreeEvent::Noted { name: &name, url: Some("u"), about, error };
    for event in [
        TreeEvent::Progress(&snapshot),
        TreeEvent::FileStarted { name: &name, size_bytes: Some(1) },
        TreeEvent::FileDone { name: &name, report: &report, carrier: None },
        TreeEvent::Failed { name: &name, is_directory: true, error: &why },
        TreeEvent::Skipped { name: &name, why: LeftOut::Link },
        noted(About::Time, Some(&why)),
        noted(About::Unlisted, Some(&why)),
        noted(About::Detour(Detour::Streamed), Some(&why)),
        TreeEvent::Would {
            name: &name,
            action: Action::Copy,
            sources: std::slice::from_ref(&url),
            target: &url,
            size_bytes: None,
        },
    ] {
        let made = lines.of(&event).unwrap();
        assert_documented(SECTION, &["name", "target"], &made);
        let line = line(&made);
        if line["type"] != "progress" {
            assert_eq!((&line["name"], &line["target"]), (&json!("a/b"), &json!("http://h/d/a/b")), "{line}");
        }
    }
    for (about, kind) in
        [(About::Source(State::Busy), "source"), (About::Retry, "retry"), (About::Mismatch, "verify")]
    {
        let line = line(&lines.of(&noted(about, Some(&why))).unwrap());
        assert_eq!(line["type"], kind, "{line}");
    }
    assert_documented(SECTION, &[], &lines.plan(vec!["u".to_owned()], "t", 4));
    assert_documented(SECTION, &[], &lines.end(&TreeReport::default(), false, Some(&why)));
}

#[test]
fn the_lines_of_other_commands_as_documented() {
    const SECTION: &str = "## Other commands";
    let modified = Some(UNIX_EPOCH + Duration::from_secs(7));
    let entry = Entry { name: b"f".to_vec(), kind: EntryKind::File, size_bytes: Some(5), modified };
    let expected = json!({ "name": "f", "kind": "file", "size_bytes": 5, "modified_s": 7, "etag": null });
    assert_eq!(serde_json::to_value(EntryLine::new(&entry, None)).unwrap(), expected);
    let url = Url::parse_absolute("http://h/d").unwrap();
    let finding = Finding {
        subject: "clock",
        verdict: Verdict::Note,
        answer: "late".into(),
        advice: Some(Hint::CheckServers),
        error: None,
    };
    let check = AnswerLine::check("this machine", &finding, &PlainWords);
    let expected = json!({
        "v": 1, "type": "check", "of": "this machine", "subject": "clock", "verdict": "note", "text": "late",
        "advice": "let certificates of servers be checked", "error": null,
    });
    assert_eq!(line(&check), expected);
    let text = || "x".to_owned();
    for event in [
        AnswerLine::Entry(EntryLine::new(&entry, Some("\"e\""))),
        AnswerLine::Checksum { url: text(), checksum: text() },
        AnswerLine::Made { url: text() },
        AnswerLine::Moved { url: text(), to: text() },
        AnswerLine::Removed { url: text() },
        AnswerLine::space(&url, &Space { used_bytes: None, available_bytes: Some(1) }),
        check,
        AnswerLine::Error { error: Failure::new(&error(), &PlainWords) },
    ] {
        assert_documented(SECTION, &[], &event);
    }
}

#[test]
fn the_lines_of_replayed_reads_as_documented() {
    use gridlane_core::ByteRange;
    use gridlane_engine::reading::{Explain, Path, Proof};

    use crate::reading::{Trace, prices};

    const SECTION: &str = "## gridlane read";
    let trace =
        Trace::of(vec![vec![ByteRange::at(0, 10), ByteRange::at(5, 10)], vec![ByteRange::at(90, 10)]]);
    let (opened, all) = (Duration::from_millis(250), Duration::from_millis(1500));
    let run =
        ReadRun::new(&trace, ReadRecord::new(&Explain::default(), &Proof::Unstated, 100, None), opened, all);
    let run = ReadLine::Run(Box::new(run));
    assert_documented(SECTION, &[], &run);
    let made = line(&run);
    assert_eq!(
        (&made["policy"], &made["seconds"], &made["open_s"]),
        (&json!("adaptive"), &json!(1.5), &json!(0.25))
    );
    assert_eq!((&made["bytes"], &made["verification"]), (&json!(30), &json!("unverified")));
    let (round_trip_s, rate_bytes_per_s, element_s, lanes, window_bytes) = (0.1, 1e6, 1e-6, 8, 1e5);
    let path = Path { round_trip_s, rate_bytes_per_s, element_s, lanes, window_bytes };
    let prices = ReadLine::prices(&trace, 100, &path, &prices(&trace, 100, &path));
    assert_documented(SECTION, &[], &prices);
    let made = line(&prices);
    assert_eq!((&made["calls"], &made["ranges"]), (&json!(2), &json!(3)));
    let direct = &made["policies"][0];
    assert_eq!(direct["policy"], "direct");
    assert!((direct["expected_s"].as_f64().unwrap() - 0.3).abs() < 0.01, "{direct}");
}

#[test]
fn the_lines_of_a_probe_as_documented() {
    use crate::probe::{
        Choice, Chosen, Criterion, Figures, Left, Outcome, Rate, Report, Shown, SiteList, Step, Untried, Why,
        by_cause,
    };
    const SECTION: &str = "## gridlane probe";
    let mut list = SiteList::default();
    list.add("site=Lyon zone=fr https://se.example/vo/").unwrap();
    list.add("site=Bonn https://other.example/vo/").unwrap();
    let sites = list.over(&[]).unwrap();
    let mut report = Report::new(0, sites[0].endpoints[0].clone());
    report.note(Step::List, Outcome::Works, Duration::from_millis(500));
    report.note(Step::Write, Outcome::Fails(error()), Duration::ZERO);
    report.note(Step::Read, Outcome::Untried(Untried::NoFile), Duration::ZERO);
    report.shown = vec![Shown::Token("the token of x".to_owned())];
    report.read_rate = Some(Rate { bytes: 10, seconds: 2.0, is_verified: true });
    report.left = vec![Left { url: "https://se.example/vo/f".to_owned(), is_certain: true, error: error() }];
    report.round_trip = Some(Duration::from_millis(250));
    let endpoint = ProbeLine::endpoint(&sites, &report, &PlainWords);
    assert_documented(SECTION, &[], &endpoint);
    let made = line(&endpoint);
    assert_eq!(
        (&made["site"], &made["zone"], &made["round_trip_s"]),
        (&json!("Lyon"), &json!("fr"), &json!(0.25))
    );
    assert_eq!(
        made["steps"]["list"],
        json!({ "state": "works", "seconds": 0.5, "why": null, "error": null })
    );
    assert_eq!(made["steps"]["write"]["error"]["http_status"], 503);
    let rate = json!({ "bytes": 10, "seconds": 2.0, "rate_bytes_per_s": 5.0, "verified": true });
    assert_eq!((&made["read_rate"], &made["write_rate"]), (&rate, &json!(null)));
    // Every name within is documented as well.
    let said = words(section(SECTION));
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let inner = [&made["steps"], &made["steps"]["read"], &made["credentials"][0], &made["left"][0], &rate];
    let whys = ["not_asked", "needless", "by_proxy", "no_file", "no_time", "stopped"].map(str::to_owned);
    for name in inner.into_iter().flat_map(names).chain(whys) {
        assert!(said.contains(&name), "{name} is not in {SECTION}");
    }
    let reports = [report];
    let groups = by_cause(&reports);
    let cause = ProbeLine::cause(&groups[0], &PlainWords);
    assert_documented(SECTION, &[], &cause);
    assert_eq!(line(&cause)["cause"], "write: HTTP 503, busy");
    let choice = Choice {
        chosen: vec![Chosen { site: 0, figures: Figures::default(), reports: vec![0] }],
        passed_over: vec![(1, Why::Enough)],
        left: vec![(Criterion::Protocols, 2)],
        is_met: true,
    };
    let why = |why: &Why| why.name().to_uppercase();
    let choice = ProbeLine::choice((&sites, &reports), (&choice, 1), why, vec![("speak".to_owned(), 2)]);
    assert_documented(SECTION, &[], &choice);
    let made = line(&choice);
    assert_eq!(made["passed_over"][0], json!({ "site": "Bonn", "why": "ENOUGH", "why_id": "enough" }));
    assert_eq!(made["chosen"][0]["urls"], json!(["https://se.example/vo/"]));
    for name in
        [&made["chosen"][0], &made["passed_over"][0], &made["criteria"][0]].into_iter().flat_map(names)
    {
        assert!(said.contains(&name), "{name} is not in {SECTION}");
    }
    let counts = ProbeCounts::of(2, &reports);
    assert_eq!((counts.endpoints, counts.listed, counts.failed, counts.left), (1, 1, 1, 1));
    let summary = ProbeSummary { counts, seconds: 1.0, error: None };
    assert_documented(SECTION, &[], &ProbeLine::Summary(summary));
}
