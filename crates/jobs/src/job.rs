//! A job, and what its submitter has said of all its files.

use serde::{Deserialize, Serialize};

use crate::{File, JobId, JobKind, JobState, Storage};

/// The user of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The subject of the certificate, `/DC=org/CN=Ada`, or of the token.
    pub user_dn: String,
    /// The VO, on whose behalf the job is.
    pub vo: String,
    /// The name of what the user has lent: 16 hexadecimal digits.
    pub delegation_id: String,
}

/// A job. What it says of itself in FTS3's JSON is in fts3-rest 5.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: JobKind,
    /// Its state.
    pub state: JobState,
    /// The user.
    pub owner: Owner,
    /// The source of all its files; `None` where there are several. Of hops, that of the first.
    pub source_se: Option<Storage>,
    /// The destination of all its files; `None` where there are several. Of hops, that of the last.
    pub dest_se: Option<Storage>,
    /// Why it has not finished well.
    pub reason: Option<String>,
    /// When it came.
    pub submitted_s: i64,
    /// When it got its last state.
    pub finished_s: Option<i64>,
    /// 1 to 5, of which 5 is first.
    pub priority: u8,
    /// The broker that took it.
    pub submit_host: String,
    /// When files that still wait are cancelled.
    pub expires_s: Option<i64>,
    /// What was asked for.
    pub params: Params,
    /// The submitter's own words: a JSON object. `None`: none.
    pub metadata: Option<serde_json::Value>,
}

/// The end of a copy whose checksum is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verify {
    /// None.
    #[default]
    #[serde(rename = "n")]
    None,
    /// The source's with the submitter's.
    #[serde(rename = "s")]
    Source,
    /// The destination's with the submitter's.
    #[serde(rename = "t")]
    Target,
    /// Both with each other, and with the submitter's if there is one.
    #[serde(rename = "b")]
    Both,
}

/// The cases in which an existing destination is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overwrite {
    /// None.
    #[default]
    #[serde(rename = "")]
    Never,
    /// Each.
    #[serde(rename = "Y")]
    Always,
    /// From the second attempt.
    #[serde(rename = "R")]
    OnRetry,
    /// Of hops, but for the last.
    #[serde(rename = "M")]
    Hops,
    /// If it is on disk and not on tape.
    #[serde(rename = "D")]
    OnlyOnDisk,
    /// The last two.
    #[serde(rename = "Q")]
    HopsAndOnlyOnDisk,
}

/// What a submission says of all files of a job (fts3-rest 4.2). Defaults are FTS3's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Params {
    /// The checksums that are compared.
    pub verify: Verify,
    /// The existing destinations that are replaced.
    pub overwrite: Overwrite,
    /// An existing destination is described in the file's metadata.
    pub dst_file_report: bool,
    /// Attempts after the first; 0: what the VO has; less: none.
    pub retry: i32,
    /// Pause before another attempt, in seconds; 0: 120.
    pub retry_delay_s: u32,
    /// Time to bring a file from tape, in seconds, if it has to be.
    pub bring_online_s: Option<u32>,
    /// Time that a file is to stay on disk, in seconds.
    pub pin_lifetime_s: Option<u32>,
    /// Time for a copy to get to tape, in seconds, if that is waited for.
    pub archive_timeout_s: Option<u32>,
    /// Time for one copy, in seconds; `None`: by its size.
    pub timeout_s: Option<u32>,
    /// Parallel streams; `None`: the link's.
    pub streams: Option<u16>,
    /// Bytes of a TCP buffer; `None`: the link's.
    pub buffer_size_bytes: Option<u64>,
    /// No checks around the copy.
    pub strict_copy: bool,
    /// What is left of a failed copy stays at the destination.
    pub disable_cleanup: bool,
    /// This family of addresses only.
    pub family: Option<Family>,
    /// URLs of S3 with the bucket in the path.
    pub s3_alternate: bool,
    /// SRM's, as it was given.
    pub source_spacetoken: String,
    /// SRM's, as it was given.
    pub destination_spacetoken: String,
    /// Its tokens are used as they came.
    pub unmanaged_tokens: bool,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6.
    #[serde(rename = "ipv6")]
    V6,
}

/// A job with its files, as it is submitted: the store gives the files their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The job.
    pub job: Job,
    /// Its files; their numbers are 0.
    pub files: Vec<File>,
    /// True if the job is refused where a file that is not done has the same destination.
    pub has_unique_destinations: bool,
}
