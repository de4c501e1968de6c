//! Taking up what an earlier run left: only if it is provably the same object, and only the bytes that
//! still have the checksum they were written with.

use std::time::Duration;

use gridlane_core::limits::FIRST_CONTACT_MAX;
use gridlane_core::{Backoff, ByteRange, Checksum, ChecksumKind, Error, ErrorKind, Fault, Hint, Result};
use gridlane_peer::patience::Patience;
use gridlane_plan::judge::{EARLIER, Event as Heard, Piece, Sender};
use gridlane_store::Found;
use gridlane_store::journal::{Journaled, JournaledRange, JournaledSource};
use tokio::task::JoinSet;

use crate::digests::{self, Word};
use crate::events::Event;
use crate::pieces::Surveyed;
use crate::read_back::{OfTarget, matching};
use crate::run::Run;

impl Run<'_> {
    /// Uses or drops what was found beside the target.
    pub(crate) async fn take_up(&mut self, found: Found) -> Result<()> {
        let dropped = match found {
            Found::Nothing => None,
            // Without a journal, but what a piece should be is known: whatever is right can be used.
            Found::Dropped(why) => match self.take_up_pieces().await? {
                true => None,
                false => Some(why),
            },
            Found::Locked(why) => match self.take_up_pieces().await? {
                true => None,
                false => {
                    self.earlier_kept = true;
                    let message = format!("the partial file of an earlier copy cannot be checked: {why}");
                    return Err(Error::new(ErrorKind::LocalIo, message).fault(Fault::Local).hint(
                        "set XDG_STATE_HOME to the directory that has its key, or remove the partial file",
                    ));
                }
            },
            Found::Earlier(journaled) => match self.same_object_or_keep(&journaled).await? {
                Ok(()) => {
                    self.restore(&journaled).await?;
                    None
                }
                Err(why) => Some(why),
            },
        };
        if self.judge.size_bytes().is_none() && self.judge.resumed_bytes() == 0 {
            self.target.briefly(|target| target.restart()).await.unwrap_or(Ok(()))?;
        }
        let (resumed_bytes, dropped) = (self.judge.resumed_bytes(), dropped.as_deref());
        self.observer.event(&Event::Plan { resumed_bytes, dropped });
        Ok(())
    }

    async fn same_object_or_keep(
        &mut self,
        journaled: &Journaled,
    ) -> Result<std::result::Result<(), String>> {
        // Until a source has answered, a failure or a stop leaves everything as it is.
        self.earlier_kept = true;
        let mut backoff = Backoff::new();
        let hope = FIRST_CONTACT_MAX.min(self.options.patience);
        let verdict = loop {
            match self.same_object(journaled).await {
                // The server may be about to be started again.
                // By the clock on the wall: the copy's own does not count what it does not look at.
                Err(error) if error.is_unreached() && self.pace.elapsed() < hope => {
                    tokio::time::sleep(backoff.pause()).await;
                }
                verdict => break verdict?,
            }
        };
        self.earlier_kept = false;
        Ok(verdict)
    }

    /// Asks the sources whether they have the object that the journal is about. `Ok(Err(why))`: they do
    /// not, or none can prove it.
    async fn same_object(&mut self, journaled: &Journaled) -> Result<std::result::Result<(), String>> {
        if journaled.done.is_empty() {
            return Ok(Err("its journal has no bytes".into()));
        }
        match self.known_same_object(journaled) {
            Some(true) => return Ok(Ok(())),
            Some(false) => return Ok(Err("the metalink describes another file".into())),
            None => {}
        }
        // Which version it has a source says at once; for a checksum it may have to read all of the file.
        if self.any_proves(journaled, None, self.options.patience).await? {
            return Ok(Ok(()));
        }
        if let Some(digest) = &journaled.digest {
            let wait = gridlane_plan::reading_max(self.options.patience, journaled.size_bytes);
            if self.any_proves(journaled, Some(digest.kind()), wait).await? {
                return Ok(Ok(()));
            }
        }
        Ok(Err("no source proves that it is the same version of the file".into()))
    }

    /// Asks the sources that may have the object which version they have, and with `kind` for their checksum, until one of
    /// them proves that it is that of the journal. That none answers in time proves nothing about the bytes: an error, and
    /// they are kept for the next try.
    async fn any_proves(
        &mut self,
        journaled: &Journaled,
        kind: Option<ChecksumKind>,
        wait: Duration,
    ) -> Result<bool> {
        // A checksum from the caller proves the object without a source.
        let told = self.options.checksum.as_ref().and_then(|(_, value)| value.clone());
        let told_same = told.is_some() && told == journaled.digest;
        let mut asked = JoinSet::new();
        for replica in &self.replicas {
            if replica.size_bytes().is_some_and(|size_bytes| size_bytes != journaled.size_bytes) {
                continue;
            }
            let (client, source) = (self.client.clone(), replica.source.clone());
            asked.spawn(async move { (source.number, digests::word(&client, &source, kind).await) });
        }
        if asked.is_empty() {
            return Ok(false);
        }
        let (mut answers, mut last_error) = (0, None);
        let mut patience = Patience::new(wait);
        while let Ok(Some(Ok((number, word)))) = patience.bear(asked.join_next()).await {
            let word: Word = match word {
                Ok(word) => word,
                Err(error) => {
                    last_error = Some(error);
                    continue;
                }
            };
            if number == 0 && word.identity.is_metalink && self.options.stop_at_metalink {
                self.is_metalink(0)?;
            }
            answers += 1;
            let source = &self.replicas[number as usize].source;
            // What it says now is what it will be held to; and its size is a vote.
            let _ = source.identify(&word.identity);
            let name = source.journal_name();
            let same_size = word.identity.size_bytes == Some(journaled.size_bytes);
            let same_version = word.identity.validator.is_some()
                && journaled.sources.iter().any(|JournaledSource { url: earlier, validator, .. }| {
                    *earlier == name && *validator == word.identity.validator
                });
            let same_bytes = word.checksum.is_some() && word.checksum == journaled.digest;
            if same_size && (same_version || same_bytes || told_same) {
                return Ok(true);
            }
        }
        match last_error {
            _ if answers > 0 => Ok(false),
            Some(error) => Err(error),
            None => {
                let message = "no source has answered in time whether it has the file of the earlier copy";
                Err(Error::new(ErrorKind::Timeout, message).hint(Hint::ContinueOrWaitLonger))
            }
        }
    }

    /// True if the statements about the object are about the one in the journal; `None`: they do not tell.
    fn known_same_object(&self, journaled: &Journaled) -> Option<bool> {
        let known = &self.options.known;
        let size_bytes = known.size_bytes?;
        let has_told = |digest: &Checksum| known.checksums.contains(digest);
        // Pieces prove every byte anew.
        let is_proved = self.target.pieces().is_some() || journaled.digest.as_ref().is_some_and(has_told);
        match size_bytes == journaled.size_bytes {
            false => Some(false),
            true => is_proved.then_some(true),
        }
    }

    /// Checks what the earlier run claims to have against the checksums of the pieces.
    async fn survey(&mut self, claims: Vec<JournaledRange>) -> Result<Surveyed> {
        let target = self.target.clone();
        let survey = move |there: &OfTarget<'_>| {
            target.pieces().map(|pieces| pieces.survey(there, &claims)).unwrap_or_default()
        };
        self.reading.read(self.target.anywhere(), survey).await
    }

    /// Uses the pieces of a partial file without a journal that are right. `false`: there are none.
    async fn take_up_pieces(&mut self) -> Result<bool> {
        let Some(size_bytes) = self.options.known.size_bytes else { return Ok(false) };
        let Some(len) = self.target.briefly(|target| target.size_bytes().unwrap_or(0)).await else {
            return Ok(false);
        };
        let len = len.min(size_bytes);
        let claim = JournaledRange { range: ByteRange::new(0, len), adler32: 0, source: EARLIER };
        let found = self.survey(vec![claim]).await?;
        if found.right.is_empty() {
            return Ok(false);
        }
        self.target.briefly(|target| target.restart_journal()).await.unwrap_or(Ok(()))?;
        {
            let mut ledger = self.target.ledger();
            for JournaledRange { range, adler32, .. } in found.right {
                for part in ledger.claim(range, EARLIER) {
                    ledger.commit(Piece { range: part, adler32, sender: EARLIER });
                }
                let epoch = ledger.epoch(range.start());
                ledger.verify(range, epoch);
            }
        }
        self.tell_judge(Heard::Continued { size_bytes: None });
        Ok(true)
    }

    /// Checks the journaled ranges against the bytes and keeps those that match.
    async fn restore(&mut self, journaled: &Journaled) -> Result<()> {
        if self.target.anywhere().is_none() {
            return Ok(());
        }
        let done = journaled.done.clone();
        let checked = match self.target.pieces() {
            Some(_) => self.survey(done).await?,
            None => {
                let parts =
                    self.reading.read(self.target.anywhere(), move |there| matching(there, &done)).await?;
                Surveyed { parts, right: Vec::new() }
            }
        };
        let sender = |id: u32| -> Sender {
            let earlier = journaled.sources.iter().find(|source| source.id == id);
            let now = earlier.and_then(|earlier| {
                self.replicas.iter().find(|replica| replica.source.journal_name() == earlier.url)
            });
            now.map_or(EARLIER.saturating_add(id), |replica| replica.source.number)
        };
        {
            let mut ledger = self.target.ledger();
            // Later records replace earlier ones.
            for done in checked.right.iter().chain(checked.parts.iter().rev()) {
                ledger.restore(Piece {
                    range: done.range,
                    adler32: done.adler32,
                    sender: sender(done.source),
                });
            }
            for JournaledRange { range, .. } in &checked.right {
                let epoch = ledger.epoch(range.start());
                ledger.verify(*range, epoch);
            }
        }
        self.tell_judge(Heard::Continued { size_bytes: Some(journaled.size_bytes) });
        self.obey_judge().await?;
        self.journal_base =
            journaled.sources.iter().map(|source| source.id.saturating_add(1)).max().unwrap_or(1);
        self.resume_with(journaled.size_bytes);
        Ok(())
    }
}
