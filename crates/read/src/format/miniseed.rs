//! MiniSEED, version 2.

use super::Fields;

/// The length of a record, in bytes, of a MiniSEED file that begins with these (SEED 2.4, chapter 8, and blockette 1000). All
/// records of a file have it, so that a window of time is found by bisection.
pub fn record_bytes(head: &[u8]) -> Option<u64> {
    let number = head.get(..6)?;
    let is_number = number.iter().all(|byte| byte.is_ascii_digit() || *byte == b' ');
    if !is_number || !matches!(head.get(6)?, b'D' | b'R' | b'Q' | b'M') || !matches!(head.get(7)?, b' ' | 0) {
        return None;
    }
    let mut fields = Fields { bytes: head, at: 46 };
    let mut at = usize::from(fields.u16()?);
    // Blockettes are few, and follow each other.
    for _ in 0..8 {
        let mut blockette = Fields { bytes: head, at };
        let (kind, next) = (blockette.u16()?, usize::from(blockette.u16()?));
        if kind == 1000 {
            let exponent = *head.get(at + 6)?;
            return (7..=20).contains(&exponent).then(|| 1 << exponent);
        }
        if next <= at {
            return None;
        }
        at = next;
    }
    None
}
