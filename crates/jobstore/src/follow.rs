//! Consequences of a file's new state for the other files of its job, and the words of a job that has ended (fts3-rest 6).

use gridlane_jobs::follow::{ARCHIVE_FAILED, FILES_FAILED};
use gridlane_jobs::{FileState, JobKind, JobState};

/// A file of a job, as far as the others matter to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sibling {
    /// Its number.
    pub(crate) id: i64,
    /// Its state.
    pub(crate) state: FileState,
    /// The state in which it begins.
    pub(crate) initial_state: FileState,
}

/// The file that begins because another one of its job has gone `from` a state `to` another, with its new state: the next replica
/// after one that failed or was cancelled, the next hop after one that is done (fts3-rest 6.1). A replica that was copied, and
/// did not get to tape, is not copied again from elsewhere (fts3-rest 6.2).
pub(crate) fn next(
    kind: JobKind,
    files: &[Sibling],
    from: FileState,
    to: FileState,
) -> Option<(i64, FileState)> {
    let begins = match kind {
        JobKind::Replicas => {
            to == FileState::Canceled || (to == FileState::Failed && from != FileState::Archiving)
        }
        JobKind::Multihop => to == FileState::Finished,
        JobKind::Plain | JobKind::Reuse => false,
    };
    // One at a time: a replica that is in use already is the next one.
    let is_running = |file: &Sibling| !file.state.is_final() && file.state != FileState::NotUsed;
    if !begins || files.iter().any(is_running) {
        return None;
    }
    let unused = files.iter().filter(|file| file.state == FileState::NotUsed).min_by_key(|file| file.id)?;
    Some((unused.id, unused.initial_state))
}

/// The reason of a job that has ended; `None` if it went well.
pub(crate) fn reason(kind: JobKind, state: JobState, from: FileState) -> Option<&'static str> {
    match (state, kind) {
        (JobState::Finished, _) => None,
        (JobState::Failed, JobKind::Replicas) if from == FileState::Archiving => Some(ARCHIVE_FAILED),
        _ => Some(FILES_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileState::*;

    fn files(states: &[FileState]) -> Vec<Sibling> {
        let numbered = (1..).zip(states);
        numbered.map(|(id, state)| Sibling { id, state: *state, initial_state: Staging }).collect()
    }

    #[test]
    fn the_next_replica_begins_when_one_has_failed() {
        let next = |states: &[FileState], from, to| next(JobKind::Replicas, &files(states), from, to);
        assert_eq!(next(&[NotUsed, Failed, NotUsed], Active, Failed), Some((1, Staging)));
        assert_eq!(next(&[Canceled, NotUsed], Submitted, Canceled), Some((2, Staging)));
        assert_eq!(next(&[Finished, NotUsed], Active, Finished), None);
        assert_eq!(next(&[Failed, NotUsed], Archiving, Failed), None);
        assert_eq!(next(&[Canceled, NotUsed], Archiving, Canceled), Some((2, Staging)));
        assert_eq!(next(&[Failed, Submitted, NotUsed], Active, Failed), None);
        assert_eq!(next(&[Failed, Failed], Active, Failed), None);
    }

    #[test]
    fn the_next_hop_begins_when_one_is_done() {
        let next = |states: &[FileState], to| next(JobKind::Multihop, &files(states), Active, to);
        assert_eq!(next(&[Finished, NotUsed, NotUsed], Finished), Some((2, Staging)));
        assert_eq!(next(&[Failed, NotUsed], Failed), None);
    }

    #[test]
    fn a_job_that_ends_badly_says_so() {
        assert_eq!(reason(JobKind::Plain, JobState::Finished, Active), None);
        assert_eq!(reason(JobKind::Plain, JobState::FinishedDirty, Active), Some(FILES_FAILED));
        assert_eq!(reason(JobKind::Replicas, JobState::Failed, Archiving), Some(ARCHIVE_FAILED));
        assert_eq!(reason(JobKind::Replicas, JobState::Failed, Active), Some(FILES_FAILED));
    }
}
