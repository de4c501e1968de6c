//! Comparing both ends of a copy that servers have made.
//!
//! As gfal2 does it: the size, and a checksum of a kind that both servers state. What the user or a metalink says counts
//! more than what the source says.

use std::time::{SystemTime, UNIX_EPOCH};

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_engine::{Basis, Options};
use gridlane_peer::Client;
use tokio::task::JoinSet;

use super::ends::{Seen, Word, ask};
use super::proof::mismatch;
use super::telling::Compared;

/// The ends as they are.
#[derive(Debug)]
pub(super) struct Ends {
    /// The target's server's word; `None`: it says nothing.
    target: Option<Word>,
    /// Of each source the same.
    sources: Vec<Option<Word>>,
}

/// Asks the servers of both ends about the file, of `size_bytes` if that is known. A target that is not there is an error.
pub(super) async fn look(
    client: &Client,
    sources: &[Url],
    target: &Url,
    size_bytes: Option<u64>,
    options: &Options,
) -> Result<Ends> {
    let kinds = kinds(options);
    let size_bytes = size_bytes.unwrap_or(0);
    let mut asking = JoinSet::new();
    for (number, url) in sources.iter().enumerate().filter(|(_, url)| url.scheme().is_http()) {
        let (client, url, kinds) = (client.clone(), url.clone(), kinds.clone());
        asking.spawn(async move { (number, ask(&client, &url, &kinds, size_bytes).await.ok()) });
    }
    let target_word = match ask(client, target, &kinds, size_bytes).await {
        Ok(word) => Some(word),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = "the server says that the copy is made, and there is no file at the target";
            return Err(Error::new(ErrorKind::Protocol, message).fault(Fault::Peer).endpoint(target));
        }
        // It takes files, and shows none, perhaps.
        Err(_) => None,
    };
    let mut words = vec![None; sources.len()];
    while let Some(joined) = asking.join_next().await {
        if let Ok((number, word)) = joined {
            words[number] = word;
        }
    }
    // A source that answers by another kind than the target is asked for that.
    let of_target = target_word.iter().flat_map(|word| &word.checksums).map(Checksum::kind).next();
    if let Some(kind) = of_target {
        for (url, word) in sources.iter().zip(&mut words) {
            if word.as_ref().is_some_and(|word| word.of(kind).is_none() && !word.checksums.is_empty())
                && let Ok(again) = ask(client, url, &[kind], size_bytes).await
            {
                *word = Some(again);
            }
        }
    }
    Ok(Ends { target: target_word, sources: words })
}

/// The kinds to ask for, the best first.
fn kinds(options: &Options) -> Vec<ChecksumKind> {
    let mut kinds: Vec<ChecksumKind> = options.checksum.iter().map(|(kind, _)| *kind).collect();
    kinds.extend(options.known.checksums.iter().map(Checksum::kind));
    kinds.extend(ChecksumKind::ALL);
    let mut found = Vec::new();
    kinds.retain(|kind| {
        let is_new = !found.contains(kind);
        found.push(*kind);
        is_new
    });
    kinds
}

/// The values that are right whatever sources say.
fn known(options: &Options) -> Vec<(Basis, &Checksum)> {
    let given = options.checksum.as_ref().and_then(|(_, value)| value.as_ref());
    let given = given.map(|value| (Basis::User, value));
    given.into_iter().chain(options.known.checksums.iter().map(|value| (Basis::Metalink, value))).collect()
}

/// True if a metalink tells right bytes from wrong ones by its pieces only: servers that copy do not know it.
pub(super) fn has_pieces_alone(options: &Options) -> bool {
    options.known.pieces.is_some() && options.known.checksums.is_empty()
}

/// The checksum that is right, with the party that says so; or the kind alone that the user asked for.
pub(super) fn wanted(options: &Options) -> (Option<(ChecksumKind, Option<Checksum>)>, Option<Basis>) {
    let of_metalink = || {
        let known = options.known.checksums.first()?;
        Some((known.kind(), Some(known.clone())))
    };
    match &options.checksum {
        Some((kind, Some(value))) => (Some((*kind, Some(value.clone()))), Some(Basis::User)),
        asked => match of_metalink() {
            Some(known) => (Some(known), Some(Basis::Metalink)),
            None => (asked.clone(), None),
        },
    }
}

