//! What a server says of a file beside the file: where else it is, and where its metalink is (RFC 6249). A manager of
//! XRootD's protocol is asked where else it is.
//!
//! A hint, never a fact. A replica that only a server named has no vote about size or checksum, and
//! is used only where a checksum of the whole will be compared that does not come from it. From https nothing
//! leads to what is not encrypted.

use gridlane_core::limits::{SERVED_METALINK_BYTES_MIN, SERVED_REPLICAS_MAX, SOURCES_MAX};
use gridlane_core::{Checksum, Error, ErrorKind, Result, Url};
use gridlane_dav::header::Headers;
use gridlane_dav::link_header;

use crate::events::Event;
use crate::replica::Replica;
use crate::run::Run;

/// What the heads of an answer say, redirects included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Other replicas, the best first.
    pub(crate) replicas: Vec<Url>,
    /// The file's metalink.
    pub(crate) metalink: Option<Url>,
}

/// A metalink that a source turned out to be, or to have. Nobody has read it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMetalink {
    /// Where it is.
    pub url: Url,
    /// Whether the source itself is it; else it describes the file that the source is.
    pub is_source: bool,
    /// The file's agreed size: a metalink that says otherwise is of another one.
    pub size_bytes: Option<u64>,
    /// What the server itself says of the file, likewise.
    pub checksum: Option<Checksum>,
}

impl Served {
    /// Takes what a head says that came from `from`.
    pub(crate) fn take(&mut self, from: &Url, headers: &Headers) {
        let usable = |reference: &str| from.join(reference).ok().filter(|to| may_lead(from, to));
        for replica in link_header::duplicates(headers) {
            let url = usable(&replica.url);
            self.replicas.extend(url.filter(|url| !self.replicas.contains(url)));
        }
        self.replicas.truncate(SERVED_REPLICAS_MAX);
        self.metalink = self.metalink.take().or_else(|| usable(&link_header::metalink(headers)?));
    }

    /// Takes the servers that a manager of XRootD's protocol knows, but for the one that it sends us to.
    pub(crate) fn take_located(&mut self, used: &Url, found: Vec<Url>) {
        self.replicas.extend(found.into_iter().filter(|url| !url.same_endpoint(used)));
        self.replicas.truncate(SERVED_REPLICAS_MAX);
    }
}

/// Whether a server may send us there: by HTTP only, never to a file of this machine, never out of encryption.
fn may_lead(from: &Url, to: &Url) -> bool {
    to.scheme().is_http() && (to.scheme().is_encrypted() || !from.scheme().is_encrypted())
}

impl Run<'_> {
    /// A source has said what else there is.
    pub(crate) fn served(&mut self, source: usize, served: Served) -> Result<()> {
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
        let replica = Replica::new(self.replicas.len(), url);
        self.judge.add_source(self.pace.now(), false);
        self.observer.event(&Event::Added { source: self.replicas.len(), url: &name });
        self.replicas.push(replica);
        self.plan.add_source(self.pace.now());
    }

    /// Ends the copy where it is better begun again with the metalink that the first source's server names:
    /// so much is to come that comparing pieces is worth it, and what is there can be kept.
    pub(crate) fn go_on_with_metalink(&mut self) -> Result<()> {
        let missing = self.plan.missing_bytes().unwrap_or(0);
        let is_worth_it = self.target.partial().is_some() && missing >= SERVED_METALINK_BYTES_MIN;
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

    /// A source turned out to be a metalink: it is for whoever reads those.
    pub(crate) fn is_metalink(&mut self, source: usize) -> Result<()> {
        let url = self.replicas[source].source.url.clone();
        self.found_metalink = Some(FoundMetalink { url, is_source: true, size_bytes: None, checksum: None });
        Err(continues_with_metalink())
    }
}

fn continues_with_metalink() -> Error {
    Error::new(ErrorKind::Interrupted, "the copy continues with a metalink")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_who_said_them_and_never_lead_out_of_encryption() {
        let mut headers = Headers::new();
        for line in [
            "</b/f>; rel=duplicate; pri=2",
            "<http://plain.example/f>; rel=duplicate; pri=1",
            "<https://a.example/f>; rel=duplicate; pri=1",
            "<file:///etc/passwd>; rel=duplicate; pri=1",
            "<roots://a.example//f>; rel=duplicate; pri=1",
            "<f.meta4>; rel=describedby; type=\"application/metalink4+xml\"",
        ] {
            headers.push("Link", line.as_bytes());
        }
        let from = Url::parse_absolute("https://h.example/d/f").unwrap();
        let mut served = Served::default();
        served.take(&from, &headers);
        served.take(&from, &headers);
        let urls: Vec<&str> = served.replicas.iter().map(Url::as_str).collect();
        assert_eq!(urls, ["https://a.example/f", "https://h.example/b/f"]);
        assert_eq!(served.metalink.unwrap().as_str(), "https://h.example/d/f.meta4");
        let mut served = Served::default();
        served.take(&Url::parse_absolute("http://h.example/d/f").unwrap(), &headers);
        assert_eq!(served.replicas.len(), 3);
    }
}
