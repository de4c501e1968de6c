//! The body of the answer to a COPY: markers while it runs, and one line at its end.

use std::io;
use std::time::SystemTime;

use gridlane_core::limits::THIRD_PARTY_MARKER_INTERVAL;
use gridlane_dav::third_party::{Marker, Stripe, failure, success};
use gridlane_front::pieces::Pieces;
use gridlane_store::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::refusal::cause;
use super::running::{Phase, Running};

/// The markers of a copy.
pub(crate) struct Markers {
    running: Running,
    due: Instant,
    /// Bytes at the last marker, and when others had come than before, in seconds since 1970.
    seen: (u64, u64),
}

impl Markers {
    /// The markers of a copy, and the bytes of the first.
    pub(crate) fn begin(running: Running) -> (Markers, Vec<u8>) {
        let seen = (0, running.started_s);
        let mut markers = Markers { running, due: Instant::now(), seen };
        let first = markers.marker().into_bytes();
        (markers, first)
    }

    fn marker(&mut self) -> String {
        self.due = Instant::now() + THIRD_PARTY_MARKER_INTERVAL;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_s = since.unwrap_or_default().as_secs();
        let bytes = self.running.done_bytes();
        if bytes != self.seen.0 {
            self.seen = (bytes, now_s);
        }
        let connections = self.running.peers();
        let stripe = Stripe {
            started_s: self.running.started_s,
            last_s: self.seen.1,
            bytes,
            connections: &connections,
        };
        let (description, stripe) = match self.running.phase() {
            Phase::Waiting => ("the copy waits for its turn", None),
            Phase::Begun => ("the copy has begun", Some(stripe)),
            Phase::Moving => ("bytes are being copied", Some(stripe)),
            Phase::Ended(_) => ("the copy has ended", Some(stripe)),
        };
        Marker { now_s, description, stripe }.encode()
    }
}

impl Pieces for Markers {
    fn next<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<bool>> {
        Box::pin(async move {
            let has_ended = tokio::select! {
                () = self.running.ended() => true,
                () = sleep_until(self.due) => false,
            };
            let phase = self.running.phase();
            out.extend_from_slice(self.marker().as_bytes());
            if !has_ended {
                return Ok(true);
            }
            match phase {
                Phase::Ended(Ok(())) => out.extend_from_slice(success().as_bytes()),
                Phase::Ended(Err(failed)) => out.extend_from_slice(failure(&cause(&failed.error)).as_bytes()),
                // The task that ran it is gone.
                _ => out.extend_from_slice(failure("the copy was given up by this server").as_bytes()),
            }
            Ok(false)
        })
    }

    fn client_left(&mut self) {
        self.running.cancel();
    }
}
