//! An answer that sends the client elsewhere: port (4, with a sign), then text.
//!
//! ```text
//! port > 0: host[?cgi[?token]]        port < 0: a complete URL, and flags in the port
//! ```

use crate::Malformed;
use crate::path::pairs;
use crate::registry::ErrorCode;
use crate::wire::{Reader, until_nul};

/// Where to go.
#[derive(Clone, PartialEq, Eq)]
pub enum Redirect {
    /// To the same path on another server.
    Host {
        /// Host name or address, without brackets.
        host: String,
        /// Its port.
        port: u16,
        /// The text that the path's CGI gets.
        cgi: Vec<u8>,
        /// The text that the login there is told.
        token: Vec<u8>,
    },
    /// To somewhere else.
    Url {
        /// The complete URL.
        url: String,
        /// Bits that only some clients understand; 0 if there are none.
        flags: u32,
    },
}

/// CGI may hold tokens.
impl std::fmt::Debug for Redirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Redirect::Host { host, port, .. } => write!(f, "{host}:{port}"),
            Redirect::Url { url, .. } => f.write_str(url.split('?').next().unwrap_or_default()),
        }
    }
}

impl Redirect {
    /// Appends the answer without its head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Redirect::Host { host, port, cgi, token } => {
                out.extend_from_slice(&u32::from(*port).to_be_bytes());
                match host.contains(':') {
                    true => out.extend_from_slice(format!("[{host}]").as_bytes()),
                    false => out.extend_from_slice(host.as_bytes()),
                }
                // A token is only understood behind a CGI.
                for part in [cgi, token].into_iter().take_while(|part| !part.is_empty()) {
                    out.push(b'?');
                    out.extend_from_slice(part);
                }
            }
            Redirect::Url { url, flags } => {
                let port = match i32::try_from(*flags) {
                    Ok(flags) if flags > 0 => -flags,
                    _ => -1,
                };
                out.extend_from_slice(&port.to_be_bytes());
                out.extend_from_slice(url.as_bytes());
            }
        }
    }

    /// Reads what is behind the head.
    pub fn parse(bytes: &[u8]) -> Result<Redirect, Malformed> {
        let wrong = Malformed::new(ErrorCode::ARG_INVALID, "a redirect leads nowhere");
        let mut reader = Reader::new(bytes);
        let port = reader.i32()?;
        let text = until_nul(reader.rest());
        let utf8 = |text: &[u8]| String::from_utf8(text.to_vec()).map_err(|_| wrong.clone());
        if port < 0 {
            // The least number has no positive one, and stands for no bit.
            let flags = match port.checked_neg() {
                None | Some(1) => 0,
                Some(flags) => flags.unsigned_abs(),
            };
            let url = utf8(text)?;
            return if url.is_empty() { Err(wrong) } else { Ok(Redirect::Url { url, flags }) };
        }
        let port = u16::try_from(port).ok().filter(|port| *port > 0).ok_or(wrong.clone())?;
        let mut parts = text.splitn(3, |byte| *byte == b'?');
        let host = utf8(parts.next().unwrap_or_default())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        // Nothing that would be something else in a URL.
        let is_odd = |c: char| !c.is_ascii_graphic() || "/\\@#%[]".contains(c);
        if host.is_empty() || host.contains(is_odd) {
            return Err(wrong);
        }
        let cgi = parts.next().unwrap_or_default().to_vec();
        let token = parts.next().unwrap_or_default().to_vec();
        Ok(Redirect::Host { host, port, cgi, token })
    }
}

/// The CGI of a path after a redirect: keys of `new` replace those of `old`; what has a new value stays where it was.
pub fn merge_cgi(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut merged: Vec<(&[u8], &[u8])> = pairs(old).collect();
    for (key, value) in pairs(new) {
        match merged.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => merged.push((key, value)),
        }
    }
    let joined: Vec<Vec<u8>> = merged
        .into_iter()
        .map(|(key, value)| if value.is_empty() { key.to_vec() } else { [key, b"=", value].concat() })
        .collect();
    joined.join(&b'&')
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn what_managers_send() {
        let bytes = [&0x446u32.to_be_bytes()[..], b"127.0.0.1?foo=bar&x=1"].concat();
        let host = |token: &[u8]| Redirect::Host {
            host: "127.0.0.1".into(),
            port: 1094,
            cgi: b"foo=bar&x=1".to_vec(),
            token: token.to_vec(),
        };
        assert_eq!(Redirect::parse(&bytes), Ok(host(b"")));
        let url = Redirect::Url { url: "root://127.0.0.1:1094//dir/a?u=1".into(), flags: 0 };
        for redirect in
            [url, host(b""), host(b"tok"), Redirect::Url { url: "http://h/".into(), flags: 0x1000 }]
        {
            let mut out = Vec::new();
            redirect.encode(&mut out);
            assert_eq!(Redirect::parse(&out), Ok(redirect));
        }
        for wrong in [
            &b"\0\0\0\0host"[..],
            b"\0\0\x04\x46",
            b"\0\x01\0\0host",
            b"\xff\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\0",
            b"\0",
        ] {
            assert!(Redirect::parse(wrong).is_err());
        }
    }

    #[test]
    fn the_odd_ones() {
        for host in ["a@b", "a/b", "a b", "a\u{e9}", "a\n"] {
            assert!(Redirect::parse(&[&1094u32.to_be_bytes()[..], host.as_bytes()].concat()).is_err());
        }
        let least = Redirect::parse(b"\x80\0\0\0root://h//").unwrap();
        assert_eq!(least, Redirect::Url { url: "root://h//".into(), flags: 0 });
        let mut out = Vec::new();
        Redirect::Url { url: "root://h//".into(), flags: u32::MAX }.encode(&mut out);
        assert_eq!(Redirect::parse(&out), Ok(least));
        // A client puts the port behind it.
        let six = Redirect::Host { host: "2001:db8::1".into(), port: 1, cgi: Vec::new(), token: Vec::new() };
        let mut out = Vec::new();
        six.encode(&mut out);
        assert_eq!(out, b"\0\0\0\x01[2001:db8::1]");
        assert_eq!(Redirect::parse(&out), Ok(six));
    }

    #[test]
    fn new_keys_win() {
        assert_eq!(merge_cgi(b"u=1&tried=a&x", b"tried=a,b&z=2"), b"u=1&tried=a,b&x&z=2");
        assert_eq!(merge_cgi(b"", b"a=1"), b"a=1");
        assert_eq!(merge_cgi(b"&a=1", b""), b"a=1");
    }
}
