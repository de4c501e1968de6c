//! Consequences of a file's new state for the others of its job: the next replica, the next hop; and what is told of a job that has
//! ended (fts3-rest 6).
//!
//! A store makes a change, then its consequences, counts ([`Tally`](crate::Tally)), and has the job's state; all in one transaction, so
//! that a job and its files are final at the same time.

use crate::{Change, FileId, FileState, FileStates, JobKind, JobState, Link, News, Selection, Storage};

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
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The file.
    pub id: FileId,
    /// Its state.
    pub state: FileState,
    /// The state that it gets when its turn comes.
    pub initial_state: FileState,
    /// Its link.
    pub link: Link,
}

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The state that the file had.
    pub from: FileState,
    /// The state that it has.
    pub to: FileState,
    /// When, in seconds since 1970.
    pub at_s: i64,
}

/// The changes that follow from one: a replica or hop whose turn has come.
///
/// Of replicas the next one has it when one has failed or was cancelled and no other is under way: that of the link on which the fewest
/// files wait (`waiting`) if its source is chosen so, else the next by number. Of hops the next by number, when one has finished. Files
/// that never have it stay NOT_USED. A copy that did not get to tape is not made from another replica.
pub fn consequences(
    kind: JobKind,
    job_state: JobState,
    selection: Selection,
    members: &[Member],
    happened: Happened,
    waiting: &dyn Fn(&Link) -> u64,
) -> Vec<Change> {
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
        return Vec::new();
    }
    let unused = members.iter().filter(|member| member.state == FileState::NotUsed);
    let next = match (kind, selection) {
        (JobKind::Replicas, Selection::Auto) => {
            unused.min_by_key(|member| (waiting(&member.link), member.id))
        }
        _ => unused.min_by_key(|member| member.id),
    };
    let begins = |member: &Member| Change {
        file: member.id,
        from: FileStates::of(&[FileState::NotUsed]),
        if_host: None,
        to: match member.initial_state {
            FileState::Staging => FileState::Staging,
            _ => FileState::Submitted,
        },
        at_s: happened.at_s,
        news: News::default(),
    };
    next.map(begins).into_iter().collect()
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

