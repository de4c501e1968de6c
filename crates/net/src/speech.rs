//! Finding out what a server speaks that does not answer as it should.
//!
//! Asked only when a connection failed before anything came that makes sense, and not again where something else was found
//! instead of what was expected; where nothing was found, not again for a while. A server that does speak what was
//! expected, and was only busy or starting, is never taken for another one: it is asked that as well.

use std::collections::HashMap;
use std::mem::{self, Discriminant};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridlane_core::limits::SERVERS_REMEMBERED_MAX;
use gridlane_core::{Boxed, Speaks};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Stream;

/// One question: connecting, asking, and the first bytes of the answer.
const QUESTION_MAX: Duration = Duration::from_secs(2);

/// Time that finding out takes at most, when all questions are asked at once that can be, and then the last one.
pub(crate) const FINDING_MAX: Duration = Duration::from_secs(5);

/// After so long a server is asked again of which nothing was found: it may have been starting.
const ASK_AGAIN: Duration = Duration::from_secs(30);

const HTTP: &[u8] = b"HEAD / HTTP/1.0\r\n\r\n";
/// A ClientHello of TLS 1.2 (RFC 5246, 7.4.1.2) with five usual ciphers and no extensions: what does not suit a server of
/// TLS is answered by an alert.
const TLS: &[u8] = &[
    22, 3, 1, 0, 55, 1, 0, 0, 51, 3, 3, // record, handshake, version
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 32, 0, // no session
    0, 12, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30, 0, 0x9e, 0, 0x2f, // ciphers
    1, 0, // no compression
];
/// XRootD's handshake.
const XROOTD: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

/// Protocols found at servers that did not answer as they should. Its clones share it.
#[derive(Clone, Debug, Default)]
pub struct Speech(Arc<Mutex<HashMap<Question, Finding>>>);

/// An address, and the protocol that was expected there: others may expect what it does speak.
type Question = (SocketAddr, Discriminant<Speaks>);

/// The protocol that was found, and the moment of that.
type Finding = (Option<Speaks>, Instant);

