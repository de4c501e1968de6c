//! The requests for checksums: the sources that get one, and its connection.
//!
//! Each source of a small file gets the request on the connection of its lane, which spares a second connection: with
//! the first bytes that are asked for, or as a request of its own (HEAD) while there are no bytes to ask for. The
//! checksum of a large file, for which the server may have to read all of it, is asked for beside the data, on a
//! connection of its own.

use std::time::Instant;

use gridlane_core::limits::SMALL_DOWNLOAD_BYTES_MAX;
use gridlane_plan::judge::Event as Heard;
use gridlane_plan::{Settings, SourceId, first_answer_max};

use crate::digests;
use crate::lane::{Command, DigestQuery};
use crate::run::Run;

impl Run<'_> {
    /// Asks a source for its checksum, unless that could change nothing.
    pub(crate) fn ask_digest(&mut self, source: usize) {
        if self.judge.is_described() || self.judge.is_its_own_word() {
            self.judge.votes_mut().silent(source);
            return;
        }
        let url = &self.replicas[source].source.url;
        if url.scheme().is_http() && !self.client.http.sends_heads {
            // What it states along with the bytes counts all the same.
            self.judge.votes_mut().silent(source);
            return;
        }
        let may_be_small =
            self.judge.size_bytes().is_none_or(|size_bytes| size_bytes <= SMALL_DOWNLOAD_BYTES_MAX);
        // The others are spares, and have no lanes.
        let has_lane = source < Settings::default().sources_open_max;
        if has_lane
            && url.scheme().is_http()
            && may_be_small
            && !self.client.http.refuses_digest_with_bytes(url)
        {
            self.replicas[source].asks_by_lane = true;
            return;
        }
        self.request_digest_beside(source);
    }

    /// The request for the checksum that a new lane to a source makes along with those for bytes.
    pub(crate) fn digest_query_of_lane(&mut self, source: usize) -> Option<DigestQuery> {
        let asks = DigestQuery { kind: self.judge.first_kind(), follow_links: self.options.follow_links };
        std::mem::take(&mut self.replicas[source].asks_by_lane).then_some(asks)
    }

    /// When the size is known: tells lanes that are ready and have nothing to fetch of a small file to ask for its
    /// checksum, and asks for that of a large one beside the data.
    pub(crate) fn ask_by_idle_lanes(&mut self) {
        let Some(size_bytes) = self.judge.size_bytes() else { return };
        if !std::mem::take(&mut self.has_new_lanes) {
            return;
        }
        for number in 0..self.replicas.len() {
            let report = self.plan.source_report(SourceId(number as u32));
            let is_idle = report.is_none_or(|report| report.outstanding_bytes == 0);
            let replica = &mut self.replicas[number];
            if replica.dead.is_some() || replica.received_bytes > 0 || !is_idle {
                continue;
            }
            if size_bytes > SMALL_DOWNLOAD_BYTES_MAX {
                // Bytes may soon be asked for on its lane, and would have to wait for the answer.
                if replica.asking_lane.take().is_some() | std::mem::take(&mut replica.asks_by_lane) {
                    self.request_digest_beside(number);
                }
                continue;
            }
            let Some(lane) = replica.asking_lane else { continue };
            if self.lanes.get(&lane).is_some_and(|entry| entry.is_dialled) {
                self.command(lane, Command::Ask);
            }
        }
    }

    fn request_digest_beside(&mut self, source: usize) {
        let source = self.replicas[source].source.clone();
        let follow_links = self.options.follow_links;
        // With one source there is no other whose checksum could count instead.
        let is_alone = self.replicas.len() == 1;
        let until = (!is_alone).then(|| Instant::now() + first_answer_max(self.options.patience));
        let (client, kind, notices) = (self.client.clone(), self.judge.first_kind(), self.notify.clone());
        digests::ask(client, source, kind, follow_links, until, notices);
    }

    /// Every byte is there: asks the sources whose checksums are waited for, and whose lanes were to ask and cannot,
    /// on a connection of its own.
    pub(crate) fn request_awaited_digests(&mut self) {
        let awaited = self.judge.votes().awaited(self.pace.now());
        for source in 0..self.replicas.len() {
            let replica = &mut self.replicas[source];
            let lane = replica.asking_lane.and_then(|lane| self.lanes.get(&lane));
            let is_asked = lane.is_some_and(|entry| entry.is_dialled);
            if replica.dead.is_some() || is_asked || !awaited.contains(&source) {
                continue;
            }
            if replica.asking_lane.take().is_some() | std::mem::take(&mut replica.asks_by_lane) {
                self.request_digest_beside(source);
            }
        }
    }

    /// A lane got no checksum with its bytes. Some servers state it only in the answer to a HEAD of its own; servers that
    /// have never stated one are not asked again.
    pub(crate) fn unsaid(&mut self, source: usize) {
        if self.replicas[source].asking_lane.take().is_none() {
            return; // It was asked beside the data meanwhile.
        }
        if self.client.http.is_silent(&self.replicas[source].source.url) {
            return self.tell_judge(Heard::Said { source, checksums: Vec::new() });
        }
        self.request_digest_beside(source);
    }
}
