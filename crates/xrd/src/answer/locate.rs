//! The answer to `locate`: words of kind, access and address, with spaces between them.

use std::net::{Ipv4Addr, Ipv6Addr};

use gridlane_core::limits::ROOT_LOCATIONS_MAX;

use crate::wire::without_nul;

/// A server that has a file, or knows others that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// It knows servers that have it; else it has it.
    pub is_manager: bool,
    /// It is not known yet whether that is true.
    pub is_pending: bool,
    /// The file can be written there.
    pub is_writable: bool,
    /// Host name or address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Location {
    /// Appends the word.
    pub fn write(&self, out: &mut Vec<u8>) {
        let kind = match (self.is_manager, self.is_pending) {
            (true, false) => 'M',
            (true, true) => 'm',
            (false, false) => 'S',
            (false, true) => 's',
        };
        let access = if self.is_writable { 'w' } else { 'r' };
        let host = match (self.host.parse::<Ipv4Addr>(), self.host.contains(':')) {
            // XRootD's way, which its clients read.
            (Ok(address), _) => format!("[::{address}]"),
            (_, true) => format!("[{}]", self.host),
            (_, false) => self.host.clone(),
        };
        out.extend_from_slice(format!("{kind}{access}{host}:{}", self.port).as_bytes());
    }

    /// Reads the words, up to [`ROOT_LOCATIONS_MAX`]; those that make no sense are left out.
    pub fn parse_all(text: &[u8]) -> Vec<Location> {
        let Ok(text) = std::str::from_utf8(without_nul(text)) else { return Vec::new() };
        text.split([' ', '\0']).filter_map(Location::parse).take(ROOT_LOCATIONS_MAX).collect()
    }

    fn parse(word: &str) -> Option<Location> {
        let mut chars = word.chars();
        let (is_manager, is_pending) = match chars.next()? {
            'M' => (true, false),
            'm' => (true, true),
            'S' => (false, false),
            's' => (false, true),
            _ => return None,
        };
        let is_writable = match chars.next()? {
            'r' => false,
            'w' => true,
            _ => return None,
        };
        let (host, port) = chars.as_str().rsplit_once(':')?;
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // An IPv4 address is written as an IPv6 one that holds it.
            Some(inside) => match inside.parse::<Ipv6Addr>().ok()? {
                address if address.is_loopback() || address.is_unspecified() => address.to_string(),
                address => address.to_ipv4().map_or(address.to_string(), |address| address.to_string()),
            },
            None if host.contains([':', '[', ']']) => return None,
            None => host.to_owned(),
        };
        (!host.is_empty()).then_some(())?;
        Some(Location { is_manager, is_pending, is_writable, host, port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn an_answer_has_an_end() {
        let many = "Sr1.2.3.4:5 ".repeat(ROOT_LOCATIONS_MAX + 1);
        assert_eq!(Location::parse_all(many.as_bytes()).len(), ROOT_LOCATIONS_MAX);
    }

    #[test]
    fn what_servers_send() {
        let found = Location::parse_all(
            b"Sw[::127.0.0.1]:21094 mrhost.example:1213 Sr::1:7 Sr[2001:db8::1]:1 Sr[::1]:2 junk\0",
        );
        let hosts: Vec<_> = found.iter().map(|one| (one.host.as_str(), one.port, one.is_writable)).collect();
        assert_eq!(
            hosts,
            [
                ("127.0.0.1", 21094, true),
                ("host.example", 1213, false),
                ("2001:db8::1", 1, false),
                ("::1", 2, false)
            ]
        );
        assert!(found[1].is_manager && found[1].is_pending);
        let mut out = Vec::new();
        found[0].write(&mut out);
        assert_eq!(out, b"Sw[::127.0.0.1]:21094");
        for location in &found {
            let mut out = Vec::new();
            location.write(&mut out);
            assert_eq!(&Location::parse_all(&out)[0], location);
        }
        assert_eq!(Location::parse_all(b"\xff"), []);
    }
}
