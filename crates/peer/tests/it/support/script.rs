//! A server that answers each request with the bytes a closure makes of it, and remembers what it saw.

#![allow(dead_code)] // not every test that includes this needs all of it

use std::sync::{Arc, Mutex};

use gridlane_core::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The connection it came on, counted from 0.
    pub(crate) connection: usize,
    /// Request line and fields.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap()
    }

    pub(crate) fn has_line(&self, line: &str) -> bool {
        self.head.lines().any(|found| found.eq_ignore_ascii_case(line))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// The treatment of a request.
pub(crate) enum Reply {
    /// These bytes, and the connection stays.
    Bytes(Vec<u8>),
    /// These bytes, and the connection ends.
    Last(Vec<u8>),
}

/// An answer with a length.
pub(crate) fn answer(status: &str, fields: &[&str], body: &str) -> Reply {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    Reply::Bytes(
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

/// A running server; it ends with the runtime.
pub(crate) struct Scripted {
    pub(crate) origin: String,
    state: Arc<State>,
}

struct State {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    connections: Mutex<usize>,
}

impl Scripted {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Scripted {
        Scripted::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    /// One that listens already.
    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Scripted {
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let state = State { script: Box::new(script), seen: Mutex::default(), connections: Mutex::default() };
        let state = Arc::new(state);
        let accepting = state.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = {
                    let mut connections = accepting.connections.lock().unwrap();
                    *connections += 1;
                    *connections - 1
                };
                let state = accepting.clone();
                tokio::spawn(async move { state.talk(socket, number).await });
            }
        });
        Scripted { origin, state }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse_absolute(&format!("{}{path}", self.origin)).unwrap()
    }

    /// Every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }
}

impl State {
    async fn talk(&self, mut socket: TcpStream, connection: usize) -> Option<()> {
        let mut ahead = Vec::new();
        loop {
            let head = String::from_utf8(head_of(&mut socket, &mut ahead).await?).ok()?;
            let mut seen = Seen { connection, head, body: Vec::new() };
            let length = seen.field("content-length").map_or(0, |length| length.parse().unwrap());
            if length > 0 && seen.has_line("Expect: 100-continue") {
                socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
            }
            while ahead.len() < length {
                if socket.read_buf(&mut ahead).await.ok()? == 0 {
                    return None;
                }
            }
            seen.body = ahead.drain(..length).collect();
            self.seen.lock().unwrap().push(seen.clone());
            match (self.script)(&seen) {
                Reply::Bytes(bytes) => socket.write_all(&bytes).await.ok()?,
                Reply::Last(bytes) => {
                    socket.write_all(&bytes).await.ok()?;
                    socket.shutdown().await.ok()?;
                    // What is asked for meanwhile would have the kernel reset the connection, and the answer lost.
                    let mut unheard = [0; 4096];
                    while socket.read(&mut unheard).await.ok()? > 0 {}
                    return None;
                }
            }
        }
    }
}

/// The next head of a request: `ahead` has what has come and is not taken. `None` when no other comes.
pub(crate) async fn head_of(socket: &mut TcpStream, ahead: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = ahead.windows(4).position(|four| four == b"\r\n\r\n") {
            return Some(ahead.drain(..at + 4).collect());
        }
        if socket.read_buf(ahead).await.ok()? == 0 {
            return None;
        }
    }
}
