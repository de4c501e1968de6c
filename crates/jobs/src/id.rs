//! Identifiers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name space of identifiers that can be computed by anyone (`base_id` of FTS3).
pub const BASE: Uuid = Uuid::from_u128(0x0187_4efb_4735_4595_bc9c_591a_ef82_40c9);

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    /// The one of a job that its submitter names: the same for the same name and VO.
    pub fn deterministic(vo: &str, name: &str) -> JobId {
        JobId(Uuid::new_v5(&Uuid::new_v5(&BASE, vo.as_bytes()), name.as_bytes()))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<JobId, uuid::Error> {
        Uuid::parse_str(text).map(JobId)
    }
}

/// A file of a job, by a number that the store gives. It is unique in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub i64);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
