//! A multi-status (RFC 4918, 13): the answer to PROPFIND and PROPPATCH, written entry by entry.
//!
//! Nothing is kept between entries, so a directory of a million files costs the memory of one of them: the
//! caller appends an entry to its buffer, sends the buffer, and goes on.
//!
//! ```
//! use gridlane_dav::listing::EntryKind;
//! use gridlane_dav::multistatus::{Multistatus, Resource};
//! use gridlane_dav::propfind::PropfindRequest;
//!
//! let request = PropfindRequest::parse(b"")?;
//! let answer = Multistatus::new(Some("http://localhost:8080"));
//! let mut body = Vec::new();
//! answer.open(&mut body);
//! // The collection itself is the first entry: davix demands it.
//! answer.entry(&mut body, &Resource::new(b"/data", EntryKind::Directory), &request);
//! answer.entry(&mut body, &Resource::new(b"/data/a b", EntryKind::File), &request);
//! answer.close(&mut body);
//! assert!(String::from_utf8_lossy(&body).contains("<D:href>http://localhost:8080/data/a%20b</D:href>"));
//! # Ok::<(), gridlane_dav::request::Rejection>(())
//! ```
//!
//! Names come from any user that could write a file. In `href` every byte of them is encoded; `displayname` has
//! U+FFFD for what XML, or UTF-8, cannot hold.

use std::io::Write as _;
use std::time::SystemTime;

use gridlane_core::Checksum;

use crate::date;
use crate::digest;
use crate::etag::ETag;
use crate::listing::EntryKind;
use crate::path::encode_name;
use crate::property::{LiveProperty, PropertyName};
use crate::propfind::{PropfindRequest, write_empty};
use crate::status::Status;
use crate::timestamp;
use crate::xml_syntax::write_text;

/// `Content-Type` of the answer.
pub const MEDIA_TYPE: &str = "application/xml; charset=utf-8";

/// The body of the 403 for `Depth: infinity` (RFC 4918, 9.1.1), where the server does not do that.
pub const FINITE_DEPTH_ERROR: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

/// Properties of a file or directory. `None` means that it is not known: such a property is
/// left out, or is 404 when it was asked for by name.
#[derive(Clone, Debug)]
pub struct Resource<'a> {
    /// Its names from the root, with slashes between them, not encoded: `/data/a b`.
    pub path: &'a [u8],
    /// Its kind.
    pub kind: EntryKind,
    /// Its size; not told of a directory.
    pub size_bytes: Option<u64>,
    /// When it was last changed.
    pub modified: Option<SystemTime>,
    /// When it was created.
    pub created: Option<SystemTime>,
    /// Its entity tag.
    pub etag: Option<&'a ETag>,
    /// Its media type.
    pub content_type: Option<&'a str>,
    /// The checksums of its bytes that are known without reading them.
    pub checksums: &'a [Checksum],
    /// Its permissions, as far as the client is concerned; gfal2 denies locally by them. The type is added.
    pub mode: Option<u32>,
    /// The room below a directory; not told of a file.
    pub quota: Option<Quota>,
    /// The numbers of the user and the group it belongs to.
    pub owner: Option<(u32, u32)>,
}

/// The room that there is (RFC 4331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes that may still be stored.
    pub available_bytes: Option<u64>,
    /// Bytes that are stored.
    pub used_bytes: Option<u64>,
}

