//! Names of addresses.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv6Addr};

/// The name that this machine's name service has for an address; `None` without one. An IPv4 address is asked for as the IPv6
/// one that stands for it (`::ffff:192.0.2.1`), as by programs that know one family only. May wait for servers of names as
/// long as the system does.
pub fn name_of(address: Ipv6Addr) -> Option<String> {
    let mut name = [0 as libc::c_char; libc::NI_MAXHOST as usize];
    let address = libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: address.octets() },
        sin6_scope_id: 0,
    };
    // SAFETY: the address is of the length that is given, and the name has the room.
    let failure = unsafe {
        libc::getnameinfo(
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
            name.as_mut_ptr(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    // SAFETY: the array was all zeros, and longer than any text that was written.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let is_name = |name: &&str| !name.is_empty() && name.parse::<IpAddr>().is_err();
    if failure == 0 { name.to_str().ok().filter(is_name).map(str::to_owned) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_none() {
        // For documentation (RFC 5737, RFC 3849): in no name service.
        for address in ["::ffff:192.0.2.7", "2001:db8::7"] {
            assert_eq!(name_of(address.parse().unwrap()), None);
        }
    }

    #[test]
    fn a_name_is_no_address() {
        let name = name_of(Ipv6Addr::LOCALHOST);
        assert!(name.is_none_or(|name| name.parse::<IpAddr>().is_err() && !name.is_empty()));
    }
}
