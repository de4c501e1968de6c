//! JSON of requests, as it may come from anyone: bounded before it is read, and read as forgivingly as FTS3 does, whose clients
//! write numbers as texts and flags as letters.

use gridlane_core::limits::{JSON_OBJECT_VALUES, JSON_VALUES_MAX};
use gridlane_core::text::is_unprintable;
use serde_json::{Map, Value};

use crate::Refusal;

/// The object that a request's body is, of at most so many bytes.
///
/// # Errors
/// 413 for a body that is too long, or whose values would take too much memory. 400 for what is not JSON, or no object.
pub fn object(body: &[u8], bytes_max: usize) -> Result<Map<String, Value>, Refusal> {
    match json(body, bytes_max)? {
        Value::Object(map) => Ok(map),
        _ => Err(Refusal::bad("Expecting a dictionary")),
    }
}

/// The JSON that a request's body is, of at most so many bytes.
///
/// # Errors
/// As of [`object`].
pub fn json(body: &[u8], bytes_max: usize) -> Result<Value, Refusal> {
    if body.len() > bytes_max {
        return Err(Refusal::new(413, format!("The request has more than {bytes_max} bytes")));
    }
    if memory_in_values(body) > JSON_VALUES_MAX {
        return Err(Refusal::new(413, "The request has too many values"));
    }
    serde_json::from_slice(body)
        .map_err(|cause| Refusal::bad(format!("Badly formatted JSON request: {cause}")))
}

/// Memory that JSON takes once it is read, in values: each but the first is behind a comma, a colon or an opening bracket.
fn memory_in_values(body: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' if !is_text => values += 1,
            b'{' if !is_text => values += JSON_OBJECT_VALUES,
            _ => {}
        }
    }
    values
}

/// A flag: `true`, a number but 0, or a text that begins with Y; anything else is none (fts3-rest 1).
pub fn flag(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => text.starts_with(['Y', 'y']),
        _ => false,
    }
}

/// A whole number, or a text of one. `None`: it is not there, or null. A fraction is cut off.
///
/// # Errors
/// In Python's words, which FTS3 hands on: a text that is no number; another type.
pub fn integer(value: Option<&Value>) -> Result<Option<i64>, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(i64::from(*flag))),
        // Numbers that are larger than any limit are as good as the largest one.
        Some(Value::Number(number)) => {
            Ok(Some(number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64)))
        }
        Some(Value::String(text)) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Refusal::invalid(format!("invalid literal for int() with base 10: '{text}'"))),
        },
        Some(other) => Err(Refusal::malformed(format!("a number is expected and not {}", kind(other)))),
    }
}

/// A whole number, or a text of one; what is neither is -1, which means the default.
pub fn lenient_integer(value: Option<&Value>) -> i64 {
    integer(value).ok().flatten().unwrap_or(-1)
}

/// A text of at most so many bytes, without characters that are not to be shown. `None`: it is not there, or null.
///
/// # Errors
/// It is no text, too long, or has such characters, of which a data base does not take all.
pub fn text(name: &str, value: Option<&Value>, bytes_max: usize) -> Result<Option<String>, Refusal> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > bytes_max => {
            Err(Refusal::invalid(format!("{name}: Length {} exceeds allowed {bytes_max}", text.len())))
        }
        Some(Value::String(text)) if text.chars().any(is_unprintable) => {
            Err(Refusal::invalid(format!("{name}: Unprintable characters")))
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(Refusal::malformed(format!("{name}: a text is expected and not {}", kind(other)))),
    }
}

/// The name of a value's type.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a flag",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Characters of a value as Python writes it, blanks behind commas and colons and all but ASCII escaped: what limits of metadata are
/// in.
pub fn python_chars(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(flag) => {
            if *flag {
                4
            } else {
                5
            }
        }
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => python_text_chars(text),
        Value::Array(items) => {
            2 + items.iter().map(python_chars).sum::<usize>() + 2 * items.len().saturating_sub(1)
        }
        Value::Object(map) => {
            let members = map.iter().map(|(name, value)| python_text_chars(name) + 2 + python_chars(value));
            2 + members.sum::<usize>() + 2 * map.len().saturating_sub(1)
        }
    }
}

