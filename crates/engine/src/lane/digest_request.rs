//! The digest request on the connection of a lane.
//!
//! It goes with the request for the first bytes, or is a HEAD of its own: while there is nothing to fetch, or behind an
//! answer that did not state the checksum. A checksum that takes the server long would keep bytes waiting, so only those
//! of small files are asked for in this way.

use gridlane_core::limits::{DIGEST_HEAD_MAX, SMALL_DOWNLOAD_BYTES_MAX};
use gridlane_core::{Result, Url};
use gridlane_dav::ResponseHead;
use gridlane_peer::http::{Connection, Request, Response};
use tokio::time::timeout;

use super::{DigestQuery, Lane};
use crate::digests;
use crate::links::ServerLinks;
use crate::notice::Notice;

/// A digest request that is to be sent, or whose answer is to come.
pub(super) struct DigestRequest {
    asks: DigestQuery,
    /// The links and replicas that the servers on the way stated.
    served: ServerLinks,
    /// It was sent on the present connection; so many other answers come before its own.
    behind: Option<usize>,
    /// It was sent as a request for the file's first byte.
    is_probe: bool,
}

impl DigestRequest {
    pub(super) fn new(asks: DigestQuery) -> DigestRequest {
        DigestRequest { asks, served: ServerLinks::default(), behind: None, is_probe: false }
    }

    /// Begins anew on a new connection.
    pub(super) fn begin(&mut self) {
        (self.behind, self.is_probe) = (None, false);
    }

    /// True if it was sent as a request for the first byte, whose answer also states the size of the file.
    pub(super) fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// True if a request of its own was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.behind.is_some()
    }

    /// True if the next answer on the connection is its own.
    pub(super) fn is_next(&self) -> bool {
        self.behind == Some(0)
    }

    /// Another answer is over; returns true if its own is the next one now.
    pub(super) fn pass(&mut self) -> bool {
        let was_next = self.is_next();
        self.behind = self.behind.map(|behind| behind.saturating_sub(1));
        self.is_next() && !was_next
    }

    /// Adds the digest request to a request for bytes.
    pub(super) fn add_to<'a>(&self, request: Request<'a>) -> Request<'a> {
        request.header("Want-Digest", gridlane_dav::digest::name(self.asks.kind))
    }

    /// Remembers the links in the head of an answer.
    pub(super) fn note(&mut self, url: &Url, head: &ResponseHead) {
        self.served.take(url, &head.headers);
    }

    /// Sends a HEAD of its own, behind `unanswered` other requests.
    pub(super) async fn send(
        &mut self,
        connection: &mut Connection,
        url: &Url,
        unanswered: usize,
    ) -> Result<()> {
        let sent = connection.send(&self.add_to(Request::new("HEAD", url))).await;
        self.behind = sent.is_ok().then_some(unanswered);
        sent
    }

    /// Asks by a request for the first byte, in front of all others. While the size of the file is unknown, the
    /// lane's other requests may lie behind its end, and are then answered with an error that states no checksum. For
    /// a HEAD of its own, a server would read all of a large file first; for this request few do.
    pub(super) async fn send_probe(&mut self, connection: &mut Connection, url: &Url) -> Result<()> {
        let sent = connection.send(&self.add_to(Request::new("GET", url).header("Range", "bytes=0-0"))).await;
        (self.behind, self.is_probe) = (sent.is_ok().then_some(0), true);
        sent
    }

    /// The answer to the request for bytes that carried it has begun. Returns the digest request for a HEAD of its own, if
    /// the answer does not state the checksum and there is room for one.
    pub(super) fn answered_with_bytes(mut self, lane: &Lane, response: &Response) -> Option<DigestRequest> {
        self.begin();
        let said = response.head.digests().into_iter().find(|checksum| checksum.kind() == self.asks.kind);
        let Some(checksum) = said else {
            let is_small = lane.source.size_bytes().is_some_and(|bytes| bytes <= SMALL_DOWNLOAD_BYTES_MAX);
            let may_ask = response.keeps_alive && !lane.client.http.is_silent(&lane.source.url);
            // What was redirected is asked for where it was named: the server on the way may say it.
            let is_here = lane.source.current_url() == lane.source.url;
            if is_small && may_ask && is_here {
                return Some(self);
            }
            self.give_up(lane);
            return None;
        };
        lane.client.http.asked_for_digest(&lane.source.url, true);
        let source = lane.source.number;
        lane.tell(Notice::Digest { source, checksums: vec![checksum], identity: None });
        self.pass_on(lane);
        None
    }

    /// Its own HEAD was answered. `false`: without success, so that a body may follow that is of no use.
    pub(super) fn answered(mut self, lane: &Lane, url: &Url, response: &Response) -> bool {
        let head = &response.head;
        if !head.status.is_success() {
            self.give_up(lane);
            return false;
        }
        self.note(url, head);
        let Ok(word) = digests::word_of(&lane.client.http, &lane.source, url, Some(self.asks.kind), head)
        else {
            self.give_up(lane);
            return false;
        };
        lane.source.set_asked_bytes(word.identity.size_bytes);
        if lane.source.two_sizes().is_some() {
            self.give_up(lane);
            return true;
        }
        lane.tell(digests::notice(&lane.source, word));
        self.pass_on(lane);
        true
    }

    /// Gives up: the checksum cannot be asked for here.
    pub(super) fn give_up(self, lane: &Lane) {
        lane.tell(Notice::DigestUnsaid { source: lane.source.number });
        self.pass_on(lane);
    }

    fn pass_on(self, lane: &Lane) {
        if self.asks.follow_links && self.served != ServerLinks::default() {
            lane.tell(Notice::ServerLinks { source: lane.source.number, served: self.served });
        }
    }
}

/// Leaves a connection whose only outstanding answer is of no use any more. When it has come, the next copy can use the
/// connection.
pub(super) fn leave(mut connection: Connection) {
    tokio::spawn(async move {
        let _ = timeout(DIGEST_HEAD_MAX, connection.response()).await;
    });
}
