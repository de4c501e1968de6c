//! The PROXY protocol, versions 1 and 2: what a proxy that passes connections on says in front of each about
//! where it comes from (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! Pure: bytes in, an answer out. Trust is the caller's business: any peer can say anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a header of version 1, line end included (section 2.1).
const LINE_BYTES_MAX: usize = 107;

/// The first bytes of a header of version 1.
const LINE_START: &[u8] = b"PROXY ";

/// The first bytes of a header of version 2 (section 2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of a header of version 2 in front of its addresses.
const FIXED_BYTES: usize = 16;

/// Bytes of a header, additions (TLVs) included: those that proxies really add have a few hundred.
pub const HEADER_BYTES_MAX: usize = 4096;

/// Where a connection comes from, by a proxy's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From this client.
    Client(SocketAddr),
    /// From a client that the proxy does not name.
    Unknown,
    /// From the proxy itself: it looks whether we live.
    Proxy,
}

/// The meaning of bytes at the beginning of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A header of this many bytes.
    Complete(Origin, usize),
    /// The beginning of a header, without doubt.
    Begun,
    /// Too few bytes to tell.
    Unclear,
    /// No header: they belong to what the connection is for.
    Absent,
}

/// Reads a header from the beginning of `bytes`. Fails when it is one and is malformed.
pub fn parse(bytes: &[u8]) -> Result<Header, &'static str> {
    if let Some(behind) = bytes.strip_prefix(SIGNATURE) {
        return binary(bytes, behind);
    }
    if let Some(behind) = bytes.strip_prefix(LINE_START) {
        return line(bytes, behind);
    }
    let may_become_one = SIGNATURE.starts_with(bytes) || LINE_START.starts_with(bytes);
    Ok(if may_become_one { Header::Unclear } else { Header::Absent })
}

fn line(bytes: &[u8], behind: &[u8]) -> Result<Header, &'static str> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return match bytes.len() {
            ..LINE_BYTES_MAX => Ok(Header::Begun),
            _ => Err("the line has no end"),
        };
    };
    let used = end + 2;
    if used > LINE_BYTES_MAX {
        return Err("the line is too long");
    }
    let text = std::str::from_utf8(&behind[..end - LINE_START.len()]).map_err(|_| "the line is no text")?;
    let mut words = text.split(' ');
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        // What follows, if anything, is to be ignored.
        return Ok(Header::Complete(Origin::Unknown, used));
    }
    let words: Vec<&str> = words.collect();
    let [source, target, source_port, target_port] = words[..] else {
        return Err("the line has not four fields behind its family");
    };
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let port = |text: &str| -> Option<u16> {
        let is_plain =
            text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        text.parse().ok().filter(|_| is_plain)
    };
    match (address(source), address(target), port(source_port), port(target_port)) {
        (Some(source), Some(_), Some(port), Some(_)) => {
            Ok(Header::Complete(Origin::Client(SocketAddr::new(source, port)), used))
        }
        _ => Err("the line's addresses or ports are malformed"),
    }
}

