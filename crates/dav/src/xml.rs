//! XML as WebDAV (RFC 4918, 17) and metalinks need it: elements, attributes, namespaces and text, out of bytes
//! that come in pieces.
//!
//! A machine without input or output, like [`crate::chunked`]: [`feed`](XmlReader::feed) it what is there,
//! take tokens with [`next`](XmlReader::next) until it wants more, and [`finish`](XmlReader::finish) when
//! the last byte came. It holds one unfinished token, the names of the open elements and what their
//! prefixes mean; all of that is bounded.
//!
//! What may go wrong with XML is left out rather than configured away: a document type declaration ends
//! the reading, so there are no entities but the five predefined ones and nothing is ever fetched.
//! Everything else is read as strictly as the specification has it (XML 1.0, Namespaces 1.0), for what is
//! not well-formed is what two programs in a row understand differently. The encoding is UTF-8.
//!
//! Syntax within a tag or a text is in [`crate::xml_syntax`]. That the reading is right is shown against
//! another parser, in the tests (`xml/comparison.rs`).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use gridlane_core::{Error, ErrorKind, limits};

use crate::request::Rejection;
use crate::status::Status;
use crate::xml_syntax::{self as syntax, Attribute};

/// Limits of a document in every respect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Elements inside each other.
    pub(crate) depth_max: usize,
    /// Elements altogether.
    pub(crate) elements_max: u64,
    /// Bytes of a tag, a comment, or text between two tags.
    pub(crate) token_bytes_max: usize,
}

/// Bytes that a document which is there as a whole is fed in at a time: the reader then holds no more than
/// that and one token.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

/// The name of an element or attribute: compared by both parts, never by its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// The namespace of the prefix; empty when the name is in no namespace.
    pub(crate) namespace: &'a str,
    pub(crate) local: &'a str,
}

/// A piece of the document. Comments and processing instructions are none.
#[derive(Clone, Debug)]
pub(crate) enum Token<'a> {
    /// An element begins.
    Open(Name<'a>, Attributes<'a>),
    /// The innermost open element ends.
    Close,
    /// Text in it, or a part of that text.
    Text(Cow<'a, str>),
}

/// The attributes of an element, as they stand: they are known to be well-formed, and taken apart when they
/// are asked for. Declarations of namespaces are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    text: &'a str,
    bindings: &'a [Binding],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (Name<'a>, Cow<'a, str>);

    fn next(&mut self) -> Option<(Name<'a>, Cow<'a, str>)> {
        loop {
            // There are no errors: the reader went over all of it.
            let (attribute, rest) = syntax::parse_attribute(self.text).ok()??;
            self.text = rest;
            let (prefix, local) = syntax::split_name(attribute.name);
            let namespace = match prefix {
                // A default namespace is for elements only (Namespaces in XML 1.0, 6.2).
                None if local == "xmlns" => continue,
                None => Resolved::None,
                Some("xmlns") => continue,
                Some(prefix) => resolve(self.bindings, prefix).ok()?,
            };
            return Some((Name { namespace: namespace.name(self.bindings), local }, attribute.value));
        }
    }
}

/// Why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XmlError {
    pub(crate) problem: Problem,
    /// A sentence without a final stop; nothing of the document is in it.
    message: &'static str,
    /// Bytes in front of the token that it happened in.
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It is not well-formed, or has a document type.
    Malformed,
    /// It is beyond a bound.
    TooLarge,
    /// It is not in UTF-8.
    Encoding,
}

/// The fault found in a token: everything but its place.
pub(crate) type Flaw = (Problem, &'static str);

impl fmt::Display for XmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.at)
    }
}

impl From<XmlError> for Rejection {
    fn from(error: XmlError) -> Rejection {
        let status = match error.problem {
            Problem::Malformed => Status::BAD_REQUEST,
            Problem::TooLarge => Status::CONTENT_TOO_LARGE,
            Problem::Encoding => Status::UNSUPPORTED_MEDIA_TYPE,
        };
        Rejection::new(status, format!("the XML cannot be read: {error}"))
    }
}

impl From<XmlError> for Error {
    fn from(error: XmlError) -> Error {
        Error::new(ErrorKind::Protocol, format!("the server's XML cannot be read: {error}"))
    }
}

