//! When every byte is there: are they the right ones, and how good was the copy?

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Result, Url};
use gridlane_plan::{self as plan, Found, SourcePath, SourceState, Split, fluid_bound_s};
use gridlane_sys::process::cpu_time;

use crate::digests::{self, hash_file_all};
use crate::events::{Event, Report, Snapshot, SourceReport, SourceSnapshot};
use crate::replica::Replica;
use crate::run::Run;
use crate::source::Source;
use crate::target::Sink;
use crate::verdict::{Basis, Verdict};
use gridlane_plan::judge::suspects::Suspects;
use gridlane_plan::judge::{EARLIER, Sender};

/// A part of the time above which something is called the limit.
const MOSTLY: f64 = 0.7;

impl Run<'_> {
    /// A source was asked for the checksum and says these, or none. It is not waited for any more.
    pub(crate) fn voted(&mut self, source: usize, checksums: Vec<Checksum>) -> Result<()> {
        self.votes.silent(source);
        self.replicas[source].has_spoken = true;
        self.stated(source, checksums)
    }

    /// A source was asked for a strong checksum; `None`: it did not answer.
    pub(crate) fn told_strong(&mut self, source: usize, checksums: Option<Vec<Checksum>>) -> Result<()> {
        self.votes.silent_strong(source);
        if checksums.is_some() {
            self.votes.heard(source, self.pace.now());
        }
        self.stated(source, checksums.unwrap_or_default())
    }

    /// A source states checksums of the file.
    pub(crate) fn stated(&mut self, source: usize, checksums: Vec<Checksum>) -> Result<()> {
        if checksums.is_empty() {
            return Ok(());
        }
        self.votes.heard(source, self.pace.now());
        self.votes.states(source, checksums);
        if let Some((checksum, liars)) = self.settled() {
            self.journal_digest(&checksum)?;
            self.drop_liars(&checksum, &liars);
        }
        Ok(())
    }

    /// The checksum that the file must have, as far as that is settled while bytes come, and who states another one.
    fn settled(&self) -> Option<(Checksum, Vec<usize>)> {
        match self.told() {
            Some((checksum, _)) => Some((checksum.clone(), self.votes.contradicting(checksum))),
            None => self.votes.settled(self.pace.now(), self.digest_kind()),
        }
    }

    /// The checksum that the file must have, as far as that is settled.
    pub(crate) fn agreed(&self) -> Option<Checksum> {
        self.settled().map(|(checksum, _)| checksum)
    }

    /// The checksum that somebody stated who is believed without a vote.
    pub(crate) fn told(&self) -> Option<(&Checksum, Basis)> {
        let user = self.options.checksum.as_ref().and_then(|(_, value)| value.as_ref());
        let known = || self.options.known.checksums.iter().find(|own| own.kind() == self.digest_kind());
        user.map(|checksum| (checksum, Basis::User)).or_else(|| Some((known()?, Basis::Metalink)))
    }

    /// Whether a metalink says what the bytes are, so that nobody is asked for it.
    pub(crate) fn is_described(&self) -> bool {
        let is_told_by_user = matches!(self.options.checksum, Some((_, Some(_))));
        !is_told_by_user && (!self.options.known.checksums.is_empty() || self.target.pieces().is_some())
    }

    /// What follows about the bytes that are there.
    fn verdict(&self, found: &Found) -> Verdict {
        match self.told() {
            Some((checksum, basis)) if found.checksums.contains(checksum) => Verdict::Right(basis),
            Some((checksum, _)) => Verdict::Wrong(checksum.clone()),
            None => self.votes.verdict(self.pace.now(), found).into(),
        }
    }

    /// The kinds of checksums by which the bytes are compared: those that were asked for first.
    fn kinds(&self) -> Vec<ChecksumKind> {
        let mut kinds = digests::kinds(&self.options);
        if self.told().is_none() && !self.is_described() {
            let stated = self.votes.kinds();
            kinds.extend(stated.into_iter().filter(|kind| !digests::kinds(&self.options).contains(kind)));
        }
        kinds
    }

    /// Stops using sources that contradict the agreed checksum, as long as somebody else is left.
    fn drop_liars(&mut self, checksum: &Checksum, liars: &[usize]) {
        let honest = |number: usize| self.replicas[number].dead.is_none() && !liars.contains(&number);
        if !(0..self.replicas.len()).any(honest) {
            return;
        }
        for liar in liars {
            if self.replicas[*liar].dead.is_some() {
                continue;
            }
            let url = self.replicas[*liar].source.url.clone();
            let is_other = |own: &&Checksum| own.kind() == checksum.kind() && *own != checksum;
            let said = self.votes.statement(*liar).iter().find(is_other).map(ToString::to_string);
            let said = said.unwrap_or_else(|| "another checksum".to_owned());
            let message = format!("its copy is another one: it says {said}, agreed is {checksum}");
            let error = Error::new(ErrorKind::ChecksumMismatch, message)
                .hint("tell whoever runs that server")
                .endpoint(url);
            self.kill(*liar, error, true);
        }
    }

    /// Stops using sources that have told two sizes: their bytes may be of another file, or not all of it. Only a
    /// checksum that was told otherwise could still say that they are right.
    fn drop_contradictory(&mut self) {
        if self.told().is_some() || self.is_described() {
            return;
        }
        for number in 0..self.replicas.len() {
            let replica = &self.replicas[number];
            let Some((sent, asked)) = replica.source.two_sizes().filter(|_| replica.dead.is_none()) else {
                continue;
            };
            let message = format!("it says that the file has {sent} bytes, and that it has {asked}");
            let error = Error::new(ErrorKind::Precondition, message)
                .fault(Fault::Peer)
                .hint("copy it again when nobody writes it")
                .retryable(true)
                .endpoint(&replica.source.url);
            self.votes.discredit(number);
            self.kill(number, error, true);
        }
    }

    /// Why somebody is not believed whose bytes are among those that cannot be called back, or who alone says that there are
    /// none at all.
    fn disproved(&self) -> Option<Error> {
        let says_empty = |replica: &Replica| self.size_bytes == Some(0) && replica.size_bytes() == Some(0);
        let is_vouched = self.options.known.size_bytes.is_some()
            || self.replicas.iter().any(|replica| !replica.distrusted && says_empty(replica));
        let ledger = self.target.ledger();
        let is_used = |replica: &&Replica| {
            ledger.bytes_of(replica.source.number) > 0 || !is_vouched && says_empty(replica)
        };
        self.replicas.iter().filter(|replica| replica.distrusted).find(is_used)?.dead.clone()
    }

    /// Compares the whole. `true`: the copy is as right as can be known; `false`: bytes are missing again.
    pub(crate) async fn judge(&mut self) -> Result<bool> {
        // What was so of the bytes says nothing of those that are there now.
        self.verified = None;
        self.verified_with.clear();
        // A lane that lost a race for bytes may have told of them before the winner had written them.
        self.drive(|run| run.target.ledger().is_settled()).await?;
        // A lane may have written for a source after that was found out.
        if self.disbelieve() || self.refetch_missing() {
            return Ok(false);
        }
        if !self.are_pieces_right().await? {
            return Ok(false);
        }
        self.whole(true);
        // A lane that had nothing to fetch has not asked either.
        self.ask_instead();
        let found = self.wait_for_words().await?;
        for number in self.votes.owing(self.pace.now()) {
            self.replicas[number].owed_in_vain = true;
        }
        self.drop_contradictory();
        if !self.plan.is_complete() || self.disbelieve() || self.refetch_missing() {
            self.whole(false);
            return Ok(false);
        }
        let all = &found.checksums;
        let Some(first) = all.first().cloned() else {
            return Err(Error::new(ErrorKind::Other, "the bytes were compared without a checksum"));
        };
        self.checksum = Some(first.clone());
        self.compared.clone_from(all);
        self.unstated = self.unstated_kind();
        let differs = |known: &&Checksum| !all.contains(known);
        if let Some(known) = self.options.known.checksums.iter().find(differs).cloned() {
            let own = all.iter().find(|own| own.kind() == known.kind()).unwrap_or(&first);
            let outcome = self.wrong(own, &known).await;
            self.whole(false);
            return outcome;
        }
        let outcome = match self.verdict(&found) {
            // All that the metalink says is so; it counts before what sources say.
            _ if self.is_described() => {
                self.name_liars().await?;
                self.is_verified(Basis::Metalink, &found);
                Ok(true)
            }
            Verdict::Right(basis) => {
                self.name_liars().await?;
                self.is_verified(basis, &found);
                self.checksum = self.compared(&found).or(Some(first));
                if self.told().is_none() {
                    self.name_contradicting(&found);
                }
                Ok(true)
            }
            Verdict::Wrong(expected) => {
                let own = all.iter().find(|own| own.kind() == expected.kind()).unwrap_or(&first);
                self.wrong(own, &expected).await
            }
            Verdict::Split(contradiction) => Err(split(&contradiction)),
            Verdict::Nothing if self.has_unvouched() => Err(unvouched()),
            Verdict::Nothing => match self.disproved() {
                Some(error) => Err(error),
                None if self.options.require_verified => Err(self.not_compared()),
                None => Ok(true),
            },
            // A source that had said nothing, and was not waited for, has begun to answer since: what it says is
            // on its way, and counts.
            Verdict::Open => Ok(false),
        };
        self.whole(false);
        outcome
    }

    /// The bytes are right, as this says.
    fn is_verified(&mut self, basis: Basis, found: &Found) {
        self.verified = Some(basis);
        self.verified_with = match basis {
            Basis::User => self.told().map(|(checksum, _)| checksum.kind()).into_iter().collect(),
            Basis::Metalink => self.options.known.checksums.iter().map(Checksum::kind).collect(),
            Basis::Sources { .. } => self.votes.supporting(found),
        };
    }

    /// The bytes are wrong. What an earlier run has left is fetched again before anybody is suspected.
    async fn wrong(&mut self, found: &Checksum, expected: &Checksum) -> Result<bool> {
        match self.lose_earlier() {
            true => Ok(false),
            false => self.mismatched(found, expected).await,
        }
    }

    /// Every byte is there, or not any more.
    fn whole(&mut self, is_whole: bool) {
        self.verifying = is_whole;
        self.votes.whole(is_whole.then(|| self.pace.now()));
    }

    /// Waits for the words of sources that could change what is thought of the bytes. What the bytes have is computed once
    /// of each kind.
    async fn wait_for_words(&mut self) -> Result<Found> {
        let mut found = Found { size_bytes: self.size_bytes.unwrap_or(0), checksums: Vec::new() };
        loop {
            let kinds = self.kinds();
            self.hash(&kinds, &mut found).await?;
            if self.is_its_own_word() && !self.is_described() && self.votes.statement(0).is_empty() {
                self.votes.states(0, found.checksums.first().cloned());
            }
            let is_decided =
                |run: &Run<'_>| run.kinds() != kinds || !matches!(run.verdict(&found), Verdict::Open);
            self.drive(|run| !run.plan.is_complete() || is_decided(run)).await?;
            if !self.plan.is_complete() || self.kinds() == kinds {
                return Ok(found);
            }
        }
    }

    /// The checksum that was compared: of the kind that was asked for if anybody states that, else the strongest one that
    /// somebody does. Of a file that an earlier run has begun it is the strongest, unless the caller asked for a kind.
    fn compared(&self, found: &Found) -> Option<Checksum> {
        let stated = self.votes.supporting(found);
        let is_stated = |own: &&Checksum| stated.contains(&own.kind());
        let is_asked = self.options.checksum.is_some() || !self.earlier.is_compared_strongly;
        let asked = found.checksums.first().filter(|_| is_asked).filter(is_stated);
        let strongest = || found.checksums.iter().filter(is_stated).max_by_key(|own| own.kind().strength());
        asked.or_else(strongest).cloned()
    }

    /// The kind of checksum that the caller asked for, if nobody states one.
    fn unstated_kind(&self) -> Option<ChecksumKind> {
        let (kind, value) = self.options.checksum.as_ref()?;
        let is_known = || self.options.known.checksums.iter().any(|own| own.kind() == *kind);
        (value.is_none() && !self.votes.kinds().contains(kind) && !is_known()).then_some(*kind)
    }

    /// Why unverified bytes are a failure.
    fn not_compared(&self) -> Error {
        let of_kind = self.unstated.map(|kind| format!(" of type {}", kind.name())).unwrap_or_default();
        let message =
            format!("nothing tells whether the bytes are right: no source states a checksum{of_kind}");
        let hint = match self.target.sink {
            Sink::Partial(_) => {
                "say what is right with --checksum TYPE:VALUE, or do without --require-verified"
            }
            Sink::Ordered(_) => "do not use what was written",
        };
        Error::new(ErrorKind::ChecksumMismatch, message)
            .fault(Fault::Peer)
            .hint(hint)
            .endpoint(&self.replicas[0].source.url)
    }

    /// The bytes are right: names those who state another checksum of them.
    fn name_contradicting(&mut self, found: &Found) {
        for number in self.votes.against(found) {
            let replica = &mut self.replicas[number];
            if replica.distrusted {
                continue;
            }
            let message = "it states another checksum than the bytes have that most sources agree on";
            let error = Error::new(ErrorKind::ChecksumMismatch, message)
                .hint("tell whoever runs that server")
                .endpoint(&replica.source.url);
            self.observer.event(&Event::Source { source: number, state: "wrong", error: Some(&error) });
            replica.distrusted = true;
            replica.last_error = Some(error.clone());
            replica.dead.get_or_insert(error);
        }
    }

    /// Whether bytes are from a replica that only a server named. It was used because a checksum was to tell
    /// whether they are right; who had said that checksum may have turned out to be wrong since.
    fn has_unvouched(&self) -> bool {
        let ledger = self.target.ledger();
        let mut served = self.replicas.iter().filter(|replica| replica.is_served);
        served.any(|replica| ledger.bytes_of(replica.source.number) > 0)
    }

    /// Waits until every piece has been compared whose checksum is known. `false`: bytes are missing again.
    async fn are_pieces_right(&mut self) -> Result<bool> {
        if self.target.pieces().is_none() {
            return Ok(true);
        }
        tokio::task::block_in_place(|| self.target.check_rest())?;
        let has_all = |run: &Run<'_>| run.target.ledger().missing(run.size_bytes.unwrap_or(0)).is_empty();
        self.drive(|run| run.target.is_checked() || !has_all(run)).await?;
        Ok(!self.refetch_missing())
    }

    /// The ledger knows best: a lane may have thrown away its copy of bytes that another source had brought,
    /// and told the plan that they are there, while that source's bytes were being forgotten.
    fn refetch_missing(&mut self) -> bool {
        let missing = self.target.ledger().missing(self.size_bytes.unwrap_or(0));
        let believed = self.believed();
        self.refetch(&missing, &believed);
        self.refetch_wrong_pieces();
        !missing.is_empty()
    }

    /// Adds to what is `found` the checksums that the bytes have of these kinds, as far as they can be computed, in their
    /// order.
    async fn hash(&self, kinds: &[ChecksumKind], found: &mut Found) -> Result<()> {
        let size_bytes = self.size_bytes.unwrap_or(0);
        let is_new = |kind: &ChecksumKind| !found.checksums.iter().any(|own| own.kind() == *kind);
        let new: Vec<ChecksumKind> = kinds.iter().copied().filter(is_new).collect();
        let others: Vec<ChecksumKind> =
            new.iter().copied().filter(|kind| *kind != ChecksumKind::Adler32).collect();
        let mut hashed = match &self.target.sink {
            _ if others.is_empty() => Vec::new(),
            Sink::Ordered(feed) => feed.hashes().await,
            Sink::Partial(partial) => {
                let file = partial.file().try_clone();
                let file = file.map_err(|cause| Error::local_io("cannot read the file back", &cause))?;
                hash_file_all(file, size_bytes, others.clone()).await?
            }
        };
        // What went out in order was hashed by what was known then.
        hashed.retain(|own| others.contains(&own.kind()));
        if new.contains(&ChecksumKind::Adler32) {
            let sum = self.target.ledger().adler32(size_bytes);
            let sum = sum
                .ok_or_else(|| Error::new(ErrorKind::Other, "the plan is complete and the ledger is not"))?;
            hashed.push(Checksum::adler32(sum));
        }
        found.checksums.append(&mut hashed);
        found.checksums.sort_by_key(|own| kinds.iter().position(|kind| *kind == own.kind()));
        Ok(())
    }

    /// The bytes are wrong: tries the next hypothesis about who sent wrong ones.
    pub(crate) async fn mismatched(&mut self, found: &Checksum, expected: &Checksum) -> Result<bool> {
        self.mismatch = Some((found.clone(), expected.clone()));
        let wrong = |run: &mut Run<'_>, hint: &str| {
            run.is_worthless = true;
            let message = format!("the bytes have {found}, not {expected}");
            Err(Error::new(ErrorKind::ChecksumMismatch, message).hint(hint).fault(Fault::Peer))
        };
        if self.target.pieces().is_some() {
            return wrong(self, "every piece is as the metalink says: it contradicts itself, or --checksum");
        }
        if self.target.partial().is_none() {
            return wrong(self, "do not use what was written; copy it to a file to have the liar found");
        }
        let usable = |run: &Run<'_>| -> Vec<Sender> {
            run.replicas
                .iter()
                .filter(|replica| replica.dead.is_none())
                .map(|replica| replica.source.number)
                .collect()
        };
        if self.suspects.is_none() {
            self.suspects = Some(Suspects::new(&self.target.ledger().senders(), &usable(self)));
        }
        self.note_contradictions().await?;
        loop {
            let Some(mut believed) = self.suspects.as_mut().and_then(Suspects::next) else {
                return match self.replicas.len() {
                    1 => wrong(
                        self,
                        "the file is damaged at its source, or the checksum is that of another file",
                    ),
                    _ => wrong(
                        self,
                        "no combination of the sources has these bytes: the checksum may be that of another file",
                    ),
                };
            };
            believed.retain(|sender| usable(self).contains(sender));
            if believed.is_empty() {
                continue;
            }
            let numbers: Vec<usize> = believed.iter().map(|sender| *sender as usize).collect();
            for (number, replica) in self.replicas.iter_mut().enumerate() {
                // Also who is dead by now: what it sent is still there.
                replica.doubted = !numbers.contains(&number);
            }
            // What an earlier run left is believed by no hypothesis.
            self.target.ledger().forget(|sender| sender >= EARLIER);
            self.refetch_missing();
            let thrown_before = self.thrown.len();
            self.disbelieve();
            self.spare(thrown_before).await?;
            if !self.target.ledger().missing(self.size_bytes.unwrap_or(0)).is_empty() {
                self.observer.event(&Event::Mismatch { found, expected, believed: &numbers });
                return Ok(false);
            }
        }
    }

    /// The hypothesis cannot be tried, because those it believes cannot deliver: tries the next one.
    pub(crate) async fn believe_others(&mut self, error: Error) -> Result<()> {
        match self.mismatch.clone() {
            Some((found, expected)) => self.mismatched(&found, &expected).await.map(|_| ()),
            None => Err(error),
        }
    }

    /// After a hypothesis proved right: whose bytes were others than those that are there now?
    async fn name_liars(&mut self) -> Result<()> {
        let thrown = std::mem::take(&mut self.thrown);
        let right = self.still_there(thrown.clone()).await?;
        for number in 0..self.replicas.len() {
            let count =
                |pieces: &mut dyn Iterator<Item = Sender>| pieces.filter(|s| *s == number as Sender).count();
            let (sent, matched) = (
                count(&mut thrown.iter().map(|p| p.piece.sender)),
                count(&mut right.iter().map(|p| p.piece.sender)),
            );
            if sent > matched {
                let error = Error::new(ErrorKind::ChecksumMismatch, "it sent wrong bytes")
                    .hint("tell whoever runs that server")
                    .endpoint(&self.replicas[number].source.url);
                self.observer.event(&Event::Source { source: number, state: "wrong", error: Some(&error) });
                let replica = &mut self.replicas[number];
                replica.last_error = Some(error.clone());
                replica.distrusted = true;
                replica.dead.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Makes the target visible, and asks an upload's server what it has.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let mut said = None;
        if let Sink::Ordered(feed) = &self.target.sink {
            if self.verified.is_none() && self.replicas.iter().any(|replica| replica.distrusted) {
                let message = "a source turned out to be wrong, and nothing tells whether its bytes were";
                return Err(
                    Error::new(ErrorKind::ChecksumMismatch, message).hint("do not use what was written")
                );
            }
            said = feed.finish().await?;
        }
        if let Some(url) = self.upload_url.clone() {
            self.check_upload(&url, said).await?;
            if self.options.require_verified && self.verified.is_none() {
                return Err(self.take_back(&url).await);
            }
        }
        self.close_lanes().await?;
        if let Some(partial) = self.target.partial() {
            let size_bytes = self.size_bytes.unwrap_or(0);
            if self.verified.is_none() && !self.target.ledger().missing(size_bytes).is_empty() {
                // The last word of a lane was that its bytes are not to be believed, and no checksum says so.
                let message = "a source turned out to be wrong when its last bytes had come";
                return Err(Error::new(ErrorKind::Precondition, message)
                    .fault(Fault::Peer)
                    .hint("run the same command again: it continues")
                    .retryable(true));
            }
            tokio::task::block_in_place(|| partial.commit(size_bytes, self.overwrite))?;
        }
        if let Some(checksum) = &self.checksum {
            self.observer.event(&Event::Verified { checksum, basis: self.verified });
        }
        Ok(())
    }

    /// The server's own word about what was uploaded counts, not ours; it may have `said` it already.
    async fn check_upload(&mut self, url: &Url, said: Option<Checksum>) -> Result<()> {
        let (size_bytes, checksum) = match said {
            Some(checksum) => (None, Some(checksum)),
            None => {
                let target = Source::new(0, url.clone());
                match digests::word(&self.client, &target, Some(self.digest_kind())).await {
                    Ok(word) => (word.identity.size_bytes, word.checksum),
                    // It took the file and does not let us look at it.
                    Err(_) => (None, None),
                }
            }
        };
        let size_differs = size_bytes.is_some() && size_bytes != self.size_bytes;
        let differs = |said: &Checksum| !self.compared.contains(said);
        let checksum_differs = checksum.as_ref().is_some_and(differs);
        if size_differs || checksum_differs {
            let message = "the server has other bytes than were sent";
            return Err(Error::new(ErrorKind::ChecksumMismatch, message)
                .endpoint(url)
                .retryable(true)
                .hint("upload it again"));
        }
        // That the server has what was sent says nothing about the source; both words are needed.
        if checksum.is_none() {
            self.verified = None;
            if let Some((kind, None)) = &self.options.checksum {
                self.unstated = Some(*kind);
            }
        }
        Ok(())
    }

    /// Removes what was uploaded, and cannot be compared; says why.
    async fn take_back(&self, url: &Url) -> Error {
        let message = "nothing tells whether the server has the right bytes: it states no checksum";
        let error = Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(url);
        match crate::upload::remove(&self.client, url).await {
            Ok(()) => error.hint("what was uploaded was removed; do without --require-verified"),
            Err(why) => error.hint(format!("remove it: the server did not let us: {}", why.message())),
        }
    }

    /// How far the copy is.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let done_bytes = match (self.size_bytes, self.plan.missing_bytes()) {
            (Some(size), Some(missing)) => size.saturating_sub(missing),
            _ => self.meter.total() + self.resumed_bytes,
        };
        let rate = self.meter.recent_bytes_per_s();
        let left = self.size_bytes.map(|size| size.saturating_sub(done_bytes));
        let sources = (0..self.replicas.len()).map(|number| {
            let replica = &self.replicas[number];
            let planned = self.plan.source_report(plan::SourceId(number as u32));
            SourceSnapshot {
                state: self.state_of(number),
                rate_bytes_per_s: replica.meter.recent_bytes_per_s(),
                round_trip: replica.round_trip,
                bytes: self.target.ledger().bytes_of(number as u32),
                lanes: planned.map_or(0, |report| report.lanes),
            }
        });
        Snapshot {
            size_bytes: self.size_bytes,
            done_bytes,
            rate_bytes_per_s: rate,
            eta_s: left.filter(|_| rate > 0.0).map(|left| left as f64 / rate),
            elapsed_s: self.pace.elapsed().as_secs_f64(),
            verifying: self.verifying,
            sources: sources.collect(),
        }
    }

    fn state_of(&self, number: usize) -> &'static str {
        let replica = &self.replicas[number];
        match (&replica.dead, replica.distrusted || replica.wrong_pieces > 0) {
            (Some(_), true) => return "wrong",
            (Some(_), false) => return "dead",
            (None, _) => {}
        }
        let state = self.plan.source_report(plan::SourceId(number as u32)).map(|report| report.state);
        match state {
            Some(SourceState::Spare) | None => "spare",
            Some(SourceState::Connecting) => "connecting",
            Some(SourceState::Active) => "active",
            Some(SourceState::Suspect) => "suspect",
            Some(SourceState::Probation { .. }) => "probation",
            Some(SourceState::Busy { .. }) => "busy",
            Some(SourceState::Dead) => "dead",
        }
    }

    /// What was done.
    pub(crate) fn report(&mut self) -> Report {
        let seconds = self.pace.elapsed().as_secs_f64();
        let snapshot = self.snapshot();
        let fetched_bytes: u64 = self.replicas.iter().map(|replica| replica.received_bytes).sum();
        let sources: Vec<SourceReport> = self
            .replicas
            .iter()
            .zip(&snapshot.sources)
            .map(|(replica, now)| SourceReport {
                url: replica.source.url.to_string(),
                state: now.state,
                bytes: now.bytes,
                received_bytes: replica.received_bytes,
                rate_best_bytes_per_s: replica.meter.best_second_bytes_per_s(),
                round_trip: replica.round_trip,
                connections: replica.connections,
                handshakes: replica.handshakes,
                wrong_pieces: replica.wrong_pieces,
                error: replica.last_error.clone(),
            })
            .collect();
        let fresh_bytes = self.meter.total().saturating_sub(self.wrong_bytes);
        let (bound_s, bound_from) = self.bound(fresh_bytes, &sources);
        Report {
            size_bytes: self.size_bytes,
            done_bytes: snapshot.done_bytes,
            // What was fetched again does not count as taken over.
            resumed_bytes: self.resumed_bytes.min(snapshot.done_bytes.saturating_sub(fresh_bytes)),
            fetched_bytes,
            extra_bytes: fetched_bytes.saturating_sub(fresh_bytes) + self.wasted_bytes,
            seconds,
            bound_s,
            bound_from,
            limited_by: self.limited_by(seconds, fresh_bytes, bound_s),
            verified: self.verified,
            checksum: self.checksum.clone(),
            verified_with: self.verified_with(),
            unstated: self.unstated,
            modified_accepted: self.modified_accepted.as_ref().map(|said| said.load(Relaxed)),
            sources,
        }
    }

    fn bound(&self, fetched_bytes: u64, sources: &[SourceReport]) -> (Option<f64>, String) {
        let paths: Vec<SourcePath> = self
            .replicas
            .iter()
            .filter_map(|replica| {
                Some(SourcePath {
                    rate_bytes_per_s: replica.meter.sustained_bytes_per_s()?,
                    round_trip_s: replica.round_trip.unwrap_or_default().as_secs_f64(),
                    handshake_round_trips: f64::from(replica.handshake_round_trips) + 1.0,
                })
            })
            .collect();
        let used = sources.iter().filter(|source| source.received_bytes > 0).count();
        if paths.is_empty() || paths.len() < used {
            return (None, "unknown: not every source was active for a second".into());
        }
        let limit = self.options.limit.as_ref().map(|limit| limit.bytes_per_s() as f64);
        let from = format!(
            "sustained rate of {} source{}, smallest round trip, {} handshake{}",
            paths.len(),
            if paths.len() == 1 { "" } else { "s" },
            self.replicas.iter().map(|replica| replica.handshakes).sum::<u32>(),
            if self.replicas.iter().map(|replica| replica.handshakes).sum::<u32>() == 1 { "" } else { "s" },
        );
        match fluid_bound_s(fetched_bytes, &paths, limit) {
            Some(bound_s) => (Some(bound_s), from),
            None => (None, "unknown: nothing was measured".into()),
        }
    }

    fn limited_by(&self, seconds: f64, fetched_bytes: u64, bound_s: Option<f64>) -> String {
        let rate = fetched_bytes as f64 / seconds.max(1e-6);
        let lanes = self.replicas.iter().filter(|replica| replica.received_bytes > 0).count().max(1);
        if self.options.limit.as_ref().is_some_and(|limit| rate >= 0.9 * limit.bytes_per_s() as f64) {
            return "--limit-rate".into();
        }
        if self.target.busy_s() / lanes as f64 >= MOSTLY * seconds {
            return "writing to the target".into();
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        // One lane keeps one core busy; several can keep all.
        if cpu_time().as_secs_f64() >= MOSTLY * seconds * lanes.min(cores) as f64 && seconds > 0.1 {
            return "this machine's CPU".into();
        }
        match bound_s {
            Some(bound_s) if bound_s >= 0.8 * seconds => "the sources and the paths to them".into(),
            Some(_) => "pauses: connecting, waiting for a source, or verifying".into(),
            None => "start-up: connecting and the first round trips".into(),
        }
    }
}

