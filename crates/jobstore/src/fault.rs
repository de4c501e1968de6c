//! What does not fit together in a store.

use gridlane_jobs::{FileState, JobKind, JobState, Tally};

use crate::rows::Head;

/// A job, and the states of its files as they are.
pub(crate) struct Stored {
    /// The job.
    pub(crate) head: Head,
    /// Its files' states, by number.
    pub(crate) states: Vec<FileState>,
}

/// Findings, in words.
#[derive(Default)]
pub(crate) struct Faults {
    /// A sentence each.
    pub(crate) found: Vec<String>,
}

impl Faults {
    /// Looks at a job.
    pub(crate) fn look(&mut self, stored: &Stored) {
        let Stored { head, states } = stored;
        let mut find = |what: String| self.found.push(format!("the job {}: {what}", head.id));
        let counted = Tally::of(states.iter().copied());
        if counted != head.tally || counted.files() != head.files {
            find(format!("its files are {counted:?}, and its count of them is {:?}", head.tally));
        }
        if head.finished_s.is_some() != head.state.is_final() {
            find(format!("it is {}, and its end is {:?}", head.state, head.finished_s));
        }
        if !fits(head.kind, head.state, &counted) {
            find(format!("it is {}, and its files are {counted:?}", head.state));
        }
    }
}

/// True if a job of such files can have this state.
fn fits(kind: JobKind, state: JobState, tally: &Tally) -> bool {
    let count = |state| tally.count(state);
    let (finished, failed, canceled) =
        (count(FileState::Finished), count(FileState::Failed), count(FileState::Canceled));
    let waits = match kind {
        // Replicas and hops that were never used stay so in a job that has ended.
        JobKind::Replicas | JobKind::Multihop => count(FileState::NotUsed),
        JobKind::Plain | JobKind::Reuse => 0,
    };
    let running = tally.files() - finished - failed - canceled - waits;
    if state.is_final() && running > 0 {
        return false;
    }
    match (state, kind) {
        (JobState::Finished, JobKind::Replicas) => finished > 0,
        (JobState::Finished, _) => finished == tally.files(),
        (JobState::Failed, _) => failed > 0,
        (JobState::FinishedDirty, _) => finished > 0 && failed > 0,
        // A job that is cancelled is that, whatever files had become before.
        (JobState::Canceled, _) => canceled > 0 || tally.files() == 0,
        (_, JobKind::Replicas) => running > 0 && finished == 0,
        (_, JobKind::Multihop) => running > 0 && failed + canceled == 0,
        _ => running > 0 || tally.files() == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileState::*;

    #[test]
    fn a_job_is_as_its_files_are() {
        let fits = |kind, state, files: &[FileState]| fits(kind, state, &Tally::of(files.iter().copied()));
        let (plain, replicas, hops) = (JobKind::Plain, JobKind::Replicas, JobKind::Multihop);
        assert!(fits(plain, JobState::Active, &[Active, Finished]));
        assert!(!fits(plain, JobState::Active, &[Failed, Finished]));
        assert!(fits(plain, JobState::FinishedDirty, &[Failed, Finished]));
        assert!(!fits(plain, JobState::Finished, &[Failed, Finished]));
        assert!(!fits(plain, JobState::Failed, &[Failed, NotUsed]));
        assert!(fits(plain, JobState::Canceled, &[Failed, Canceled, Finished]));
        assert!(!fits(plain, JobState::Canceled, &[Failed, Finished]));
        assert!(fits(replicas, JobState::Finished, &[Failed, Finished, NotUsed]));
        assert!(fits(replicas, JobState::Failed, &[Failed, NotUsed]));
        assert!(!fits(replicas, JobState::Active, &[Failed, NotUsed]), "nothing will ever happen");
        assert!(!fits(replicas, JobState::Active, &[Finished, Active]));
        assert!(fits(hops, JobState::Failed, &[Finished, Failed, NotUsed]));
        assert!(!fits(hops, JobState::Active, &[Failed, Active]));
    }
}
