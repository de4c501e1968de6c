//! Metalinks: a file's size, its checksums and where its replicas are, as XML; version 4 (RFC 5854) and
//! version 3, its predecessor, which Fedora's and openSUSE's mirrors, and parts of the grid, still write.
//!
//! [`Metalink::parse`] reads both into one form, [`Metalink::render`] writes either.
//!
//! # What a metalink may not do
//!
//! It comes from a peer, names files that will be created here, and URLs that will be fetched. So:
//!
//! - a file's name is a [`RelativeName`], which cannot lead out of a directory (RFC 5854, 4.1.2.1), or else
//!   the [`NameFault`] that it has; such a file can be fetched under a name that a person gave. Names are judged in
//!   [`gridlane_core::name`], which is stricter where nothing but the metalink chose one;
//! - [`Replica::remote_url`] gives no URL that is a file of this machine;
//! - what is not well-formed is refused, a prefix without a namespace included, and so is a document type
//!   declaration; no entity is known but XML's own five;
//! - bytes, depth, files, URLs and pieces are bounded (see [`limits`](gridlane_core::limits)); a document that is cut short is an
//!   error, since it may have lost what tells right from wrong.
//!
//! # What it may do
//!
//! Elements and attributes that are not in the specification, or in a namespace of their own, are passed over
//! with all that is in them: dynafed's `lcgdm:`, Fedora's `mm0:alternates` (which holds sizes and checksums of
//! other versions of the file), Rucio's `glfn`, `parents`, `domain`. So are `metaurl` and torrents. A
//! value that cannot be read (a priority of 0, a checksum of the wrong length) is as good as none.

mod read;
mod write;

use gridlane_core::{Checksum, Result, Scheme, Url};

pub use gridlane_core::name::{NameFault, RelativeName};

use crate::media_type;

/// The priority of a URL that has none (RFC 5854, 4.2.16.1); 1 is the best one.
pub const PRIORITY_LOWEST: u32 = 999_999;

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Version 3.0, `.metalink`.
    V3,
    /// RFC 5854, `.meta4`.
    V4,
}

impl Format {
    /// The registered media type, and that which version 3 uses.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::V3 => "application/metalink+xml",
            Format::V4 => "application/metalink4+xml",
        }
    }

    /// The version whose media type stands in a `Content-Type`, parameters left aside.
    pub fn of_media_type(content_type: &str) -> Option<Format> {
        let media_type = media_type::of_field(content_type);
        [Format::V4, Format::V3].into_iter().find(|format| format.media_type() == media_type)
    }

    fn namespace(self) -> &'static str {
        match self {
            Format::V3 => "http://www.metalinker.org/",
            Format::V4 => "urn:ietf:params:xml:ns:metalink",
        }
    }
}

/// A metalink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metalink {
    /// The version that it was read from.
    pub format: Format,
    /// Which program made it (RFC 5854, 4.2.5).
    pub generator: Option<String>,
    /// Where it is from (RFC 5854, 4.2.8).
    pub origin: Option<Origin>,
    /// Its files, in the order they came; none is possible.
    pub files: Vec<File>,
}

/// Where a metalink is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The URL, as it stands.
    pub url: String,
    /// True if there may be a newer one at that URL.
    pub dynamic: bool,
}

/// A file and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, or the reason why that is not acceptable.
    pub name: std::result::Result<RelativeName, NameFault>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// An identifier (RFC 5854, 4.2.6); Rucio's `scope:name`.
    pub identity: Option<String>,
    /// Checksums of the whole file.
    pub hashes: Vec<FileHash>,
    /// Checksums of its pieces, a set for each algorithm.
    pub pieces: Vec<Pieces>,
    /// Where it is, the best first; no URL twice.
    pub replicas: Vec<Replica>,
}

