//! Logins between hosts of one site: by a shared key (`sss`), and by the name of a user on a machine whose word is taken
//! (`unix`).
//!
//! Both prove a user of this site. What has been proved stands as long as the settings have the key, and the machine among
//! those whose word is taken: each request looks.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use gridlane_auth::identity::{UserIdentity, UserProof};
use gridlane_auth::sss::{self, Judge, Judged, RANDOM_BYTES};
use gridlane_auth::{Cause, Identity, Refusal};
use gridlane_xrd::ErrorCode;
use rustix::rand::{GetRandomFlags, getrandom};

use super::answer::Failure;
use super::rounds::{LoginProof, Outcome, Proof, Proved, Round};
use crate::auth::keys::now_s;
use crate::auth::presented::Kind;
use crate::client::Client;
use crate::front::Front;

/// What the identity of a login stands on, beside tokens and certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The shared key with this number.
    Key(i64),
    /// The word of the client's machine.
    Word,
}

impl Standing {
    /// Why it stands no more; `None` while it does.
    pub(crate) fn doubt(self, front: &Front, client: &Client, now_s: i64) -> Option<&'static str> {
        match self {
            Standing::Key(id) => {
                let keys = front.auth.shared_keys.as_ref();
                match keys.and_then(|keys| keys.keys().iter().find(|key| key.id == id)) {
                    None => Some("the shared key of the login does not count any more; log in again"),
                    Some(key) if key.is_expired(now_s) => {
                        Some("the shared key of the login has expired; log in again with another one")
                    }
                    Some(_) => None,
                }
            }
            Standing::Word if is_trusted(front, client) => None,
            Standing::Word => Some("the word of the client's machine does not count any more"),
        }
    }
}

/// True if the word of the client's machine is taken.
fn is_trusted(front: &Front, client: &Client) -> bool {
    front.root.trust_unix_from.iter().any(|network| network.contains(client.address))
}

/// A login by a shared key.
pub(super) struct SharedKey {
    /// The other end of the connection.
    pub(super) peer: SocketAddr,
}

impl Proof for SharedKey {
    fn round<'a>(&'a mut self, front: &'a Front, _: &'a Client, data: &'a [u8]) -> Outcome<'a> {
        Box::pin(std::future::ready(shown(front, self.peer, data)))
    }
}

fn shown(front: &Front, peer: SocketAddr, data: &[u8]) -> Result<Round, Failure> {
    let Some(keys) = &front.auth.shared_keys else {
        // It was offered by settings that are no longer those.
        return Err(Failure::new(ErrorCode::AUTH_FAILED, "this server takes no shared keys"));
    };
    let mut random = [0; RANDOM_BYTES];
    let judged = match getrandom(&mut random, GetRandomFlags::empty()) {
        Ok(_) => {
            let mut seen = front.shared_keys_seen.lock().unwrap_or_else(PoisonError::into_inner);
            let any_user = front.auth.shared_keys_any_user;
            sss::judge(data, Judge { keys, any_user, peer, now_s: now_s() }, &mut seen, &random)
        }
        Err(_) => Err(Refusal::new(Cause::Unavailable, "this machine has no random numbers")),
    };
    match judged {
        Ok(Judged::Asked(answer)) => Ok(Round::GoesOn(answer)),
        Ok(Judged::Proved(proved)) => {
            let by = LoginProof::Standing(Standing::Key(proved.key));
            Ok(Round::Over(Some(Proved {
                identity: user(proved.user, UserProof::SharedKey),
                doubt: None,
                by,
                key: None,
            })))
        }
        Err(refusal) => {
            front.data.metrics.auth.refused(Kind::SharedKey, refusal.cause);
            let code = match refusal.cause {
                Cause::Unavailable => ErrorCode::OVERLOADED,
                _ => ErrorCode::AUTH_FAILED,
            };
            Err(Failure::new(code, refusal.message))
        }
    }
}

/// The name of a user, which the client's machine says.
pub(super) struct UserName;

