//! Texts that came from outside, as they may be shown to a person.
//!
//! A control character commands the terminal that it reaches: it moves the cursor, erases what stands there,
//! sets the title, answers in the person's place. A character that directs the order of writing (U+202E and
//! its like), and one that is not seen at all, makes a text look like another one. Names of files and words
//! of peers can have both.

use std::fmt;

/// The character in the place of one that is not shown.
pub const REPLACEMENT: char = '\u{fffd}';

/// True if a character is not to be shown: a control character (Unicode's categories Cc, Zl and Zp), or one
/// that only directs how others are shown (Cf), and is not seen itself.
pub fn is_unprintable(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_control();
    }
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text on one line, each character that is not to be shown as U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars().map(|char| if is_unprintable(char) { REPLACEMENT } else { char }).collect()
}

/// The same for a text of several lines: their ends, and tabulators, stay.
pub fn printable_lines(text: &str) -> String {
    let is_layout = |char: char| matches!(char, '\n' | '\t');
    let shown = |char| if is_unprintable(char) && !is_layout(char) { REPLACEMENT } else { char };
    text.chars().map(shown).collect()
}

/// JSON on one line with each character that is not to be shown as `\uXXXX`, which reads as the same value.
/// JSON itself demands this of U+0000 to U+001F only, and outside of its texts has none of the others.
pub fn printable_json(json: String) -> String {
    if !json.chars().any(is_unprintable) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for char in json.chars() {
        if is_unprintable(char) {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(char);
        }
    }
    shown
}

/// The `Display` form of a value, on one line, with nothing that is not to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(pub T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_commands_a_terminal_or_hides_is_not_shown() {
        for hostile in
            ["\x1b[2J", "\r", "\n", "\x07", "\x7f", "\u{9b}31m", "\u{202e}", "\u{2066}", "\u{200b}"]
        {
            let shown = printable(&format!("a{hostile}b"));
            assert!(
                shown.contains(REPLACEMENT) && !shown.chars().any(is_unprintable),
                "{hostile:?}: {shown:?}"
            );
        }
        for plain in ["a b", "é", "日本", "עברית", "🦀", "~", "e\u{301}", "\u{fffd}"] {
            assert_eq!(printable(plain), plain);
        }
        assert_eq!(printable_lines("a\nb\x1b\r\n"), "a\nb\u{fffd}\u{fffd}\n");
        assert_eq!(Printable("a\nb").to_string(), "a\u{fffd}b");
    }

    #[test]
    fn json_reads_the_same() {
        let json = "{\"a\":\"\u{7f}é\u{202e}\u{9b}\u{e0041}\"}".to_owned();
        assert_eq!(printable_json(json), "{\"a\":\"\\u007fé\\u202e\\u009b\\udb40\\udc41\"}");
        assert_eq!(printable_json("{}".to_owned()), "{}");
    }

    proptest! {
        #[test]
        fn nothing_gets_through_and_nothing_else_is_changed(text in any::<String>()) {
            let shown = printable(&text);
            prop_assert!(!shown.chars().any(is_unprintable));
            prop_assert_eq!(shown.chars().count(), text.chars().count());
            prop_assert!(text.chars().zip(shown.chars()).all(|(a, b)| a == b || is_unprintable(a)));
            prop_assert_eq!(printable_lines(&text).replace(['\n', '\t'], "\u{fffd}"), shown);
            prop_assert!(!printable_json(text).chars().any(is_unprintable));
        }
    }
}
