//! XRootD's `sss`: credentials by a key that both sides have, for hosts of one site.
//!
//! ```text
//! "sss\0" · 0 0 · bytes of the key's name · '0' · number of the key · its name         in clear
//! 32 random bytes · time · 0 0 0 · option · items: kind, length, text, NUL · CRC-32    encrypted with the key
//! ```
//!
//! Items say where the client is, and who; the latter counts only by a key that leaves it to the client. Credentials are good
//! for a few seconds, from the address that they state, and once. What they prove is as good as the file of the key is
//! kept, on every machine that has it, and no better than its cipher.
//!
//! Read first: [`Credentials::encode`], then [`judge`].

mod cipher;
mod keytab;
mod replay;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use gridlane_core::limits::{
    SSS_CREDENTIALS_BYTES_MAX, SSS_KEY_NAME_BYTES_MAX, SSS_LIFETIME_S, SSS_USER_BYTES_MAX,
};

use self::replay::Unseen;
use crate::refusal::{Cause, Refusal};

pub use keytab::{Key, KeyUser, Keytab, is_user};
pub use replay::Seen;

/// The name of the method, and the NUL behind it.
const NAME: &[u8; 4] = b"sss\0";
/// Blowfish, the one kind of encryption that there is.
const BLOWFISH: u8 = b'0';
/// Bytes in front of the name of the key.
const HEADER_BYTES: usize = 16;
/// Bytes in front of the items.
const BODY_HEADER_BYTES: usize = 40;
/// Random bytes of credentials.
pub const RANDOM_BYTES: usize = 32;
/// Bytes that items have at least, by filling: as XRootD makes them.
const ITEMS_BYTES_MIN: usize = 128;
/// Times are seconds since then, which are seconds since 1970.
const EPOCH_S: i64 = 1_222_183_880;

/// These credentials are to be used.
const USE: u8 = 0;
/// The server is asked for the name that the client has logged in with.
const ASK: u8 = 1;

mod item {
    pub(super) const USER: u8 = 1;
    pub(super) const GROUP: u8 = 4;
    pub(super) const FILLING: u8 = 7;
    pub(super) const LOGIN: u8 = 0x10;
    pub(super) const HOST: u8 = 0x20;
}

/// What a server says of the method when it offers it: credentials are good for so many seconds, and the name of the key may be
/// in them.
pub fn offer() -> String {
    format!("{}.+{SSS_LIFETIME_S}:", char::from(BLOWFISH))
}

/// What a client heads for when a server offers the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The server understands the name of a key in credentials.
    pub takes_name: bool,
}

impl Offer {
    /// Reads what a server says of the method. The path of a file, which it may name, is of no interest: a server does not
    /// choose what a client reads.
    pub fn parse(parameters: &[u8]) -> Result<Offer, &'static str> {
        let Some(rest) = parameters.strip_prefix(&[BLOWFISH, b'.']) else {
            return Err("the server wants an encryption that is not known here");
        };
        Ok(Offer { takes_name: rest.first() == Some(&b'+') })
    }
}

/// What a client says of itself.
#[derive(Clone, Debug)]
pub struct Credentials<'a> {
    /// The user's name, for a key that leaves it to the client.
    pub user: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// The client's end of the connection.
    pub from: SocketAddr,
    /// The server understands the name of the key.
    pub takes_name: bool,
}

impl Credentials<'_> {
    /// Credentials that are good from `now_s` on. `random`: bytes that nobody can guess, never the same.
    pub fn encode(&self, key: &Key, now_s: i64, random: &[u8; RANDOM_BYTES]) -> Vec<u8> {
        let mut items = Vec::new();
        push(&mut items, item::HOST, address_text(self.from).as_bytes());
        for (kind, text) in [(item::USER, self.user), (item::GROUP, self.group)] {
            if is_user(text) {
                push(&mut items, kind, text);
            }
        }
        if let Some(missing) = ITEMS_BYTES_MIN.checked_sub(items.len() + 4) {
            let digits = random.iter().cycle().map(|byte| b'a' + byte % 16).take(missing + 1);
            push(&mut items, item::FILLING, &digits.collect::<Vec<u8>>());
        }
        sealed(key, self.takes_name, now_s, random, USE, &items)
    }
}

/// The server's end of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// The keys that it believes.
    pub keys: &'a Keytab,
    /// Clients may say who they are, where the key leaves it to them.
    pub any_user: bool,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Now, in seconds since 1970.
    pub now_s: i64,
}

/// The user that credentials have proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved {
    /// The name.
    pub user: String,
    /// The number of the key.
    pub key: i64,
}

/// What comes of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// They are good.
    Proved(Proved),
    /// The client asks for the name of its login first, which is this answer to it.
    Asked(Vec<u8>),
}

