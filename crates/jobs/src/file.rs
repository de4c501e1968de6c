//! A file of a job: one source, one destination.

use gridlane_core::Secret;
use serde::{Deserialize, Serialize};

use crate::{FileId, FileState, JobId, Link, Storage};

/// The way in which the source of a file is chosen among its replicas (fts3-rest 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selection {
    /// The shortest queue.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// In the order in which they were given.
    #[serde(rename = "orderly")]
    Orderly,
    /// The highest share of copies that went well.
    #[serde(rename = "success")]
    Success,
    /// The highest rate of the link.
    #[serde(rename = "throughput")]
    Throughput,
    /// The highest rate of a file.
    #[serde(rename = "file-throughput")]
    FileThroughput,
    /// The fewest bytes that wait.
    #[serde(rename = "pending-data")]
    PendingData,
    /// The shortest time for what waits.
    #[serde(rename = "waiting-time")]
    WaitingTime,
    /// The same, longer by what fails.
    #[serde(rename = "waiting-time-with-error")]
    WaitingTimeWithError,
    /// The same, with the copy itself.
    #[serde(rename = "duration")]
    Duration,
}

/// When things happened to a file, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stamps {
    /// The copy began (its last attempt).
    pub started_s: Option<i64>,
    /// The copy ended, well or not.
    pub finished_s: Option<i64>,
    /// It was asked to be brought from tape.
    pub staging_started_s: Option<i64>,
    /// It was there.
    pub staging_finished_s: Option<i64>,
    /// It began to wait for tape.
    pub archive_started_s: Option<i64>,
    /// It was on tape.
    pub archive_finished_s: Option<i64>,
}

/// A file of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its number.
    pub id: FileId,
    /// Its job.
    pub job: JobId,
    /// The place in the submission: replicas of one file have the same.
    pub index: u32,
    /// A number by which brokers share files out; the same for files that belong together.
    pub hashed_id: u16,
    /// The state.
    pub state: FileState,
    /// The state that it gets when its token is there, or its hop begins.
    pub initial_state: FileState,
    /// The source's URL, as it was given.
    pub source: String,
    /// The destination's URL, as it was given.
    pub destination: String,
    /// Its storages.
    pub link: Link,
    /// The VO, as its job's.
    pub vo: String,
    /// The activity, which has a share of its VO's.
    pub activity: String,
    /// As its job's.
    pub priority: u8,
    /// Bytes, as its submitter says; 0: not known.
    pub user_size_bytes: u64,
    /// Bytes, as the source says.
    pub size_bytes: Option<u64>,
    /// The checksum, as its submitter says: `ADLER32:1a2b3c4d`, or the type alone.
    pub checksum: String,
    /// Its submitter's own words, a JSON object.
    pub metadata: Option<serde_json::Value>,
    /// Words for the tape system of the source.
    pub staging_metadata: Option<serde_json::Value>,
    /// Words for the tape system of the destination.
    pub archive_metadata: Option<serde_json::Value>,
    /// The mark of its packets.
    pub scitag: Option<u16>,
    /// How its source was chosen.
    pub selection: Selection,
    /// Attempts that have failed.
    pub attempts: u32,
    /// Not before this, in seconds since 1970.
    pub retry_after_s: Option<i64>,
    /// The broker that copies it.
    pub transfer_host: Option<String>,
    /// Why it has failed.
    pub reason: Option<String>,
    /// Whether another attempt could help.
    pub is_recoverable: Option<bool>,
    /// Bytes that have moved.
    pub transferred_bytes: u64,
    /// Bytes per second.
    pub throughput_bytes_per_s: f64,
    /// Time of the copy, in seconds.
    pub duration_s: f64,
    /// When things happened.
    pub stamps: Stamps,
    /// The number of the request to bring it from tape.
    pub bringonline_token: Option<String>,
    /// The names of its tokens in the store of secrets: for the source, for the destination.
    pub tokens: Option<(String, String)>,
}

/// A token that came with a job; only as it is submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// The first 16 digits of its SHA-1: its name.
    pub id: String,
    /// The token.
    pub access: Secret,
    /// Its issuer.
    pub issuer: String,
    /// Its end, in seconds since 1970.
    pub ends_s: i64,
    /// The rights that it gives, as its issuer wrote them, with blanks between them.
    pub scope: String,
    /// The services that it is for, with blanks between them.
    pub audience: Option<String>,
}

/// An attempt that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The file.
    pub file: FileId,
    /// From 0.
    pub number: u32,
    /// When it ended, in seconds since 1970.
    pub ended_s: i64,
    /// Why it failed.
    pub reason: String,
    /// The broker that made it.
    pub transfer_host: String,
}

impl File {
    /// Its storage at the source.
    pub fn source_se(&self) -> &Storage {
        &self.link.source
    }

    /// Its storage at the destination.
    pub fn dest_se(&self) -> &Storage {
        &self.link.destination
    }
}
