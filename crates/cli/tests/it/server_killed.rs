//! A server that is killed in the middle of a hundred uploads: what it has acknowledged is there, nothing half-written
//! is visible, and what is left over is removed when it is old, not before.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::serve::Server;
use crate::support::{Scratch, assert_same, content, names, until};

const UPLOADS: usize = 100;
const BYTES: usize = 300_000;

fn bytes_of(number: usize) -> std::sync::Arc<Vec<u8>> {
    content(7000 + number as u64, BYTES)
}

/// Uploads one file, all of it or half of it; returns whether it was acknowledged.
fn upload(address: &str, number: usize, whole: bool, sent: &AtomicUsize) -> bool {
    let attempt = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let head = format!("PUT /f{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BYTES}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let bytes = bytes_of(number);
        let part = if whole { &bytes[..] } else { &bytes[..BYTES / 2] };
        stream.write_all(part)?;
        sent.fetch_add(1, Ordering::Relaxed);
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"HTTP/1.1 201")
    };
    attempt().unwrap_or(false)
}

/// The names of the files whose upload has not ended.
fn partials(export: &Path) -> Vec<String> {
    let hidden = export.join(".gridlane");
    let all = if hidden.exists() { names(&hidden) } else { Vec::new() };
    all.into_iter().filter(|name| name.ends_with(".part")).collect()
}

#[test]
fn what_was_acknowledged_is_there_and_nothing_else_is() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    let mut server = Server::with(&export, &["--allow-write"]);
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (sent, acknowledged) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let (address, sent, acknowledged) = (&address, &sent, &acknowledged);
        let uploads: Vec<_> = (0..UPLOADS)
            .map(|number| {
                scope.spawn(move || {
                    // Every second one never says the rest.
                    let was_acknowledged = upload(address, number, number % 2 == 0, sent);
                    acknowledged.fetch_add(usize::from(was_acknowledged), Ordering::Relaxed);
                    was_acknowledged
                })
            })
            .collect();
        until("some are acknowledged, and some are in the middle", || {
            let acknowledged = acknowledged.load(Ordering::Relaxed);
            // The whole ones among them may yet end before the server does.
            let may_end = UPLOADS / 2 - acknowledged;
            acknowledged >= UPLOADS / 10 && partials(&export).len() >= UPLOADS / 4 + may_end
        });
        server.kill();
        uploads.into_iter().map(|upload| upload.join().unwrap()).collect()
    });
    let visible: Vec<String> = names(&export).into_iter().filter(|name| name != ".gridlane").collect();
    for name in &visible {
        let number: usize = name.strip_prefix('f').unwrap().parse().unwrap();
        assert!(number.is_multiple_of(2), "{name} was never whole");
        assert_same(&fs::read(export.join(name)).unwrap(), &bytes_of(number));
    }
    for (number, _) in outcomes.iter().enumerate().filter(|(_, was_acknowledged)| **was_acknowledged) {
        assert!(visible.contains(&format!("f{number}")), "f{number} was acknowledged and is not there");
    }
    let left = partials(&export);
    assert!(left.len() >= UPLOADS / 4, "{left:?}");
    // Their clients may still go on with them, until they are a day old.
    let server = Server::with(&export, &["--allow-write"]);
    assert_eq!(partials(&export).len(), left.len());
    assert_eq!(server.stop("TERM").code(), Some(0));
    let (old, young) = left.split_at(left.len() / 2);
    let hidden = export.join(".gridlane");
    let yesterday = SystemTime::now() - Duration::from_secs(25 * 3600);
    for name in old {
        fs::File::options().write(true).open(hidden.join(name)).unwrap().set_modified(yesterday).unwrap();
    }
    let server = Server::with(&export, &["--allow-write"]);
    until("the old ones are gone", || partials(&export).len() == young.len());
    assert!(young.iter().all(|name| hidden.join(name).exists()));
    assert_eq!(server.stop("TERM").code(), Some(0));
    let again: Vec<String> = names(&export).into_iter().filter(|name| name != ".gridlane").collect();
    assert_eq!(again, visible);
}
