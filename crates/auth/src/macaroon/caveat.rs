//! Caveats: what a macaroon is limited to.

use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use gridlane_core::{Network, limits};
use gridlane_dav::{ResourcePath, timestamp};

use super::activity;
use crate::operation::Grants;
use crate::refusal::{Cause, Refusal};

/// A caveat that is understood here. Any other makes a macaroon worth nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// `name:`: the user that it was made for.
    Name(String),
    /// `activity:`: what may be done.
    Activity(Grants),
    /// `path:`: where; this and everything below it. Not encoded: names are bytes.
    Path(ResourcePath),
    /// `before:`: until when, in seconds since 1970.
    Before(i64),
    /// `ip:`: from where (dCache).
    Ip(Vec<Network>),
}

impl Caveat {
    /// Reads one. Fails for what is not understood, and names it.
    pub fn parse(bytes: &[u8]) -> Result<Caveat, Refusal> {
        let refused = |why: &str| {
            Refusal::new(Cause::Unacceptable, format!("the macaroon's caveat {} {why}", shown(bytes)))
        };
        if let Some(path) = bytes.strip_prefix(b"path:") {
            return parse_path(path).map(Caveat::Path).map_err(refused);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| refused("is not text"))?;
        match text.split_once(':') {
            Some(("name", name)) if name.is_empty() || name.chars().any(char::is_control) => {
                Err(refused("has no name, or one with control characters"))
            }
            Some(("name", name)) => Ok(Caveat::Name(name.to_owned())),
            Some(("activity", words)) => Ok(Caveat::Activity(activity::grants_of(words))),
            Some(("before", moment)) => {
                parse_moment(moment).map(Caveat::Before).ok_or_else(|| refused("is no moment in UTC"))
            }
            Some(("ip", networks)) => Network::parse_list(networks.split(','))
                .map(Caveat::Ip)
                .map_err(|_| refused("is no list of networks")),
            _ => Err(refused("is not understood here")),
        }
    }

    /// Its text in a macaroon.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Caveat::Name(name) => format!("name:{name}").into_bytes(),
            Caveat::Activity(grants) => format!("activity:{}", activity::words_of(*grants)).into_bytes(),
            Caveat::Path(path) => {
                let mut bytes = b"path:".to_vec();
                for name in path.names() {
                    bytes.push(b'/');
                    bytes.extend_from_slice(name);
                }
                if path.is_root() {
                    bytes.push(b'/');
                }
                bytes
            }
            Caveat::Before(moment_s) => format!("before:{}", moment_text(*moment_s)).into_bytes(),
            Caveat::Ip(networks) => {
                let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
                format!("ip:{}", networks.join(",")).into_bytes()
            }
        }
    }
}

/// `2026-01-02T03:04:05Z`.
pub(super) fn moment_text(moment_s: i64) -> String {
    timestamp::format(UNIX_EPOCH + Duration::from_secs(u64::try_from(moment_s).unwrap_or(0)))
}

/// A moment in UTC: RFC 3339 with a `Z`, as XRootD and dCache write it. A fraction of a second is dropped.
fn parse_moment(text: &str) -> Option<i64> {
    if !text.ends_with('Z') || text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    let moment = timestamp::parse(text)?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(moment.as_secs()).ok()
}

/// A path whose names stand as they are. What could be read as two paths, by us and by another server of the site, is
/// refused: what leads upwards or to where it is, empty names, and encoded dots and slashes.
pub(super) fn parse_path(bytes: &[u8]) -> Result<ResourcePath, &'static str> {
    let names = bytes.strip_prefix(b"/").ok_or("is no path from the root")?;
    let names = names.strip_suffix(b"/").unwrap_or(names);
    let mut path = ResourcePath::root();
    if bytes == b"/" {
        return Ok(path);
    }
    for name in names.split(|byte| *byte == b'/') {
        let has_encoded =
            name.windows(3).any(|three| matches!(three, b"%2e" | b"%2E" | b"%2f" | b"%2F" | b"%00"));
        match name {
            b"" => return Err("has an empty name"),
            b"." | b".." => return Err("has a name that leads elsewhere"),
            _ if has_encoded => return Err("has an encoded dot or slash"),
            _ if name.contains(&0) => return Err("has a NUL"),
            _ if name.len() > limits::NAME_BYTES_MAX => return Err("has a name that is too long"),
            _ => path = path.join(name),
        }
    }
    Ok(path)
}

/// True if an address is in one of these networks.
pub(super) fn is_from(address: IpAddr, networks: &[Network]) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// A caveat in a message: not too long, and without control characters.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let begin: String = text.chars().take(80).collect();
    if begin.len() < text.len() { format!("{:?}…", begin) } else { format!("{begin:?}") }
}
