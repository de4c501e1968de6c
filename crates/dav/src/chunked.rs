//! Decoding of `Transfer-Encoding: chunked` (RFC 9112, 7.1), for both sides.
//!
//! A machine without input or output: give it the bytes that are there, and it says which of them are
//! data. Data is never copied. Lines are strict (hexadecimal digits, an optional extension, CRLF) and
//! bounded: a size that two programs read differently is how requests are smuggled.
//!
//! ```
//! use gridlane_dav::chunked::{ChunkedDecoder, Step};
//! let mut decoder = ChunkedDecoder::new();
//! let (mut input, mut body) = (&b"3\r\nabc\r\n0\r\n\r\nnext message"[..], Vec::new());
//! loop {
//!     let (step, used) = decoder.step(input)?;
//!     match step {
//!         Step::Data(data) => body.extend_from_slice(data),
//!         Step::NeedsMore => unreachable!("everything is there"),
//!         Step::End => { input = &input[used..]; break }
//!     }
//!     input = &input[used..];
//! }
//! assert_eq!((body.as_slice(), input), (&b"abc"[..], &b"next message"[..]));
//! # Ok::<(), gridlane_core::Error>(())
//! ```

use gridlane_core::{Error, ErrorKind, Result, limits};

use crate::header::Headers;

/// The meaning of the next bytes of a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Bytes of the body.
    Data(&'a [u8]),
    /// Everything given was used; the body goes on.
    NeedsMore,
    /// The body is complete. What was not used belongs to the next message.
    End,
}

/// The machine. Call [`step`](ChunkedDecoder::step) until it says [`Step::End`].
#[derive(Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// The unfinished line, or the trailer so far.
    line: Vec<u8>,
    trailers: Headers,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In the line with a chunk's size.
    #[default]
    Size,
    /// In a chunk's data, this many bytes before its end.
    Data(u64),
    /// In the CRLF behind a chunk's data.
    DataEnd,
    /// Behind the last chunk.
    Trailer,
    Done,
}

impl ChunkedDecoder {
    /// A decoder in front of a body.
    pub fn new() -> ChunkedDecoder {
        ChunkedDecoder::default()
    }

    /// Looks at `input`, the bytes behind those used so far, and says what they are and how many of them
    /// are used now.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> Result<(Step<'a>, usize)> {
        let mut used = 0;
        loop {
            if self.state == State::Done {
                return Ok((Step::End, used));
            }
            let rest = &input[used..];
            if rest.is_empty() {
                return Ok((Step::NeedsMore, used));
            }
            match self.state {
                State::Data(left) => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let left = left - take as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Ok((Step::Data(&rest[..take]), used + take));
                }
                State::Size | State::DataEnd | State::Trailer => {
                    let (taken, complete) = self.take_line(rest)?;
                    used += taken;
                    if complete {
                        self.end_of_line()?;
                    }
                }
                State::Done => {}
            }
        }
    }

    /// Bytes of the current chunk that are still to come: they may be read straight to where they belong.
    pub fn data_expected(&self) -> u64 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// Says that `count` of the [expected](ChunkedDecoder::data_expected) bytes were taken elsewhere.
    ///
    /// # Panics
    /// When they are more than were expected.
    pub fn data_taken(&mut self, count: u64) {
        let left = self.data_expected().checked_sub(count).expect("no more than the chunk's bytes are taken");
        if let State::Data(_) = self.state {
            self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
        }
    }

    /// The fields behind the body, once it has ended.
    pub fn trailers(&self) -> &Headers {
        &self.trailers
    }

    /// Takes bytes up to the next LF into `line`; returns how many, and whether the line ended.
    fn take_line(&mut self, input: &[u8]) -> Result<(usize, bool)> {
        let (count, complete) = match input.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (input.len(), false),
        };
        let max = match self.state {
            State::DataEnd => 2,
            State::Trailer => limits::TRAILER_BYTES_MAX,
            _ => limits::CHUNK_LINE_BYTES_MAX,
        };
        if self.line.len() + count > max {
            return Err(malformed(match self.state {
                State::DataEnd => "a chunk is longer than its size says".to_owned(),
                State::Trailer => format!("a trailer of more than {max} bytes"),
                _ => format!("a chunk size line of more than {max} bytes"),
            }));
        }
        self.line.extend_from_slice(&input[..count]);
        Ok((count, complete))
    }

    fn end_of_line(&mut self) -> Result<()> {
        if !self.line.ends_with(b"\r\n") {
            return Err(malformed("a line of a chunked body does not end in CRLF"));
        }
        match self.state {
            State::Size => {
                let size = parse_size(&self.line[..self.line.len() - 2])?;
                self.state = if size == 0 { State::Trailer } else { State::Data(size) };
                self.line.clear();
            }
            State::DataEnd => {
                self.state = State::Size;
                self.line.clear();
            }
            State::Trailer if self.line == b"\r\n" || self.line.ends_with(b"\n\r\n") => {
                self.trailers = parse_trailers(&self.line)?;
                self.line = Vec::new();
                self.state = State::Done;
            }
            State::Trailer | State::Data(_) | State::Done => {}
        }
        Ok(())
    }
}

