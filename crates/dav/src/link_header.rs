//! `Link` headers (RFC 8288), and what Metalink/HTTP makes of them (RFC 6249): where else a file is, and
//! where its metalink is.
//!
//! MirrorBrain, Pelican and gridlane say `<URL>; rel=duplicate; pri=1; geo=ch` for each replica, and
//! `<URL>; rel=describedby; type="application/metalink4+xml"` for a metalink. What one server says about
//! others is a hint: a duplicate is the same file only if its bytes have the file's checksum, so RFC 6249, 6,
//! wants a `Digest` beside it.
//!
//! Read tolerantly: commas and semicolons inside of `<…>` and of quotes belong to what they are in, names
//! have no case, and what cannot be read is skipped. Written for the strictest reader: aria2 looks at the
//! first `<…>` of a header line only, so every link wants a line of its own, and `rel` stands without quotes.

use gridlane_core::limits;

use crate::header::{Headers, OWS, trim, unquote};
use crate::metalink::{Format, PRIORITY_LOWEST, Replica};

/// A link: where it leads, and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The text in `<…>`: a URL, perhaps relative to that of the request.
    pub target: String,
    /// Names in lower case, values without quotes; empty where there is none.
    parameters: Vec<(String, String)>,
}

impl Link {
    /// Reads a header's value, which may hold several links.
    pub fn parse(text: &str) -> Vec<Link> {
        let (mut links, mut rest) = (Vec::new(), text);
        // What is in front of a `<` belongs to nothing.
        while let Some((_, after)) = rest.split_once('<') {
            let Some((target, after)) = after.split_once('>') else { break };
            let mut link = Link { target: trim(target).to_owned(), parameters: Vec::new() };
            rest = link.take_parameters(after);
            if !link.target.is_empty() && link.target.len() <= limits::METALINK_URL_BYTES_MAX {
                links.push(link);
            }
            if links.len() == limits::LINKS_MAX {
                break;
            }
        }
        links
    }

    /// The first parameter of that name, which is in lower case (RFC 8288, 3.3: of several, the first counts).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// True if its `rel` has this relation, in any case.
    pub fn has_relation(&self, relation: &str) -> bool {
        let mut relations = self.parameter("rel").unwrap_or_default().split_ascii_whitespace();
        relations.any(|own| own.eq_ignore_ascii_case(relation))
    }

    /// Takes the parameters in front of the next link; returns what is behind them.
    fn take_parameters<'a>(&mut self, text: &'a str) -> &'a str {
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches(OWS);
            let Some(after) = rest.strip_prefix(';') else { return rest };
            let end = after.find(['=', ';', ',']).unwrap_or(after.len());
            let name = trim(&after[..end]).to_ascii_lowercase();
            rest = &after[end..];
            let mut value = String::new();
            if let Some(after) = rest.strip_prefix('=') {
                (value, rest) = take_value(after.trim_start_matches(OWS));
            }
            if !name.is_empty() {
                self.parameters.push((name, value));
            }
        }
    }
}

/// A token or a quoted string, and what is behind it.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return (trim(&text[..end]).to_owned(), &text[end..]);
    };
    let (value, rest) = unquote(quoted);
    (value, rest.unwrap_or_default())
}

/// Every link of a head, at most [`LINKS_MAX`](limits::LINKS_MAX).
fn links(headers: &Headers) -> impl Iterator<Item = Link> + '_ {
    headers.all("link").flat_map(Link::parse).take(limits::LINKS_MAX)
}

/// The replicas that a head names (RFC 6249, 2), those that the server prefers first, then by priority.
/// Targets may be relative.
///
/// `pref` says of a mirror that it is as good as the server itself (RFC 6249, 2.3). A `depth` (2.4) means that
/// other files of the server are on the mirror as well; that is not needed here.
pub fn duplicates(headers: &Headers) -> Vec<Replica> {
    let mut found: Vec<(bool, Replica)> = links(headers)
        .filter(|link| link.has_relation("duplicate"))
        .map(|link| {
            let priority = link.parameter("pri").and_then(|text| text.parse().ok());
            let priority = priority.filter(|priority| (1..=PRIORITY_LOWEST).contains(priority));
            let location = link.parameter("geo").filter(|geo| !geo.is_empty()).map(str::to_ascii_lowercase);
            let is_preferred = link.parameter("pref").is_some();
            let priority = priority.unwrap_or(PRIORITY_LOWEST);
            (is_preferred, Replica { url: link.target, priority, location })
        })
        .collect();
    found.sort_by_key(|(is_preferred, replica)| (!is_preferred, replica.priority));
    found.into_iter().map(|(_, replica)| replica).collect()
}

/// Where the file's metalink is (RFC 6249, 3), version 4 before version 3. May be relative; the body may be
/// of the other version than the header says (Rucio's is).
pub fn metalink(headers: &Headers) -> Option<String> {
    let mut found: Vec<(u8, String)> = links(headers)
        .filter(|link| link.has_relation("describedby"))
        .filter_map(|link| match link.parameter("type").and_then(Format::of_media_type)? {
            Format::V4 => Some((4, link.target)),
            Format::V3 => Some((3, link.target)),
        })
        .collect();
    found.sort_by_key(|(version, _)| 4 - version);
    found.into_iter().next().map(|(_, target)| target)
}

/// The value of a `Link` header that names a replica; send each in a line of its own. `None` when the URL
/// cannot stand in a header.
pub fn encode_duplicate(replica: &Replica) -> Option<String> {
    let Replica { url, priority, location } = replica;
    let is_country = |geo: &&String| geo.len() == 2 && geo.bytes().all(|byte| byte.is_ascii_alphabetic());
    let geo = location.as_ref().filter(is_country).map(|geo| format!("; geo={geo}")).unwrap_or_default();
    can_be_target(url).then(|| format!("<{url}>; rel=duplicate; pri={priority}{geo}"))
}

