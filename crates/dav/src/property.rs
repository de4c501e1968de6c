//! The names of WebDAV's properties: any name a peer may send, and those we know.

/// The namespace of WebDAV itself (RFC 4918, 21).
pub const DAV: &str = "DAV:";
/// The namespace of DPM's properties, which davix asks for: it is no more than this string.
pub const LCGDM: &str = "LCGDM:";
/// The namespace of ownCloud's properties.
pub const OWNCLOUD: &str = "http://owncloud.org/ns";
/// The namespace of dCache's properties.
pub const DCACHE: &str = "http://www.dcache.org/2013/webdav";

/// A property that follows from the resource itself (RFC 4918, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LiveProperty {
    /// True if it is a collection (RFC 4918, 15.9).
    ResourceType,
    /// The size of a file (15.4).
    ContentLength,
    /// When it was last changed, as HTTP writes dates (15.7).
    LastModified,
    /// When it was created, as RFC 3339 writes dates (15.1).
    CreationDate,
    /// The entity tag (15.6).
    ETag,
    /// The media type (15.5).
    ContentType,
    /// The name for people (15.2).
    DisplayName,
    /// Which locks it can have: none (15.10).
    SupportedLock,
    /// Bytes that may still be stored in a directory (RFC 4331, 3).
    QuotaAvailableBytes,
    /// Bytes that are stored there (RFC 4331, 4).
    QuotaUsedBytes,
    /// Type and permissions in octal, for davix.
    Mode,
    /// The number of the user it belongs to: what davix reads from this name, where RFC 3744, 5.1 has a
    /// principal's URL.
    Owner,
    /// The number of the group it belongs to, likewise.
    Group,
    /// Checksums as ownCloud writes them: `MD5:… ADLER32:…`, for rclone.
    OwncloudChecksums,
    /// Checksums as dCache writes them: like a `Digest` header.
    DcacheChecksums,
}

/// Where it is declared: namespace, name, and whether it comes unasked.
struct Row(LiveProperty, &'static str, &'static str, bool);

/// In the order in which they are written. Not in `allprop`: owners, as RFC 3744 has it, quotas, as RFC 4331 has it (and davix takes
/// a used quota for the size), and checksums, which dCache does not send unasked either.
const REGISTRY: [Row; 15] = [
    Row(LiveProperty::ResourceType, DAV, "resourcetype", true),
    Row(LiveProperty::DisplayName, DAV, "displayname", true),
    Row(LiveProperty::ContentLength, DAV, "getcontentlength", true),
    Row(LiveProperty::ContentType, DAV, "getcontenttype", true),
    Row(LiveProperty::LastModified, DAV, "getlastmodified", true),
    Row(LiveProperty::CreationDate, DAV, "creationdate", true),
    Row(LiveProperty::ETag, DAV, "getetag", true),
    Row(LiveProperty::SupportedLock, DAV, "supportedlock", true),
    Row(LiveProperty::Mode, LCGDM, "mode", true),
    Row(LiveProperty::Owner, DAV, "owner", false),
    Row(LiveProperty::Group, DAV, "group", false),
    Row(LiveProperty::QuotaAvailableBytes, DAV, "quota-available-bytes", false),
    Row(LiveProperty::QuotaUsedBytes, DAV, "quota-used-bytes", false),
    Row(LiveProperty::OwncloudChecksums, OWNCLOUD, "checksums", false),
    Row(LiveProperty::DcacheChecksums, DCACHE, "Checksums", false),
];

impl LiveProperty {
    /// The property of this name.
    pub fn named(namespace: &str, local: &str) -> Option<LiveProperty> {
        REGISTRY.iter().find(|row| row.2 == local && row.1 == namespace).map(|row| row.0)
    }

    /// Every property, in the order in which they are written.
    pub fn all() -> impl Iterator<Item = LiveProperty> {
        REGISTRY.iter().map(|row| row.0)
    }

    /// Its namespace.
    pub fn namespace(self) -> &'static str {
        self.row().1
    }

    /// Its name in that namespace.
    pub fn local(self) -> &'static str {
        self.row().2
    }

    /// True if an `allprop` request is answered with it (RFC 4918, 14.2).
    pub fn is_in_allprop(self) -> bool {
        self.row().3
    }

    fn row(self) -> &'static Row {
        REGISTRY.iter().find(|row| row.0 == self).unwrap_or(&REGISTRY[0])
    }
}

/// The name of any property: a namespace, which may be empty, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PropertyName {
    namespace: String,
    local: String,
    live: Option<LiveProperty>,
}

impl PropertyName {
    /// Only for names that came out of XML, which are known to be names.
    pub(crate) fn from_xml(namespace: &str, local: &str) -> PropertyName {
        let live = LiveProperty::named(namespace, local);
        PropertyName { namespace: namespace.to_owned(), local: local.to_owned(), live }
    }

    /// The namespace; empty for a name in none.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name in it: a name of XML without a colon.
    pub fn local(&self) -> &str {
        &self.local
    }

    /// Which property we know it as.
    pub fn live(&self) -> Option<LiveProperty> {
        self.live
    }
}

impl From<LiveProperty> for PropertyName {
    fn from(live: LiveProperty) -> PropertyName {
        PropertyName {
            namespace: live.namespace().to_owned(),
            local: live.local().to_owned(),
            live: Some(live),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_has_one_name() {
        for live in LiveProperty::all() {
            assert_eq!(LiveProperty::named(live.namespace(), live.local()), Some(live));
            assert_eq!(PropertyName::from(live), PropertyName::from_xml(live.namespace(), live.local()));
        }
        assert_eq!(LiveProperty::all().filter(|live| live.is_in_allprop()).count(), 9);
        for (namespace, local) in [("", "getetag"), ("dav:", "getetag"), (DAV, "GetETag"), (DAV, "mode")] {
            assert_eq!(LiveProperty::named(namespace, local), None, "{namespace} {local}");
        }
    }
}