/// The machine.
#[derive(Debug)]
pub(crate) struct XmlReader {
    bounds: Bounds,
    phase: Phase,
    /// Bytes that came; those before `done` are read.
    buffer: Vec<u8>,
    done: usize,
    /// Where in the buffer the present token begins.
    start: usize,
    /// The bytes behind `done` in which the end of the token was looked for already, and the quotes in which that is.
    seen: usize,
    quote: Option<u8>,
    /// Bytes of the document before the buffer.
    before: u64,
    elements: u64,
    /// The names of the open elements as they stand, one behind the other, and where each begins.
    names: String,
    open: Vec<usize>,
    bindings: Vec<Binding>,
    /// The innermost open element was written as `<a/>`: it is still to be closed.
    closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In front of the first byte that is no byte order mark.
    Beginning,
    /// Where `<?xml … ?>` may stand.
    Declaration,
    /// In front of the outermost element.
    Prologue,
    Content,
    /// Behind it.
    Epilogue,
}

#[derive(Debug)]
struct Binding {
    /// Empty for the default namespace.
    prefix: String,
    namespace: String,
    /// Number of open elements where it counts, the one that declares it included.
    depth: usize,
}

/// A token by its place in the buffer.
enum Event {
    Open { namespace: Resolved, local: Range<usize>, attributes: Range<usize> },
    Close,
    Text { range: Range<usize>, literal: bool },
}

/// Which binding a prefix has.
#[derive(Clone, Copy)]
enum Resolved {
    None,
    Xml,
    Bound(usize),
}

impl Resolved {
    fn name(self, bindings: &[Binding]) -> &str {
        match self {
            Resolved::None => "",
            Resolved::Xml => syntax::XML_NAMESPACE,
            Resolved::Bound(index) => &bindings[index].namespace,
        }
    }
}