/// Looks at what a client shows. `random` is for an answer.
pub fn judge(
    shown: &[u8],
    judge: Judge<'_>,
    seen: &mut Seen,
    random: &[u8; RANDOM_BYTES],
) -> Result<Judged, Refusal> {
    let Opened { key, takes_name, body } = open(shown, judge.keys)?;
    if key.is_expired(judge.now_s) {
        let over_s = judge.now_s.saturating_sub(key.expires_s);
        let message = format!("the shared key {} expired {over_s} s ago", key.name);
        return Err(Refusal::new(Cause::Expired, message));
    }
    // The body has these bytes, as `open` has seen.
    let (Some(nonce), Some(time), Some(option), Some(items)) =
        (body.first_chunk::<RANDOM_BYTES>(), chunk(&body, RANDOM_BYTES), body.get(39), body.get(40..))
    else {
        return Err(malformed("they are too short"));
    };
    let made_s = EPOCH_S + i64::from(i32::from_be_bytes(time));
    let age_s = judge.now_s.saturating_sub(made_s);
    if age_s >= SSS_LIFETIME_S {
        let message = format!(
            "the credentials by a shared key were made {age_s} s ago by the client's clock, and are good for {SSS_LIFETIME_S} s: \
             is one of the two clocks wrong?"
        );
        return Err(Refusal::new(Cause::Expired, message));
    }
    if age_s < -SSS_LIFETIME_S {
        let message = format!(
            "the credentials by a shared key come from {} s ahead: is the client's clock wrong, or this server's?",
            -age_s
        );
        return Err(Refusal::new(Cause::NotYetValid, message));
    }
    let mut unique = [0; 48];
    unique[..32].copy_from_slice(nonce);
    unique[32..40].copy_from_slice(&key.id.to_be_bytes());
    unique[40..44].copy_from_slice(&time);
    match seen.admit(unique, made_s.saturating_add(SSS_LIFETIME_S), judge.now_s) {
        Ok(()) => {}
        Err(Unseen::Replayed) => {
            let what = "the credentials by a shared key were shown before: each counts once";
            return Err(Refusal::new(Cause::Revoked, what));
        }
        Err(Unseen::Full) => {
            let what = "too many clients have logged in by shared keys within a few seconds";
            return Err(Refusal::new(Cause::Unavailable, what));
        }
    }
    match *option {
        ASK => {
            let mut answer = Vec::new();
            push(&mut answer, item::LOGIN, b"nobody");
            Ok(Judged::Asked(sealed(key, takes_name, judge.now_s, random, USE, &answer)))
        }
        USE => proved(key, items, judge).map(Judged::Proved),
        _ => Err(malformed("they ask for something that is not known here")),
    }
}

fn proved(key: &Key, items: &[u8], judge: Judge<'_>) -> Result<Proved, Refusal> {
    let (mut user, mut addresses, mut has_host) = (None, Vec::new(), false);
    for (kind, text) in items_of(items)? {
        match kind {
            item::USER => user = Some(text),
            item::HOST => {
                has_host = true;
                addresses.extend(std::str::from_utf8(text).ok().and_then(parse_address));
            }
            // Whatever else a client says of itself: nothing of it is proved.
            _ => {}
        }
    }
    let peer = SocketAddr::new(judge.peer.ip().to_canonical(), judge.peer.port());
    if !key.is_for_any_address() && !addresses.contains(&peer) {
        let message = match (addresses.first(), has_host) {
            (Some(address), _) => format!(
                "the credentials by a shared key are for a connection from {address}, and this one comes from {peer}: \
                 is an address translated on the way?"
            ),
            (None, true) => "the credentials by a shared key name a host, and no address and port".to_owned(),
            (None, false) => "the credentials by a shared key do not say from where they are".to_owned(),
        };
        return Err(Refusal::new(Cause::WrongAudience, message));
    }
    let user = match (&key.user, user) {
        (KeyUser::Named(name), _) => name.clone(),
        (KeyUser::AsClientSays, _) if !judge.any_user => {
            let message =
                format!("the shared key {} is for any user, which this server does not take", key.name);
            return Err(Refusal::new(Cause::Unacceptable, message));
        }
        (KeyUser::AsClientSays, Some(name)) if is_user(name) => String::from_utf8_lossy(name).into_owned(),
        (KeyUser::AsClientSays, _) => {
            return Err(malformed("they name no user, or one with a name that no user has"));
        }
    };
    Ok(Proved { user, key: key.id })
}

/// Credentials that were opened.
struct Opened<'a> {
    key: &'a Key,
    takes_name: bool,
    /// At least [`BODY_HEADER_BYTES`].
    body: Vec<u8>,
}

