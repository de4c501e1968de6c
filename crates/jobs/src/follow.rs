//! Consequences of a file's new state for the others of its job: the next replica, the next hop; and what is told of a job that has
//! ended (fts3-rest 6).
//!
//! A store makes a change, then its consequences, counts ([`Tally`](crate::Tally)), and has the job's state; all in one transaction, so
//! that a job and its files are final at the same time.

use crate::{FileId, FileState, JobKind, JobState};

/// The reason of a job that has ended otherwise than well.
pub const FILES_FAILED: &str =
    "One or more files failed. Please have a look at the details for more information";
/// The reason of a job whose only copy did not get to tape.
pub const ARCHIVE_FAILED: &str = "Archive monitoring failed in a multiple replica job";
/// The reason of jobs and files that their user cancels.
pub const CANCELED_BY_USER: &str = "Job canceled by the user";
/// The reason of jobs and files that have waited for longer than their job allows.
pub const QUEUE_TIMEOUT: &str =
    "Job has been canceled because it stayed in the queue for too long (max-time-in-queue timeout)";
/// The same, for longer than their VO allows.
pub const GLOBAL_QUEUE_TIMEOUT: &str =
    "Job has been canceled because it stayed in the queue for too long (global timeout)";

/// A file of a job with replicas or hops, as a store has it once a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The file.
    pub id: FileId,
    /// Its state.
    pub state: FileState,
    /// The state that it gets when its turn comes.
    pub initial_state: FileState,
    /// Files that wait on its link, if the one with the shortest queue is to be next; 0 of each if the next by number is.
    pub waiting: u64,
}

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The state that the file had.
    pub from: FileState,
    /// The state that it has.
    pub to: FileState,
}

/// What follows from a change: the replica or hop whose turn has come, with the state that it gets; it is NOT_USED until then.
///
/// Of replicas the next one has it when one has failed or was cancelled and no other is under way: that of the shortest queue, and of
/// equals the first by number. Of hops the next by number, when one has finished. Files that never have it stay NOT_USED. A copy that
/// did not get to tape is not made from another replica.
pub fn consequence(
    kind: JobKind,
    job_state: JobState,
    members: &[Member],
    happened: Happened,
) -> Option<(FileId, FileState)> {
    let is_turn = match kind {
        JobKind::Plain | JobKind::Reuse => false,
        JobKind::Replicas => match happened.to {
            FileState::Canceled => true,
            FileState::Failed => happened.from != FileState::Archiving,
            _ => false,
        },
        JobKind::Multihop => happened.to == FileState::Finished,
    };
    let is_idle = |member: &Member| match kind {
        // One that has finished ends the job.
        JobKind::Replicas => {
            matches!(member.state, FileState::NotUsed | FileState::Failed | FileState::Canceled)
        }
        // One that has failed does.
        _ => matches!(member.state, FileState::NotUsed | FileState::Finished),
    };
    if !is_turn || job_state.is_final() || !members.iter().all(is_idle) {
        return None;
    }
    let unused = members.iter().filter(|member| member.state == FileState::NotUsed);
    let next = match kind {
        JobKind::Replicas => unused.min_by_key(|member| (member.waiting, member.id)),
        _ => unused.min_by_key(|member| member.id),
    }?;
    let begins = match next.initial_state {
        FileState::Staging => FileState::Staging,
        _ => FileState::Submitted,
    };
    Some((next.id, begins))
}

/// The reason of a job that has got the state `after`, and was `before`: none while it lasts, or if it has ended well.
pub fn reason(kind: JobKind, before: JobState, latest: FileState, after: JobState) -> Option<&'static str> {
    if !after.is_final() || after == JobState::Finished {
        return None;
    }
    let did_not_archive =
        kind == JobKind::Replicas && before == JobState::Archiving && latest == FileState::Failed;
    Some(if did_not_archive { ARCHIVE_FAILED } else { FILES_FAILED })
}

