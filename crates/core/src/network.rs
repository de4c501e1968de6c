//! Networks of IP addresses, as people write them: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Fault};

/// All addresses that begin with the same bits (CIDR, RFC 4632 and RFC 4291, 2.3).
///
/// IPv4 and IPv6 are different worlds: `0.0.0.0/0` has no IPv6 address in it. An IPv4 address that is written as
/// an IPv6 one (`::ffff:192.0.2.7`, RFC 4291, 2.5.5.2) counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    first: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// Every IPv4 address.
    pub const ANY_IPV4: Network = Network { first: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix_bits: 0 };
    /// Every IPv6 address.
    pub const ANY_IPV6: Network = Network { first: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix_bits: 0 };
    /// This machine (RFC 1122, 3.2.1.3).
    pub const LOOPBACK_IPV4: Network =
        Network { first: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix_bits: 8 };
    /// This machine (RFC 4291, 2.5.3).
    pub const LOOPBACK_IPV6: Network = Network { first: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 };

    /// The network that an address is in, of those with prefixes of so many bits.
    pub fn around(address: IpAddr, ipv4_bits: u8, ipv6_bits: u8) -> Network {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let prefix_bits = ipv4_bits.min(32);
                let first = IpAddr::V4(Ipv4Addr::from_bits(masked_ipv4(address, prefix_bits)));
                Network { first, prefix_bits }
            }
            IpAddr::V6(address) => {
                let prefix_bits = ipv6_bits.min(128);
                let first = IpAddr::V6(Ipv6Addr::from_bits(masked_ipv6(address, prefix_bits)));
                Network { first, prefix_bits }
            }
        }
    }

    /// True if `address` is one of its.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                masked_ipv4(address, self.prefix_bits) == first.to_bits()
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                masked_ipv6(address, self.prefix_bits) == first.to_bits()
            }
            _ => false,
        }
    }

    /// Reads a list of which each element is a network, an address, `loopback` or `any`.
    pub fn parse_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> crate::Result<Vec<Network>> {
        let mut all = Vec::new();
        for text in texts {
            match text.trim() {
                "any" => all.extend([Network::ANY_IPV4, Network::ANY_IPV6]),
                "loopback" => all.extend([Network::LOOPBACK_IPV4, Network::LOOPBACK_IPV6]),
                other => all.push(other.parse()?),
            }
        }
        Ok(all)
    }
}

fn masked_ipv4(address: Ipv4Addr, prefix_bits: u8) -> u32 {
    address.to_bits() & u32::MAX.checked_shl(32 - u32::from(prefix_bits)).unwrap_or(0)
}

fn masked_ipv6(address: Ipv6Addr, prefix_bits: u8) -> u128 {
    address.to_bits() & u128::MAX.checked_shl(128 - u32::from(prefix_bits)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = Error;

    /// Bits behind the prefix must be 0: `10.1.2.3/8` is more likely a mistake than meant.
    fn from_str(text: &str) -> Result<Network, Error> {
        let wrong = |why: &str| {
            Error::new(ErrorKind::Usage, format!("{text:?} is no network: {why}"))
                .fault(Fault::Caller)
                .hint("write an address or a network, such as 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32")
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| wrong("it does not begin with an IP address"))?;
        if first != first.to_canonical() {
            return Err(wrong("it is an IPv4 address in IPv6's clothes: write the IPv4 address"));
        }
        let bits_max = if first.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => bits_max,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|bits| *bits <= bits_max)
                .ok_or_else(|| wrong("the number behind the slash is too large"))?,
            Some(_) => return Err(wrong("behind the slash there is no number")),
        };
        let network = Network { first, prefix_bits };
        if network.contains(first) { Ok(network) } else { Err(wrong("bits behind the prefix are not 0")) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.7", "::ffff:192.0.2.7", "::192.0.2.7"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("192.0.2.128/25", "192.0.2.129", "192.0.2.127"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("::1", "::1", "::2"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(network.to_string().parse::<Network>().unwrap(), network);
        }
    }

    #[test]
    fn the_network_of_an_address() {
        for (address, network) in [
            ("192.0.2.7", "192.0.0.0/16"),
            ("::ffff:192.0.2.7", "192.0.0.0/16"),
            ("2001:db8:1::7", "2001:db8::/32"),
        ] {
            let found = Network::around(address.parse().unwrap(), 16, 32);
            assert_eq!(found, network.parse().unwrap(), "{address}");
        }
        assert_eq!(Network::around("8.8.8.8".parse().unwrap(), 0, 255), Network::ANY_IPV4);
    }

    #[test]
    fn mistakes_are_refused() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.1.2.3/8",
            "10.0.0/8",
            "::/129",
            "::1/64",
            "x/8",
            "10.0.0.0/+8",
            "::ffff:10.0.0.0/104",
            "10.0.0.0/8/8",
            "10.0.0.0/999",
        ] {
            assert_eq!(text.parse::<Network>().unwrap_err().kind(), ErrorKind::Usage, "{text}");
        }
    }

    #[test]
    fn lists_have_words() {
        let all = Network::parse_list(["any"]).unwrap();
        let loopback = Network::parse_list(["loopback", "192.0.2.0/24"]).unwrap();
        let has = |networks: &[Network], address: &str| {
            networks.iter().any(|network| network.contains(address.parse().unwrap()))
        };
        assert!(has(&all, "::1") && has(&all, "8.8.8.8"));
        assert!(has(&loopback, "127.9.9.9") && has(&loopback, "::1") && has(&loopback, "192.0.2.1"));
        assert!(!has(&loopback, "8.8.8.8"));
        assert!(Network::parse_list(["none"]).is_err());
    }
}
