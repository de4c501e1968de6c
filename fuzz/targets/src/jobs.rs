//! What clients of the transfer service send: submissions of jobs.

use std::collections::HashSet;

use gridlane_core::limits;
use gridlane_jobs::submission::{Rules, Submitter};
use gridlane_jobs::{Figures, FileState, JobKind, Method, Owner, Submission, answer};

/// A submission: refused with a status and words, or a job that keeps to its rules.
pub(crate) fn submission(data: &[u8]) {
    let submission = match Submission::parse(data) {
        Ok(submission) => submission,
        Err(refusal) => {
            assert!((400..500).contains(&refusal.status) && !refusal.message.is_empty(), "{refusal:?}");
            return;
        }
    };
    let owner =
        Owner { user_dn: "/CN=Ada".into(), vo: "dteam".into(), delegation_id: "0123456789abcdef".into() };
    let submitter = Submitter { owner, method: Method::Certificate };
    let rules = Rules {
        host: "here",
        bans: &[],
        has_unique_destinations: false,
        has_automatic_reuse: true,
        unprepared_tokens: &HashSet::new(),
        figures: &|_, _, _| Figures::default(),
    };
    // Words of tokens are another matter.
    let _ = submission.tokens();
    let new = match submission.into_job(&submitter, 1_800_000_000, [7; 24], &rules) {
        Ok(new) => new,
        Err(refusal) => {
            assert!((400..500).contains(&refusal.status), "{refusal:?}");
            return;
        }
    };
    assert!((1..=limits::JOB_FILES_MAX).contains(&new.files.len()));
    let entered = new.files.iter().filter(|file| file.state != FileState::NotUsed).count();
    match new.job.kind {
        JobKind::Replicas | JobKind::Multihop => assert_eq!(entered, 1, "one begins"),
        JobKind::Plain | JobKind::Reuse => assert_eq!(entered, new.files.len(), "all begin"),
    }
    for file in &new.files {
        assert!(file.source.len() <= limits::JOB_URL_BYTES_MAX && !file.source.starts_with("file:"));
        assert!(!file.state.is_final() && (1..=5).contains(&file.priority));
        let shown = answer::file(file);
        assert_eq!(shown.len(), answer::FILE_FIELDS.len());
    }
    assert_eq!(answer::job(&new.job).len(), answer::JOB_FIELDS.len());
}
