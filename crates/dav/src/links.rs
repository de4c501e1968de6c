//! Reading a directory listing that some server sent: nginx's JSON, or the links of an HTML index page
//! (nginx, Apache, Python, lighttpd, gridlane).
//!
//! A listing is input from a peer, and its names become local file names: only single path components
//! are taken (`gridlane_core::name`), never `..`, never a path, never a link to elsewhere.

use gridlane_core::name::is_entry;
use gridlane_core::{Error, ErrorKind, Result};
use percent_encoding::percent_decode_str;

use crate::date;
use crate::listing::{Entry, EntryKind};

/// Reads a listing of either form; `media_type` decides, and the first character where it is missing.
/// `directory_path` is the encoded path that was listed, so that links with a complete path are
/// understood too.
pub fn parse_listing(media_type: Option<&str>, body: &[u8], directory_path: &str) -> Result<Vec<Entry>> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = match media_type {
        Some(media_type) => media_type.ends_with("json"),
        None => first == Some(&b'['),
    };
    if is_json { parse_json(body) } else { Ok(parse_html(&String::from_utf8_lossy(body), directory_path)) }
}

#[derive(serde::Deserialize)]
struct JsonRow {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mtime: Option<String>,
    #[serde(default)]
    size: Option<u64>,
}

fn parse_json(body: &[u8]) -> Result<Vec<Entry>> {
    let rows: Vec<JsonRow> = serde_json::from_slice(body).map_err(|cause| {
        Error::new(
            ErrorKind::Protocol,
            format!("the directory listing is not what nginx's JSON looks like: {cause}"),
        )
    })?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let kind = match row.kind.as_str() {
                "directory" => EntryKind::Directory,
                "file" => EntryKind::File,
                _ => return None,
            };
            let modified = row.mtime.as_deref().and_then(date::parse);
            let size_bytes = row.size.filter(|_| kind == EntryKind::File);
            is_entry(row.name.as_bytes()).then(|| Entry {
                name: row.name.into_bytes(),
                kind,
                size_bytes,
                modified,
            })
        })
        .collect())
}

/// Every `href` that leads one level down. Sizes and dates are left to a HEAD of the file: no two
/// servers print them alike.
fn parse_html(page: &str, directory_path: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for href in hrefs(page) {
        let Some((name, kind)) = child_of(&unescape(href), directory_path) else { continue };
        if seen.insert(name.clone()) {
            entries.push(Entry { name, kind, size_bytes: None, modified: None });
        }
    }
    entries
}

/// The values of the `href` attributes of `<a …>` tags.
fn hrefs(page: &str) -> impl Iterator<Item = &str> {
    page.split('<').skip(1).filter_map(|tag| {
        let rest = tag.strip_prefix(['a', 'A'])?;
        if !rest.starts_with(|c: char| c.is_ascii_whitespace()) {
            return None;
        }
        let lower = rest.to_ascii_lowercase();
        let at = lower.find("href")?;
        let value = rest[at + 4..].trim_start().strip_prefix('=')?.trim_start();
        match value.chars().next()? {
            quote @ ('"' | '\'') => value[1..].split(quote).next(),
            _ => value.split(|c: char| c.is_ascii_whitespace() || c == '>').next(),
        }
    })
}

fn child_of(href: &str, directory_path: &str) -> Option<(Vec<u8>, EntryKind)> {
    let href = href.trim();
    // Sorting links (`?C=N;O=D`) and anchors.
    if href.is_empty() || href.starts_with(['?', '#']) {
        return None;
    }
    let href = href.split(['?', '#']).next().unwrap_or_default();
    let relative = match href.strip_prefix('/') {
        Some(_) => href.strip_prefix(directory_path).filter(|_| directory_path.ends_with('/'))?,
        None => href.trim_start_matches("./"),
    };
    let (name, kind) = match relative.strip_suffix('/') {
        Some(name) => (name, EntryKind::Directory),
        None => (relative, EntryKind::File),
    };
    // A colon before any slash would be a scheme (RFC 3986, 4.2); in `./a:b` it is part of the name.
    if name.contains('/') || (name.contains(':') && !href.starts_with(['.', '/'])) {
        return None;
    }
    Some((decode_name(name)?, kind))
}