impl File {
    /// A file of that name about which nothing is known yet.
    pub fn new(name: std::result::Result<RelativeName, NameFault>) -> File {
        let (hashes, pieces, replicas) = (Vec::new(), Vec::new(), Vec::new());
        File { name, size: None, identity: None, hashes, pieces, replicas }
    }

    /// The checksums of the whole that can be verified here.
    pub fn checksums(&self) -> impl Iterator<Item = &Checksum> {
        self.hashes.iter().filter_map(|hash| match hash {
            FileHash::Known(checksum) => Some(checksum),
            FileHash::Other { .. } => None,
        })
    }
}

/// A checksum of a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileHash {
    /// Of an algorithm that is known here.
    Known(Checksum),
    /// Of another one.
    Other {
        /// The algorithm's name, in lower case: `sha-1`, `sha-512`.
        kind: String,
        /// The value, as it stands.
        value: String,
    },
}

/// Checksums of the pieces of a file (RFC 5854, 4.1.3). The last piece may be shorter than the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of a piece; never 0.
    pub piece_bytes: u64,
    /// A checksum for each piece, from the beginning of the file, all of one algorithm; never none.
    pub hashes: Vec<FileHash>,
}

/// A URL of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The URL, as it stands: any scheme, no white space.
    pub url: String,
    /// From 1, the best, to [`PRIORITY_LOWEST`]. Version 3's preference of 100 is 1, that of 0 is 101.
    pub priority: u32,
    /// Where it is: a country by its code, or a site by its name (Rucio), as it stands.
    pub location: Option<String>,
}

impl Replica {
    /// The URL if its scheme is known. Never a file of this machine: what a peer wrote down must not say what
    /// is read here.
    pub fn remote_url(&self) -> Option<Url> {
        Url::parse_absolute(&self.url).ok().filter(|url| url.scheme() != Scheme::File)
    }
}

impl Metalink {
    /// Reads a metalink of either version.
    pub fn parse(bytes: &[u8]) -> Result<Metalink> {
        read::parse(bytes)
    }

    /// Writes it as `format`. Left out are files without an acceptable name, which may not be there
    /// (RFC 5854, 4.1.2.1).
    pub fn render(&self, format: Format) -> String {
        write::render(self, format)
    }
}

/// True if a URL led to a metalink: its `Content-Type` says so; or that says nothing, while the
/// URL's path ends in `.meta4` or `.metalink` and the body begins like one, as far as it is there.
///
/// A server may also have been asked for the file `x.meta4` itself: then the person has to say so.
pub fn is_metalink(content_type: Option<&str>, url_path: &str, first_bytes: &[u8]) -> bool {
    // Types that servers state of files whose extension they do not know.
    const SAYING_NOTHING: [&str; 6] =
        ["", "application/octet-stream", "binary/octet-stream", "application/xml", "text/xml", "text/plain"];
    let media_type = media_type::of_field(content_type.unwrap_or_default());
    if Format::of_media_type(&media_type).is_some() {
        return true;
    }
    let path = url_path.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    SAYING_NOTHING.contains(&media_type.as_str())
        && (path.ends_with(".meta4") || path.ends_with(".metalink"))
        && begins_like_one(first_bytes)
}

/// True if the first tag that is no declaration and no comment is `metalink`, with or without a prefix. What
/// is not there yet may be right. More tolerant than reading is: a damaged metalink is one as well, to be
/// refused with a reason.
fn begins_like_one(first_bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(first_bytes);
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        let Some(tag) = rest.strip_prefix('<') else { return rest.is_empty() };
        let closing = match tag {
            tag if tag.starts_with('?') => "?>",
            tag if tag.starts_with("!--") => "-->",
            tag => {
                let Some(end) = tag.find([' ', '\t', '\r', '\n', '>', '/']) else { return true };
                return tag[..end].rsplit(':').next() == Some("metalink");
            }
        };
        let Some((_, after)) = tag.split_once(closing) else { return true };
        rest = after.trim_start();
    }
}

#[cfg(test)]
mod tests;
