//! One connection, plain or TLS.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use gridlane_core::limits::TLS_RECORD_BYTES_MAX;
use gridlane_sys::tcp::{self, TcpInfo};
use rustix::net::{RecvFlags, SendFlags};
use rustls::ServerConfig;
use rustls::client::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop::consume_budget;

use crate::framing::RecordEnds;
use crate::gather::Gather;
use crate::session::{Need, Session};

/// Interval at which the end of a connection is looked for behind bytes that are not read for the moment.
const CLOSED_CHECK: Duration = Duration::from_secs(1);
/// A read that brings fewer bytes is a message's: it was sent with one call, and its sender waits.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Reads that a connection may need before it is quiet: servers send a few tickets, never this much.
const QUIET_READS_MAX: usize = 4;

/// A TCP connection whose bytes are plaintext to its owner, whether TLS protects them or not.
pub struct Stream {
    socket: TcpStream,
    peer: SocketAddr,
    /// The proxy that passed the connection on, if one did.
    proxy: Option<SocketAddr>,
    session: Option<Box<Session>>,
    gather: Gather,
}

impl Stream {
    /// A connection without TLS.
    pub fn plain(socket: TcpStream) -> io::Result<Stream> {
        let peer = socket.peer_addr()?;
        // Heads and small bodies are written whole; nothing is gained by waiting for more (RFC 896).
        socket.set_nodelay(true)?;
        Ok(Stream { socket, peer, proxy: None, session: None, gather: Gather::new() })
    }

    /// Shakes hands as a client that wants to speak to `name`.
    pub async fn connect_tls(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Stream> {
        Stream::plain(socket)?.shake_hands(Session::client(config, name).map_err(invalid)?).await
    }

    /// Shakes hands as a server.
    pub async fn accept_tls(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Stream> {
        Stream::plain(socket)?.shake_hands(Session::server(config).map_err(invalid)?).await
    }

    /// Shakes hands as a server on a connection that was plain so far. `ahead` is what was read from it already and
    /// belongs to the handshake. After a failure the connection is of no use.
    pub async fn upgrade_tls(&mut self, config: Arc<ServerConfig>, ahead: &[u8]) -> io::Result<()> {
        let mut session = Box::new(Session::server(config).map_err(invalid)?);
        let room = session.input();
        if self.session.is_some() || ahead.len() > room.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS cannot begin here"));
        }
        room[..ahead.len()].copy_from_slice(ahead);
        session.received(ahead.len());
        self.shake_hands_in(session).await
    }

    async fn shake_hands(mut self, session: Session) -> io::Result<Stream> {
        self.shake_hands_in(Box::new(session)).await?;
        Ok(self)
    }

    async fn shake_hands_in(&mut self, session: Box<Session>) -> io::Result<()> {
        let session = self.session.insert(session);
        // A single byte may be what the peer's next message ends with.
        self.gather.end(&self.socket)?;
        loop {
            let need = session.handshake();
            // Also after a failure: the peer learns by an alert what was wrong.
            while !session.output().is_empty() {
                let sent = send(&self.socket, session.output()).await?;
                session.transmitted(sent);
            }
            match need? {
                Need::Nothing => return Ok(()),
                Need::PeerClosed => return Err(io::ErrorKind::UnexpectedEof.into()),
                Need::Input => match receive(&self.socket, session.input()).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    received => session.received(received),
                },
            }
        }
    }

