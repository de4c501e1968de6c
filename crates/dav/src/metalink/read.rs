//! Reading metalinks. An element is known by the place it stands in; what is in no known place is passed
//! over with everything inside.

use std::collections::HashSet;

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Result, limits};

use super::{
    File, FileHash, Format, Metalink, NameFault, Origin, PRIORITY_LOWEST, Pieces, RelativeName, Replica,
};
use crate::header::number;
use crate::xml::{Attributes, Bounds, Name, PIECE_BYTES, Token, XmlReader};

pub(super) fn parse(bytes: &[u8]) -> Result<Metalink> {
    if bytes.len() > limits::METALINK_BYTES_MAX {
        return Err(malformed(format!("it is longer than {} bytes", limits::METALINK_BYTES_MAX)));
    }
    let mut xml = XmlReader::new(Bounds {
        depth_max: limits::METALINK_DEPTH_MAX,
        elements_max: u64::MAX,
        token_bytes_max: limits::METALINK_TOKEN_BYTES_MAX,
    });
    let mut builder = Builder::default();
    // Some servers are scripts that print an empty line in front of everything.
    for piece in bytes.trim_ascii_start().chunks(PIECE_BYTES) {
        xml.feed(piece);
        while let Some(token) = xml.next().map_err(malformed)? {
            match token {
                Token::Open(name, attributes) => builder.start(name, attributes)?,
                Token::Close => builder.end()?,
                Token::Text(text) => builder.text(&text),
            }
        }
    }
    xml.finish().map_err(malformed)?;
    builder.finish()
}

/// Where in the document an element stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Metalink,
    Files,
    File,
    Verification,
    Resources,
    Pieces,
    /// An element with text; when it ends, the text means something.
    Leaf(Leaf),
    /// Not ours, nor is anything inside.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    Generator,
    Origin,
    Size,
    Identity,
    Hash,
    PieceHash,
    Url,
}

/// The place of an element of our namespace inside of another one.
fn place_of(parent: Place, name: &str, format: Format) -> Place {
    use Format::{V3, V4};
    match (parent, name, format) {
        (Place::Metalink, "files", V3) => Place::Files,
        (Place::Metalink, "file", V4) | (Place::Files, "file", V3) => Place::File,
        (Place::Metalink, "generator", V4) => Place::Leaf(Leaf::Generator),
        (Place::Metalink, "origin", V4) => Place::Leaf(Leaf::Origin),
        (Place::File, "size", _) => Place::Leaf(Leaf::Size),
        (Place::File, "identity", _) => Place::Leaf(Leaf::Identity),
        (Place::File, "verification", V3) => Place::Verification,
        (Place::File, "resources", V3) => Place::Resources,
        (Place::File, "hash", V4) | (Place::Verification, "hash", V3) => Place::Leaf(Leaf::Hash),
        (Place::File, "pieces", V4) | (Place::Verification, "pieces", V3) => Place::Pieces,
        (Place::Pieces, "hash", _) => Place::Leaf(Leaf::PieceHash),
        (Place::File, "url", V4) | (Place::Resources, "url", V3) => Place::Leaf(Leaf::Url),
        _ => Place::Other,
    }
}

/// The document so far.
#[derive(Default)]
struct Builder {
    /// Namespace and version of the root element.
    root: Option<(String, Format)>,
    places: Vec<Place>,
    /// Text of the leaf that is open, and its attributes without a prefix; those with one belong to another
    /// else's namespace.
    text: String,
    attributes: Vec<(String, String)>,
    generator: Option<String>,
    origin: Option<Origin>,
    files: Vec<File>,
    file: Option<File>,
    pieces: Option<PiecesDraft>,
    urls: usize,
    piece_hashes: usize,
}

/// Checksums of pieces as they come.
struct PiecesDraft {
    piece_bytes: Option<u64>,
    kind: String,
    values: Vec<String>,
    /// True if version 3's numbers of the pieces go up from 0.
    in_order: bool,
}

