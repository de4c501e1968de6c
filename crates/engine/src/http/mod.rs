//! HTTP/1.1 as a client speaks it: connections that take several requests ahead, and what a status means.
//!
//! Our own, over `gridlane-net`'s streams, because the engine needs three things that a general client
//! hides: more than one request in flight on a connection (so that no round trip is lost between
//! ranges), body bytes read straight into the engine's aligned buffers, and the socket itself (for
//! TCP_INFO). Heads and chunks are parsed by `gridlane-dav`.

mod connection;
mod exchange;
mod status;

pub use connection::{Connection, Response};
pub(crate) use exchange::redirect_loop;
pub use exchange::{Client, Exchange, follow};
pub use status::status_error;

use base64::Engine as _;
use gridlane_core::Url;
use percent_encoding::percent_decode_str;

/// A request without its body.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// `GET`, `HEAD`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// What it is about.
    pub url: &'a Url,
    /// Further header lines: name and value.
    pub headers: Vec<(&'static str, String)>,
}

impl<'a> Request<'a> {
    /// A request with the headers that every request has.
    pub fn new(method: &'static str, url: &'a Url) -> Request<'a> {
        Request { method, url, headers: Vec::new() }
    }

    /// Adds a header line.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Request<'a> {
        self.headers.push((name, value.into()));
        self
    }

    /// The bytes of the head.
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: gridlane/{}\r\nAccept-Encoding: identity\r\n",
            self.method,
            self.url.request_target(),
            self.url.host_header(),
            env!("CARGO_PKG_VERSION"),
        );
        if let Some((user, password)) = self.url.credentials() {
            let mut pair = percent_decode_str(user).collect::<Vec<u8>>();
            pair.push(b':');
            pair.extend(percent_decode_str(password));
            let pair = base64::engine::general_purpose::STANDARD.encode(pair);
            head.push_str(&format!("Authorization: Basic {pair}\r\n"));
        }
        for (name, value) in &self.headers {
            debug_assert!(!value.contains(['\r', '\n']), "a header value of ours has no line break");
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_servers_expect() {
        let url = Url::parse_absolute("http://ada:l%40ve@[::1]:8080/a%20b?x=1").unwrap();
        let head = String::from_utf8(Request::new("GET", &url).header("Range", "bytes=0-9").head()).unwrap();
        assert!(head.starts_with("GET /a%20b?x=1 HTTP/1.1\r\nHost: [::1]:8080\r\n"), "{head}");
        assert!(head.contains("Authorization: Basic YWRhOmxAdmU=\r\n"), "{head}");
        assert!(head.ends_with("Range: bytes=0-9\r\n\r\n"), "{head}");
    }
}