/// The source that a job of replicas has in the end: that of the replica that was copied, or that was and did not get to tape.
pub fn source_in_the_end(
    kind: JobKind,
    before: JobState,
    after: JobState,
    members: &[Member],
) -> Option<Storage> {
    let looked_for = match (kind, after) {
        (JobKind::Replicas, JobState::Finished) => FileState::Finished,
        (JobKind::Replicas, JobState::Failed) if before == JobState::Archiving => FileState::Failed,
        _ => return None,
    };
    let found = members.iter().rev().find(|member| member.state == looked_for)?;
    Some(found.link.source.clone())
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
            link: Link { source: format!("davs://{number}").as_str().into(), destination: "davs://d".into() },
        };
        (1..).zip(states).map(member).collect()
    }

    /// The file whose turn comes once one has gone to this state.
    fn turn(
        kind: JobKind,
        selection: Selection,
        states: &[FileState],
        from: FileState,
        to: FileState,
    ) -> Option<i64> {
        let waiting = |link: &Link| if &*link.source.0 == "davs://4" { 1 } else { 2 };
        let happened = Happened { from, to, at_s: 5 };
        let changes = consequences(kind, JobState::Active, selection, &members(states), happened, &waiting);
        assert!(
            changes
                .iter()
                .all(|change| change.to == Submitted && change.at_s == 5 && change.from.has(NotUsed))
        );
        assert!(changes.len() <= 1);
        changes.first().map(|change| change.file.0)
    }

    #[test]
    fn a_replica_follows_one_that_has_failed() {
        let next =
            |selection, states: &[FileState]| turn(JobKind::Replicas, selection, states, Active, Failed);
        assert_eq!(next(Selection::Orderly, &[Failed, NotUsed, NotUsed, NotUsed]), Some(2));
        assert_eq!(
            next(Selection::Auto, &[Failed, NotUsed, NotUsed, NotUsed]),
            Some(4),
            "the shortest queue"
        );
        assert_eq!(next(Selection::Auto, &[Failed, NotUsed, NotUsed]), Some(2), "the first of equals");
        assert_eq!(next(Selection::Throughput, &[NotUsed, Failed, NotUsed, NotUsed]), Some(1));
        assert_eq!(next(Selection::Auto, &[Failed, Failed]), None);
        assert_eq!(next(Selection::Auto, &[Failed, Submitted, NotUsed]), None, "one is under way");
        assert_eq!(next(Selection::Auto, &[Failed, Finished, NotUsed]), None);
        let next =
            |from, to, states: &[FileState]| turn(JobKind::Replicas, Selection::Auto, states, from, to);
        assert_eq!(next(Submitted, Canceled, &[Canceled, NotUsed]), Some(2));
        assert_eq!(next(Archiving, Failed, &[Failed, NotUsed]), None, "it was copied");
        assert_eq!(next(Archiving, Canceled, &[Canceled, NotUsed]), Some(2), "a storage was banned");
        assert_eq!(next(Active, Finished, &[Finished, NotUsed]), None);
    }

    #[test]
    fn a_hop_follows_one_that_has_finished() {
        let next =
            |from, to, states: &[FileState]| turn(JobKind::Multihop, Selection::Auto, states, from, to);
        assert_eq!(next(Active, Finished, &[Finished, NotUsed, NotUsed]), Some(2));
        assert_eq!(next(Started, Finished, &[Finished, Finished, NotUsed]), Some(3));
        assert_eq!(next(Active, Failed, &[Failed, NotUsed]), None);
        assert_eq!(next(Active, Finished, &[Finished, Canceled, NotUsed]), None);
        assert_eq!(turn(JobKind::Plain, Selection::Auto, &[Finished, NotUsed], Active, Finished), None);
    }

    #[test]
    fn a_replica_that_is_on_tape_is_brought_first() {
        let mut members = members(&[Failed, NotUsed]);
        members[1].initial_state = Staging;
        let happened = Happened { from: Active, to: Failed, at_s: 5 };
        let after =
            |state| consequences(JobKind::Replicas, state, Selection::Auto, &members, happened, &|_| 0);
        assert_eq!(after(JobState::Active)[0].to, Staging);
        assert_eq!(after(JobState::Canceled), [], "a job that has ended goes on with nothing");
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
        let source = |before, after, states: &[FileState]| {
            source_in_the_end(JobKind::Replicas, before, after, &members(states))
                .map(|storage| storage.to_string())
        };
        let active = JobState::Active;
        assert_eq!(
            source(active, JobState::Finished, &[Failed, Finished, NotUsed]).as_deref(),
            Some("davs://2")
        );
        assert_eq!(
            source(JobState::Archiving, JobState::Failed, &[Failed, Failed, NotUsed]).as_deref(),
            Some("davs://2")
        );
        assert_eq!(source(active, JobState::Failed, &[Failed, Failed]), None);
        assert_eq!(
            source_in_the_end(JobKind::Plain, active, JobState::Finished, &members(&[Finished])),
            None
        );
    }

    proptest! {
        /// Jobs of replicas or hops whose files end one after the other, anyhow: there is always one that runs, until the job has ended.
        #[test]
        fn a_job_never_stops_before_its_end(
            kind in prop::sample::select(vec![JobKind::Replicas, JobKind::Multihop]),
            selection in prop::sample::select(vec![Selection::Auto, Selection::Orderly]),
            first in any::<prop::sample::Index>(),
            outcomes in prop::collection::vec(
                (any::<bool>(), any::<bool>(), prop::sample::select(vec![Finished, Failed, Canceled])),
                1..7,
            ),
        ) {
            let mut files = members(&vec![NotUsed; outcomes.len()]);
            let first = if kind == JobKind::Replicas { first.index(files.len()) } else { 0 };
            files[first].state = Submitted;
            let mut state = JobState::Submitted;
            for (is_copied, is_archived, outcome) in outcomes {
                let runs = |file: &Member| !file.state.is_final() && file.state != NotUsed;
                let running: Vec<usize> = (0..files.len()).filter(|place| runs(&files[*place])).collect();
                prop_assert_eq!(running.len(), usize::from(!state.is_final()), "{:?} {:?}", state, files);
                let Some(running) = running.first().copied() else { break };
                let on_the_way = [is_copied.then_some(Active), (is_copied && is_archived).then_some(Archiving)];
                for to in on_the_way.into_iter().flatten().chain([outcome]) {
                    let happened = Happened { from: files[running].state, to, at_s: 0 };
                    files[running].state = to;
                    for change in consequences(kind, state, selection, &files, happened, &|_| 0) {
                        let file = files.iter_mut().find(|file| file.id == change.file).unwrap();
                        prop_assert!(change.from.has(file.state));
                        file.state = change.to;
                    }
                    let before = state;
                    state = Tally::of(files.iter().map(|file| file.state)).job_state(kind, before, to);
                    let has_reason = reason(kind, before, to, state).is_some();
                    prop_assert_eq!(has_reason, state.is_final() && state != JobState::Finished);
                }
            }
            prop_assert!(state.is_final(), "{:?}: {:?}", state, files);
        }
    }
}
