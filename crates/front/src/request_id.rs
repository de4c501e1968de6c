//! Ids of requests in logs and answers.

/// The id of a request: both numbers in hexadecimal digits.
pub(crate) fn request_id(started_s: u64, number: u64) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut id = String::with_capacity(33);
    for (index, value) in [started_s, number].into_iter().enumerate() {
        if index > 0 {
            id.push('-');
        }
        let digits = (64 - (value | 1).leading_zeros()).div_ceil(4);
        id.extend((0..digits).rev().map(|place| char::from(DIGITS[(value >> (4 * place)) as usize & 15])));
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_two_numbers() {
        for (started, number) in [(0, 0), (1, 0xf), (0x6747_a1b2, 0x10), (u64::MAX, u64::MAX)] {
            assert_eq!(request_id(started, number), format!("{started:x}-{number:x}"));
        }
    }
}