impl Speech {
    /// The protocol of the server at `address` instead of `expected`; `None` when that cannot be told, or when it
    /// does speak that.
    pub fn instead_of<'a>(&'a self, expected: &'a Speaks, address: SocketAddr) -> Boxed<'a, Option<Speaks>> {
        Box::pin(async move {
            let question = (address, mem::discriminant(expected));
            if let Some((known, found_at)) = self.lock().get(&question)
                && (known.is_some() || found_at.elapsed() < ASK_AGAIN)
            {
                return known.clone();
            }
            let found = find(expected, address).await;
            let mut all = self.lock();
            if all.len() >= SERVERS_REMEMBERED_MAX {
                all.clear();
            }
            all.insert(question, (found.clone(), Instant::now()));
            found
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Question, Finding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn find(expected: &Speaks, address: SocketAddr) -> Option<Speaks> {
    let questions = [(Speaks::Http, HTTP), (Speaks::Tls, TLS), (Speaks::Xrootd, XROOTD)];
    let (own, others): (Vec<_>, Vec<_>) = questions.into_iter().partition(|(speaks, _)| speaks == expected);
    let answers = tokio::join!(ask(address, others[0].1), ask(address, others[1].1));
    let found = [answers.0, answers.1].into_iter().flatten().flatten().find(|speaks| speaks != expected)?;
    // Last, so that a server that has just come back is not taken for another one.
    match ask(address, own[0].1).await {
        Some(answer) if answer.as_ref() != Some(expected) => Some(found),
        _ => None,
    }
}

/// Asks one question. `None`: there is no connection; `Some(None)`: no answer that makes sense.
async fn ask(address: SocketAddr, question: &[u8]) -> Option<Option<Speaks>> {
    let socket = timeout(QUESTION_MAX, TcpStream::connect(address)).await.ok()?.ok()?;
    let mut stream = Stream::plain(socket).ok()?;
    let answer = async {
        stream.write_all(question).await.ok()?;
        let (mut bytes, mut filled) = ([0; 512], 0);
        loop {
            match stream.read(&mut bytes[filled..]).await {
                Ok(count @ 1..) => filled += count,
                _ => return None,
            }
            // A server that is too busy to say more has said nothing.
            let is_busy = bytes[..filled].starts_with(b"HTTP/") && bytes[..filled].get(9) == Some(&b'5');
            match Speaks::of(&bytes[..filled]) {
                Some(Speaks::Http) if filled < 12 => {}
                Some(Speaks::Http) if is_busy => return None,
                Some(speaks) => return Some(speaks),
                None => {}
            }
        }
    };
    Some(timeout(QUESTION_MAX, answer).await.unwrap_or(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A server that answers each first message as `answer` says.
    async fn server(answer: fn(&[u8]) -> Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut came = [0; 512];
                    let count = stream.read(&mut came).await.unwrap_or(0);
                    let _ = stream.write_all(&answer(&came[..count])).await;
                });
            }
        });
        address
    }

    #[test]
    fn the_client_hello_has_the_lengths_that_it_says() {
        assert_eq!(usize::from(TLS[4]), TLS.len() - 5);
        assert_eq!(usize::from(TLS[8]), TLS.len() - 9);
    }

    #[tokio::test]
    async fn a_server_is_known_by_what_it_answers() {
        let http = server(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()).await;
        let tls = server(|came| if came[0] == 22 { vec![21, 3, 3, 0, 2, 2, 40] } else { Vec::new() }).await;
        let xrootd = server(|came| match came.len() {
            20 => vec![0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0, 0, 0, 0, 1],
            _ => Vec::new(),
        });
        let xrootd = xrootd.await;
        let ssh = server(|_| b"SSH-2.0-x\r\n".to_vec()).await;
        let busy = server(|_| b"HTTP/1.1 503 Service Unavailable\r\n\r\n".to_vec()).await;
        for (address, expected, found) in [
            (http, Speaks::Tls, Some(Speaks::Http)),
            (http, Speaks::Xrootd, Some(Speaks::Http)),
            (tls, Speaks::Http, Some(Speaks::Tls)),
            (xrootd, Speaks::Http, Some(Speaks::Xrootd)),
            (xrootd, Speaks::Tls, Some(Speaks::Xrootd)),
            (ssh, Speaks::Http, Some(Speaks::Other("SSH-2.0-x".to_owned()))),
            (busy, Speaks::Xrootd, None),
        ] {
            assert_eq!(Speech::default().instead_of(&expected, address).await, found, "{expected:?}");
        }
    }

    #[tokio::test]
    async fn what_is_remembered_is_for_whom_it_was_found() {
        let tls = server(|came| if came[0] == 22 { vec![21, 3, 3, 0, 2, 2, 40] } else { Vec::new() }).await;
        let speech = Speech::default();
        assert_eq!(speech.instead_of(&Speaks::Tls, tls).await, None);
        assert_eq!(speech.instead_of(&Speaks::Http, tls).await, Some(Speaks::Tls));
        assert_eq!(speech.instead_of(&Speaks::Tls, tls).await, None);
        let http = server(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()).await;
        assert_eq!(speech.instead_of(&Speaks::Tls, http).await, Some(Speaks::Http));
        assert_eq!(speech.instead_of(&Speaks::Http, http).await, None);
        // Of which nothing was found, that is asked again later.
        let question = (http, mem::discriminant(&Speaks::Xrootd));
        let Some(long_ago) = Instant::now().checked_sub(ASK_AGAIN) else { return };
        for (found_at, found) in [(Instant::now(), None), (long_ago, Some(Speaks::Http))] {
            speech.lock().insert(question, (None, found_at));
            assert_eq!(speech.instead_of(&Speaks::Xrootd, http).await, found);
        }
    }

    #[tokio::test]
    async fn a_server_that_speaks_what_was_expected_is_not_taken_for_another_one() {
        let both = server(|came| match came {
            [22, ..] => vec![22, 3, 3, 0, 90],
            [b'H', ..] => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            _ => vec![0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0, 0, 0, 0, 1],
        });
        let both = both.await;
        for expected in [Speaks::Http, Speaks::Tls, Speaks::Xrootd] {
            assert_eq!(Speech::default().instead_of(&expected, both).await, None);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(Speech::default().instead_of(&Speaks::Http, gone).await, None);
    }
}
