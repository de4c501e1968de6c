//! Requests one after the other, put together from what has been used to smuggle some: more of these are
//! understood by one side than of inputs that were changed anywhere.

use crate::random::Random;

const METHODS: [&str; 8] = ["GET", "PUT", "POST", "HEAD", "OPTIONS", "CONNECT", "PROPFIND", "get"];

const TARGETS: [&str; 20] = [
    "/",
    "/a",
    "/a%20b?x=1",
    "/?",
    "//a",
    "*",
    "h:1",
    "http://h/a",
    "http://h",
    "http://h?x=/1",
    "HTTP://H:80/a?http://k/",
    "http://u@h/",
    "http:///a",
    "/a#b",
    "/a?b#c",
    "/../a",
    "/\u{e9}",
    "/a\tb",
    "a",
    "",
];

const VERSIONS: [&str; 8] =
    ["HTTP/1.0", "HTTP/1.0", "HTTP/1.1 ", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1x", ""];

const LINE_ENDS: [&str; 8] = ["\n", "\r", "\r\r\n", " \r\n", "\t\r\n", "\r\n ", "\r\n\t", "\0\r\n"];

/// `@` stands for the body's length.
const LENGTHS: [&str; 20] = [
    "Content-Length: @\r\nContent-Length: @",
    "Content-Length: @, @",
    "Content-Length: @,",
    "Content-Length: ,@",
    "Content-Length: @\r\nContent-Length: 0",
    "Content-Length: 0\r\nContent-Length: @",
    "Content-Length: +@",
    "Content-Length: -@",
    "Content-Length: 0@",
    "Content-Length: 0x@",
    "Content-Length: @ 1",
    "Content-Length: @;x",
    "Content-Length: \u{a0}@",
    "Content-Length:\x0b@",
    "Content-Length : @",
    " Content-Length: @",
    "Content-Length:\r\n @",
    "content-length:\t@ \t",
    "Content_Length: @",
    "Content-Length: 18446744073709551616",
];

const CODINGS: [&str; 22] = [
    "transfer-encoding:CHUNKED",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding: chunked,",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: chunked\x0c",
    "Transfer-Encoding: \u{85}chunked",
    "Transfer-Encoding : chunked",
    " Transfer-Encoding: chunked",
    "Transfer-Encoding:\r\n chunked",
    "Transfer_Encoding: chunked",
    "Transfer-Encoding:",
    "TE: chunked",
];

const FIELDS: [&str; 14] = [
    "Connection: close",
    "Connection: keep-alive",
    "Connection: keep-alive, close",
    "Connection: close\r\nConnection: keep-alive",
    "Connection: Content-Length, Transfer-Encoding",
    "Connection: upgrade\r\nUpgrade: websocket",
    "Expect: 100-continue",
    "Expect: x",
    "Host: k",
    "X: \r\nY:",
    "X: a\u{80}b",
    ": x",
    "X",
    "X-\u{e9}: y",
];

const EXTENSIONS: [&str; 12] =
    [";a", ";a=b", " ;a", ";a=\"b;\\\"\"", "\t", " ", ";\x01", ";a\n", ";a\rb", ",", "\x0b", ";\u{80}"];

/// Bytes that a client might send on one connection.
pub fn stream(random: &mut Random) -> Vec<u8> {
    let mut stream = Vec::new();
    // With an oddity in each place, neither side would understand anything.
    let odds = *random.pick(&[3, 8, 20]);
    for _ in 0..1 + random.below(4) {
        request(random, odds, &mut stream);
    }
    if random.once_in(8) {
        stream.truncate(random.below(stream.len() + 1));
    }
    stream
}

fn request(random: &mut Random, odds: usize, stream: &mut Vec<u8>) {
    if random.once_in(odds) {
        let lines = *random.pick(&["\r\n", "\r\n\r\n", "\r\n\r\n\r\n", "\n", " ", "\r", "\0"]);
        stream.extend_from_slice(lines.as_bytes());
    }
    let target = if random.once_in(odds) { *random.pick(&TARGETS) } else { "/a" };
    let version = if random.once_in(odds) { *random.pick(&VERSIONS) } else { "HTTP/1.1" };
    let blank = if random.once_in(4 * odds) { *random.pick(&["  ", "\t", ""]) } else { " " };
    let mut lines = vec![format!("{}{blank}{target} {version}", random.pick(&METHODS))];
    if !random.once_in(4 * odds) {
        lines.push("Host: h".to_owned());
    }
    let data: String = (0..random.below(12)).map(|_| *random.pick(&['a', '0', '\r', '\n', 'G'])).collect();
    let mut body = Vec::new();
    let framing = random.below(4);
    if framing == 1 || random.once_in(3 * odds) {
        let length = if random.once_in(odds) { *random.pick(&LENGTHS) } else { "Content-Length: @" };
        let count = if random.once_in(2 * odds) { random.below(20) } else { data.len() };
        lines.push(length.replace('@', &count.to_string()));
        body.extend_from_slice(data.as_bytes());
    }
    if framing == 2 || random.once_in(3 * odds) {
        let coding = if random.once_in(odds) { *random.pick(&CODINGS) } else { "Transfer-Encoding: chunked" };
        lines.push(coding.to_owned());
        body.clear();
        chunks(random, odds, data.as_bytes(), &mut body);
    }
    while random.once_in(3) {
        lines.insert(random.below(lines.len()) + 1, (*random.pick(&FIELDS)).to_owned());
    }
    lines.push(String::new());
    for line in lines {
        let end = if random.once_in(8 * odds) { *random.pick(&LINE_ENDS) } else { "\r\n" };
        // Latin-1, so that there are bytes that are not UTF-8.
        stream.extend(line.chars().map(|c| c as u8));
        stream.extend_from_slice(end.as_bytes());
    }
    stream.extend_from_slice(&body);
}

fn chunks(random: &mut Random, odds: usize, data: &[u8], body: &mut Vec<u8>) {
    let mut pieces = random.pieces(data);
    pieces.push(&[]);
    for piece in pieces {
        let len = if random.once_in(4 * odds) { random.below(20) } else { piece.len() };
        let size = match random.below(4 * odds) {
            0 => format!("{len:017x}"),
            1 => format!("{len:016X}"),
            2 => format!("1{len:016x}"),
            3 => format!("0x{len:x}"),
            4 => format!("+{len:x}"),
            5 => format!(" {len:x}"),
            6 => String::new(),
            7 => format!("{len:x}h"),
            _ => format!("{len:x}"),
        };
        body.extend_from_slice(size.as_bytes());
        if random.once_in(odds) {
            body.extend(random.pick(&EXTENSIONS).chars().map(|c| c as u8));
        }
        let end = if random.once_in(8 * odds) { *random.pick(&LINE_ENDS) } else { "\r\n" };
        body.extend_from_slice(end.as_bytes());
        body.extend_from_slice(piece);
        if !piece.is_empty() {
            let end = if random.once_in(8 * odds) { *random.pick(&LINE_ENDS) } else { "\r\n" };
            body.extend_from_slice(end.as_bytes());
        }
    }
    if random.once_in(odds) {
        let trailer = *random.pick(&[
            "A: b\r\n",
            "Content-Length: 3\r\n",
            "A: b\n",
            "A : b\r\n",
            " x\r\n",
            "A\r\n",
            "\x01: b\r\n",
        ]);
        body.extend_from_slice(trailer.as_bytes());
    }
    body.extend_from_slice(if random.once_in(8 * odds) { b"\n" } else { b"\r\n" });
}
