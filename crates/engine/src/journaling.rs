//! The records of a copy for its journal: the object, its sources, its checksum, and the bytes that are written.

use gridlane_core::{Checksum, Result};
use gridlane_store::Target;
use gridlane_store::journal::Record;

use crate::events::Event;
use crate::run::Run;

impl Run<'_> {
    /// Continues an earlier run's object, whose bytes are in the ledger now.
    pub(crate) fn resume_with(&mut self, size_bytes: u64) {
        self.target.agree(Some(size_bytes));
        self.journal_begun = true;
        self.observer.event(&Event::Started { size_bytes });
    }

    pub(crate) async fn begin_journal(&mut self) -> Result<()> {
        let (Some(_), Some(size_bytes)) = (self.target.anywhere(), self.judge.size_bytes()) else {
            return Ok(());
        };
        if self.journal_base == 0 {
            self.record(&[Record::object(size_bytes)]).await?;
        }
        self.journal_begun = true;
        for source in 0..self.replicas.len() {
            if self.replicas[source].source.identity().is_some() {
                self.journal_source(source).await?;
            }
        }
        // The checksum may have been agreed before the size was.
        match self.judge.agreed() {
            Some(checksum) => self.journal_digest(&checksum).await,
            None => Ok(()),
        }
    }

    /// Records the version that a source has.
    pub(crate) async fn journal_source(&self, source: usize) -> Result<()> {
        let source = &self.replicas[source].source;
        let Some(identity) = source.identity().filter(|_| self.journal_begun) else { return Ok(()) };
        let (id, url) = (self.journal_base.saturating_add(source.number), source.journal_name());
        self.record(&[Record::Source { id, url, validator: identity.validator }]).await
    }

    /// Records the agreed checksum.
    pub(crate) async fn journal_digest(&self, checksum: &Checksum) -> Result<()> {
        match self.journal_begun {
            true => self.record(&[Record::Digest { value: checksum.to_string() }]).await,
            false => Ok(()),
        }
    }

    /// Records the bytes that have been written since the last time.
    pub(crate) async fn journal(&mut self) -> Result<()> {
        self.journaled_at = self.pace.now();
        if !self.journal_begun {
            self.target.ledger().take_unjournaled();
            return Ok(());
        }
        let record = |target: &dyn Target| {
            // Taken only once the write may begin: a copy that is stopped while it waits for that loses none.
            let pieces = self.target.ledger().take_unjournaled();
            let records: Vec<Record> = pieces
                .iter()
                .map(|piece| Record::Done {
                    offset: piece.range.start(),
                    len: piece.range.len(),
                    adler32: piece.adler32,
                    source: self.journal_base.saturating_add(piece.sender),
                })
                .collect();
            target.record(&records)
        };
        self.target.briefly(record).await.unwrap_or(Ok(()))
    }

    async fn record(&self, records: &[Record]) -> Result<()> {
        self.target.briefly(|target| target.record(records)).await.unwrap_or(Ok(()))
    }
}
