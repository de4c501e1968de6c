//! When every byte is there: are they the right ones, and how good was the copy?

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Result};
use gridlane_plan::{self as plan, SourcePath, SourceState, fluid_bound_s};
use gridlane_sys::process::cpu_time;

use crate::digests::{self, hash_file_all};
use crate::events::{Event, Report, Snapshot, SourceReport, SourceSnapshot};
use crate::ledger::{EARLIER, Sender};
use crate::replica::Replica;
use crate::run::Run;
use crate::source::Source;
use crate::suspects::Suspects;
use crate::target::Sink;
use crate::verdict::{self, Basis, Verdict, Vote};

/// A part of the time above which something is called the limit.
const MOSTLY: f64 = 0.7;

impl Run<'_> {
    /// A source has said what the checksum is.
    pub(crate) fn voted(&mut self, source: usize, vote: Vote) -> Result<()> {
        if self.replicas[source].dead.is_some() && self.replicas[source].distrusted {
            return Ok(());
        }
        self.replicas[source].vote = vote;
        if let Verdict::Agreed { checksum, liars, .. } = self.verdict() {
            self.journal_digest(&checksum)?;
            self.drop_liars(&checksum, &liars);
        }
        Ok(())
    }

    /// The checksum that the object must have, as far as that is settled.
    pub(crate) fn agreed(&self) -> Option<Checksum> {
        match self.verdict() {
            Verdict::Agreed { checksum, .. } => Some(checksum),
            _ => None,
        }
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

    fn verdict(&self) -> Verdict {
        let votes: Vec<Vote> = self.replicas.iter().map(|replica| replica.vote.clone()).collect();
        verdict::count(self.told(), &votes)
    }

    /// As [`Run::verdict`], when every byte is there: who has not answered at all is not waited for,
    /// nor, when it `is_late`, anybody.
    fn last_verdict(&self, is_late: bool) -> Verdict {
        let vote = |replica: &Replica| match replica.vote {
            Vote::Pending if is_late || replica.source.identity().is_none() || replica.dead.is_some() => {
                Vote::Silent
            }
            ref vote => vote.clone(),
        };
        let votes: Vec<Vote> = self.replicas.iter().map(vote).collect();
        verdict::count(self.told(), &votes)
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
            let said = match &self.replicas[*liar].vote {
                Vote::Says(said) => said.to_string(),
                _ => "another checksum".to_owned(),
            };
            let message = format!("its copy is another one: it says {said}, agreed is {checksum}");
            let error = Error::new(ErrorKind::ChecksumMismatch, message)
                .hint("tell whoever runs that server")
                .endpoint(url);
            let vote = self.replicas[*liar].vote.clone();
            self.kill(*liar, error, true);
            // It stays known who said what: "2 of 3".
            self.replicas[*liar].vote = vote;
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
        // A lane that lost a race for bytes may have told of them before the winner had written them.
        self.drive(|run| run.target.ledger().is_settled()).await?;
        // A lane may have written for a source after that was found out.
        if self.disbelieve() || self.refetch_missing() {
            return Ok(false);
        }
        if !self.are_pieces_right().await? {
            return Ok(false);
        }
        self.verifying = true;
        // A lane that had nothing to fetch has not asked either.
        self.ask_instead();
        let until = self.pace.now() + digests::wait_max(self.options.patience, self.size_bytes.unwrap_or(0));
        let is_late = move |run: &Run<'_>| run.pace.now() >= until;
        self.drive(|run| !run.plan.is_complete() || !matches!(run.last_verdict(is_late(run)), Verdict::Open))
            .await?;
        self.drop_contradictory();
        if !self.plan.is_complete() || self.disbelieve() || self.refetch_missing() {
            self.verifying = false;
            return Ok(false);
        }
        let all = self.actual().await?;
        let Some(found) = all.first().cloned() else {
            return Err(Error::new(ErrorKind::Other, "the bytes were compared without a checksum"));
        };
        self.checksum = Some(found.clone());
        if self.is_its_own_word() && !self.is_described() {
            self.replicas[0].vote = Vote::Says(found.clone());
        }
        let differs = |known: &&Checksum| !all.contains(known);
        if let Some(known) = self.options.known.checksums.iter().find(differs).cloned() {
            let found = all.into_iter().find(|own| own.kind() == known.kind()).unwrap_or(found);
            let outcome = self.mismatched(&found, &known).await;
            self.verifying = false;
            return outcome;
        }
        let outcome = match self.last_verdict(is_late(self)) {
            // All that the metalink says is so; it counts before what sources say.
            _ if self.is_described() => {
                self.name_liars().await?;
                self.verified = Some(Basis::Metalink);
                Ok(true)
            }
            Verdict::Agreed { checksum, basis, .. } if checksum == found => {
                self.name_liars().await?;
                self.verified = Some(basis);
                Ok(true)
            }
            Verdict::Agreed { checksum, .. } => self.mismatched(&found, &checksum).await,
            Verdict::Split(values) => Err(split(&values)),
            Verdict::Nothing if self.has_unvouched() => Err(unvouched()),
            Verdict::Nothing => self.disproved().map_or(Ok(true), Err),
            // A source that had said nothing, and was not waited for, has begun to answer since: what it says is
            // on its way, and counts.
            Verdict::Open => Ok(false),
        };
        self.verifying = false;
        outcome
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

    /// The checksums that the bytes have, of every kind that is compared.
    async fn actual(&self) -> Result<Vec<Checksum>> {
        let size_bytes = self.size_bytes.unwrap_or(0);
        let kinds = digests::kinds(&self.options);
        let others: Vec<ChecksumKind> =
            kinds.iter().copied().filter(|kind| *kind != ChecksumKind::Adler32).collect();
        let mut hashed = match &self.target.sink {
            _ if others.is_empty() => Vec::new(),
            Sink::Ordered(feed) => feed.hashes().await,
            Sink::Partial(partial) => {
                let file = partial.file().try_clone();
                let file = file.map_err(|cause| Error::local_io("cannot read the file back", &cause))?;
                hash_file_all(file, size_bytes, others).await?
            }
        };
        if kinds.contains(&ChecksumKind::Adler32) {
            let sum = self.target.ledger().adler32(size_bytes);
            let sum = sum
                .ok_or_else(|| Error::new(ErrorKind::Other, "the plan is complete and the ledger is not"))?;
            hashed.push(Checksum::adler32(sum));
        }
        let rank = |checksum: &Checksum| kinds.iter().position(|kind| *kind == checksum.kind());
        hashed.sort_by_key(rank);
        Ok(hashed)
    }

    /// The bytes are wrong: tries the next hypothesis about who sent wrong ones.
    pub(crate) async fn mismatched(&mut self, found: &Checksum, expected: &Checksum) -> Result<bool> {
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
        match (self.checksum.clone(), self.verdict()) {
            (Some(found), Verdict::Agreed { checksum, .. }) => {
                self.mismatched(&found, &checksum).await.map(|_| ())
            }
            _ => Err(error),
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
            self.check_upload(url, said).await?;
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
    async fn check_upload(&mut self, url: gridlane_core::Url, said: Option<Checksum>) -> Result<()> {
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
        let checksum_differs = checksum.is_some() && checksum != self.checksum;
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
        }
        Ok(())
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

fn split(values: &[Checksum]) -> Error {
    let values: Vec<String> = values.iter().map(|value| value.to_string()).collect();
    let message = format!("the sources contradict each other about the checksum: {}", values.join(", "));
    Error::new(ErrorKind::ChecksumMismatch, message)
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
        modified_accepted: None,
        sources: sources.collect(),
    }
}
