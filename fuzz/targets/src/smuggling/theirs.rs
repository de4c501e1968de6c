//! hyper's server on a connection that is a piece of memory: no socket, no runtime and no clock.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::body::{Body, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode, Version};

use super::{Asked, End, Request, Seen, asked};
use crate::random::Random;

/// The client's bytes, in pieces, and nothing of the answers.
struct Wire {
    pieces: Vec<Vec<u8>>,
    /// Nothing more comes: before this is set, hyper waits.
    ended: Rc<RefCell<bool>>,
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(piece) = self.pieces.last_mut() else {
            return if *self.ended.borrow() { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        let count = piece.len().min(buffer.remaining());
        buffer.put_slice(&piece[..count]);
        piece.drain(..count);
        if piece.is_empty() {
            self.pieces.pop();
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// True after a wish to be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The requests that the service saw, and the error that the last body ended with, if any.
#[derive(Default)]
struct Record {
    requests: Vec<Request>,
    body_end: Option<End>,
}

/// Reads a connection as a server made with hyper does.
pub(super) fn read(data: &[u8]) -> Seen {
    let mut random = Random::of(data);
    let pieces: Vec<Vec<u8>> = random.pieces(data).into_iter().rev().map(<[u8]>::to_vec).collect();
    let ended = Rc::new(RefCell::new(false));
    let record = Rc::new(RefCell::new(Record::default()));
    let wire = Wire { pieces, ended: ended.clone() };
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let record = record.clone();
        Box::pin(async move {
            take(request, &record).await;
            let mut response = Response::new(String::new());
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok::<_, Infallible>(response)
        })
    });
    let mut connection = http1::Builder::new().header_read_timeout(None).serve_connection(wire, service);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let outcome = loop {
        woken.0.store(false, Ordering::Relaxed);
        match connection.poll_without_shutdown(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => break Some(outcome),
            Poll::Pending if woken.0.load(Ordering::Relaxed) => {}
            Poll::Pending if *ended.borrow() => break None,
            Poll::Pending => *ended.borrow_mut() = true,
        }
    };
    let parts = connection.into_parts();
    let mut left: Vec<u8> = parts.read_buf.to_vec();
    left.extend(parts.io.pieces.iter().rev().flatten());
    let Record { requests, body_end } = record.take();
    let end = match (body_end, outcome) {
        (Some(end), _) => end,
        (None, Some(Err(error))) if error.is_incomplete_message() => End::Bytes,
        (None, Some(Err(error))) => End::Refused(describe(&error)),
        (None, Some(Ok(())) | None) if left.iter().all(|byte| matches!(byte, b'\r' | b'\n')) => End::Bytes,
        (None, Some(Ok(()))) => End::Closed(left.len()),
        (None, None) => End::Bytes,
    };
    Seen { requests, end }
}

/// Writes down a request with all of its body.
async fn take(request: hyper::Request<Incoming>, record: &RefCell<Record>) {
    let method = request.method().as_str().to_owned();
    let (path, query) = (request.uri().path(), request.uri().query());
    // A path that we refuse; what we see cannot be the same.
    let target = asked(&method, path, query).unwrap_or(Asked::Server);
    let is_http_10 = request.version() == Version::HTTP_10;
    record.borrow_mut().requests.push(Request { method, target, is_http_10, body: None });
    let (mut body, mut incoming) = (Vec::new(), request.into_body());
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await
    {
        match frame {
            Ok(frame) => body.extend(frame.into_data().unwrap_or_default()),
            Err(error) => {
                let cause =
                    std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
                let is_cut = error.is_incomplete_message()
                    || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof);
                let end = if is_cut { End::Bytes } else { End::Refused(describe(&error)) };
                record.borrow_mut().body_end = Some(end);
                return;
            }
        }
    }
    if let Some(request) = record.borrow_mut().requests.last_mut() {
        request.body = Some(body);
    }
}

fn describe(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}
