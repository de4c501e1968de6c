//! The authentication that a login asks for. A method that answers what the client has said before takes several
//! rounds, each an `auth` and, but for the last, an answer of status `authmore`.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use gridlane_auth::Identity;
use gridlane_core::{Secret, limits};
use gridlane_xrd::ErrorCode;
use gridlane_xrd::server::Unseal;

use super::answer::Failure;
use super::identity;
use super::shared_keys::{SharedKey, Standing, UserName};
use crate::auth::certificates::LoginChain;
use crate::client::Client;
use crate::front::Front;
use crate::settings::RootAuth;

/// The result of a round.
pub(crate) enum Round {
    /// The client has proved something. `None`: it has given a name, which proves nothing.
    Over(Option<Proved>),
    /// The client is sent this, and goes on with what it makes of it.
    GoesOn(Vec<u8>),
}

/// What a login has proved.
pub(crate) struct Proved {
    /// The identity.
    pub(crate) identity: Arc<Identity>,
    /// The parts of its credential that do not count, and why.
    pub(crate) doubt: Option<Arc<str>>,
    /// What proves it again for each request.
    pub(crate) by: LoginProof,
    /// The key that its requests are signed with, if the method agrees on one.
    pub(crate) key: Option<Box<dyn Unseal>>,
}

/// The proof of a login, as if every request had it.
#[derive(Clone)]
pub enum LoginProof {
    /// A token or a macaroon.
    Token(Arc<Secret>),
    /// A chain of certificates, whose first key the client has.
    Chain(Arc<LoginChain>),
    /// A part of the settings: a shared key, or the trust in a machine.
    Standing(Standing),
}

/// A round on its way.
pub(crate) type Outcome<'a> = Pin<Box<dyn Future<Output = Result<Round, Failure>> + Send + 'a>>;

/// A method of authentication, with what it remembers between rounds.
pub(crate) trait Proof: Send {
    /// Goes on with what the client shows.
    fn round<'a>(&'a mut self, front: &'a Front, client: &'a Client, data: &'a [u8]) -> Outcome<'a>;
}

/// The connection that a client logs in on.
#[derive(Clone, Copy)]
pub(crate) struct On {
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// The client has said that the session is for a third-party copy.
    #[cfg_attr(not(feature = "gsi"), expect(dead_code, reason = "gsi alone asks for a proxy"))]
    pub(crate) is_for_copies: bool,
}

/// The authentication that a client has begun with.
pub(crate) struct Rounds {
    method: RootAuth,
    proof: Box<dyn Proof>,
    left: u32,
}

impl Rounds {
    /// By this method: the one that was begun, or else from the beginning.
    pub(crate) fn by(method: RootAuth, on: On, begun: Option<Rounds>) -> Rounds {
        match begun {
            Some(begun) if begun.method == method => begun,
            _ => match method {
                RootAuth::Host => Rounds::of(method, Box::new(Name)),
                RootAuth::Unix => Rounds::of(method, Box::new(UserName)),
                RootAuth::Sss => Rounds::of(method, Box::new(SharedKey { peer: on.peer })),
                RootAuth::Ztn => Rounds::of(method, Box::new(Token)),
                #[cfg(feature = "gsi")]
                RootAuth::Gsi => Rounds::of(method, Box::new(super::gsi::Certificate::new(on.is_for_copies))),
                // It is not offered.
                #[cfg(not(feature = "gsi"))]
                RootAuth::Gsi => Rounds::of(method, Box::new(Name)),
            },
        }
    }

    fn of(method: RootAuth, proof: Box<dyn Proof>) -> Rounds {
        Rounds { method, proof, left: limits::ROOT_LOGIN_ROUNDS_MAX }
    }

    /// The next round.
    pub(crate) async fn next(
        &mut self,
        front: &Front,
        client: &Client,
        data: &[u8],
    ) -> Result<Round, Failure> {
        let Some(left) = self.left.checked_sub(1) else {
            let what = "the authentication takes too many rounds";
            return Err(Failure::new(ErrorCode::AUTH_FAILED, what).closing());
        };
        self.left = left;
        self.proof.round(front, client, data).await
    }
}

/// The name of a machine: its address says the same, and rules have that.
struct Name;

impl Proof for Name {
    fn round<'a>(&'a mut self, _: &'a Front, _: &'a Client, _: &'a [u8]) -> Outcome<'a> {
        Box::pin(std::future::ready(Ok(Round::Over(None))))
    }
}

/// A token or a macaroon.
struct Token;

impl Proof for Token {
    fn round<'a>(&'a mut self, front: &'a Front, client: &'a Client, data: &'a [u8]) -> Outcome<'a> {
        Box::pin(async move {
            let (identity, token) = identity::prove(front, client, data).await?;
            let by = LoginProof::Token(Arc::new(token));
            Ok(Round::Over(Some(Proved { identity, doubt: None, by, key: None })))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::context_of;
    use std::net::Ipv4Addr;

    const ON: On =
        On { peer: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1094), is_for_copies: false };

    /// A method for tests: over when the client has said so, and asks on with what it said until then.
    struct Echo {
        heard: Vec<u8>,
    }

    impl Proof for Echo {
        fn round<'a>(&'a mut self, _: &'a Front, _: &'a Client, data: &'a [u8]) -> Outcome<'a> {
            self.heard.extend_from_slice(data);
            let heard = self.heard.clone();
            let round = if data == b"over" { Round::Over(None) } else { Round::GoesOn(heard) };
            Box::pin(std::future::ready(Ok(round)))
        }
    }

    #[tokio::test]
    async fn a_method_remembers_earlier_rounds_and_ends() {
        let context = context_of(|_| {});
        let (front, client) = (context.front(), &context.client);
        let mut rounds = Rounds::of(RootAuth::Unix, Box::new(Echo { heard: Vec::new() }));
        for expected in ["a", "aa", "aaa"] {
            let Ok(Round::GoesOn(more)) = rounds.next(front, client, b"a").await else {
                panic!("it goes on")
            };
            assert_eq!(more, expected.as_bytes());
            rounds = Rounds::by(RootAuth::Unix, ON, Some(rounds));
        }
        assert!(matches!(rounds.next(front, client, b"over").await, Ok(Round::Over(None))));
        // No client goes on for ever.
        let mut count = 4;
        while rounds.next(front, client, b"a").await.is_ok() {
            count += 1;
        }
        assert_eq!(count, limits::ROOT_LOGIN_ROUNDS_MAX);
        // By another method from the beginning.
        let mut other = Rounds::by(RootAuth::Host, ON, Some(rounds));
        assert!(matches!(other.next(front, client, b"a").await, Ok(Round::Over(None))));
    }
}
