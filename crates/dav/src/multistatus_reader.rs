//! A multi-status as a client reads it: the result of a PROPFIND at another server, entry by entry
//! while it arrives.
//!
//! Tolerant where servers differ, and each difference has a test that names the server: complete URLs,
//! paths and relative names in `href`; directories without a slash at the end; any prefix for the
//! namespace; properties in groups with and without a status; dates in every form of [`crate::timestamp`];
//! entity tags without quotes; `iscollection` for `resourcetype`. What is not well-formed XML ends the
//! reading with an error, and so does a listing that stops in the middle.
//!
//! A listing is input from a peer, and its names become local file names: as in [`crate::links`], only
//! names that are single path components are taken, below the directory that was asked for. The rest is
//! counted in [`MultistatusReader::skipped`].
//!
//! Memory does not grow with the listing: what is held is one entry and one unfinished tag, both bounded.

use std::time::SystemTime;

use gridlane_core::{Checksum, Error, ErrorKind, Result, Url, limits};

use crate::digest;
use crate::etag::ETag;
use crate::header;
use crate::href::Base;
use crate::listing::EntryKind;
use crate::multistatus::Quota;
use crate::property::{DAV, LiveProperty};
use crate::status::Status;
use crate::timestamp;
use crate::xml::{Bounds, Name, PIECE_BYTES, Token, XmlReader};

/// An entry of a multi-status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultistatusEntry {
    /// The names from the requested resource down to this one; empty for that one itself. None of them is
    /// `.` or `..`, or has a slash or a NUL.
    pub names: Vec<Vec<u8>>,
    /// True if it is the resource that was requested.
    pub is_self: bool,
    /// Its kind.
    pub kind: EntryKind,
    /// Its status: 200 unless the server says something of the whole entry. Then nothing else is
    /// known of it.
    pub status: Status,
    /// The size of a file.
    pub size_bytes: Option<u64>,
    /// When it was last changed.
    pub modified: Option<SystemTime>,
    /// When it was created.
    pub created: Option<SystemTime>,
    /// Its entity tag.
    pub etag: Option<ETag>,
    /// The checksums of a file that the server knows.
    pub checksums: Vec<Checksum>,
    /// Type and permissions, as DPM and XRootD tell them.
    pub mode: Option<u32>,
    /// The room below a directory.
    pub quota: Quota,
}

/// The machine: [`feed`](MultistatusReader::feed) it the body of a 207, then [`finish`](MultistatusReader::finish).
#[derive(Debug)]
pub struct MultistatusReader {
    xml: XmlReader,
    started: bool,
    base: Base,
    /// The kinds of the open elements, outermost first. As deep as the XML may be, and no deeper.
    places: Vec<Place>,
    /// The text of the present [`Place::Value`].
    text: String,
    draft: Draft,
    /// Properties of the present group, until its status says whether they count.
    group: Vec<(Value, String)>,
    group_status: Option<Status>,
    skipped: u64,
}

/// The kind of an open element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Multistatus,
    Response,
    PropStat,
    Prop,
    /// `resourcetype`, which says what it is by the elements in it.
    ResourceType,
    /// ownCloud's `checksums`, which has `checksum` in it.
    Checksums,
    /// An element whose text is of interest.
    Value(Value),
    /// Anything else, with all that is in it.
    Ignored,
}

/// Which text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Href,
    EntryStatus,
    GroupStatus,
    Property(LiveProperty),
    /// Microsoft's `iscollection`, which old XRootD sends for files instead of `resourcetype`.
    IsCollection,
    /// `resourcetype`: the text is `collection` or empty.
    Type,
}

/// The present entry.
#[derive(Debug, Default)]
struct Draft {
    hrefs: Vec<String>,
    status: Option<Status>,
    properties: Vec<(Value, String)>,
    /// Bytes of all of that, and of the present group.
    bytes: usize,
}

impl MultistatusReader {
    /// A reader for the answer to a request to `url`: the last one, when there were redirects.
    pub fn new(url: &Url) -> MultistatusReader {
        MultistatusReader {
            xml: XmlReader::new(Bounds {
                depth_max: limits::MULTISTATUS_DEPTH_MAX,
                elements_max: u64::MAX,
                token_bytes_max: limits::MULTISTATUS_TOKEN_BYTES_MAX,
            }),
            started: false,
            base: Base::new(url.encoded_path()),
            places: Vec::new(),
            text: String::new(),
            draft: Draft::default(),
            group: Vec::new(),
            group_status: None,
            skipped: 0,
        }
    }