impl<'a> Resource<'a> {
    /// A resource of which nothing else is known.
    pub fn new(path: &'a [u8], kind: EntryKind) -> Resource<'a> {
        Resource {
            path,
            kind,
            size_bytes: None,
            modified: None,
            created: None,
            etag: None,
            content_type: None,
            checksums: &[],
            mode: None,
            quota: None,
            owner: None,
        }
    }

    fn has(&self, property: LiveProperty) -> bool {
        let is_file = self.kind == EntryKind::File;
        match property {
            LiveProperty::ResourceType | LiveProperty::DisplayName | LiveProperty::SupportedLock => true,
            LiveProperty::ContentLength => is_file && self.size_bytes.is_some(),
            LiveProperty::LastModified => self.modified.is_some(),
            LiveProperty::CreationDate => self.created.is_some(),
            LiveProperty::ETag => self.etag.is_some(),
            LiveProperty::ContentType => self.content_type.is_some(),
            LiveProperty::Mode => self.mode.is_some(),
            LiveProperty::Owner | LiveProperty::Group => self.owner.is_some(),
            LiveProperty::QuotaAvailableBytes => {
                !is_file && self.quota.is_some_and(|quota| quota.available_bytes.is_some())
            }
            LiveProperty::QuotaUsedBytes => {
                !is_file && self.quota.is_some_and(|quota| quota.used_bytes.is_some())
            }
            LiveProperty::OwncloudChecksums | LiveProperty::DcacheChecksums => {
                is_file && !self.checksums.is_empty()
            }
        }
    }

    /// Appends a property that it [has](Resource::has).
    fn write(&self, out: &mut Vec<u8>, property: LiveProperty) {
        let (prefix, local) = (prefix(property), property.local());
        let mut element = |value: &str| {
            put(out, &["<", prefix, ":", local, ">"]);
            write_text(out, value);
            put(out, &["</", prefix, ":", local, ">"]);
        };
        match property {
            LiveProperty::ResourceType => match self.kind {
                EntryKind::Directory => put(out, &["<D:resourcetype><D:collection/></D:resourcetype>"]),
                // Present and empty: clients take its absence for ignorance.
                EntryKind::File => put(out, &["<D:resourcetype/>"]),
            },
            LiveProperty::DisplayName => {
                let name = self.path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
                element(&String::from_utf8_lossy(name.unwrap_or(b"/")));
            }
            LiveProperty::SupportedLock => put(out, &["<D:supportedlock/>"]),
            LiveProperty::ContentLength => element(&self.size_bytes.unwrap_or_default().to_string()),
            LiveProperty::LastModified => element(&self.modified.map(date::format).unwrap_or_default()),
            LiveProperty::CreationDate => element(&self.created.map(timestamp::format).unwrap_or_default()),
            LiveProperty::ETag => element(&self.etag.map(ETag::to_string).unwrap_or_default()),
            LiveProperty::ContentType => element(self.content_type.unwrap_or_default()),
            LiveProperty::Mode => {
                let type_bits = if self.kind == EntryKind::Directory { 0o040_000 } else { 0o100_000 };
                element(&format!("0{:o}", type_bits | (self.mode.unwrap_or_default() & 0o7777)));
            }
            LiveProperty::Owner => element(&self.owner.unwrap_or_default().0.to_string()),
            LiveProperty::Group => element(&self.owner.unwrap_or_default().1.to_string()),
            LiveProperty::QuotaAvailableBytes => {
                let bytes = self.quota.and_then(|quota| quota.available_bytes);
                element(&bytes.unwrap_or_default().to_string());
            }
            LiveProperty::QuotaUsedBytes => {
                let bytes = self.quota.and_then(|quota| quota.used_bytes);
                element(&bytes.unwrap_or_default().to_string());
            }
            LiveProperty::OwncloudChecksums => {
                let value: Vec<String> = self.checksums.iter().map(digest::encode_oc).collect();
                put(out, &["<oc:checksums><oc:checksum>", &value.join(" "), "</oc:checksum></oc:checksums>"]);
            }
            LiveProperty::DcacheChecksums => {
                let value: Vec<String> = self.checksums.iter().map(digest::encode).collect();
                element(&value.join(","));
            }
        }
    }
}

/// The writer. It knows where the server is, and nothing of what was written.
#[derive(Clone, Debug)]
pub struct Multistatus {
    origin: String,
}

impl Multistatus {
    /// A writer for a server that the client reaches at `origin`: scheme and `Host`, without a path. Entries
    /// are named by complete URLs then, for davix decodes only those; without an origin, or with one that
    /// has anything but a host and port in it, by their paths.
    pub fn new(origin: Option<&str>) -> Multistatus {
        let sound = |origin: &&str| {
            origin.split_once("://").is_some_and(|(scheme, host)| {
                let plain = |c: char| c.is_ascii_alphanumeric() || "-._~%[]:".contains(c);
                matches!(scheme, "http" | "https") && !host.is_empty() && host.chars().all(plain)
            })
        };
        Multistatus { origin: origin.filter(sound).unwrap_or_default().to_owned() }
    }

    /// Appends what stands in front of the entries.
    pub fn open(&self, out: &mut Vec<u8>) {
        put(
            out,
            &[
                "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\"",
                " xmlns:oc=\"http://owncloud.org/ns\" xmlns:dcache=\"http://www.dcache.org/2013/webdav\">\n",
            ],
        );
    }