    /// Waits for bytes and puts them into `target`; 0 means that the peer ended its direction in good
    /// order. A TLS connection that ends without saying so gives `UnexpectedEof`.
    ///
    /// Fills as much of `target` as has arrived, so a large one means few calls. May be dropped and
    /// called again: no byte is lost.
    pub async fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.read_of(target, 0).await
    }

    /// The same of a message of which at least `certain_bytes` are still to come. Where they come fast, many are waited for
    /// at once; a peer that sends less than is certain delays this by milliseconds.
    pub async fn read_of(&mut self, target: &mut [u8], certain_bytes: u64) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        let Stream { socket, session, gather, .. } = self;
        let Some(session) = session else {
            return receive_of(socket, target, gather, certain_bytes).await;
        };
        let mut count = 0;
        loop {
            let read = session.read(&mut target[count..]);
            // Also after a failure: the peer learns by an alert what was wrong.
            let is_full = send_what_fits(socket, session);
            let (got, need) = read?;
            count += got;
            match need {
                Need::Nothing => return Ok(count),
                Need::PeerClosed => return Ok(count),
                Need::Input if count == 0 => {
                    if is_full && !readable_before_writable(socket, gather).await? {
                        continue;
                    }
                    if let Some(room) = session.room_in(target) {
                        let at = room.start;
                        match receive_of(socket, &mut target[room], gather, certain_bytes).await? {
                            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                            received => {
                                let came = session.received_in(target, at, received);
                                send_what_fits(socket, session);
                                match came? {
                                    (0, Need::Input) => continue,
                                    (count, _) => return Ok(count),
                                }
                            }
                        }
                    }
                    if !session.has_input() {
                        // Room is made for bytes that have come, not for those that may.
                        gather.end(socket)?;
                        socket.readable().await?;
                    }
                    match receive_of(socket, session.input(), gather, certain_bytes).await? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        received => session.received(received),
                    }
                }
                // Something to return; what has come meanwhile, and any failure, is for the next call.
                Need::Input => return Ok(count),
            }
        }
    }

    /// Sends all of `bytes`.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            while !bytes.is_empty() {
                let sent = send(&self.socket, bytes).await?;
                bytes = &bytes[sent..];
            }
            return Ok(());
        };
        loop {
            while !session.output().is_empty() {
                let sent = send(&self.socket, session.output()).await?;
                session.transmitted(sent);
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let taken = session.write(bytes)?;
            bytes = &bytes[taken..];
        }
    }

    /// Sends some bytes, and takes up to all of `bytes` over; returns how many it took. TLS may take more
    /// than it sends, and may send what it took before and take nothing: `bytes` are sent when all of them
    /// are taken and [`has_unsent`](Stream::has_unsent) says no. Every return but an error is progress. May be dropped
    /// and called again: no byte is taken twice.
    pub async fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return send(&self.socket, bytes).await;
        };
        if !session.output().is_empty() {
            let sent = send(&self.socket, session.output()).await?;
            session.transmitted(sent);
            return Ok(0);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let taken = session.write(bytes)?;
        // What was taken is never waited for: a caller that drops this future would not know of it.
        match self.socket.try_write(session.output()) {
            Ok(sent) => session.transmitted(sent),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
            Err(cause) => return Err(cause),
        }
        Ok(taken)
    }

    /// Waits until the socket may have bytes to read, or room for bytes to write, whatever of it is wanted. May be
    /// dropped at any time.
    pub async fn ready(&self, reads: bool, writes: bool) -> io::Result<()> {
        self.gather.end(&self.socket)?;
        let interest = match (reads, writes) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (_, true) => Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, false) => return std::future::pending().await,
        };
        self.socket.ready(interest).await.map(|_| ())
    }

    /// Ready when there may be bytes to [read](Stream::try_read) in the socket. What TLS has of them already is read without
    /// that. One task at a time is woken.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.gather.end(&self.socket)?;
        self.socket.poll_read_ready(context)
    }

    /// The same as [`read`](Stream::read) without waiting: `None` when nothing has come.
    pub fn try_read(&mut self, target: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(session) = &mut self.session else {
            return unless_would_block(read_some(&self.socket, || target));
        };
        if target.is_empty() {
            return Ok(Some(0));
        }
        let mut count = 0;
        loop {
            let (got, need) = session.read(&mut target[count..]).inspect_err(|_| {
                // The peer learns by an alert what was wrong.
                send_what_fits(&self.socket, session);
            })?;
            count += got;
            if need != Need::Input {
                return Ok(Some(count));
            }
            match read_some(&self.socket, || session.input()) {
                Ok(0) if count == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) => return Ok(Some(count)),
                Ok(received) => session.received(received),
                Err(_) if count > 0 => return Ok(Some(count)),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(cause) => return Err(cause),
            }
        }
    }

    /// The same as [`write_some`](Stream::write_some) without waiting: `None` when the socket is full. With `more`,
    /// the kernel may keep what is not a whole packet until what follows at once.
    pub fn try_write(&mut self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        self.try_write_in(bytes, more, RecordEnds::FULL)
    }

    /// The same; over TLS in records that end where `ends` says, or where `bytes` do.
    pub fn try_write_in(&mut self, bytes: &[u8], more: bool, ends: RecordEnds) -> io::Result<Option<usize>> {
        let Some(session) = &mut self.session else {
            return unless_would_block(self.try_send(bytes, more));
        };
        let mut taken = 0;
        if session.output().is_empty() {
            if bytes.is_empty() {
                return Ok(Some(0));
            }
            taken = session.write_in(bytes, ends)?;
        }
        match self.socket.try_write(session.output()) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => {
                session.transmitted(sent);
                Ok(Some(taken))
            }
            // What was taken is on its way; that is progress.
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => Ok((taken > 0).then_some(taken)),
            Err(cause) => Err(cause),
        }
    }

    /// Has `read` put up to `bytes` (of which 64 KiB at most count) where TLS encrypts them without having copied them.
    /// Returns how many it put there; they are sent when [`send_loaded`](Stream::send_loaded) is called, and are forgotten if
    /// anything else is. `None`: `read` says so, or it was not called, as bytes cannot be taken in this way now.
    pub fn load(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<Option<usize>>,
    ) -> io::Result<Option<usize>> {
        match &mut self.session {
            Some(session) => session.load(bytes, read),
            None => Ok(None),
        }
    }

    /// Takes over what was [loaded](Stream::load), to be sent as that which [`try_write`](Stream::try_write) has taken.
    pub fn send_loaded(&mut self) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.seal_loaded(),
            None => Ok(()),
        }
    }

    fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        if !more {
            return self.socket.try_write(bytes);
        }
        let step = || Ok(rustix::net::send(&self.socket, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?);
        self.socket.try_io(Interest::WRITABLE, step)
    }

    /// The same as [`send_file`](Stream::send_file) without waiting: `None` when the socket is full.
    pub fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<Option<usize>> {
        if self.session.is_some() {
            return Err(bypass());
        }
        unless_would_block(
            self.socket.try_io(Interest::WRITABLE, || send_file(&self.socket, file, offset, len)),
        )
    }

    /// True if bytes that were taken over still wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.output().is_empty())
    }

    /// Returns when the peer has ended its direction or the connection broke. Reads nothing: what comes
    /// meanwhile stays for [`read`](Stream::read). May be dropped at any time.
    pub async fn closed(&self) {
        if self.gather.end(&self.socket).is_err() {
            return;
        }
        loop {
            match self.socket.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => {}
                _ => return,
            }
            // Waits where nothing has come; 0 is the end.
            if !matches!(self.socket.peek(&mut [0]).await, Ok(1..)) {
                return;
            }
            // Bytes that are not read hide what comes behind them from `peek`, but not from the reactor.
            tokio::time::sleep(CLOSED_CHECK).await;
        }
    }

    /// True if the connection is open and nothing has come that was not read: between two messages it
    /// must be so, or the peer has closed it or is about to. Asks the kernel itself and waits for nothing.
    /// What TLS says of itself meanwhile (tickets for later sessions, new keys) is taken in.
    pub fn is_quiet(&mut self) -> bool {
        for _ in 0..QUIET_READS_MAX {
            let peeked =
                rustix::net::recv(&self.socket, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
            match (peeked, &mut self.session) {
                (Err(rustix::io::Errno::AGAIN), None) => return true,
                (Err(rustix::io::Errno::AGAIN), Some(session)) => return session.is_quiet(),
                (Ok((_, 1..)), Some(session)) => {
                    match rustix::net::recv(&self.socket, session.input(), RecvFlags::DONTWAIT) {
                        Ok((_, received)) => session.received(received),
                        Err(_) => return false,
                    }
                    if !session.is_quiet() {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        false
    }

    /// Gives back the memory of TLS' buffers, as far as they are empty, until they are needed again.
    pub fn release_buffers(&mut self) {
        if let Some(session) = &mut self.session {
            session.release();
        }
    }

    /// Sends up to `len` bytes of `file` from `offset` without copying them through this process;
    /// returns how many. 0 means that the file ends there. Only for connections without TLS.
    ///
    /// Waits for the socket, not for the disk: bring the bytes into the page cache first.
    pub async fn send_file(&mut self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        if self.session.is_some() {
            return Err(bypass());
        }
        loop {
            self.socket.writable().await?;
            let step = || send_file(&self.socket, file, offset, len);
            match self.socket.try_io(Interest::WRITABLE, step) {
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }

    /// Has the kernel keep what is not a whole packet until more follows, for 200 ms at most, or send everything at
    /// once, as it does unless it is told. What was kept is sent when it no longer is to be.
    pub fn fill_packets(&self, only_full: bool) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_cork(&self.socket, only_full)?)
    }

    /// The socket whose bytes are this stream's, for TLS on top of it. Where TLS protects this stream
    /// already, as to a proxy, a task carries the bytes between the two: the data path has one layer only.
    pub(crate) async fn into_socket(self) -> io::Result<TcpStream> {
        if self.session.is_none() {
            self.gather.end(&self.socket)?;
            return Ok(self.socket);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        loop {
            let (far, from) = listener.accept().await?;
            // Another process on this machine could have been quicker.
            if from == near.local_addr()? {
                tokio::spawn(carry(self, far));
                return Ok(near);
            }
        }
    }

    /// Ends our direction: TLS' close_notify where there is TLS, then TCP's FIN.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            session.close()?;
            while !session.output().is_empty() {
                let sent = send(&self.socket, session.output()).await?;
                session.transmitted(sent);
            }
        }
        rustix::net::shutdown(self.socket.as_fd(), rustix::net::Shutdown::Write).map_err(io::Error::from)
    }

    /// True if TLS protects the bytes.
    pub fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// The negotiated TLS version, for logs.
    pub fn tls_version(&self) -> Option<&'static str> {
        self.session.as_ref()?.version()
    }

    /// The certificates that the other side has shown in the handshake, or in that of the session that went on: its own
    /// first; none without TLS, or when it has shown none. That it has the first one's key is certain.
    ///
    /// Those of a server were verified. Those of a client [were not](crate::tls::server_config).
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.session.as_ref().map_or(&[], |session| session.peer_certificates())
    }

    /// True if TLS went on from an earlier session, which spares certificates and, before TLS 1.3, a
    /// round trip.
    pub fn is_resumed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_resumed())
    }

    /// The other end's address, or the client's behind a proxy that is believed.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address of the proxy that passed the connection on, if one did.
    pub fn proxy(&self) -> Option<SocketAddr> {
        self.proxy
    }

    /// Says that the connection comes from `client` and that the other end is only a proxy.
    pub(crate) fn set_client(&mut self, client: SocketAddr) {
        self.proxy = Some(self.peer);
        self.peer = client;
    }

    /// Where the other end, or the last proxy, reached us.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The peer has not acknowledged all bytes that the kernel has taken: a slow one has some of them to come for seconds.
    /// Asks the kernel.
    pub fn is_draining(&self) -> bool {
        // What cannot be asked is over.
        tcp::unacknowledged_bytes(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    /// The kernel's figures of the connection.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        tcp::info(&self.socket)
    }
}