/// The meaning of the next bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Markup {
    Text,
    Comment,
    CData,
    Instruction,
    EndTag,
    StartTag,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl XmlReader {
    /// A reader in front of a document.
    pub(crate) fn new(bounds: Bounds) -> XmlReader {
        XmlReader {
            bounds,
            phase: Phase::Beginning,
            buffer: Vec::new(),
            done: 0,
            start: 0,
            seen: 0,
            quote: None,
            before: 0,
            elements: 0,
            names: String::new(),
            open: Vec::new(),
            bindings: Vec::new(),
            closes: false,
        }
    }

    /// Takes the bytes behind those taken so far. What they amount to is held in memory until
    /// [`next`](XmlReader::next) was called often enough.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.before += self.done as u64;
        self.buffer.drain(..self.done);
        (self.done, self.start) = (0, 0);
        self.buffer.extend_from_slice(bytes);
    }

    /// The next token; `None` when more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'_>>, XmlError> {
        let event = self.advance();
        let at = self.before + self.start as u64;
        let event = event.map_err(|flaw| located(flaw, at))?;
        Ok(Some(match event {
            None => return Ok(None),
            Some(Event::Close) => Token::Close,
            Some(Event::Open { namespace, local, attributes }) => {
                let text = |range| syntax::text(&self.buffer[range]).map_err(|flaw| located(flaw, at));
                let name = Name { namespace: namespace.name(&self.bindings), local: text(local)? };
                Token::Open(name, Attributes { text: text(attributes)?, bindings: &self.bindings })
            }
            Some(Event::Text { range, literal }) => {
                let text = syntax::text(&self.buffer[range])
                    .and_then(|raw| if literal { syntax::literal(raw) } else { syntax::content(raw) });
                Token::Text(text.map_err(|flaw| located(flaw, at))?)
            }
        }))
    }

    /// True if the document is complete; to be asked when every byte was fed and every token taken.
    pub(crate) fn finish(&self) -> Result<(), XmlError> {
        let rest = &self.buffer[self.done..];
        let message = match self.phase {
            Phase::Epilogue if rest.iter().copied().all(syntax::is_space) && !self.closes => return Ok(()),
            Phase::Epilogue => "it goes on behind the outermost element",
            Phase::Content => "it ends within an element",
            _ => "it has no element",
        };
        Err(located((Problem::Malformed, message), self.before + self.done as u64))
    }

    fn advance(&mut self) -> Result<Option<Event>, Flaw> {
        if std::mem::take(&mut self.closes) {
            self.close();
            return Ok(Some(Event::Close));
        }
        loop {
            if self.phase == Phase::Beginning && !self.begin()? {
                return Ok(None);
            }
            self.start = self.done;
            let Some((markup, len)) = self.next_markup()? else { return Ok(None) };
            self.done += len;
            (self.seen, self.quote) = (0, None);
            let phase = self.phase;
            if phase == Phase::Declaration {
                self.phase = Phase::Prologue;
            }
            let (start, end) = (self.start, self.done);
            match markup {
                Markup::Text if phase == Phase::Content => {
                    return Ok(Some(Event::Text { range: start..end, literal: false }));
                }
                Markup::Text => {
                    if !self.buffer[start..end].iter().copied().all(syntax::is_space) {
                        return malformed("it has text outside of the outermost element");
                    }
                }
                Markup::Comment => syntax::check_comment(syntax::text(&self.buffer[start + 4..end - 3])?)?,
                Markup::Instruction => {
                    let inside = syntax::text(&self.buffer[start + 2..end - 2])?;
                    syntax::check_instruction(inside, phase == Phase::Declaration)?;
                }
                Markup::CData if phase == Phase::Content => {
                    return Ok(Some(Event::Text { range: start + 9..end - 3, literal: true }));
                }
                Markup::CData => return malformed("it has text outside of the outermost element"),
                Markup::EndTag => {
                    self.check_end_tag(start + 2..end - 1)?;
                    self.close();
                    return Ok(Some(Event::Close));
                }
                Markup::StartTag => return self.open(start + 1..end - 1).map(Some),
            }
        }
    }

    /// Skips a byte order mark and refuses other encodings; whether enough bytes are there to tell.
    fn begin(&mut self) -> Result<bool, Flaw> {
        let rest = &self.buffer[self.done..];
        match rest {
            [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0, ..] | [_, 0, ..] => {
                return Err((Problem::Encoding, "it is in UTF-16 or UTF-32, and only UTF-8 is understood"));
            }
            _ if rest.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(rest) => return Ok(false),
            [_] => return Ok(false),
            _ if rest.starts_with(BYTE_ORDER_MARK) => self.done += BYTE_ORDER_MARK.len(),
            _ => {}
        }
        self.phase = Phase::Declaration;
        Ok(true)
    }

    /// The kind and the length of the next token; `None` when its end is not there yet.
    fn next_markup(&mut self) -> Result<Option<(Markup, usize)>, Flaw> {
        let rest = &self.buffer[self.done..];
        let Some(markup) = classify(rest)? else { return Ok(None) };
        let found = match markup {
            Markup::Text => rest[self.seen..].iter().position(|byte| *byte == b'<').map(|at| self.seen + at),
            Markup::Comment => find(rest, self.seen.max(4), b"-->"),
            Markup::CData => find(rest, self.seen.max(9), b"]]>"),
            Markup::Instruction => find(rest, self.seen.max(2), b"?>"),
            Markup::EndTag => find(rest, self.seen, b">"),
            Markup::StartTag => {
                let end = rest[self.seen..].iter().position(|byte| match (self.quote, *byte) {
                    (None, b'>') => true,
                    (None, b'"' | b'\'') => {
                        self.quote = Some(*byte);
                        false
                    }
                    (Some(quote), byte) => {
                        self.quote = (quote != byte).then_some(quote);
                        false
                    }
                    _ => false,
                });
                end.map(|at| self.seen + at + 1)
            }
        };
        if found.unwrap_or(rest.len()) > self.bounds.token_bytes_max {
            return Err((Problem::TooLarge, "it has a tag or a text that is too long"));
        }
        if found.is_none() {
            // The end may begin with the last two bytes that are here.
            self.seen = if markup == Markup::StartTag { rest.len() } else { rest.len().saturating_sub(2) };
        }
        Ok(found.map(|len| (markup, len)))
    }

    /// Opens the element whose tag has this between its brackets.
    fn open(&mut self, mut inside: Range<usize>) -> Result<Event, Flaw> {
        match self.phase {
            Phase::Epilogue => return malformed("it has two outermost elements"),
            _ => self.phase = Phase::Content,
        }
        self.elements += 1;
        if self.elements > self.bounds.elements_max {
            return Err((Problem::TooLarge, "it has too many elements"));
        }
        if self.open.len() >= self.bounds.depth_max {
            return Err((Problem::TooLarge, "its elements are nested too deeply"));
        }
        self.closes = self.buffer[inside.clone()].ends_with(b"/");
        inside.end -= usize::from(self.closes);
        let (name, attributes) = syntax::parse_tag(syntax::text(&self.buffer[inside.clone()])?)?;
        self.open.push(self.names.len());
        self.names.push_str(name);
        declare(&mut self.bindings, &attributes, self.open.len())?;
        check_attributes(&self.bindings, &attributes)?;
        let (prefix, local) = syntax::split_name(name);
        let namespace = resolve(&self.bindings, prefix.unwrap_or_default())?;
        let name_end = inside.start + name.len();
        Ok(Event::Open {
            namespace,
            local: name_end - local.len()..name_end,
            attributes: name_end..inside.end,
        })
    }

    fn check_end_tag(&self, inside: Range<usize>) -> Result<(), Flaw> {
        let name = syntax::text(&self.buffer[inside])?.trim_end_matches([' ', '\t', '\r', '\n']);
        match self.open.last() {
            Some(start) if self.names[*start..] == *name => Ok(()),
            _ => malformed("an end tag does not match its start tag"),
        }
    }

    /// Forgets the innermost element.
    fn close(&mut self) {
        if let Some(start) = self.open.pop() {
            self.names.truncate(start);
        }
        let depth = self.open.len();
        while self.bindings.last().is_some_and(|binding| binding.depth > depth) {
            self.bindings.pop();
        }
        if depth == 0 {
            self.phase = Phase::Epilogue;
        }
    }
}

