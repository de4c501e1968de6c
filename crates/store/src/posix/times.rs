//! Times of files that are set.

use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};

use crate::error::StoreResult;

/// Sets when the bytes were last changed, and not when they were last read.
pub(crate) fn set_modified(file: impl AsFd, modified: SystemTime) -> StoreResult<()> {
    let timespec = match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { tv_sec: seconds(since.as_secs()), tv_nsec: since.subsec_nanos().into() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timespec { tv_sec: -seconds(before.as_secs()), tv_nsec: 0 },
                part => Timespec {
                    tv_sec: -seconds(before.as_secs()) - 1,
                    tv_nsec: (1_000_000_000 - part).into(),
                },
            }
        }
    };
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Ok(futimens(file, &Timestamps { last_access, last_modification: timespec })?)
}

fn seconds(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
