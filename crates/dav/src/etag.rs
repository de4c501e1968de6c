//! Entity tags (RFC 9110, 8.8.3): what tells one state of a file from another.

use std::fmt;

use crate::header::{OWS, trim};

/// An entity tag. Strong tags promise equal bytes, weak ones only equal meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag {
    weak: bool,
    /// The text between the quotes.
    opaque: String,
}

impl ETag {
    /// A strong tag; `None` when `opaque` has a character that a tag cannot hold.
    pub fn strong(opaque: impl Into<String>) -> Option<ETag> {
        let opaque = opaque.into();
        opaque.bytes().all(is_tag_byte).then_some(ETag { weak: false, opaque })
    }

    /// Reads exactly one tag: `"x"` or `W/"x"`.
    pub fn parse(text: &str) -> Option<ETag> {
        let (tag, rest) = take(trim(text))?;
        rest.is_empty().then_some(tag)
    }

    /// True if the tag is weak.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// The text between the quotes.
    pub fn opaque(&self) -> &str {
        &self.opaque
    }

    /// Both strong and equal: the same bytes.
    pub fn matches_strongly(&self, other: &ETag) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Equal but for weakness: the same meaning.
    pub fn matches_weakly(&self, other: &ETag) -> bool {
        self.opaque == other.opaque
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.opaque)
    }
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ETagList {
    /// `*`: whatever exists.
    Any,
    /// These.
    Tags(Vec<ETag>),
}

impl ETagList {
    /// Reads a list over one or more field values; `None` when one of them is malformed.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<ETagList> {
        let mut tags = Vec::new();
        let mut any = false;
        for value in values {
            let mut rest = trim(value);
            if rest == "*" {
                any = true;
                continue;
            }
            while !rest.is_empty() {
                if let Some(after) = rest.strip_prefix(',') {
                    rest = after.trim_start_matches(OWS);
                    continue;
                }
                let (tag, after) = take(rest)?;
                tags.push(tag);
                rest = after.trim_start_matches(OWS);
                if !rest.is_empty() && !rest.starts_with(',') {
                    return None;
                }
            }
        }
        match (any, tags.is_empty()) {
            (true, true) => Some(ETagList::Any),
            (false, false) => Some(ETagList::Tags(tags)),
            _ => None,
        }
    }
}

fn take(text: &str) -> Option<(ETag, &str)> {
    let (weak, quoted) = match text.strip_prefix("W/") {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let (opaque, rest) = quoted.strip_prefix('"')?.split_once('"')?;
    opaque.bytes().all(is_tag_byte).then(|| (ETag { weak, opaque: opaque.to_owned() }, rest))
}

/// RFC 9110, 8.8.3: `etagc`.
fn is_tag_byte(byte: u8) -> bool {
    byte == b'!' || (b'#'..=b'~').contains(&byte) || byte > 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weak_and_strong() {
        let strong = ETag::parse("\"a,b\"").unwrap();
        let weak = ETag::parse("W/\"a,b\"").unwrap();
        assert!(strong.matches_strongly(&strong) && strong.matches_weakly(&weak));
        assert!(!weak.matches_strongly(&weak) && !strong.matches_strongly(&weak));
        for bad in ["", "a", "\"a", "a\"", "\"a\"b", "w/\"a\"", "\"a b\"", "\"\"\""] {
            assert_eq!(ETag::parse(bad), None, "{bad}");
        }
        assert_eq!(ETag::strong("a\"b"), None);
    }

    #[test]
    fn lists() {
        assert_eq!(ETagList::parse(["*"]), Some(ETagList::Any));
        let tags = |texts: &[&str]| ETagList::Tags(texts.iter().map(|t| ETag::parse(t).unwrap()).collect());
        assert_eq!(
            ETagList::parse(["\"a\", W/\"b,c\",", "\"d\""]),
            Some(tags(&["\"a\"", "W/\"b,c\"", "\"d\""]))
        );
        for bad in [&["a"][..], &["\"a\" \"b\""], &["*", "\"a\""], &[""], &["\"a\", b"]] {
            assert_eq!(ETagList::parse(bad.iter().copied()), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(opaque in "[!#-~é]{0,20}", weak: bool) {
            let tag = ETag { weak, opaque };
            prop_assert_eq!(ETag::parse(&tag.to_string()), Some(tag));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = ETag::parse(&text);
            let _ = ETagList::parse([text.as_str()]);
        }
    }
}
