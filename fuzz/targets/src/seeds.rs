//! Seeds and words of a target as text that people can read and change: `fuzz/seeds/NAME.txt`.
//!
//! ```text
//! # A remark. In front of the first seed, every line is a word of the grammar.
//! Transfer-Encoding
//! \r\n
//! ## A seed, and where it is from
//! GET / HTTP/1.1\r
//! Host: h\r
//! \r
//!
//! ## The next one
//! …
//! ```
//!
//! A seed is the lines below its title with LF between them; so it ends in LF when its last line is empty.
//! `\r`, `\n`, `\t`, `\\` and `\xHH` are what they are in Rust.

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub struct Seeds {
    /// Inputs to begin with.
    pub inputs: Vec<Vec<u8>>,
    /// Words of the grammar.
    pub words: Vec<Vec<u8>>,
}

impl Seeds {
    /// Reads such a text.
    ///
    /// # Panics
    /// When it has an escape that is none.
    pub fn parse(text: &str) -> Seeds {
        let mut seeds = Seeds::default();
        let mut sections = text.strip_suffix('\n').unwrap_or(text).split("\n## ");
        let words = sections.next().unwrap_or_default();
        let words = words.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        seeds.words = words.map(unescape).collect();
        for section in sections {
            let (_title, input) = section.split_once('\n').unwrap_or((section, ""));
            seeds.inputs.push(unescape(input));
        }
        seeds
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let (byte, len) = match escape.as_bytes() {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', ..] => match escape.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) => (byte, 3),
                None => panic!("an escape that is none: {escape:.10}"),
            },
            _ => panic!("an escape that is none: {escape:.10}"),
        };
        bytes.push(byte);
        rest = &escape[len..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// An input as it stands in such a file.
pub fn escape(input: &[u8]) -> String {
    let mut text = String::with_capacity(input.len());
    for byte in input {
        match byte {
            b'\n' => text.push('\n'),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(*byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says() {
        let seeds = Seeds::parse("# remark\nHost\n\\x00\\r\n\n## one\na\\r\n\\r\n\n## two\nb\\\\\n");
        assert_eq!(seeds.words, [b"Host".to_vec(), b"\0\r".to_vec()]);
        assert_eq!(seeds.inputs, [b"a\r\n\r\n".to_vec(), b"b\\".to_vec()]);
    }

    #[test]
    fn any_input_can_be_written_down() {
        let input: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&input)), input);
    }
}
