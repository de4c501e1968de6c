//! Third-party copies: a server, the *destination*, opens the file at another one, the *source*, as its client, and the user's
//! client brings the two together by a key that it makes up (XRootD's "rendezvous").
//!
//! ```text
//!   client ── open tpc.key, tpc.src ──▶ destination        the copy is remembered with the open file
//!   client ── sync ──────────────────▶ destination         it begins
//!             source ◀── open tpc.key, tpc.org ── destination      may be early: waits for the client's word
//!   client ── open tpc.key, tpc.dst ──▶ source             the client's word: that destination may read this file
//!   client ── sync ──────────────────▶ destination         answered when the copy has ended
//!   client ── close ─▶ source, close ─▶ destination
//! ```
//!
//! An open asks for a [`Role`] in its CGI. The source's side is the [`Rendezvous`].

mod rendezvous;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind, Scheme, Secret, Url, limits};

use crate::path::pairs;

pub use rendezvous::{Arrived, EntryId, Fetch, Full, Rendezvous, WaitId, Word};

/// The part that an open asks the server to take in a third-party copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client looks which server has the file: an open like others.
    Placement,
    /// To fetch the file from another server.
    Destination(Box<Destination>),
    /// To let another server fetch the file, on behalf of the client.
    Source {
        /// The key of the copy.
        key: Secret,
        /// The host of the server that may fetch it.
        destination: Host,
        /// The time within which it has to come.
        ttl: Duration,
    },
    /// To be fetched from, by a destination.
    Fetch {
        /// The key of the copy.
        key: Secret,
        /// The client on whose behalf it is fetched.
        origin: Origin,
    },
}

/// The copy that a destination is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its key; `None`: only with the proxy that the client has lent.
    pub key: Option<Secret>,
    /// The file at the source, without the key: at the server that the client has told of it.
    pub source: Url,
    /// The connections to have, where the client says so.
    pub streams: Option<u8>,
    /// The length of the file, where the client says so.
    pub size_bytes: Option<u64>,
    /// The checksum that is to be compared, with its value where the client knows it.
    pub checksum: Option<(ChecksumKind, Option<Checksum>)>,
    /// The file by the name that the source's certificate has, if it is to be opened as the client, with the proxy that the client has
    /// lent ("delegated"): the source is told nothing of the copy, and there need be no key.
    pub delegated: Option<Url>,
}

/// The client of a copy, as servers tell each other: its login, and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `user.process`.
    pub login: String,
    /// The client's host.
    pub host: Host,
}

/// A host, by name or by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address; an IPv4 one is never in IPv6's clothes.
    Address(IpAddr),
    /// A name, in small letters.
    Name(String),
}

/// The reason why a request for a third-party copy makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It asks for both sides at once.
    Conflicting,
    /// A destination without a source.
    NoSource,
    /// A source that is told neither of a destination nor that it is one.
    NobodyNamed,
    /// There is no key, and nothing says that the client has lent its credentials ("delegated").
    Delegated,
    /// This key has a value that makes no sense.
    Value(&'static str),
    /// The checksum is of a kind that is not known.
    Checksum,
}

/// XRootD's words, where it has them.
impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Conflicting => f.write_str("conflicting tpc cgi"),
            Wrong::NoSource => f.write_str("tpc source not specified"),
            Wrong::NobodyNamed => f.write_str("tpc destination not specified"),
            Wrong::Delegated => {
                f.write_str("tpc not supported without a key and without delegated credentials")
            }
            Wrong::Value(key) => write!(f, "invalid value of {key}"),
            Wrong::Checksum => f.write_str("tpc checksum type not supported"),
        }
    }
}

