//! Uploads that are begun anew: those whose connection broke cannot be continued.
//!
//! The server may only be started again. A copy to a file survives that, since its ranges are asked for anew; an upload
//! is one request, or one open file, and has to begin with the first byte. Its sources can be read again.

use std::time::Duration;

use gridlane_core::limits::{FIRST_CONTACT_MAX, UPLOADS_AGAIN_MAX};
use gridlane_core::{Backoff, Error, ErrorKind, Time, Url};
use gridlane_peer::Client;

use crate::source::Source;
use crate::{Options, Report, TargetSpec, digests};

/// The rule by which an upload is begun anew or given up.
#[derive(Debug)]
pub(crate) struct Retry {
    patience: Duration,
    /// Since then no connection could be made.
    away_since: Time,
    /// Attempts that broke off.
    broken: u32,
    backoff: Backoff,
}

impl Retry {
    /// The rule for an upload with this limit for its server's silence.
    pub(crate) fn new(patience: Duration) -> Retry {
        Retry { patience, away_since: Time::ZERO, broken: 0, backoff: Backoff::new() }
    }

    /// The pause after which to begin anew; `None`: the upload fails with `error`. Times are from the moment at which the copy
    /// had its place.
    pub(crate) fn after(&mut self, error: &Error, now: Time) -> Option<Duration> {
        match error.kind() {
            ErrorKind::Network if error.is_unreached() => {}
            ErrorKind::Network => {
                self.broken += 1;
                (self.away_since, self.backoff) = (now, Backoff::new());
            }
            // The server that was left may hold its file for a moment still.
            ErrorKind::Busy if self.broken > 0 => {}
            _ => return None,
        }
        let hope = match self.broken {
            0 => FIRST_CONTACT_MAX.min(self.patience),
            _ => self.patience,
        };
        if self.broken > UPLOADS_AGAIN_MAX || now.since(self.away_since) >= hope {
            return None;
        }
        Some(self.backoff.pause())
    }
}

/// True if an attempt has sent all bytes, which are compared when all are there.
pub(crate) fn is_whole(report: &Report) -> bool {
    report.checksum.is_some() && report.size_bytes.is_some()
}

/// True if a server that refuses another attempt, since the file is there, has the bytes of an earlier one: it has
/// stored them, and its answer was lost. Only its own checksum proves that.
pub(crate) async fn has_what_was_sent(client: &Client, url: &Url, sent: &Report, options: &Options) -> bool {
    let Some(checksum) =
        sent.checksum.as_ref().filter(|_| sent.verified.is_some() || !options.require_verified)
    else {
        return false;
    };
    match digests::word(client, &Source::new(0, url.clone()), Some(checksum.kind())).await {
        Ok(word) => {
            let has_size = word.identity.size_bytes.is_none() || word.identity.size_bytes == sent.size_bytes;
            has_size && word.checksum.as_ref() == Some(checksum)
        }
        Err(_) => false,
    }
}

/// The same target for another attempt; `None`: the bytes that it has taken cannot be taken back, or are continued.
pub(crate) fn same_target(target: &TargetSpec) -> Option<TargetSpec> {
    match target {
        TargetSpec::Upload { url, overwrite, modified } => {
            Some(TargetSpec::Upload { url: url.clone(), overwrite: *overwrite, modified: *modified })
        }
        TargetSpec::Anywhere(_) | TargetSpec::InOrder(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use gridlane_core::limits::{RECONNECT_PAUSE, RECONNECT_PAUSE_MAX};

    use super::*;

    fn at_s(s: u64) -> Time {
        Time::from_origin(Duration::from_secs(s))
    }

    #[test]
    fn a_server_is_waited_for_that_is_started_again() {
        let (away, broken) = (
            Error::new(ErrorKind::Network, "refused").unreached(),
            Error::new(ErrorKind::Network, "the connection broke"),
        );
        let mut retry = Retry::new(Duration::from_secs(60));
        assert_eq!(retry.after(&away, at_s(0)), Some(RECONNECT_PAUSE));
        assert_eq!(retry.after(&away, at_s(1)), Some(2 * RECONNECT_PAUSE));
        assert_eq!(retry.after(&away, at_s(10)), None, "it was never there");
        let mut retry = Retry::new(Duration::from_secs(60));
        assert_eq!(retry.after(&broken, at_s(5)), Some(RECONNECT_PAUSE));
        for s in 5..64 {
            assert!(retry.after(&away, at_s(s)).is_some_and(|pause| pause <= RECONNECT_PAUSE_MAX));
        }
        let busy = Error::new(ErrorKind::Busy, "another client has it open");
        assert!(retry.after(&busy, at_s(64)).is_some());
        assert_eq!(retry.after(&away, at_s(65)), None, "patience has ended");
        assert_eq!(Retry::new(Duration::from_secs(60)).after(&busy, at_s(0)), None);
    }

    #[test]
    fn what_breaks_each_time_is_given_up_and_what_is_wrong_at_once() {
        let broken = Error::new(ErrorKind::Network, "the connection broke");
        let mut retry = Retry::new(Duration::from_secs(60));
        let attempts = (0..).take_while(|s| retry.after(&broken, at_s(*s)).is_some()).count();
        assert_eq!(attempts, UPLOADS_AGAIN_MAX as usize);
        for kind in [ErrorKind::Denied, ErrorKind::Timeout, ErrorKind::Precondition, ErrorKind::Protocol] {
            assert_eq!(Retry::new(Duration::from_secs(60)).after(&Error::new(kind, "no"), at_s(0)), None);
        }
    }
}
