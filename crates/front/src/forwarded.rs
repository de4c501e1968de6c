//! The client's address as proxies in front of the server tell it: `X-Forwarded-For`, and `Forwarded` (RFC 7239).
//!
//! Each proxy appends the address of the peer that connected to it. Read from the end, the first address that is not a
//! trusted proxy's own is the client's: what stands in front of it the client may have made up.

use std::net::{IpAddr, SocketAddr};

use gridlane_core::Network;
use gridlane_dav::Headers;

use crate::client::Client;

/// True if `peer` is one of those in `trusted`, which forward requests of many clients.
pub(crate) fn is_forwarder(peer: IpAddr, trusted: &[Network]) -> bool {
    trusted.iter().any(|network| network.contains(peer))
}

/// The client of a request that came from `peer`, where only those in `trusted` are believed.
pub(crate) fn client(headers: &Headers, peer: IpAddr, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| is_forwarder(address, trusted);
    let mut client = peer;
    if !is_trusted(client) {
        return client;
    }
    // A proxy writes one of the two; where both stand, one is the client's invention, and cannot be told from the
    // other.
    let elements: Vec<Option<IpAddr>> =
        match (headers.contains("forwarded"), headers.contains("x-forwarded-for")) {
            (true, true) => return Client::UNKNOWN,
            (true, false) => headers.list("forwarded").map(forwarded_for).collect(),
            (false, _) => headers.list("x-forwarded-for").map(address).collect(),
        };
    for element in elements.into_iter().rev() {
        match element {
            Some(address) => client = address,
            None => return Client::UNKNOWN,
        }
        if !is_trusted(client) {
            break;
        }
    }
    client
}

/// True if a trusted proxy that a request came from says that its client speaks https, and no proxy on the way says
/// something else.
pub fn is_https(headers: &Headers, peer: IpAddr, trusted: &[Network]) -> bool {
    let elements = headers.list("forwarded").map(|element| parameter(element, "proto").unwrap_or_default());
    let mut said = headers.list("x-forwarded-proto").chain(elements).peekable();
    is_forwarder(peer, trusted)
        && said.peek().is_some()
        && said.all(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// The one value of a parameter of an element of `Forwarded`.
fn parameter<'a>(element: &'a str, wanted: &str) -> Option<&'a str> {
    let mut values = element.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case(wanted).then_some(value.trim())
    });
    let (value, None) = (values.next()?, values.next()) else { return None };
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// The address in an element of `Forwarded`; `None` when it conceals it, or is malformed. A quoted comma cuts an
/// element in two that are malformed.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    address(parameter(element, "for")?)
}

/// An address, with or without a port.
fn address(node: &str) -> Option<IpAddr> {
    let bracketed = || node.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    node.parse::<IpAddr>()
        .ok()
        .or_else(|| node.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .or_else(bracketed)
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_needs_the_word_of_all_trusted_proxies() {
        let trusted = Network::parse_list(["10.0.0.0/8"]).unwrap();
        for (peer, fields, expected) in [
            ("10.0.0.1", "", false),
            ("10.0.0.1", "X-Forwarded-Proto: https", true),
            ("10.0.0.1", "X-Forwarded-Proto: HTTPS, https", true),
            ("10.0.0.1", "X-Forwarded-Proto: https, http", false),
            ("10.0.0.1", "X-Forwarded-Proto: https\nX-Forwarded-Proto: http", false),
            ("10.0.0.1", "Forwarded: for=192.0.2.1;proto=https", true),
            ("10.0.0.1", "Forwarded: for=192.0.2.1;Proto=\"https\", for=10.0.0.2;proto=https", true),
            ("10.0.0.1", "Forwarded: for=192.0.2.1;proto=https, for=10.0.0.2", false),
            ("10.0.0.1", "Forwarded: proto=https;proto=http", false),
            ("10.0.0.1", "Forwarded: proto=https\nX-Forwarded-Proto: http", false),
            ("192.0.2.1", "X-Forwarded-Proto: https", false),
        ] {
            let mut headers = Headers::new();
            for (name, value) in fields.lines().filter_map(|line| line.split_once(": ")) {
                headers.push(name, value.as_bytes());
            }
            assert_eq!(is_https(&headers, peer.parse().unwrap(), &trusted), expected, "{peer} {fields}");
        }
    }

    #[test]
    fn the_last_address_that_is_no_trusted_proxy_is_the_client() {
        let trusted = Network::parse_list(["10.0.0.0/8", "::1"]).unwrap();
        for (peer, fields, expected) in [
            ("192.0.2.1", "X-Forwarded-For: 8.8.8.8", "192.0.2.1"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "X-Forwarded-For: 8.8.8.8", "8.8.8.8"),
            ("10.0.0.1", "X-Forwarded-For: 127.0.0.1, 8.8.8.8", "8.8.8.8"),
            ("10.0.0.1", "X-Forwarded-For: 8.8.8.8, 10.2.2.2", "8.8.8.8"),
            ("10.0.0.1", "X-Forwarded-For: 8.8.8.8\nX-Forwarded-For: 9.9.9.9,10.2.2.2", "9.9.9.9"),
            ("10.0.0.1", "X-Forwarded-For: 10.3.3.3, 10.2.2.2", "10.3.3.3"),
            ("10.0.0.1", "X-Forwarded-For: 8.8.8.8, nonsense", "0.0.0.0"),
            ("10.0.0.1", "X-Forwarded-For: nonsense, 8.8.8.8", "8.8.8.8"),
            ("10.0.0.1", "X-Forwarded-For: 8.8.8.8:4711", "8.8.8.8"),
            ("::1", "X-Forwarded-For: [2001:db8::1]:4711", "2001:db8::1"),
            ("::1", "X-Forwarded-For: 2001:db8::1", "2001:db8::1"),
            ("::1", "X-Forwarded-For: ::ffff:8.8.8.8", "8.8.8.8"),
            ("10.0.0.1", "Forwarded: for=8.8.8.8;proto=https, For=\"[2001:db8::1]:80\"", "2001:db8::1"),
            ("10.0.0.1", "Forwarded: proto=https; for=8.8.8.8", "8.8.8.8"),
            ("10.0.0.1", "Forwarded: for=8.8.8.8, for=_hidden", "0.0.0.0"),
            ("10.0.0.1", "Forwarded: for=8.8.8.8, proto=https", "0.0.0.0"),
            ("10.0.0.1", "Forwarded: for=8.8.8.8;for=9.9.9.9", "0.0.0.0"),
            ("10.0.0.1", "Forwarded: for=8.8.8.8\nX-Forwarded-For: 127.0.0.1", "0.0.0.0"),
        ] {
            let mut headers = Headers::new();
            for field in fields.lines() {
                let (name, value) = field.split_once(": ").unwrap();
                headers.push(name, value.as_bytes());
            }
            let client = client(&headers, peer.parse().unwrap(), &trusted);
            assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{peer} {fields}");
        }
    }
}
