//! The state of a job, by the states of its files (fts3-rest 6.2).

use serde::{Deserialize, Serialize};

use crate::{FileState, JobKind, JobState};

/// The files of a job, counted by state. Replicas of one file are counted one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    counts: [u32; FileState::ALL.len()],
}

impl Tally {
    /// Of files in these states.
    pub fn of(states: impl IntoIterator<Item = FileState>) -> Tally {
        let mut tally = Tally::default();
        for state in states {
            tally.counts[state as usize] += 1;
        }
        tally
    }

    /// Counts so many more files in this state.
    pub fn add(&mut self, state: FileState, files: u32) {
        let count = &mut self.counts[state as usize];
        *count = count.saturating_add(files);
    }

    /// Files in this state.
    pub fn count(&self, state: FileState) -> u32 {
        self.counts[state as usize]
    }

    /// All files.
    pub fn files(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// Counts a file that has gone from one state to another.
    pub fn moved(&mut self, from: FileState, to: FileState) {
        self.counts[from as usize] = self.counts[from as usize].saturating_sub(1);
        self.counts[to as usize] += 1;
    }

    /// The job's state, which was `before`, now that the last one of its files to change has got the state `latest`: the one that
    /// follows from another one, if one does ([`follow::consequence`](crate::follow::consequence)).
    ///
    /// Replicas are one file, which is finished if any of them is, and failed or cancelled if all of them are.
    pub fn job_state(&self, kind: JobKind, before: JobState, latest: FileState) -> JobState {
        let (finished, failed, canceled) =
            (self.count(FileState::Finished), self.count(FileState::Failed), self.count(FileState::Canceled));
        let files = self.files();
        let open = files - finished - failed - canceled;
        let archiving = self.count(FileState::Archiving);
        let is_all_archiving = match kind {
            JobKind::Replicas => {
                if finished > 0 {
                    return JobState::Finished;
                }
                if open == 0 || (before == JobState::Archiving && latest == FileState::Failed) {
                    return if failed > 0 { JobState::Failed } else { JobState::Canceled };
                }
                archiving > 0
            }
            JobKind::Multihop => {
                if failed > 0 {
                    return JobState::Failed;
                }
                if canceled > 0 {
                    return JobState::Canceled;
                }
                if open == 0 {
                    return JobState::Finished;
                }
                archiving == open
            }
            JobKind::Plain | JobKind::Reuse => {
                if open == 0 {
                    return match (finished > 0, failed > 0, canceled > 0) {
                        (true, true, _) => JobState::FinishedDirty,
                        (true, false, false) => JobState::Finished,
                        (false, true, _) => JobState::Failed,
                        (_, false, _) => JobState::Canceled,
                    };
                }
                archiving == open
            }
        };
        let staging = [FileState::Staging, FileState::Started, FileState::OnHoldStaging];
        let is_staging = staging.into_iter().any(|state| self.count(state) > 0);
        match latest {
            FileState::Ready | FileState::Active => JobState::Active,
            FileState::Staging => JobState::Staging,
            _ if is_all_archiving => JobState::Archiving,
            _ if before == JobState::Staging && is_staging => before,
            // A file whose turn has come, or that waits for another attempt; and a job of which nothing is left staging.
            FileState::Submitted => JobState::Submitted,
            _ if before == JobState::Staging => JobState::Submitted,
            // The copy that waited for tape was cancelled, and another replica's turn has come.
            _ if before == JobState::Archiving && archiving == 0 => JobState::Submitted,
            _ => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use FileState::*;
    use proptest::prelude::*;

    fn state(kind: JobKind, files: &[FileState]) -> JobState {
        Tally::of(files.iter().copied()).job_state(kind, JobState::Active, *files.last().unwrap())
    }

    #[test]
    fn a_job_ends_as_its_files_do() {
        let plain = |files: &[FileState]| state(JobKind::Plain, files);
        assert_eq!(plain(&[Finished, Finished]), JobState::Finished);
        assert_eq!(plain(&[Finished, Failed]), JobState::FinishedDirty);
        assert_eq!(plain(&[Canceled, Failed]), JobState::Failed);
        assert_eq!(plain(&[Canceled, Finished]), JobState::Canceled);
        assert_eq!(plain(&[Canceled, Canceled]), JobState::Canceled);
        assert_eq!(plain(&[Submitted, Failed]), JobState::Active);
    }

    #[test]
    fn one_replica_is_enough_and_one_hop_too_few() {
        assert_eq!(state(JobKind::Replicas, &[Failed, Finished, NotUsed]), JobState::Finished);
        assert_eq!(state(JobKind::Replicas, &[Failed, Failed]), JobState::Failed);
        assert_eq!(state(JobKind::Replicas, &[Failed, Submitted]), JobState::Submitted, "the next one waits");
        assert_eq!(state(JobKind::Replicas, &[Canceled, Canceled]), JobState::Canceled);
        assert_eq!(state(JobKind::Replicas, &[NotUsed, Failed]), JobState::Active, "another one is tried");
        let tally = Tally::of([NotUsed, Failed]);
        assert_eq!(
            tally.job_state(JobKind::Replicas, JobState::Archiving, Failed),
            JobState::Failed,
            "it was copied"
        );
        assert_eq!(state(JobKind::Multihop, &[Finished, Failed, NotUsed]), JobState::Failed);
        assert_eq!(state(JobKind::Multihop, &[Finished, Submitted, NotUsed]), JobState::Active);
        assert_eq!(state(JobKind::Multihop, &[Finished, Finished]), JobState::Finished);
    }

    #[test]
    fn a_job_waits_for_tape_when_all_its_files_do() {
        assert_eq!(state(JobKind::Plain, &[Finished, Archiving]), JobState::Archiving);
        assert_eq!(state(JobKind::Plain, &[Active, Archiving]), JobState::Active);
        let tally = Tally::of([Submitted, Submitted]);
        assert_eq!(tally.job_state(JobKind::Plain, JobState::Staging, Submitted), JobState::Submitted);
        let tally = Tally::of([Submitted, Staging]);
        assert_eq!(tally.job_state(JobKind::Plain, JobState::Staging, Submitted), JobState::Staging);
    }

    /// The words of fts3-rest 6.2, one after the other, for files with the places that they have in a submission.
    fn by_the_book(
        kind: JobKind,
        before: JobState,
        latest: FileState,
        files: &[(u32, FileState)],
    ) -> JobState {
        let indexes: BTreeSet<u32> = files.iter().map(|(index, _)| *index).collect();
        let replicas = |index: u32| files.iter().filter(move |file| file.0 == index).map(|file| file.1);
        let is_finished = |index: &u32| replicas(*index).any(|state| state == Finished);
        let is_canceled = |index: &u32| replicas(*index).all(|state| state == Canceled);
        let is_failed = |index: &u32| {
            replicas(*index).all(|state| matches!(state, Failed | Canceled)) && !is_canceled(index)
        };
        let count = |is: &dyn Fn(&u32) -> bool| indexes.iter().filter(|index| is(index)).count();
        let (finished, canceled, failed) = (count(&is_finished), count(&is_canceled), count(&is_failed));
        // "R job in ARCHIVING whose file fails → FAILED".
        if kind == JobKind::Replicas && before == JobState::Archiving && latest == Failed && finished == 0 {
            return JobState::Failed;
        }
        // "All final, or type H with any failed or cancelled hop, first that fits".
        let is_broken = kind == JobKind::Multihop && failed + canceled > 0;
        if finished + canceled + failed == indexes.len() || is_broken {
            if finished > 0 && failed > 0 {
                return if kind == JobKind::Multihop { JobState::Failed } else { JobState::FinishedDirty };
            }
            if finished == indexes.len() {
                return JobState::Finished;
            }
            return if failed > 0 { JobState::Failed } else { JobState::Canceled };
        }
        // "The job follows the file change for ACTIVE, STAGING, SUBMITTED"; it is ACTIVE from READY on, since its own READY is unused, and
        // SUBMITTED comes after the rules about tape, which name it.
        if matches!(latest, Ready | Active) {
            return JobState::Active;
        }
        if latest == Staging {
            return JobState::Staging;
        }
        // "ARCHIVING when every non-final index is archiving".
        let is_final = |index: &u32| is_finished(index) || is_canceled(index) || is_failed(index);
        let mut open = indexes.iter().filter(|index| !is_final(index));
        if open.all(|index| replicas(*index).any(|state| state == Archiving)) {
            return JobState::Archiving;
        }
        // "STAGING → SUBMITTED when nothing is left staging".
        let stages = |state: FileState| matches!(state, Staging | Started | OnHoldStaging);
        if before == JobState::Staging && !files.iter().any(|file| stages(file.1)) {
            return JobState::Submitted;
        }
        if latest == Submitted && before != JobState::Staging {
            return JobState::Submitted;
        }
        // The book has no word for a job whose copy was cancelled while it waited for tape.
        if before == JobState::Archiving && !files.iter().any(|file| file.1 == Archiving) {
            return JobState::Submitted;
        }
        before
    }

    const KINDS: [JobKind; 4] = [JobKind::Plain, JobKind::Reuse, JobKind::Replicas, JobKind::Multihop];
    const LIVE: [JobState; 4] =
        [JobState::Submitted, JobState::Staging, JobState::Active, JobState::Archiving];

    fn agrees_with_the_book(states: &[FileState]) {
        for kind in KINDS {
            let place = |index: usize| if kind == JobKind::Replicas { 0 } else { index as u32 };
            let files: Vec<(u32, FileState)> =
                states.iter().enumerate().map(|(index, state)| (place(index), *state)).collect();
            let tally = Tally::of(states.iter().copied());
            for before in LIVE {
                for latest in states {
                    assert_eq!(
                        tally.job_state(kind, before, *latest),
                        by_the_book(kind, before, *latest, &files),
                        "{kind:?} {before:?} {latest:?} {states:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn all_jobs_of_three_files_go_by_the_book() {
        for first in FileState::ALL {
            agrees_with_the_book(&[*first]);
            for second in FileState::ALL {
                agrees_with_the_book(&[*first, *second]);
                for third in FileState::ALL {
                    agrees_with_the_book(&[*first, *second, *third]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn larger_jobs_go_by_the_book(states in prop::collection::vec(prop::sample::select(FileState::ALL), 1..9)) {
            agrees_with_the_book(&states);
        }

        #[test]
        fn counting_on_is_counting_anew(
            states in prop::collection::vec(prop::sample::select(FileState::ALL), 1..9),
            moves in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(FileState::ALL)), 0..20),
        ) {
            let (mut states, mut tally) = (states.clone(), Tally::of(states));
            for (place, to) in moves {
                let place = place.index(states.len());
                tally.moved(states[place], to);
                states[place] = to;
            }
            prop_assert_eq!(tally, Tally::of(states.iter().copied()));
            prop_assert_eq!(tally.files() as usize, states.len());
        }
    }
}
