//! The search for the sender of wrong bytes, when only the whole object's checksum is known and does not match.
//!
//! Each hypothesis names the senders that are believed. Bytes of all others are fetched again from
//! those; then the checksum is compared again. First, one sender after the other is disbelieved, the
//! smallest contributor first, because that costs least. If more than one lies, each source is believed
//! alone, in turn. If any source is honest, one of these ends with the right bytes; every one of them
//! only fetches what the earlier ones have not brought from the same senders. What is found out on the way
//! rules others out: two that sent different bytes for the same place are not believed together.

use std::collections::{BTreeSet, VecDeque};

use super::ledger::{EARLIER, Sender};

/// The hypotheses that have not been tried.
#[derive(Debug)]
pub(super) struct Suspects {
    untried: VecDeque<Vec<Sender>>,
    /// Pairs that sent different bytes for the same place.
    contradicting: BTreeSet<[Sender; 2]>,
}

impl Suspects {
    /// For an object put together by `senders` (smallest contribution first), with `sources` left that
    /// can be asked again.
    pub(super) fn new(senders: &[Sender], sources: &[Sender]) -> Suspects {
        let mut untried = VecDeque::new();
        let mut believe = |believed: Vec<Sender>| {
            // A source must be left to fetch from, and not all can be believed: that is the status quo.
            let can_fetch = believed.iter().any(|sender| sources.contains(sender));
            let doubts = senders.iter().any(|sender| !believed.contains(sender));
            if can_fetch && doubts && !untried.contains(&believed) {
                untried.push_back(believed);
            }
        };
        // What an earlier run left behind is the first to be doubted, all of it at once.
        believe(sources.to_vec());
        for suspect in senders.iter().filter(|sender| **sender < EARLIER) {
            believe(sources.iter().copied().filter(|source| source != suspect).collect());
        }
        for source in sources {
            believe(vec![*source]);
        }
        Suspects { untried, contradicting: BTreeSet::new() }
    }

    /// Two have sent different bytes for the same place: one of them lies.
    pub(super) fn contradict(&mut self, one: Sender, other: Sender) {
        self.contradicting.insert([one, other]);
    }

    /// The next set of senders to believe, of those of which at least one `is_here` to send, if there are any; `None` when
    /// every hypothesis has failed.
    pub(super) fn next(&mut self, is_here: impl Fn(Sender) -> bool) -> Option<Vec<Sender>> {
        let contradicting = &self.contradicting;
        let is_sound = |believed: &Vec<Sender>| {
            let believes_both = |pair: &[Sender; 2]| pair.iter().all(|sender| believed.contains(sender));
            !contradicting.iter().any(believes_both)
        };
        self.untried.retain(is_sound);
        let first = self.untried.iter().position(|believed| believed.iter().any(|sender| is_here(*sender)));
        self.untried.remove(first.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_contributor_is_doubted_first() {
        let mut suspects = Suspects::new(&[2, 0, 1], &[0, 1, 2]);
        assert_eq!(suspects.next(|_| true), Some(vec![0, 1]));
        assert_eq!(suspects.next(|_| true), Some(vec![1, 2]));
        assert_eq!(suspects.next(|_| true), Some(vec![0, 2]));
        assert_eq!(suspects.next(|_| true), Some(vec![0]));
    }

    #[test]
    fn two_who_contradict_each_other_are_not_believed_together() {
        let mut suspects = Suspects::new(&[2, 0, 1], &[0, 1, 2]);
        assert_eq!(suspects.next(|_| true), Some(vec![0, 1]));
        suspects.contradict(2, 1);
        assert_eq!(
            suspects.next(|_| true),
            Some(vec![0, 2]),
            "source 0 is not the only liar: the others differ"
        );
        assert_eq!(suspects.next(|_| true), Some(vec![0]), "alone, everybody is still tried");
        assert_eq!(suspects.next(|_| true), Some(vec![1]));
    }

    #[test]
    fn what_an_earlier_copy_left_is_doubted_before_anyone_else() {
        let mut suspects = Suspects::new(&[0, EARLIER], &[0]);
        assert_eq!(suspects.next(|_| true), Some(vec![0]));
        assert_eq!(suspects.next(|_| true), None);
    }

    #[test]
    fn those_that_cannot_send_now_are_believed_last() {
        let mut suspects = Suspects::new(&[0, 1], &[0, 1]);
        assert_eq!(suspects.next(|sender| sender == 0), Some(vec![0]));
        assert_eq!(suspects.next(|sender| sender == 0), Some(vec![1]), "it may come back");
        assert_eq!(suspects.next(|_| true), None);
    }

    #[test]
    fn a_single_source_has_nobody_to_be_compared_with() {
        assert_eq!(Suspects::new(&[0], &[0]).next(|_| true), None);
    }

    proptest! {
        /// If any source is honest, some hypothesis ends without a byte of a liar, also when the sources that differ are known.
        #[test]
        fn the_honest_are_found(liars in prop::collection::vec(any::<bool>(), 1..7), order in any::<u64>(), is_telling in any::<bool>()) {
            let sources: Vec<Sender> = (0..liars.len() as u32).collect();
            let mut senders = sources.clone();
            senders.sort_by_key(|sender| order.rotate_left(sender * 9) & 0xff);
            let is_liar = |sender: &Sender| liars[*sender as usize];
            prop_assume!(!liars.iter().all(|liar| *liar) && liars.iter().any(|liar| *liar));
            let mut suspects = Suspects::new(&senders, &sources);
            let mut held = senders.clone();
            let mut tries = 0;
            loop {
                let Some(believed) = suspects.next(|_| true) else { panic!("gave up on {liars:?}") };
                tries += 1;
                for doubted in held.iter().filter(|sender| !believed.contains(sender) && is_telling) {
                    for other in believed.iter().filter(|other| is_liar(other) != is_liar(doubted)) {
                        suspects.contradict(*doubted, *other);
                    }
                }
                // Bytes of the disbelieved are replaced by bytes of the believed, liars or not.
                if held.iter().any(|sender| !believed.contains(sender)) {
                    held.retain(|sender| believed.contains(sender));
                    held.extend(believed.iter().copied());
                }
                if !held.iter().any(is_liar) {
                    break;
                }
            }
            prop_assert!(tries <= 2 * sources.len() + 1);
        }
    }
}