/// True if a job of replicas has the source of this file in the end: it was copied, or it was and did not get to tape.
pub fn is_source_in_the_end(kind: JobKind, happened: Happened) -> bool {
    kind == JobKind::Replicas
        && match happened.to {
            FileState::Finished => true,
            FileState::Failed => happened.from == FileState::Archiving,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tally;
    use FileState::*;
    use proptest::prelude::*;

    fn members(states: &[FileState]) -> Vec<Member> {
        let member = |(number, state): (i64, &FileState)| Member {
            id: FileId(number),
            state: *state,
            initial_state: Submitted,
            waiting: 0,
        };
        (1..).zip(states).map(member).collect()
    }

    /// The file whose turn comes once one has gone to this state.
    fn turn(kind: JobKind, members: &[Member], from: FileState, to: FileState) -> Option<i64> {
        let next = consequence(kind, JobState::Active, members, Happened { from, to });
        assert!(next.is_none_or(|(_, begins)| begins == Submitted));
        next.map(|(file, _)| file.0)
    }

    #[test]
    fn a_replica_follows_one_that_has_failed() {
        let next = |states: &[FileState]| turn(JobKind::Replicas, &members(states), Active, Failed);
        assert_eq!(next(&[Failed, NotUsed, NotUsed, NotUsed]), Some(2));
        assert_eq!(next(&[NotUsed, Failed, NotUsed, NotUsed]), Some(1));
        assert_eq!(next(&[Failed, Failed]), None);
        assert_eq!(next(&[Failed, Submitted, NotUsed]), None, "one is under way");
        assert_eq!(next(&[Failed, Finished, NotUsed]), None);
        let next = |from, to, states: &[FileState]| turn(JobKind::Replicas, &members(states), from, to);
        assert_eq!(next(Submitted, Canceled, &[Canceled, NotUsed]), Some(2));
        assert_eq!(next(Archiving, Failed, &[Failed, NotUsed]), None, "it was copied");
        assert_eq!(next(Archiving, Canceled, &[Canceled, NotUsed]), Some(2), "a storage was banned");
        assert_eq!(next(Active, Finished, &[Finished, NotUsed]), None);
    }

    #[test]
    fn the_replica_of_the_shortest_queue_is_next() {
        let queues = |kind, waiting: [u64; 4]| {
            let mut members = members(&[
                if kind == JobKind::Replicas { Failed } else { Finished },
                NotUsed,
                NotUsed,
                NotUsed,
            ]);
            members.iter_mut().zip(waiting).for_each(|(member, waiting)| member.waiting = waiting);
            let to = members[0].state;
            turn(kind, &members, Active, to)
        };
        assert_eq!(queues(JobKind::Replicas, [0, 2, 2, 1]), Some(4));
        assert_eq!(queues(JobKind::Replicas, [0, 2, 1, 1]), Some(3), "the first of equals");
        assert_eq!(queues(JobKind::Multihop, [0, 2, 2, 1]), Some(2), "hops have an order");
    }

    #[test]
    fn a_hop_follows_one_that_has_finished() {
        let next = |from, to, states: &[FileState]| turn(JobKind::Multihop, &members(states), from, to);
        assert_eq!(next(Active, Finished, &[Finished, NotUsed, NotUsed]), Some(2));
        assert_eq!(next(Started, Finished, &[Finished, Finished, NotUsed]), Some(3));
        assert_eq!(next(Active, Failed, &[Failed, NotUsed]), None);
        assert_eq!(next(Active, Finished, &[Finished, Canceled, NotUsed]), None);
        assert_eq!(turn(JobKind::Plain, &members(&[Finished, NotUsed]), Active, Finished), None);
    }

    #[test]
    fn a_replica_that_is_on_tape_is_brought_first() {
        let mut members = members(&[Failed, NotUsed]);
        members[1].initial_state = Staging;
        let happened = Happened { from: Active, to: Failed };
        let after = |state| consequence(JobKind::Replicas, state, &members, happened);
        assert_eq!(after(JobState::Active), Some((FileId(2), Staging)));
        assert_eq!(after(JobState::Canceled), None, "a job that has ended goes on with nothing");
    }

    #[test]
    fn jobs_tell_why_they_ended() {
        let plain = |after| reason(JobKind::Plain, JobState::Active, Failed, after);
        for after in [JobState::Failed, JobState::FinishedDirty, JobState::Canceled] {
            assert_eq!(plain(after), Some(FILES_FAILED));
        }
        assert_eq!((plain(JobState::Finished), plain(JobState::Active)), (None, None));
        let tape = reason(JobKind::Replicas, JobState::Archiving, Failed, JobState::Failed);
        assert_eq!(tape, Some(ARCHIVE_FAILED));
    }

    #[test]
    fn a_job_of_replicas_has_the_source_that_was_copied() {
        let is_source = |kind, from, to| is_source_in_the_end(kind, Happened { from, to });
        assert!(is_source(JobKind::Replicas, Active, Finished));
        assert!(is_source(JobKind::Replicas, Archiving, Finished));
        assert!(is_source(JobKind::Replicas, Archiving, Failed), "it was copied, and is not on tape");
        assert!(!is_source(JobKind::Replicas, Active, Failed));
        assert!(!is_source(JobKind::Replicas, Archiving, Canceled), "another replica is copied instead");
        assert!(!is_source(JobKind::Replicas, Active, Archiving), "it is not the end");
        assert!(!is_source(JobKind::Plain, Active, Finished));
    }

    proptest! {
        /// Jobs of replicas or hops whose files end one after the other, anyhow: there is always one that runs, until the job has ended.
        #[test]
        fn a_job_never_stops_before_its_end(
            kind in prop::sample::select(vec![JobKind::Replicas, JobKind::Multihop]),
            queues in prop::collection::vec(0_u64..3, 6),
            first in any::<prop::sample::Index>(),
            outcomes in prop::collection::vec(
                (any::<bool>(), any::<bool>(), prop::sample::select(vec![Finished, Failed, Canceled])),
                1..7,
            ),
        ) {
            let mut files = members(&vec![NotUsed; outcomes.len()]);
            let first = if kind == JobKind::Replicas { first.index(files.len()) } else { 0 };
            files[first].state = Submitted;
            files.iter_mut().zip(queues).for_each(|(file, waiting)| file.waiting = waiting);
            let mut state = JobState::Submitted;
            for (is_copied, is_archived, outcome) in outcomes {
                let runs = |file: &Member| !file.state.is_final() && file.state != NotUsed;
                let running: Vec<usize> = (0..files.len()).filter(|place| runs(&files[*place])).collect();
                prop_assert_eq!(running.len(), usize::from(!state.is_final()), "{:?} {:?}", state, files);
                let Some(running) = running.first().copied() else { break };
                let on_the_way = [is_copied.then_some(Active), (is_copied && is_archived).then_some(Archiving)];
                for to in on_the_way.into_iter().flatten().chain([outcome]) {
                    let happened = Happened { from: files[running].state, to };
                    files[running].state = to;
                    let next = consequence(kind, state, &files, happened);
                    if let Some((next, begins)) = next {
                        let file = files.iter_mut().find(|file| file.id == next).unwrap();
                        prop_assert_eq!(file.state, NotUsed);
                        file.state = begins;
                    }
                    let latest = next.map_or(to, |(_, begins)| begins);
                    let before = state;
                    state = Tally::of(files.iter().map(|file| file.state)).job_state(kind, before, latest);
                    let has_reason = reason(kind, before, latest, state).is_some();
                    prop_assert_eq!(has_reason, state.is_final() && state != JobState::Finished);
                    if is_source_in_the_end(kind, happened) {
                        prop_assert!(state.is_final(), "{:?}: {:?}", state, files);
                    }
                }
            }
            prop_assert!(state.is_final(), "{:?}: {:?}", state, files);
        }
    }
}
