//! JSON that means one thing only: no key is there twice, and nothing is deeper than is needed.
//!
//! Two readers of an object with a key that is there twice may see different ones (RFC 8259, 4); a token must not say one
//! thing to its issuer and another one here.

use std::fmt;

use gridlane_core::limits;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::refusal::{Cause, Refusal};

/// Reads an object, and nothing behind it. `what` is what it is called in a refusal.
pub(crate) fn object(bytes: &[u8], what: &str) -> Result<Map<String, Value>, Refusal> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let read = Strict { depth_left: limits::TOKEN_JSON_DEPTH_MAX }.deserialize(&mut from);
    match read.and_then(|value| from.end().map(|()| value)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::new(Cause::Malformed, format!("{what} is no JSON object"))),
        Err(cause) => Err(Refusal::new(Cause::Malformed, format!("{what} is not read: {cause}"))),
    }
}

/// A text of an object: `None` when it is not there.
pub(crate) fn text<'a>(
    object: &'a Map<String, Value>,
    key: &str,
    what: &str,
) -> Result<Option<&'a str>, Refusal> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::new(Cause::Malformed, format!("{key:?} of {what} is no text"))),
    }
}

#[derive(Clone, Copy)]
struct Strict {
    depth_left: usize,
}

impl Strict {
    fn inside<E: Error>(self) -> Result<Strict, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Strict { depth_left }),
            None => Err(E::custom("too much is inside of each other")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(inside)? {
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inside)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read() {
        let read = |text: &str| object(text.as_bytes(), "it");
        let text = r#"{"a":[1,-2,1.5,true,null,"x\u00e9"],"b":{"c":{}}}"#;
        assert_eq!(Value::Object(read(text).unwrap()), text.parse::<Value>().unwrap());
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(read(&nested(limits::TOKEN_JSON_DEPTH_MAX)).is_ok());
        for text in [
            "",
            "1",
            "[]",
            "{",
            "{}{}",
            "{} x",
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":{"a":1,"b":2,"a":3}}"#,
            "{'a':1}",
            r#"{"a":NaN}"#,
            "{\"a\":\"\u{1}\"}",
            &nested(limits::TOKEN_JSON_DEPTH_MAX + 1),
            &nested(5000),
        ] {
            assert_eq!(read(text).unwrap_err().cause, Cause::Malformed, "{text}");
        }
        assert!(object(b"{\"a\":\"\xff\"}", "it").is_err());
    }
}
