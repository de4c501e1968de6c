//! Other places of a file: metalinks of it, and `Link` fields (RFC 6249) that say the same in a header.
//!
//! A metalink is another representation of the file: it is sent to clients that prefer it, by `Accept` or by
//! `?metalink`. It tells the file's size, the checksums that are known without reading it, and its URLs: the one it was
//! asked for by, and those below the export's [mirrors](crate::Export::mirrors). Checksums of pieces are not kept, so
//! it has none.

use gridlane_core::{Checksum, Url};
use gridlane_dav::header::weight;
use gridlane_dav::link_header::{encode_duplicate, encode_metalink};
use gridlane_dav::metalink::{File, FileHash, Format, Metalink, Origin, RelativeName, Replica};
use gridlane_dav::path::encode_name;
use gridlane_dav::request::{RequestHead, Target};
use gridlane_dav::{ResourcePath, Status, media_type};

use crate::PRODUCT;
use crate::export::Export;
use gridlane_front::reply::{Payload, Reply};

/// The query that asks for the metalink of a file.
const QUERY: &str = "metalink";

/// The form of a metalink that is preferred to the file, which is of type `own_type`.
///
/// A client that would take the file as gladly gets it: aria2 says with every request that metalinks are welcome as
/// well as anything else. So does a client that asks for a metalink where the file is one.
pub(crate) fn preferred_form(head: &RequestHead, own_type: &str) -> Option<Format> {
    if let Target::Resource { query: Some(query), .. } = &head.target
        && query.split('&').any(|part| part == QUERY || part.starts_with("metalink="))
    {
        return Some(Format::V4);
    }
    if !head.headers.contains("accept") {
        return None;
    }
    let quality = |wanted: &dyn Fn(&str) -> bool| {
        let matching = head.headers.list("accept").filter(|range| wanted(&media_type::of_field(range)));
        matching.map(weight).fold(0.0, f64::max)
    };
    let own_type = media_type::of_field(own_type);
    let file = quality(&|range| {
        let is_family =
            range.strip_suffix("/*").is_some_and(|family| own_type.split('/').next() == Some(family));
        range == "*/*" || range == own_type || range == media_type::OCTETS || is_family
    });
    let of = |format: Format| quality(&|range| range == format.media_type());
    let (v4, v3) = (of(Format::V4), of(Format::V3));
    if v4.max(v3) <= file {
        return None;
    }
    Some(if v4 >= v3 { Format::V4 } else { Format::V3 })
}

/// A file that is here and perhaps elsewhere.
pub(crate) struct Mirrored<'a> {
    /// The scheme and host by which the client reached the server.
    pub(crate) base: &'a str,
    pub(crate) export: &'a Export,
    pub(crate) path: &'a ResourcePath,
}

impl Mirrored<'_> {
    fn url(&self) -> String {
        format!("{}{}", self.base, self.path)
    }

    /// The copies at other places, from priority 2 on: 1 is the server's own.
    fn duplicates(&self) -> impl Iterator<Item = Replica> {
        let names = self.path.names().skip(self.export.path.names().len());
        let rest: String = names.map(|name| format!("/{}", encode_name(name))).collect();
        let roots = self.export.mirrors.iter().filter(|root| root.credentials().is_none());
        roots.zip(2..).map(move |(root, priority)| Replica {
            url: format!("{}{rest}", root_of(root)),
            priority,
            location: None,
        })
    }

    /// Adds the links of a file whose export has mirrors, each in a line of its own.
    pub(crate) fn link(&self, mut reply: Reply) -> Reply {
        for value in self.duplicates().filter_map(|replica| encode_duplicate(&replica)) {
            reply = reply.field("Link", value);
        }
        match encode_metalink(&format!("{}?{QUERY}", self.url()), Format::V4) {
            Some(value) => reply.field("Link", value),
            None => reply,
        }
    }

    /// The answer that is a metalink.
    pub(crate) fn metalink(&self, format: Format, size: u64, checksums: &[Checksum]) -> Reply {
        let name = self.path.names().next_back().unwrap_or_default();
        let plain = std::str::from_utf8(name).ok().and_then(|name| RelativeName::new(name).ok());
        // A name that XML cannot hold, or a reader would refuse, goes encoded.
        let name = plain.map_or_else(|| RelativeName::new(&encode_name(name)), Ok);
        let own = Replica { url: self.url(), priority: 1, location: None };
        let mut file = File::new(name);
        file.size = Some(size);
        file.hashes = checksums.iter().cloned().map(FileHash::Known).collect();
        file.replicas = std::iter::once(own).chain(self.duplicates()).collect();
        let origin = Origin { url: format!("{}?{QUERY}", self.url()), dynamic: true };
        let metalink =
            Metalink { format, generator: Some(PRODUCT.to_owned()), origin: Some(origin), files: vec![file] };
        Reply::new(Status::OK)
            .field("Content-Type", format.media_type())
            .field("Vary", "Accept")
            .field("Cache-Control", "no-cache")
            .field("X-Content-Type-Options", "nosniff")
            .field("Content-Security-Policy", "sandbox")
            .payload(Payload::Bytes(metalink.render(format).into_bytes()))
    }
}

/// A root without its last slash, and without a query.
fn root_of(root: &Url) -> &str {
    root.as_str().split('?').next().unwrap_or_default().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred_by(target: &str, fields: &str, own_type: &str) -> Option<Format> {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        preferred_form(&RequestHead::parse(head.as_bytes()).unwrap().unwrap().0, own_type)
    }

    #[test]
    fn clients_that_get_a_metalink() {
        let accept =
            |value: &str| preferred_by("/f", &format!("Accept: {value}\r\n"), "text/plain; charset=utf-8");
        let (v3, v4) = (Some(Format::V3), Some(Format::V4));
        for (value, expected) in [
            ("application/metalink4+xml", v4),
            ("Application/Metalink4+XML;q=0.5", v4),
            ("application/metalink+xml", v3),
            ("application/metalink+xml, application/metalink4+xml", v4),
            ("application/metalink+xml, application/metalink4+xml;q=0.9", v3),
            ("application/metalink4+xml, */*;q=0.1", v4),
            // aria2, and others that would take the file as well.
            ("*/*,application/metalink4+xml,application/metalink+xml", None),
            ("application/metalink4+xml, text/plain", None),
            ("application/metalink4+xml, text/*", None),
            ("application/metalink4+xml;q=0", None),
            ("application/metalink4+xml;q=x", None),
            ("*/*", None),
            ("application/*", None),
            ("", None),
        ] {
            assert_eq!(accept(value), expected, "{value}");
        }
        let own = "application/metalink4+xml";
        assert_eq!(preferred_by("/f.meta4", &format!("Accept: {own}\r\n"), own), None, "the file is one");
        for (target, expected) in
            [("/f?metalink", v4), ("/f?x=1&metalink=1", v4), ("/f?metalinks", None), ("/f?x=metalink", None)]
        {
            assert_eq!(preferred_by(target, "", own), expected, "{target}");
        }
    }
}
