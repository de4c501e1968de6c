//! Files of configuration: TOML whose mistakes have the file's name and their line, and other files that tables name.

use std::fs;
use std::path::Path;

use gridlane_core::{Error, ErrorKind, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::value::wrong;

/// Reads a file by `parse`. A mistake has the name of the file, and its line: the one that `parse` names, or that of the
/// table that it names by its name or number (`[[export]] /data`).
pub fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let text = fs::read_to_string(path)
        .map_err(|cause| Error::new(ErrorKind::Usage, format!("cannot read {}: {cause}", path.display())))?;
    parse(&text).map_err(|error| placed(error, &text, path))
}

/// The error with the file and the line of the table that it names.
pub fn placed(error: Error, text: &str, path: &Path) -> Error {
    let place = error.endpoint_text().map(str::to_owned);
    let error = match place.and_then(|place| Some((line_of(text, &place)?, place))) {
        Some((line, place)) => error.endpoint(format!("line {line}, {place}")),
        None => error,
    };
    in_file(error, path)
}

/// The error with the file before the line that it names already.
fn in_file(error: Error, file: &Path) -> Error {
    let place = match error.endpoint_text() {
        Some(line) => format!("{}, {line}", file.display()),
        None => file.display().to_string(),
    };
    error.endpoint(place)
}

/// Reads a TOML file; what is wrong in it is named by its line.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    toml::from_str(text).map_err(|cause| {
        let message = cause.message().trim().replace('\n', "; ");
        let error = Error::new(ErrorKind::Usage, message);
        match cause.span() {
            Some(span) => error.endpoint(format!("line {}", line(text, span.start))),
            None => error,
        }
    })
}

pub(crate) fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The line of a place in a file that is named by its table: `[root]`, `[[rule]] 2`, or `[[export]] /data, rule 1`.
fn line_of(text: &str, place: &str) -> Option<usize> {
    let (names, rest) = match place.strip_prefix("[[") {
        Some(list) => list.split_once("]]")?,
        None => place.strip_prefix('[')?.split_once(']')?,
    };
    let table = DeTable::parse(text).ok()?;
    let mut at = table.span().start;
    let mut inner = table.get_ref();
    let mut names = names.split('.').peekable();
    while let Some(name) = names.next() {
        let (key, value) = inner.get_key_value(name)?;
        at = key.span().start;
        match value.get_ref() {
            DeValue::Table(next) => inner = next,
            DeValue::Array(all) if names.peek().is_none() => {
                return in_list(text, all, rest.trim()).or(Some(line(text, at)));
            }
            _ => break,
        }
    }
    Some(line(text, at))
}

/// The line of one of several tables, which `rest` names by its number, from 1, or by its path or URL.
fn in_list(text: &str, all: &[Spanned<DeValue<'_>>], rest: &str) -> Option<usize> {
    let (name, rule) = match rest.split_once(", rule ") {
        Some((name, rule)) => (name, Some(rule)),
        None => (rest.split(": ").next()?, None),
    };
    let is_named = |table: &&Spanned<DeValue<'_>>| {
        let field = |key| table.get_ref().get(key).and_then(|value| value.get_ref().as_str());
        field("path").or(field("url")).unwrap_or("/") == name
    };
    let found = match name.parse::<usize>() {
        Ok(number) => all.get(number.checked_sub(1)?)?,
        Err(_) => all.iter().find(is_named)?,
    };
    let rules = rule.and_then(|_| found.get_ref().get("rules")?.get_ref().as_array());
    match (rules, rule) {
        (Some(rules), Some(rule)) => in_list(text, rules, rule).or(Some(line(text, found.span().start))),
        _ => Some(line(text, found.span().start)),
    }
}

/// The bytes of a file that a table names, of at most so many.
pub fn bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let metadata = fs::metadata(path).map_err(|cause| unreadable(path, &cause))?;
    if metadata.len() > bytes_max {
        return Err(wrong(format!("{} has more than {bytes_max} bytes", path.display())));
    }
    fs::read(path).map_err(|cause| unreadable(path, &cause))
}

/// The same of a text.
pub fn text(path: &Path, bytes_max: u64) -> Result<String> {
    let bytes = bytes(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| wrong(format!("{} is no text", path.display())))
}

/// The same of a text that other users may not read.
pub fn secret(path: &Path, bytes_max: u64) -> Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = fs::metadata(path).map_err(|cause| unreadable(path, &cause))?;
    if metadata.permissions().mode() & 0o007 != 0 {
        let what = format!("{} holds secrets, and every user of this machine may read it", path.display());
        return Err(wrong(what).hint(format!("chmod o= {}", path.display())));
    }
    text(path, bytes_max)
}

/// The error of a file that cannot be read.
pub fn unreadable(path: &Path, cause: &std::io::Error) -> Error {
    Error::local_io(format!("cannot read {}", path.display()), cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn tables_are_found_by_what_errors_call_them() {
        let file = "[root]\n[auth]\n[[auth.issuer]]\nurl = \"https://a\"\n[[auth.issuer]]\nurl = \"https://b\"\n\
                    [[export]]\npath = \"/a\"\n[[export]]\npath = \"/b\"\nrules = [\n {},\n {},\n]\n[[rule]]\n[[rule]]\n";
        for (place, expected) in [
            ("[root]", Some(1)),
            ("[auth]", Some(2)),
            ("[[auth.issuer]] https://b", Some(5)),
            ("[[export]] /a", Some(7)),
            ("[[export]] /b", Some(9)),
            ("[[export]] /b, rule 2", Some(13)),
            ("[[rule]] 2", Some(16)),
            ("[[rule]] 2: inner", Some(16)),
            ("/etc/users, line 3", None),
        ] {
            assert_eq!(line_of(file, place), expected, "{place}");
        }
    }

    #[test]
    fn a_mistake_has_the_file_and_the_line() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            #[serde(rename = "size")]
            _size: u64,
        }
        let of = |text: &str| {
            let error = parse::<Table>(text).unwrap_err();
            placed(error, text, Path::new("/etc/x.toml")).endpoint_text().unwrap().to_owned()
        };
        assert_eq!(of("size = 1\n\nwings = 2\n"), "/etc/x.toml, line 3");
        assert_eq!(of("size = \"much\"\n"), "/etc/x.toml, line 1");
        let text = "[a]\n[[b]]\n[[b]]\n";
        let error = placed(wrong("it is too large").endpoint("[[b]] 2"), text, Path::new("/etc/x.toml"));
        assert_eq!(error.endpoint_text(), Some("/etc/x.toml, line 3, [[b]] 2"));
        let error = placed(wrong("all of it"), text, Path::new("/etc/x.toml"));
        assert_eq!(error.endpoint_text(), Some("/etc/x.toml"));
    }
}
