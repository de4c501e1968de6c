//! The addresses that a process connects to for others.
//!
//! A server that fetches from wherever a client says can be made to ask what only it can reach: itself, and the network that
//! it stands in. So addresses that are nobody's on the public internet are refused unless an operator has allowed them
//! (the registries of special-purpose addresses, RFC 6890). The check is of the address that is connected to, after its
//! name was looked up and with no second look-up, so that no name can mean one thing first and another one then.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use gridlane_core::{Error, ErrorKind, Fault, Hint, Network, Result};

/// A port that an address is asked about: nothing is ever sent there (RFC 863).
const DISCARD_PORT: u16 = 9;
/// Addresses of documentation (RFC 5737, RFC 3849), which are no machine's.
const NOBODY_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NOBODY_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Which addresses a process connects to for others.
///
/// Refused unless they are allowed: addresses of private, shared and link-local networks, of this machine, of groups, and
/// those that are reserved; IPv6 addresses that stand for an IPv4 address as that one is; and whatever addresses this
/// machine has, unless loopback is allowed.
///
/// A public address that another machine translates to this one (NAT) cannot be told from any other.
#[derive(Clone, Debug, Default)]
pub struct AddressRules {
    allowed: Vec<Network>,
    allows_loopback: bool,
}

impl AddressRules {
    /// Public addresses of other machines, and no others.
    pub fn public() -> AddressRules {
        AddressRules::default()
    }

    /// Allows a network as well, this machine's own addresses in it too.
    pub fn allow(mut self, network: Network) -> AddressRules {
        self.allowed.push(network);
        self
    }

    /// Allows loopback addresses as well, and this machine's own ones that are public.
    pub fn allow_loopback(mut self) -> AddressRules {
        self.allows_loopback = true;
        self
    }

    /// An error of kind [`Denied`](ErrorKind::Denied), the caller's fault, for an address that is refused. It does not tell
    /// the address, which the caller may not know: it may be what a name means inside of a network.
    pub fn check(&self, address: SocketAddr) -> Result<()> {
        match self.permits(address.ip())? {
            true => Ok(()),
            false => Err(refusal()),
        }
    }

    /// Those of `addresses` that are allowed; an error like [`check`](AddressRules::check)'s when none is.
    pub(crate) fn keep(&self, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>> {
        let mut kept = Vec::with_capacity(addresses.len());
        for address in addresses {
            if self.permits(address.ip())? {
                kept.push(address);
            }
        }
        if kept.is_empty() { Err(refusal()) } else { Ok(kept) }
    }

    /// An error of kind `LocalIo` when it cannot be found out: what is not known is not connected to.
    fn permits(&self, address: IpAddr) -> Result<bool> {
        let address = address.to_canonical();
        let is_allowed = |address: IpAddr| self.allowed.iter().any(|network| network.contains(address));
        if is_allowed(address) {
            return Ok(true);
        }
        if address.is_loopback() {
            return Ok(self.allows_loopback);
        }
        let is_others = |address: IpAddr| match self.allows_loopback {
            true => Ok(true),
            false => is_own(address).map(|is_own| !is_own),
        };
        let is_open = match address {
            IpAddr::V4(address) => is_public_ipv4(address),
            IpAddr::V6(address) => match stands_for(address) {
                Some(all) => {
                    for inner in all {
                        let is_open = is_public_ipv4(inner) && is_others(IpAddr::V4(inner))?;
                        if !is_open && !is_allowed(IpAddr::V4(inner)) {
                            return Ok(false);
                        }
                    }
                    true
                }
                None => is_public_ipv6(address),
            },
        };
        Ok(is_open && is_others(address)?)
    }
}

fn refusal() -> Error {
    Error::new(ErrorKind::Denied, "the operator of this server does not let it connect to that address")
        .fault(Fault::Caller)
        .hint(Hint::AllowAddress)
}

/// True if an address may be another organisation's machine: neither "this network" (RFC 791), private (RFC 1918), shared
/// (RFC 6598), loopback, link-local (RFC 3927), for protocols (RFC 6890), for benchmarks (RFC 2544), of a group
/// (RFC 5771), reserved nor broadcast (RFC 1112, RFC 919).
fn is_public_ipv4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0, _]
            | [192, 168, ..]
            | [198, 18..=19, ..]
            | [224..=255, ..]
    )
}