/// `1*HEXDIG [chunk-ext]`; extensions mean nothing to us. Blanks at the end are allowed: there are servers that fill sizes up.
fn parse_size(line: &[u8]) -> Result<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, extensions) = line.split_at(end);
    let mut rest = trim_blanks(extensions);
    if !(rest.is_empty() || rest[0] == b';') {
        return Err(malformed("a chunk size is not a hexadecimal number"));
    }
    while let Some(extension) = rest.strip_prefix(b";") {
        rest = after_extension(extension).ok_or_else(|| malformed("a chunk extension is malformed"))?;
    }
    if !rest.is_empty() {
        return Err(malformed("a chunk extension is malformed"));
    }
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    // Sixteen digits always fit; leading zeros beyond that are of no use.
    if digits.is_empty() || digits.len() > 16 {
        return Err(malformed("a chunk size has no digits or too many"));
    }
    u64::from_str_radix(digits, 16).map_err(|_| malformed("a chunk size is not a hexadecimal number"))
}

/// The bytes behind an extension, `BWS token [ BWS "=" BWS ( token / quoted-string ) ] BWS` (RFC 9112, 7.1.1); `None`
/// when there is none.
fn after_extension(text: &[u8]) -> Option<&[u8]> {
    let rest = trim_blanks(after_token(trim_blanks(text))?);
    let Some(value) = rest.strip_prefix(b"=") else { return Some(rest) };
    let value = trim_blanks(value);
    let rest = match value.strip_prefix(b"\"") {
        Some(quoted) => after_quoted(quoted)?,
        None => after_token(value)?,
    };
    Some(trim_blanks(rest))
}

fn after_token(text: &[u8]) -> Option<&[u8]> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let len = text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len());
    (len > 0).then(|| &text[len..])
}

/// The bytes behind a quoted string, from behind its first quote.
fn after_quoted(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = match text {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', escaped, rest @ ..] | [escaped, rest @ ..]
                if *escaped == b'\t' || !escaped.is_ascii_control() =>
            {
                rest
            }
            _ => return None,
        };
    }
}

/// Without the spaces and tabs in front.
fn trim_blanks(text: &[u8]) -> &[u8] {
    let len = text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len());
    &text[len..]
}

fn parse_trailers(block: &[u8]) -> Result<Headers> {
    let mut fields = [httparse::EMPTY_HEADER; limits::REQUEST_HEADERS_MAX];
    match httparse::parse_headers(block, &mut fields) {
        Ok(httparse::Status::Complete((_, fields))) => Ok(Headers::from_parsed(fields)),
        _ => Err(malformed("the trailer of a chunked body is malformed")),
    }
}