/// Reads the CGI of an open, which wants to change the file (`is_write`) or to read it. `None`: it is about no third-party copy.
pub fn parse(cgi: &[u8], is_write: bool) -> Result<Option<Role>, Wrong> {
    let value = |name: &str| {
        pairs(cgi).find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| value).filter(|v| !v.is_empty())
    };
    if value("tpc.stage") == Some(b"placement") {
        return Ok(Some(Role::Placement));
    }
    let is_delegated = is_write && value("tpc.dlgon") == Some(b"1");
    let Some(key) = value("tpc.key") else {
        return match is_write && value("tpc.src").is_some() {
            true if is_delegated => Ok(Some(Role::Destination(Box::new(destination(None, &value)?)))),
            true => Err(Wrong::Delegated),
            // Other words about copies mean nothing by themselves.
            false => Ok(None),
        };
    };
    let key = text(key, limits::ROOT_RENDEZVOUS_KEY_BYTES_MAX).ok_or(Wrong::Value("tpc.key"))?;
    let key = Secret::new(key);
    let role = match (is_write, value("tpc.dst"), value("tpc.org")) {
        (_, Some(_), Some(_)) => return Err(Wrong::Conflicting),
        (true, ..) => Role::Destination(Box::new(destination(Some(key), &value)?)),
        (false, Some(host), None) => Role::Source {
            key,
            destination: Host::parse(host).ok_or(Wrong::Value("tpc.dst"))?,
            ttl: match value("tpc.ttl") {
                None => limits::ROOT_RENDEZVOUS_TTL,
                Some(digits) => {
                    let seconds: u64 = number(digits).ok_or(Wrong::Value("tpc.ttl"))?;
                    Duration::from_secs(seconds).min(limits::ROOT_RENDEZVOUS_TTL_MAX)
                }
            },
        },
        (false, None, Some(origin)) => {
            Role::Fetch { key, origin: Origin::parse(origin).ok_or(Wrong::Value("tpc.org"))? }
        }
        (false, None, None) => return Err(Wrong::NobodyNamed),
    };
    Ok(Some(role))
}

fn destination<'a>(
    key: Option<Secret>,
    value: &impl Fn(&str) -> Option<&'a [u8]>,
) -> Result<Destination, Wrong> {
    let authority = value("tpc.src").ok_or(Wrong::NoSource)?;
    let authority = source_authority(authority).ok_or(Wrong::Value("tpc.src"))?;
    let is_delegated = value("tpc.dlgon") == Some(b"1");
    let path = value("tpc.lfn").ok_or(Wrong::Value("tpc.lfn"))?;
    if path.len() > limits::ROOT_PATH_BYTES_MAX || path.contains(&b'?') {
        return Err(Wrong::Value("tpc.lfn"));
    }
    let scheme = match value("tpc.spr") {
        None | Some(b"root" | b"xroot") => Scheme::Root,
        Some(b"roots" | b"xroots") => Scheme::Roots,
        Some(_) => return Err(Wrong::Value("tpc.spr")),
    };
    let cgi = match value("tpc.scgi") {
        None => None,
        Some(cgi) => Some(own_cgi(cgi).ok_or(Wrong::Value("tpc.scgi"))?),
    };
    let source =
        Url::of_root(scheme, &authority, path, cgi.as_deref()).map_err(|_| Wrong::Value("tpc.src"))?;
    // `tpc.src` may be an address, and that of another server behind a redirector.
    let delegated = match value("tpc.dlg") {
        _ if !is_delegated => None,
        None => Some(source.clone()),
        Some(named) => {
            let url = source_authority(named)
                .and_then(|named| Url::of_root(scheme, &named, path, cgi.as_deref()).ok());
            Some(url.ok_or(Wrong::Value("tpc.dlg"))?)
        }
    };
    let checksum = match value("tpc.cks") {
        None => None,
        Some(named) => {
            let (kind, value) = match named.iter().position(|byte| *byte == b':') {
                Some(at) => (&named[..at], Some(&named[at + 1..])),
                None => (named, None),
            };
            let known = ChecksumKind::OFFERED.into_iter().chain([ChecksumKind::PosixCrc]);
            let is_named = |known: &ChecksumKind| known.name().as_bytes().eq_ignore_ascii_case(kind);
            let kind = known.into_iter().find(is_named).ok_or(Wrong::Checksum)?;
            let parsed = value.map(|digits| {
                let digits = std::str::from_utf8(digits).ok();
                digits.and_then(|digits| Checksum::from_hex(kind, digits)).ok_or(Wrong::Value("tpc.cks"))
            });
            Some((kind, parsed.transpose()?))
        }
    };
    Ok(Destination {
        key,
        source,
        streams: match value("tpc.str") {
            None => None,
            Some(digits) => {
                let streams: u8 = number(digits).ok_or(Wrong::Value("tpc.str"))?;
                Some(streams.clamp(1, limits::ROOT_THIRD_PARTY_STREAMS_MAX))
            }
        },
        size_bytes: value("oss.asize").and_then(number),
        checksum,
        delegated,
    })
}

impl Destination {
    /// The URL at which the file is opened, on behalf of this client.
    ///
    /// # Errors
    ///
    /// [`Wrong::Delegated`] of a copy without a key, and [`Wrong::Value`] of what cannot be written in a URL.
    pub fn url_for(&self, origin: &Origin) -> Result<Url, Wrong> {
        let key = self.key.as_ref().ok_or(Wrong::Delegated)?;
        let mut cgi = self.source.cgi().map(|own| format!("{own}&")).unwrap_or_default();
        cgi.push_str(&format!("tpc.key={}&tpc.org={origin}", key.expose()));
        let authority = self.source.host_header();
        let url = Url::of_root(self.source.scheme(), &authority, &self.source.wire_path(), Some(&cgi));
        url.map_err(|_| Wrong::Value("tpc.src"))
    }
}

