//! Uploads to servers that take nothing, do not answer, or refuse in the middle.
#![allow(clippy::unwrap_used)] // in a test, a panic is the report

use crate::support;

use crate::script;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use gridlane_core::checksum::adler32;
use gridlane_core::{Checksum, Error, ErrorKind, Hint, Url};
use gridlane_dav::digest;
use gridlane_engine::{CopySpec, Options, TargetSpec};
use script::{Reply, Scripted};
use support::{Faults, Site, copy_quietly, noise};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Beyond everything that kernels keep on the way.
const LARGE_BYTES: usize = 32 * 1024 * 1024;
const SHORT: Duration = Duration::from_millis(700);
/// In which a source on a busy machine sends something.
const PATIENCE: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(300);

/// A server that wants the body of a PUT, takes `taken_bytes` of it, says something, and keeps the connection.
async fn target(taken_bytes: usize, said: &'static str) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/f", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut socket = listener.accept().await.unwrap().0;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        if head.windows(6).any(|six| six == b"Expect") {
            socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        }
        let mut body = vec![0; taken_bytes];
        socket.read_exact(&mut body).await.unwrap();
        socket.write_all(said.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    Url::parse_absolute(&url).unwrap()
}

/// Why an upload of `bytes` fails.
async fn failure(bytes: usize, url: Url, patience: Duration, upload_answer_max: Duration) -> Error {
    let source = Site::start(&noise(bytes, 1), Faults::default(), 1).await;
    let spec = CopySpec {
        sources: vec![source.url],
        target: TargetSpec::Upload { url, overwrite: true, modified: None },
        options: Options { patience, upload_answer_max, ..Options::default() },
    };
    copy_quietly(spec).await.result.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_nothing_is_given_up_when_patience_ends() {
    let error = failure(LARGE_BYTES, target(0, "").await, PATIENCE, LONG).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.message().contains("takes no bytes"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_given_up_when_the_user_says() {
    for bytes in [LARGE_BYTES, 1000] {
        let error = failure(bytes, target(bytes, "").await, LONG, SHORT).await;
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.message().contains("no answer within 0.7"), "{error}");
        assert!(error.advice() == Some(&Hint::WaitLonger), "{bytes}: {error}");
    }
}

/// The second attempt finds the file of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_was_stored_and_not_answered_is_no_failure() {
    let bytes = noise(1000, 1);
    for stored in [bytes.clone(), noise(1000, 2)] {
        let is_right = stored == bytes;
        let has_it = AtomicBool::new(false);
        let said = digest::encode(&Checksum::adler32(adler32(&stored)));
        let server = Scripted::start(move |seen| match seen.method() {
            "PUT" => {
                has_it.store(true, SeqCst);
                Reply::Last(Vec::new())
            }
            _ if has_it.load(SeqCst) => {
                let head = format!("HTTP/1.1 200 OK\r\nDigest: {said}\r\nContent-Length: 1000\r\n\r\n");
                Reply::Bytes(head.into())
            }
            _ => Reply::Bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        })
        .await;
        let source = Site::start(&bytes, Faults::default(), 1).await;
        let spec = CopySpec {
            sources: vec![source.url],
            target: TargetSpec::Upload { url: server.url("/f"), overwrite: false, modified: None },
            options: Options::default(),
        };
        let outcome = copy_quietly(spec).await;
        assert!(server.seen().iter().any(|seen| seen.method() == "PUT"));
        match outcome.result {
            Ok(()) => assert!(is_right && outcome.report.checksum.is_some()),
            Err(error) => assert!(!is_right && error.kind() == ErrorKind::Precondition, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_in_the_middle_is_the_error_at_once() {
    let said = "HTTP/1.1 413 Too Large\r\nContent-Length: 12\r\n\r\nquota is 1 MB";
    let error = failure(LARGE_BYTES, target(1024 * 1024, said).await, LONG, LONG).await;
    assert_eq!(error.status(), Some(413), "{error}");
    assert!(error.message().contains("quota is 1 M"), "{error}");
}