fn malformed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The body, what was not used, and the trailers.
    type Decoded = (Vec<u8>, Vec<u8>, Headers);

    /// Decodes `wire` given in pieces of `piece` bytes; `None` when it is not complete.
    fn decode(wire: &[u8], piece: usize) -> Result<Option<Decoded>> {
        let mut decoder = ChunkedDecoder::new();
        let (mut body, mut at) = (Vec::new(), 0);
        while at < wire.len() {
            let end = (at + piece).min(wire.len());
            let (step, used) = decoder.step(&wire[at..end])?;
            at += used;
            match step {
                Step::Data(data) => body.extend_from_slice(data),
                Step::NeedsMore => assert_eq!(at, end, "asks for more only when all is used"),
                Step::End => return Ok(Some((body, wire[at..].to_vec(), decoder.trailers().clone()))),
            }
        }
        Ok(None)
    }

    #[test]
    fn bodies() {
        for (wire, body, rest) in [
            ("0\r\n\r\n", "", ""),
            ("3\r\nabc\r\n0\r\n\r\nGET /", "abc", "GET /"),
            ("00A\r\n0123456789\r\n1;name=\"v\"\r\nx\r\n0 ; last\r\nA: b\r\n\r\n", "0123456789x", ""),
            ("1;a=b;c\t= \";\\\"\u{e9}\" ; d\r\nx\r\n1 \t\r\ny\r\n0\r\n\r\n", "xy", ""),
        ] {
            for piece in [1, 2, 3, 1000] {
                let (got, left, _) = decode(wire.as_bytes(), piece).unwrap().unwrap();
                assert_eq!(got, body.as_bytes(), "{wire:?} by {piece}");
                if piece == 1000 {
                    assert_eq!(left, rest.as_bytes());
                }
            }
        }
        let (_, _, trailers) = decode(b"0\r\nDigest: adler32=00000001\r\nX: y\r\n\r\n", 7).unwrap().unwrap();
        assert_eq!(trailers.get("digest"), Some("adler32=00000001"));
    }

    #[test]
    fn what_is_refused() {
        let long_line = format!("1;{}\r\n", "x".repeat(limits::CHUNK_LINE_BYTES_MAX));
        let long_trailer = format!("0\r\nX: {}\r\n\r\n", "x".repeat(limits::TRAILER_BYTES_MAX));
        for wire in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1\n",
            "1 1\r\n",
            "1\r\nabc\r\n",
            "1\r\na\n0\r\n\r\n",
            "10000000000000000\r\n",
            "1;\rx\r\n",
            "1;\r\n",
            "1;;a\r\n",
            "1;a;\r\n",
            "1;=b\r\n",
            "1;a=\r\n",
            "1;a=b c\r\n",
            "1;a b\r\n",
            "1;a=\"b\r\n",
            "1;a=\"b\\\"\r\n",
            "1;a=\"\u{1}\"\r\n",
            "1;(\r\n",
            "0\r\nbad trailer\r\n\r\n",
            "0\r\nA: b\nB: c\r\n\r\n",
            "0\r\nA: b\r\n c\r\n\r\n",
            &long_line,
            &long_trailer,
        ] {
            for piece in [1, 1 << 20] {
                assert!(decode(wire.as_bytes(), piece).is_err(), "{wire:?}");
            }
        }
    }

    #[test]
    fn data_may_be_taken_past_the_decoder() {
        let mut decoder = ChunkedDecoder::new();
        assert_eq!(decoder.step(b"5\r\n").unwrap(), (Step::NeedsMore, 3));
        assert_eq!(decoder.data_expected(), 5);
        decoder.data_taken(4);
        assert_eq!(decoder.step(b"e\r\n0\r\n\r\n").unwrap(), (Step::Data(b"e"), 1));
        assert_eq!(decoder.step(b"\r\n0\r\n\r\n").unwrap(), (Step::End, 7));
    }

    proptest! {
        #[test]
        fn round_trip(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10), piece in 1usize..100) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let (body, rest, _) = decode(&wire, piece).unwrap().unwrap();
            prop_assert_eq!(body, chunks.concat());
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn never_panics(wire in prop::collection::vec(prop::sample::select(b"0123456789aF;\r\n: xyz\x00\xff".to_vec()), 0..200), piece in 1usize..20) {
            let _ = decode(&wire, piece);
        }
    }
}
