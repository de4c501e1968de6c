//! Third-party copies.

use std::time::Duration;

/// Third-party copies that run or wait: each that waits costs a connection, a task and 20 KiB.
pub const THIRD_PARTY_COPIES_MAX: usize = 4096;
/// One client has at most this part of them: a transfer service is one client, and has a thousand under way.
pub const THIRD_PARTY_CLIENT_PART: usize = 2;
/// Time between two markers. Clients of the field give up a copy that tells nothing for 30 s or longer; dCache, StoRM and XRootD
/// tell every 5 s, on a loaded machine later.
pub const THIRD_PARTY_MARKER_INTERVAL: Duration = Duration::from_millis(4500);
/// The answer to a COPY waits so long for the other server, so that what fails at once has a status of its own.
pub const THIRD_PARTY_EARLY: Duration = Duration::from_secs(2);
/// Time without a byte from any source, or to a target, after which a copy fails: what XRootD has.
pub const THIRD_PARTY_PATIENCE: Duration = Duration::from_secs(60);
/// Time that another server may take for the beginning of an answer: it may fetch the file from a tape's cache first.
pub const THIRD_PARTY_ANSWER_MAX: Duration = Duration::from_secs(120);
/// A copy of which fewer than [`THIRD_PARTY_LEAST_BYTES`] come within this time fails, though something comes.
pub const THIRD_PARTY_LEAST_INTERVAL: Duration = Duration::from_secs(120);
/// 512 B/s: a person at a modem, and no storage.
pub const THIRD_PARTY_LEAST_BYTES: u64 = 120 * 512;
/// Time for removing at another server what an upload that broke off has left there.
pub const THIRD_PARTY_CLEAN_UP_MAX: Duration = Duration::from_secs(10);
/// Of a push that broke off before so many bytes were read here, it is not certain that any have reached the other server: what is
/// there is left alone.
pub const THIRD_PARTY_SENT_BYTES_MIN: u64 = 80 * 1024 * 1024;
/// Time for fetching the metalink that a source is, before the client has an answer.
pub const THIRD_PARTY_METALINK_MAX: Duration = Duration::from_secs(20);
/// Metalinks of such copies that are read at the same time: each may have [`METALINK_BYTES_MAX`](super::METALINK_BYTES_MAX), and come slowly.
pub const THIRD_PARTY_METALINKS_READ_MAX: usize = 8;
/// Metalinks that lead to each other before the file: one describes it, and one may stand for that.
pub const THIRD_PARTY_METALINKS_MAX: usize = 2;
/// A client gives up a copy of which the active server tells nothing for so long: dCache, StoRM and XRootD tell of it every
/// five seconds, and answer with the first of that late when the other server does.
pub const THIRD_PARTY_SILENCE_MAX: Duration = Duration::from_secs(120);
/// The same in markers that have not come, for a server that tells of it seldom.
pub const THIRD_PARTY_MARKERS_MISSED_MAX: u32 = 6;
/// A client gives up a copy that gets no more bytes for so long, and for the time in which the last ones are compared: FTS
/// waits as long.
pub const THIRD_PARTY_STALL_MAX: Duration = Duration::from_secs(900);
/// So often the bytes of a copy may become fewer, and count as progress again from there on: an active server may begin again, or
/// fetch wrong bytes again. One that goes up and down makes no progress.
pub const THIRD_PARTY_FALLS_MAX: u32 = 16;
/// A copy that waits for its turn at the active server is waited for so long: a day, as for a queue of transfers.
pub const THIRD_PARTY_QUEUE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Bytes per second that a server computes a checksum of at the least.
pub const THIRD_PARTY_CHECKSUM_BYTES_PER_S: u64 = 20_000_000;
/// Time for which a client that has left a copy waits until nothing of it is there, and for the removal of what is.
pub const THIRD_PARTY_LEAVE_MAX: Duration = Duration::from_secs(3);
/// Bytes per second that a copy is taken to move at the least, for the lifetime of a macaroon.
pub const THIRD_PARTY_MACAROON_BYTES_PER_S: u64 = 5_000_000;
/// A client gives a copy between servers so many credentials, one after the other: a week with tokens of ten minutes.
pub const THIRD_PARTY_RENEWALS_MAX: u32 = 1024;
/// And so many since more bytes of it were told of: an active server tells how far it is every few seconds, and may be refused before.
pub const THIRD_PARTY_RENEWALS_IN_VAIN_MAX: u32 = 2;
/// A macaroon that is refused within this time has not ended meanwhile: another one would be refused as well.
pub const THIRD_PARTY_FRESH: Duration = Duration::from_secs(10);
/// The least time between two of them.
pub const THIRD_PARTY_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Users whose connections to other servers are kept apart, and remembered.
pub const THIRD_PARTY_USERS_MAX: usize = 1024;