impl Origin {
    /// Reads `user.process@host`.
    pub fn parse(bytes: &[u8]) -> Option<Origin> {
        let (login, host) = text(bytes, limits::HOST_NAME_BYTES_MAX * 2)?.rsplit_once('@')?;
        Some(Origin { login: login.to_owned(), host: Host::parse(host.as_bytes())? })
    }

    /// That of a client which logged in by this name and process.
    pub fn of_login(user: &str, process: u32, host: Host) -> Origin {
        // What cannot stand in a CGI comes from a login that is no client's of today.
        let user: String = user.chars().filter(|c| is_plain(*c) && *c != '@').collect();
        Origin { login: format!("{user}.{process}"), host }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.login, self.host)
    }
}

impl Host {
    /// Reads a name or an address, in brackets or not, with a port or without.
    pub fn parse(bytes: &[u8]) -> Option<Host> {
        let host = text(bytes, limits::HOST_NAME_BYTES_MAX + 8)?;
        if let Some(bracketed) = host.strip_prefix('[') {
            let (address, rest) = bracketed.split_once(']')?;
            let has_port = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
            return address.parse().ok().filter(|_| has_port).map(Host::of);
        }
        if let Ok(address) = host.parse() {
            return Some(Host::of(address));
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return None,
            None => host,
        };
        if let Ok(address) = name.parse() {
            return Some(Host::of(address));
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let is_good =
            !name.is_empty() && name.len() <= limits::HOST_NAME_BYTES_MAX && name.bytes().all(is_name);
        is_good.then(|| Host::Name(name.to_ascii_lowercase()))
    }

    /// An address.
    pub fn of(address: IpAddr) -> Host {
        let address = match address {
            // XRootD writes IPv4 addresses so as well; no host has one of these itself (RFC 4291, section 2.5.5.1).
            IpAddr::V6(v6) if matches!(v6.segments(), [0, 0, 0, 0, 0, 0, high, _] if high != 0) => {
                v6.to_ipv4().map_or(address, IpAddr::V4)
            }
            _ => address.to_canonical(),
        };
        Host::Address(address)
    }
}

/// As XRootD writes hosts: `[::ffff:192.0.2.1]`, `[2001:db8::1]`, `host.example`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Address(IpAddr::V4(address)) => write!(f, "[::ffff:{address}]"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

/// `[user@]host[:port]` without the user, and with an IPv4 address as such.
fn source_authority(bytes: &[u8]) -> Option<String> {
    let whole = text(bytes, limits::HOST_NAME_BYTES_MAX * 2)?;
    let place = whole.rsplit_once('@').map_or(whole, |(_, place)| place);
    let host = match Host::parse(place.as_bytes())? {
        Host::Address(IpAddr::V4(address)) => address.to_string(),
        host => host.to_string(),
    };
    // A port is behind the bracket, or behind the only colon.
    let behind = place.rsplit_once(']').map_or(place, |(_, behind)| behind);
    let is_bare_address = place.parse::<IpAddr>().is_ok();
    let port = behind.rsplit_once(':').map(|(_, port)| port).filter(|_| !is_bare_address);
    Some(port.map_or(host.clone(), |port| format!("{host}:{port}")))
}

/// The CGI for the source: tabs stand for `&`. What is about this copy, or for clients alone, is left out.
fn own_cgi(bytes: &[u8]) -> Option<String> {
    let cgi = std::str::from_utf8(bytes).ok()?.replace('\t', "&");
    let is_kept = |pair: &&str| {
        !pair.is_empty() && !["tpc.", "xrd.", "xrdcl."].iter().any(|prefix| pair.starts_with(prefix))
    };
    let kept: Vec<&str> = cgi.split('&').filter(is_kept).collect();
    (!kept.iter().any(|pair| pair.contains(char::is_control))).then(|| kept.join("&"))
}

/// A text of at most so many bytes that can stand in a CGI.
fn text(bytes: &[u8], bytes_max: usize) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.is_empty() && text.len() <= bytes_max && text.chars().all(is_plain)).then_some(text)
}

fn is_plain(char: char) -> bool {
    char.is_ascii_graphic() && !matches!(char, '&' | '?' | '#')
}

