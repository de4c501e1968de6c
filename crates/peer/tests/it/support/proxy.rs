//! A small proxy: absolute-form requests, CONNECT and SOCKS 5, in clear or behind TLS.

#![allow(dead_code)] // not every test that includes this needs all of it

use std::sync::{Arc, Mutex};

use gridlane_net::{Acceptor, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    /// Its address, as `host:port`.
    pub(crate) address: String,
    state: Arc<State>,
}

struct State {
    /// The `Proxy-Authorization` that it demands, or for SOCKS `user:password`.
    wants: Option<&'static str>,
    seen: Mutex<Vec<String>>,
}

impl Proxy {
    pub(crate) async fn start(wants: Option<&'static str>, tls: Option<Acceptor>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State { wants, seen: Mutex::default() });
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (state, tls) = (serving.clone(), tls.clone());
                tokio::spawn(async move {
                    let socket = match tls {
                        None => socket,
                        Some(acceptor) => in_clear(acceptor.accept(socket).await.ok()?.0).await,
                    };
                    state.serve(socket).await
                });
            }
        });
        Proxy { address, state }
    }

    /// Heads of requests, and `SOCKS host:port`.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.state.seen.lock().unwrap().clone()
    }
}

/// A plain socket with the bytes of an encrypted stream.
async fn in_clear(mut stream: Stream) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut far = listener.accept().await.unwrap().0;
    tokio::spawn(async move {
        let (mut down, mut up) = (vec![0; 16_384], vec![0; 16_384]);
        loop {
            tokio::select! {
                count = stream.read(&mut down) => match count {
                    Ok(count) if count > 0 => far.write_all(&down[..count]).await.ok()?,
                    _ => return None::<()>,
                },
                count = far.read(&mut up) => match count {
                    Ok(count) if count > 0 => stream.write_all(&up[..count]).await.ok()?,
                    _ => {
                        let _ = stream.shutdown().await;
                        return None;
                    }
                },
            }
        }
    });
    near
}

impl State {
    async fn serve(&self, mut socket: TcpStream) -> Option<()> {
        let mut first = [0];
        if socket.peek(&mut first).await.ok()? == 1 && first[0] == 5 {
            return self.serve_socks(socket).await;
        }
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.ok()?);
            }
            let head = String::from_utf8(head).ok()?;
            self.seen.lock().unwrap().push(head.clone());
            let wanted = self.wants.map(|wants| format!("Proxy-Authorization: {wants}\r\n"));
            if wanted.is_some_and(|wanted| !head.contains(&wanted)) {
                let refusal =
                    "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 6\r\n\r\nwho?\r\n";
                socket.write_all(refusal.as_bytes()).await.ok()?;
                continue;
            }
            let mut words = head.split(' ');
            let (method, target) = (words.next()?, words.next()?);
            if method == "CONNECT" {
                let Ok(mut far) = TcpStream::connect(target).await else {
                    socket.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await.ok()?;
                    continue;
                };
                socket.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
                copy_bidirectional(&mut socket, &mut far).await.ok()?;
                return None;
            }
            // One request: a body and an answer without interpretation, as the server closes behind it.
            let (host, path) = target.strip_prefix("http://")?.split_once('/')?;
            let mut far = TcpStream::connect(host).await.ok()?;
            let rest = head.split_once("\r\n")?.1;
            let head = format!("{method} /{path} HTTP/1.1\r\n{rest}");
            far.write_all(head.as_bytes()).await.ok()?;
            copy_bidirectional(&mut socket, &mut far).await.ok()?;
            return None;
        }
    }

    async fn serve_socks(&self, mut socket: TcpStream) -> Option<()> {
        let [_, count] = read(&mut socket).await?;
        let mut methods = vec![0; usize::from(count)];
        socket.read_exact(&mut methods).await.ok()?;
        match self.wants {
            Some(_) if !methods.contains(&2) => {
                socket.write_all(&[5, 0xff]).await.ok()?;
                return None;
            }
            None => socket.write_all(&[5, 0]).await.ok()?,
            Some(wants) => {
                socket.write_all(&[5, 2]).await.ok()?;
                let [_, length] = read(&mut socket).await?;
                let mut user = vec![0; usize::from(length)];
                socket.read_exact(&mut user).await.ok()?;
                let [length] = read(&mut socket).await?;
                let mut password = vec![0; usize::from(length)];
                socket.read_exact(&mut password).await.ok()?;
                let is_right = [user, password].join(&b':') == wants.as_bytes();
                socket.write_all(&[1, u8::from(!is_right)]).await.ok()?;
            }
        }
        let [_, _, _, kind] = read(&mut socket).await?;
        let host = match kind {
            1 => std::net::Ipv4Addr::from(read::<4>(&mut socket).await?).to_string(),
            3 => {
                let [length] = read(&mut socket).await?;
                let mut name = vec![0; usize::from(length)];
                socket.read_exact(&mut name).await.ok()?;
                String::from_utf8(name).ok()?
            }
            _ => return None,
        };
        let target = format!("{host}:{}", u16::from_be_bytes(read(&mut socket).await?));
        self.seen.lock().unwrap().push(format!("SOCKS {target}"));
        let Ok(mut far) = TcpStream::connect(target).await else {
            socket.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
            return None;
        };
        socket.write_all(&[5, 0, 0, 3, 1, b'x', 0, 0]).await.ok()?;
        copy_bidirectional(&mut socket, &mut far).await.ok()?;
        None
    }
}

async fn read<const COUNT: usize>(socket: &mut TcpStream) -> Option<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    socket.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}