/// Carries bytes both ways until one side ends.
async fn carry(mut stream: Stream, socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut down, mut up) = (vec![0; TLS_RECORD_BYTES_MAX * 4], vec![0; TLS_RECORD_BYTES_MAX * 4]);
    loop {
        tokio::select! {
            count = stream.read(&mut down) => {
                let mut bytes = &down[..count?];
                if bytes.is_empty() {
                    return Ok(());
                }
                while !bytes.is_empty() {
                    let sent = send(&socket, bytes).await?;
                    bytes = &bytes[sent..];
                }
            }
            count = receive(&socket, &mut up) => match count? {
                0 => return Ok(()),
                count => stream.write_all(&up[..count]).await?,
            }
        }
    }
}

async fn receive(socket: &TcpStream, target: &mut [u8]) -> io::Result<usize> {
    loop {
        // Bulk data is mostly there already: asking first saves a trip through the reactor.
        match read_some(socket, || target) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => socket.readable().await?,
            outcome => return outcome,
        }
    }
}

/// The same for bulk data, which may gather in the kernel first.
async fn receive_of(
    socket: &TcpStream,
    target: &mut [u8],
    gather: &mut Gather,
    certain_bytes: u64,
) -> io::Result<usize> {
    // A peer that sends without end must not keep others from their turn.
    consume_budget().await;
    loop {
        match read_some(socket, || target) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                gather.readable(socket, certain_bytes).await?;
            }
            outcome => {
                gather.note(*outcome.as_ref().unwrap_or(&0));
                return outcome;
            }
        }
    }
}

