use super::*;
use proptest::prelude::*;

const NOW_S: i64 = 1_764_000_000;
const RANDOM: [u8; RANDOM_BYTES] = [3; RANDOM_BYTES];

fn keytab(user: &str, name: &str, more: &str) -> Keytab {
    let key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    Keytab::parse(&format!("0 u:{user} g:users n:{name} N:7000000001 c:1 {more} k:{key}\n")).unwrap()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn shown(keys: &Keytab, takes_name: bool, made_s: i64) -> Vec<u8> {
    let from = address("192.0.2.7:40000");
    let credentials = Credentials { user: b"eve", group: b"users", from, takes_name };
    credentials.encode(&keys.keys()[0], made_s, &RANDOM)
}

fn judged(shown: &[u8], keys: &Keytab, seen: &mut Seen) -> Result<Judged, Refusal> {
    let peer = address("[::ffff:192.0.2.7]:40000");
    judge(shown, Judge { keys, any_user: false, peer, now_s: NOW_S }, seen, &RANDOM)
}

fn cause(outcome: Result<Judged, Refusal>) -> (Cause, String) {
    let refusal = outcome.unwrap_err();
    (refusal.cause, refusal.message)
}

#[test]
fn the_user_is_that_of_the_key() {
    let keys = keytab("ada", "site", "");
    for takes_name in [true, false] {
        let shown = shown(&keys, takes_name, NOW_S);
        assert_eq!((&shown[..4], shown[6]), (&b"sss\0"[..], if takes_name { 8 } else { 0 }));
        let proved = Proved { user: "ada".to_owned(), key: 7_000_000_001 };
        let mut seen = Seen::default();
        assert_eq!(judged(&shown, &keys, &mut seen), Ok(Judged::Proved(proved)));
        let (why, what) = cause(judged(&shown, &keys, &mut seen));
        assert_eq!(why, Cause::Revoked);
        assert!(what.contains("before"), "{what}");
        // The name of the key is not encrypted, and makes no new credentials of old ones.
        let mut other = shown.clone();
        if takes_name {
            other[16] = b'S';
            assert_eq!(cause(judged(&other, &keys, &mut seen)).0, Cause::Revoked);
        }
    }
}

#[test]
fn clocks_that_differ_are_named_with_their_difference() {
    let keys = keytab("ada", "site", "");
    for (made_s, expected) in [
        (NOW_S - 13, Some((Cause::Expired, "13 s ago"))),
        (NOW_S - 3600, Some((Cause::Expired, "3600 s ago"))),
        (NOW_S + 14, Some((Cause::NotYetValid, "14 s ahead"))),
        (NOW_S - 12, None),
        (NOW_S + 13, None),
    ] {
        let outcome = judged(&shown(&keys, true, made_s), &keys, &mut Seen::default());
        match expected {
            None => assert!(outcome.is_ok(), "{made_s}"),
            Some((why, words)) => {
                let (found, what) = cause(outcome);
                assert!(found == why && what.contains(words), "{made_s}: {what}");
            }
        }
    }
}

#[test]
fn keys_that_are_wrong_are_told_apart() {
    let keys = keytab("ada", "site", "");
    let shown = shown(&keys, true, NOW_S);
    let refused = |keys: &Keytab| cause(judged(&shown, keys, &mut Seen::default()));
    let (why, what) = refused(&keytab("ada", "site", "e:1763999990"));
    assert!(why == Cause::Expired && what.contains("10 s ago"), "{what}");
    let of = |digits: &str| Keytab::parse(&format!("0 u:ada n:site {digits}")).unwrap();
    assert_eq!(refused(&of("N:7000000001 k:0011223344556677")).0, Cause::BadSignature);
    assert_eq!(refused(&of("N:7000000002 k:0011223344556677")).0, Cause::Untrusted);
}

#[test]
fn they_count_on_their_own_connection() {
    let keys = keytab("ada", "site", "");
    let at = |keys: &Keytab, shown: &[u8], peer: &str| {
        let judge_ = Judge { keys, any_user: false, peer: address(peer), now_s: NOW_S };
        judge(shown, judge_, &mut Seen::default(), &RANDOM)
    };
    let mine = shown(&keys, true, NOW_S);
    assert!(at(&keys, &mine, "192.0.2.7:40000").is_ok());
    for peer in ["192.0.2.7:40001", "192.0.2.8:40000", "[2001:db8::1]:40000"] {
        let (why, what) = cause(at(&keys, &mine, peer));
        assert!(why == Cause::WrongAudience && what.contains("192.0.2.7:40000"), "{what}");
    }
    let free = keytab("ada", "site+", "");
    assert!(at(&free, &shown(&free, true, NOW_S), "192.0.2.8:1").is_ok());
    for (text, expected) in [
        ("[::192.0.2.7]:5", Some("192.0.2.7:5")),
        ("[::1]:5", Some("[::1]:5")),
        ("[2001:db8::1]:5", Some("[2001:db8::1]:5")),
        ("192.0.2.7:5", None),
        ("host.example", None),
    ] {
        assert_eq!(parse_address(text), expected.map(address), "{text}");
    }
}

#[test]
fn a_name_that_the_client_says_counts_where_two_allow_it() {
    let peer = address("192.0.2.7:40000");
    for (user, any_user, expected) in [
        ("ada", true, Ok("ada")),
        ("anybody", true, Ok("eve")),
        ("allusers", true, Ok("eve")),
        ("anybody", false, Err(Cause::Unacceptable)),
    ] {
        let keys = keytab(user, "site", "");
        let judge_ = Judge { keys: &keys, any_user, peer, now_s: NOW_S };
        let outcome = judge(&shown(&keys, true, NOW_S), judge_, &mut Seen::default(), &RANDOM);
        match (outcome, expected) {
            (Ok(Judged::Proved(proved)), Ok(name)) => assert_eq!(proved.user, name),
            (Err(refusal), Err(why)) => assert_eq!(refusal.cause, why),
            (outcome, _) => panic!("{user}: {outcome:?}"),
        }
    }
    // A name that is no user's, of a client that writes items by hand.
    let keys = keytab("anybody", "site+", "");
    for name in ["../x", "", "a b", "-a"] {
        let mut items = Vec::new();
        push(&mut items, item::USER, name.as_bytes());
        let shown = sealed(&keys.keys()[0], true, NOW_S, &RANDOM, USE, &items);
        let judge_ = Judge { keys: &keys, any_user: true, peer, now_s: NOW_S };
        assert_eq!(cause(judge(&shown, judge_, &mut Seen::default(), &RANDOM)).0, Cause::Malformed);
    }
}

#[test]
fn a_client_that_asks_for_its_login_is_told_one() {
    let keys = keytab("ada", "site", "");
    let key = &keys.keys()[0];
    let shown = sealed(key, true, NOW_S, &RANDOM, ASK, &[]);
    let Ok(Judged::Asked(answer)) = judged(&shown, &keys, &mut Seen::default()) else { panic!() };
    let body = open(&answer, &keys).unwrap().body;
    assert_eq!(items_of(&body[40..]).unwrap(), [(item::LOGIN, &b"nobody"[..])]);
}

/// XRootD's clients fill up with random bytes, behind which there is no NUL.
#[test]
fn filling_is_no_text() {
    let mut bytes = vec![item::FILLING, 0, 3, 9, 0, 8];
    push(&mut bytes, item::USER, b"ada");
    assert_eq!(items_of(&bytes).unwrap(), [(item::USER, &b"ada"[..])]);
    assert!(items_of(&[item::USER, 0, 1, b'a']).is_err());
    assert!(items_of(&[item::USER, 0, 3, b'a', 0]).is_err());
}

#[test]
fn offers_are_read() {
    assert_eq!(offer(), "0.+13:");
    let takes = |text: &[u8]| Offer::parse(text).map(|offer| offer.takes_name).ok();
    assert_eq!(
        (takes(b"0.+13:/etc/k"), takes(b"0.13:/etc/k"), takes(b"1.13:")),
        (Some(true), Some(false), None)
    );
}

proptest! {
    #[test]
    fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..200), has_head: bool) {
        let keys = keytab("ada", "site", "");
        let head = &shown(&keys, true, NOW_S)[..24];
        let bytes = if has_head { [head, &bytes].concat() } else { bytes };
        prop_assert!(judged(&bytes, &keys, &mut Seen::default()).is_err());
    }

    #[test]
    fn no_bit_of_what_is_encrypted_can_be_changed_alone(at in 24usize.., bit in 0u32..8) {
        let keys = keytab("ada", "site", "");
        let mut shown = shown(&keys, true, NOW_S);
        let at = 24 + at % (shown.len() - 24);
        shown[at] ^= 1u8 << bit;
        prop_assert!(judged(&shown, &keys, &mut Seen::default()).is_err());
    }

    #[test]
    fn items_come_back(texts in proptest::collection::vec("[a-z]{1,100}", 0..8)) {
        let mut bytes = Vec::new();
        texts.iter().for_each(|text| push(&mut bytes, item::USER, text.as_bytes()));
        let items = items_of(&bytes).unwrap();
        prop_assert!(items.iter().map(|(_, text)| *text).eq(texts.iter().map(|text| text.as_bytes())));
    }
}
