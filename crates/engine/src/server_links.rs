//! The use of other replicas and of the metalink that a server states with a file (RFC 6249). A manager of XRootD's
//! protocol is asked for the other replicas.
//!
//! They are hints, never facts. A replica that only a server named has no vote about size or checksum, and
//! is used only where a checksum of the whole will be compared that does not come from it. From https nothing
//! leads to what is not encrypted.

use gridlane_core::limits::{SERVED_METALINK_BYTES_MIN, SERVED_REPLICAS_MAX, SOURCES_MAX};
use gridlane_core::{Error, ErrorKind, Result, Url};

use crate::events::Event;
use crate::links::{FoundMetalink, ServerLinks};
use crate::replica::Replica;
use crate::run::Run;

impl Run<'_> {
    /// Takes the replicas and the metalink that a source has stated.
    pub(crate) fn add_server_links(&mut self, source: usize, served: ServerLinks) -> Result<()> {
        if self.judge.is_described() || self.judge.members()[source].is_served {
            return Ok(());
        }
        if source == 0 {
            self.served_metalink = served.metalink;
            self.go_on_with_metalink()?;
        }
        if self.judge.told().is_none() && self.judge.votes().statement(source).is_empty() {
            return Ok(());
        }
        for url in served.replicas {
            let count = self.judge.members().iter().filter(|member| member.is_served).count();
            let is_known = self.replicas.iter().any(|replica| replica.source.url == url);
            if !is_known && count < SERVED_REPLICAS_MAX && self.replicas.len() < SOURCES_MAX {
                self.add_served(url);
            }
        }
        Ok(())
    }

    fn add_served(&mut self, url: Url) {
        let name = url.to_string();
        let replica = Replica::new(self.replicas.len(), url, None);
        self.judge.add_source(self.pace.now(), false);
        self.observer.event(&Event::Added { source: self.replicas.len(), url: &name });
        self.replicas.push(replica);
        self.plan.add_source(self.pace.now());
    }

    /// Ends the copy where it is better begun again with the metalink that the first source's server names:
    /// so much is to come that comparing pieces is worth it, and what is there can be kept.
    pub(crate) fn go_on_with_metalink(&mut self) -> Result<()> {
        let missing = self.plan.missing_bytes().unwrap_or(0);
        let is_worth_it = self.target.anywhere().is_some() && missing >= SERVED_METALINK_BYTES_MIN;
        if !self.options.stop_at_metalink || !is_worth_it {
            return Ok(());
        }
        let Some(url) = self.served_metalink.take() else { return Ok(()) };
        let kind = self.judge.first_kind();
        let checksum = self.judge.votes().statement(0).iter().find(|own| own.kind() == kind).cloned();
        self.found_metalink =
            Some(FoundMetalink { url, is_source: false, size_bytes: self.judge.size_bytes(), checksum });
        Err(continues_with_metalink())
    }

    /// Ends the copy at a source that turned out to be a metalink: the caller reads it.
    pub(crate) fn is_metalink(&mut self, source: usize) -> Result<()> {
        let url = self.replicas[source].source.url.clone();
        self.found_metalink = Some(FoundMetalink { url, is_source: true, size_bytes: None, checksum: None });
        Err(continues_with_metalink())
    }
}

fn continues_with_metalink() -> Error {
    Error::new(ErrorKind::Interrupted, "the copy continues with a metalink")
}