/// The kind of the token that begins here; `None` when that takes more bytes to tell.
fn classify(rest: &[u8]) -> Result<Option<Markup>, Flaw> {
    match rest {
        [] | [b'<'] => return Ok(None),
        [b'<', b'/', ..] => return Ok(Some(Markup::EndTag)),
        [b'<', b'?', ..] => return Ok(Some(Markup::Instruction)),
        [b'<', b'!', ..] => {}
        [b'<', ..] => return Ok(Some(Markup::StartTag)),
        _ => return Ok(Some(Markup::Text)),
    }
    for (begin, markup) in [(&b"<!--"[..], Markup::Comment), (b"<![CDATA[", Markup::CData)] {
        if rest.starts_with(begin) {
            return Ok(Some(markup));
        }
        if begin.starts_with(rest) {
            return Ok(None);
        }
    }
    if rest.starts_with(b"<!D") {
        return malformed("it has a document type declaration, which is not accepted");
    }
    malformed("it has a declaration that does not belong there")
}

/// Where the first `end` at or behind `from` ends.
fn find(bytes: &[u8], from: usize, end: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(end.len()).position(|window| window == end).map(|at| from + at + end.len())
}

/// Adds what a tag says about prefixes (Namespaces in XML 1.0, 3).
fn declare(bindings: &mut Vec<Binding>, attributes: &[Attribute<'_>], depth: usize) -> Result<(), Flaw> {
    for attribute in attributes {
        let prefix = match syntax::split_name(attribute.name) {
            (None, "xmlns") => "",
            (Some("xmlns"), prefix) => prefix,
            _ => continue,
        };
        let namespace = attribute.value.as_ref();
        let reserved = [syntax::XML_NAMESPACE, syntax::XMLNS_NAMESPACE].contains(&namespace);
        match prefix {
            "xml" if namespace == syntax::XML_NAMESPACE => continue,
            "xml" | "xmlns" => return malformed("it gives a reserved prefix another meaning"),
            _ if reserved => return malformed("it gives a reserved namespace another prefix"),
            "" => {}
            _ if namespace.is_empty() => return malformed("it takes the meaning of a prefix away"),
            _ => {}
        }
        if namespace.len() > limits::XML_NAME_BYTES_MAX {
            return Err((Problem::TooLarge, "it has a namespace with a name that is too long"));
        }
        bindings.push(Binding { prefix: prefix.to_owned(), namespace: namespace.to_owned(), depth });
    }
    Ok(())
}

/// Prefixes of attributes stand for something, and two of them do not make one attribute of two (Namespaces
/// in XML 1.0, 5 and 6.3).
fn check_attributes(bindings: &[Binding], attributes: &[Attribute<'_>]) -> Result<(), Flaw> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for attribute in attributes {
        let (Some(prefix), local) = syntax::split_name(attribute.name) else { continue };
        if prefix == "xmlns" {
            continue;
        }
        let name = (resolve(bindings, prefix)?.name(bindings), local);
        if seen.contains(&name) {
            return malformed("it has an attribute twice");
        }
        seen.push(name);
    }
    Ok(())
}

fn resolve(bindings: &[Binding], prefix: &str) -> Result<Resolved, Flaw> {
    if prefix == "xml" {
        return Ok(Resolved::Xml);
    }
    match bindings.iter().rposition(|binding| binding.prefix == prefix) {
        Some(index) => Ok(Resolved::Bound(index)),
        None if prefix.is_empty() => Ok(Resolved::None),
        None => malformed("it has a prefix that stands for no namespace"),
    }
}

fn located((problem, message): Flaw, at: u64) -> XmlError {
    XmlError { problem, message, at }
}

fn malformed<T>(message: &'static str) -> Result<T, Flaw> {
    Err((Problem::Malformed, message))
}

#[cfg(test)]
mod comparison;
#[cfg(test)]
mod tests;