fn binary(bytes: &[u8], behind: &[u8]) -> Result<Header, &'static str> {
    let &[version_and_command, family, high, low, ref rest @ ..] = behind else {
        return Ok(Header::Begun);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let used = FIXED_BYTES + len;
    if version_and_command >> 4 != 2 {
        return Err("the version is neither 1 nor 2");
    }
    if used > HEADER_BYTES_MAX {
        return Err("the header is too long");
    }
    if bytes.len() < used {
        return Ok(Header::Begun);
    }
    let addresses = &rest[..len];
    let origin = match (version_and_command & 0xf, family) {
        (0, _) => Origin::Proxy,
        (1, 0x11) => match *addresses {
            [a, b, c, d, _, _, _, _, high, low, _, _, ..] => Origin::Client(SocketAddr::new(
                IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
                u16::from_be_bytes([high, low]),
            )),
            _ => return Err("the header is too short for its addresses"),
        },
        (1, 0x21) => {
            let source: [u8; 16] = addresses
                .get(..16)
                .and_then(|source| source.try_into().ok())
                .ok_or("the header is too short for its addresses")?;
            let Some(&[high, low, _, _]) = addresses.get(32..36) else {
                return Err("the header is too short for its addresses");
            };
            Origin::Client(SocketAddr::new(
                IpAddr::V6(Ipv6Addr::from(source)).to_canonical(),
                u16::from_be_bytes([high, low]),
            ))
        }
        // Datagrams, sockets of one machine, and what is not specified.
        (1, _) => Origin::Unknown,
        _ => return Err("the command is unknown"),
    };
    Ok(Header::Complete(origin, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary_header(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([0x20 | command, family]);
        header.extend((addresses.len() as u16).to_be_bytes());
        header.extend(addresses);
        header
    }

    fn client(text: &str) -> Origin {
        Origin::Client(text.parse().unwrap())
    }

    #[test]
    fn headers_of_both_versions() {
        let mut six = vec![0; 36];
        six[..16].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        six[32..34].copy_from_slice(&443u16.to_be_bytes());
        let mut with_more = [192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 1, 187].to_vec();
        let four = with_more.clone();
        with_more.extend([4; 50]);
        for (header, expected) in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n".to_vec(), client("192.0.2.7:12345")),
            (b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n".to_vec(), client("[2001:db8::1]:1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Origin::Unknown),
            (b"PROXY UNKNOWN what ever\r\n".to_vec(), Origin::Unknown),
            (binary_header(1, 0x11, &four), client("192.0.2.7:12345")),
            (binary_header(1, 0x11, &with_more), client("192.0.2.7:12345")),
            (binary_header(1, 0x21, &six), client("[2001:db8::1]:443")),
            (binary_header(1, 0x00, &[]), Origin::Unknown),
            (binary_header(1, 0x31, &[0; 216]), Origin::Unknown),
            (binary_header(0, 0x00, &[]), Origin::Proxy),
            (binary_header(0, 0x11, &four), Origin::Proxy),
        ] {
            let mut bytes = header.clone();
            bytes.extend(b"GET / HTTP/1.1\r\n");
            assert_eq!(parse(&bytes), Ok(Header::Complete(expected, header.len())));
            for cut in 0..header.len() {
                let part = parse(&header[..cut]).unwrap();
                assert!(matches!(part, Header::Begun | Header::Unclear), "{cut} of {header:?}");
                assert_eq!(part == Header::Unclear, cut < if header[0] == b'P' { 6 } else { 12 });
            }
        }
    }

    #[test]
    fn what_is_no_header() {
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"PROPFIND ", b"PROXY/1.0", b"\x16\x03\x01", b"\r\n\r\nGET "]
        {
            assert_eq!(parse(bytes), Ok(Header::Absent), "{bytes:?}");
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        let endless = format!("PROXY TCP4 {}", "1".repeat(100));
        for text in [
            "PROXY TCP4 192.0.2.7 10.0.0.1 12345\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 12345 443 \r\n",
            "PROXY  TCP4 192.0.2.7 10.0.0.1 12345 443\r\n",
            "PROXY TCP4 192.0.2.256 10.0.0.1 12345 443\r\n",
            "PROXY TCP4 ::1 10.0.0.1 12345 443\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 65536 443\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 +1 443\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 01 443\r\n",
            "PROXY TCP5 192.0.2.7 10.0.0.1 1 443\r\n",
            "PROXY tcp4 192.0.2.7 10.0.0.1 1 443\r\n",
            "PROXY \r\n",
            &long,
            &endless,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let mut other_version = binary_header(1, 0x11, &[0; 12]);
        other_version[12] = 0x11;
        for header in [
            binary_header(1, 0x11, &[0; 11]),
            binary_header(1, 0x21, &[0; 35]),
            binary_header(2, 0x11, &[0; 12]),
            other_version,
            binary_header(1, 0x11, &[0; HEADER_BYTES_MAX]),
        ] {
            assert!(parse(&header).is_err(), "{header:?}");
        }
    }
}
