//! A replica, as all lanes to it know it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, UNIX_EPOCH};

use gridlane_core::limits::ROOT_REQUESTS_PER_CONNECTION_MAX;
use gridlane_core::{Checksum, ChecksumKind, Hasher, Url};
use gridlane_dav::ResponseHead;
use gridlane_dav::metalink::Format;
use gridlane_peer::root::SharedSession;
use gridlane_xrd::answer::StatText;

use crate::spec::StoredSource;

/// A date counts as a strong validator only when the file was last changed this long before the answer
/// (RFC 9110, 8.8.2.2): within the same second it could have been changed again unnoticed.
const DATE_IS_STRONG_AFTER: Duration = Duration::from_secs(60);

/// Which version of the object a source has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Size, when it tells.
    pub(crate) size_bytes: Option<u64>,
    /// A strong ETag as it stands, or `date:SECONDS`; `None` when it has neither.
    pub(crate) validator: Option<String>,
    /// The answer is a metalink, by its media type.
    pub(crate) is_metalink: bool,
    /// An ETag came with the answer, a weak one too.
    pub(crate) is_tagged: bool,
}

impl Identity {
    /// The identity that an HTTP response states.
    pub(crate) fn of_response(head: &ResponseHead, size_bytes: Option<u64>) -> Identity {
        let etag = head.etag().filter(|etag| !etag.is_weak()).map(|etag| format!("\"{}\"", etag.opaque()));
        let validator = etag.or_else(|| {
            let modified = head.last_modified()?;
            let settled = head.date()?.duration_since(modified).ok()? >= DATE_IS_STRONG_AFTER;
            let seconds = modified.duration_since(UNIX_EPOCH).ok()?.as_secs();
            settled.then(|| format!("date:{seconds}"))
        });
        let is_metalink = head.headers.all("content-type").any(|text| Format::of_media_type(text).is_some());
        Identity { size_bytes, validator, is_metalink, is_tagged: head.etag().is_some() }
    }

    /// The identity that XRootD's stat text states. `of_itself`: the text is of the server that was named. Others,
    /// behind a manager, have other numbers and times for the same file.
    pub(crate) fn of_stat(stat: &StatText, of_itself: bool) -> Identity {
        let validator = of_itself.then(|| format!("root:{}:{}", stat.id, stat.modified_s));
        Identity { validator, ..Identity::of_size(stat.size_bytes) }
    }

    /// Only the size is known.
    pub(crate) fn of_size(size_bytes: u64) -> Identity {
        Identity { size_bytes: Some(size_bytes), ..Identity::unknown() }
    }

    fn has_etag(&self) -> bool {
        self.validator.as_ref().is_some_and(|validator| validator.starts_with('"'))
    }

    /// Nothing is known.
    pub(crate) fn unknown() -> Identity {
        Identity { size_bytes: None, validator: None, is_metalink: false, is_tagged: false }
    }

    /// True if two answers can be about the same version: nothing that both tell may differ.
    pub(crate) fn agrees_with(&self, other: &Identity) -> bool {
        fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        !differ(&self.size_bytes, &other.size_bytes) && !differ(&self.validator, &other.validator)
    }
}

/// A replica.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its number in the plan, the ledger and the events.
    pub(crate) number: u32,
    /// The URL that the caller gave.
    pub(crate) url: Url,
    /// The open file that it is, where it is no URL but in name.
    pub(crate) stored: Option<StoredSource>,
    /// It can be opened but once, on one session.
    opens_once: bool,
    /// Held by the lane that is about to open it, in this case.
    opening: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Where redirects led.
    resolved: Option<Url>,
    /// The other end of its last connection.
    peer: Option<SocketAddr>,
    identity: Option<Identity>,
    /// An answer with bytes came without an ETag.
    has_sent_untagged: bool,
    /// The size of its object in its answer to the request for the checksum.
    asked_bytes: Option<u64>,
    /// The checksums that it has stated without having been asked.
    stated: Vec<Checksum>,
    /// A session with the file open, which other lanes may be bound to.
    shared: Weak<SharedSession>,
}

impl Source {
    pub(crate) fn new(number: u32, url: Url) -> Source {
        let opens_once = url.cgi().is_some_and(|cgi| cgi.split('&').any(|pair| pair.starts_with("tpc.key=")));
        Source { number, url, stored: None, opens_once, opening: Default::default(), known: Mutex::default() }
    }

    /// Requests that its server takes at once on one connection, if that is few.
    pub(crate) fn requests_max(&self) -> Option<usize> {
        self.url.scheme().is_root().then_some(ROOT_REQUESTS_PER_CONNECTION_MAX)
    }