    /// Appends an entry that answers `request` (RFC 4918, 9.1). The requested resource comes first.
    pub fn entry(&self, out: &mut Vec<u8>, resource: &Resource<'_>, request: &PropfindRequest) {
        self.begin(out, resource.path, resource.kind);
        match request {
            PropfindRequest::AllProp { include } => {
                put(out, &["<D:propstat><D:prop>"]);
                let unasked = LiveProperty::all().filter(|property| property.is_in_allprop());
                unasked.filter(|property| resource.has(*property)).for_each(|p| resource.write(out, p));
                let extra = |name: &&PropertyName| !name.live().is_some_and(LiveProperty::is_in_allprop);
                known(resource, include.iter().filter(extra)).for_each(|p| resource.write(out, p));
                end_propstat(out, Status::OK, "");
                write_missing(out, resource, include);
            }
            PropfindRequest::PropName => {
                put(out, &["<D:propstat><D:prop>"]);
                for property in LiveProperty::all().filter(|property| resource.has(*property)) {
                    put(out, &["<", prefix(property), ":", property.local(), "/>"]);
                }
                end_propstat(out, Status::OK, "");
            }
            PropfindRequest::Prop(names) => {
                let mut present = known(resource, names.iter()).peekable();
                if present.peek().is_some() || names.is_empty() {
                    put(out, &["<D:propstat><D:prop>"]);
                    present.for_each(|property| resource.write(out, property));
                    end_propstat(out, Status::OK, "");
                }
                write_missing(out, resource, names);
            }
        }
        put(out, &["</D:response>\n"]);
    }

    /// Appends the entry that answers a PROPPATCH (RFC 4918, 9.2.1): what became of each property. With 403
    /// stands the reason (16): it is protected.
    pub fn changes(
        &self,
        out: &mut Vec<u8>,
        path: &[u8],
        kind: EntryKind,
        outcomes: &[(&PropertyName, Status)],
    ) {
        self.begin(out, path, kind);
        let mut statuses: Vec<Status> = outcomes.iter().map(|(_, status)| *status).collect();
        statuses.sort();
        statuses.dedup();
        for status in statuses {
            put(out, &["<D:propstat><D:prop>"]);
            let of_status = outcomes.iter().filter(|(_, own)| *own == status);
            of_status.for_each(|(name, _)| write_empty(out, name));
            let error = match status {
                Status::FORBIDDEN => "<D:error><D:cannot-modify-protected-property/></D:error>",
                _ => "",
            };
            end_propstat(out, status, error);
        }
        put(out, &["</D:response>\n"]);
    }

    /// Appends an entry that says what became of a resource, and nothing of its properties: one that could
    /// not be removed or copied with its collection (RFC 4918, 9.6.1), or the rest of a listing (507).
    pub fn outcome(&self, out: &mut Vec<u8>, path: &[u8], kind: EntryKind, status: Status) {
        self.begin(out, path, kind);
        put(out, &["<D:status>HTTP/1.1 ", &status.to_string(), "</D:status></D:response>\n"]);
    }

    /// Appends what stands behind the entries.
    pub fn close(&self, out: &mut Vec<u8>) {
        put(out, &["</D:multistatus>\n"]);
    }

    fn begin(&self, out: &mut Vec<u8>, path: &[u8], kind: EntryKind) {
        put(out, &["<D:response><D:href>", &self.origin]);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            put(out, &["/", &encode_name(name)]);
        }
        let root = path.iter().all(|byte| *byte == b'/');
        put(out, &[if kind == EntryKind::Directory || root { "/" } else { "" }, "</D:href>"]);
    }
}

/// Those of the names that the resource has, as properties.
fn known<'a>(
    resource: &'a Resource<'_>,
    names: impl Iterator<Item = &'a PropertyName> + 'a,
) -> impl Iterator<Item = LiveProperty> + 'a {
    names.filter_map(PropertyName::live).filter(|property| resource.has(*property))
}

/// The group of those that it does not have; nothing when it has them all.
fn write_missing(out: &mut Vec<u8>, resource: &Resource<'_>, names: &[PropertyName]) {
    let missing = |name: &&PropertyName| !name.live().is_some_and(|property| resource.has(property));
    let mut missing = names.iter().filter(missing).peekable();
    if missing.peek().is_some() {
        put(out, &["<D:propstat><D:prop>"]);
        missing.for_each(|name| write_empty(out, name));
        end_propstat(out, Status::NOT_FOUND, "");
    }
}

fn end_propstat(out: &mut Vec<u8>, status: Status, error: &str) {
    let _ = write!(out, "</D:prop><D:status>HTTP/1.1 {status}</D:status>{error}</D:propstat>");
}

/// The prefix of its namespace in what [`Multistatus::open`] declares.
fn prefix(property: LiveProperty) -> &'static str {
    match property {
        LiveProperty::Mode => "L",
        LiveProperty::OwncloudChecksums => "oc",
        LiveProperty::DcacheChecksums => "dcache",
        _ => "D",
    }
}

fn put(out: &mut Vec<u8>, pieces: &[&str]) {
    pieces.iter().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
}

#[cfg(test)]
mod tests;
