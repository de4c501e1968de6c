//! The answer to `fattr`: how it went for each name, or the names that there are.
//!
//! ```text
//!  del, set: errors (1)   count (1)   count × { code (2)   name and NUL }
//!  get: the same, then count × { length (4)   value }
//!  list: names, each with NUL; with values { name and NUL   length (4)   value }
//! ```

use gridlane_core::limits::{ATTRIBUTE_VALUE_BYTES_MAX, ROOT_ATTRIBUTES_MAX};

use crate::Malformed;
use crate::registry::ErrorCode;
use crate::wire::Reader;

/// An attribute's name and value.
pub type Attribute = (Vec<u8>, Vec<u8>);
/// An attribute's name, and its value or why there is none.
pub type Outcome = (Vec<u8>, Result<Vec<u8>, ErrorCode>);

/// The outcome for each attribute.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FattrAnswer {
    /// Name, and what came of it; the value is empty for what sets and removes.
    pub outcomes: Vec<Outcome>,
}

impl FattrAnswer {
    /// Appends the answer without its head; values only if they were asked for.
    pub fn encode(&self, with_values: bool, out: &mut Vec<u8>) {
        let failed = self.outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
        // There are at most 16.
        out.extend_from_slice(&[failed as u8, self.outcomes.len() as u8]);
        for (name, outcome) in &self.outcomes {
            let code = outcome.as_ref().err().map_or(0, |code| code.0 as u16);
            out.extend_from_slice(&code.to_be_bytes());
            out.extend_from_slice(name);
            out.push(0);
        }
        if with_values {
            for (_, outcome) in &self.outcomes {
                write_value(outcome.as_deref().unwrap_or_default(), out);
            }
        }
    }

    /// Reads what is behind the head.
    pub fn parse(bytes: &[u8], with_values: bool) -> Result<FattrAnswer, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.skip(1)?;
        let count = usize::from(reader.u8()?);
        if count > ROOT_ATTRIBUTES_MAX {
            return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "an answer has too many attributes"));
        }
        let mut outcomes = Vec::with_capacity(count);
        for _ in 0..count {
            let code = reader.u16()?;
            let name = reader.terminated()?.to_vec();
            outcomes.push((name, if code == 0 { Ok(Vec::new()) } else { Err(ErrorCode(code.into())) }));
        }
        if with_values {
            for (_, outcome) in &mut outcomes {
                let value = read_value(&mut reader)?;
                if let Ok(known) = outcome {
                    *known = value;
                }
            }
        }
        Ok(FattrAnswer { outcomes })
    }
}

/// Appends the answer to `list` without its head: names, and values if they were asked for.
pub fn write_list(attributes: &[Attribute], with_values: bool, out: &mut Vec<u8>) {
    for (name, value) in attributes {
        out.extend_from_slice(name);
        out.push(0);
        if with_values {
            write_value(value, out);
        }
    }
}

/// Reads the answer to `list`.
pub fn parse_list(bytes: &[u8], with_values: bool) -> Result<Vec<Attribute>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut attributes = Vec::new();
    while !reader.is_empty() {
        let name = reader.terminated()?.to_vec();
        let value = if with_values { read_value(&mut reader)? } else { Vec::new() };
        if !name.is_empty() {
            attributes.push((name, value));
        }
    }
    Ok(attributes)
}

fn write_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(value);
}

fn read_value(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let len = reader.length()? as usize;
    if len > ATTRIBUTE_VALUE_BYTES_MAX {
        return Err(Malformed::new(ErrorCode::ARG_TOO_LONG, "an attribute's value is too long"));
    }
    reader.take(len).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::testing::hex;

    #[test]
    fn as_captured() {
        let set = FattrAnswer { outcomes: vec![(b"k".to_vec(), Ok(vec![]))] };
        let mut out = Vec::new();
        set.encode(false, &mut out);
        assert_eq!(out, hex("00 01 0000 6b 00"));
        let outcomes =
            vec![(b"k".to_vec(), Ok(b"vv".to_vec())), (b"zz".to_vec(), Err(ErrorCode::ATTRIBUTE_NOT_FOUND))];
        let get = FattrAnswer { outcomes };
        let mut out = Vec::new();
        get.encode(true, &mut out);
        assert_eq!(out, hex("01 02 0000 6b 00 0bd3 7a7a 00 00000002 7676 00000000"));
        assert_eq!(FattrAnswer::parse(&out, true), Ok(get));
        assert_eq!(
            FattrAnswer::parse(&out[..6], false).map(|_| ()),
            Err(FattrAnswer::parse(&out[..6], false).unwrap_err())
        );
        let list = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), vec![])];
        let mut out = Vec::new();
        write_list(&list, true, &mut out);
        assert_eq!(parse_list(&out, true), Ok(list));
        assert!(parse_list(b"a\0\x7f\xff\xff\xff", true).is_err());
    }
}