    /// The same, being this open file of a storage.
    pub(crate) fn stored(self, stored: Option<StoredSource>) -> Source {
        Source { stored, ..self }
    }

    /// Its name in the journal: the URL without secrets, and a hash of its path and query.
    pub(crate) fn journal_name(&self) -> String {
        let mut hasher = Hasher::new(ChecksumKind::Sha256);
        // The key of a third-party copy is another one the next time.
        let (target, is_keyed) = (self.url.request_target(), |pair: &str| pair.starts_with("tpc."));
        let pieces = target.split_inclusive(['?', '&']).filter(|pair| !(self.opens_once && is_keyed(pair)));
        pieces.for_each(|piece| hasher.update(piece.as_bytes()));
        format!("{} {}", &hasher.finish().hex()[..16], self.url)
    }

    /// Waits until no other lane is about to open the file, where it can be opened but once: its URL has the key of a third-party
    /// copy, for which XRootD's servers let one in. All other lanes are bound to the session that it is open on.
    pub(crate) async fn opening(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.opens_once {
            true => Some(self.opening.lock().await),
            false => None,
        }
    }

    /// True if it can be opened but once, and was: a server that is not there any longer has forgotten that it may be.
    pub(crate) fn was_opened_once(&self) -> bool {
        self.opens_once && self.identity().is_some()
    }

    /// Notes that it brought nothing to be bound to a session. The next lane opens the file itself, where it can be opened again.
    pub(crate) fn refuse(&self, shared: &SharedSession) {
        if !self.opens_once {
            shared.refuse();
        }
    }

    /// Where to ask: the end of the redirects if they are known.
    pub(crate) fn current_url(&self) -> Url {
        self.known().resolved.clone().unwrap_or_else(|| self.url.clone())
    }

    /// Remembers where redirects led; `None`: start again from the URL that was given.
    pub(crate) fn set_resolved(&self, url: Option<Url>) {
        self.known().resolved = url;
    }

    /// Remembers the other end of a connection to it.
    pub(crate) fn set_peer(&self, peer: Option<SocketAddr>) {
        self.known().peer = peer;
    }

