//! Does what the judge wants, and tells it what came of that. The judge itself is [`gridlane_plan::judge`].

use gridlane_core::{Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result, Url};
use gridlane_plan as plan;
use gridlane_plan::judge::{Action, Event as Heard, ReadBack, Scene};
use gridlane_store::Target;

use crate::digests::{self, hash_all};
use crate::events::{Event, State};
use crate::judge_errors::wrong_pieces;
use crate::output::add_checksums;
use crate::read_back::OfTarget;
use crate::replica::Replica;
use crate::run::{LANE_END_MAX, Run, SHORT_BYTES_MAX};
use crate::source::Source;
use crate::target::Sink;

/// A file of so many bytes is synced before its commit, on a thread of its own: the hand-over costs little beside it then.
const SYNC_APART_BYTES_MIN: u64 = 64 * 1024 * 1024;

impl Run<'_> {
    /// Tells the judge what happened. What it wants done is found by [`obey_judge`](Run::obey_judge).
    pub(crate) fn tell_judge(&mut self, event: Heard) {
        let now = self.pace.now();
        let mut ledger = self.target.ledger();
        self.judge.handle(now, event, &mut Scene { plan: &self.plan, ledger: &mut ledger });
    }

    /// Does what follows at once from what the judge was told.
    pub(crate) async fn obey_judge(&mut self) -> Result<()> {
        while let Some(action) = self.judge.next_action() {
            self.obey(action).await?;
        }
        Ok(())
    }

    /// Lets the judge go as far as it can. `true`: it has done something.
    pub(crate) async fn ask_judge(&mut self) -> Result<bool> {
        if self.judge.is_verifying() {
            self.tell_two_sizes();
        }
        let mut is_news = false;
        while let Some(action) = self.next_of_judge() {
            is_news = true;
            // What happens seldom has its state on the heap.
            Box::pin(self.obey(action)).await?;
        }
        Ok(is_news)
    }

    fn next_of_judge(&mut self) -> Option<Action> {
        let now = self.pace.now();
        let mut ledger = self.target.ledger();
        self.judge.poll(now, &mut Scene { plan: &self.plan, ledger: &mut ledger })
    }

    /// The plan is stuck: whether the judge knows other sources to try.
    pub(crate) fn try_others(&mut self, why: plan::Stuck) -> bool {
        let mut ledger = self.target.ledger();
        self.judge.try_others(why, &mut Scene { plan: &self.plan, ledger: &mut ledger })
    }

    async fn obey(&mut self, action: Action) -> Result<()> {
        let now = self.pace.now();
        match action {
            Action::Plan(event) => self.plan.handle(now, event),
            Action::Agree { size_bytes } => self.agree(size_bytes).await?,
            Action::Settled(checksum) => self.journal_digest(&checksum).await?,
            Action::Stop { source, why } => {
                let error = self.why(source, &why);
                self.observer.event(&Event::Source { source, state: State::Dead, error: Some(&error) });
                let replica = &mut self.replicas[source];
                (replica.last_error, replica.dead) = (Some(error.clone()), Some(error));
            }
            Action::Name { source, why } => {
                let error = self.why(source, &why);
                self.observer.event(&Event::Source { source, state: State::Wrong, error: Some(&error) });
                let replica = &mut self.replicas[source];
                replica.last_error = Some(error.clone());
                replica.dead.get_or_insert(error);
            }
            Action::Blame { source, count } => {
                let replica = &mut self.replicas[source];
                let error = wrong_pieces(count).endpoint(&replica.source.url);
                replica.last_error = Some(error.clone());
                if count == 1 {
                    self.observer.event(&Event::Source { source, state: State::Wrong, error: Some(&error) });
                }
            }
            Action::Revive { source } => {
                let replica = &mut self.replicas[source];
                (replica.dead, replica.last_error) = (None, None);
                self.ask_digest(source);
            }
            Action::AskStrong { source } => {
                let source = self.replicas[source].source.clone();
                digests::ask_strong(self.client.clone(), source, self.notify.clone());
            }
            Action::AskOthers => {
                self.request_awaited_digests();
                self.tell_two_sizes();
            }
            Action::WrongPiece { range, sources } => {
                self.observer.event(&Event::WrongPiece { range, sources: &sources });
            }
            Action::Mismatch { found, expected, believed } => {
                let (found, expected) = (&found, &expected);
                self.observer.event(&Event::Mismatch { found, expected, believed: &believed });
            }
            Action::ComparePieces => {
                self.check_rest().await?;
                self.tell_judge(Heard::PiecesCompared);
            }
            Action::Hash { ticket, kinds } => {
                let checksums = self.hash(&kinds).await?;
                self.tell_two_sizes();
                self.tell_judge(Heard::Hashed { ticket, checksums });
            }
            Action::ReadBack { ticket, what } => self.read_back(ticket, what).await?,
            Action::LookAtFile => {
                let size_bytes = self.judge.size_bytes().unwrap_or(0);
                let look = |target: &dyn Target| target.is_doubtful(size_bytes);
                // In a file of many parts looking for a hole takes its time.
                let looked = match size_bytes <= SHORT_BYTES_MAX {
                    true => self.target.briefly(look).await,
                    false => self.target.in_turn(look).await,
                };
                let is_doubtful = looked.unwrap_or(Ok(false))?;
                self.tell_judge(Heard::Looked { is_doubtful, took: self.pace.elapsed() });
            }
            Action::CloseLanes => {
                self.close_lanes(LANE_END_MAX).await?;
                for replica in &mut self.replicas {
                    // Lanes may be counted from the beginning again: another one would be taken for the one that was to ask.
                    replica.asks_by_lane |= replica.asking_lane.take().is_some();
                }
                self.tell_judge(Heard::LanesClosed);
            }
            Action::Restart => {
                self.wasted_bytes = self.replicas.iter().map(|replica| replica.received_bytes).sum::<u64>();
                self.target.briefly(|target| target.restart()).await.unwrap_or(Ok(()))?;
                self.journal_begun = false;
                self.journal_base = 0;
                self.target.agree(None);
            }
            Action::NewPlan => self.new_plan(),
            Action::Finish => self.is_finished = true,
            Action::Fail(failure) => return Err(self.failure(failure)),
        }
        Ok(())
    }

    /// The file has so many bytes.
    async fn agree(&mut self, size_bytes: u64) -> Result<()> {
        if let Some(max) = self.options.size_bytes_max.filter(|max| size_bytes > *max) {
            return Err(crate::spec::too_large(max));
        }
        self.has_new_lanes = true;
        self.target.agree(Some(size_bytes));
        self.plan.handle(self.pace.now(), plan::Event::SizeKnown { size_bytes });
        self.observer.event(&Event::Started { size_bytes });
        match &self.target.sink {
            Sink::Ordered(feed) => feed.size(size_bytes).await?,
            Sink::Anywhere(_) => {
                self.check_space().await?;
                self.begin_journal().await?;
            }
        }
        Ok(())
    }

    /// A source has said how large its file is.
    pub(crate) async fn identified(&mut self, source: usize, size_bytes: Option<u64>) -> Result<()> {
        let is_metalink =
            self.replicas[source].source.identity().is_some_and(|identity| identity.is_metalink);
        if source == 0 && is_metalink && self.options.stop_at_metalink {
            self.judge.give_up_bytes();
            return self.is_metalink(source);
        }
        self.journal_source(source).await?;
        let before = self.judge.size_bytes();
        self.tell_judge(Heard::Identified { source, size_bytes });
        self.obey_judge().await?;
        let is_alive = self.replicas[source].dead.is_none();
        match before {
            Some(_) if before == size_bytes && is_alive => self.check_space().await,
            None if self.judge.size_bytes().is_some() => self.go_on_with_metalink(),
            _ => Ok(()),
        }
    }

    /// Fails early when the file cannot fit. A single source's statement is not enough for that while others have
    /// not answered: it may be the one that is wrong.
    async fn check_space(&self) -> Result<()> {
        let Some(size_bytes) = self.judge.size_bytes() else { return Ok(()) };
        let is_silent = |replica: &Replica| replica.dead.is_none() && replica.source.identity().is_none();
        if self.replicas.iter().any(is_silent) {
            return Ok(());
        }
        let look = |target: &dyn Target| {
            let missing = size_bytes.saturating_sub(target.allocated_bytes());
            let has_room = target.free_bytes().is_none_or(|free| free >= missing);
            (!has_room).then(|| (missing, target.name()))
        };
        let Some((missing, name)) = self.target.briefly(look).await.flatten() else { return Ok(()) };
        let message = format!("no space for {missing} more bytes beside {name}");
        let hint = "free some space, then run the same command: it continues";
        Err(Error::new(ErrorKind::LocalIo, message).no_space().hint(hint))
    }

    /// Tells the judge which sources have told two sizes.
    fn tell_two_sizes(&mut self) {
        for source in 0..self.replicas.len() {
            let sizes = self.replicas[source].source.two_sizes();
            if sizes != self.judge.members()[source].two_sizes {
                self.tell_judge(Heard::TwoSizes { source, sizes });
            }
        }
    }

    /// The checksums that the bytes have of these kinds, as far as they can be computed.
    async fn hash(&mut self, kinds: &[ChecksumKind]) -> Result<Vec<Checksum>> {
        let size_bytes = self.judge.size_bytes().unwrap_or(0);
        let others: Vec<ChecksumKind> =
            kinds.iter().copied().filter(|kind| *kind != ChecksumKind::Adler32).collect();
        let mut hashed = match &self.target.sink {
            _ if others.is_empty() => Vec::new(),
            Sink::Ordered(feed) => feed.hashes().await,
            Sink::Anywhere(_) => {
                let kinds = others.clone();
                let hash = move |there: &OfTarget<'_>| {
                    hash_all(|into, offset| there.read_at(into, offset), size_bytes, kinds)
                };
                self.reading.read(self.target.anywhere(), hash).await??
            }
        };
        // What went out in order was hashed by what was known then.
        hashed.retain(|own| others.contains(&own.kind()));
        if kinds.contains(&ChecksumKind::Adler32) {
            let sum = self.target.ledger().adler32(size_bytes);
            let sum = sum
                .ok_or_else(|| Error::new(ErrorKind::Other, "the plan is complete and the ledger is not"))?;
            hashed.push(Checksum::adler32(sum));
        }
        Ok(hashed)
    }

    /// Compares pieces that were not compared when they came.
    async fn check_rest(&mut self) -> Result<()> {
        if self.target.pieces().is_none() || self.target.anywhere().is_none() {
            return Ok(());
        }
        let target = self.target.clone();
        self.reading.read(self.target.anywhere(), move |there| target.check_rest(there)).await?
    }

    /// Reads the file where blocking is allowed.
    async fn read_back(&mut self, ticket: u64, what: ReadBack) -> Result<()> {
        let answer = self.reading.read(self.target.anywhere(), move |there| what.answer(there)).await?;
        self.tell_judge(Heard::WasRead { ticket, answer });
        Ok(())
    }

    // --- The end ---------------------------------------------------------------------------------

    /// Makes the target visible, and asks an upload's server what it has.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let mut said = None;
        if let Sink::Ordered(feed) = &self.target.sink {
            let mut checksums = feed.hashes().await;
            checksums.extend(self.own_checksums());
            said = feed.finish(&checksums).await?;
        }
        if let Some(url) = self.upload_url.clone() {
            self.check_upload(&url, said).await?;
            if self.options.require_verified && self.judge.verified().is_none() {
                return Err(self.take_back(&url).await);
            }
        }
        let size_bytes = self.judge.size_bytes().unwrap_or(0);
        if let Some(target) = self.target.anywhere().cloned()
            && size_bytes >= SYNC_APART_BYTES_MIN
        {
            self.reading.sync(&target).await?;
        }
        match self.completion.take() {
            // Its lanes are closed.
            Some(mut completion) => {
                add_checksums(&mut completion, &self.own_checksums());
                let commit = |target: &dyn Target| target.commit(size_bytes, &completion).map(drop);
                self.target.in_turn(commit).await.unwrap_or(Ok(()))?;
            }
            None => self.close_lanes(LANE_END_MAX).await?,
        }
        if let Some(checksum) = self.judge.checksum() {
            self.observer.event(&Event::Verified { checksum, basis: self.judge.verified() });
        }
        Ok(())
    }

    /// Checksums of all bytes that are known without reading them.
    fn own_checksums(&self) -> Vec<Checksum> {
        let size_bytes = self.judge.size_bytes().unwrap_or(0);
        let sum = self.target.ledger().adler32(size_bytes).map(Checksum::adler32);
        self.judge.checksum().cloned().into_iter().chain(sum).collect()
    }

    /// The server's own checksum of the upload counts, not the one of the bytes sent; the server may have `said` it already.
    async fn check_upload(&mut self, url: &Url, said: Option<Checksum>) -> Result<()> {
        let (size_bytes, checksum) = match said {
            Some(checksum) => (None, Some(checksum)),
            None => {
                let target = Source::new(0, url.clone());
                match digests::word(&self.client, &target, Some(self.judge.first_kind())).await {
                    Ok(word) => (word.identity.size_bytes, word.checksum),
                    // It took the file, and refuses a look at it.
                    Err(_) => (None, None),
                }
            }
        };
        if self.judge.is_stored(size_bytes, checksum.as_ref()) {
            return Ok(());
        }
        let message = "the server has other bytes than were sent";
        Err(Error::new(ErrorKind::ChecksumMismatch, message)
            .endpoint(url)
            .retryable(true)
            .hint("upload it again"))
    }

    /// Removes what was uploaded, and cannot be compared; says why.
    async fn take_back(&self, url: &Url) -> Error {
        let message = "the upload cannot be verified: the server states no checksum";
        let error = Error::new(ErrorKind::ChecksumMismatch, message).fault(Fault::Peer).endpoint(url);
        match crate::upload::remove(&self.client, url).await {
            Ok(()) => error.hint(Hint::AcceptUnverified),
            Err(why) => error.hint(format!("remove the file; the server refused to: {}", why.message())),
        }
    }
}
