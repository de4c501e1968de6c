//! Whether a credential outlives what it is needed for.

use gridlane_core::limits::{ASSUMED_RATE_BYTES_PER_S, CREDENTIAL_SPARE_S};
use gridlane_core::units::{format_bytes, format_seconds};

use super::{Machine as _, ThisMachine, Warning};

/// The lifetime of credentials that servers are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// `the proxy of /tmp/x509up_u1000`.
    pub name: String,
    /// When it expires, in seconds since 1970.
    pub ends_s: i64,
    /// True if it is enough to renew its file while the copy runs.
    pub is_read_again: bool,
}

impl Lasting {
    /// The warning for a copy of so many bytes that begins at `now_s`, at most at `limit_bytes_per_s`; `None` when it
    /// lasts long enough. Without a limit, 50 MB/s are assumed.
    pub fn warning(&self, size_bytes: u64, limit_bytes_per_s: Option<u64>, now_s: i64) -> Option<Warning> {
        let rate = limit_bytes_per_s.unwrap_or(ASSUMED_RATE_BYTES_PER_S).max(1);
        let needs_s = i64::try_from(size_bytes / rate).unwrap_or(i64::MAX).saturating_add(CREDENTIAL_SPARE_S);
        let left_s = self.ends_s.saturating_sub(now_s);
        if left_s >= needs_s {
            return None;
        }
        let message = format!(
            "{} expires in {}, perhaps before the end: {} at {}/s take {}",
            self.name,
            format_seconds(left_s as f64),
            format_bytes(size_bytes),
            format_bytes(rate),
            format_seconds((size_bytes / rate) as f64),
        );
        let advice = match self.is_read_again {
            true => "renew its file meanwhile: it is read again",
            false => "renew it first; after an interruption the same command continues",
        };
        Some(Warning { message, advice: advice.into() })
    }
}

/// Warns once when what is copied turns out to need its credential for longer than that lasts.
#[derive(Debug)]
pub(crate) struct LastingWatch {
    lasting: Option<Lasting>,
    limit_bytes_per_s: Option<u64>,
}

impl LastingWatch {
    pub(crate) fn new(lasting: Option<Lasting>, limit_bytes_per_s: Option<u64>) -> LastingWatch {
        LastingWatch { lasting, limit_bytes_per_s }
    }

    /// The warning, when it is time for it.
    pub(crate) fn needs(&mut self, size_bytes: u64) -> Option<Warning> {
        let lasting = self.lasting.as_ref()?;
        let warning = lasting.warning(size_bytes, self.limit_bytes_per_s, ThisMachine.now_s())?;
        self.lasting = None;
        Some(warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_takes_longer_is_warned_of() {
        let lasting = |is_read_again| Lasting { name: "the token of x".into(), ends_s: 1000, is_read_again };
        // 50 MB/s: 10 s, and a minute to spare.
        assert_eq!(lasting(true).warning(500_000_000, None, 930), None);
        let warning = lasting(true).warning(500_000_000, None, 931).unwrap();
        assert!(warning.message.contains("the token of x expires in 69 s"), "{warning:?}");
        assert!(warning.advice.to_string().contains("read again"), "{warning:?}");
        assert_eq!(lasting(false).warning(500_000_000, Some(500_000_000), 931), None);
        assert!(
            lasting(false)
                .warning(500_000_000, Some(1000), 0)
                .unwrap()
                .advice
                .to_string()
                .contains("continues")
        );
        assert!(lasting(false).warning(u64::MAX, Some(0), i64::MAX).is_some());
    }
}