impl Ends {
    /// Compares them. `size_bytes`: what the target should have.
    pub(super) fn compare(
        &self,
        target: &Url,
        size_bytes: Option<u64>,
        options: &Options,
    ) -> Result<Compared> {
        let compared = self.compare_checksums(target, options)?;
        let found = self.target.as_ref().and_then(|word| word.size_bytes);
        let wanted = size_bytes.or_else(|| self.sources.iter().flatten().find_map(|word| word.size_bytes));
        if let (Some(found), Some(wanted)) = (found, wanted)
            // Some servers say in answer to HEAD that anything is empty; but not that it has the checksum of nothing.
            && found != wanted && (found > 0 || compared.basis.is_none() || compared.is_of_nothing())
        {
            let message = format!("the copy has {found} bytes, and the source {wanted}");
            return Err(Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(target));
        }
        if compared.basis.is_none() && options.require_verified {
            let message =
                "the bytes cannot be verified: the servers state no checksum that could be compared";
            let error = Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer);
            return Err(error.hint(Hint::AcceptUnverified).endpoint(target));
        }
        Ok(compared)
    }

    fn compare_checksums(&self, target: &Url, options: &Options) -> Result<Compared> {
        let found = |kind| self.target.as_ref().and_then(|word| word.of(kind));
        let known = known(options);
        if !known.is_empty() {
            let mut compared = Compared::default();
            for (basis, right) in known {
                let Some(found) = found(right.kind()) else { continue };
                if found != right {
                    return Err(mismatch(target, found, right));
                }
                let (basis, checksum) = (compared.basis.or(Some(basis)), compared.checksum);
                compared = Compared { basis, checksum: checksum.or(Some(found.clone())), unstated: None };
            }
            // Else what sources say of another kind is better than nothing.
            if compared.basis.is_some() {
                return Ok(compared);
            }
        }
        let Some((found, votes)) = self.votes(options) else {
            let unstated = options.checksum.as_ref().map(|(kind, _)| *kind);
            let checksum = self.target.as_ref().and_then(|word| word.checksums.first()).cloned();
            return Ok(Compared { basis: None, checksum, unstated });
        };
        let agreeing = votes.iter().filter(|vote| **vote == found).count();
        if let Some(other) = votes.iter().find(|vote| **vote != found)
            && 2 * agreeing <= votes.len()
        {
            return Err(mismatch(target, found, other));
        }
        let asked = options.checksum.as_ref().map(|(kind, _)| *kind);
        Ok(Compared {
            basis: Some(Basis::Sources { agreeing, said: votes.len(), named: self.sources.len() }),
            checksum: Some(found.clone()),
            unstated: asked.filter(|kind| *kind != found.kind()),
        })
    }

    /// The target's checksum, and those of sources that can be compared with it: of the kind that is best.
    fn votes(&self, options: &Options) -> Option<(&Checksum, Vec<&Checksum>)> {
        let target = self.target.as_ref()?;
        kinds(options).into_iter().find_map(|kind| {
            let votes: Vec<_> = self.sources.iter().flatten().filter_map(|word| word.of(kind)).collect();
            let found = target.of(kind).filter(|_| !votes.is_empty())?;
            Some((found, votes))
        })
    }

    /// True if the target's server says of the file that it was last changed then.
    pub(super) fn keeps(&self, modified: SystemTime) -> bool {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
        let said = self.target.as_ref().and_then(|word| word.modified);
        said.is_some_and(|said| seconds(said) == seconds(modified))
    }

    /// True if what is at the target is certainly what was there before.
    pub(super) fn are_still(&self, before: &Seen) -> bool {
        self.target.as_ref().is_some_and(|word| word.is_still(before))
    }

    /// Bytes of the target, if its server says that.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        self.target.as_ref()?.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(size_bytes: u64, checksums: &[&str]) -> Option<Word> {
        let checksums = checksums.iter().map(|text| text.parse().unwrap()).collect();
        Some(Word { size_bytes: Some(size_bytes), checksums, ..Word::default() })
    }

    fn compared(target: Option<Word>, sources: Vec<Option<Word>>, options: &Options) -> Result<Compared> {
        let url = Url::parse_absolute("https://se.example/f").unwrap();
        Ends { target, sources }.compare(&url, Some(5), options)
    }

    const ONE: &str = "adler32:00000001";
    const TWO: &str = "adler32:00000002";
    const MD5: &str = "md5:d41d8cd98f00b204e9800998ecf8427e";

    #[test]
    fn sources_decide_by_majority() {
        let plain = Options::default();
        let one = compared(word(5, &[ONE]), vec![word(5, &[ONE])], &plain).unwrap();
        assert_eq!(one.basis, Some(Basis::Sources { agreeing: 1, said: 1, named: 1 }));
        assert_eq!(one.checksum.unwrap().to_string(), ONE);
        let wrong = compared(word(5, &[ONE]), vec![word(5, &[TWO])], &plain).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::ChecksumMismatch);
        assert!(wrong.message().contains(ONE) && wrong.message().contains(TWO), "{wrong}");
        let three = vec![word(5, &[ONE]), word(5, &[TWO]), None, word(5, &[ONE])];
        let most = compared(word(5, &[ONE]), three.clone(), &plain).unwrap();
        assert_eq!(most.basis, Some(Basis::Sources { agreeing: 2, said: 3, named: 4 }));
        assert!(compared(word(5, &[TWO]), three, &plain).is_err());
        let split = vec![word(5, &[ONE]), word(5, &[TWO])];
        assert!(compared(word(5, &[ONE]), split, &plain).is_err(), "half is no majority");
    }

    #[test]
    fn without_a_common_kind_it_is_unverified() {
        let plain = Options::default();
        for (target, source) in [
            (word(5, &[MD5]), word(5, &[ONE])),
            (word(5, &[]), word(5, &[ONE])),
            (word(5, &[ONE]), None),
            (None, word(5, &[ONE])),
        ] {
            assert_eq!(compared(target.clone(), vec![source.clone()], &plain).unwrap().basis, None);
            let strict = Options { require_verified: true, ..Options::default() };
            let error = compared(target, vec![source], &strict).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChecksumMismatch);
            assert_eq!(error.advice(), Some(&Hint::AcceptUnverified));
        }
        let asked = Options { checksum: Some((ChecksumKind::Md5, None)), ..Options::default() };
        let other = compared(word(5, &[ONE]), vec![word(5, &[ONE])], &asked).unwrap();
        assert_eq!((other.basis.is_some(), other.unstated), (true, Some(ChecksumKind::Md5)));
    }

    #[test]
    fn what_is_known_counts_more_than_sources() {
        let value: Checksum = TWO.parse().unwrap();
        let given = Options { checksum: Some((value.kind(), Some(value))), ..Options::default() };
        let right = compared(word(5, &[TWO]), vec![word(5, &[ONE])], &given).unwrap();
        assert_eq!(right.basis, Some(Basis::User));
        assert!(compared(word(5, &[ONE]), vec![word(5, &[ONE])], &given).is_err());
        let other = compared(word(5, &[MD5]), vec![word(5, &[MD5])], &given).unwrap();
        assert_eq!(other.basis, Some(Basis::Sources { agreeing: 1, said: 1, named: 1 }));
        assert_eq!(other.unstated, Some(ChecksumKind::Adler32));
        let mut described = Options::default();
        described.known.checksums = vec![MD5.parse().unwrap(), ONE.parse().unwrap()];
        let right = compared(word(5, &[ONE]), vec![None], &described).unwrap();
        assert_eq!(right.basis, Some(Basis::Metalink));
        assert!(compared(word(5, &[ONE, MD5]), vec![None], &described).is_ok());
        assert!(compared(word(5, &[TWO]), vec![None], &described).is_err());
    }

    #[test]
    fn sizes_are_compared_as_well() {
        let plain = Options::default();
        let short = compared(word(4, &[ONE]), vec![word(5, &[ONE])], &plain).unwrap_err();
        assert!(short.message().contains("4 bytes") && short.message().contains('5'), "{short}");
        assert!(compared(word(0, &[]), vec![word(5, &[])], &plain).is_err());
        let other = "adler32:00000003";
        assert!(compared(word(0, &[other]), vec![word(5, &[other])], &plain).is_ok());
        // Both are empty by now.
        let emptied = compared(word(0, &[ONE]), vec![word(0, &[ONE])], &plain).unwrap_err();
        assert!(emptied.message().contains("0 bytes"), "{emptied}");
    }
}
