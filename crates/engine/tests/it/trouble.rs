//! Sources that stop delivering are told of while the copy goes on.

#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use std::time::{Duration, Instant};

use crate::support::to_file;
use gridlane_core::Url;
use gridlane_engine::{CopySpec, Event, Observer, Options, State, copy};
use gridlane_net::Dialer;
use gridlane_net::tls::Trust;
use gridlane_peer::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// When which state of a source was told.
struct Heard {
    begun: Instant,
    states: Vec<(Duration, State, bool)>,
}

impl Observer for Heard {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Source { state, error, .. } = event {
            self.states.push((self.begun.elapsed(), *state, error.is_some()));
        }
    }
}

/// Answers the first request with a part of what it announces, and says nothing more.
async fn falls_silent() -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/f", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = connection.read(&mut [0; 4096]).await;
                let head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99999/100000\r\n\
                            Content-Length: 100000\r\nETag: \"a\"\r\n\r\n";
                let _ = connection.write_all(head.as_bytes()).await;
                let _ = connection.write_all(&[7; 1000]).await;
                std::future::pending::<()>().await
            });
        }
    });
    Url::parse_absolute(&url).unwrap()
}

/// Answers the first request with a part of what it announces; then its process ends: its connection is closed, and
/// no process listens any more. Also says when that was.
async fn is_killed() -> (Url, tokio::sync::oneshot::Receiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/f", listener.local_addr().unwrap());
    let (tell, killed) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let _ = connection.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99999/100000\r\n\
                    Content-Length: 100000\r\nETag: \"a\"\r\n\r\n";
        let _ = connection.write_all(head.as_bytes()).await;
        let _ = connection.write_all(&[7; 1000]).await;
        drop((listener, connection));
        let _ = tell.send(Instant::now());
    });
    (Url::parse_absolute(&url).unwrap(), killed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_source_is_told_of_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (url, killed) = is_killed().await;
    let spec = CopySpec {
        sources: vec![url],
        target: to_file(&dir.path().join("f")),
        options: Options { patience: Duration::from_secs(4), ..Options::default() },
    };
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(30));
    let mut heard = Heard { begun: Instant::now(), states: Vec::new() };
    let begun = heard.begun;
    let outcome = copy(spec, client, &mut heard, std::future::pending()).await;
    assert!(outcome.result.is_err());
    let (killed_at, ended_at) = (killed.await.unwrap().duration_since(begun), begun.elapsed());
    let (at, state, has_reason) = *heard.states.first().unwrap();
    assert!(matches!(state, State::Probation | State::Dead) && has_reason, "{:?}", heard.states);
    // Two more attempts, one and two seconds later, come before the end: what is told before the first of them is at once, also
    // on a machine that is busy.
    let tries = ended_at.saturating_sub(killed_at);
    assert!(at <= killed_at + tries / 2, "killed at {killed_at:?}, ended {ended_at:?}: {:?}", heard.states);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_source_is_told_of_before_it_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let spec = CopySpec {
        sources: vec![falls_silent().await],
        target: to_file(&dir.path().join("f")),
        options: Options { patience: Duration::from_secs(3), ..Options::default() },
    };
    let client = Client::new(Dialer::new(Trust::default()), Duration::from_secs(30));
    let mut heard = Heard { begun: Instant::now(), states: Vec::new() };
    let outcome = copy(spec, client, &mut heard, std::future::pending()).await;
    assert!(outcome.result.is_err());
    let (at, state, has_reason) = *heard.states.first().unwrap();
    // That it is the first that is told says that it came before the end.
    assert_eq!((state, has_reason), (State::Suspect, true), "{:?}", heard.states);
    assert!(at >= Duration::from_secs(1), "{:?}", heard.states);
}
