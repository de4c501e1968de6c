//! Media types by file name: enough for a browser to show what people keep beside their data.

use crate::header::trim;

/// The type that any file may have.
pub const OCTETS: &str = "application/octet-stream";

/// Extension in lower case, media type. Only types that a browser treats as text, picture or page, and
/// those that scientific tools look for.
const TYPES: &[(&str, &str)] = &[
    ("avif", "image/avif"),
    ("csv", "text/csv; charset=utf-8"),
    ("fits", "image/fits"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h5", "application/x-hdf5"),
    ("hdf5", "application/x-hdf5"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("meta4", "application/metalink4+xml"),
    ("metalink", "application/metalink+xml"),
    ("nc", "application/x-netcdf"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("root", "application/x-root"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("txt", "text/plain; charset=utf-8"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// The media type for a file of this name.
pub fn of_name(name: &[u8]) -> &'static str {
    let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else { return OCTETS };
    let extension = &name[dot + 1..];
    TYPES
        .iter()
        .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(extension))
        .map_or(OCTETS, |(_, media_type)| media_type)
}

/// The type that a `Content-Type` names: without parameters, in lower case.
pub fn of_field(content_type: &str) -> String {
    trim(content_type.split(';').next().unwrap_or_default()).to_ascii_lowercase()
}

/// True if a browser may run scripts in a document of this type. All XML is, for it may be styled.
pub fn is_active(media_type: &str) -> bool {
    [
        "text/html",
        "image/svg+xml",
        "application/xml",
        "application/pdf",
        "application/metalink4+xml",
        "application/metalink+xml",
    ]
    .iter()
    .any(|active| media_type.starts_with(active))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_extension() {
        assert_eq!(of_name(b"a.TXT"), "text/plain; charset=utf-8");
        assert_eq!(of_name(b"a.tar.gz"), "application/gzip");
        for name in [&b"a"[..], b"a.", b"", b"a.unknown", b"txt", b"\xff.\xff"] {
            assert_eq!(of_name(name), OCTETS);
        }
        assert!(TYPES.is_sorted());
        for active in ["page.html", "a.meta4", "a.metalink", "a.xml", "a.svg"] {
            assert!(is_active(of_name(active.as_bytes())), "{active}");
        }
        assert!(!is_active(of_name(b"a.txt")));
    }

    #[test]
    fn in_a_field() {
        for (field, expected) in [("Text/HTML; charset=x", "text/html"), (" a/b ;c", "a/b"), ("", "")] {
            assert_eq!(of_field(field), expected, "{field}");
        }
    }
}
