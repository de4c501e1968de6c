//! Directory listings for people (HTML) and for programs (JSON in the shape of nginx's
//! `autoindex_format json`). Reading them is in [`crate::links`].
//!
//! Names come from any user that could write a file: every one is encoded for the place where it stands.

use std::fmt::Write as _;
use std::time::SystemTime;

use gridlane_core::units;

use crate::date;
use crate::path::{ResourcePath, encode_name};

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

impl EntryKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::Directory => "directory",
            EntryKind::File => "file",
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name: one path component, any bytes but NUL and slash.
    pub name: Vec<u8>,
    /// Its kind.
    pub kind: EntryKind,
    /// Its size, of a file, where known.
    pub size_bytes: Option<u64>,
    /// When it was last changed, where known.
    pub modified: Option<SystemTime>,
}

impl Entry {
    /// The name for people.
    pub fn display_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// Directories first, then by name.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
}

/// Everything the page needs is in it; no script runs, nothing is fetched, no page may frame it.
pub const HTML_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// A page for a browser. `cut` says that the directory has more entries than are shown.
pub fn render_html(path: &ResourcePath, entries: &[Entry], cut: bool) -> String {
    let title: String = std::iter::once("/".to_owned())
        .chain(path.names().map(|name| format!("{}/", String::from_utf8_lossy(name))))
        .collect();
    let title = escape(&title);
    let mut page = String::with_capacity(1024 + entries.len() * 160);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    let _ = writeln!(page, "<title>{title}</title>");
    page.push_str(STYLE);
    let _ = write!(page, "</head>\n<body>\n<h1>{title}</h1>\n<table>\n");
    page.push_str("<thead><tr><th>Name</th><th>Size</th><th>Modified</th></tr></thead>\n<tbody>\n");
    if !path.is_root() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
        let (href, text) = (encode_name(&entry.name), escape(&entry.display_name()));
        let size = match (entry.kind, entry.size_bytes) {
            (EntryKind::File, Some(size)) => {
                format!("<td title=\"{size} bytes\">{}</td>", units::format_bytes(size))
            }
            _ => "<td></td>".to_owned(),
        };
        let modified = entry.modified.map(date::format).unwrap_or_default();
        // Nothing in front of it, not even `./`: there are programs that put it behind the URL of the page as it is. No name is
        // read as a scheme (RFC 3986, 4.2), since its colons are encoded.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{href}{slash}\">{text}{slash}</a></td>{size}<td>{modified}</td></tr>"
        );
    }
    page.push_str("</tbody>\n</table>\n");
    if cut {
        let _ = writeln!(page, "<p>This directory has more entries; only {} are shown.</p>", entries.len());
    }
    page.push_str("</body>\n</html>\n");
    page
}

const STYLE: &str = "<style>\nbody{font-family:system-ui,sans-serif;margin:2rem}\ntable{border-collapse:collapse}\n\
                     th,td{padding:.2rem 1rem .2rem 0;text-align:left}\ntd:nth-child(2),th:nth-child(2){text-align:right}\n\
                     tbody tr:hover{background:#8882}\n</style>\n";

/// An array of objects with `name`, `type`, `mtime` and, for files, `size`.
pub fn render_json(entries: &[Entry]) -> String {
    let rows: Vec<serde_json::Value> = entries
        .iter()
        .map(|entry| {
            let mut row = serde_json::Map::new();
            row.insert("name".into(), entry.display_name().into());
            let kind = if entry.kind == EntryKind::Directory { "directory" } else { "file" };
            row.insert("type".into(), kind.into());
            if let Some(modified) = entry.modified {
                row.insert("mtime".into(), date::format(modified).into());
            }
            if let (EntryKind::File, Some(size)) = (entry.kind, entry.size_bytes) {
                row.insert("size".into(), size.into());
            }
            row.into()
        })
        .collect();
    serde_json::Value::from(rows).to_string()
}

/// Text for HTML, in an element or between quotes. Control characters become visible.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(name: &[u8]) -> Entry {
        Entry {
            name: name.to_vec(),
            kind: EntryKind::File,
            size_bytes: Some(1500),
            modified: date::parse(DATE),
        }
    }

    const DATE: &str = "Wed, 21 Oct 2015 07:28:00 GMT";

    #[test]
    fn json_is_nginx_s() {
        let directory = Entry {
            name: b"d".to_vec(),
            kind: EntryKind::Directory,
            size_bytes: Some(4096),
            modified: date::parse(DATE),
        };
        let json: serde_json::Value = serde_json::from_str(&render_json(&[directory, file(b"f\"")])).unwrap();
        let expected = serde_json::json!([
            {"name": "d", "type": "directory", "mtime": DATE},
            {"name": "f\"", "type": "file", "mtime": DATE, "size": 1500},
        ]);
        assert_eq!(json, expected);
    }

    #[test]
    fn html_shows_names_as_text() {
        let path = ResourcePath::parse("/%3Cb%3E").unwrap();
        let page = render_html(&path, &[file(b"\"><script>alert(1)</script>"), file(b"javascript:x")], true);
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
        assert!(page.contains("&lt;script&gt;") && page.contains("<h1>/&lt;b&gt;/</h1>"), "{page}");
        assert!(page.contains("href=\"../\"") && page.contains("1.50 kB") && page.contains(DATE));
        assert!(page.contains("href=\"javascript%3Ax\"") && page.contains("only 2 are shown"));
        assert!(!render_html(&ResourcePath::root(), &[], false).contains("../"));
    }

    #[test]
    fn directories_come_first() {
        let mut entries = vec![file(b"a"), Entry { kind: EntryKind::Directory, ..file(b"z") }, file(b"A")];
        sort(&mut entries);
        let names: Vec<_> = entries.iter().map(Entry::display_name).collect();
        assert_eq!(names, ["z", "A", "a"]);
    }

    proptest! {
        #[test]
        fn every_link_is_its_name_and_nothing_else(name in prop::collection::vec(1u8.., 1..30)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let page = render_html(&ResourcePath::root(), &[file(&name)], false);
            let href = page.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            prop_assert_eq!(href, encode_name(&name));
            prop_assert!(!href.contains([':', '/', '?', '#']) && !href.starts_with('.') || name.starts_with(b"."));
        }

        #[test]
        fn no_name_makes_markup(name in prop::collection::vec(1u8.., 1..30)) {
            let plain = render_html(&ResourcePath::root(), &[file(b"x")], false);
            let page = render_html(&ResourcePath::root(), &[file(&name)], false);
            for mark in ['<', '>', '"'] {
                prop_assert_eq!(page.matches(mark).count(), plain.matches(mark).count());
            }
        }
    }
}