/// The name that an encoded path component stands for, if an entry of a directory can have it. A `%` that
/// encodes nothing stands for itself.
pub(crate) fn decode_name(encoded: &str) -> Option<Vec<u8>> {
    let name: Vec<u8> = percent_decode_str(encoded).collect();
    is_entry(&name).then_some(name)
}

/// The character references that servers write into `href`.
fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let named =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'"), ("&amp;", "&")];
    named.iter().fold(text.to_owned(), |text, (reference, plain)| text.replace(reference, plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing;
    use crate::path::ResourcePath;
    use proptest::prelude::*;

    fn names(page: &str) -> Vec<String> {
        parse_html(page, "/data/")
            .iter()
            .map(|entry| {
                let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
                format!("{}{slash}", entry.display_name())
            })
            .collect()
    }

    #[test]
    fn pages_of_other_servers() {
        let nginx = "<html><h1>Index of /data/</h1><hr><pre><a href=\"../\">../</a>\n\
                     <a href=\"sub/\">sub/</a>  21-Oct-2015 07:28  -\n<a href=\"a%20b.root\">a b.root</a> 5\n</pre>";
        assert_eq!(names(nginx), ["sub/", "a b.root"]);
        let apache = "<tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent Directory</a></td>\
                      <td><A HREF='x&amp;y.nc'>x</A></td><td><a class=x href=plain>p</a></td></tr>";
        assert_eq!(names(apache), ["x&y.nc", "plain"]);
        let others = "<a href=\"/data/full\">f</a><a href=\"/other/x\">o</a><a href=\"http://h/x\">h</a><a href=\"//h/x\">h</a>\
                      <a href=\"mailto:x\">m</a><a href=\"./a:b\">c</a><a href=\"a/b\">d</a><a href=\"%2e%2e\">e</a>\
                      <a href=\"x%2fy\">s</a><a href=\"%00\">n</a><a href=\"full\">again</a><abbr href=\"z\"><a name=\"q\">";
        assert_eq!(names(others), ["full", "a:b"]);
    }

    #[test]
    fn json_is_checked() {
        let body = br#"[{"name":"d","type":"directory","mtime":"Wed, 21 Oct 2015 07:28:00 GMT"},
            {"name":"f","type":"file","size":5},{"name":"../x","type":"file"},{"name":"..","type":"directory"},
            {"name":"p","type":"other"}]"#;
        let entries = parse_listing(Some("application/json"), body, "/").unwrap();
        let shown: Vec<_> =
            entries.iter().map(|e| (e.display_name(), e.size_bytes, e.modified.is_some())).collect();
        assert_eq!(shown, [("d".into(), None, true), ("f".into(), Some(5), false)]);
        assert!(parse_listing(Some("application/json"), b"{}", "/").is_err());
        assert_eq!(parse_listing(None, b" []", "/").unwrap(), []);
    }

    proptest! {
        /// Our own pages are read: every name from HTML, and names in UTF-8 from JSON with all attributes.
        #[test]
        fn round_trips(raw in prop::collection::vec(1u8.., 1..30), text in "\\PC{1,20}", size: u32, seconds: u32, directory: bool) {
            let kind = if directory { EntryKind::Directory } else { EntryKind::File };
            for name in [raw, text.into_bytes()] {
                prop_assume!(is_entry(&name));
                let entry = Entry {
                    kind,
                    size_bytes: (!directory).then_some(size.into()),
                    modified: Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.into())),
                    name,
                };
                let page = listing::render_html(&ResourcePath::root(), std::slice::from_ref(&entry), false);
                let read = parse_listing(Some("text/html"), page.as_bytes(), "/").unwrap();
                prop_assert_eq!(read.len(), 1);
                prop_assert_eq!((&read[0].name, read[0].kind), (&entry.name, entry.kind));
                if std::str::from_utf8(&entry.name).is_ok() {
                    let json = listing::render_json(std::slice::from_ref(&entry));
                    prop_assert_eq!(parse_listing(Some("application/json"), json.as_bytes(), "/").unwrap(), vec![entry]);
                }
            }
        }

        #[test]
        fn never_panics(page in "(<a href=['\"]?|\\PC|[</>&;])*", path in "\\PC*") {
            for entry in parse_html(&page, &path) {
                prop_assert!(is_entry(&entry.name));
            }
            let _ = parse_listing(None, page.as_bytes(), &path);
        }
    }
}
