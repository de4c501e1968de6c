//! Where to listen: an address or a name, and a port.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_net::has_ipv6;

/// A name stands for all of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAt {
    Address(SocketAddr),
    Name { host: String, port: u16 },
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<ListenAt, String> {
        if let Ok(address) = text.parse() {
            return Ok(ListenAt::Address(address));
        }
        let is_name = |host: &str| {
            host.bytes().any(|byte| byte.is_ascii_alphabetic())
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        let named = text.rsplit_once(':').filter(|(host, _)| is_name(host));
        match named.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
            Some((host, port)) => Ok(ListenAt::Name { host: host.to_ascii_lowercase(), port }),
            None => {
                Err("write an address or a name, and a port: 127.0.0.1:1094, [::1]:1094, localhost:1094"
                    .into())
            }
        }
    }
}

impl ListenAt {
    /// The name, if it is one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            ListenAt::Address(_) => None,
            ListenAt::Name { host, .. } => Some(host),
        }
    }

    /// All the addresses that it stands for. Fails for a name that has none.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let (host, port) = match self {
            ListenAt::Address(address) => return Ok(vec![*address]),
            ListenAt::Name { host, port } => (host, *port),
        };
        if host == "localhost" {
            // What RFC 6761, 6.3 says, whatever this machine's list of names has.
            let ipv6 = has_ipv6().then_some((Ipv6Addr::LOCALHOST, port).into());
            return Ok([(Ipv4Addr::LOCALHOST, port).into()].into_iter().chain(ipv6).collect());
        }
        let failed = |why: &str| {
            Error::new(ErrorKind::Network, format!("cannot listen at {host}:{port}: {why}"))
                .fault(Fault::Local)
                .hint("name an address of this machine, or put the name into /etc/hosts")
        };
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in (host.as_str(), port).to_socket_addrs().map_err(|cause| failed(&cause.to_string()))? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        match found.is_empty() {
            true => Err(failed("the name has no address")),
            false => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_taken_with_a_port_only() {
        for text in ["127.0.0.1:1094", "[::1]:0", "0.0.0.0:80"] {
            assert_eq!(text.parse(), Ok(ListenAt::Address(text.parse().unwrap())));
        }
        let name = ListenAt::Name { host: "node7.example".to_owned(), port: 1094 };
        assert_eq!("Node7.example:1094".parse(), Ok(name));
        for text in
            ["", "localhost", "1094", ":1094", "localhost:", "localhost:65536", "::1:1094", "1.2.3:1094"]
                .into_iter()
                .chain(["a b:1094", "127.0.0.1:x", "http://localhost:1094"])
        {
            let said = text.parse::<ListenAt>().unwrap_err();
            assert!(said.contains("localhost:1094"), "{text}: {said}");
        }
    }

    #[test]
    fn localhost_is_this_machine_by_ipv4_and_ipv6() {
        let at: ListenAt = "localhost:1094".parse().unwrap();
        let mut expected: Vec<SocketAddr> = vec!["127.0.0.1:1094".parse().unwrap()];
        expected.extend(has_ipv6().then_some::<SocketAddr>("[::1]:1094".parse().unwrap()));
        assert_eq!(at.addresses().unwrap(), expected);
        let nowhere: ListenAt = "gridlane.invalid:1094".parse().unwrap();
        let error = nowhere.addresses().unwrap_err().to_string();
        assert!(error.contains("gridlane.invalid:1094"), "{error}");
    }
}