    /// The other end of its last connection.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.known().peer
    }

    /// A session with the file open that another lane may be bound to.
    pub(crate) fn shared_session(&self) -> Option<Arc<SharedSession>> {
        self.known().shared.upgrade().filter(|shared| shared.is_useful())
    }

    /// Remembers a session that other lanes may be bound to, unless there is one.
    pub(crate) fn set_shared_session(&self, shared: Weak<SharedSession>) {
        let mut known = self.known();
        if known.shared.upgrade().is_none_or(|shared| !shared.is_useful()) {
            known.shared = shared;
        }
    }

    /// The version that it has, if it has stated one.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.known().identity.clone()
    }

    /// Remembers how large it said its object is when it was asked for the checksum.
    pub(crate) fn set_asked_bytes(&self, size_bytes: Option<u64>) {
        self.known().asked_bytes = size_bytes;
    }

    /// Remembers checksums that it states without having been asked for them; those that are news. Of each kind two: that they
    /// differ says all that more of them could.
    pub(crate) fn note_stated(&self, mut checksums: Vec<Checksum>) -> Vec<Checksum> {
        let mut known = self.known();
        checksums.retain(|one| {
            let is_known = known.stated.contains(one);
            let is_news = !is_known && known.stated.iter().filter(|own| own.kind() == one.kind()).count() < 2;
            if is_news {
                known.stated.push(one.clone());
            }
            is_news
        });
        checksums
    }

    /// The sizes that it has told, when they are two: the one in answers with bytes, and the one in the answer to the
    /// request for the checksum are of two different files. One of the numbers may also have been damaged on its way.
    pub(crate) fn two_sizes(&self) -> Option<(u64, u64)> {
        let known = self.known();
        let (sent, asked) = (known.identity.as_ref()?.size_bytes?, known.asked_bytes?);
        // Some servers say of anything that is not sent along that it has no bytes.
        let is_vague = asked == 0 && self.url.scheme().is_http();
        (sent != asked && !is_vague).then_some((sent, asked))
    }

    /// Compares with what it has said before. `Ok(true)`: this is the first time; `Err`: it contradicts
    /// itself, and the earlier identity is returned.
    pub(crate) fn identify(&self, identity: &Identity) -> Result<bool, Identity> {
        let mut known = self.known();
        match &mut known.identity {
            None => {
                known.identity = Some(identity.clone());
                Ok(true)
            }
            Some(before) if before.agrees_with(identity) => {
                let news = before.size_bytes.is_none() && identity.size_bytes.is_some();
                before.size_bytes = before.size_bytes.or(identity.size_bytes);
                if before.validator.is_none() {
                    before.validator.clone_from(&identity.validator);
                }
                Ok(news)
            }
            Some(before) => Err(before.clone()),
        }
    }

    /// The same as [`identify`](Source::identify), of an answer that tells of the version all that the server knows.
    /// A server that tells an ETag tells it each time: else another program may have the port now, or may have had it
    /// before. A date is only told by some of its answers, or counts in some of them. Servers that redirects lead to
    /// differ among each other.
    pub(crate) fn identify_answer(&self, identity: &Identity) -> Result<bool, Identity> {
        let contradicted = {
            let mut known = self.known();
            let was_untagged = known.has_sent_untagged;
            known.has_sent_untagged |= known.resolved.is_none() && !identity.is_tagged;
            known.identity.clone().filter(|before| {
                let no_longer = before.has_etag() && !identity.is_tagged;
                known.resolved.is_none() && (no_longer || was_untagged && identity.has_etag())
            })
        };
        contradicted.map_or_else(|| self.identify(identity), Err)
    }

    /// Its size, once it has stated one.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.known().identity.as_ref().and_then(|identity| identity.size_bytes)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic elsewhere leaves nothing half-done here.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(text: &str) -> Identity {
        let text = format!("HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n{text}\r\n");
        let (head, _) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        Identity::of_response(&head, Some(1))
    }

    #[test]
    fn only_strong_validators_count() {
        assert_eq!(identity("ETag: \"a\"\r\n").validator.as_deref(), Some("\"a\""));
        assert_eq!(identity("ETag: W/\"a\"\r\n").validator, None);
        let old = identity("Last-Modified: Sun, 06 Nov 1994 08:48:37 GMT\r\n");
        assert_eq!(old.validator.as_deref(), Some("date:784111717"));
        assert_eq!(identity("Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT\r\n").validator, None);
    }

    #[test]
    fn a_change_is_noticed() {
        let source = Source::new(0, Url::parse_absolute("http://a/f").unwrap());
        let of = |size, validator: Option<&str>| Identity {
            size_bytes: size,
            validator: validator.map(str::to_owned),
            is_metalink: false,
            is_tagged: validator.is_some_and(|text| text.starts_with('"')),
        };
        assert_eq!(source.identify(&of(None, Some("\"a\""))), Ok(true));
        assert_eq!(source.identify(&of(Some(5), Some("\"a\""))), Ok(true));
        assert_eq!(source.identify(&of(Some(5), None)), Ok(false));
        assert!(source.identify(&of(Some(6), Some("\"a\""))).is_err());
        assert!(source.identify(&of(Some(5), Some("\"b\""))).is_err());
        // A validator that came later counts as well.
        let source = Source::new(0, Url::parse_absolute("http://a/f").unwrap());
        assert_eq!(source.identify(&of(Some(5), None)), Ok(true));
        assert_eq!(source.identify(&of(Some(5), Some("\"a\""))), Ok(false));
        assert!(source.identify(&of(Some(5), Some("\"b\""))).is_err());
        // What does not tell it any more may be something else on the same port.
        assert_eq!(source.identify_answer(&of(Some(5), Some("\"a\""))), Ok(false));
        assert!(source.identify_answer(&of(Some(5), None)).is_err());
        source.set_resolved(Some(Url::parse_absolute("http://b/f").unwrap()));
        assert_eq!(source.identify_answer(&of(Some(5), None)), Ok(false));
        // Nor is what had not told it before that which tells it now. One that was weak may have become strong.
        let source = Source::new(0, Url::parse_absolute("http://a/f").unwrap());
        assert_eq!(source.identify_answer(&of(Some(5), None)), Ok(true));
        assert!(source.identify_answer(&of(Some(5), Some("\"a\""))).is_err());
        let source = Source::new(0, Url::parse_absolute("http://a/f").unwrap());
        let weak = Identity { is_tagged: true, ..of(Some(5), None) };
        assert_eq!(source.identify_answer(&weak), Ok(true));
        assert_eq!(source.identify_answer(&of(Some(5), Some("\"a\""))), Ok(false));
        // Apache calls it so in the first second, and answers to several connections overtake each other.
        assert_eq!(source.identify_answer(&weak), Ok(false));
        // A date may be missing, as after a restart that has touched the file.
        let source = Source::new(0, Url::parse_absolute("http://a/f").unwrap());
        assert_eq!(source.identify_answer(&of(Some(5), Some("date:784111717"))), Ok(true));
        assert_eq!(source.identify_answer(&of(Some(5), None)), Ok(false));
        assert!(source.identify_answer(&of(Some(5), Some("date:784111718"))).is_err());
    }
}