/// Waits until there are bytes to read, or room for bytes to write; whether there are bytes to read, or the end.
async fn readable_before_writable(socket: &TcpStream, gather: &Gather) -> io::Result<bool> {
    gather.end(socket)?;
    loop {
        let ready = socket.ready(Interest::READABLE | Interest::WRITABLE).await?;
        // What the reactor knows may be out of date.
        let look = || match rustix::net::recv(socket, &mut [0_u8; 1], RecvFlags::PEEK) {
            Err(rustix::io::Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        };
        if ready.is_readable() && socket.try_io(Interest::READABLE, look).is_ok() {
            return Ok(true);
        }
        if ready.is_writable() {
            return Ok(false);
        }
    }
}

/// Reads what has come. After a message, a few bytes where more would have fitted, nothing is left: the next read waits
/// before it asks. (Of bulk data more has come by then.) `target` is asked for where there may be bytes for it.
fn read_some<'a>(socket: &TcpStream, target: impl FnOnce() -> &'a mut [u8]) -> io::Result<usize> {
    let mut message = 0;
    let outcome = socket.try_io(Interest::READABLE, || {
        let target = target();
        let (received, _) = rustix::net::recv(socket, &mut *target, RecvFlags::empty())?;
        if (1..target.len().min(MESSAGE_BYTES_MAX)).contains(&received) {
            // The reactor forgets what it knew before this read, and nothing that it has learned since.
            message = received;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(received)
    });
    if message > 0 { Ok(message) } else { outcome }
}

async fn send(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.try_write(bytes) {
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            outcome => return outcome,
        }
    }
}