/// The value of a `Link` header that says where the metalink is. `None` when the URL cannot stand in a
/// header.
pub fn encode_metalink(url: &str, format: Format) -> Option<String> {
    can_be_target(url).then(|| format!("<{url}>; rel=describedby; type=\"{}\"", format.media_type()))
}

fn can_be_target(url: &str) -> bool {
    !url.is_empty() && url.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(lines: &[&str]) -> Headers {
        let mut headers = Headers::new();
        for line in lines {
            headers.push("Link", line.as_bytes());
        }
        headers
    }

    fn shown(headers: &Headers) -> Vec<(String, u32, String)> {
        let replicas = duplicates(headers).into_iter();
        replicas.map(|r| (r.url, r.priority, r.location.unwrap_or_default())).collect()
    }

    fn row(url: &str, priority: u32, location: &str) -> (String, u32, String) {
        (url.to_owned(), priority, location.to_owned())
    }

    #[test]
    fn mirror_brain() {
        // As download.opensuse.org and others of its kind send them.
        let headers = headers(&[
            "<http://download.example.org/a.iso.meta4>; rel=describedby; type=\"application/metalink4+xml\"",
            "<http://download.example.org/a.iso.torrent>; rel=describedby; type=\"application/x-bittorrent\"",
            "<http://mirror.example.de/a.iso>; rel=duplicate; pri=2; geo=de",
            "<http://mirror.example.pt/a.iso>; rel=duplicate; pri=1; geo=pt",
            "<http://other.example.us/a.iso>; rel=duplicate; pri=3; geo=us",
        ]);
        assert_eq!(metalink(&headers).as_deref(), Some("http://download.example.org/a.iso.meta4"));
        assert_eq!(
            shown(&headers),
            [
                row("http://mirror.example.pt/a.iso", 1, "pt"),
                row("http://mirror.example.de/a.iso", 2, "de"),
                row("http://other.example.us/a.iso", 3, "us"),
            ]
        );
    }

    #[test]
    fn other_spellings() {
        // RFC 6249's own, aria2's tests, several in a line, and what has to be skipped.
        let headers = headers(&[
            "<http://uri1/>; rel=duplicate; pri=1; pref; geo=JP, <http://uri2/>;rel=\"Duplicate\"",
            "<http://uri3/a,b;c>; REL = \"other duplicate\" ; Pri=2;depth=1;PREF",
            "<http://uri4/>; rel=duplicate; pri=0,<http://uri5/>; title=\"a, <b>; \\\"rel=x\\\"\"; rel=duplicate; pri=x",
            "<http://uri6/>; rel=duplicate; pri=1, <http://norel/>",
            "<http://uri7/>; rel=mirror; rel=duplicate, <>; rel=duplicate, ; rel=duplicate, <http://open; rel=duplicate",
        ]);
        assert_eq!(
            shown(&headers),
            [
                row("http://uri1/", 1, "jp"),
                row("http://uri3/a,b;c", 2, ""),
                row("http://uri6/", 1, ""),
                row("http://uri2/", PRIORITY_LOWEST, ""),
                row("http://uri4/", PRIORITY_LOWEST, ""),
                row("http://uri5/", PRIORITY_LOWEST, ""),
            ]
        );
        assert_eq!(metalink(&headers), None);
    }

    #[test]
    fn where_the_metalink_is() {
        for (lines, expected) in [
            // Rucio's redirect.
            (
                &["</redirect/x/metalink?schemes=root>; rel=describedby; type=\"application/metalink+xml\""]
                    [..],
                Some("/redirect/x/metalink?schemes=root"),
            ),
            (
                &[
                    "<a.metalink>; rel=describedby; type=application/metalink+xml",
                    "<a.meta4>; rel=describedby; type=\"Application/Metalink4+XML;x=y\"",
                ],
                Some("a.meta4"),
            ),
            (&["<a.asc>; rel=describedby; type=\"application/pgp-signature\""], None),
            (&["<a.meta4>; rel=describedby"], None),
            (&["<a.meta4>; rel=alternate; type=\"application/metalink4+xml\""], None),
        ] {
            assert_eq!(metalink(&headers(lines)).as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn written_to_be_read() {
        let replica =
            Replica { url: "https://h/a%20b?x=1,2".into(), priority: 3, location: Some("ch".into()) };
        let line = encode_duplicate(&replica).unwrap();
        assert_eq!(line, "<https://h/a%20b?x=1,2>; rel=duplicate; pri=3; geo=ch");
        let link = encode_metalink("/a?metalink", Format::V4).unwrap();
        assert_eq!(link, "</a?metalink>; rel=describedby; type=\"application/metalink4+xml\"");
        let headers = headers(&[&line, &link]);
        assert_eq!(
            (duplicates(&headers), metalink(&headers)),
            (vec![replica], Some("/a?metalink".to_owned()))
        );
        let site = Replica { url: "https://h/".into(), priority: 1, location: Some("CERN-PROD; x".into()) };
        assert_eq!(encode_duplicate(&site).unwrap(), "<https://h/>; rel=duplicate; pri=1");
        for bad in ["", "http://h/a b", "http://h/>", "http://h/\r\nX: y", "http://h/é"] {
            assert_eq!(encode_metalink(bad, Format::V4), None);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(<[a-z:/,;]*>|; ?(rel|pri|geo|type)=|duplicate|[<>;,=\"\\\\ ]|\\PC)*") {
            let headers = headers(&[&text]);
            prop_assert!(duplicates(&headers).len() <= limits::LINKS_MAX);
            let _ = metalink(&headers);
        }
    }
}