/// The same of IPv6, for addresses that stand for no IPv4 address: neither unspecified, loopback or one of the old
/// IPv4-compatible ones (RFC 4291), for a network's own translation (RFC 8215), discarded (RFC 6666), unique local (RFC 4193),
/// link-local, site-local (RFC 3879) nor of a group.
fn is_public_ipv6(address: Ipv6Addr) -> bool {
    !matches!(
        address.segments(),
        [0, 0, 0, 0, 0, 0, ..]
            | [0x64, 0xff9b, 1, ..]
            | [0x100, 0, 0, 0, ..]
            | [0xfc00..=0xfdff, ..]
            | [0xfe80..=0xfeff, ..]
            | [0xff00..=0xffff, ..]
    )
}

/// The IPv4 addresses that packets to an IPv6 address end at or go by; `None` for one that stands for none. Mapped ones
/// (`::ffff:a.b.c.d`) are IPv4 addresses already.
fn stands_for(address: Ipv6Addr) -> Option<Vec<Ipv4Addr>> {
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // Translated: NAT64 (RFC 6052, 2.1), and hosts without IPv4 (RFC 7915, `::ffff:0:a.b.c.d`).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            Some(vec![of(high, low)])
        }
        // 6to4 (RFC 3056, 2): the router of the network.
        [0x2002, high, low, ..] => Some(vec![of(high, low)]),
        // Teredo (RFC 4380, 4): the server, and the other end with all bits turned.
        [0x2001, 0, high, low, _, _, mask_high, mask_low] => {
            Some(vec![of(high, low), of(!mask_high, !mask_low)])
        }
        _ => None,
    }
}

/// True if an address is one of this machine's. Nothing is sent to find out; an address that no packet can be sent to is
/// not.
///
/// It is when the kernel would send from it to itself, or when a socket can be bound to it. The second says nothing on a
/// machine where sockets can be bound to any address (`ip_nonlocal_bind`). It cannot be found out while there is no descriptor.
fn is_own(address: IpAddr) -> Result<bool> {
    let (any, nobody): (IpAddr, IpAddr) = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), NOBODY_IPV4.into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), NOBODY_IPV6.into()),
    };
    let sends_to_itself = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, DISCARD_PORT))?;
        Ok(socket.local_addr()?.ip() == address)
    };
    let can_be_bound = |address: IpAddr| UdpSocket::bind((address, 0)).map(|_| true);
    Ok(found(sends_to_itself())? || found(can_be_bound(address))? && !found(can_be_bound(nobody))?)
}

