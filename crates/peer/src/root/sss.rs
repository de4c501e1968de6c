//! Logins by a key that the server has as well: XRootD's `sss`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_auth::sss::{Credentials, Offer, RANDOM_BYTES};
use gridlane_xrd::client::{LoginUser, Method};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::credentials::SharedKeys;

/// The method, for one login.
pub(super) struct Sss {
    keys: Arc<dyn SharedKeys>,
    user: Vec<u8>,
    group: Vec<u8>,
    local: Option<SocketAddr>,
}

impl Sss {
    /// By these keys, as this user where the key leaves it to the client.
    pub(super) fn new(keys: Arc<dyn SharedKeys>, user: &LoginUser) -> Sss {
        Sss { keys, user: user.user.clone(), group: user.group.clone(), local: None }
    }
}

impl Method for Sss {
    fn name(&self) -> &'static [u8] {
        b"sss"
    }

    fn connected(&mut self, local: SocketAddr) {
        self.local = Some(local);
    }

    fn begin(&mut self, parameters: &[u8], _: bool) -> Result<Vec<u8>, String> {
        let Offer { takes_name } = Offer::parse(parameters)?;
        let from = self.local.ok_or("the connection has no address of its own")?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let keys = self.keys.keys()?;
        let key =
            keys.to_show(now_s).ok_or_else(|| format!("{}: its keys have expired", self.keys.place()))?;
        let mut random = [0; RANDOM_BYTES];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(|_| "this machine has no random numbers")?;
        let (user, group) = (&self.user, &self.group);
        Ok(Credentials { user, group, from, takes_name }.encode(key, now_s, &random))
    }

    fn more(&mut self, _: &[u8]) -> Result<Vec<u8>, String> {
        Err("the server asks for more than a key proves".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_auth::sss::{self, Judge, Judged, Keytab, Seen};

    struct Fixed(&'static str);

    impl SharedKeys for Fixed {
        fn place(&self) -> String {
            "/k".to_owned()
        }

        fn keys(&self) -> Result<Keytab, String> {
            Keytab::parse(self.0).map_err(|error| error.message().to_owned())
        }
    }

    const KEY: &str = "0 u:ada g:users n:site N:7 c:1 e:0 k:00112233445566778899aabbccddeeff\n";

    fn sss(text: &'static str) -> Sss {
        Sss { keys: Arc::new(Fixed(text)), user: b"eve".to_vec(), group: b"eve".to_vec(), local: None }
    }

    #[test]
    fn the_connection_s_own_address_is_in_it() {
        let local: SocketAddr = "192.0.2.7:4000".parse().unwrap();
        let mut method = sss(KEY);
        assert!(method.begin(b"0.+13:", false).unwrap_err().contains("address"));
        method.connected(local);
        let shown = method.begin(b"0.+13:", false).unwrap();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now_s = i64::try_from(since.as_secs()).unwrap();
        let keys = Keytab::parse(KEY).unwrap();
        let judge = Judge { keys: &keys, any_user: false, peer: local, now_s };
        let judged = sss::judge(&shown, judge, &mut Seen::default(), &[0; RANDOM_BYTES]).unwrap();
        assert!(matches!(judged, Judged::Proved(proved) if proved.user == "ada"));
        // Fresh ones each time.
        assert_ne!(method.begin(b"0.+13:", false).unwrap(), shown);
    }

    #[test]
    fn why_there_are_none_is_said() {
        for (text, offer, word) in [
            (KEY, &b"1.+13:"[..], "encryption"),
            ("0 N:1 e:5 k:00112233445566778899aabbccddeeff", b"0.+13:", "expired"),
            ("what", b"0.13:", "line 1"),
        ] {
            let mut method = sss(text);
            method.connected("192.0.2.7:4000".parse().unwrap());
            let why = method.begin(offer, false).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
