//! The client's name for this server, and other names of it.

use std::net::SocketAddr;

use gridlane_core::Url;
use gridlane_dav::request::RequestHead;
use gridlane_dav::webdav::Destination;

use crate::storage_service::StorageService;

/// The scheme and host by which a client reaches the server.
pub(crate) struct Origin<'a> {
    is_tls: bool,
    /// The host in the client's own form.
    host: Option<&'a str>,
}

impl<'a> Origin<'a> {
    pub(crate) fn new(head: &'a RequestHead, is_tls: bool) -> Origin<'a> {
        Origin { is_tls, host: head.host() }
    }

    /// Scheme and host: what stands in front of a path to make a URL of it. A client without a `Host` gets
    /// paths.
    pub(crate) fn url(&self) -> Option<String> {
        let scheme = if self.is_tls { "https" } else { "http" };
        self.host.map(|host| format!("{scheme}://{host}"))
    }

    /// True if a URL in a request is one of this server.
    ///
    /// The scheme does not count: both are spoken on one port, and where a proxy speaks TLS for the server, its clients
    /// write `https` into the URLs of requests that come in clear text. Another port is another server.
    pub(crate) fn is_ours(&self, service: &StorageService, url: &Destination) -> bool {
        is_ours(self.host, &service.front.host_names, url)
    }
}

/// True if a host and a port of a `root://` URL are those of this server, which was reached at `local`.
pub(crate) fn is_at(local: SocketAddr, service: &StorageService, url: &Url) -> bool {
    is_reached_at(local, &service.front.host_names, url)
}

fn is_reached_at(local: SocketAddr, names: &[String], url: &Url) -> bool {
    let is_address = || url.host().parse() == Ok(local.ip().to_canonical());
    url.port() == local.port()
        && (is_address() || names.iter().any(|own| own.eq_ignore_ascii_case(url.host())))
}

fn is_ours(host: Option<&str>, names: &[String], url: &Destination) -> bool {
    let Some(authority) = url.authority() else { return true };
    let Some(host) = host else { return false };
    if url.is_at(authority.secure, host) {
        return true;
    }
    let (name, port) = split_port(&authority.host);
    port == split_port(host).1 && names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_a_server_that_was_reached_at_an_address() {
        let names = ["alias.example".to_owned()];
        for (url, local, expected) in [
            ("root://192.0.2.1:1094//a", "192.0.2.1:1094", true),
            ("root://192.0.2.1//a", "[::ffff:192.0.2.1]:1094", true),
            ("roots://[2001:db8::1]:1094//a", "[2001:db8::1]:1094", true),
            ("root://Alias.example:1094//a", "192.0.2.1:1094", true),
            ("root://192.0.2.1:1095//a", "192.0.2.1:1094", false),
            ("root://192.0.2.2:1094//a", "192.0.2.1:1094", false),
            ("root://other.example:1094//a", "192.0.2.1:1094", false),
        ] {
            let url = Url::parse_absolute(url).unwrap();
            assert_eq!(is_reached_at(local.parse().unwrap(), &names, &url), expected, "{url} at {local}");
        }
    }

    #[test]
    fn urls_of_this_server() {
        let names = ["alias.example".to_owned()];
        for (url, host, expected) in [
            ("/a", None, true),
            ("http://h/a", None, false),
            ("http://h:1094/a", Some("h:1094"), true),
            ("https://H:1094/a", Some("h:1094"), true),
            ("http://h:1095/a", Some("h:1094"), false),
            ("http://h/a", Some("h:1094"), false),
            ("https://h/a", Some("h"), true),
            ("https://h:443/a", Some("h"), true),
            ("http://h:443/a", Some("h"), false),
            ("http://alias.example:1094/a", Some("h:1094"), true),
            ("http://Alias.Example:1094/a", Some("127.0.0.1:1094"), true),
            ("http://alias.example/a", Some("h:1094"), false),
            ("http://alias.example/a", Some("h"), true),
            ("http://other:1094/a", Some("h:1094"), false),
            ("http://[::1]:1094/a", Some("[::1]:1094"), true),
            ("http://[::1]/a", Some("[::1]:1094"), false),
        ] {
            let url = Destination::read(url).unwrap();
            assert_eq!(is_ours(host, &names, &url), expected, "{url:?} at {host:?}");
        }
    }
}