    /// Takes the bytes behind those taken so far, and appends the entries that are complete with them. After
    /// an error nothing more can be read; entries in front of it stay appended.
    pub fn feed(&mut self, bytes: &[u8], entries: &mut Vec<MultistatusEntry>) -> Result<()> {
        // Some servers are scripts that print an empty line in front of everything.
        let bytes = if self.started { bytes } else { bytes.trim_ascii_start() };
        self.started |= !bytes.is_empty();
        for piece in bytes.chunks(PIECE_BYTES) {
            self.xml.feed(piece);
            while self.step(entries)? {}
        }
        Ok(())
    }

    /// Says whether the listing is complete, when the body is.
    pub fn finish(self) -> Result<()> {
        Ok(self.xml.finish()?)
    }

    /// Number of entries that were left out because they are not below what was asked for, or have names that no
    /// file can have.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Handles one token; whether there was one.
    fn step(&mut self, entries: &mut Vec<MultistatusEntry>) -> Result<bool> {
        match self.xml.next()? {
            None => return Ok(false),
            Some(Token::Open(name, _)) => {
                let place = place(self.places.last().copied(), name)?;
                self.places.push(place);
                match place {
                    Place::Value(_) => self.text.clear(),
                    Place::PropStat => {
                        self.group.clear();
                        self.group_status = None;
                    }
                    Place::ResourceType => self.keep(Value::Type, String::new())?,
                    Place::Response => self.draft = Draft::default(),
                    _ => {}
                }
            }
            Some(Token::Text(text)) => {
                if let Some(Place::Value(_)) = self.places.last() {
                    if self.draft.bytes + self.text.len() + text.len() > limits::MULTISTATUS_ENTRY_BYTES_MAX {
                        return Err(too_large());
                    }
                    self.text.push_str(&text);
                }
            }
            Some(Token::Close) => match self.places.pop() {
                Some(Place::Value(value)) => self.end_value(value)?,
                Some(Place::PropStat) => {
                    let group = std::mem::take(&mut self.group);
                    // Without a status it is taken for good, as rclone does.
                    if self.group_status.is_none_or(Status::is_success) {
                        self.draft.properties.extend(group);
                    }
                }
                Some(Place::Response) => self.end_entry(entries),
                _ => {}
            },
        }
        Ok(true)
    }

    fn end_value(&mut self, value: Value) -> Result<()> {
        let text = self.text.trim().to_owned();
        match value {
            Value::Href => {
                self.draft.bytes += text.len() + size_of::<String>();
                self.draft.hrefs.push(text);
            }
            Value::EntryStatus => self.draft.status = Some(parse_status(&text)?),
            Value::GroupStatus => self.group_status = Some(parse_status(&text)?),
            // The element's name is the value.
            Value::Type => return self.keep(value, "collection".to_owned()),
            _ => return self.keep(value, text),
        }
        self.check_bytes()
    }

    fn keep(&mut self, value: Value, text: String) -> Result<()> {
        self.draft.bytes += text.len() + size_of::<(Value, String)>();
        self.group.push((value, text));
        self.check_bytes()
    }

    fn check_bytes(&self) -> Result<()> {
        if self.draft.bytes > limits::MULTISTATUS_ENTRY_BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }

    fn end_entry(&mut self, entries: &mut Vec<MultistatusEntry>) {
        let mut draft = std::mem::take(&mut self.draft);
        match draft.hrefs.len() {
            0 => self.skipped += 1,
            1 => {}
            // Several names have a status in common, and no properties (RFC 4918, 14.24), which would take
            // memory for each of them.
            _ => draft.properties.clear(),
        }
        for href in &draft.hrefs {
            match self.base.relative(href) {
                Some(names) => entries.push(draft.entry(names, href.ends_with('/'))),
                None => self.skipped += 1,
            }
        }
    }
}

impl Draft {
    fn entry(&self, names: Vec<Vec<u8>>, directory_form: bool) -> MultistatusEntry {
        let kind = if self.is_directory(directory_form) { EntryKind::Directory } else { EntryKind::File };
        let number = |property| self.property(property).and_then(header::number);
        let moment = |property| self.property(property).and_then(timestamp::parse);
        let is_file = kind == EntryKind::File;
        let quota = Quota {
            available_bytes: number(LiveProperty::QuotaAvailableBytes),
            used_bytes: number(LiveProperty::QuotaUsedBytes),
        };
        let mode = self.property(LiveProperty::Mode).and_then(|text| u32::from_str_radix(text, 8).ok());
        MultistatusEntry {
            is_self: names.is_empty(),
            names,
            kind,
            status: self.status.unwrap_or(Status::OK),
            size_bytes: number(LiveProperty::ContentLength).filter(|_| is_file),
            modified: moment(LiveProperty::LastModified),
            created: moment(LiveProperty::CreationDate),
            etag: self.property(LiveProperty::ETag).and_then(parse_etag),
            checksums: if is_file { self.checksums() } else { Vec::new() },
            mode,
            quota: if is_file { Quota::default() } else { quota },
        }
    }

