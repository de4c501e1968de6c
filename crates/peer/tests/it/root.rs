//! The client of XRootD's protocol, against a server that does what is asked of it here.
#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::root_site as support;

use std::time::Duration;

use gridlane_core::{ErrorKind, Url};
use gridlane_net::{Dialer, tls::Trust};
use gridlane_peer::Client;
use gridlane_peer::root::Outcome;
use gridlane_sys::tcp::ClosedPort;
use gridlane_xrd::answer::Redirect;
use gridlane_xrd::flags::{DirlistOptions, OpenOptions};
use gridlane_xrd::request::{About, Dirlist, Mkdir, PgWrite, Read, Stat, Sync};
use gridlane_xrd::{PathArg, PathId, RequestId, pages};
use support::{Faults, Site};

fn client() -> Client {
    Client::new(Dialer::new(Trust::default()), Duration::from_secs(20))
}

fn stat(about: PathArg) -> Stat {
    Stat { about: About::Path(about), is_vfs: false, wants: 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_read_is_closed_when_it_is_dropped() {
    let site = Site::start(b"bytes", Faults::default()).await;
    let client = client();
    let mut file = client.root.open(&site.url, OpenOptions::READ, 0, "").await.unwrap();
    assert!(file.stat.is_none() && file.uses_pages());
    let read = file.call(|handle| Read { handle, offset: 1, len: 9, path_id: PathId::MAIN }).await.unwrap();
    assert_eq!(read, b"ytes");
    drop(file);
    let closed = async {
        while site.count("close") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.unwrap();
    // What was to be written is not closed in good order.
    let file = client.root.open(&site.url, OpenOptions::UPDATE | OpenOptions::POSC, 0o644, "").await.unwrap();
    drop(file);
    client.root.call(&site.url, stat).await.unwrap();
    assert_eq!(site.count("close"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_complete_url_and_a_circle() {
    let good = Site::start(b"12345", Faults::default()).await;
    let to = |url: String| Redirect::Url { url, flags: 0 };
    let redirects = vec![to(format!("root://127.0.0.1:{}//f?k=w&more", good.port))];
    let site = Site::start(b"", Faults { redirects, ..Faults::default() }).await;
    client().root.call(&site.url, stat).await.unwrap();
    assert_eq!(good.log().last().unwrap(), "stat /f?k=w&more");
    let redirects = vec![to("https://127.0.0.1/f".into())];
    let site = Site::start(b"", Faults { redirects, ..Faults::default() }).await;
    let error = client().root.call(&site.url, stat).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // To itself, and on and on.
    let closed = ClosedPort::new().unwrap();
    let redirects = vec![to(format!("root://127.0.0.1:{}//f", closed.address().port()))];
    let site = Site::start(b"", Faults { redirects, ..Faults::default() }).await;
    assert!(client().root.call(&site.url, stat).await.is_err());
    let second = Site::start(b"", Faults::default()).await;
    let redirects = vec![second.redirect()];
    let first = Site::start(b"", Faults { redirects, insists: true, ..Faults::default() }).await;
    let redirects = vec![first.redirect()];
    let third = Site::start(b"", Faults { redirects, insists: true, ..Faults::default() }).await;
    client().root.call(&third.url, stat).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_that_was_closed_is_made_again() {
    let site = Site::start(b"x", Faults { closes_idle: true, ..Faults::default() }).await;
    let client = client();
    client.root.call(&site.url, stat).await.unwrap();
    client.root.call(&site.url, stat).await.unwrap();
    assert_eq!((site.connections(), site.count("stat")), (2, 3));
    // What must not happen twice is not asked twice.
    let site = Site::start(b"x", Faults { closes_idle: true, ..Faults::default() }).await;
    client.root.call(&site.url, stat).await.unwrap();
    let mkdir = |about| Mkdir { about, parents: false, mode: 0o755 };
    let error = client.root.call(&site.url, mkdir).await.unwrap_err();
    assert_eq!((error.kind(), site.count("mkdir")), (ErrorKind::Network, 1), "{error}");
    client.root.call(&site.url, mkdir).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_about_a_file_before_the_first_answer() {
    let site = Site::start(b"", Faults { bad_page: Some((4096, 1)), ..Faults::default() }).await;
    let (update, client) = (OpenOptions::UPDATE | OpenOptions::DELETE, client());
    let mut file = client.root.open(&site.url, update, 0o644, "oss.asize=5").await.unwrap();
    assert!(file.uses_pages());
    let mut framed = Vec::new();
    pages::frame(0, &[1; 10_000], &mut framed);
    let mut sent = Vec::new();
    for number in 0..3 {
        let write =
            |handle, is_retry| PgWrite { handle, offset: number * 10_000, path_id: PathId::MAIN, is_retry };
        sent.push(file.send(|handle| write(handle, false), &framed).await.unwrap());
    }
    assert_eq!(file.unanswered(), 3);
    let first = file.answer().await.unwrap();
    assert_eq!(first.stream, sent[0]);
    assert!(matches!(first.outcome, Outcome::Wrong(pages) if pages == [(4096, 4096)]));
    for stream in &sent[1..] {
        let answer = file.answer().await.unwrap();
        assert!(answer.stream == *stream && matches!(answer.outcome, Outcome::Done(body) if body.is_empty()));
    }
    let sync = file.call(|handle| Sync { handle }).await.unwrap_err();
    assert_eq!(sync.kind(), ErrorKind::Unsupported);
    file.close().await.unwrap();
    assert_eq!(site.log().last().unwrap(), "close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_breaks_off_is_not_begun_again() {
    let node = Site::start(b"x", Faults { breaks_after: 1, ..Faults::default() }).await;
    let whole = Site::start(b"x", Faults::default()).await;
    let redirects = vec![node.redirect(), whole.redirect()];
    let manager = Site::start(b"x", Faults { redirects, ..Faults::default() }).await;
    let dirlist = |about| Dirlist { about, options: DirlistOptions::NONE };
    let mut taken = Vec::new();
    let mut part = |bytes: &[u8], _| {
        taken.extend_from_slice(bytes);
        Ok(())
    };
    let error = client().root.call_in_parts(&manager.url, dirlist, &mut part).await.unwrap_err();
    assert_eq!((error.kind(), taken.as_slice()), (ErrorKind::Network, &b"a\nb\n"[..]));
    assert!(error.endpoint_text().unwrap().contains(&node.port.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_with_long_answers() {
    let locations = "Sr[::127.0.0.1]:1 Mr[::127.0.0.1]:2 Sw[::127.0.0.2]:1094\0".into();
    let site = Site::start(b"x", Faults { locations, ..Faults::default() }).await;
    let mut parts = Vec::new();
    let dirlist = |about| Dirlist { about, options: DirlistOptions::NONE };
    let mut part = |bytes: &[u8], is_last| {
        parts.push((bytes.to_vec(), is_last));
        Ok(())
    };
    client().root.call_in_parts(&site.url, dirlist, &mut part).await.unwrap();
    assert_eq!(parts, [(b"a\nb\n".to_vec(), false), (b"c\0".to_vec(), true)]);
    let found = client().root.locate(&site.url).await.unwrap();
    let found: Vec<_> = found.iter().map(Url::typed).collect();
    assert_eq!(found, ["root://127.0.0.1:1//f?k=v", "root://127.0.0.2//f?k=v"]);
    // The user gave the token to the manager, and to no server that it names.
    let with_token = Url::parse_absolute(&format!("{}&authz=secret", site.url.typed())).unwrap();
    let found = client().root.locate(&with_token).await.unwrap();
    let found: Vec<_> = found.iter().map(Url::typed).collect();
    assert_eq!(found, ["root://127.0.0.1:1//f?k=v", "root://127.0.0.2//f?k=v"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_may_take_longer_than_an_answer() {
    let slow_listing = Some((10, Duration::from_millis(600)));
    let site = Site::start(b"", Faults { slow_listing, ..Faults::default() }).await;
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(5)).root;
    let mut names = Vec::new();
    let mut part = |bytes: &[u8], _| {
        names.extend_from_slice(bytes);
        Ok(())
    };
    let dirlist = |about| Dirlist { about, options: DirlistOptions::NONE };
    client.call_in_parts(&site.url, dirlist, &mut part).await.unwrap();
    assert_eq!(names, b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\nlast\0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_done_is_not_done_elsewhere() {
    let dying = Site::start(b"", Faults { dies_at: Some(RequestId::MKDIR), ..Faults::default() }).await;
    let other = Site::start(b"", Faults::default()).await;
    let redirects = vec![dying.redirect(), other.redirect()];
    let manager = Site::start(b"", Faults { redirects, ..Faults::default() }).await;
    let client = client().root;
    let mkdir = |about| Mkdir { about, parents: false, mode: 0o755 };
    let error = client.call(&manager.url, mkdir).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert_eq!((dying.count("mkdir"), other.count("mkdir")), (1, 0));
    // A request that changes nothing is sent elsewhere, and so is one that no server can have received.
    client.call(&manager.url, stat).await.unwrap();
    let closed = ClosedPort::new().unwrap();
    let port = closed.address().port();
    let nowhere = Redirect::Host { host: "127.0.0.1".into(), port, cgi: Vec::new(), token: Vec::new() };
    let redirects = vec![nowhere, other.redirect()];
    let manager = Site::start(b"", Faults { redirects, ..Faults::default() }).await;
    client.call(&manager.url, mkdir).await.unwrap();
    assert_eq!(other.count("mkdir"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_not_put_off_for_ever() {
    let site = Site::start(b"", Faults { puts_off: true, ..Faults::default() }).await;
    let asking = tokio::spawn(async move {
        let mkdir = |about| Mkdir { about, parents: false, mode: 0o755 };
        (client().root.call(&site.url, mkdir).await.map(|_| ()), site)
    });
    let (outcome, site) = asking.await.unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Busy);
    assert!(site.count("login") < 1000);
}
