//! Values that may be written in more than one way.

use gridlane_core::units::parse_bytes;
use gridlane_core::{Error, ErrorKind, Fault, Result};
use serde::Deserialize;

/// A number, or a text such as `10TB`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl Word {
    /// The number of bytes that it says.
    pub fn bytes(self) -> Result<u64> {
        match self {
            Word::Number(bytes) => Ok(bytes),
            Word::Text(text) => parse_bytes(&text),
        }
    }

    /// The bytes per second that it says: `10MB/s`.
    pub fn bytes_per_s(self) -> Result<u64> {
        match self {
            Word::Number(bytes) => Ok(bytes),
            Word::Text(text) => parse_bytes(text.trim_end_matches("/s")),
        }
    }

    /// The rights that it takes away: a text has octal digits.
    pub fn umask(self) -> Result<u32> {
        let umask = match self {
            Word::Number(bits) => u32::try_from(bits).ok(),
            Word::Text(text) => u32::from_str_radix(&text, 8).ok(),
        };
        umask.filter(|bits| *bits <= 0o777).ok_or_else(|| wrong("an umask is written as \"027\""))
    }
}

/// A text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// A list of them.
    Several(Vec<String>),
}

impl Words {
    /// All of them.
    pub fn all(self) -> Vec<String> {
        match self {
            Words::One(one) => vec![one],
            Words::Several(several) => several,
        }
    }
}

/// A mistake in a configuration.
pub fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message).fault(Fault::Caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_say_the_same() {
        #[derive(Deserialize)]
        struct Table {
            size: Word,
            rate: Word,
            umask: Word,
            names: Words,
        }
        for text in [
            "size = 10000\nrate = 2000\numask = 0o27\nnames = [\"a\"]",
            "size = \"10kB\"\nrate = \"2kB/s\"\numask = \"027\"\nnames = \"a\"",
        ] {
            let table: Table = crate::file::parse(text).unwrap();
            let numbers = (table.size.bytes().unwrap(), table.rate.bytes_per_s().unwrap());
            assert_eq!((numbers, table.umask.umask().unwrap()), ((10_000, 2000), 0o27));
            assert_eq!(table.names.all(), ["a"]);
        }
        assert!(Word::Text("999".to_owned()).umask().is_err());
        assert!(Word::Number(0o1000).umask().is_err());
    }
}
