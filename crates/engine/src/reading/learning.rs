//! Knowledge of paths: taken from earlier files when one is opened, and kept for later ones. It lives as long as the client, and is
//! bounded as everything that a client knows of servers is.

use std::time::Instant;

use gridlane_core::limits::READ_LEARN_EVERY;
use gridlane_core::{Time, Url};
use gridlane_peer::Client;
use gridlane_peer::paths::{Measured, ReadPath};
use gridlane_plan::SourceId;
use gridlane_read::{Known, Reader, Seen};

use super::piece::Piece;
use crate::source::Source;

/// What is known of the path to the server of a URL.
pub(super) fn known(client: &Client, url: &Url) -> Known {
    let path = client.read_paths.of(&client.asked(url));
    let now = Instant::now();
    let seen = |measured: Option<Measured>| {
        measured.map(|(value, at)| Seen { value, age: now.saturating_duration_since(at) })
    };
    Known {
        rate: seen(path.rate_bytes_per_s),
        round_trip: seen(path.round_trip_s),
        element: seen(path.element_s),
        ignored_ranges: path.ignored_ranges_at.map(|at| now.saturating_duration_since(at)),
    }
}

/// When a file has last told what it has shown.
#[derive(Debug, Default)]
pub(super) struct Learning {
    told_at: Option<Time>,
    /// Something came since then. What a file has shown once, and was open for hours afterwards, is not told as if it were new.
    has_news: bool,
}

impl Learning {
    /// Something came.
    pub(super) fn note(&mut self) {
        self.has_news = true;
    }

    /// True if there is something to tell, and it is time for that; it is told then.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let is_due = self.told_at.is_none_or(|at| now.since(at) >= READ_LEARN_EVERY);
        is_due && self.ends(now)
    }

    /// True if there is something to tell at the end; it is told then.
    pub(super) fn ends(&mut self, now: Time) -> bool {
        let has_news = std::mem::take(&mut self.has_news);
        if has_news {
            self.told_at = Some(now);
        }
        has_news
    }
}

/// Keeps what a file has shown of the paths to its sources.
pub(super) fn learn<'a>(
    client: &Client,
    sources: impl IntoIterator<Item = &'a Source>,
    reader: &Reader<Piece>,
) {
    let now = Instant::now();
    let measured = |seen: Option<Seen>| seen.map(|seen| (seen.value, now));
    for source in sources {
        let learned = reader.learned(SourceId(source.number));
        if learned == Known::default() {
            continue;
        }
        let path = ReadPath {
            rate_bytes_per_s: measured(learned.rate),
            round_trip_s: measured(learned.round_trip),
            element_s: measured(learned.element),
            ignored_ranges_at: learned.ignored_ranges.map(|_| now),
            ..ReadPath::default()
        };
        client.read_paths.learn(&client.asked(&source.url), |known| known.update(path));
    }
}
