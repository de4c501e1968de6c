//! Header fields: names of any case, several lines of one name, lists with commas.

use std::borrow::Cow;
use std::ops::Range;

use gridlane_core::{Error, ErrorKind, Result};

/// The fields of one head, in the order they came.
/// Its `Debug` shows names only: tokens and passwords are among the values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// All names and values in one piece of memory, each name in front of its value. Names are lower case; values have no
    /// space around them.
    text: String,
    fields: Vec<Field>,
}

/// Where one is in the text: its name ends where its value begins.
#[derive(Clone, PartialEq, Eq)]
struct Field {
    start: usize,
    value: Range<usize>,
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

impl Headers {
    /// No field.
    pub fn new() -> Headers {
        Headers::default()
    }

    /// Appends a field. Bytes of `value` that are not UTF-8 are replaced: no field that we read has any.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        // The plain check first: it takes several bytes at a time.
        let value = std::str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed);
        let start = self.text.len();
        self.text.push_str(name);
        self.text[start..].make_ascii_lowercase();
        let value_start = self.text.len();
        self.text.push_str(trim(&value));
        self.fields.push(Field { start, value: value_start..self.text.len() });
    }

    pub(crate) fn from_parsed(fields: &[httparse::Header<'_>]) -> Headers {
        let text_bytes = fields.iter().map(|field| field.name.len() + field.value.len()).sum();
        let mut headers =
            Headers { text: String::with_capacity(text_bytes), fields: Vec::with_capacity(fields.len()) };
        for field in fields {
            headers.push(field.name, field.value);
        }
        headers
    }

    /// Every value of `name`, in order. `name` is written in any case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        // Most lengths tell already: a request is asked for two dozen names.
        let is_it = move |field: &&Field| {
            field.value.start - field.start == name.len()
                && self.text[field.start..field.value.start].eq_ignore_ascii_case(name)
        };
        self.fields.iter().filter(is_it).map(|field| &self.text[field.value.clone()])
    }

    /// The first value of `name`.
    pub fn get<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    /// The value of `name` when exactly one field has that name: two answers are no answer.
    pub fn single<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.all(name);
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    /// The elements of a comma-separated list over all fields of `name`, empty ones left out.
    ///
    /// Not for lists whose elements may hold commas themselves (dates, quoted strings).
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.all(name).flat_map(|value| value.split(',')).map(trim).filter(|element| !element.is_empty())
    }

    /// True if a list contains `token`, in any case.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.list(name).any(|element| element.eq_ignore_ascii_case(token))
    }

    /// True if there is a field of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Every field, names in lower case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let of =
            |field: &Field| (&self.text[field.start..field.value.start], &self.text[field.value.clone()]);
        self.fields.iter().map(of)
    }

    /// `Content-Length` (RFC 9110, 8.6): digits only. Repeated equal values count as one; different ones
    /// are an error, since two programs in a row could disagree about where the message ends.
    pub fn content_length(&self) -> Result<Option<u64>> {
        let mut length = None;
        for value in self.all("content-length").flat_map(|value| value.split(',')).map(trim) {
            let parsed = number(value).ok_or_else(|| {
                Error::new(ErrorKind::Protocol, format!("Content-Length {value:?} is not a number"))
            })?;
            if length.is_some_and(|before| before != parsed) {
                return Err(Error::new(ErrorKind::Protocol, "two different values of Content-Length"));
            }
            length = Some(parsed);
        }
        Ok(length)
    }
}

/// The weight of one of several wishes, `text/html;q=0.5` (RFC 9110, 12.4.2): 1 where none is given, 0 where it
/// cannot be read or is none.
pub fn weight(element: &str) -> f64 {
    let mut parameters = element.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    match parameters.find(|(name, _)| trim(name).eq_ignore_ascii_case("q")) {
        Some((_, value)) => {
            trim(value).parse().ok().filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0)
        }
        None => 1.0,
    }
}

/// Without the white space that may stand around a value and its parts: space and tab, and nothing else
/// (RFC 9110, 5.6.3). `str::trim` takes all of Unicode's, and the next program in a row does not.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(OWS)
}

pub(crate) const OWS: [char; 2] = [' ', '\t'];

/// A number as protocols write it: digits, and nothing else. `None` when it does not fit.
pub(crate) fn number(text: &str) -> Option<u64> {
    let valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| valid)
}

/// Reads a quoted string (RFC 9110, 5.6.4) from behind its first quote: what it says, and what is behind its
/// last one; `None` when that is missing.
pub(crate) fn unquote(text: &str) -> (String, Option<&str>) {
    let (mut value, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        match character {
            '"' => return (value, Some(characters.as_str())),
            '\\' => value.extend(characters.next()),
            plain => value.push(plain),
        }
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.push(name, value.as_bytes());
        }
        headers
    }

    #[test]
    fn names_have_no_case_and_lists_span_lines() {
        let headers = headers(&[("CONNECTION", " close "), ("x", "a"), ("connection", ", TE,")]);
        assert_eq!(headers.get("Connection"), Some("close"));
        assert_eq!(headers.single("Connection"), None);
        assert_eq!(headers.list("Connection").collect::<Vec<_>>(), ["close", "TE"]);
        assert!(headers.has_token("connection", "te"));
        assert!(!headers.contains("y"));
    }

    #[test]
    fn content_length_is_digits_and_one() {
        for (values, expected) in [
            (&[][..], Some(None)),
            (&["5"], Some(Some(5))),
            (&["5", "5"], Some(Some(5))),
            (&["5, 5"], Some(Some(5))),
            (&["18446744073709551615"], Some(Some(u64::MAX))),
            (&["5", "6"], None),
            (&["5,6"], None),
            (&["+5"], None),
            (&["-5"], None),
            (&["0x5"], None),
            (&["5 5"], None),
            (&[""], None),
            (&["5,"], None),
            (&["\t5 "], Some(Some(5))),
            (&["5\u{a0}"], None),
            (&["\u{a0}5"], None),
            (&["5,\u{3000}5"], None),
            (&["\u{b}5"], None),
            (&["18446744073709551616"], None),
        ] {
            let fields: Vec<_> = values.iter().map(|value| ("Content-Length", *value)).collect();
            assert_eq!(headers(&fields).content_length().ok(), expected, "{values:?}");
        }
    }
}