fn is_port(digits: &str) -> bool {
    digits.parse::<u16>().is_ok()
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(cgi: &str, is_write: bool) -> Result<Option<Role>, Wrong> {
        parse(cgi.as_bytes(), is_write)
    }

    fn destination_of(cgi: &str) -> Destination {
        match role(cgi, true) {
            Ok(Some(Role::Destination(destination))) => *destination,
            other => panic!("{cgi}: {other:?}"),
        }
    }

    #[test]
    fn a_destination_as_xrdcp_asks_for_it() {
        let seen = "oss.asize=3150172&tpc.dlg=127.0.0.1:1094&tpc.dlgon=0&tpc.key=089145294f4c4f866b01f664&\
                    tpc.lfn=/rnd&tpc.spr=root&tpc.src=[::ffff:127.0.0.1]:1094&tpc.stage=copy&tpc.str=1&tpc.tpr=root";
        let copy = destination_of(seen);
        assert_eq!(copy.key.as_ref().unwrap().expose(), "089145294f4c4f866b01f664");
        assert_eq!(copy.source.typed(), "root://127.0.0.1//rnd");
        assert_eq!((copy.streams, copy.size_bytes, &copy.checksum), (Some(1), Some(3_150_172), &None));
        let origin = Origin::of_login("root", 20358, Host::parse(b"127.0.0.1").unwrap());
        assert_eq!(
            copy.url_for(&origin).unwrap().typed(),
            "root://127.0.0.1//rnd?tpc.key=089145294f4c4f866b01f664&tpc.org=root.20358@[::ffff:127.0.0.1]"
        );
        // The key is in no log.
        assert!(!format!("{copy:?} {}", copy.url_for(&origin).unwrap()).contains("0891"));
    }

    #[test]
    fn sources_of_a_destination() {
        for (cgi, expected) in [
            ("tpc.src=h.example:1095&tpc.lfn=//a/b", "root://h.example:1095///a/b"),
            ("tpc.src=ann@H.example&tpc.lfn=/a&tpc.spr=roots", "roots://h.example//a"),
            ("tpc.src=[2001:db8::1]:7&tpc.lfn=/a%20b&tpc.spr=xroot", "root://[2001:db8::1]:7//a%20b"),
            ("tpc.src=192.0.2.1&tpc.lfn=/a", "root://192.0.2.1//a"),
            (
                "tpc.src=h:9&tpc.lfn=/a&tpc.scgi=tpc.stage=placement\tauthz=T%20x\txrd.wantprot=unix\tk=v",
                "root://h:9//a?authz=T%20x&k=v",
            ),
        ] {
            let copy = destination_of(&format!("tpc.key=K&{cgi}"));
            assert_eq!(copy.source.typed(), expected);
        }
        let copy = destination_of("tpc.key=K&tpc.src=h&tpc.lfn=/a&tpc.cks=ADLER32:0a0b0c0d&tpc.str=99");
        assert_eq!(copy.checksum, Some((ChecksumKind::Adler32, Some(Checksum::adler32(0x0a0b_0c0d)))));
        assert_eq!(copy.streams, Some(15));
        let copy = destination_of("tpc.key=K&tpc.src=h&tpc.lfn=/a&tpc.cks=md5");
        assert_eq!(copy.checksum, Some((ChecksumKind::Md5, None)));
    }

    #[test]
    fn the_side_of_the_source() {
        let ttl = |cgi: &str| match role(cgi, false) {
            Ok(Some(Role::Source { ttl, destination, .. })) => (ttl.as_secs(), destination.to_string()),
            other => panic!("{cgi}: {other:?}"),
        };
        let of = |seconds, host: &str| (seconds, host.to_owned());
        assert_eq!(ttl("tpc.dst=[::ffff:127.0.0.1]&tpc.key=K&tpc.stage=copy"), of(7, "[::ffff:127.0.0.1]"));
        assert_eq!(ttl("tpc.key=K&tpc.dst=[::192.0.2.1]"), of(7, "[::ffff:192.0.2.1]"));
        assert_eq!(ttl("tpc.key=K&tpc.dst=[::1]"), of(7, "[::1]"));
        assert_eq!(ttl("tpc.key=K&tpc.dst=H.example.&tpc.ttl=3"), of(3, "h.example"));
        assert_eq!(ttl("tpc.key=K&tpc.dst=h:1094&tpc.ttl=99999"), of(15, "h"));
        let fetched = role("tpc.key=K&tpc.org=root.20358@[::ffff:127.0.0.1]", false).unwrap().unwrap();
        let Role::Fetch { key, origin } = fetched else { panic!() };
        assert_eq!((key.expose(), origin.login.as_str()), ("K", "root.20358"));
        assert_eq!(origin.host, Host::Address([127, 0, 0, 1].into()));
        assert_eq!(
            Origin::parse(b"a@b.3@h"),
            Some(Origin { login: "a@b.3".into(), host: Host::Name("h".into()) })
        );
    }

    #[test]
    fn a_destination_with_a_proxy_that_is_lent() {
        let seen =
            "oss.asize=9&tpc.dlg=h.example:1094&tpc.dlgon=1&tpc.lfn=/f&tpc.src=192.0.2.1:1094&tpc.stage=copy";
        let copy = destination_of(seen);
        assert!(copy.key.is_none());
        // The name is what the certificate is for; a key is for the server that the client has found.
        assert_eq!(copy.delegated.as_ref().unwrap().typed(), "root://h.example//f");
        assert_eq!(copy.source.typed(), "root://192.0.2.1//f");
        let origin = Origin::of_login("a", 1, Host::parse(b"h").unwrap());
        assert_eq!(copy.url_for(&origin), Err(Wrong::Delegated));
        // Where the client gives a key as well, both ways are open; and where it does not say so, nothing is lent.
        let both = destination_of(&format!("{seen}&tpc.key=K"));
        assert!(both.delegated.is_some());
        assert!(both.url_for(&origin).unwrap().typed().starts_with("root://192.0.2.1//f?tpc.key=K"));
        let without = destination_of("tpc.key=K&tpc.src=h&tpc.lfn=/f&tpc.dlgon=0&tpc.dlg=other");
        assert_eq!((without.delegated, without.source.typed().as_str()), (None, "root://h//f"));
        let nameless = destination_of("tpc.src=h&tpc.lfn=/f&tpc.dlgon=1");
        assert_eq!(nameless.delegated.unwrap().typed(), "root://h//f");
        assert_eq!(role("tpc.src=h&tpc.lfn=/f&tpc.dlgon=1&tpc.dlg=a/b", true), Err(Wrong::Value("tpc.dlg")));
        // It is the destination's matter alone.
        assert_eq!(role(seen, false), Ok(None));
    }

    #[test]
    fn opens_that_are_about_no_copy() {
        assert_eq!(role("authz=x&oss.asize=5", true), Ok(None));
        assert_eq!(role("tpc.stage=copy&tpc.dlgon=0", false), Ok(None));
        assert_eq!(role("tpc.stage=placement&tpc.key=K", false), Ok(Some(Role::Placement)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = "k".repeat(limits::ROOT_RENDEZVOUS_KEY_BYTES_MAX + 1);
        for (cgi, is_write, wrong) in [
            ("tpc.key=K&tpc.dst=h&tpc.org=a.1@h", false, Wrong::Conflicting),
            ("tpc.key=K", true, Wrong::NoSource),
            ("tpc.key=K&tpc.lfn=/f", true, Wrong::NoSource),
            ("tpc.key=K", false, Wrong::NobodyNamed),
            ("tpc.src=h&tpc.lfn=/f&tpc.dlg=h", true, Wrong::Delegated),
            ("tpc.key=K&tpc.src=h", true, Wrong::Value("tpc.lfn")),
            ("tpc.key=K&tpc.src=h&tpc.lfn=/a?b", true, Wrong::Value("tpc.lfn")),
            ("tpc.key=K&tpc.src=h/x&tpc.lfn=/f", true, Wrong::Value("tpc.src")),
            ("tpc.key=K&tpc.src=h:99999&tpc.lfn=/f", true, Wrong::Value("tpc.src")),
            ("tpc.key=K&tpc.src=h&tpc.lfn=/f&tpc.spr=https", true, Wrong::Value("tpc.spr")),
            ("tpc.key=K&tpc.src=h&tpc.lfn=/f&tpc.str=x", true, Wrong::Value("tpc.str")),
            ("tpc.key=K&tpc.src=h&tpc.lfn=/f&tpc.cks=sha1", true, Wrong::Checksum),
            ("tpc.key=K&tpc.src=h&tpc.lfn=/f&tpc.cks=md5:00", true, Wrong::Value("tpc.cks")),
            ("tpc.key=K&tpc.dst=a/b", false, Wrong::Value("tpc.dst")),
            ("tpc.key=K&tpc.dst=h&tpc.ttl=-1", false, Wrong::Value("tpc.ttl")),
            ("tpc.key=K&tpc.org=h", false, Wrong::Value("tpc.org")),
            (&format!("tpc.key={long}&tpc.dst=h"), false, Wrong::Value("tpc.key")),
            ("tpc.key=\x01&tpc.dst=h", false, Wrong::Value("tpc.key")),
        ] {
            assert_eq!(role(cgi, is_write), Err(wrong), "{cgi}");
        }
    }
}