/// What the kernel says of an address: a refusal is a no, unless it has no room for the question.
fn found(said: io::Result<bool>) -> Result<bool> {
    use rustix::io::Errno;
    let is_short = |cause: &io::Error| {
        let errno = Errno::from_io_error(cause);
        matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
    };
    match said {
        Err(cause) if is_short(&cause) => {
            Err(Error::local_io("cannot find out whose address that is", &cause).retryable(true))
        }
        said => Ok(said.unwrap_or(false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(rules: &AddressRules, address: &str) -> bool {
        let checked = rules.check(SocketAddr::new(address.parse().unwrap(), 443));
        checked.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Denied)).is_ok()
    }

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    /// Networks of which the first and the last address are refused, with the neighbours that are not.
    const EDGES: [(&str, &str, &str, &str); 16] = [
        ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
        ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
        ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
        ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
        ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
        ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
        ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
        ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
        ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
        ("223.255.255.255", "224.0.0.0", "255.255.255.255", ""),
        ("", "::", "::ffff:ffff", ""),
        ("64:ff9b:0:ffff::1", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "64:ff9b:2::"),
        ("ff:ffff::", "100::", "100::ffff:ffff:ffff:ffff", "100:0:0:1::"),
        ("fbff:ffff::", "fc00::", "fdff:ffff::", "fe00::"),
        ("fe7f:ffff::", "fe80::", "febf:ffff::", ""),
        ("", "fec0::", "ffff:ffff::", ""),
    ];

    #[test]
    fn what_is_public_begins_and_ends_where_the_registries_say() {
        let rules = AddressRules::public();
        for (before, first, last, after) in EDGES {
            for address in [first, last] {
                assert!(!permits(&rules, address), "{address}");
            }
            for address in [before, after].into_iter().filter(|address| !address.is_empty()) {
                assert!(permits(&rules, address), "{address}");
            }
        }
        for address in ["8.8.8.8", "192.0.2.7", "2001:db8::7", "2606:4700::1111", "2a01::1", "2001:1::"] {
            assert!(permits(&rules, address), "{address}");
        }
    }

    /// All IPv4 addresses of a grid: by the networks as people write them, in every dress that IPv6 has for them.
    #[test]
    fn an_ipv4_address_is_the_same_in_every_dress() {
        let refused = [
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ]
        .map(network);
        let rules = AddressRules::public();
        let edges = [0u8, 1, 15, 16, 18, 19, 20, 31, 32, 63, 64, 127, 128, 168, 169, 254, 255];
        for a in 0..=255u8 {
            for b in edges {
                for c in [0, 1] {
                    let plain = Ipv4Addr::new(a, b, c, 1);
                    let is_refused = refused.iter().any(|network| network.contains(plain.into()));
                    let bits = u128::from(plain.to_bits());
                    let dresses = [
                        IpAddr::V4(plain),
                        plain.to_ipv6_mapped().into(),
                        Ipv6Addr::from_bits(0x64_ff9b << 96 | bits).into(),
                        Ipv6Addr::from_bits(0xffff_0000_0000 | bits).into(),
                        Ipv6Addr::from_bits(0x2002 << 112 | bits << 80 | 1).into(),
                        // The server of Teredo, and its client with every bit turned.
                        Ipv6Addr::from_bits(0x2001_0000 << 96 | bits << 64 | 0xf7f7_f7f7).into(),
                        Ipv6Addr::from_bits(0x2001_0000_0808_0808 << 64 | (bits ^ 0xffff_ffff)).into(),
                    ];
                    for dress in dresses {
                        assert_eq!(rules.permits(dress).unwrap(), !is_refused, "{plain} as {dress}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_allowed_is_allowed_and_nothing_beside_it() {
        let rules = AddressRules::public().allow(network("10.1.0.0/16")).allow(network("fd00:1::/32"));
        for address in
            ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1", "fd00:1::7", "8.8.8.8"]
        {
            assert!(permits(&rules, address), "{address}");
        }
        for address in ["10.2.0.0", "::ffff:10.2.0.0", "64:ff9b::a02:1", "fd00:2::7", "127.0.0.1", "::1"] {
            assert!(!permits(&rules, address), "{address}");
        }
        let rules = AddressRules::public().allow_loopback();
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(permits(&rules, address), "{address}");
        }
        // What stands for a loopback address is another machine's.
        for address in ["10.0.0.1", "0.0.0.0", "::", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1"] {
            assert!(!permits(&rules, address), "{address}");
        }
        let rules = AddressRules::public().allow(network("127.0.0.1"));
        assert!(permits(&rules, "127.0.0.1") && !permits(&rules, "127.0.0.2") && !permits(&rules, "::1"));
    }

    #[test]
    fn of_several_addresses_those_that_are_allowed_are_left() {
        let rules = AddressRules::public();
        let all =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let kept = rules.keep(all(&["10.0.0.1:1", "192.0.2.1:1", "[::1]:1", "[2001:db8::1]:1"])).unwrap();
        assert_eq!(kept, all(&["192.0.2.1:1", "[2001:db8::1]:1"]));
        let error = rules.keep(all(&["10.77.0.1:1", "[::1]:1"])).unwrap_err();
        assert_eq!((error.kind(), error.whose_fault()), (ErrorKind::Denied, Fault::Caller));
        assert!(!error.is_retryable() && !error.is_unreached());
        assert!(!error.to_string().contains("10.77"), "{error}");
        assert_eq!(error.advice(), Some(&Hint::AllowAddress));
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        for own in ["127.0.0.1", "127.3.2.1"] {
            assert!(is_own(own.parse().unwrap()).unwrap(), "{own}");
        }
        for other in ["192.0.2.1", "192.0.2.77", "8.8.8.8", "2001:db8::1", "2001:db8::77"] {
            assert!(!is_own(other.parse().unwrap()).unwrap(), "{other}");
        }
        // The address that it sends from, if it has another one.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect((NOBODY_IPV4, DISCARD_PORT)).is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_own(own).unwrap(), "{own}");
            assert!(!permits(&AddressRules::public(), &own.to_string()), "{own}");
            let allowed = AddressRules::public().allow(network(&own.to_string()));
            assert!(permits(&allowed, &own.to_string()), "{own}");
        }
    }

    #[test]
    fn what_cannot_be_found_out_is_no_answer() {
        use rustix::io::Errno;
        let said = |errno: Errno| found(Err(errno.into()));
        for refusal in [Errno::ADDRNOTAVAIL, Errno::NETUNREACH, Errno::AFNOSUPPORT, Errno::ACCESS] {
            assert!(!said(refusal).unwrap(), "{refusal}");
        }
        for lack in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(said(lack).unwrap_err().kind(), ErrorKind::LocalIo, "{lack}");
        }
    }
}