fn python_text_chars(text: &str) -> usize {
    let chars = text.chars().map(|char| match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        ' '..='~' => 1,
        _ => 6 * char.len_utf16(),
    });
    2 + chars.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn flags_have_many_forms() {
        for yes in [json!(true), json!(1), json!("Y"), json!("yes"), json!(0.5)] {
            assert!(flag(Some(&yes)), "{yes}");
        }
        for no in [
            json!(false),
            json!(0),
            json!("N"),
            json!(""),
            json!("true"),
            json!(null),
            json!([1]),
            json!({"a": 1}),
        ] {
            assert!(!flag(Some(&no)), "{no}");
        }
        assert!(!flag(None));
    }

    #[test]
    fn numbers_have_many_forms() {
        for (value, number) in [
            (json!(3), Some(3)),
            (json!("-4"), Some(-4)),
            (json!(" 5 "), Some(5)),
            (json!(6.9), Some(6)),
            (json!(true), Some(1)),
            (json!(null), None),
            (json!(1e300), Some(i64::MAX)),
            (json!(u64::MAX), Some(i64::MAX)),
        ] {
            assert_eq!(integer(Some(&value)).unwrap(), number, "{value}");
        }
        let refusal = integer(Some(&json!("this-is-a-string"))).unwrap_err();
        assert!(refusal.message.starts_with("Invalid value within the request: invalid literal for int()"));
        assert!(integer(Some(&json!([]))).unwrap_err().message.starts_with("Malformed request"));
        assert_eq!((lenient_integer(Some(&json!("x"))), lenient_integer(None)), (-1, -1));
    }

    #[test]
    fn what_is_no_object_is_refused_in_the_words_of_fts3() {
        assert!(
            object(b"thisXisXnotXjson", 99).unwrap_err().message.starts_with("Badly formatted JSON request")
        );
        assert_eq!(object(b"[]", 99).unwrap_err().message, "Expecting a dictionary");
        assert_eq!(object(b"{}", 1).unwrap_err().status, 413);
        let deep = "[".repeat(100_000);
        assert_eq!(object(deep.as_bytes(), 1 << 20).unwrap_err().status, 400);
    }

    #[test]
    fn json_that_swells_is_not_read() {
        let swelling = format!("[{}0]", "{\"\":0},".repeat(200_000));
        assert_eq!(json(swelling.as_bytes(), 1 << 24).unwrap_err().status, 413);
        let texts = serde_json::to_vec(&json!({"a": "{[,:\\\"{".repeat(500_000)})).unwrap();
        assert!(object(&texts, 1 << 24).is_ok(), "brackets in texts are no values");
    }

    #[test]
    fn metadata_is_as_long_as_python_writes_it() {
        for (value, chars) in [
            (json!({"a": 1, "b": [true, null]}), r#"{"a": 1, "b": [true, null]}"#.len()),
            (json!("é\n\"😀\u{7f}"), r#""\u00e9\n\"\ud83d\ude00\u007f""#.len()),
            (json!([]), 2),
            (json!({}), 2),
        ] {
            assert_eq!(python_chars(&value), chars, "{value}");
        }
    }

    proptest! {
        #[test]
        fn counted_memory_is_no_less_than_the_values(depth in 0_u32..4, text in "[\\[\\]{},:\"\\\\a0 ]{0,40}") {
            let mut value = Value::String(text);
            for _ in 0..depth {
                value = json!([value, {"k": value}]);
            }
            fn count(value: &Value) -> usize {
                match value {
                    Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
                    Value::Object(map) => 1 + map.values().map(count).sum::<usize>(),
                    _ => 1,
                }
            }
            prop_assert!(memory_in_values(value.to_string().as_bytes()) >= count(&value));
        }
    }
}
