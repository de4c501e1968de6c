//! Parsing of the links that a server states with a file: other replicas, and the metalink (RFC 6249). `server_links` uses them.

use gridlane_core::limits::SERVED_REPLICAS_MAX;
use gridlane_core::{Checksum, Url};
use gridlane_dav::header::Headers;
use gridlane_dav::link_header;

/// The links that the heads of an answer state, redirects included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerLinks {
    /// Other replicas, the best first.
    pub(crate) replicas: Vec<Url>,
    /// The file's metalink.
    pub(crate) metalink: Option<Url>,
}

/// A metalink that a source turned out to be, or to have; not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMetalink {
    /// Where it is.
    pub url: Url,
    /// The source itself is the metalink; else it describes the file that the source is.
    pub is_source: bool,
    /// The file's agreed size: a metalink that says otherwise is of another one.
    pub size_bytes: Option<u64>,
    /// The checksum that the server itself states of the file; a metalink with another one is of another file, too.
    pub checksum: Option<Checksum>,
}

impl ServerLinks {
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

    /// Takes the servers that a manager of XRootD's protocol knows, but for the one that it redirects to.
    pub(crate) fn take_located(&mut self, used: &Url, found: Vec<Url>) {
        self.replicas.extend(found.into_iter().filter(|url| !url.same_endpoint(used)));
        self.replicas.truncate(SERVED_REPLICAS_MAX);
    }
}

/// True if a server's link may be followed: by HTTP only, never to a file of this machine, never out of encryption.
fn may_lead(from: &Url, to: &Url) -> bool {
    to.scheme().is_http() && (to.scheme().is_encrypted() || !from.scheme().is_encrypted())
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
        let mut served = ServerLinks::default();
        served.take(&from, &headers);
        served.take(&from, &headers);
        let urls: Vec<&str> = served.replicas.iter().map(Url::as_str).collect();
        assert_eq!(urls, ["https://a.example/f", "https://h.example/b/f"]);
        assert_eq!(served.metalink.unwrap().as_str(), "https://h.example/d/f.meta4");
        let mut served = ServerLinks::default();
        served.take(&Url::parse_absolute("http://h.example/d/f").unwrap(), &headers);
        assert_eq!(served.replicas.len(), 3);
    }
}