impl Proof for UserName {
    fn round<'a>(&'a mut self, front: &'a Front, client: &'a Client, data: &'a [u8]) -> Outcome<'a> {
        let name = said_user(data).filter(|_| is_trusted(front, client));
        let proved = name.map(|name| {
            let by = LoginProof::Standing(Standing::Word);
            Proved { identity: user(name, UserProof::MachineSays), doubt: None, by, key: None }
        });
        Box::pin(std::future::ready(Ok(Round::Over(proved))))
    }
}

/// The user of `unix\0USER GROUP\0`, if that is one.
fn said_user(data: &[u8]) -> Option<String> {
    let said = data.strip_prefix(b"unix\0")?;
    let name = said.split(|byte| matches!(byte, b' ' | 0)).next()?;
    sss::is_user(name).then(|| String::from_utf8_lossy(name).into_owned())
}

fn user(name: String, by: UserProof) -> Arc<Identity> {
    Arc::new(Identity::User(UserIdentity { name, by }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_service::context_of;
    use gridlane_auth::sss::{Credentials, Keytab};
    use gridlane_core::Network;

    const KEY: &str = "0 u:ada g:users n:site N:7 c:1 e:0 k:00112233445566778899aabbccddeeff\n";

    fn keys(text: &str) -> Option<Arc<Keytab>> {
        Some(Arc::new(Keytab::parse(text).unwrap()))
    }

    #[test]
    fn a_shared_key_proves_its_user_once() {
        let context = context_of(|settings| settings.auth.shared_keys = keys(KEY));
        let peer: SocketAddr = "192.0.2.7:4000".parse().unwrap();
        let own = Keytab::parse(KEY).unwrap();
        let credentials = Credentials { user: b"eve", group: b"", from: peer, takes_name: true };
        let data = credentials.encode(&own.keys()[0], now_s(), &[5; RANDOM_BYTES]);
        let Ok(Round::Over(Some(proved))) = shown(context.front(), peer, &data) else { panic!() };
        assert_eq!((proved.identity.user(), proved.identity.method()), (Some("ada"), "sss"));
        let LoginProof::Standing(standing) = proved.by else { panic!() };
        assert_eq!(standing, Standing::Key(7));
        let Err(again) = shown(context.front(), peer, &data) else { panic!("a replay") };
        assert!(again.code == ErrorCode::AUTH_FAILED && again.text.contains("before"), "{}", again.text);
        // It stands while the settings have the key.
        let doubt = |text: Option<Arc<Keytab>>, now_s| {
            let context = context_of(|settings| settings.auth.shared_keys = text);
            standing.doubt(context.front(), &context.client, now_s).is_some()
        };
        let ending = KEY.replace("e:0", "e:100");
        assert_eq!(
            (doubt(keys(KEY), 5), doubt(keys(&ending), 99), doubt(keys(&ending), 100)),
            (false, false, true)
        );
        assert_eq!((doubt(None, 5), doubt(keys(&KEY.replace("N:7", "N:8")), 5)), (true, true));
    }

    #[tokio::test]
    async fn a_name_counts_where_the_machine_is_trusted() {
        for (trusted, data, expected) in [
            ("any", &b"unix\0ada users\0"[..], Some("ada")),
            ("any", b"unix\0ada", Some("ada")),
            ("any", b"unix\0../x y\0", None),
            ("any", b"unix\0", None),
            ("any", b"host\0ada", None),
            ("203.0.113.0/24", b"unix\0ada users\0", None),
        ] {
            let context = context_of(|settings| {
                settings.root.trust_unix_from = Network::parse_list([trusted]).unwrap();
            });
            let Ok(Round::Over(proved)) = UserName.round(context.front(), &context.client, data).await else {
                panic!("it takes one round")
            };
            let found = proved.as_ref().map(|proved| (proved.identity.name(), proved.identity.method()));
            assert_eq!(found, expected.map(|name| (name, "unix")), "{trusted} {data:?}");
        }
    }
}