impl Builder {
    fn start(&mut self, name: Name<'_>, attributes: Attributes<'_>) -> Result<()> {
        let place = match (self.places.last(), &self.root) {
            (Some(parent), Some((own, format))) if own == name.namespace => {
                place_of(*parent, name.local, *format)
            }
            (Some(_), _) => Place::Other,
            (None, _) => Place::Metalink,
        };
        self.places.push(place);
        if place == Place::Other {
            return Ok(());
        }
        let own = attributes.filter(|(name, _)| name.namespace.is_empty());
        self.attributes = own.map(|(name, value)| (name.local.to_owned(), value.into_owned())).collect();
        match place {
            Place::Metalink => self.start_root(name)?,
            Place::File => self.start_file()?,
            Place::Pieces => self.start_pieces(),
            Place::Leaf(_) => self.text.clear(),
            Place::Files | Place::Verification | Place::Resources | Place::Other => {}
        }
        Ok(())
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.trim())
    }

    fn start_root(&mut self, name: Name<'_>) -> Result<()> {
        let by_namespace = [Format::V4, Format::V3].into_iter().find(|it| name.namespace == it.namespace());
        let format = match (name.local, name.namespace, by_namespace) {
            ("metalink", _, Some(format)) => format,
            // Without a namespace, as people write by hand.
            ("metalink", "", None) => match self.attribute("version") {
                Some(version) if version.starts_with('3') => Format::V3,
                _ => Format::V4,
            },
            _ => return Err(malformed("its root element is not that of a metalink")),
        };
        if format == Format::V3 {
            self.generator = self.attribute("generator").and_then(nonempty);
            let dynamic = self.attribute("type").is_some_and(|text| text.eq_ignore_ascii_case("dynamic"));
            self.origin = self.attribute("origin").and_then(url).map(|url| Origin { url, dynamic });
        }
        self.root = Some((name.namespace.to_owned(), format));
        Ok(())
    }

    fn start_file(&mut self) -> Result<()> {
        if self.files.len() == limits::METALINK_FILES_MAX {
            return Err(malformed(format!("it has more than {} files", limits::METALINK_FILES_MAX)));
        }
        // Blanks at the ends of a name are part of it.
        let name = self.attributes.iter().find(|(own, _)| own == "name").map(|(_, value)| value);
        self.file = Some(File::new(name.ok_or(NameFault::Missing).and_then(|name| RelativeName::new(name))));
        Ok(())
    }

    fn start_pieces(&mut self) {
        self.pieces = Some(PiecesDraft {
            piece_bytes: self.attribute("length").and_then(number).filter(|bytes| *bytes > 0),
            kind: self.attribute("type").unwrap_or_default().to_owned(),
            values: Vec::new(),
            in_order: true,
        });
    }

    fn text(&mut self, text: &str) {
        if let Some(Place::Leaf(_)) = self.places.last() {
            self.text.push_str(text);
        }
    }

    fn end(&mut self) -> Result<()> {
        match self.places.pop() {
            Some(Place::Leaf(leaf)) => self.end_leaf(leaf)?,
            Some(Place::File) => self.end_file(),
            Some(Place::Pieces) => self.end_pieces(),
            _ => {}
        }
        Ok(())
    }

    fn end_leaf(&mut self, leaf: Leaf) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match leaf {
            Leaf::Generator => self.generator = nonempty(text),
            Leaf::Origin => {
                let dynamic = self.attribute("dynamic").is_some_and(|text| matches!(text, "true" | "1"));
                self.origin = url(text).map(|url| Origin { url, dynamic });
            }
            Leaf::PieceHash => return self.end_piece_hash(text),
            Leaf::Url => return self.end_url(text),
            Leaf::Size | Leaf::Identity | Leaf::Hash => {
                let hash = self.attribute("type").and_then(|kind| file_hash(kind, text));
                let Some(file) = &mut self.file else { return Ok(()) };
                match leaf {
                    Leaf::Size => file.size = number(text),
                    Leaf::Identity => file.identity = nonempty(text),
                    _ => file.hashes.extend(hash),
                }
            }
        }
        Ok(())
    }

    fn end_piece_hash(&mut self, text: &str) -> Result<()> {
        self.piece_hashes += 1;
        if self.piece_hashes > limits::METALINK_PIECES_MAX {
            let max = limits::METALINK_PIECES_MAX;
            return Err(malformed(format!("it has checksums of more than {max} pieces")));
        }
        let index = self.attribute("piece").map(number);
        if let Some(pieces) = &mut self.pieces {
            // Version 4 has no numbers (RFC 5854, 4.1.3.2).
            pieces.in_order &= index.is_none_or(|index| index == Some(pieces.values.len() as u64));
            pieces.values.push(text.to_owned());
        }
        Ok(())
    }

    fn end_pieces(&mut self) {
        let (Some(file), Some(draft)) = (&mut self.file, self.pieces.take()) else { return };
        let hashes: Option<Vec<FileHash>> =
            draft.values.iter().map(|value| file_hash(&draft.kind, value)).collect();
        if let (Some(piece_bytes), Some(hashes), true) = (draft.piece_bytes, hashes, draft.in_order)
            && !hashes.is_empty()
        {
            file.pieces.push(Pieces { piece_bytes, hashes });
        }
    }

    fn end_url(&mut self, text: &str) -> Result<()> {
        self.urls += 1;
        if self.urls > limits::METALINK_URLS_MAX {
            return Err(malformed(format!("it has more than {} URLs", limits::METALINK_URLS_MAX)));
        }
        // Version 3 has torrents among the URLs.
        if self.attribute("type").is_some_and(|kind| kind.eq_ignore_ascii_case("bittorrent")) {
            return Ok(());
        }
        let priority = match &self.root {
            Some((_, Format::V3)) => {
                let preference = self.attribute("preference").and_then(number).filter(|value| *value <= 100);
                preference.map(|preference| 101 - preference)
            }
            _ => self.attribute("priority").and_then(number),
        };
        let priority = priority.and_then(|priority| u32::try_from(priority).ok());
        let priority =
            priority.filter(|priority| (1..=PRIORITY_LOWEST).contains(priority)).unwrap_or(PRIORITY_LOWEST);
        let location = self.attribute("location").and_then(nonempty);
        if let (Some(file), Some(url)) = (&mut self.file, url(text)) {
            file.replicas.push(Replica { url, priority, location });
        }
        Ok(())
    }

    fn end_file(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        file.replicas.sort_by_key(|replica| replica.priority);
        let mut seen = HashSet::new();
        file.replicas.retain(|replica| seen.insert(replica.url.clone()));
        // Pieces of another size, or of another file.
        if let Some(size) = file.size {
            file.pieces.retain(|pieces| size.div_ceil(pieces.piece_bytes) == pieces.hashes.len() as u64);
        }
        self.files.push(file);
    }

    fn finish(self) -> Result<Metalink> {
        // The reader saw an element, else there would be an error from it.
        let (_, format) = self.root.ok_or_else(|| malformed("it has no element"))?;
        Ok(Metalink { format, generator: self.generator, origin: self.origin, files: self.files })
    }
}

/// A checksum in hexadecimal; `None` when its value is none of its algorithm.
fn file_hash(kind: &str, value: &str) -> Option<FileHash> {
    let kind = kind.trim();
    match kind.parse::<ChecksumKind>() {
        Ok(known) => Checksum::from_hex(known, value).map(FileHash::Known),
        Err(_) if kind.is_empty() || value.is_empty() => None,
        Err(_) => Some(FileHash::Other { kind: kind.to_ascii_lowercase(), value: value.to_owned() }),
    }
}

fn url(text: &str) -> Option<String> {
    let is_good = !text.is_empty()
        && text.len() <= limits::METALINK_URL_BYTES_MAX
        && !text.chars().any(|character| character.is_control() || character.is_whitespace());
    is_good.then(|| text.to_owned())
}

fn nonempty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn malformed(cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("the metalink cannot be used: {cause}"))
}
