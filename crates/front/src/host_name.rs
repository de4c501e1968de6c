//! Names by which clients call this machine.

use std::net::{Ipv4Addr, Ipv6Addr};

/// True if a `Host` is an address, `localhost`, or one of `names`, with any port. Any address is as good as ours: a
/// page that was fetched from an address belongs to the server there.
pub(crate) fn is_our_name(host: &str, names: &[String]) -> bool {
    let has_port = |rest: &str| {
        rest.is_empty()
            || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(bracketed) = host.strip_prefix('[') {
        return bracketed
            .split_once(']')
            .is_some_and(|(address, rest)| address.parse::<Ipv6Addr>().is_ok() && has_port(rest));
    }
    let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
    let name = name.strip_suffix('.').unwrap_or(name);
    has_port(rest)
        && (name.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || names.iter().any(|own| name.eq_ignore_ascii_case(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_ours() {
        let names = ["Host.example".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:1094",
            "localhost.",
            "127.0.0.1",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:1094",
            "host.example:1094",
        ] {
            assert!(is_our_name(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:1094",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "localhost:evil.example",
            "[::1].evil.example",
            "[evil.example]",
            "::1",
        ] {
            assert!(!is_our_name(host, &names), "{host}");
        }
    }
}
