//! Credentials that were seen, so that who listens on the way cannot show them again.

use std::collections::{HashSet, VecDeque};

use gridlane_core::limits::SSS_SEEN_MAX;

/// What makes credentials unique: the number of the key, and the random bytes and time at their beginning. Of these no bit can
/// be changed by who has no key: what follows would become random, and the checksum wrong.
pub(super) type Nonce = [u8; 48];

/// The credentials that were seen while they are good.
#[derive(Debug, Default)]
pub struct Seen {
    known: HashSet<Nonce>,
    /// When each is forgotten, in seconds since 1970, in the order in which they came.
    ends: VecDeque<(i64, Nonce)>,
}

/// Why credentials are not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// They were seen before.
    Replayed,
    /// There is no room to remember them.
    Full,
}

impl Seen {
    /// Remembers credentials up to `until_s`.
    pub(super) fn admit(&mut self, nonce: Nonce, until_s: i64, now_s: i64) -> Result<(), Unseen> {
        // Times of clients differ by a few seconds, so that one that came later may end before; it stays a little longer.
        while let Some((_, old)) = self.ends.pop_front_if(|(ends_s, _)| *ends_s <= now_s) {
            self.known.remove(&old);
        }
        if self.known.contains(&nonce) {
            return Err(Unseen::Replayed);
        }
        if self.ends.len() >= SSS_SEEN_MAX {
            return Err(Unseen::Full);
        }
        self.known.insert(nonce);
        self.ends.push_back((until_s, nonce));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_seen_twice_while_it_is_good() {
        let mut seen = Seen::default();
        assert_eq!(seen.admit([1; 48], 20, 10), Ok(()));
        assert_eq!(seen.admit([2; 48], 15, 10), Ok(()));
        assert_eq!(seen.admit([1; 48], 20, 19), Err(Unseen::Replayed));
        assert_eq!(seen.admit([1; 48], 40, 20), Ok(()));
        assert_eq!(seen.ends.len(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut seen = Seen::default();
        let nonce = |number: usize| {
            let mut nonce = [0; 48];
            nonce[..8].copy_from_slice(&number.to_be_bytes());
            nonce
        };
        (0..SSS_SEEN_MAX).for_each(|number| assert_eq!(seen.admit(nonce(number), 20, 10), Ok(())));
        assert_eq!(seen.admit(nonce(SSS_SEEN_MAX), 20, 10), Err(Unseen::Full));
        assert_eq!(seen.admit(nonce(SSS_SEEN_MAX), 40, 20), Ok(()));
    }
}