    /// The first value with something in it.
    fn property(&self, property: LiveProperty) -> Option<&str> {
        let wanted = Value::Property(property);
        let mut values = self.properties.iter().filter(|(value, _)| *value == wanted);
        values.find(|(_, text)| !text.is_empty()).map(|(_, text)| text.as_str())
    }

    fn is_directory(&self, directory_form: bool) -> bool {
        let says = |wanted: Value, yes: fn(&str) -> bool| {
            let mut values = self.properties.iter().filter(|(value, _)| *value == wanted).peekable();
            values.peek().is_some().then(|| values.any(|(_, text)| yes(text)))
        };
        says(Value::Type, |text| text == "collection")
            .or_else(|| says(Value::IsCollection, |text| text == "1" || text.eq_ignore_ascii_case("true")))
            .unwrap_or(directory_form)
    }

    fn checksums(&self) -> Vec<Checksum> {
        let mut checksums = Vec::new();
        for (value, text) in &self.properties {
            let found: Vec<Checksum> = match value {
                Value::Property(LiveProperty::OwncloudChecksums) => {
                    text.split_ascii_whitespace().filter_map(digest::decode_oc).collect()
                }
                Value::Property(LiveProperty::DcacheChecksums) => digest::decode(text),
                _ => continue,
            };
            for checksum in found {
                if checksums.len() < limits::MULTISTATUS_CHECKSUMS_MAX && !checksums.contains(&checksum) {
                    checksums.push(checksum);
                }
            }
        }
        checksums
    }
}

/// The kind of an element, by its place and its name.
fn place(parent: Option<Place>, name: Name<'_>) -> Result<Place> {
    let Some(parent) = parent else {
        return match (name.namespace, name.local) {
            (DAV, "multistatus") => Ok(Place::Multistatus),
            _ => Err(Error::new(ErrorKind::Protocol, "the server's XML is no multistatus of WebDAV")),
        };
    };
    Ok(match (parent, name.namespace, name.local) {
        (Place::Multistatus, DAV, "response") => Place::Response,
        (Place::Response, DAV, "href") => Place::Value(Value::Href),
        (Place::Response, DAV, "status") => Place::Value(Value::EntryStatus),
        (Place::Response, DAV, "propstat") => Place::PropStat,
        (Place::PropStat, DAV, "status") => Place::Value(Value::GroupStatus),
        (Place::PropStat, DAV, "prop") => Place::Prop,
        (Place::ResourceType, DAV, "collection") => Place::Value(Value::Type),
        (Place::Prop, DAV, "iscollection") => Place::Value(Value::IsCollection),
        (Place::Checksums, _, "checksum") => Place::Value(Value::Property(LiveProperty::OwncloudChecksums)),
        (Place::Prop, namespace, local) => match LiveProperty::named(namespace, local) {
            Some(LiveProperty::ResourceType) => Place::ResourceType,
            Some(LiveProperty::OwncloudChecksums) => Place::Checksums,
            Some(property) => Place::Value(Value::Property(property)),
            None => Place::Ignored,
        },
        _ => Place::Ignored,
    })
}

/// `HTTP/1.1 200 OK`, as well without the phrase, and without the version.
fn parse_status(text: &str) -> Result<Status> {
    let is_version = |word: &&str| word.get(..5).is_some_and(|begin| begin.eq_ignore_ascii_case("HTTP/"));
    let number = text.split_ascii_whitespace().find(|word| !is_version(word));
    let code = number.filter(|word| word.len() == 3).and_then(|word| word.parse().ok());
    code.and_then(Status::new).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        Error::new(ErrorKind::Protocol, format!("the listing has a status that is none: {shown:?}"))
    })
}

/// wsgidav writes entity tags without quotes, and means strong ones.
fn parse_etag(text: &str) -> Option<ETag> {
    ETag::parse(text).or_else(|| if text.contains('"') { None } else { ETag::strong(text) })
}

fn too_large() -> Error {
    let max = limits::MULTISTATUS_ENTRY_BYTES_MAX;
    Error::new(ErrorKind::Protocol, format!("an entry of the listing has more than {max} bytes"))
}

#[cfg(test)]
mod tests;
