//! Replicas that only a server named.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::script;

use std::time::Duration;

use crate::support::to_file;
use gridlane_engine::{CopySpec, Event, Observer, Options, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use script::{Scripted, answer};

/// What happened with the sources.
#[derive(Default)]
struct Heard(Vec<String>);

impl Observer for Heard {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Added { url, .. } => self.0.push(format!("added {url}")),
            Event::Source { source, state, .. } => self.0.push(format!("{source} {state}")),
            _ => {}
        }
    }
}

/// The checksum by which a named replica was to be judged is gone with the source that said it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_named_replica_sent_is_not_taken_when_nobody_vouches_for_it_any_more() {
    let named = Scripted::start(|seen| {
        let (start, end) = seen.field("range").unwrap()["bytes=".len()..].split_once('-').unwrap();
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse::<usize>().unwrap().min(8));
        let range = format!("Content-Range: bytes {start}-{end}/9");
        answer("206 Partial Content", &[&range], &"abcdefghi"[start..=end])
    })
    .await;
    let link = format!("Link: <{}>; rel=duplicate", named.url("/f").as_str());
    let naming = Scripted::start(move |seen| match seen.field("want-digest") {
        Some(_) => answer(
            "206 Partial Content",
            &["Content-Range: bytes 0-3/9", "ETag: \"one\"", "Digest: adler32=091e01de", &link],
            "1234",
        ),
        None => answer("206 Partial Content", &["Content-Range: bytes 4-8/9", "ETag: \"two\""], "56789"),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let spec = CopySpec {
        sources: vec![naming.url("/f")],
        target: to_file(&path),
        options: Options { follow_links: true, ..Options::default() },
    };
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(30));
    let mut heard = Heard::default();
    let outcome = copy(spec, client, &mut heard, std::future::pending()).await;
    // Why it says that it failed depends on the faster of the two.
    assert!(outcome.result.is_err() && !path.exists(), "{:?}", heard.0);
}
