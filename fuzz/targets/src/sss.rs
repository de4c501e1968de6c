//! Credentials by shared keys, and files of these keys.

use std::net::SocketAddr;

use gridlane_auth::sss::{Credentials, Judge, Judged, Keytab, Offer, RANDOM_BYTES, Seen, judge};

const NOW_S: i64 = 1_800_000_000;
const KEY: &str = "0 u:ada g:users n:site N:7 c:1 e:0 k:00112233445566778899aabbccddeeff\n";

/// A file of keys, what a server says of the method, and what a client shows, whole and with a good beginning.
pub(crate) fn sss(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(keys) = Keytab::parse(&text) {
        for key in keys.keys() {
            assert!(keys.find(key.id, key.name.as_bytes()).is_some());
            assert!(!key.name.is_empty());
        }
        let shown = keys.to_show(NOW_S);
        assert!(shown.is_none_or(|key| !key.is_expired(NOW_S)));
        assert_eq!(shown.is_some(), keys.keys().iter().any(|key| !key.is_expired(NOW_S)));
    }
    let _ = Offer::parse(data);

    let own = Keytab::parse(KEY).unwrap_or_else(|error| panic!("{error}"));
    let peer = SocketAddr::from(([192, 0, 2, 7], 4000));
    let judging = Judge { keys: &own, any_user: true, peer, now_s: NOW_S };
    let good = Credentials { user: data, group: data, from: peer, takes_name: data.len().is_multiple_of(2) }
        .encode(&own.keys()[0], NOW_S, &[7; RANDOM_BYTES]);
    let mut seen = Seen::default();
    let found = judge(&good, judging, &mut seen, &[1; RANDOM_BYTES]);
    assert!(matches!(&found, Ok(Judged::Proved(proved)) if proved.user == "ada"), "{found:?}");
    assert!(judge(&good, judging, &mut seen, &[1; RANDOM_BYTES]).is_err(), "it counts twice");
    // Without the key none can be made, and of one that is good none of what is shown first can be changed.
    for cut in [0, 16, 24] {
        let head = &good[..cut.min(good.len())];
        let made = [head, data].concat();
        assert!(judge(&made, judging, &mut seen, &[1; RANDOM_BYTES]).is_err(), "{made:?} is good");
    }
}
