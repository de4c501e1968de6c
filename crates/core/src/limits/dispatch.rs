//! Deciding which transfer runs when.

use std::time::Duration;

/// Time of waiting that counts as one step of priority: of five steps, what came three hours later never overtakes.
pub const DISPATCH_AGING: Duration = Duration::from_secs(1800);
/// Starts of one turn, and as many files that have expired or are refused: a caller has them under way in a few milliseconds, and hears of what has ended in between.
pub const DISPATCH_STARTS_MAX: usize = 1000;
/// New copies of a link, beyond those that take the place of others, are spread over so long: their handshakes, checks and slow
/// starts do not fall together.
pub const DISPATCH_STAGGER: Duration = Duration::from_secs(1);
/// Bytes that a file costs its VO's share beside its own: what a link moves while a small file is looked at, made and checked.
pub const DISPATCH_FILE_COST_BYTES: u64 = 8 * 1024 * 1024;
/// Activities of a VO on a link that are told apart: users choose their names, and each start looks at all. More count as `default`.
/// Of as many that have no files now it is remembered what they had.
pub const DISPATCH_ACTIVITIES_MAX: usize = 256;
/// A link on which nothing waits and runs is forgotten after so long: names of storages are chosen by others.
pub const DISPATCH_LINK_IDLE_MAX: Duration = Duration::from_secs(3600);
/// Between two looks for such links.
pub const DISPATCH_SWEEP: Duration = Duration::from_secs(300);
/// Copies of a storage in one direction that has no limit of its own, nor one of `*`: as in FTS3 (fts3-rest 9).
pub const DISPATCH_STORAGE_ACTIVE_MAX: u32 = 60;
/// Copies of a link for which nothing else is configured, at the least: as in FTS3 (fts3-rest 10.2).
pub const DISPATCH_LINK_ACTIVE_MIN: u32 = 2;
/// The same within a host.
pub const DISPATCH_LOCAL_ACTIVE_MIN: u32 = 10;

/// After a change of a concurrency so long passes before rates are looked at: handshakes, checks and slow start.
pub const OPTIMIZER_SETTLE: Duration = Duration::from_millis(1500);
/// Rates are looked at for so long: a few files of 10 MB per copy, and short enough for eight steps within a minute.
pub const OPTIMIZER_MEASURE: Duration = Duration::from_millis(3500);
/// Time between two trials of a link that has found its concurrency.
pub const OPTIMIZER_REST: Duration = Duration::from_secs(120);
/// Trials in vain double it up to this.
pub const OPTIMIZER_REST_MAX: Duration = Duration::from_secs(1800);
/// A link that was idle for so long begins anew.
pub const OPTIMIZER_MEMORY: Duration = Duration::from_secs(900);
/// Links that were seen to share a bottleneck are one for so long after they were last seen to.
pub const OPTIMIZER_GROUP_MEMORY: Duration = Duration::from_secs(3600);

/// Failures one after the other by which a path or a storage counts as down: by chance, where one of ten fails, once in ten
/// thousand files. And retries of a file that do not count though nothing is known to be down: with one less, the first failures of
/// what dies would be the end of their files.
pub const BREAKER_FAILURES: u32 = 4;
/// Bytes that move are a sign of life for so long; and for so long what was begun before may still break off, without a meaning.
pub const BREAKER_ALIVE: Duration = Duration::from_secs(10);
/// The pause before the first probe, and before a retry that does not count.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(1);
/// Each probe in vain doubles it up to this: with a probe's own time-out, what is back is seen within half a minute.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Failures of a path that is down count as attempts of their files after so long, and jobs come to an end.
pub const BREAKER_HOPE: Duration = Duration::from_secs(3600);
/// Paths of a storage that are down without one that works, by which the storage counts as down.
pub const BREAKER_PATHS: usize = 2;
/// The pause before another attempt, if its submitter names none: as in FTS3 (fts3-rest 7.2).
pub const RETRY_PAUSE: Duration = Duration::from_secs(120);
