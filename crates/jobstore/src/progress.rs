//! A file's row when its state changes: which moments are kept, and which news.

use gridlane_jobs::{Change, FileState, Stamps};

use crate::rows::{AttemptRow, Hot, NameKey};

/// Makes a change of a file. `host`: the number of the broker that the change names, if it names one. Returns the attempt that
/// has failed, if one has; `nobody` is the name of the broker of an attempt that none has made.
pub(crate) fn make(
    file: &mut Hot,
    change: &Change,
    host: Option<NameKey>,
    nobody: NameKey,
) -> Option<AttemptRow> {
    let news = &change.news;
    let attempt = news.has_failed.then(|| AttemptRow {
        file: file.id,
        number: file.attempts,
        ended_s: change.at_s,
        reason: news.reason.clone().unwrap_or_default(),
        host: file.host.unwrap_or(nobody),
    });
    stamp(&mut file.stamps, file.state, change.to, change.at_s);
    file.state = change.to;
    if attempt.is_some() {
        file.attempts = file.attempts.saturating_add(1);
    }
    if news.transfer_host.is_some() {
        file.host = host;
    }
    let set = |old: &mut Option<u64>, new: Option<u64>| *old = new.or(*old);
    set(&mut file.size_bytes, news.size_bytes);
    set(&mut file.transferred_bytes, news.transferred_bytes);
    // What an earlier attempt has failed for is not said of a copy that went well.
    if matches!(change.to, FileState::Finished | FileState::Archiving) {
        (file.reason, file.is_recoverable) = (None, None);
    }
    file.reason = news.reason.clone().or(file.reason.take());
    file.is_recoverable = news.is_recoverable.or(file.is_recoverable);
    file.retry_after_s = news.retry_after_s.or(file.retry_after_s);
    file.throughput_bytes_per_s = news.throughput_bytes_per_s.or(file.throughput_bytes_per_s);
    file.duration_s = news.duration_s.or(file.duration_s);
    file.hashed_id = news.hashed_id.unwrap_or(file.hashed_id);
    file.bringonline_token = news.bringonline_token.clone().or(file.bringonline_token.take());
    attempt
}

/// Keeps the moment at which a file goes from one state to another.
pub(crate) fn stamp(stamps: &mut Stamps, from: FileState, to: FileState, at_s: i64) {
    use FileState::*;
    if from == to {
        return;
    }
    if from == Started {
        stamps.staging_finished_s = Some(at_s);
    }
    match to {
        Active => (stamps.started_s, stamps.finished_s) = (Some(at_s), None),
        Started => (stamps.staging_started_s, stamps.staging_finished_s) = (Some(at_s), None),
        Archiving => (stamps.finished_s, stamps.archive_started_s) = (Some(at_s), Some(at_s)),
        _ if !to.is_final() => {}
        // The copy has ended before: what ends now is the wait for tape.
        _ if from == Archiving => stamps.archive_finished_s = Some(at_s),
        _ => stamps.finished_s = Some(at_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileState::*;

    #[test]
    fn moments_of_a_file_from_tape_to_tape() {
        let mut stamps = Stamps::default();
        for (at_s, pair) in
            (1..).zip([Staging, Started, Submitted, Ready, Active, Archiving, Finished].windows(2))
        {
            stamp(&mut stamps, pair[0], pair[1], at_s);
        }
        let expected = Stamps {
            started_s: Some(4),
            finished_s: Some(5),
            staging_started_s: Some(1),
            staging_finished_s: Some(2),
            archive_started_s: Some(5),
            archive_finished_s: Some(6),
        };
        assert_eq!(stamps, expected);
    }

    #[test]
    fn an_attempt_has_its_own_moments() {
        let mut stamps = Stamps::default();
        stamp(&mut stamps, Ready, Active, 1);
        stamp(&mut stamps, Active, Submitted, 2);
        assert_eq!((stamps.started_s, stamps.finished_s), (Some(1), None), "it waits for another attempt");
        stamp(&mut stamps, Ready, Active, 3);
        stamp(&mut stamps, Active, Active, 4);
        stamp(&mut stamps, Active, Failed, 5);
        assert_eq!((stamps.started_s, stamps.finished_s), (Some(3), Some(5)));
    }
}
