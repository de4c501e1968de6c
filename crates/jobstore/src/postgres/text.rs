//! Text without the character NUL, which PostgreSQL does not take.

use std::borrow::Cow;

/// Stands before what stands for NUL (`0`) and for itself (`1`): SUBSTITUTE, which no real name has.
const MARK: char = '\u{1a}';

/// The text as PostgreSQL has it.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == 0 || byte == MARK as u8) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => escaped.extend([MARK, '0']),
            MARK => escaped.extend([MARK, '1']),
            _ => escaped.push(letter),
        }
    }
    Cow::Owned(escaped)
}

/// The text that PostgreSQL has like this.
pub(super) fn unescape(text: String) -> String {
    if !text.contains(MARK) {
        return text;
    }
    let mut letters = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            MARK => match letters.next() {
                Some('0') => '\0',
                _ => MARK,
            },
            _ => letter,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_has_a_nul() {
        for text in ["", "plain", "\0", "a\0b\0", "\u{1a}", "\u{1a}0", "\0\u{1a}1\0", "ß\0é"] {
            let escaped = escape(text);
            assert!(!escaped.contains('\0'), "{text:?}");
            assert_eq!(unescape(escaped.into_owned()), text);
        }
        assert_ne!(escape("\0"), escape("\u{1a}0"));
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
    }
}
