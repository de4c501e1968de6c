//! Conditional requests (RFC 9110, 13), evaluated in the order of section 13.2.2.

use std::time::SystemTime;

use crate::date;
use crate::etag::{ETag, ETagList};
use crate::header::Headers;
use crate::method::Method;

/// The identity of the present state of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// Its entity tag.
    pub etag: ETag,
    /// When it was last changed.
    pub modified: SystemTime,
}

/// The outcome of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Proceed,
    /// 304: the client has it already.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates `If-Match`, `If-Unmodified-Since`, `If-None-Match` and `If-Modified-Since` against the
/// file's present state, `None` when there is no such file.
///
/// A condition that cannot be read counts as absent where it only saves bytes, and as not fulfilled
/// where it protects a file: `If-Match`, and `If-None-Match` in front of a change. An unreadable date is ignored
/// everywhere, as sections 13.1.3 and 13.1.4 demand.
pub fn evaluate(headers: &Headers, method: &Method, current: Option<&Validators>) -> Verdict {
    let reads = matches!(method, Method::Get | Method::Head);
    if headers.contains("if-match") {
        let matches = match (ETagList::parse(headers.all("if-match")), current) {
            (Some(ETagList::Any), Some(_)) => true,
            (Some(ETagList::Tags(tags)), Some(current)) => {
                tags.iter().any(|tag| tag.matches_strongly(&current.etag))
            }
            _ => false,
        };
        if !matches {
            return Verdict::Failed;
        }
    } else if let (Some(since), Some(current)) =
        (headers.single("if-unmodified-since").and_then(date::parse), current)
        && date::whole_seconds(current.modified) > date::whole_seconds(since)
    {
        return Verdict::Failed;
    }
    if headers.contains("if-none-match") {
        let matches = match (ETagList::parse(headers.all("if-none-match")), current) {
            (Some(ETagList::Any), current) => current.is_some(),
            (Some(ETagList::Tags(tags)), Some(current)) => {
                tags.iter().any(|tag| tag.matches_weakly(&current.etag))
            }
            (Some(ETagList::Tags(_)), None) => false,
            (None, _) => !reads,
        };
        return match (matches, reads) {
            (false, _) => Verdict::Proceed,
            (true, true) => Verdict::NotModified,
            (true, false) => Verdict::Failed,
        };
    }
    if let (true, Some(since), Some(current)) =
        (reads, headers.single("if-modified-since").and_then(date::parse), current)
        && date::whole_seconds(current.modified) <= date::whole_seconds(since)
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// True if a `Range` counts, given `If-Range` (RFC 9110, 13.1.5): without it always; with it when the
/// file is provably the one that the client has a part of.
///
/// A date proves nothing: it has whole seconds, and any user can set a file's. Every answer has a strong
/// entity tag, so a client that sends a date nevertheless gets the whole file.
pub fn range_applies(headers: &Headers, current: &Validators) -> bool {
    if !headers.contains("if-range") {
        return true;
    }
    let tag = headers.single("if-range").and_then(ETag::parse);
    tag.is_some_and(|tag| tag.matches_strongly(&current.etag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn current() -> Validators {
        let modified = date::parse(SAME).unwrap() + Duration::from_millis(500);
        Validators { etag: ETag::strong("x").unwrap(), modified }
    }

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.push(name, value.as_bytes()));
        headers
    }

    #[test]
    fn the_table() {
        use Verdict::{Failed, NotModified, Proceed};
        // Fields, then what GET, PUT over an existing file and PUT of a new file come to.
        type Row = (&'static [(&'static str, &'static str)], [Verdict; 3]);
        let table: &[Row] = &[
            (&[], [Proceed, Proceed, Proceed]),
            (&[("If-Match", "\"x\"")], [Proceed, Proceed, Failed]),
            (&[("If-Match", "\"y\", \"x\"")], [Proceed, Proceed, Failed]),
            (&[("If-Match", "\"y\"")], [Failed, Failed, Failed]),
            (&[("If-Match", "W/\"x\"")], [Failed, Failed, Failed]),
            (&[("If-Match", "*")], [Proceed, Proceed, Failed]),
            (&[("If-Match", "x")], [Failed, Failed, Failed]),
            (&[("If-None-Match", "\"x\"")], [NotModified, Failed, Proceed]),
            (&[("If-None-Match", "W/\"x\"")], [NotModified, Failed, Proceed]),
            (&[("If-None-Match", "\"y\"")], [Proceed, Proceed, Proceed]),
            (&[("If-None-Match", "*")], [NotModified, Failed, Proceed]),
            (&[("If-None-Match", "x")], [Proceed, Failed, Failed]),
            (&[("If-Unmodified-Since", SAME)], [Proceed, Proceed, Proceed]),
            (&[("If-Unmodified-Since", EARLIER)], [Failed, Failed, Proceed]),
            (&[("If-Unmodified-Since", "never")], [Proceed, Proceed, Proceed]),
            (&[("If-Modified-Since", SAME)], [NotModified, Proceed, Proceed]),
            (&[("If-Modified-Since", LATER)], [NotModified, Proceed, Proceed]),
            (&[("If-Modified-Since", EARLIER)], [Proceed, Proceed, Proceed]),
            // Entity tags outrank dates.
            (&[("If-Match", "\"x\""), ("If-Unmodified-Since", EARLIER)], [Proceed, Proceed, Failed]),
            (&[("If-None-Match", "\"y\""), ("If-Modified-Since", LATER)], [Proceed, Proceed, Proceed]),
            (&[("If-Match", "\"x\""), ("If-None-Match", "\"x\"")], [NotModified, Failed, Failed]),
        ];
        for (fields, expected) in table {
            let (headers, current) = (headers(fields), current());
            let verdicts = [
                evaluate(&headers, &Method::Get, Some(&current)),
                evaluate(&headers, &Method::Put, Some(&current)),
                evaluate(&headers, &Method::Put, None),
            ];
            assert_eq!(verdicts, *expected, "{fields:?}");
        }
    }

    #[test]
    fn if_range() {
        for (value, expected) in [
            ("\"x\"", true),
            ("W/\"x\"", false),
            ("\"y\"", false),
            (SAME, false),
            (EARLIER, false),
            (LATER, false),
            ("x", false),
        ] {
            assert_eq!(range_applies(&headers(&[("If-Range", value)]), &current()), expected, "{value}");
        }
        assert!(range_applies(&headers(&[]), &current()));
    }
}