/// Sends what a session has to send (a key update, an alert, or what was written before), as far as that can be done without
/// waiting: a peer that takes no more may have said why. Whether the socket is full.
fn send_what_fits(socket: &TcpStream, session: &mut Session) -> bool {
    while !session.output().is_empty() {
        match socket.try_write(session.output()) {
            Ok(0) => break,
            Ok(sent) => session.transmitted(sent),
            Err(cause) => return cause.kind() == io::ErrorKind::WouldBlock,
        }
    }
    false
}

fn send_file(socket: &TcpStream, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let mut at = offset;
    rustix::fs::sendfile(socket.as_fd(), file.as_fd(), Some(&mut at), len).map_err(io::Error::from)
}

fn bypass() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "sendfile would bypass TLS")
}

fn unless_would_block(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(count) => Ok(Some(count)),
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(cause) => Err(cause),
    }
}

fn invalid(cause: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    async fn pair() -> (Stream, std::net::TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        far.set_nodelay(true).unwrap();
        (Stream::plain(listener.accept().await.unwrap().0).unwrap(), far)
    }

    /// After a message the reactor is told that nothing is left: whatever comes meanwhile must be learned of anyhow.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_message_is_read_and_the_end_is_seen() {
        let (mut near, mut far) = pair().await;
        let sizes = [1, 100, MESSAGE_BYTES_MAX - 1, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1, 20_000];
        const ROUNDS: usize = 500;
        let total = sizes.iter().sum::<usize>() * ROUNDS;
        let writer = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                for size in sizes {
                    far.write_all(&vec![round as u8; size]).unwrap();
                }
                // Now and then both sides wait for each other.
                if round % 5 == 0 {
                    far.read_exact(&mut [0]).unwrap();
                }
            }
        });
        let (mut buffer, mut read, per_round) = (vec![0; 16_384], 0, total / ROUNDS);
        let mut answered = 0;
        loop {
            let count = near.read(&mut buffer).await.unwrap();
            if count == 0 {
                break;
            }
            read += count;
            while answered * 5 < ROUNDS && read >= (answered * 5 + 1) * per_round {
                near.write_all(b"x").await.unwrap();
                answered += 1;
            }
        }
        assert_eq!(read, total);
        writer.join().unwrap();
    }

    #[tokio::test]
    async fn what_was_kept_for_a_full_packet_is_sent_in_the_end() {
        let (mut near, mut far) = pair().await;
        near.fill_packets(true).unwrap();
        assert!(rustix::net::sockopt::tcp_cork(&near.socket).unwrap());
        near.write_all(b"a little").await.unwrap();
        near.fill_packets(false).unwrap();
        assert!(!rustix::net::sockopt::tcp_cork(&near.socket).unwrap());
        let mut read = [0; 8];
        far.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"a little");
    }
}
