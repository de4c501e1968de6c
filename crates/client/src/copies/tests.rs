//! Copies on this machine, from requests to outcomes: the rules about targets, metalinks, times, and what is told.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use gridlane_net::tls::Trust;

use super::*;

/// The events in words.
#[derive(Default)]
struct Heard(Vec<String>);

impl CopyObserver for Heard {
    fn event(&mut self, event: &CopyEvent<'_>) {
        self.0.push(match event {
            CopyEvent::Turn { target, .. } => format!("turn {}", target.rsplit('/').next().unwrap()),
            CopyEvent::Would { action, .. } => format!("would {}", action.name()),
            CopyEvent::Skipped(why) => format!("skipped {}", why.name()),
            CopyEvent::Refused(error) => format!("refused {}", error.kind().name()),
            CopyEvent::TimeLost(_) => "time lost".to_owned(),
            CopyEvent::Ended { error: None, .. } => "done".to_owned(),
            CopyEvent::Ended { error: Some(error), kept, .. } => {
                format!("failed {} {kept:?}", error.kind().name())
            }
            CopyEvent::Note(_) | CopyEvent::Detour { .. } | CopyEvent::Warning(_) | CopyEvent::Engine(_) => {
                return;
            }
        });
    }
}

fn request(dir: &Path, source: &str, target: &str) -> CopyRequest {
    CopyRequest {
        sources: vec![Url::parse(source, dir).unwrap()],
        target: target.to_owned(),
        current_dir: dir.to_owned(),
        options: Options::default(),
        journal_keys: JournalKeys::at(dir.join("key")),
        existing: Existing::Refuse,
        preserve_times: false,
        dry_run: false,
        wish: crate::third_party::Wish::default(),
        takes_metalinks: true,
        lasting: None,
    }
}

async fn copied(request: CopyRequest) -> (Vec<String>, Option<ErrorKind>) {
    let copies = Copies::plan(request, crate::connect(Trust::default())).await.unwrap();
    let mut heard = Heard::default();
    let outcome = copies.run(&mut heard, std::future::pending()).await.unwrap();
    (heard.0, outcome.failure())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_decide_what_becomes_of_a_target() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("a"), b"bytes").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(dir.join("a")).unwrap().set_modified(long_ago).unwrap();
    let refused = format!("failed precondition {:?}", Kept::Nothing);
    for (existing, dry_run, told, failure) in [
        (Existing::Refuse, true, vec!["turn b", "would copy"], None),
        (Existing::Refuse, false, vec!["turn b", "done"], None),
        (Existing::Refuse, true, vec!["turn b", "would refuse"], Some(ErrorKind::Precondition)),
        (Existing::Refuse, false, vec!["turn b", &refused], Some(ErrorKind::Precondition)),
        (Existing::Update, true, vec!["turn b", "would skip"], None),
        (Existing::Update, false, vec!["turn b", "skipped up_to_date"], None),
        (Existing::Replace, true, vec!["turn b", "would replace"], None),
        (Existing::Replace, false, vec!["turn b", "done"], None),
    ] {
        let preserve_times = true;
        let asked = CopyRequest { existing, dry_run, preserve_times, ..request(dir, "a", "b") };
        assert_eq!(copied(asked).await, (told.into_iter().map(str::to_owned).collect(), failure));
    }
    assert_eq!(fs::read(dir.join("b")).unwrap(), b"bytes");
    assert_eq!(fs::metadata(dir.join("b")).unwrap().modified().unwrap(), long_ago);
    let missing = CopyRequest { preserve_times: true, ..request(dir, "none", "c") };
    let (told, failure) = copied(missing).await;
    assert_eq!((&told[1][..], failure), ("refused not_found", Some(ErrorKind::NotFound)));
}

/// A metalink of this machine may name no file of it; with `takes_metalinks` off it is a file like others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metalink_is_a_file_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><url>http://127.0.0.1:1/f</url></file>\
                <file name=\"g\"><url>http://127.0.0.1:1/g</url></file></metalink>";
    fs::write(dir.join("m.meta4"), text).unwrap();
    let asked = request(dir, "m.meta4", "copy");
    let Err(error) = Copies::plan(asked.clone(), crate::connect(Trust::default())).await else {
        panic!("two files have become one");
    };
    assert_eq!((error.kind(), error.advice()), (ErrorKind::Usage, Some(&Hint::NameDirectory)), "{error}");
    let told = copied(CopyRequest { takes_metalinks: false, ..asked }).await;
    assert_eq!(told, (vec!["turn copy".to_owned(), "done".to_owned()], None));
    assert_eq!(fs::read(dir.join("copy")).unwrap(), text.as_bytes());
}

#[test]
fn the_kind_of_the_whole() {
    let error = |kind| Error::new(kind, "no");
    for (files, failures, kind) in [
        (1, vec![], None),
        (1, vec![ErrorKind::Denied], Some(ErrorKind::Denied)),
        (2, vec![ErrorKind::Denied], Some(ErrorKind::Partial)),
        (2, vec![ErrorKind::NotFound, ErrorKind::Denied], Some(ErrorKind::Denied)),
        (3, vec![ErrorKind::NotFound, ErrorKind::Interrupted], Some(ErrorKind::Interrupted)),
    ] {
        let outcome = CopyOutcome { files, failures: failures.into_iter().map(error).collect() };
        assert_eq!(outcome.failure(), kind, "{outcome:?}");
    }
}

#[test]
fn what_can_be_continued() {
    let report = |done_bytes| Report {
        size_bytes: None,
        done_bytes,
        resumed_bytes: 0,
        fetched_bytes: 0,
        extra_bytes: 0,
        seconds: 1.0,
        bound_s: None,
        bound_from: String::new(),
        limited_by: gridlane_engine::Limit::NotBegun,
        verified: None,
        checksum: None,
        verified_with: None,
        unstated: None,
        modified_accepted: None,
        sources: Vec::new(),
    };
    let dir = tempfile::tempdir().unwrap();
    let (keys, none) = (JournalKeys::at(dir.path().join("key")), JournalKeys::default());
    let stopped = Error::new(ErrorKind::Interrupted, "stopped");
    assert_eq!(kept(&stopped, &report(5), &keys), Kept::Bytes(5));
    assert_eq!(kept(&stopped, &report(0), &keys), Kept::Nothing);
    assert!(matches!(kept(&stopped, &report(5), &none), Kept::Unusable(_)));
    let wrong = Error::new(ErrorKind::ChecksumMismatch, "wrong");
    assert_eq!(kept(&wrong, &report(5), &keys), Kept::Nothing);
}
