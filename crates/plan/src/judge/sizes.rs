//! How large the object is, when sources may contradict each other.

use gridlane_core::{Error, ErrorKind, Result};
use gridlane_plan as plan;

use crate::events::Event;
use crate::replica::Replica;
use crate::run::Run;
use crate::target::Sink;

impl Run<'_> {
    /// A source has said how large its object is.
    pub(crate) async fn identified(&mut self, source: usize, size_bytes: Option<u64>) -> Result<()> {
        let is_metalink =
            self.replicas[source].source.identity().is_some_and(|identity| identity.is_metalink);
        if source == 0 && is_metalink && self.options.stop_at_metalink {
            self.is_worthless = true;
            return self.is_metalink(source);
        }
        self.journal_source(source)?;
        self.votes.heard(source, self.pace.now());
        if let Some(size_bytes) = size_bytes {
            self.votes.says_size(source, size_bytes);
        }
        let Some(size_bytes) = size_bytes.filter(|_| self.replicas[source].dead.is_none()) else {
            return Ok(());
        };
        match self.size_bytes {
            Some(agreed) if agreed == size_bytes => self.check_space(),
            Some(agreed) if self.replicas[source].is_served => {
                self.outvote(source, size_bytes, agreed);
                Ok(())
            }
            Some(agreed) => self.contradicted(source, size_bytes, agreed).await,
            // Whoever named it will say how large the file is.
            None if self.replicas[source].is_served => Ok(()),
            None => {
                self.agree(size_bytes).await?;
                self.go_on_with_metalink()
            }
        }
    }

    pub(crate) async fn agree(&mut self, size_bytes: u64) -> Result<()> {
        self.size_bytes = Some(size_bytes);
        self.has_new_lanes = true;
        self.target.agree(Some(size_bytes));
        self.plan.handle(self.pace.now(), plan::Event::SizeKnown { size_bytes });
        self.observer.event(&Event::Started { size_bytes });
        match &self.target.sink {
            Sink::Ordered(feed) => feed.size(size_bytes).await?,
            Sink::Partial(_) => {
                self.check_space()?;
                self.begin_journal()?;
            }
        }
        Ok(())
    }

    /// Fails early when the file cannot fit. A single source's word is not enough for that while others have
    /// not answered: it may be the one that is wrong.
    fn check_space(&self) -> Result<()> {
        let (Some(partial), Some(size_bytes)) = (self.target.partial(), self.size_bytes) else {
            return Ok(());
        };
        let is_silent = |replica: &&Replica| replica.dead.is_none() && replica.source.identity().is_none();
        let missing = size_bytes.saturating_sub(partial.allocated_bytes());
        if self.replicas.iter().any(|replica| is_silent(&replica))
            || partial.free_bytes().is_none_or(|free| free >= missing)
        {
            return Ok(());
        }
        let message = format!("no space for {missing} more bytes beside {}", partial.target().display());
        let hint = "free some space, then run the same command: it continues";
        Err(Error::new(ErrorKind::LocalIo, message).no_space().hint(hint))
    }

    /// Two sources say different sizes: the copy goes on with the one that leads. Who was outvoted keeps its vote, and a
    /// later one may turn the majority; whether there is one in the end is part of the verdict.
    async fn contradicted(&mut self, source: usize, size_bytes: u64, agreed: u64) -> Result<()> {
        if self.options.known.size_bytes == Some(agreed) {
            self.outvote(source, size_bytes, agreed);
            return Ok(());
        }
        let right = self.votes.leading_size().unwrap_or(agreed);
        if right == agreed {
            self.outvote(source, size_bytes, right);
            return Ok(());
        }
        if self.target.partial().is_none() {
            // What a stream has taken cannot be called back.
            let hint = "copy to a file, or name one source that is right";
            return Err(other_size(agreed, right).endpoint(&self.replicas[source].source.url).hint(hint));
        }
        self.start_over(right).await
    }

    /// A source does not count any more: others may lead now.
    pub(crate) async fn recount_sizes(&mut self) -> Result<()> {
        let leading = self.votes.leading_size().filter(|_| self.options.known.size_bytes.is_none());
        match (self.size_bytes, leading) {
            (Some(agreed), Some(leading)) if leading != agreed && self.target.partial().is_some() => {
                self.start_over(leading).await
            }
            _ => Ok(()),
        }
    }

    /// Starts over with another size, with those who say it.
    async fn start_over(&mut self, right: u64) -> Result<()> {
        self.close_lanes().await?;
        for replica in &mut self.replicas {
            // Lanes are counted from the beginning again: another one would be taken for the one that was to ask.
            replica.asks_by_lane |= replica.asking_lane.take().is_some();
        }
        // What lanes had still to tell may have changed that.
        let right = self.votes.leading_size().unwrap_or(right);
        self.wasted_bytes = self.replicas.iter().map(|replica| replica.received_bytes).sum::<u64>();
        for number in 0..self.replicas.len() {
            match self.replicas[number].size_bytes() {
                Some(size) if size != right => self.outvote(number, size, right),
                Some(_) if self.replicas[number].outvoted && !self.replicas[number].is_served => {
                    let replica = &mut self.replicas[number];
                    (replica.outvoted, replica.distrusted) = (false, false);
                    (replica.dead, replica.last_error) = (None, None);
                    self.votes.ask(number, self.pace.now());
                    self.ask_digest(number);
                }
                _ => {}
            }
        }
        self.resumed_bytes = 0;
        self.earlier.ranges.clear();
        self.target.ledger().clear();
        self.disbelieve();
        if let Some(partial) = self.target.partial() {
            partial.restart()?;
        }
        self.journal_begun = false;
        self.journal_base = 0;
        self.size_bytes = None;
        self.votes.whole(None);
        self.votes.continues(None);
        self.target.agree(None);
        (self.suspects, self.checksum) = (None, None);
        self.replicas.iter_mut().for_each(|replica| replica.doubted = false);
        self.new_plan();
        self.agree(right).await
    }

    fn outvote(&mut self, source: usize, size_bytes: u64, right: u64) {
        let error = match self.options.known.size_bytes {
            Some(_) => {
                let message = format!("it has {size_bytes} bytes, the metalink says {right}");
                Error::new(ErrorKind::ChecksumMismatch, message).hint("it is another file, or damaged")
            }
            None => other_size(size_bytes, right),
        };
        let error = error.endpoint(&self.replicas[source].source.url);
        self.replicas[source].outvoted = true;
        self.kill(source, error, true);
    }
}

fn other_size(size_bytes: u64, right: u64) -> Error {
    Error::new(ErrorKind::ChecksumMismatch, format!("it has {size_bytes} bytes, the others say {right}"))
        .hint("it is another file, or damaged")
}
