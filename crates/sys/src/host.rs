//! The name that the name service has for an address.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::IpAddr;

/// The name of the host that has `address`; an error where there is none. May take as long as the name service does.
///
/// Whoever has the address chooses the name: it proves nothing by itself.
pub fn name_of(address: IpAddr) -> io::Result<String> {
    let mut name = [0_u8; libc::NI_MAXHOST as usize];
    let ask = |at: *const libc::sockaddr, len: usize, name: &mut [u8]| {
        // SAFETY: `at` is readable for `len` bytes and of the kind that its family says; `name` is writable for its length,
        // which includes the NUL.
        unsafe {
            libc::getnameinfo(
                at,
                len as libc::socklen_t,
                name.as_mut_ptr().cast(),
                name.len() as libc::socklen_t,
                std::ptr::null_mut(),
                0,
                libc::NI_NAMEREQD,
            )
        }
    };
    let answer = match address {
        IpAddr::V4(address) => {
            // SAFETY: all-zero bytes are a valid `sockaddr_in`.
            let mut at: libc::sockaddr_in = unsafe { mem::zeroed() };
            at.sin_family = libc::AF_INET as libc::sa_family_t;
            at.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
            ask((&raw const at).cast(), mem::size_of_val(&at), &mut name)
        }
        IpAddr::V6(address) => {
            // SAFETY: all-zero bytes are a valid `sockaddr_in6`.
            let mut at: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            at.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            at.sin6_addr.s6_addr = address.octets();
            ask((&raw const at).cast(), mem::size_of_val(&at), &mut name)
        }
    };
    if answer != 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{address} has no name ({answer})")));
    }
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    name.to_str().map(str::to_owned).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_documentation_has_no_name() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            assert!(name_of(address.parse().unwrap()).is_err(), "{address}");
        }
    }

    #[test]
    fn loopback_has_a_name_where_the_machine_says_so() {
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let line = hosts.lines().find(|line| line.split_whitespace().next() == Some("127.0.0.1"));
        if let Some(first) = line.and_then(|line| line.split_whitespace().nth(1)) {
            assert_eq!(name_of([127, 0, 0, 1].into()).unwrap(), first);
        }
    }
}
