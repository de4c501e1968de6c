//! What the checksum of the object should be, when some sources say so, some do not, and some lie.
//!
//! Trust no source: a person's own value decides; else the majority of those that say anything. One
//! voice alone is a majority of one. When two halves contradict each other nobody can tell who is right.

use gridlane_core::Checksum;

/// What one source says about the checksum of the whole object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// It has been asked and has not answered.
    Pending,
    /// It does not say, or is of no use.
    Silent,
    /// It says this.
    Says(Checksum),
}

/// Where the expected checksum comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The person who started the copy.
    User,
    /// The file's metalink: the checksum of the whole, or those of all pieces.
    Metalink,
    /// `agreeing` of `asked` sources that said anything.
    Sources {
        /// How many said this value.
        agreeing: usize,
        /// How many said anything.
        asked: usize,
    },
}

/// What follows from the votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Later votes may still change it.
    Open,
    /// Nobody says anything: nothing to compare with.
    Nothing,
    /// No value has more than half of the votes. The values, as they were said.
    Split(Vec<Checksum>),
    /// The object must have this checksum; `liars` (by number) said something else.
    Agreed { checksum: Checksum, basis: Basis, liars: Vec<usize> },
}

/// Counts the votes, unless somebody has `told` what is right.
pub(crate) fn count(told: Option<(&Checksum, Basis)>, votes: &[Vote]) -> Verdict {
    if let Some((checksum, basis)) = told {
        let liars = contradicting(votes, checksum);
        return Verdict::Agreed { checksum: checksum.clone(), basis, liars };
    }
    let pending = votes.iter().filter(|vote| **vote == Vote::Pending).count();
    let mut values: Vec<(&Checksum, usize)> = Vec::new();
    for vote in votes {
        if let Vote::Says(checksum) = vote {
            match values.iter_mut().find(|(value, _)| *value == checksum) {
                Some((_, agreeing)) => *agreeing += 1,
                None => values.push((checksum, 1)),
            }
        }
    }
    let asked: usize = values.iter().map(|(_, agreeing)| agreeing).sum();
    let winner = values.iter().find(|(_, agreeing)| 2 * agreeing > asked + pending);
    match winner {
        Some((checksum, agreeing)) => Verdict::Agreed {
            checksum: (*checksum).clone(),
            basis: Basis::Sources { agreeing: *agreeing, asked },
            liars: contradicting(votes, checksum),
        },
        None if pending > 0 => Verdict::Open,
        None if asked == 0 => Verdict::Nothing,
        None => Verdict::Split(values.into_iter().map(|(value, _)| value.clone()).collect()),
    }
}

fn contradicting(votes: &[Vote], checksum: &Checksum) -> Vec<usize> {
    let differs =
        |vote: &Vote| matches!(vote, Vote::Says(said) if said.kind() == checksum.kind() && said != checksum);
    votes.iter().enumerate().filter(|(_, vote)| differs(vote)).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(value: u32) -> Vote {
        Vote::Says(Checksum::adler32(value))
    }

    #[test]
    fn the_majority_decides_and_the_liar_is_named() {
        let Verdict::Agreed { checksum, liars, basis } =
            count(None, &[says(1), says(2), says(1), Vote::Silent])
        else {
            panic!()
        };
        assert_eq!((checksum, liars), (Checksum::adler32(1), vec![1]));
        assert_eq!(basis, Basis::Sources { agreeing: 2, asked: 3 });
    }

    #[test]
    fn one_voice_is_enough_but_a_contradiction_is_not() {
        assert!(matches!(count(None, &[says(1), Vote::Silent]), Verdict::Agreed { .. }));
        assert!(matches!(count(None, &[says(1), says(2)]), Verdict::Split(values) if values.len() == 2));
        assert_eq!(count(None, &[Vote::Silent]), Verdict::Nothing);
        assert_eq!(count(None, &[]), Verdict::Nothing);
    }

    #[test]
    fn a_vote_that_is_out_may_change_the_result() {
        assert_eq!(count(None, &[says(1), Vote::Pending]), Verdict::Open);
        assert_eq!(count(None, &[says(1), says(2), Vote::Pending]), Verdict::Open);
        assert!(matches!(count(None, &[says(1), says(1), Vote::Pending]), Verdict::Agreed { .. }));
    }

    #[test]
    fn a_person_overrules_everybody() {
        let user = Checksum::adler32(7);
        let Verdict::Agreed { liars, basis, .. } =
            count(Some((&user, Basis::User)), &[says(1), Vote::Pending, says(7)])
        else {
            panic!()
        };
        assert_eq!((liars, basis), (vec![0], Basis::User));
    }
}