fn open<'a>(shown: &[u8], keys: &'a Keytab) -> Result<Opened<'a>, Refusal> {
    if shown.len() > SSS_CREDENTIALS_BYTES_MAX {
        return Err(Refusal::new(Cause::Unacceptable, "the credentials by a shared key are too long"));
    }
    let Some((header, rest)) = shown.split_first_chunk::<HEADER_BYTES>() else {
        return Err(malformed("they are too short"));
    };
    if !header.starts_with(NAME) || header[7] != BLOWFISH {
        return Err(malformed("they are of another method, or encrypted in a way that is not known here"));
    }
    let name_len = usize::from(header[6]);
    let (Some(name), Some(body)) = (rest.get(..name_len), rest.get(name_len..)) else {
        return Err(malformed("they are too short"));
    };
    let is_name = name_len <= SSS_KEY_NAME_BYTES_MAX && name_len.is_multiple_of(8);
    if !is_name || name.last().is_some_and(|last| *last != 0) {
        return Err(malformed("the name of the key is none"));
    }
    if body.len() < BODY_HEADER_BYTES + cipher::CRC_BYTES {
        return Err(malformed("they are too short"));
    }
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let id = i64::from_be_bytes(chunk(header, 8).unwrap_or_default());
    let Some(key) = keys.find(id, name) else {
        let message = "this server does not know the shared key: was it replaced, or is it another site's?";
        return Err(Refusal::new(Cause::Untrusted, message));
    };
    let Some(body) = cipher::decrypt(&key.bytes, body) else {
        let message = format!(
            "the credentials were not made with the shared key {} as this server has it: the files differ",
            key.name
        );
        return Err(Refusal::new(Cause::BadSignature, message));
    };
    Ok(Opened { key, takes_name: name_len > 0, body })
}

fn sealed(
    key: &Key,
    takes_name: bool,
    now_s: i64,
    random: &[u8; RANDOM_BYTES],
    option: u8,
    items: &[u8],
) -> Vec<u8> {
    let mut name = Vec::new();
    if takes_name {
        name.extend_from_slice(key.name.as_bytes());
        name.resize(name.len() / 8 * 8 + 8, 0);
    }
    let mut shown = NAME.to_vec();
    shown.extend_from_slice(&[0, 0, u8::try_from(name.len()).unwrap_or_default(), BLOWFISH]);
    shown.extend_from_slice(&key.id.to_be_bytes());
    shown.extend_from_slice(&name);
    let mut body = random.to_vec();
    let time = i32::try_from(now_s.saturating_sub(EPOCH_S)).unwrap_or(i32::MAX);
    body.extend_from_slice(&time.to_be_bytes());
    body.extend_from_slice(&[0, 0, 0, option]);
    body.extend_from_slice(items);
    shown.extend_from_slice(&cipher::encrypt(&key.bytes, &body));
    shown
}

/// Adds an item. What is longer than an item can be is cut; nothing that is sent is.
fn push(items: &mut Vec<u8>, kind: u8, text: &[u8]) {
    let text = &text[..text.len().min(SSS_USER_BYTES_MAX)];
    let len = u16::try_from(text.len() + 1).unwrap_or(u16::MAX);
    items.push(kind);
    items.extend_from_slice(&len.to_be_bytes());
    items.extend_from_slice(text);
    items.push(0);
}

/// The items that are texts, without their NULs.
fn items_of(mut bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, Refusal> {
    let mut items = Vec::new();
    while let [kind, high, low, rest @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (Some(text), Some(behind)) = (rest.get(..len), rest.get(len..)) else {
            return Err(malformed("an item of them is cut"));
        };
        match text {
            [] => {}
            [text @ .., 0] => items.push((*kind, text)),
            _ if matches!(*kind, item::USER | item::HOST) => {
                return Err(malformed("an item of them does not end"));
            }
            // Filling, and credentials of other kinds, are no texts.
            _ => {}
        }
        bytes = behind;
    }
    match bytes.is_empty() {
        true => Ok(items),
        false => Err(malformed("an item of them is cut")),
    }
}

/// An address as clients of XRootD write their own: in brackets, as one of IPv6.
fn address_text(address: SocketAddr) -> String {
    let port = address.port();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => format!("[::ffff:{ip}]:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

/// Reads that, or the form of older clients, `[::192.0.2.7]:1094`.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let address = text.strip_prefix('[').and_then(|_| text.parse::<SocketAddr>().ok())?;
    let ip = match address.ip() {
        IpAddr::V6(ip) if ip != Ipv6Addr::LOCALHOST && ip.segments()[..6] == [0; 6] => {
            ip.to_ipv4().map_or(IpAddr::V6(ip), IpAddr::V4)
        }
        ip => ip.to_canonical(),
    };
    Some(SocketAddr::new(ip, address.port()))
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(Cause::Malformed, format!("the credentials by a shared key cannot be read: {what}"))
}

#[cfg(test)]
mod tests;
