//! What the journal is told: which object, which sources, which checksum, which bytes.

use gridlane_core::{Checksum, Result};
use gridlane_store::Target as _;
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

    pub(crate) fn begin_journal(&mut self) -> Result<()> {
        let (Some(partial), Some(size_bytes)) = (self.target.partial(), self.judge.size_bytes()) else {
            return Ok(());
        };
        if self.journal_base == 0 {
            partial.record(&[Record::object(size_bytes)])?;
        }
        self.journal_begun = true;
        for source in 0..self.replicas.len() {
            if self.replicas[source].source.identity().is_some() {
                self.journal_source(source)?;
            }
        }
        // The checksum may have been agreed before the size was.
        match self.judge.agreed() {
            Some(checksum) => self.journal_digest(&checksum),
            None => Ok(()),
        }
    }

    /// Tells the journal which version a source has.
    pub(crate) fn journal_source(&self, source: usize) -> Result<()> {
        let source = &self.replicas[source].source;
        match (self.target.partial(), source.identity()) {
            (Some(partial), Some(identity)) if self.journal_begun => partial.record(&[Record::Source {
                id: self.journal_base.saturating_add(source.number),
                url: source.journal_name(),
                validator: identity.validator,
            }]),
            _ => Ok(()),
        }
    }

    /// Tells the journal the agreed checksum.
    pub(crate) fn journal_digest(&self, checksum: &Checksum) -> Result<()> {
        match self.target.partial() {
            Some(partial) if self.journal_begun => {
                partial.record(&[Record::Digest { value: checksum.to_string() }])
            }
            _ => Ok(()),
        }
    }

    /// Tells the journal which bytes have been written since the last time.
    pub(crate) fn journal(&mut self) -> Result<()> {
        self.journaled_at = self.pace.now();
        let Some(partial) = self.target.partial().filter(|_| self.journal_begun) else {
            self.target.ledger().take_unjournaled();
            return Ok(());
        };
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
        partial.record(&records)
    }
}
