//! Limits of jobs of the transfer service. Those of texts are the columns of FTS3's data base, which its clients are made for.

/// Bytes of a request that submits a job. One of 10,000 files with 1 kB of metadata each has about 15 MB; Rucio's have 200 files.
pub const JOB_BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of a request that changes a setting. Shares of a hundred activities have 5 kB.
pub const SETTING_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Memory of the JSON of a request, in values of 32 bytes, of which an object that is not empty takes [`JSON_OBJECT_VALUES`]: without
/// it `[{"":0},` and so on would take a hundred times its length.
pub const JSON_VALUES_MAX: usize = 4_000_000;
/// Values that the memory of an object with up to 11 members is worth.
pub const JSON_OBJECT_VALUES: usize = 20;
/// Files of a job, of which replicas and hops are one each.
pub const JOB_FILES_MAX: usize = 20_000;
/// Pairs of a source and a destination for one file of a job: no file has so many replicas.
pub const JOB_REPLICAS_MAX: usize = 256;
/// Bytes of a URL of a job.
pub const JOB_URL_BYTES_MAX: usize = 1100;
/// Bytes of an activity, of SRM's space tokens, of a name by which a job's id is made.
pub const JOB_NAME_BYTES_MAX: usize = 255;
/// Bytes of a checksum with its type: SHA-512 has 135.
pub const JOB_CHECKSUM_BYTES_MAX: usize = 160;
/// Bytes of a reason that is kept: of a job, a file, an attempt.
pub const JOB_REASON_BYTES_MAX: usize = 2048;
/// Bytes of an error's text in a message for the message bus.
pub const JOB_MESSAGE_REASON_BYTES_MAX: usize = 1024;
/// Characters of a job's metadata as JSON, as FTS3's configuration is shipped.
pub const JOB_METADATA_CHARS_MAX: usize = 2048;
/// The same of a file's.
pub const FILE_METADATA_CHARS_MAX: usize = 4096;
/// The same of words for a tape system.
pub const TAPE_METADATA_CHARS_MAX: usize = 1024;
/// Attempts of one file that a job may ask for beside the first: pauses of 120 s between them make a day.
pub const JOB_RETRIES_MAX: i32 = 720;
/// The longest time that a job may ask for, in seconds: ten years. What is longer is a mistake, or an attempt to make sums overflow.
pub const JOB_TIME_S_MAX: u32 = 10 * 365 * 24 * 3600;
/// Streams of one copy that a job may ask for: each is a connection between two storages.
pub const JOB_STREAMS_MAX: u16 = 256;
/// Bytes of a TCP buffer that a job may ask for: 10 Gb/s at 800 ms.
pub const JOB_BUFFER_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Files from which on a job gets one session for all of them, if the service does that by itself.
pub const REUSE_FILES_MIN: usize = 5;
/// Files up to which it does.
pub const REUSE_FILES_MAX: usize = 1000;
/// Bytes of a small file for that.
pub const REUSE_SMALL_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// Bytes of a large file for that, of which there may be [`REUSE_LARGE_FILES_MAX`].
pub const REUSE_LARGE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Large files of such a job.
pub const REUSE_LARGE_FILES_MAX: usize = 2;
/// Jobs of one request that asks for several: what fits into a request's line is less.
pub const JOBS_PER_REQUEST_MAX: usize = 1000;
/// Jobs of one answer to a request that lists them, unless it has no limit.
pub const JOBS_LISTED_MAX: u32 = 500;
/// Files of one answer to a request that lists them.
pub const FILES_LISTED_MAX: u32 = 1000;

const _: () = {
    assert!(JOB_REPLICAS_MAX <= JOB_FILES_MAX);
    assert!(REUSE_FILES_MIN <= REUSE_FILES_MAX && REUSE_FILES_MAX <= JOB_FILES_MAX);
    assert!(REUSE_SMALL_BYTES_MAX < REUSE_LARGE_BYTES_MAX);
    assert!(JOB_MESSAGE_REASON_BYTES_MAX <= JOB_REASON_BYTES_MAX);
};