fn unvouched() -> Error {
    let message = "the source that named other replicas turned out to be wrong, and nothing tells whether \
                   their bytes are right";
    Error::new(ErrorKind::ChecksumMismatch, message)
        .fault(Fault::Peer)
        .hint("say which is right with --checksum TYPE:VALUE, or name the replica yourself")
}

fn split(contradiction: &Split) -> Error {
    let listed = |values: Vec<String>| values.join(", ");
    let (about, values) = match contradiction {
        Split::Sizes(sizes) => {
            ("how many bytes the file has", listed(sizes.iter().map(u64::to_string).collect()))
        }
        Split::Checksums(values) => {
            ("the checksum", listed(values.iter().map(Checksum::to_string).collect()))
        }
    };
    let message = format!("the sources contradict each other about {about}: {values}");
    Error::new(ErrorKind::ChecksumMismatch, message)
        .fault(Fault::Peer)
        .hint("say which is right with --checksum TYPE:VALUE, or add a replica with --mirror")
}

/// The report of a copy that never began.
pub(crate) fn empty_report(urls: Vec<String>, took: Duration) -> Report {
    let sources = urls.into_iter().map(|url| SourceReport {
        url,
        state: "spare",
        bytes: 0,
        received_bytes: 0,
        rate_best_bytes_per_s: None,
        round_trip: None,
        connections: 0,
        handshakes: 0,
        wrong_pieces: 0,
        error: None,
    });
    Report {
        size_bytes: None,
        done_bytes: 0,
        resumed_bytes: 0,
        fetched_bytes: 0,
        extra_bytes: 0,
        seconds: took.as_secs_f64(),
        bound_s: None,
        bound_from: "unknown: the copy did not begin".into(),
        limited_by: "nothing: the copy did not begin".into(),
        verified: None,
        checksum: None,
        verified_with: None,
        unstated: None,
        modified_accepted: None,
        sources: sources.collect(),
    }
}
