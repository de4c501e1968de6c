//! Taking up what an earlier run left: only if it is provably the same object, and only the bytes that
//! still have the checksum they were written with.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gridlane_core::checksum::{ADLER32_EMPTY, adler32, adler32_combine};
use gridlane_core::limits::IO_BYTES;
use gridlane_core::{ByteRange, Error, ErrorKind, Result};
use gridlane_store::journal::{Journaled, JournaledRange, JournaledSource};
use gridlane_store::partial::Found;
use gridlane_sys::AlignedBuf;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::digests::{self, Word};
use crate::events::Event;
use crate::ledger::{EARLIER, Piece, Sender};
use crate::run::Run;

impl Run<'_> {
    /// Uses or drops what was found beside the target.
    pub(crate) async fn take_up(&mut self, found: Found) -> Result<()> {
        let dropped = match found {
            Found::Nothing => None,
            Found::Dropped(why) => Some(why),
            Found::Earlier(journaled) => match self.same_object_or_keep(&journaled).await? {
                Ok(()) => {
                    self.restore(&journaled).await?;
                    None
                }
                Err(why) => Some(why),
            },
        };
        if let Some(partial) = self.target.partial()
            && self.size_bytes.is_none()
        {
            partial.restart()?;
        }
        let (resumed_bytes, dropped) = (self.resumed_bytes, dropped.as_deref());
        self.observer.event(&Event::Plan { resumed_bytes, dropped });
        Ok(())
    }

    async fn same_object_or_keep(
        &mut self,
        journaled: &Journaled,
    ) -> Result<std::result::Result<(), String>> {
        // Until somebody has answered, a failure or a stop leaves everything as it is.
        self.earlier_kept = true;
        let verdict = self.same_object(journaled).await?;
        self.earlier_kept = false;
        Ok(verdict)
    }

    /// Asks the sources whether they have the object that the journal is about. `Ok(Err(why))`: they do
    /// not, or nobody can prove it.
    async fn same_object(&mut self, journaled: &Journaled) -> Result<std::result::Result<(), String>> {
        if journaled.done.is_empty() {
            return Ok(Err("its journal has no bytes".into()));
        }
        let kind = journaled.digest.as_ref().map(|digest| digest.kind());
        // The caller's own word about the object needs no source.
        let told = self.options.checksum.as_ref().and_then(|(_, value)| value.clone());
        let told_same = told.is_some() && told == journaled.digest;
        let mut asked = JoinSet::new();
        for replica in &self.replicas {
            let (client, source) = (self.client.clone(), replica.source.clone());
            asked.spawn(async move { (source.number, digests::word(&client, &source, kind).await) });
        }
        let (mut answers, mut last_error) = (0, None);
        let until = tokio::time::Instant::now() + self.options.patience;
        while let Ok(Some(Ok((number, word)))) = timeout_at(until, asked.join_next()).await {
            let word: Word = match word {
                Ok(word) => word,
                Err(error) => {
                    last_error = Some(error);
                    continue;
                }
            };
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
                return Ok(Ok(()));
            }
        }
        match last_error {
            // Nobody answered: that proves nothing about the bytes, so they are kept for the next try.
            Some(error) if answers == 0 => Err(error),
            _ => Ok(Err("no source proves that it is the same version of the file".into())),
        }
    }

    /// Checks the journaled ranges against the bytes and keeps those that match.
    async fn restore(&mut self, journaled: &Journaled) -> Result<()> {
        let Some(partial) = self.target.partial() else { return Ok(()) };
        let file = partial.file().try_clone();
        let file = file.map_err(|cause| Error::local_io("cannot read the partial file back", &cause))?;
        let done = journaled.done.clone();
        let checked = tokio::task::spawn_blocking(move || matching(&file, &done)).await;
        let checked = checked.map_err(|cause| {
            Error::new(ErrorKind::Other, format!("checking the partial file failed: {cause}"))
        })?;
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
            for done in checked.iter().rev() {
                ledger.restore(Piece {
                    range: done.range,
                    adler32: done.adler32,
                    sender: sender(done.source),
                });
            }
            self.resumed_bytes = ledger.pieces().map(|piece| piece.range.len()).sum();
        }
        self.journal_base =
            journaled.sources.iter().map(|source| source.id.saturating_add(1)).max().unwrap_or(1);
        self.resume_with(journaled.size_bytes);
        Ok(())
    }
}

/// The ranges whose bytes have the checksum that is claimed for them.
pub(crate) fn matching(file: &File, done: &[JournaledRange]) -> Vec<JournaledRange> {
    let mut buf = AlignedBuf::new(IO_BYTES);
    done.iter()
        .copied()
        .filter(|done| read_adler32(file, done.range, &mut buf) == Some(done.adler32))
        .collect()
}

fn read_adler32(file: &File, range: ByteRange, buf: &mut [u8]) -> Option<u32> {
    let mut at = range.start();
    let mut sum = ADLER32_EMPTY;
    while at < range.end() {
        let room = (range.end() - at).min(buf.len() as u64) as usize;
        let count = file.read_at(&mut buf[..room], at).ok().filter(|count| *count > 0)?;
        sum = adler32_combine(sum, adler32(&buf[..count]), count as u64);
        at += count as u64;
    }
    Some(sum)
}
