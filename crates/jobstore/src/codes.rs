//! Numbers and digests that rows have for states and names. They stay: stores are full of them.

use gridlane_core::{Error, ErrorKind, Fault, Result};
use gridlane_jobs::{FileState, FileStates, JobKind, JobState, Selection, Tally};
use sha2::{Digest, Sha256};

/// States with this number and above are final, of files and of jobs. The indexes of the stores say so as well.
pub(crate) const FINAL: i64 = 32;

/// An enumeration and its numbers, in both directions.
macro_rules! codes {
    ($of:ident, $read:ident, $type:ident, $what:literal: $($variant:ident = $code:literal,)*) => {
        /// The number in the store.
        pub(crate) fn $of(value: $type) -> i64 {
            match value { $($type::$variant => $code,)* }
        }

        /// The value of a number in the store.
        pub(crate) fn $read(code: i64) -> Result<$type> {
            match code {
                $($code => Ok($type::$variant),)*
                _ => Err(damaged(format!(concat!("there is no ", $what, " of number {}"), code))),
            }
        }
    };
}

codes! { file_state, read_file_state, FileState, "state of a file":
    Submitted = 0, Ready = 1, Active = 2, Staging = 3, Started = 4, Archiving = 5, NotUsed = 6, OnHold = 7,
    OnHoldStaging = 8, TokenPrep = 9, ForceStart = 10,
    Finished = 32, Failed = 33, Canceled = 34,
}

codes! { job_state, read_job_state, JobState, "state of a job":
    Submitted = 0, Staging = 1, Active = 2, Archiving = 3,
    Finished = 32, Failed = 33, FinishedDirty = 34, Canceled = 35,
}

codes! { job_kind, read_job_kind, JobKind, "kind of a job": Plain = 0, Reuse = 1, Replicas = 2, Multihop = 3, }

codes! { selection, read_selection, Selection, "way to choose a source":
    Auto = 0, Orderly = 1, Success = 2, Throughput = 3, FileThroughput = 4, PendingData = 5, WaitingTime = 6,
    WaitingTimeWithError = 7, Duration = 8,
}

/// The states that files of a job have, a bit each.
pub(crate) fn states_of(tally: &Tally) -> i64 {
    FileState::ALL.iter().filter(|state| tally.count(**state) > 0).fold(0, |bits, state| bits | bit(*state))
}

/// These states, a bit each.
pub(crate) fn states(states: FileStates) -> i64 {
    states.iter().fold(0, |bits, state| bits | bit(state))
}

/// States of jobs as a list of SQL, which is not empty: in some dialects it must not be. `None`: no job is in any of them.
pub(crate) fn list_of(states: &[JobState]) -> Option<String> {
    let codes: Vec<String> = states.iter().map(|state| job_state(*state).to_string()).collect();
    (!codes.is_empty()).then(|| codes.join(", "))
}

/// The bit of a state: numbers of states that are not final are below 16, and of final ones below 48.
fn bit(state: FileState) -> i64 {
    let code = file_state(state);
    1 << if code < FINAL { code } else { code - FINAL + 16 }
}

/// A tally as text, by the names of states: `{"SUBMITTED":98,"ACTIVE":2}`.
pub(crate) fn tally(tally: &Tally) -> String {
    let mut text = String::from("{");
    for state in FileState::ALL {
        let count = tally.count(*state);
        if count > 0 {
            let comma = if text.len() > 1 { "," } else { "" };
            text.push_str(&format!("{comma}\"{}\":{count}", state.name()));
        }
    }
    text.push('}');
    text
}

/// A tally from its text.
pub(crate) fn read_tally(text: &str) -> Result<Tally> {
    let counts: std::collections::BTreeMap<FileState, u32> =
        serde_json::from_str(text).map_err(|cause| damaged(format!("a job's count of files: {cause}")))?;
    let mut tally = Tally::default();
    for (state, files) in counts {
        tally.add(state, files);
    }
    Ok(tally)
}

/// The digest under which a name or a URL is found, however long it is.
pub(crate) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// A row of the store is not as the service writes rows.
pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::LocalIo, format!("the store of jobs has a row that makes no sense: {what}"))
        .fault(Fault::Local)
        .hint("bring back a backup of the store, or report this if nothing else writes to it")
}

/// Bytes as the signed number that databases have; the largest ones become negative there, and come back as they were.
pub(crate) fn signed(bytes: u64) -> i64 {
    bytes.cast_signed()
}

/// The other direction of [`signed`].
pub(crate) fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_number_a_bit_and_a_side() {
        let mut bits = 0;
        for state in FileState::ALL {
            let code = file_state(*state);
            assert_eq!(read_file_state(code).ok(), Some(*state));
            assert_eq!(code >= FINAL, state.is_final(), "{state}");
            assert_eq!(bits & bit(*state), 0, "{state}");
            bits |= bit(*state);
        }
        for state in JobState::ALL {
            assert_eq!(read_job_state(job_state(*state)).ok(), Some(*state));
            assert_eq!(job_state(*state) >= FINAL, state.is_final(), "{state}");
        }
        for kind in JobKind::ALL {
            assert_eq!(read_job_kind(job_kind(*kind)).ok(), Some(*kind));
        }
        assert!(read_file_state(99).is_err());
    }

    #[test]
    fn a_tally_comes_back() {
        let counted = Tally::of([FileState::Submitted, FileState::Submitted, FileState::Failed]);
        let text = tally(&counted);
        assert_eq!(text, r#"{"SUBMITTED":2,"FAILED":1}"#);
        assert_eq!(read_tally(&text).ok(), Some(counted));
        assert!(read_tally(r#"{"SUBMITED":2}"#).is_err());
        assert_eq!(states_of(&counted), states(FileStates::of(&[FileState::Failed, FileState::Submitted])));
    }

    #[test]
    fn sizes_of_liars_come_back() {
        for bytes in [0, 1, i64::MAX as u64, u64::MAX] {
            assert_eq!(unsigned(signed(bytes)), bytes);
        }
    }
}
