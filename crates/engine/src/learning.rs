//! Measurements that a copy keeps for later ones: rates and round trips of connections, and the servers that did not
//! answer in time.

use gridlane_peer::paths::Path;
use gridlane_plan::SourceId;

use crate::replica::Replica;
use crate::run::{Run, SHORT_BYTES_MAX};

impl Run<'_> {
    /// Remembers what the connections did, for copies to come.
    pub(crate) fn learn(&self) {
        for (number, replica) in self.replicas.iter().enumerate() {
            self.learn_unresponsive(number, replica);
            let report = self.plan.source_report(SourceId(number as u32));
            let Some(report) = report.filter(|_| replica.received_bytes > 0 && replica.dead.is_none()) else {
                continue;
            };
            let mean = Some(report.rate_bytes_per_s).filter(|rate| *rate > 0.0);
            let rate_bytes_per_s = match replica.received_bytes < SHORT_BYTES_MAX {
                true => replica.bursts.best_bytes_per_s().or(mean),
                false => mean,
            };
            let rate_bytes_per_s = rate_bytes_per_s.map(|rate| rate / report.lanes.max(1) as f64);
            let path = Path {
                rate_bytes_per_s,
                round_trip: replica.round_trip,
                file_bytes: self.judge.size_bytes(),
                pipelines: replica.pipelines,
            };
            self.client.paths.learn(&replica.source.url.endpoint(), |known| known.update(path));
        }
    }

    /// Remembers if a source did not answer in time. The finding of an earlier copy is not prolonged by a copy that did not
    /// wait.
    fn learn_unresponsive(&self, number: usize, replica: &Replica) {
        let (at, now) = (self.client.asked(&replica.source.url), std::time::Instant::now());
        let (votes, member) = (self.judge.votes(), &self.judge.members()[number]);
        let was_heard = votes.was_heard(number);
        let is_silent = !replica.was_silent && votes.is_mute(number, self.pace.now());
        let known = self.client.unresponsive.of(&at);
        let mut news = known;
        if is_silent || was_heard {
            news.note_silent(is_silent, now);
        }
        // What has not answered anything owes its checksum as well, even if it sends bytes of the next file.
        let is_owing = member.owed_in_vain || is_silent;
        if is_owing || member.has_spoken {
            news.note_owing(is_owing, now);
        }
        if news != known {
            self.client.unresponsive.learn(&at, |known| *known = news);
        }
    }
}
